"""Names in statements and declarations of roles: collect, replace and compare them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from argus.ir.nodes import (
    Access,
    BulkCopy,
    Copy,
    Fragment,
    Mbarrier,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierInit,
    MbarrierWait,
    Shared,
    Signal,
    Stmt,
    Tag,
)
from argus.ir.visit import map_accesses, walk

Body = tuple[Stmt, ...]
Object = Shared | Fragment | Mbarrier


class Unlike(Exception):
    """Some roles do not meet the conditions above."""


def placed(declared: Object, name: str) -> Object:
    """Return a declaration with another name and without its offset in shared memory, for comparisons."""
    return replace(declared, name=name) if isinstance(declared, Fragment) else replace(declared, name=name, offset=0)


def names_in(stmt: Stmt) -> list[str]:
    """Return the memory objects and mbarriers that a statement names, in order. Nested statements are not included."""
    found: list[str] = []

    def note(access: Access) -> Access:
        found.append(access.obj)
        return access

    map_accesses(stmt, note)
    match stmt:
        case MbarrierInit(barrier=name) | MbarrierExpect(barrier=name) | MbarrierArrive(barrier=name):
            found.append(name)
        case MbarrierWait(barrier=name) | Copy(signal=Signal(barrier=name)) | Tag(obj=name):
            found.append(name)
        case _:
            pass
    return found


def renamed(stmt: Stmt, names: Mapping[str, str]) -> tuple[Stmt, ...]:
    """Rename memory objects and mbarriers in a statement."""
    stmt = map_accesses(stmt, lambda access: replace(access, obj=names.get(access.obj, access.obj)))
    match stmt:
        case MbarrierInit(barrier=name) | MbarrierExpect(barrier=name) | MbarrierArrive(barrier=name):
            return (replace(stmt, barrier=names.get(name, name)),)
        case MbarrierWait(barrier=name):
            return (replace(stmt, barrier=names.get(name, name)),)
        case BulkCopy(signal=Signal(barrier=name) as signal):
            return (replace(stmt, signal=replace(signal, barrier=names.get(name, name))),)
        case Tag(obj=name):
            return (replace(stmt, obj=names.get(name, name)),)
        case _:
            return (stmt,)


def other_names(body: Body, other: Body) -> dict[str, str]:
    """Map each name in one role's body to the name that another role's body has in its place."""
    found: dict[str, str] = {}
    for mine, theirs in zip(walk(body), walk(other), strict=True):
        a, b = names_in(mine), names_in(theirs)
        if len(a) != len(b) or any(found.setdefault(x, y) != y for x, y in zip(a, b, strict=True)):
            raise Unlike
    return found
