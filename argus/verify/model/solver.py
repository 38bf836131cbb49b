"""Obligations over mathematical integers, solved with z3. Only this module imports z3.

Index arithmetic is modelled in unbounded integers. That it stays in the range of 32 bits is an obligation of its own
(see `bounds`), so nothing here relies on wrap-around. An expression without an integer meaning becomes an
unconstrained constant.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import z3

from argus.diagnostic import Verdict
from argus.ir.expr import LEAVING, Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, Thread
from argus.verify.model.isl import charge
from argus.work import STEPS_PER_SECOND, Work

__all__ = ["Answer", "Solver", "checked", "z3"]

# Python's garbage collector may free terms on any thread, even while this thread is inside Z3.
z3.Z3_enable_concurrent_dec_ref(z3.main_ctx().ref())


@dataclass(frozen=True, slots=True)
class Answer:
    """The verdict on an implication; `model` gives integer values to atoms when refuted."""

    verdict: Verdict
    model: dict[Expr, int]
    reason: str = ""


_UNITS_PER_STEP = 3
"""The resource units of Z3 in a step of `Work`. Hard questions were measured to take 6 to 14 million units a second."""


@dataclass
class Solver:
    """One incremental solver. It takes its steps from `work`; when no work is left, every answer is unknown."""

    work: Work
    query_limit: int = 5 * STEPS_PER_SECOND
    """Steps for one question."""
    atoms: dict[Expr, z3.ArithRef] = field(default_factory=dict)
    booleans: dict[Expr, z3.BoolRef] = field(default_factory=dict)
    _integers: dict[Op, z3.ArithRef] = field(default_factory=dict)
    _conditions: dict[Expr, z3.BoolRef] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.solver = z3.Solver()

    # ------------------------------------------------------------------ translation

    def integer(self, expr: Expr) -> z3.ArithRef:
        """Return the integer value of an expression."""
        match expr:
            case Const(value=value):
                return z3.IntVal(int(value))
            case Param() | ProgramId() | LoopVar() | Coord() | Thread():
                return self._atom(expr)
            case Elem():
                return self._atom(expr)
            case Op():
                if expr not in self._integers:
                    self._integers[expr] = self._operator(expr)
                return self._integers[expr]

    def _atom(self, expr: Expr) -> z3.ArithRef:
        if expr not in self.atoms:
            self.atoms[expr] = z3.Int(f"v{len(self.atoms)}")
        return self.atoms[expr]

    def _operator(self, expr: Op) -> z3.ArithRef:
        """Return the result of an operation, reduced modulo 2^bits if its type is modular and the result may leave it.
        """
        result = self._unbounded(expr)
        return result % z3.IntVal(2**expr.dtype.bits) if expr.dtype.modular and expr.op in LEAVING else result

    def _unbounded(self, expr: Op) -> z3.ArithRef:
        if expr.dtype.kind == "float" or any(a.dtype.kind == "float" for a in expr.args):
            return self._atom(expr)
        if expr.op == "where":
            return z3.If(self.condition(expr.args[0]), self.integer(expr.args[1]), self.integer(expr.args[2]))
        if expr.dtype.kind == "bool":
            return z3.If(self.condition(expr), z3.IntVal(1), z3.IntVal(0))
        if any(a.dtype.kind == "bool" for a in expr.args):
            return self._atom(expr)
        a = [self.integer(e) for e in expr.args]
        match expr.op:
            case "add":
                return a[0] + a[1]
            case "sub":
                return a[0] - a[1]
            case "mul":
                return a[0] * a[1]
            case "neg":
                return -a[0]
            case "abs":
                return z3.If(a[0] >= 0, a[0], -a[0])
            case "minimum":
                return z3.If(a[0] <= a[1], a[0], a[1])
            case "maximum":
                return z3.If(a[0] >= a[1], a[0], a[1])
            case "cast":
                return a[0]
            case "floordiv" | "mod":
                return self._division(expr, a[0], a[1])
            case "shl" if isinstance(expr.args[1], Const):
                return a[0] * 2 ** int(expr.args[1].value)
            case "shr" if isinstance(expr.args[1], Const):
                return a[0] / z3.IntVal(2 ** int(expr.args[1].value))
            case "and" | "xor" | "or" if isinstance(expr.args[1], Const) and int(expr.args[1].value) >= 0:
                return self._bitwise(expr, a[0], int(expr.args[1].value))
            case _:
                return self._atom(expr)

    def _division(self, expr: Op, a: z3.ArithRef, b: z3.ArithRef) -> z3.ArithRef:
        """Floor division or its remainder. z3's division is Euclidean, which is the same for positive divisors."""
        divisor = expr.args[1]
        if isinstance(divisor, Const) and int(divisor.value) > 0:
            return a / b if expr.op == "floordiv" else a % b
        quotient = z3.If(b > 0, a / b, (-a) / (-b))
        return quotient if expr.op == "floordiv" else a - b * quotient

    def _bitwise(self, expr: Op, a: z3.ArithRef, mask: int) -> z3.ArithRef:
        """Return `x op mask` for a constant mask >= 0. Quotients round down, so a negative x has its two's complement
        bits."""
        bits = [(1 << n, (a / (1 << n)) % 2) for n in range(mask.bit_length()) if mask >> n & 1]
        common = z3.Sum([z3.IntVal(0), *(weight * bit for weight, bit in bits)])
        return {"and": common, "or": a + mask - common, "xor": a + mask - 2 * common}[expr.op]

    def condition(self, expr: Expr) -> z3.BoolRef:
        """Return the truth of a boolean expression; data-dependent parts are unconstrained."""
        if expr not in self._conditions:
            self._conditions[expr] = self._condition(expr)
        return self._conditions[expr]

    def _condition(self, expr: Expr) -> z3.BoolRef:
        match expr:
            case Const(value=value):
                return z3.BoolVal(bool(value))
            case Op(op="and", args=(a, b)) if expr.dtype.kind == "bool":
                return z3.And(self.condition(a), self.condition(b))
            case Op(op="or", args=(a, b)) if expr.dtype.kind == "bool":
                return z3.Or(self.condition(a), self.condition(b))
            case Op(op="not", args=(a,)) if expr.dtype.kind == "bool":
                return z3.Not(self.condition(a))
            case Op(op="lt" | "le" | "gt" | "ge" | "eq" | "ne" as name, args=(a, b)) if a.dtype.is_int:
                return _compare(name, self.integer(a), self.integer(b))
            case _:
                if expr not in self.booleans:
                    self.booleans[expr] = z3.FreshBool("b")
                return self.booleans[expr]

    # ------------------------------------------------------------------ questions

    def assume(self, condition: z3.BoolRef) -> None:
        """Add a fact to the current scope."""
        self.solver.add(condition)

    def holds(self, goal: z3.BoolRef, facts: list[z3.BoolRef] | None = None) -> Answer:
        """Ask if the facts in scope and `facts` imply `goal`."""
        if self.work.over:
            return Answer(Verdict.UNKNOWN, {}, "the kernel's limit of work was reached")
        limit = min(self.query_limit, self.work.left)
        self.solver.push()
        try:
            for fact in facts or []:
                self.solver.add(fact)
            self.solver.add(z3.Not(goal))
            outcome = self._check(limit)
            if outcome == z3.unsat:
                return Answer(Verdict.PROVED, {})
            if outcome == z3.sat:
                return Answer(Verdict.REFUTED, self._values(self.solver.model()))
            return Answer(Verdict.UNKNOWN, {}, f"z3: {self.solver.reason_unknown()} ({limit} steps)")
        except z3.Z3Exception as error:
            return Answer(Verdict.UNKNOWN, {}, f"z3: {error}")
        finally:
            self.solver.pop()

    def _check(self, limit: int) -> z3.CheckSatResult:
        """Ask Z3, for at most `limit` steps."""
        return checked(self.solver, limit, self.work)

    def shrink(self, goal: z3.BoolRef, facts: list[z3.BoolRef], order: list[Expr], answer: Answer) -> Answer:
        """Make the atoms of a refutation small: minimise each atom of `order` in turn by binary search from 0."""
        fixed = list(facts)
        for expr in order:
            if expr not in self.atoms or expr not in answer.model:
                continue
            atom, high = self.atoms[expr], answer.model[expr]
            low = 0
            while low < high:
                middle = (low + high) // 2
                trial = self.holds(goal, [*fixed, atom <= middle])
                if trial.verdict is Verdict.REFUTED:
                    answer, high = trial, min(middle, trial.model.get(expr, middle))
                else:
                    low = middle + 1
            fixed.append(atom == high)
        return answer

    def _values(self, model: z3.ModelRef) -> dict[Expr, int]:
        values = {}
        for expr, atom in self.atoms.items():
            value = model.eval(atom, model_completion=True)
            if z3.is_int_value(value):
                values[expr] = value.as_long()
        return values


def checked(solver: z3.Solver, limit: int, work: Work) -> z3.CheckSatResult:
    """Return Z3's answer about the formulas in scope after at most `limit` steps, which are taken from `work`."""
    before = _units(solver)
    solver.set("rlimit", limit * _UNITS_PER_STEP)
    outcome = solver.check()
    steps = (_units(solver) - before) // _UNITS_PER_STEP
    work.spend(steps)
    charge(steps)
    return outcome


def _units(solver: z3.Solver) -> int:
    """Return the resource units that Z3 has used so far in this process."""
    found = solver.statistics()
    context, last = found.ctx.ref(), len(found) - 1
    for at in range(last, -1, -1):
        if z3.Z3_stats_get_key(context, found.stats, at) == "rlimit count":
            return int(z3.Z3_stats_get_uint_value(context, found.stats, at))
    return 0


def _compare(name: str, a: z3.ArithRef, b: z3.ArithRef) -> z3.BoolRef:
    match name:
        case "lt":
            return a < b
        case "le":
            return a <= b
        case "gt":
            return a > b
        case "ge":
            return a >= b
        case "eq":
            return a == b
        case _:
            return a != b
