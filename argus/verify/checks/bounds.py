"""Bounds: every access is in range under its mask, and every index expression is in the range of its type.

Intervals with constant ends decide most obligations; z3 over mathematical integers decides the rest.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from argus.diagnostic import Verdict
from argus.ir.access import Relation
from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, Thread, op, walk
from argus.ir.nodes import Accumulate, AssertTags, For, Kernel, Map, MbarrierWait, Spec, Stmt, Tag, Tensor
from argus.ir.places import places
from argus.simulate.sizes import integer_arguments
from argus.verify.checks.intervals import Intervals, counts_around
from argus.verify.checks.launchable import launchable
from argus.verify.findings import FailurePlace, Finding, axes_help, unknown
from argus.verify.model.barriers import mbarrier_use
from argus.verify.model.data import Data, counted, evaluated, partly_defined
from argus.verify.model.program import Site, is_launch_constant
from argus.verify.model.solver import Answer, Solver, z3

_INDEX = "an index expression"
_MOST_TRIPS = 16
"""The trips of loops over sizes in a counterexample, if there is one with so few: replays carry loops out."""
_ARITHMETIC = ("add", "sub", "mul", "neg", "shl", "abs", "floordiv")


def _may_overflow(part: Op) -> bool:
    """Return True if an operation may have a result that its type cannot hold."""
    if not part.dtype.is_int or part.dtype.modular:
        return False
    return part.op in _ARITHMETIC or (part.op == "cast" and part.args[0].dtype.is_int)


class BoundsChecker:
    """A check of all sites of one kernel; `findings` collects the obligations that fail."""

    def __init__(self, kernel: Kernel, sites: tuple[Site, ...], solver: Solver) -> None:
        self.kernel, self.sites, self.solver = kernel, sites, solver
        self.data = Data(kernel, sites, solver)
        self.intervals = Intervals(kernel, sites)
        self.findings: list[Finding] = []
        self._checked: set[tuple[object, ...]] = set()
        self._facts: dict[int, list[z3.BoolRef]] = {}
        for fact in self._context():
            solver.assume(fact)

    # ------------------------------------------------------------------ what is known

    def _context(self) -> Iterator[z3.BoolRef]:
        kernel, solver = self.kernel, self.solver
        yield from launchable(kernel, solver)
        for own in kernel.program_ids:
            axis, pid = own.axis, solver.integer(own)
            if kernel.grid is None:
                yield z3.And(pid >= 0, pid < 2**31 - 1)
            elif axis < len(kernel.grid):
                yield z3.And(pid >= 0, pid < solver.integer(kernel.grid[axis]))
            else:
                yield pid == 0
        thread = solver.integer(Thread())
        yield z3.And(thread >= 0, thread < kernel.num_threads)

    def facts(self, site: Site) -> list[z3.BoolRef]:
        """Loop ranges, branch conditions and element ranges of a site."""
        if site.index not in self._facts:
            self._facts[site.index] = self._make_facts(site)
        return self._facts[site.index]

    def _make_facts(self, site: Site) -> list[z3.BoolRef]:
        solver, result = self.solver, []
        bounds, guards = list(self.data.bounds(site)), self.data.guards(site)
        for loop, start, stop in bounds:
            var, first = solver.integer(LoopVar(loop.var)), solver.integer(start)
            result.append(z3.And(var >= first, var < solver.integer(stop)))
            if loop.step != 1:
                result.append((var - first) % loop.step == 0)
        for name, wrap in counts_around(site).items():
            count = solver.integer(LoopVar(name))
            result.append(z3.And(count >= 0, count < wrap))
        result += [solver.condition(guard) for guard in guards]
        for axis, extent in enumerate(site.shape):
            coord = solver.integer(Coord(axis))
            result.append(z3.And(coord >= 0, coord < extent))
        known = [e for _, start, stop in bounds for e in (start, stop)]
        return [*result, *self.data.facts(site, [*known, *guards])]

    # ------------------------------------------------------------------ obligations

    def run(self) -> list[Finding]:
        """Check all obligations of all sites."""
        for axis, extent in enumerate(self.kernel.grid or ()):
            self._overflow(None, extent, f"the grid extent of axis {axis}")
        for site, expr in evaluated(self.sites):
            self._overflow(site, expr, _INDEX)
        for site, expr in counted(self.sites):
            self._overflow(site, expr, "an integer that is computed from sizes and places")
        for site in self.sites:
            if isinstance(site.stmt, (Tag, AssertTags, Spec)):
                continue
            for part in partly_defined(site):
                self._defined(site, part)
            if isinstance(site.stmt, For):
                last = op("add", site.stmt.stop, Const(site.stmt.step - 1))
                self._overflow(site, last, f"the last increment of the loop counter '{site.stmt.var}'")
            for relation in site.accesses:
                self._access(site, relation)
            if isinstance(site.stmt, Accumulate):
                self._total(site, site.stmt)
            self._mbarrier(site)
        return self.findings

    def _mbarrier(self, site: Site) -> None:
        """Check that the index of an mbarrier lies in its array, and that a parity is 0 or 1."""
        used = mbarrier_use(site.stmt)
        if used is None:
            return
        name, index = used
        count = next(b.count for b in self.kernel.barriers if b.name == name)
        help = "declare as many mbarriers as the ring has slots"
        what = f"the index of mbarrier '{name}' leaves its {count}"
        self._below(site, index, count, ("out-of-bounds", "bounds"), what, help)
        if isinstance(site.stmt, MbarrierWait):
            what = f"the parity of a wait on mbarrier '{name}' is neither 0 nor 1"
            help = "compute it modulo 2: (i // stages) % 2"
            self._below(site, site.stmt.parity, 2, ("wrong-parity", "progress"), what, help)

    def _below(self, site: Site, expr: Expr, count: int, kind: tuple[str, str], what: str, help: str) -> None:
        """Check that an integer is at least 0 and less than `count`; `kind`: code and property of the finding."""
        if self._inside(site, expr, Const(count)):
            return
        value, facts = self.solver.integer(expr), self.facts(site)
        goal = z3.And(value >= 0, value < count)
        answer = self.solver.holds(goal, facts)
        if answer.verdict is Verdict.PROVED:
            return
        if answer.verdict is Verdict.REFUTED:
            answer = self.solver.shrink(goal, facts, self._order(site), answer)
        span = site.stmt.span
        if answer.verdict is Verdict.UNKNOWN:
            self.findings.append(
                unknown("bounds-unknown", "bounds", span, f"cannot decide: {what} ({answer.reason})", help)
            )
            return
        place = self._place(site, answer)
        code, property = kind
        self.findings.append(Finding(code, property, Verdict.REFUTED, what, span, help=help, place=place))

    def _access(self, site: Site, relation: Relation) -> None:
        obj = self.kernel.object(relation.obj)
        extents = [e if not isinstance(e, int) else Const(e) for e in obj.shape]
        guard = () if relation.guard is None else (relation.guard,)
        if self._seen(site, (*relation.index, *guard), relation.obj):
            return
        open_dims = [
            axis
            for axis, (index, extent) in enumerate(zip(relation.index, extents, strict=True))
            if not self._inside(site, index, extent)
        ]
        if not open_dims:
            return
        solver = self.solver
        exprs = [*relation.index, *([relation.guard] if relation.guard is not None else [])]
        facts = self.facts(site) + self.data.facts(site, exprs)
        if relation.guard is not None:
            facts.append(solver.condition(relation.guard))
        goals = {}
        for axis in open_dims:
            index, extent = solver.integer(relation.index[axis]), solver.integer(extents[axis])
            goals[axis] = z3.And(index >= 0, index < extent)
        if len(goals) > 1 and solver.holds(z3.And(*goals.values()), facts).verdict is Verdict.PROVED:
            return
        for axis, goal in goals.items():
            answer = solver.holds(goal, facts)
            if answer.verdict is Verdict.REFUTED:
                answer = solver.shrink(goal, facts, self._order(site), answer)
            if answer.verdict is not Verdict.PROVED:
                self.findings.append(self._out_of_bounds(site, relation, axis, answer))
                return

    def _inside(self, site: Site, index: Expr, extent: Expr) -> bool:
        low, high = self.intervals.of(index, site)
        return isinstance(extent, Const) and low >= 0 and high < int(extent.value)

    def _overflow(self, site: Site | None, expr: Expr, what: str) -> None:
        for part in walk(expr):
            if not isinstance(part, Op) or not _may_overflow(part):
                continue
            least, most = part.dtype.integers
            low, high = self.intervals.of(part, site)
            if (low >= least and high <= most) or self._seen(site, (part,)):
                continue
            answer = self._answer(site, self._held(part, least, most), [part])
            if answer.verdict is not Verdict.PROVED:
                self.findings.append(self._overflows(site, part, what, answer))
                return

    def _total(self, site: Site, stmt: Accumulate) -> None:
        """Check that a sum of integers that do not depend on data stays in the range of its type."""
        if stmt.op != "add" or not self.intervals.totals.counts(stmt.dst.obj):
            return
        if self.kernel.object(stmt.dst.obj).dtype.modular:
            return
        least, most = self.kernel.object(stmt.dst.obj).dtype.integers
        low, high = self.intervals.totals.range(stmt.dst.obj)
        if low < least or high > most:
            text = f"cannot exclude that a sum of integers leaves the range of its type: up to {max(high, -low)}"
            help = "bound the sizes with al.requires, or add up in al.int64"
            self.findings.append(unknown("overflow-unknown", "bounds", site.stmt.span, text, help))

    def _held(self, part: Op, least: int, most: int) -> z3.BoolRef:
        """Return the formula that the result of an operation fits its type. Among quotients, only `least // -1` does
        not fit."""
        if part.op == "floordiv":
            dividend, divisor = (self.solver.integer(e) for e in part.args)
            return z3.Or(dividend > least, divisor != -1) if least < 0 else z3.BoolVal(True)
        value = self.solver.integer(part)
        return z3.And(value >= least, value <= most)

    def _defined(self, site: Site, part: Op) -> None:
        """Check that an operation without a result for some operands (division, shift) has a result here."""
        operand, shift = part.args[1], part.op in ("shl", "shr")
        low, high = self.intervals.of(operand, site)
        decided = low >= 0 and high < part.dtype.bits if shift else low > 0 or high < 0
        if decided or self._seen(site, (part,), "operand"):
            return
        value = self.solver.integer(operand)
        goal = z3.And(value >= 0, value < part.dtype.bits) if shift else value != 0
        answer = self._answer(site, goal, [operand])
        if answer.verdict is Verdict.PROVED:
            return
        code, what, label = "division-by-zero", "an integer is divided by zero", "0 here"
        help = "state al.requires(n > 0) for what is divided by, or divide by al.where(n == 0, 1, n)"
        if shift:
            code, label = "shift-out-of-range", "out of range here"
            what = f"an integer of {part.dtype.bits} bits is shifted by less than 0 or more than {part.dtype.bits - 1}"
            help = f"state what bounds the shift by al.requires, or shift by al.minimum(n, {part.dtype.bits - 1})"
        span = site.stmt.span
        if answer.verdict is Verdict.UNKNOWN:
            text = f"cannot decide whether {what}: {answer.reason}"
            self.findings.append(unknown("bounds-unknown", "bounds", span, text, help))
            return
        place = self._place(site, answer)
        self.findings.append(Finding(code, "bounds", Verdict.REFUTED, what, span, label, help=help, place=place))

    def _answer(self, site: Site | None, goal: z3.BoolRef, exprs: list[Expr]) -> Answer:
        """Ask if `goal` holds at a site, and make a refutation small."""
        facts = self.facts(site) + self.data.facts(site, exprs) if site else []
        answer = self.solver.holds(goal, facts)
        if answer.verdict is Verdict.REFUTED:
            short = [*facts, *self._short_loops()]
            again = self.solver.holds(goal, short)
            facts, answer = (short, again) if again.verdict is Verdict.REFUTED else (facts, answer)
            answer = self.solver.shrink(goal, facts, self._order(site), answer)
        return answer

    def _short_loops(self) -> Iterator[z3.BoolRef]:
        """Yield conditions that loops over sizes are short enough to be replayed."""
        for stmt in (s.stmt for s in self.sites):
            if isinstance(stmt, For) and is_launch_constant(stmt.start) and is_launch_constant(stmt.stop):
                trips = self.solver.integer(stmt.stop) - self.solver.integer(stmt.start)
                yield trips <= stmt.step * _MOST_TRIPS

    def _seen(self, site: Site | None, question: tuple[Expr, ...], of: str = "") -> bool:
        """Return True if the same question was asked before in the same loops and branches; record it otherwise.

        A question about registers is the same only at the same site, because registers change.
        """
        data = any(isinstance(e, Elem) for expr in question for e in walk(expr))
        key = (of, question, *((_around(site), site.shape, data and site.index) if site else ()))
        if key in self._checked:
            return True
        self._checked.add(key)
        return False

    # ------------------------------------------------------------------ findings

    def _order(self, site: Site | None) -> list[Expr]:
        names: list[Expr] = list(integer_arguments(self.kernel))
        pids: list[Expr] = list(self.kernel.program_ids)
        loops: list[Expr] = [LoopVar(v) for v in site.iterators] if site else []
        coords: list[Expr] = [Coord(axis) for axis in range(len(site.shape))] if site else []
        return [*names, *pids, *loops, *coords]

    def _place(self, site: Site | None, answer: Answer) -> FailurePlace:
        axes = len(self.kernel.grid) if self.kernel.grid is not None else 1
        model = answer.model
        return FailurePlace(
            sizes={p.name: model.get(p, 1) for p in integer_arguments(self.kernel)},
            block=tuple(model.get(ProgramId(axis), 0) for axis in range(axes)),
            iteration={v: model.get(LoopVar(v), 0) for v in site.iterators} if site else {},
            element=tuple(model.get(Coord(axis), 0) for axis in range(len(site.shape))) if site else (),
        )

    def _out_of_bounds(self, site: Site, relation: Relation, axis: int, answer: Answer) -> Finding:
        space = "tensor" if isinstance(self.kernel.object(relation.obj), Tensor) else "tile"
        what = f"{relation.mode.value} of {space} '{relation.obj}' out of bounds along dimension {axis}"
        help = (
            f"mask the access with boundary_check={self._unchecked(site, relation, axis)} or mask=..., "
            "or state the needed relation with al.requires"
        )
        help = self._with_grid(relation.index[axis], help)
        if answer.verdict is Verdict.UNKNOWN:
            return unknown("bounds-unknown", "bounds", site.stmt.span, f"cannot decide: {what} ({answer.reason})", help)
        return Finding(
            "out-of-bounds",
            "bounds",
            Verdict.REFUTED,
            what,
            site.stmt.span,
            label="this access leaves the " + space,
            help=help,
            place=self._place(site, answer),
        )

    def _with_grid(self, expr: Expr, help: str) -> str:
        """Return a help text, preceded by the advice to declare a grid if the kernel does not declare one."""
        if self.kernel.grid is not None or not any(isinstance(e, ProgramId) for e in walk(expr)):
            return help
        return f"say how many programs there are by `i = al.grid(...)`: `al.program_id` leaves it open. Or {help}"

    def _unchecked(self, site: Site, relation: Relation, axis: int) -> tuple[int, ...]:
        """Return the dimensions along which an access is not masked: `axis`, and others like it."""
        mask = getattr(site.stmt, "mask", None)
        compared = set(walk(mask)) if mask is not None else set()
        shape = self.kernel.object(relation.obj).shape
        tails = [
            d for d, (index, extent) in enumerate(zip(relation.index, shape, strict=True))
            if isinstance(extent, Param) and extent not in compared and any(isinstance(e, Coord) for e in walk(index))
        ]  # fmt: skip
        return tuple(sorted({axis, *tails}))

    def _overflows(self, site: Site | None, part: Op, what: str, answer: Answer) -> Finding:
        span = site.stmt.span if site is not None else self.kernel.span
        help = "bound the sizes with al.requires" + (", or compute in al.int64" if part.dtype.bits <= 32 else "")
        if site is not None and _is_lessened(site.stmt, part):
            help += ", or subtract before you add: `a + (b - c)` where `a + b` may be too large"
        help = (site is None and axes_help(self.kernel)) or self._with_grid(part, help)
        if answer.verdict is Verdict.UNKNOWN:
            return unknown(
                "overflow-unknown", "bounds", span, f"cannot decide the range of {what}: {answer.reason}", help
            )
        return Finding(
            "int64-overflow" if part.dtype.bits > 32 else "int32-overflow",
            "bounds",
            Verdict.REFUTED,
            f"{what} leaves the range of {part.dtype.bits}-bit integers",
            span,
            label=f"computed in {part.dtype.bits} bits here",
            help=help,
            place=self._place(site, answer),
        )


def _is_lessened(stmt: Stmt, part: Op) -> bool:
    """Return True if a statement subtracts something directly from the sum `part`."""
    values = (stmt.value,) if isinstance(stmt, Map | Accumulate) else ()
    parts = (e for expr in (*places(stmt), *values) for e in walk(expr) if isinstance(e, Op))
    return part.op == "add" and any(e.op == "sub" and e.args[0] == part for e in parts)


def _around(site: Site) -> Hashable:
    """Return a key for the loops and branches around a site. Loops count by identity, since hashing one hashes its
    body."""
    return tuple(map(id, site.loops)), site.guards
