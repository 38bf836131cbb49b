"""Elimination of unnamed integers from conjunctions, so that the conjunctions can be negated.

An unnamed integer e is eliminated exactly, in one of three ways:

- An equality a·e + s = 0 determines it; then a must divide s.
- Bounds 0 ≤ s - a·e < a determine it: e = ⌊s/a⌋.
- Only bounds a·e + l ≥ 0 and h - b·e ≥ 0 mention it. Some e satisfies them if and only if -⌊l/a⌋ ≤ ⌊h/b⌋ for every
  pair, which is b·l + a·h ≥ 0 if a or b is 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

from argus.verify.model.solver import z3
from argus.verify.opinion.formulas import Conjunction, Row, Value, Values, Variable, conjunction


@dataclass
class _System:
    """A system of constraints during elimination.

    `equal`: rows that are 0. `least`: rows that are at least 0. `left`: the variables still to be eliminated.
    `quotients`: variables with a definition. `divided`: rows with their divisors. `between`: (l, a, h, b) of the
    module's last case.
    """

    equal: list[Row]
    least: list[Row]
    left: set[Variable]
    quotients: dict[Variable, tuple[Row, int]]
    divided: list[tuple[Row, int]] = field(default_factory=list)
    between: list[tuple[Row, int, Row, int]] = field(default_factory=list)

    def mentions(self, row: Row, but: Variable) -> bool:
        """Return True if the row mentions a variable that is left to eliminate, other than `but`."""
        return any(v in self.left and v != but for v in row.terms)

    def solve(self) -> bool:
        """Eliminate one variable by an equality; return False if no equality allows that."""
        candidates = [(abs(c), row, v) for row in self.equal for v, c in row.terms.items() if v in self.left]
        usable = [c for c in candidates if c[0] == 1 or not self.mentions(c[1], c[2])]
        if not usable:
            return False
        size, row, variable = min(usable, key=lambda c: c[0])
        self.equal.remove(row)
        self.left.discard(variable)
        if size > 1:
            self.divided.append((_without(row, variable), size))
        self.equal = [_substituted(r, row, variable) for r in self.equal]
        self.least = [_substituted(r, row, variable) for r in self.least]
        return True

    def define(self) -> bool:
        """Define one variable as the quotient that two bounds determine; return False if there is none."""
        for high in self.least:
            for variable, factor in high.terms.items():
                if factor >= 0 or variable not in self.left or self.mentions(high, variable):
                    continue
                opposite = {v: -c for v, c in high.terms.items()}
                lows = (row for row in self.least if row.terms == opposite)
                if any(row.constant + high.constant < -factor for row in lows):
                    self.quotients[variable] = _without(high, variable), -factor
                    self.left.discard(variable)
                    return True
        return False

    def bound(self) -> bool:
        """Eliminate one variable that only bounds mention; return False if there is none."""
        for variable in sorted(self.left - {v for row in self.equal for v in row.terms}, key=str):
            pairs = list(product(*self._bounds(variable)))
            hard = [(low, high) for low, high in pairs if low.terms[variable] > 1 and high.terms[variable] < -1]
            if any(self.mentions(row, variable) for pair in hard for row in pair):
                continue
            self.left.discard(variable)
            self.least = [row for row in self.least if variable not in row.terms]
            for low, high in pairs:
                a, b = low.terms[variable], -high.terms[variable]
                if (low, high) in hard:
                    self.between.append((_without(low, variable), a, _without(high, variable), b))
                else:
                    self.least.append(low.combined(b, high, a))
            return True
        return False

    def _bounds(self, variable: Variable) -> tuple[list[Row], list[Row]]:
        lows = [row for row in self.least if row.terms.get(variable, 0) > 0]
        return lows, [row for row in self.least if row.terms.get(variable, 0) < 0]


def exact(given: Conjunction, of: Value) -> z3.BoolRef:
    """Return the conjunction as a formula that may be negated.

    Unnamed integers are eliminated if possible, and quantified otherwise.
    """
    unnamed = given.unnamed
    defined = [(d, *given.quotients[d]) for d in unnamed if d in given.quotients]
    remainders = [row.combined(1, Row({d: 1}, 0), -divisor) for d, row, divisor in defined]
    least = [*given.least, *remainders]
    least += [
        row.combined(-1, Row({}, 1), divisor - 1) for row, (_, _, divisor) in zip(remainders, defined, strict=True)
    ]
    named = {d: q for d, q in given.quotients.items() if d not in unnamed}
    system = _System(list(given.equal), least, set(unnamed), named)
    while system.left and (system.solve() or system.define() or system.bound()):
        pass
    bound = {v: z3.FreshInt("e") for v in sorted(system.left, key=str)}
    said = _said(system, Values(of, system.quotients, bound))
    return z3.Exists(list(bound.values()), said) if bound else said


def _said(system: _System, value: Values) -> z3.BoolRef:
    parts = [row.value(value) == 0 for row in system.equal] + [row.value(value) >= 0 for row in system.least]
    parts += [row.value(value) % divisor == 0 for row, divisor in system.divided]
    for low, a, high, b in system.between:
        parts.append(-(low.value(value) / z3.IntVal(a)) <= high.value(value) / z3.IntVal(b))
    return conjunction(parts)


def _substituted(row: Row, equality: Row, variable: Variable) -> Row:
    """Multiply a row by a positive number and replace the variable in it by means of the equality."""
    factor = row.terms.get(variable, 0)
    if not factor:
        return row
    own = equality.terms[variable]
    return row.combined(abs(own), equality, -factor if own > 0 else factor)


def _without(row: Row, variable: Variable) -> Row:
    return Row({v: c for v, c in row.terms.items() if v != variable}, row.constant)
