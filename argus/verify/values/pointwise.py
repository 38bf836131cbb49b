"""Functions of one element, compared over the real numbers: quotients of exponentials, and choices case by case.

`log(1 + exp(x))` is `max(x, 0) + log(1 + exp(-|x|))`: where x >= 0 both are `x + log(1 + exp(-x))`, elsewhere the other
way round. So whatever a function chooses by, one of two signs is assumed, and both sides are brought into one form, in
which exponentials are products of powers. What is no function of elements, such as a sum, is a variable.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from argus.verify.values.elementwise import Node
from argus.verify.values.rational import UNIT, Algebra, Key, Poly, Quotient, Variable, number
from argus.verify.values.scope import Mismatch

_MOST_CASES = 64
_MOST_POWER = 4


@dataclass(frozen=True)
class _Case:
    """The assumptions of a case: polynomials that are at least 0, or more than 0; conditions on data; values of
    variables."""

    known: tuple[tuple[Poly, bool], ...] = ()
    tests: dict[int, bool] = field(default_factory=dict)
    values: dict[int, Poly] = field(default_factory=dict)


@dataclass(frozen=True)
class _Fork(Exception):
    """The assumptions that are missing: each of some facts, a polynomial that is at least (or more than) 0, or a
    condition."""

    facts: tuple[tuple[Poly, bool], ...] = ()
    test: int = -1


def equal(mine: Node, wanted: Node, variables: list[Variable], facts: list[tuple[Node, bool]]) -> None:
    """Raise `Mismatch` unless two trees over some variables are known to have equal values.

    `facts`: differences of variables that are at least 0, each with whether it is more than 0.
    """
    values = _Values(variables)
    pending, count = [_Case(tuple((values.of(fact).upper, strict) for fact, strict in facts))], 0
    while pending:
        case, count = pending.pop(), count + 1
        if count > _MOST_CASES:
            raise Mismatch("a choice of too many cases")
        values.case = case
        try:
            same = values.algebra.equal(values.of(mine), values.of(wanted))
        except _Fork as fork:
            pending += values.cases(case, fork)
            continue
        if not same:
            raise Mismatch("a function of elements that is another one than specified")


class _Values:
    """Evaluates trees in the case that is assumed."""

    def __init__(self, variables: list[Variable]) -> None:
        self.algebra, self.case, self._leaves = Algebra(list(variables)), _Case(), len(variables)
        self._functions: list[tuple[str, Quotient, int]] = []

    # ------------------------------------------------------------------ cases

    def cases(self, case: _Case, fork: _Fork) -> list[_Case]:
        """Return the cases that a fork makes of one."""
        if not fork.facts:
            return [replace(case, tests={**case.tests, fork.test: holds}) for holds in (True, False)]
        return [self._with(case, fact, above) for fact, above in fork.facts]

    def _with(self, case: _Case, fact: Poly, above: bool) -> _Case:
        both = (*case.known, (fact, above))
        opposite = self._scaled(fact, -1.0)
        if above or not self.algebra.follows(opposite, list(case.known), False):
            return replace(case, known=both)
        return replace(case, known=both, values={**case.values, **self._solved(fact)})

    def _solved(self, zero: Poly) -> dict[int, Poly]:
        """Return a variable and its value, given a polynomial that is 0."""
        for key, value in zero.numbers().items():
            powers, exponent = key
            if exponent or len(powers) != 1 or powers[0][1] != 1:
                continue
            index = powers[0][0]
            if index >= self._leaves:
                continue  # a function's variable, whose argument tells its value
            used = [k for k in zero.terms if any(i == index for i, _ in k[0]) or self._inside(k[1], index)]
            if used == [key]:
                rest = Poly({k: each for k, each in zero.terms.items() if k != key})
                return {index: self._scaled(rest, -1.0 / value)}
        raise Mismatch("a choice that falls out otherwise between equal numbers")

    def _inside(self, exponent: int, index: int) -> bool:
        return any(i == index for powers, _ in self.algebra.exponents[exponent].terms for i, _ in powers)

    def _scaled(self, a: Poly, factor: float) -> Poly:
        return self.algebra.add(Poly(), a, factor)

    def _at_least(self, a: Quotient) -> bool:
        """Return True if a value is at least 0, and False if it is at most 0: which one does not matter at 0."""
        signs = self._factors(a)
        if len(signs) > 1:  # a product, by the signs of its factors
            return sum(not self._at_least(self.algebra.whole(sign)) for sign in signs) % 2 == 0
        upper, opposite, known = self._compared(a)
        if self.algebra.follows(upper, known, False):
            return True
        if self.algebra.follows(opposite, known, False):
            return False
        raise _Fork(((upper, False), (opposite, False)))

    def _factors(self, a: Quotient) -> list[Poly]:
        """Return what the sign of a single monomial depends on; none of other values."""
        if len(a.upper.terms) != 1:
            return []
        ((powers, _), (value, _)), variables = next(iter(a.upper.terms.items())), self.algebra.variables
        odd = [i for i, power in powers if power % 2 and not variables[i].positive]
        return [number(math.copysign(1.0, value)), *map(self.algebra.variable, odd)] if len(odd) > 1 else []

    def _decide(self, a: Quotient, strict: bool) -> bool:
        """Return True if a value is at least 0 (or more than 0), and False if it is not."""
        upper, opposite, known = self._compared(a)
        if self.algebra.follows(upper, known, strict):
            return True
        if self.algebra.follows(opposite, known, not strict):
            return False
        raise _Fork(((upper, strict), (opposite, not strict)))

    def _compared(self, a: Quotient) -> tuple[Poly, Poly, list[tuple[Poly, bool]]]:
        """Return a polynomial of a value's sign, its opposite, and what is known."""
        if any(map(self.algebra.partial, a.upper.terms)):
            raise Mismatch("a choice by what may be no number")
        upper = self._monotone(a.upper)
        return upper, self._scaled(upper, -1.0), list(self.case.known)

    def _monotone(self, a: Poly) -> Poly:
        """Return `p - q` instead of `exp(p) - exp(q)`, which has the same sign."""
        if len(a.terms) != 2:
            return a
        (one, (x, _)), (other, (y, _)) = a.terms.items()
        if one[0] or other[0] or x * y > 0:
            return a
        sign = 1.0 if x > 0 else -1.0
        exponents = self.algebra.exponents
        difference = self.algebra.add(exponents[one[1]], exponents[other[1]], -1.0)
        return self._scaled(self.algebra.add(difference, number(math.log(abs(x / y)))), sign)

    # ------------------------------------------------------------------ values

    def of(self, node: Node) -> Quotient:
        """Return the value of a tree."""
        algebra = self.algebra
        match node:
            case Node(op="constant", value=value):
                return algebra.whole(number(value))
            case Node(op="variable", value=value):
                index = int(value)
                return algebra.whole(self.case.values.get(index) or algebra.variable(index))
            case Node(op="choice", args=(test, yes, no)):
                return self.of(yes if self._holds(test) else no)
            case Node(op="add" | "sub" as op, args=(a, b)):
                return algebra.sum(self.of(a), self.of(b), 1.0 if op == "add" else -1.0)
            case Node(op="neg", args=(a,)):
                return self._negative(self.of(a))
            case Node(op="mul", args=(a, b)):
                return algebra.product(self.of(a), self.of(b))
            case Node(op="truediv", args=(a, b)):
                return algebra.product(self.of(a), self._inverse(self.of(b)))
            case Node(op="abs", args=(a,)):
                value_of = self.of(a)
                return value_of if self._at_least(value_of) else self._negative(value_of)
            case Node(op="maximum" | "minimum" as op, args=(a, b)):
                x, y = self.of(a), self.of(b)
                first = self._at_least(algebra.sum(x, y, -1.0))
                return x if first == (op == "maximum") else y
            case Node(op=op, args=(a,)):
                return self._function(op, self.of(a))
            case _:
                raise Mismatch(f"'{node.op}' of several numbers")

    def _holds(self, node: Node) -> bool:
        match node:
            case Node(op="test", value=value):
                if int(value) not in self.case.tests:
                    raise _Fork(test=int(value))
                return self.case.tests[int(value)]
            case Node(op="and", args=(a, b)):
                return self._holds(a) and self._holds(b)
            case Node(op="or", args=(a, b)):
                return self._holds(a) or self._holds(b)
            case Node(op="not of truth values", args=(a,)):
                return not self._holds(a)
            case Node(op="gt" | "ge" as op, args=(a, b)):
                return self._decide(self.algebra.sum(self.of(a), self.of(b), -1.0), op == "gt")
            case Node(op="lt" | "le" as op, args=(a, b)):
                return self._decide(self.algebra.sum(self.of(b), self.of(a), -1.0), op == "lt")
            case Node(op="eq" | "ne" as op, args=(a, b)):
                difference = self.algebra.sum(self.of(a), self.of(b), -1.0)
                different = self._decide(difference, True) or self._decide(self._negative(difference), True)
                return different == (op == "ne")
            case _:
                raise Mismatch(f"a choice by '{node.op}'")

    def _negative(self, a: Quotient) -> Quotient:
        return Quotient(self._scaled(a.upper, -1.0), a.lower)

    def _inverse(self, a: Quotient) -> Quotient:
        """One over a value; of one that may be 0, a variable that may be no number."""
        opposite = self._scaled(a.upper, -1.0)
        if self.algebra.positive(a.upper):
            return Quotient(a.lower, a.upper)
        if self.algebra.positive(opposite):
            return Quotient(self._scaled(a.lower, -1.0), opposite)
        if not a.upper.terms:
            raise Mismatch("a division by 0")
        first = a.upper.numbers()[min(a.upper.terms)]
        below = self._variable("inverse", self.algebra.whole(self._scaled(a.upper, 1 / first)), Variable(partial=True))
        return self.algebra.whole(self.algebra.mul(self._scaled(a.lower, 1 / first), below))

    def _function(self, op: str, a: Quotient) -> Quotient:
        algebra = self.algebra
        match op:
            case "exp" | "exp2":
                return self._exponential(self._scaled(self._polynomial(a), math.log(2) if op == "exp2" else 1.0))
            case "expm1":
                return algebra.sum(self._function("exp", a), algebra.whole(UNIT), -1.0)
            case "sigmoid":
                falling = self._function("exp", self._negative(a))
                return Quotient(falling.lower, algebra.add(falling.lower, falling.upper))
            case "tanh":
                falling = self._exponential(self._scaled(self._polynomial(a), -2.0))
                upper, lower = falling.upper, falling.lower
                return Quotient(algebra.add(lower, upper, -1.0), algebra.add(lower, upper))
            case "log1p":
                return self._logarithm(algebra.sum(a, algebra.whole(UNIT)))
            case "log":
                return self._logarithm(a)
            case "log2":
                natural = self._logarithm(a)
                return Quotient(self._scaled(natural.upper, 1 / math.log(2)), natural.lower)
            case "sqrt":
                return algebra.whole(self._root(a))
            case "rsqrt":
                return self._inverse(algebra.whole(self._root(a)))
            case _:
                partial = any(map(algebra.partial, (*a.upper.terms, *a.lower.terms)))
                return algebra.whole(self._variable(op, a, Variable(partial=partial)))

    def _exponential(self, power: Poly) -> Quotient:
        """exp of a polynomial; exp of n times a logarithm is a power."""
        above, below, rest = UNIT, UNIT, Poly(dict(power.terms))
        for key, value in power.numbers().items():
            inner = self._logarithm_in(key)
            if inner is None or not value.is_integer() or abs(value) > _MOST_POWER:
                continue
            del rest.terms[key]
            for _ in range(int(abs(value))):
                above = self.algebra.mul(above, inner) if value > 0 else above
                below = self.algebra.mul(below, inner) if value < 0 else below
        return Quotient(self.algebra.mul(above, self.algebra.exp(rest)), below)

    def _logarithm_in(self, key: Key) -> Poly | None:
        """Return the argument of a monomial that is a logarithm; None for any other monomial."""
        powers, exponent = key
        alone = not exponent and len(powers) == 1 and powers[0][1] == 1
        return self.algebra.variables[powers[0][0]].logarithm if alone else None

    def _logarithm(self, a: Quotient) -> Quotient:
        algebra = self.algebra
        always = algebra.positive(a.upper)
        if not always and not algebra.follows(a.upper, list(self.case.known), True):
            return algebra.whole(self._variable("log", a, Variable(partial=True)))
        upper = self._logarithm_of(a.upper, "log" if always else "log of what is positive in a case")
        return algebra.whole(algebra.add(upper, self._logarithm_of(a.lower, "log"), -1.0))

    def _logarithm_of(self, a: Poly, name: str) -> Poly:
        """The logarithm of a positive polynomial, exponents and a number taken out of it.

        `name`: variables with a name stand for the same logarithm in each case that has them."""
        power, rest = self.algebra.split(a)
        first = abs(rest.numbers()[min(rest.terms)])
        power, rest = self.algebra.add(power, number(math.log(first))), self._scaled(rest, 1 / first)
        if rest.constant is not None:
            return power
        return self.algebra.add(power, self._variable(name, self.algebra.whole(rest), Variable(logarithm=rest)))

    def _root(self, a: Quotient) -> Poly:
        if not self.algebra.never_negative(a.upper):
            return self._variable("sqrt", a, Variable(partial=True))
        square = self._polynomial(a)
        return self._variable("sqrt", a, Variable(self.algebra.positive(a.upper), least=True, square=square))

    def _polynomial(self, a: Quotient) -> Poly:
        """A value as a polynomial, if need be as a variable."""
        if a.lower.constant is not None:
            return self._scaled(a.upper, 1 / a.lower.constant)
        partial = any(map(self.algebra.partial, a.upper.terms))
        return self._variable("value", a, Variable(self.algebra.positive(a.upper), partial))

    def _variable(self, op: str, a: Quotient, known: Variable) -> Poly:
        """The variable of a function of a value: equal values have one."""
        for other, of, index in self._functions:
            if other == op and self.algebra.equal(a, of):
                return self.algebra.variable(index)
        self.algebra.variables.append(known)
        self._functions.append((op, a, len(self.algebra.variables) - 1))
        return self.algebra.variable(len(self.algebra.variables) - 1)
