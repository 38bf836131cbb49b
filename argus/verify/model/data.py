"""Facts about the numbers that registers hold at different times.

The solver sees an element of a register tile as one unknown number. Two expressions may be evaluated at different
times, with a write to the tile in between. Then the earlier number gets a name of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from argus.ir.contents import ranges
from argus.ir.expr import Coord, Elem, Expr, Op, Param, coords, rewrite, walk
from argus.ir.nodes import Accumulate, Arranged, AssertTags, Copy, For, Kernel, Map, Spec, Tag
from argus.ir.places import counted_parts, counting_registers, index_registers, places
from argus.ir.types import boolean
from argus.verify.model.program import Site
from argus.verify.model.resolving import is_of_others, resolved
from argus.verify.model.solver import Solver, z3
from argus.verify.model.uses import Use, Uses, alone, certain, facts


class Data:
    """Facts about registers, for the solver, at the sites of one kernel."""

    def __init__(self, kernel: Kernel, sites: tuple[Site, ...], solver: Solver) -> None:
        self.kernel, self.sites, self.solver = kernel, sites, solver
        self._loops = [s for s in sites if isinstance(s.stmt, For)]
        self._arranged = any(isinstance(p, Arranged) for p in kernel.preconditions)
        self._certain = certain(kernel, sites)
        self._writers: dict[str, list[Site]] = {}
        for site in sites:
            for obj in site.written:
                self._writers.setdefault(obj, []).append(site)

    def bounds(self, site: Site) -> Iterator[tuple[For, Expr, Expr]]:
        """Yield the loops around a site with the values that their bounds had when the loop began."""
        for depth, loop in enumerate(site.loops):
            inside = partial(_in_loop, loop)
            start, stop = (self._named(e, f"before loop {depth}", inside) for e in (loop.start, loop.stop))
            yield loop, start, stop

    def guards(self, site: Site) -> list[Expr]:
        """Return the conditions of the branches around a site, with the values they had when the branch was taken."""
        return [
            self._named(guard, f"before branch {depth}", partial(self._since_branch, site, guard))
            for depth, guard in enumerate(site.guards)
        ]

    def _since_branch(self, site: Site, guard: Expr, writer: Site) -> bool:
        """Return True if `writer` may run before `site` in the branch of `guard`.

        It may if it stands earlier in the branch, or if a loop inside the branch contains both.
        """
        if guard not in writer.guards:
            return False
        shared = (loop for loop in site.loops if _in_loop(loop, writer))
        return writer.index < site.index or any(
            guard in around.guards for loop in shared for around in self._loops if around.stmt is loop
        )

    def _named(self, expr: Expr, when: str, rewritten: Callable[[Site], bool]) -> Expr:
        """Rename in `expr` the elements of tiles that were written since, so that they stand for the old values."""

        def change(e: Expr) -> Expr | None:
            if isinstance(e, Elem) and any(map(rewritten, self._writers.get(e.obj, []))):
                return replace(e, obj=f"{e.obj} {when}")
            return None

        return rewrite(expr, change)

    def facts(self, site: Site, exprs: Iterable[Expr]) -> list[z3.BoolRef]:
        """Facts about the registers, and the numbers loaded before, that occur in expressions of a site."""
        leaves = {e for expr in exprs for e in walk(expr) if isinstance(e, Elem | Param)}
        elements = {e for e in leaves if isinstance(e, Elem)}
        found = [fact for e in elements if (fact := self._fact(site, e)) is not None]
        for use in self._certain:
            if use.value in leaves and any(self._comes_before(writer, site, use) for writer in self.sites):
                found += map(self.solver.condition, alone(self.kernel, use))
        return [*found, *(self._in_order(site, elements) if self._arranged else ())]

    def _comes_before(self, writer: Site, site: Site, use: Use) -> bool:
        """Return True if `writer` loads a number before `site`: what is declared of it holds if its place exists."""
        match writer.stmt:
            case Copy(src=src, mask=None) if src.obj == use.tensor and src.index == use.index:
                return writer.index < site.index and not writer.guards and writer.role in (None, site.role)
            case _:
                return False

    def _in_order(self, site: Site, elements: set[Elem]) -> Iterator[z3.BoolRef]:
        """Declared facts about the index tensors from which registers were loaded.

        The registers are `elements` and those in the branches and loops around the site.
        """
        uses = Uses(self.kernel, self.sites)
        around = (*site.guards, *(e for loop in site.loops for e in (loop.start, loop.stop)))
        for elem in (*elements, *(e for expr in around for e in walk(expr) if isinstance(e, Elem))):
            number = uses.spelled(site, elem)
            if number != elem and elem.dtype.is_int:
                yield self.solver.integer(elem) == self.solver.integer(number)
        yield from map(self.solver.condition, facts(self.kernel, tuple(uses.found.values())))

    def _fact(self, site: Site, elem: Elem) -> z3.BoolRef | None:
        """Return the fact about a register whose only writer runs earlier in the same iteration and is arithmetic or a
        load.

        None if there is no such writer.
        """
        writers = self._writers.get(elem.obj, [])
        if len(writers) != 1:
            return None
        writer = writers[0]
        if writer.loops != site.loops[: len(writer.loops)] or writer.index >= site.index:
            return None
        if not set(writer.guards) <= set(site.guards) or writer.role not in (None, site.role):
            return None
        match writer.stmt:
            case Map(dst=dst, value=value, shape=shape) if dst.index == coords(len(shape)):
                return self._computed(site, writer, elem, value)
            case Copy(dst=dst, shape=shape) as stmt if dst.index == coords(len(shape)):
                return self._loaded(site, writer, elem, stmt)
            case _:
                return None

    def _computed(self, site: Site, writer: Site, elem: Elem, value: Expr) -> z3.BoolRef | None:
        if is_of_others(site, value):
            return None
        value = _at(value, elem.index)
        inner = self.facts(writer, [value])
        value = self._since(site, writer, value)
        if value.dtype == boolean:
            return z3.And(self.solver.condition(elem) == self.solver.condition(value), *inner)
        if not value.dtype.is_int:
            return None
        return z3.And(self.solver.integer(elem) == self.solver.integer(value), *inner)

    def _loaded(self, site: Site, writer: Site, elem: Elem, stmt: Copy) -> z3.BoolRef | None:
        if self._writers.get(stmt.src.obj):
            return None  # declarations describe the tensor's contents before the kernel
        solver, value = self.solver, self.solver.integer(elem)
        parts = [
            z3.And(value >= solver.integer(p.lo), value < solver.integer(p.hi))
            for p in ranges(self.kernel, stmt.src.obj)
        ]
        if not parts:
            return None
        if stmt.mask is None:
            return z3.And(*parts)
        mask = solver.condition(self._since(site, writer, _at(stmt.mask, elem.index)))
        if stmt.other is None:
            return z3.Implies(mask, z3.And(*parts))
        return z3.If(mask, z3.And(*parts), value == int(stmt.other.value))

    def _since(self, site: Site, writer: Site, expr: Expr) -> Expr:
        """Name `expr` as `site` sees it, where `writer` evaluated it earlier in the same iteration."""
        own = site.loops[len(writer.loops) :]

        def rewritten(other: Site) -> bool:
            again = any(loop is around for loop in own for around in other.loops)
            return again or writer.index <= other.index < site.index

        return self._named(expr, f"at {writer.index}", rewritten)


def evaluated(sites: tuple[Site, ...]) -> Iterator[tuple[Site, Expr]]:
    """Yield the integer expressions of each site that proofs assume to be exact, masked or not.

    These are all expressions that addresses, masks, branches and bounds are computed from.
    """
    indices = index_registers(site.stmt for site in sites)
    for site in sites:
        stmt = site.stmt
        if isinstance(stmt, (Tag, AssertTags, Spec)):
            continue
        yield from ((site, expr) for expr in places(stmt))
        if not isinstance(stmt, Map | Accumulate):
            continue
        counts = stmt.value.dtype.is_int or stmt.value.dtype == boolean
        if counts and stmt.dst.obj in indices:
            yield site, stmt.value
            continue
        for part in walk(stmt.value):
            if isinstance(part, Op) and part.op == "where":
                condition = resolved(sites, site, part.args[0])
                if not any(isinstance(e, Elem) for e in walk(condition)):
                    yield site, condition


def counted(sites: tuple[Site, ...]) -> Iterator[tuple[Site, Expr]]:
    """Yield the values, or parts of values, that each site computes from sizes and places alone.

    They must be exact, whatever type they are converted to. Values computed from data are left to specifications.
    """
    counting = counting_registers(site.stmt for site in sites)
    for site in sites:
        if isinstance(site.stmt, Map | Accumulate):
            yield from ((site, resolved(sites, site, part)) for part in counted_parts(site.stmt.value, counting))


def partly_defined(site: Site) -> Iterator[Op]:
    """Yield the integer operations of a site, on data or indices, that have no result for some operands."""
    stmt = site.stmt
    if isinstance(stmt, (Tag, AssertTags, Spec)):
        return
    values = (stmt.value,) if isinstance(stmt, Map | Accumulate) else ()
    for expr in (*places(stmt), *values):
        for part in walk(expr):
            if isinstance(part, Op) and part.op in ("floordiv", "mod", "shl", "shr") and part.dtype.is_int:
                yield part


def _in_loop(loop: For, site: Site) -> bool:
    return any(around is loop for around in site.loops)


def _at(expr: Expr, index: tuple[Expr, ...]) -> Expr:
    return rewrite(expr, lambda e: index[e.axis] if isinstance(e, Coord) else None)
