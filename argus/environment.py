"""The one place that reads the process environment. Everything else is passed what it needs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path


def variable(name: str, default: str = "") -> str:
    """The value of environment variable `name`, stripped; `default` if it is unset or empty."""
    return os.environ.get(name, "").strip() or default


def debug_level() -> int:
    """`ARGUS_DEBUG` as a number from 0 to 5; anything that is no number reads 0."""
    text = variable("ARGUS_DEBUG", "0")
    return min(int(text), 5) if text.isascii() and text.isdecimal() and len(text) < 20 else 0


def cache_directory() -> Path:
    """Where builds are kept: `ARGUS_CACHE_DIR`, else `$XDG_CACHE_HOME/argus`, else `~/.cache/argus`."""
    chosen = variable("ARGUS_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    return Path(variable("XDG_CACHE_HOME", "~/.cache")).expanduser() / "argus"


def search_path() -> str:
    """The folders where programs are looked for: `PATH`, or where the system looks if it is unset."""
    return os.environ.get("PATH", os.defpath)


def for_programs() -> dict[str, str]:
    """The environment of a program that Argus starts: a compiler finds its assembler and linker where it was found."""
    return {**os.environ, "PATH": search_path()}


def find_tool(names: Iterable[str], override: str = "", directories: Iterable[Path] = ()) -> str | None:
    """The path of a program: the one that variable `override` names, else the first of `names` found.

    Looks in `search_path()`, then in `directories`. An override that is no program finds nothing, so that a misspelt
    path is reported instead of silently replaced.
    """
    chosen = variable(override) if override else ""
    if chosen:
        return shutil.which(chosen)
    places = os.pathsep.join([search_path(), *map(str, directories)])
    return next((path for name in names if (path := shutil.which(name, path=places))), None)


def cuda_directories() -> tuple[Path, ...]:
    """Folders of CUDA toolkits' programs: `CUDA_HOME`, `CUDA_PATH`, and the usual place."""
    homes = [variable("CUDA_HOME"), variable("CUDA_PATH"), "/usr/local/cuda"]
    return tuple(Path(home) / "bin" for home in homes if home)


def llvm_directories() -> tuple[Path, ...]:
    """Folders of LLVM's programs in a ROCm installation: `ROCM_PATH`, and the usual place."""
    homes = [variable("ROCM_PATH"), "/opt/rocm"]
    return tuple(Path(home) / "llvm" / "bin" for home in homes if home)
