"""Carry out the schedule "rows": every computing warpgroup becomes a role with its own rows of each program.

    role compute, 8 warps:                             role compute, 4 warps:    the same over rows 0 to 63
        wait full; s[c0, c1] += qt[c0, c2] * ...  ->   role compute1, 4 warps:   the same over rows 64 to 127, where
        c[m0 + c0, n0 + c1] <- y[c0, c1]  128 x 64          a tensor's m0 + c0 is m0 + 64 + c0

Only the rings of shared tiles synchronise the roles. While one role stores its results, or waits for its own rows of
the next program, the other multiplies. A tile that is staged for a role's rows (the `a` of a product) becomes one tile
for each role, filled and freed separately.

Products determine which dimensions of a tile are rows: the rows of a product are those of its accumulator. The
statements between products extend this to other tiles. Each of these statements has to work row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from argus.ir.expr import Const, Coord, Expr, Thread, coords, walk
from argus.ir.nodes import (
    Access,
    Accumulate,
    AssertTags,
    Copy,
    For,
    Fragment,
    If,
    Kernel,
    Map,
    Mma,
    Share,
    Shared,
    Spec,
    Stage,
    Stmt,
    Tag,
    Watch,
)
from argus.ir.visit import map_accesses, map_exprs, rewrite_body
from argus.ir.visit import walk as statements
from argus.passes.fresh import Fresh, names
from argus.passes.report import Unfit
from argus.passes.specialise.rings import moving

Rows = dict[str, frozenset[int]]
"""The dimensions of each register tile or staged tile that are rows."""


def apart(kernel: Kernel, count: int) -> tuple[Kernel, ...]:
    """Return the kernel of each of `count` groups of warps. Each group computes its own rows of the tile. Raises
    `Unfit`."""
    if count == 1:
        return (kernel,)
    rows, height = _rows(kernel), _height(kernel)
    for stmt in statements(kernel.body):
        _check(kernel, rows, height, stmt)
    if height % count:
        raise Unfit(f"{count} groups of warps cannot share {height} rows", kernel.span, f"use a multiple of {count}")
    fresh = Fresh(kernel)
    return tuple(_Part(kernel, rows, height // count, number, fresh).kernel(count) for number in range(count))


def together(parts: Sequence[Kernel], warps: int) -> Kernel:
    """Return the kernel that stages the tiles of all `parts`: the body of the first part, plus the tiles that belong to
    the others."""
    first, *others = parts
    if not others:
        return first
    shared = {s.name: s for part in parts for s in part.shared}
    fragments = {f.name: f for part in parts for f in part.fragments}
    body = _together([part.body for part in parts])
    return replace(
        first, num_warps=warps, shared=tuple(shared.values()), fragments=tuple(fragments.values()), body=body
    )


def _together(bodies: Sequence[tuple[Stmt, ...]]) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    for alike in zip(*bodies, strict=True):
        match alike[0]:
            case Stage():
                result += {s.dst: s for s in alike if isinstance(s, Stage)}.values()
            case For() as loop:
                result.append(replace(loop, body=_together([s.body for s in alike if isinstance(s, For)])))
            case _:
                result += dict.fromkeys(alike)
    return tuple(result)


# ---------------------------------------------------------------------------- what is a row


def _height(kernel: Kernel) -> int:
    """Return the number of rows of the products. Raises `Unfit` if they differ."""
    heights = {s.shape[0]: s for s in statements(kernel.body) if isinstance(s, Mma)}
    if len(heights) != 1:
        span = list(heights.values())[-1].span if heights else kernel.span
        raise Unfit("products have tiles of different rows", span, "let all of them have the same rows")
    return next(iter(heights))


def _rows(kernel: Kernel) -> Rows:
    """Return the row dimensions of all tiles, found by following the products through all statements."""
    found: Rows = {}
    changed = True
    while changed:
        changed = False
        for stmt in statements(kernel.body):
            axes = _axes(kernel, found, stmt)
            for access in _own(kernel, stmt):
                new = frozenset(d for d, e in enumerate(access.index) if isinstance(e, Coord) and e.axis in axes)
                if not new <= found.get(access.obj, frozenset()):
                    found[access.obj] = found.get(access.obj, frozenset()) | new
                    changed = True
    return found


def _axes(kernel: Kernel, rows: Rows, stmt: Stmt) -> frozenset[int]:
    """Return the axes of the statement's domain that run along rows."""
    if isinstance(stmt, Mma):
        return frozenset({0})
    along = (e for a in _own(kernel, stmt) for dim, e in enumerate(a.index) if dim in rows.get(a.obj, ()))
    return frozenset(e.axis for e in along if isinstance(e, Coord))


def _own(kernel: Kernel, stmt: Stmt) -> list[Access]:
    """Return the parts of fragments and shared tiles that the statement itself accesses or names."""
    tiles: dict[str, Fragment | Shared] = {f.name: f for f in kernel.fragments} | {s.name: s for s in kernel.shared}
    found: list[Access] = []

    def note(access: Access) -> Access:
        found.append(access)
        return access

    map_accesses(stmt, note)
    match stmt:
        case Stage(dst=name) | Share(dst=name) | Tag(obj=name) if name in tiles:
            found.append(Access(name, coords(len(tiles[name].shape))))
        case _:
            pass
    return [a for a in found if a.obj in tiles]


def _check(kernel: Kernel, rows: Rows, height: int, stmt: Stmt) -> None:
    """Check that the statement works row by row. Raises `Unfit`."""
    help = "leave out the schedule, or let every statement compute each row from the same row"
    if not isinstance(stmt, Stage | Share | Copy | Map | Accumulate | Mma | For | If | Watch | Tag | AssertTags | Spec):
        raise Unfit("warps that compute wait for one another", stmt.span, help)
    if _depends_on_thread(stmt):
        raise Unfit("a statement depends on the thread", stmt.span, help)
    axes, own = _axes(kernel, rows, stmt), _own(kernel, stmt)
    for access in own:
        for dim, expr in enumerate(access.index):
            along = {e.axis for e in walk(expr) if isinstance(e, Coord)} & axes
            straight = isinstance(expr, Coord) and bool(along)
            if straight != (dim in rows.get(access.obj, ())) or (along and not straight):
                raise Unfit(f"a row of {access.obj} meets other rows", stmt.span, help)
    shaped = Stage | Share | Copy | Map | Accumulate | Watch | AssertTags
    if isinstance(stmt, shaped) and any(stmt.shape[a] != height for a in axes):
        raise Unfit(f"a statement goes over some of the {height} rows", stmt.span, help)
    if isinstance(stmt, Share) and not axes:
        raise Unfit(f"{stmt.dst} is written for all rows together", stmt.span, help)
    if isinstance(stmt, Copy | Map | Accumulate):
        inner = [a for a in own if a == stmt.dst]
        if inner and axes - {e.axis for e in inner[0].index if isinstance(e, Coord)}:
            raise Unfit(f"{stmt.dst.obj} is made of all rows together", stmt.span, help)
        if not inner and not axes:
            raise Unfit(f"{stmt.dst.obj} is written for all rows together", stmt.span, help)


def _depends_on_thread(stmt: Stmt) -> bool:
    found: list[Expr] = []

    def note(expr: Expr) -> None:
        found.append(expr)

    map_exprs(stmt, note)
    return any(isinstance(e, Thread) for e in found)


# ---------------------------------------------------------------------------- one group of warps


@dataclass(frozen=True, slots=True)
class _Part:
    """The group of warps number `number`, where each group has `height` rows. `fresh` names the group's own tiles."""

    whole: Kernel
    rows: Rows
    height: int
    number: int
    fresh: Fresh

    def kernel(self, count: int) -> Kernel:
        """Return the kernel that this group runs, one of `count` groups."""
        alone = {name for s in statements(self.whole.body) for name in names(s) if self.rows.get(name)}
        alone |= {f.name for f in self.whole.fragments}
        called = {name: name if self.number == 0 else self.fresh.name(name) for name in self._tiles(alone)}
        shared = tuple(
            replace(s, name=called[s.name], shape=self._extents(s.name, s.shape)) if s.name in called else s
            for s in self.whole.shared
        )
        fragments = tuple(
            replace(f, name=called[f.name], shape=self._extents(f.name, f.shape)) for f in self.whole.fragments
        )
        body = rewrite_body(self.whole.body, lambda s: (self._statement(s, called),))
        return replace(
            self.whole, num_warps=self.whole.num_warps // count, shared=shared, fragments=fragments, body=body
        )

    def _tiles(self, alone: set[str]) -> Iterator[str]:
        """Return the tiles that belong to the group, in the order of their declaration."""
        yield from (s.name for s in self.whole.shared if s.name in alone)
        yield from (f.name for f in self.whole.fragments)

    def _extents(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        along = self.rows.get(name, ())
        return tuple(self.height if dim in along else extent for dim, extent in enumerate(shape))

    def _statement(self, stmt: Stmt, called: dict[str, str]) -> Stmt:
        axes = _axes(self.whole, self.rows, stmt)
        if isinstance(stmt, Spec) or (isinstance(stmt, Tag) and stmt.obj not in called):
            return stmt
        for axis in axes:
            stmt = map_exprs(stmt, moving(axis, Const(self.number * self.height)))

        def access(a: Access) -> Access:
            """Return `access` with a tile's own rows counted from the group's first row."""
            if a.obj not in called:
                return a
            along = self.rows.get(a.obj, ())
            index = tuple(_coordinate(e) if dim in along else e for dim, e in enumerate(a.index))
            return Access(called[a.obj], index)

        stmt = map_accesses(stmt, access)
        match stmt:
            case Mma(shape=(_, n, k)):
                return replace(stmt, shape=(self.height, n, k))
            case Stage(dst=dst) | Share(dst=dst):
                return replace(stmt, dst=called.get(dst, dst), shape=self._shape(stmt.shape, axes))
            case Copy() | Map() | Accumulate() | Watch() | AssertTags():
                return replace(stmt, shape=self._shape(stmt.shape, axes))
            case Tag(obj=obj, shape=shape):
                extents = tuple(Const(self.height) if dim in axes else e for dim, e in enumerate(shape))
                return replace(stmt, obj=called[obj], shape=extents)
            case _:
                return stmt

    def _shape(self, shape: tuple[int, ...], axes: frozenset[int]) -> tuple[int, ...]:
        return tuple(self.height if axis in axes else extent for axis, extent in enumerate(shape))


def _coordinate(expr: Expr) -> Coord:
    return next(e for e in walk(expr) if isinstance(e, Coord))
