"""Facts about sizes and numbers of a program, and questions about them to the solver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from argus.diagnostic import Verdict
from argus.ir.expr import Const, Expr, Op, Param, linear, op, rewrite
from argus.ir.nodes import Assume, Requires, Scalar
from argus.ir.types import MAX_EXTENT, boolean
from argus.programs.ir import Program
from argus.verify.model.solver import Answer, Solver
from argus.work import Work


@dataclass(frozen=True, slots=True)
class Doubt:
    """A property that is not proved. It is replayed at `sizes`, or unknown if there are none.

    `step` is the statement; `buffer` and `stream` are what the doubt is about. `code` is the code of the finding.
    """

    code: str
    message: str
    step: object
    buffer: str = ""
    stream: str = ""
    sizes: dict[str, int] | None = None
    reason: str = ""
    other: object = None


@dataclass
class Facts:
    """The facts of one program, and its solver."""

    program: Program
    work: Work
    solver: Solver = field(init=False)
    powers: dict[Expr, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.solver = Solver(self.work)
        for cond in self._base():
            self.solver.assume(self.solver.condition(cond))

    def _base(self) -> Iterable[Expr]:
        for name in self.program.sizes:
            yield op("ge", Param(name), Const(0))
            yield op("le", Param(name), Const(MAX_EXTENT))
        for p in self.program.params:
            if isinstance(p, Scalar) and p.dtype.is_int:
                low, high = p.dtype.integers
                yield op("ge", Param(p.name, p.dtype), Const(low, p.dtype))
                yield op("le", Param(p.name, p.dtype), Const(high, p.dtype))
        yield from self._aligned()
        for fact in self.program.preconditions:
            if isinstance(fact, Requires | Assume):
                yield fact.cond
        for b in self.program.buffers:
            yield op("ge", b.bytes, Const(0, b.bytes.dtype))

    def _aligned(self) -> Iterable[Expr]:
        """Return the facts that strides and rows of the program's tensors are multiples of their alignment."""
        for t in self.program.tensors:
            unit = max(t.alignment // t.dtype.bytes, 1)
            for extent, stride in zip(t.shape, t.strides, strict=True):
                quantity = extent if isinstance(stride, Const) and stride.value == 1 else stride
                if unit > 1 and isinstance(quantity, Param):
                    yield op("eq", op("mod", quantity, Const(unit, quantity.dtype)), Const(0, quantity.dtype))

    def ask(self, goal: Expr, given: Sequence[Expr] = ()) -> Answer:
        """Ask if a condition follows from the program's facts and `given`. Refutations have small sizes."""
        if equal_sums(goal):
            return Answer(Verdict.PROVED, {})
        solver = self.solver
        facts = [solver.condition(g) for g in given]
        condition = solver.condition(goal)
        answer = solver.holds(condition, facts)
        if answer.verdict is not Verdict.REFUTED:
            return answer
        order: list[Expr] = [e for e in solver.atoms if isinstance(e, Param)]
        return solver.shrink(condition, facts, order, answer)

    def impossible(self, conds: Sequence[Expr]) -> Answer:
        """Ask if conditions contradict the program's facts."""
        return self.ask(Const(False, boolean), conds)

    def sizes(self, answer: Answer) -> dict[str, int] | None:
        """Return the sizes and integer arguments of a refutation, or None for another answer."""
        if answer.verdict is not Verdict.REFUTED:
            return None
        return {e.name: v for e, v in answer.model.items() if isinstance(e, Param) and not e.name.endswith(".bytes")}

    def power(self, expr: Expr, most: int = 16) -> int:
        """Return the largest power of two up to `most` that is known to divide an integer expression."""
        if expr not in self.powers:
            self.powers[expr] = self._power(expr)
        return min(self.powers[expr], most)

    def _power(self, expr: Expr) -> int:
        match expr:
            case Const(value=0):
                return 1 << 30
            case Const(value=value):
                return int(value) & -int(value)
            case Op(op="mul", args=(a, b)):
                return min(self.power(a, 1 << 30) * self.power(b, 1 << 30), 1 << 30)
            case Op(op="add" | "sub", args=(a, b)):
                return max(min(self.power(a, 1 << 30), self.power(b, 1 << 30)), self._asked(expr))
            case Op(op="cast", args=(a,)) if a.dtype.is_int:
                return self.power(a, 1 << 30)
            case _:
                return self._asked(expr)

    def _asked(self, expr: Expr) -> int:
        for power in (16, 8, 4, 2):
            goal = op("eq", op("mod", expr, Const(power, expr.dtype)), Const(0, expr.dtype))
            if self.ask(goal).verdict is Verdict.PROVED:
                return power
        return 1


def equal_sums(goal: Expr) -> bool:
    """Return True for an equality of integers that are the same sum, which needs no solver."""
    if not isinstance(goal, Op) or goal.op not in ("eq", "le", "ge") or not goal.args[0].dtype.is_int:
        return False
    left, right = (linear(_plain(a)) for a in goal.args)
    return left == right


def _plain(expr: Expr) -> Expr:
    return rewrite(expr, lambda e: e.args[0] if isinstance(e, Op) and e.op == "cast" and e.dtype.is_int else None)
