"""Fingerprints for cache keys, as JSON: compiler, tools, constants and source files that affect a build or proof."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from argus.ir.types import DTYPES, DType
from argus.source import Elsewhere, Outer, SourceFile, Unusable, Value

FORMAT = 2
"""Version of the stored entries. It is raised when the meaning of an entry changes."""

_SOLVERS = ("lark", "z3_solver", "islpy", "numpy")


@lru_cache(maxsize=1)
def compiler() -> dict[str, str]:
    """Return the SHA-256 of Argus's own source files, and the versions of the libraries that its proofs use."""
    return {"argus": tree_digest(Path(__file__).parent.parent), **versions(_SOLVERS, sys.path)}


def versions(distributions: Iterable[str], directories: Iterable[str]) -> dict[str, str]:
    """Return installed versions from the names of metadata folders; reading the metadata takes ten times as long."""
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
    """Return the SHA-256 of the names and contents of all files below `directory`, except compiled Python."""
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
    """Return a tool's real path, size and modification time (ns), which identify it without running it."""
    real = os.path.realpath(path)
    status = os.stat(real)
    return [real, status.st_size, status.st_mtime_ns]


def constant(value: object) -> Any:
    """Return a constexpr value as JSON. Equal JSON means the same value of the same type.

    Raises TypeError for a value that cannot be a constexpr.
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
    """Return the constant that the JSON value of `constant` describes."""
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


def file_to_json(file: SourceFile) -> Any:
    """Return a source file, with everything that it takes from elsewhere, as JSON.

    Raises TypeError for a constant that cannot be a constexpr.
    """
    around = [[outer.name, outer.closest, *_meaning_to_json(outer.meaning)] for outer in file.around or ()]
    return [file.path, file.text, file.first_line, around]


def _meaning_to_json(meaning: Elsewhere | Value | Unusable) -> list[Any]:
    match meaning:
        case Elsewhere(file=other, name=name):
            return ["file", file_to_json(other), name]
        case Value(value=value):
            return ["value", constant(value)]
        case Unusable(code=code, message=message, remedy=remedy):
            return ["unusable", code, message, remedy]


def file_from_json(data: Any) -> SourceFile:
    """Return the file that the JSON value of `file_to_json` describes."""
    path, text, first_line, around = data
    outer = (Outer(name, _meaning_from_json(meaning), closest) for name, closest, *meaning in around)
    return SourceFile(path, text, first_line, tuple(outer))


def _meaning_from_json(data: Any) -> Elsewhere | Value | Unusable:
    match data:
        case ["file", other, name]:
            return Elsewhere(file_from_json(other), name)
        case ["value", value]:
            return Value.of(value_of(value))
        case [_, code, message, remedy]:
            return Unusable(code, message, remedy)
        case _:
            raise ValueError("no name of a text")
