"""The only module that reads the process environment. Other modules receive what they need as arguments."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path


def variable(name: str, default: str = "") -> str:
    """Return the value of environment variable `name` without surrounding spaces, or `default` if it is unset or empty.
    """
    return os.environ.get(name, "").strip() or default


def debug_level() -> int:
    """Return `ARGUS_DEBUG` as a number from 0 to 5, or 0 if it is not a number."""
    text = variable("ARGUS_DEBUG", "0")
    return min(int(text), 5) if text.isascii() and text.isdecimal() and len(text) < 20 else 0


def cache_directory() -> Path:
    """Return the folder of the build cache: `ARGUS_CACHE_DIR`, else `$XDG_CACHE_HOME/argus`, else `~/.cache/argus`."""
    chosen = variable("ARGUS_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    return Path(variable("XDG_CACHE_HOME", "~/.cache")).expanduser() / "argus"


def search_path() -> str:
    """Return the folders that are searched for programs: `PATH`, or the system's default if `PATH` is unset."""
    return os.environ.get("PATH", os.defpath)


STARTER = "ARGUS_STARTED_BY"
"""The variable that tells a worker which process started it: that one may end before the worker can ask."""


def started_by() -> int:
    """Return the number of the process that started this one."""
    number = variable(STARTER)
    return int(number) if number.isascii() and number.isdecimal() else os.getppid()


def for_programs() -> dict[str, str]:
    """Return the environment for a program that Argus starts. A compiler searches its helpers in the folder where it
    was found."""
    return {**os.environ, "PATH": search_path()}


def find_tool(names: Iterable[str], override: str = "", directories: Iterable[Path] = ()) -> str | None:
    """Return the path of a program: the one that variable `override` names, else the first of `names` that is found.

    Searches `search_path()`, then `directories`. If the override is not a program, nothing is found, so that a
    misspelt path is reported instead of silently replaced.
    """
    chosen = variable(override) if override else ""
    if chosen:
        return shutil.which(chosen)
    places = os.pathsep.join([search_path(), *map(str, directories)])
    return next((path for name in names if (path := shutil.which(name, path=places))), None)


def cuda_directories() -> tuple[Path, ...]:
    """Return the program folders of CUDA toolkits: in `CUDA_HOME`, `CUDA_PATH` and /usr/local/cuda."""
    homes = [variable("CUDA_HOME"), variable("CUDA_PATH"), "/usr/local/cuda"]
    return tuple(Path(home) / "bin" for home in homes if home)


def llvm_directories() -> tuple[Path, ...]:
    """Return the folders of LLVM's programs in ROCm: in `ROCM_PATH` and /opt/rocm."""
    homes = [variable("ROCM_PATH"), "/opt/rocm"]
    return tuple(Path(home) / "llvm" / "bin" for home in homes if home)
