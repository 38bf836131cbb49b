"""What, besides a kernel's text and options, could change what is built or proved, as JSON for a cache key."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from argus.ir.types import DTYPES, DType

FORMAT = 2
"""Version of what the entries under a key hold. Raise it when their meaning changes."""

_SOLVERS = ("lark", "z3_solver", "islpy", "numpy")


@lru_cache(maxsize=1)
def compiler() -> dict[str, str]:
    """The SHA-256 of Argus's own source files and the versions of what it proves with."""
    return {"argus": tree_digest(Path(__file__).parent.parent), **versions(_SOLVERS, sys.path)}


def versions(distributions: Iterable[str], directories: Iterable[str]) -> dict[str, str]:
    """Installed versions, by the names of the metadata folders: reading the metadata takes ten times as long."""
    found = dict.fromkeys(distributions, "")
    for directory in directories:
        try:
            names = os.listdir(directory or ".")
        except OSError:
            continue
        for name in names:
            distribution, separator, rest = name.removesuffix(".dist-info").partition("-")
            if separator and name.endswith(".dist-info") and found.get(distribution) == "":
                found[distribution] = rest
    return found


def tree_digest(directory: Path) -> str:
    """SHA-256 over the names and contents of all files below `directory`, compiled Python left out."""
    digest = sha256()
    for parent, directories, files in os.walk(directory):
        directories[:] = sorted(d for d in directories if d != "__pycache__")
        for name in sorted(files):
            content = Path(parent, name).read_bytes()
            relative = os.path.relpath(os.path.join(parent, name), directory)
            digest.update(f"{relative}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()


def file_identity(path: str) -> list[str | int]:
    """Real path, size and modification time (ns) of a tool: who compiles, without running it."""
    real = os.path.realpath(path)
    status = os.stat(real)
    return [real, status.st_size, status.st_mtime_ns]


def constant(value: object) -> Any:
    """A constexpr value as JSON, such that equal JSON means the same value of the same type.

    TypeError for what cannot be a constexpr.
    """
    match value:
        case None | bool() | str():
            return value
        case int():
            return ["int", str(value)]
        case float():
            return ["float", value.hex()]
        case DType():
            return ["dtype", value.name]
        case tuple():
            return ["tuple", *(constant(item) for item in value)]
        case _:
            raise TypeError(f"a constexpr is an int, float, bool, str, dtype or tuple, not {type(value).__name__}")


def value_of(data: Any) -> object:
    """The inverse of `constant`."""
    match data:
        case ["int", text]:
            return int(text)
        case ["float", text]:
            return float.fromhex(text)
        case ["dtype", name]:
            return DTYPES[name]
        case ["tuple", *items]:
            return tuple(value_of(item) for item in items)
        case _:
            return data
