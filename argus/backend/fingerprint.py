"""What, besides a kernel's text and options, could change what is built or proved, as JSON for a cache key."""

from __future__ import annotations

import os
from functools import lru_cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

from argus.ir.types import DTYPES, DType

FORMAT = 1
"""Version of what the entries under a key hold. Raise it when their meaning changes."""

_SOLVERS = ("lark", "z3-solver", "islpy", "numpy")


@lru_cache(maxsize=1)
def compiler() -> dict[str, str]:
    """The version of Argus, the SHA-256 of its own source files, and the versions of what it proves with."""
    return {"argus": tree_digest(Path(__file__).parent.parent)} | {name: version(name) for name in _SOLVERS}


def version(distribution: str) -> str:
    """The installed version of a distribution, without importing it; "" if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


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
