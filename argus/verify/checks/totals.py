"""Ranges of counting registers, which are set to some number and then added to.

    count = 0                      count is in [0, 0] + [0, trips * 1]
    for k in range(N):
        count = count + 1

An addition is counted once for each iteration of the loops around it, except for loops in which the register is set
again. A reduction of a tile adds as many numbers as the tile has elements.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from argus.ir.access import Mode
from argus.ir.expr import Elem, Expr, Op, elements
from argus.ir.interval import Interval
from argus.ir.nodes import Accumulate, For, Kernel, Map
from argus.ir.places import counting_registers
from argus.verify.model.program import PROGRAM, Site


class Totals:
    """Intervals of a kernel's counting registers, each computed once."""

    def __init__(self, kernel: Kernel, sites: tuple[Site, ...], interval: Callable[[Expr, Site], Interval]) -> None:
        self.kernel, self.interval = kernel, interval
        counting = counting_registers(site.stmt for site in sites)
        self._writers: dict[str, list[Site]] = {}
        for site in sites:
            for relation in site.accesses:
                if relation.mode is not Mode.READ and relation.obj in counting:
                    self._writers.setdefault(relation.obj, []).append(site)
        self._found: dict[str, Interval] = {}
        self._active: set[str] = set()

    def counts(self, obj: str) -> bool:
        """Return True for a register tile of integers whose values do not depend on data."""
        return obj in self._writers and self.kernel.object(obj).dtype.is_int

    def range(self, obj: str) -> Interval:
        """Return the interval of a counting register in unbounded arithmetic; the range of its type if nothing is
        known."""
        if obj in self._active:
            return self.kernel.object(obj).dtype.integers
        if obj not in self._found:
            self._active.add(obj)
            self._found[obj] = self._range(obj)
            self._active.discard(obj)
        return self._found[obj]

    def _range(self, obj: str) -> Interval:
        added = {site.index: amounts for site in self._writers[obj] if (amounts := _added(site, obj)) is not None}
        bases = [site for site in self._writers[obj] if site.index not in added]
        if not bases:
            return self.kernel.object(obj).dtype.integers
        values = [self.interval(_value(site), site) for site in bases]
        low, high = min(v[0] for v in values), max(v[1] for v in values)
        for site in self._writers[obj]:
            ranges = [(sign, self.interval(amount, site)) for sign, amount in added.get(site.index, [])]
            ends = [0, *(sign * end for sign, each in ranges for end in each)]
            times = self._times(site, bases)
            low, high = low + times * min(ends), high + times * max(ends)
        return low, high

    def _times(self, site: Site, bases: list[Site]) -> int:
        """Return an upper bound on the number of times that a statement adds to one cell before the register is set
        again."""
        times = prod(site.shape) if isinstance(site.stmt, Accumulate) else 1
        resets = (b for b in bases if b.index < site.index and b.role in (None, site.role))
        again = max((_together(b, site) for b in resets if set(b.guards) <= set(site.guards)), default=0)
        for loop in site.loops[again:]:
            times *= self._trips(loop, site)
        return times

    def _trips(self, loop: For, site: Site) -> int:
        if loop.var == PROGRAM:
            return 2**31
        first, last = self.interval(loop.start, site)[0], self.interval(loop.stop, site)[1]
        return max(0, -(-(last - first) // loop.step))


def _together(base: Site, site: Site) -> int:
    """Return the number of loops around `site` in each of whose iterations `base` sets the register."""
    return len(base.loops) if base.loops == site.loops[: len(base.loops)] else 0


def _added(site: Site, obj: str) -> list[tuple[int, Expr]] | None:
    """Return the amounts that a statement may add to a register, each with its sign; None if it sets the register."""
    match site.stmt:
        case Accumulate(op="add", value=value):
            return [(1, value)]
        case Map(dst=dst, value=value):
            return _amounts(value, Elem(obj, dst.index, value.dtype))
        case _:
            return None


def _amounts(value: Expr, own: Elem) -> list[tuple[int, Expr]] | None:
    match value:
        case _ if value == own:
            return []
        case Op(op="add", args=(first, amount)) if first == own and not _reads(amount, own.obj):
            return [(1, amount)]
        case Op(op="add", args=(amount, second)) if second == own and not _reads(amount, own.obj):
            return [(1, amount)]
        case Op(op="sub", args=(first, amount)) if first == own and not _reads(amount, own.obj):
            return [(-1, amount)]
        case Op(op="where", args=(condition, yes, no)) if not _reads(condition, own.obj):
            some, others = _amounts(yes, own), _amounts(no, own)
            return None if some is None or others is None else [*some, *others]
        case _:
            return None


def _reads(expr: Expr, obj: str) -> bool:
    return any(e.obj == obj for e in elements(expr))


def _value(site: Site) -> Expr:
    assert isinstance(site.stmt, Map | Accumulate)
    return site.stmt.value
