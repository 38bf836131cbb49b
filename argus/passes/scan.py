"""Expand scans over threads: each thread's own registers first, then the lanes of a warp, then the warps, and back
down.

    scan axis 1 of x to y = y[c0, c1] + x[c0, c1]      (c1 is spread over 4 registers, 32 lanes, 2 warps)

    s[c0, 4 * c1] = x[c0, 4 * c1]                      one register after another: s holds scans of 4 elements
    s[c0, 4 * c1 + 1] = s[c0, 4 * c1] + x[c0, 4 * c1 + 1] ...
    t[c0, c1] = s[c0, 4 * c1 + 3]                      the totals of s; shuffles over 1, 2, 4, ... lanes make t
    t[c0, c1] = t[c0, c1 - 1] + t[c0, c1] ...            the scan of the totals in a warp
    u[c0, c1] = t[c0, 32 * c1 + 31]                    the totals of warps: via shared memory, scanned by each warp
    t[c0, c1] = u[c0, c1 // 32 - 1] + t[c0, c1]        back down: each part with the scan of all parts before it
    y[c0, c1] = t[c0, c1 // 4 - 1] + s[c0, c1]

Every step is an ordinary statement, and the proof is about these statements. The combining expressions are repeated
wherever two parts are combined, with the earlier part first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod

from argus.ir.expr import Const, Coord, Elem, Expr, coords, op, rewrite
from argus.ir.nodes import Access, Barrier, Kernel, Map, Scan, Stmt, ThreadCopy
from argus.layout import FragmentLayout, Mode
from argus.passes.context import Enclosing, rewrite_in_context
from argus.passes.fresh import Fresh
from argus.passes.layouts import holds, split_threads, uneven
from argus.passes.moves import target_of
from argus.passes.report import LoweringError, problem
from argus.passes.scratch import scratch_layout

_STEPS = 8
"""Largest number of registers that are combined one after another. Longer runs are split into parts."""


def expand_scans(kernel: Kernel) -> Kernel:
    """Write out every `Scan`, whose layout must already be chosen."""
    fresh = Fresh(kernel)

    def change(stmt: Stmt, context: Enclosing) -> tuple[Stmt, ...] | None:
        return _Expansion(fresh, stmt, context).run() if isinstance(stmt, Scan) else None

    return fresh.finish(rewrite_in_context(kernel.body, change))


@dataclass(frozen=True, slots=True)
class _Tiles:
    """One register tile for each tile of a scan, all in the same layout."""

    names: tuple[str, ...]
    layout: FragmentLayout


@dataclass(frozen=True, slots=True)
class _Level:
    """Scans of groups of `extent` adjacent parts of the axis. `spread` is the layout with one element for each group.
    """

    scanned: _Tiles
    extent: int
    spread: FragmentLayout


class _Expansion:
    """The statements of one scan, collected in `body`."""

    def __init__(self, fresh: Fresh, stmt: Scan, context: Enclosing) -> None:
        self.fresh, self.stmt, self.context = fresh, stmt, context
        self.axis, self.whole = stmt.axis, coords(len(stmt.shape))
        self.dtypes = tuple(t.combine.dtype for t in stmt.tiles)
        self.body: list[Stmt] = []

    def run(self) -> tuple[Stmt, ...]:
        """Scan from the smallest parts to the largest. Then, on the way back, combine each part with the scan of all
        earlier parts."""
        assert self.stmt.layout is not None
        source = _Tiles(tuple(t.operand.obj for t in self.stmt.tiles), self.stmt.layout)
        digits = self._digits(source.layout)
        own = [(kind, n) for kind, n in digits if kind != "warps"]
        levels, totals = self._up(source, own or [("registers", 1)], len(own) < len(digits))
        before = None if totals is None else self._over_warps(totals)
        results = tuple(t.result.obj for t in self.stmt.tiles)
        self._down(levels, before, _Tiles(results, self.stmt.layout))
        return tuple(self.body)

    def _up(self, source: _Tiles, digits: list[tuple[str, int]], more: bool) -> tuple[list[_Level], _Tiles | None]:
        """Emit the scans of all levels and return them. With `more`, also return the totals of the last level."""
        levels: list[_Level] = []
        for number, (kind, extent) in enumerate(digits):
            spread = coarser(source.layout, self.axis, extent)
            scanned = self._lanes(source, extent) if kind == "lanes" else self._registers(source, extent, spread)
            levels.append(_Level(scanned, extent, spread))
            if number + 1 < len(digits) or more:
                source = self._read(scanned, self._end(extent), spread, "totals")
        return levels, source if more else None

    def _digits(self, layout: FragmentLayout) -> list[tuple[str, int]]:
        """Split the axis into digits, fastest first. The first digit of warps and all later digits count as one digit.
        """
        threads = split_threads(layout, self.fresh.kernel.warp_size)
        if threads is None or uneven(layout, self.axis):
            what = f"the layout {layout} does not split the scanned axis evenly over threads and registers"
            help = "leave the layout of the operand open, or choose one whose modes nest"
            raise LoweringError(problem("reduction-layout", what, self.stmt.span, help))
        lanes, warps = threads
        digits = [(d.stride, "lanes", d.extent) for d in lanes if d.axis == self.axis]
        digits += [(d.stride, "warps", d.extent) for d in warps if d.axis == self.axis]
        digits += [(m.stride, "registers", m.extent) for m in layout.values if m.dim == self.axis and m.extent > 1]
        found: list[tuple[str, int]] = []
        for stride, kind, extent in sorted(digits):
            if kind == "warps":
                return [*found, (kind, layout.shape[self.axis] // stride)]
            found += [(kind, n) for n in (in_steps(extent) if kind == "registers" else (extent,))]
        return found or [("registers", 1)]

    # ------------------------------------------------------------------ up

    def _registers(self, source: _Tiles, extent: int, groups: FragmentLayout) -> _Tiles:
        """Let each thread combine its own elements one after another."""
        scanned = so_far = self._tiles("scan", source.layout)
        first, step = (extent - 1, -1) if self.stmt.reverse else (0, 1)
        for turn in range(extent):
            here = op("add", op("mul", Coord(self.axis), Const(extent)), Const(first + step * turn))
            values = self._elems(source, here)
            if turn:
                values = self._combined(self._elems(so_far, Coord(self.axis)), values)
            so_far = self._tiles("part", groups)
            self._set(so_far, Coord(self.axis), values, groups)
            self._set(scanned, here, self._elems(so_far, Coord(self.axis)), groups)
        return scanned

    def _lanes(self, source: _Tiles, extent: int) -> _Tiles:
        """Combine each lane's value with that of an earlier lane, and double the distance until the digit is covered.
        """
        here = Coord(self.axis)
        place = op("mod", here, Const(extent)) if extent < source.layout.shape[self.axis] else here
        scanned, distance = source, 1
        while distance < extent:
            near = (op("lt", place, Const(extent - distance)) if self.stmt.reverse
                    else op("ge", place, Const(distance)))  # fmt: skip
            from_there = op("where", near, self._before(here, distance), here)
            earlier = self._read(scanned, from_there, source.layout, "earlier")
            own = self._elems(scanned, here)
            combined = self._combined(self._elems(earlier, here), own)
            scanned = self._tiles("scan", source.layout)
            self._set(scanned, here, _either(near, combined, own), source.layout)
            distance *= 2
        return scanned

    # ------------------------------------------------------------------ across warps, and down

    def _over_warps(self, totals: _Tiles) -> _Tiles:
        """Return the scan of all earlier parts for each warp's part. Every warp scans the totals of all warps."""
        layout = self._of_every_warp(totals.layout)
        every = self._through_shared(totals, Coord(self.axis), layout, "warps", not self.context.meets)
        levels, _ = self._up(every, self._digits(layout), False)
        scanned = self._tiles("scan", layout)
        self._down(levels, None, scanned)
        return self._through_shared(scanned, self._preceding(totals.layout), totals.layout, "before", False)

    def _of_every_warp(self, totals: FragmentLayout) -> FragmentLayout:
        """Return the layout of all totals in each warp: over the lanes that share the axis, if there are enough."""
        assert self.stmt.layout is not None
        extent, size, place = totals.shape[self.axis], self.fresh.kernel.warp_size, 1
        lanes: list[tuple[Mode, int]] = []
        for mode in self.stmt.layout.threads:
            lanes.append((mode, gcd(mode.extent, max(1, size // place)) if mode.dim == self.axis else 0))
            place *= mode.extent
        across = prod(inside for _, inside in lanes if inside)
        spread = extent % across == 0 and extent > _STEPS
        stride, threads = extent // across, list[Mode]()
        for mode, inside in lanes:
            if mode.dim != self.axis:
                threads.append(mode)
                continue
            threads += [Mode(inside, self.axis if spread else None, stride), Mode(mode.extent // inside, None)]
            stride *= inside
        own = Mode(extent // across if spread else extent, self.axis)
        kept = tuple(m for m in totals.values if m.dim != self.axis)
        return FragmentLayout(totals.shape, tuple(threads), (*kept, own)).simplify()

    def _down(self, levels: Sequence[_Level], before: _Tiles | None, results: _Tiles) -> None:
        """Combine the smallest scans with everything before them, going from the largest level to the smallest.

        `before` is the scan of all groups before each group of the largest level, or None if that level has one group.
        """
        for level in reversed(levels[1:]):
            before = self._exclusive(level, before)
        first, here = levels[0], Coord(self.axis)
        values = self._elems(first.scanned, here) if before is None else self._joined(before, first)
        self._set(results, here, values, first.scanned.layout)

    def _exclusive(self, level: _Level, before: _Tiles | None) -> _Tiles:
        """Return the scan of everything before each part of a level: earlier parts of its group, and earlier groups."""
        layout, here = level.scanned.layout, Coord(self.axis)
        inside = self._follows(op("mod", here, Const(level.extent)) if before is not None else here, level.extent)
        near = self._read(level.scanned, op("where", inside, self._before(here, 1), here), layout, "near")
        if before is None:
            return near
        group = op("floordiv", here, Const(level.extent))
        some, own = self._follows(group, level.spread.shape[self.axis]), self._elems(near, here)
        there = self._elems(before, group)
        both = _either(some, self._combined(there, own), own)
        made = self._tiles("before", layout)
        self._set(made, here, _either(inside, both, there), layout)
        return made

    def _joined(self, before: _Tiles, level: _Level) -> list[Expr]:
        """Return the scans of a level, each combined with everything before its group."""
        here, groups = Coord(self.axis), level.spread.shape[self.axis]
        group = op("floordiv", here, Const(level.extent))
        own = self._elems(level.scanned, here)
        return _either(self._follows(group, groups), self._combined(self._elems(before, group), own), own)

    def _follows(self, place: Expr, extent: int) -> Expr:
        """Return an expression that is true if another of the `extent` places precedes this one in the scan."""
        return op("lt", place, Const(extent - 1)) if self.stmt.reverse else op("gt", place, Const(0))

    def _preceding(self, layout: FragmentLayout) -> Expr:
        """Return the place before each one, or the first place itself."""
        here = Coord(self.axis)
        return op("where", self._follows(here, layout.shape[self.axis]), self._before(here, 1), here)

    # ------------------------------------------------------------------ expressions and statements

    def _at(self, place: Expr) -> tuple[Expr, ...]:
        """Return the coordinates of a statement, with `place` along the axis."""
        return (*self.whole[: self.axis], place, *self.whole[self.axis + 1 :])

    def _end(self, extent: int) -> Expr:
        """Return the place in a group where the group's scan ends."""
        last = 0 if self.stmt.reverse else extent - 1
        return op("add", op("mul", Coord(self.axis), Const(extent)), Const(last))

    def _before(self, place: Expr, distance: int) -> Expr:
        return op("add" if self.stmt.reverse else "sub", place, Const(distance))

    def _elems(self, tiles: _Tiles, place: Expr) -> list[Expr]:
        return [Elem(name, self._at(place), dtype) for name, dtype in zip(tiles.names, self.dtypes, strict=True)]

    def _combined(self, before: Sequence[Expr], here: Sequence[Expr]) -> list[Expr]:
        """Combine the value of a scan so far with the next value. Both have one expression for each tile."""
        known: dict[Expr, Expr] = {}
        for tile, first, second, dtype in zip(self.stmt.tiles, before, here, self.dtypes, strict=True):
            known |= {
                Elem(tile.operand.obj, self.whole, dtype): second,
                Elem(tile.result.obj, self.whole, dtype): first,
            }
        return [rewrite(tile.combine, known.get) for tile in self.stmt.tiles]

    def _tiles(self, what: str, layout: FragmentLayout) -> _Tiles:
        """Make new tiles, named after the results."""
        pairs = zip((t.result.obj for t in self.stmt.tiles), self.dtypes, strict=True)
        names = (self.fresh.fragment(f"{name}_{what}", dtype, layout.shape, layout) for name, dtype in pairs)
        return _Tiles(tuple(names), layout)

    def _set(
        self, tiles: _Tiles, place: Expr, values: Sequence[Expr], domain: FragmentLayout, scope: str = "thread"
    ) -> None:
        for name, value in zip(tiles.names, values, strict=True):
            target = Access(name, self._at(place))
            self.body.append(Map(target, value, domain.shape, domain, scope, span=self.stmt.span))

    def _read(self, source: _Tiles, place: Expr, layout: FragmentLayout, what: str) -> _Tiles:
        """Make new tiles with the elements of others at `place`, from the same thread or another lane of its warp."""
        made = self._tiles(what, layout)
        scope = "thread" if holds(source.layout, layout, self._at(place)) else "warp"
        self._set(made, Coord(self.axis), self._elems(source, place), layout, scope)
        return made

    def _through_shared(self, source: _Tiles, place: Expr, layout: FragmentLayout, what: str, again: bool) -> _Tiles:
        """Read like `_read`, but through shared memory. `again`: threads may still read the values that the last
        iteration stored."""
        span, target = self.stmt.span, target_of(self.fresh.kernel)
        if self.context.divergent:
            text = "this scan crosses warps, which needs all threads of the block"
            raise LoweringError(problem("barrier-in-divergent-branch", text, span, "scan before the branch"))
        made = self._tiles(what, layout)
        scratch = []
        for name, dtype in zip(source.names, self.dtypes, strict=True):
            memory = scratch_layout(layout.shape, dtype.bytes, source.layout, layout, target)
            scratch.append(self.fresh.tile(f"{name}_scratch", dtype, layout.shape, memory))
        self.body += [Barrier(span=span)] if again else []
        for name, tile in zip(source.names, scratch, strict=True):
            to, own = Access(tile, self.whole), Access(name, self.whole)
            self.body.append(ThreadCopy(to, own, layout.shape, None, None, source.layout, span=span))
        self.body.append(Barrier(span=span))
        for name, tile in zip(made.names, scratch, strict=True):
            to, there = Access(name, self.whole), Access(tile, self._at(place))
            self.body.append(ThreadCopy(to, there, layout.shape, None, None, layout, span=span))
        return made


def _either(condition: Expr, yes: Sequence[Expr], no: Sequence[Expr]) -> list[Expr]:
    return [op("where", condition, *each) for each in zip(yes, no, strict=True)]


def in_steps(extent: int) -> tuple[int, ...]:
    """Split an extent into factors of at most `_STEPS` where possible: 32 into 8 and 4."""
    step = max(n for n in range(1, _STEPS + 1) if extent % n == 0)
    return (extent,) if extent <= _STEPS or step == 1 else (step, *in_steps(extent // step))


def coarser(layout: FragmentLayout, axis: int, extent: int) -> FragmentLayout:
    """Return the layout of groups of `extent` elements along an axis. All threads that share a group hold it."""

    def split(mode: Mode) -> tuple[Mode, ...]:
        if mode.dim != axis:
            return (mode,)
        inside = gcd(mode.extent, max(1, extent // mode.stride))
        return Mode(inside, None), Mode(mode.extent // inside, axis, max(1, mode.stride // extent))

    shape = tuple(n // extent if d == axis else n for d, n in enumerate(layout.shape))
    threads = tuple(part for mode in layout.threads for part in split(mode))
    values = tuple(part for mode in layout.values for part in split(mode) if part.dim is not None)
    return FragmentLayout(shape, threads, values).simplify()
