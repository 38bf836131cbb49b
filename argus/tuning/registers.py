"""The registers that a thread needs for tiles at the point of a kernel that needs most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from argus.ir.access import Mode, relations
from argus.ir.nodes import For, Fragment, Kernel, Roles, Stmt
from argus.ir.visit import blocks

_WORD = 4


@dataclass(frozen=True, slots=True)
class _Use:
    """A use of a tile by the statement at `place`. The gap after a statement has the same number."""

    tile: str
    place: int
    reads: bool


def held_registers(kernel: Kernel) -> int:
    """Return the largest number of a thread's registers that hold tiles at the same time. With roles, count outside of
    them."""
    return _most(kernel, tuple(s for s in kernel.body if not isinstance(s, Roles)))


def exceeded(kernel: Kernel, beside: int) -> str:
    """Describe a role whose tiles and `beside` further registers exceed the role's own budget; "" if all fit."""
    roles = [role for stmt in kernel.body if isinstance(stmt, Roles) for role in stmt.roles]
    for role in roles:
        held = _most(kernel, role.body)
        if held and role.registers is not None and held + beside > role.registers:
            return f"the tiles of role `{role.name}` take {held} of its {role.registers} registers a thread"
    return ""


def _most(kernel: Kernel, body: tuple[Stmt, ...]) -> int:
    """Return the most registers that tiles take in one gap between statements."""
    sizes = {f.name: _registers(f) for f in kernel.fragments}
    changes: dict[int, int] = {}
    for tile, (first, last) in _lives(body).items():
        if tile in sizes:
            changes[first] = changes.get(first, 0) + sizes[tile]
            changes[last + 1] = changes.get(last + 1, 0) - sizes[tile]
    most = now = 0
    for gap in sorted(changes):
        now += changes[gap]
        most = max(most, now)
    return most


def _registers(tile: Fragment) -> int:
    values = tile.layout.num_values if tile.layout is not None else 0
    return ceil(values * tile.dtype.bytes / _WORD)


def _lives(body: tuple[Stmt, ...]) -> dict[str, tuple[int, int]]:
    """Return the first and the last gap in which each tile is live: from its first write to before its last read.

    A tile is live in all of a loop if the loop reads it before writing it, or does not write it.
    """
    found: dict[str, tuple[int, int]] = {}

    def include(tile: str, first: int, last: int) -> None:
        known = found.get(tile, (first, last))
        found[tile] = (min(first, known[0]), max(last, known[1]))

    def visit(stmts: tuple[Stmt, ...], place: int) -> tuple[int, list[_Use]]:
        uses: list[_Use] = []
        for stmt in stmts:
            start, inside = place, list[_Use]()
            for block in blocks(stmt):
                place, more = visit(block, place)
                inside += more
            if isinstance(stmt, For):
                for tile in _carried(inside):
                    include(tile, start, place)
            place += 1
            uses += [*inside, *_uses(stmt, place)]
        return place, uses

    for use in visit(body, 0)[1]:
        gap = use.place - 1 if use.reads else use.place
        include(use.tile, gap, gap)
    return found


def _uses(stmt: Stmt, place: int) -> Iterator[_Use]:
    for access in relations(stmt):
        if access.mode is not Mode.WRITE:
            yield _Use(access.obj, place, True)
        if access.mode is not Mode.READ:
            yield _Use(access.obj, place, False)


def _carried(uses: list[_Use]) -> list[str]:
    """Return the tiles whose first use in a loop reads them."""
    first: dict[str, _Use] = {}
    for use in uses:
        first.setdefault(use.tile, use)
    return [tile for tile, use in first.items() if use.reads]
