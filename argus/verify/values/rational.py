"""Quotients of sums of products of variables and exponentials: the arithmetic of one place, over the real numbers.

A *monomial* is variables with powers, times exp of a sum of products of variables. A *polynomial* is a sum of monomials
with numbers, and a *quotient* is two polynomials with a divisor that is known to be positive. So two quotients are
equal if their cross products are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce

from argus.verify.values.pieces import CANCELLED
from argus.verify.values.scope import Mismatch, close

Powers = tuple[tuple[int, int], ...]
"""Variables with their powers, in order."""
Key = tuple[Powers, int]
"""Variables, and the number of an exponent in `Algebra.exponents`."""
_ONE: Key = ((), 0)
_MOST_MONOMIALS = 256
_MOST_EXPONENT = 64.0
"""Constant exponents up to this are folded into the numbers."""


@dataclass(frozen=True)
class Poly:
    """Numbers by monomial, each with the sum of the sizes that it was added up from."""

    terms: dict[Key, tuple[float, float]] = field(default_factory=dict)

    @property
    def constant(self) -> float | None:
        """The number that this is; None if it is not one."""
        if not self.terms:
            return 0.0
        return self.terms[_ONE][0] if list(self.terms) == [_ONE] else None

    def numbers(self) -> dict[Key, float]:
        """Numbers by monomial."""
        return {key: value for key, (value, _) in self.terms.items()}


@dataclass(frozen=True)
class Quotient:
    """`upper / lower`, where `lower` is known to be positive."""

    upper: Poly
    lower: Poly


@dataclass
class Variable:
    """The facts known of a variable: that it is `positive`, or `partial`, which is perhaps not a real number.

    `least`: it is at least 0. `square`: the polynomial whose root it is. `logarithm`: it is the logarithm of this.
    """

    positive: bool = False
    partial: bool = False
    least: bool = False
    square: Poly | None = None
    logarithm: Poly | None = None


def number(value: float) -> Poly:
    """Return a constant polynomial."""
    if not math.isfinite(value):
        raise Mismatch(f"the constant {value} takes part in arithmetic")
    return Poly({_ONE: (value, abs(value))} if value else {})


UNIT = number(1.0)


class Algebra:
    """Arithmetic with polynomials and quotients over some variables."""

    def __init__(self, variables: list[Variable]) -> None:
        self.variables = variables
        self.exponents: list[Poly] = [Poly()]

    # ------------------------------------------------------------------ polynomials

    def variable(self, index: int) -> Poly:
        """Return a variable as a polynomial."""
        return Poly({(((index, 1),), 0): (1.0, 1.0)})

    def add(self, a: Poly, b: Poly, factor: float = 1.0) -> Poly:
        """Return a + factor * b. Raise `Mismatch` if something cancels that may be no number."""
        terms = dict(a.terms)
        for key, (value, gross) in b.terms.items():
            self._collect(terms, key, factor * value, abs(factor) * gross)
        return self._limited(terms)

    def mul(self, a: Poly, b: Poly) -> Poly:
        """Return the product, multiplied out."""
        if len(a.terms) * len(b.terms) > _MOST_MONOMIALS:
            raise Mismatch("a product of too many terms")
        terms: dict[Key, tuple[float, float]] = {}
        for key, (value, gross) in a.terms.items():
            for other, (number_, size) in b.terms.items():
                for product, factor in self._product(key, other):
                    self._collect(terms, product, factor * value * number_, abs(factor) * gross * size)
        return self._limited(terms)

    def _collect(self, terms: dict[Key, tuple[float, float]], key: Key, value: float, gross: float) -> None:
        before, size = terms.pop(key, (0.0, 0.0))
        total, gross = before + value, gross + size
        if abs(total) > CANCELLED * gross:
            terms[key] = (total, gross)
        elif self.partial(key):
            raise Mismatch("a difference of equal terms that may be no numbers")

    def _limited(self, terms: dict[Key, tuple[float, float]]) -> Poly:
        if len(terms) > _MOST_MONOMIALS or not all(math.isfinite(gross) for _, gross in terms.values()):
            raise Mismatch("a product of too many terms, or of too large numbers")
        return Poly(terms)

    def _product(self, a: Key, b: Key) -> Iterator[tuple[Key, float]]:
        powers = dict(a[0])
        for index, power in b[0]:
            powers[index] = powers.get(index, 0) + power
        exponent, factor = (a[1] or b[1], 1.0) if not (a[1] and b[1]) else self.exponent(self._sum(a[1], b[1]))
        root = next((i for i, power in powers.items() if power > 1 and self.variables[i].square is not None), None)
        if root is None:
            yield (tuple(sorted(powers.items())), exponent), factor
            return
        powers[root] -= 2
        rest = Poly({(tuple(sorted((i, p) for i, p in powers.items() if p)), exponent): (factor, abs(factor))})
        square = self.variables[root].square
        assert square is not None
        yield from self.mul(rest, square).numbers().items()

    def _sum(self, a: int, b: int) -> Poly:
        return self.add(self.exponents[a], self.exponents[b])

    def exponent(self, power: Poly) -> tuple[int, float]:
        """Split an exponent into a constant and the rest. Return the index of the rest among the known exponents, and
        exp of the constant."""
        terms = dict(power.terms)
        constant, _ = terms.pop(_ONE, (0.0, 0.0))
        if abs(constant) > _MOST_EXPONENT:
            raise Mismatch("a constant exponent that is too large")
        rest = Poly(terms)
        for index, known in enumerate(self.exponents):
            if self.same(rest, known):
                return index, math.exp(constant)
        self.exponents.append(rest)
        return len(self.exponents) - 1, math.exp(constant)

    def exp(self, power: Poly) -> Poly:
        """Return exp of a polynomial, a single monomial."""
        index, factor = self.exponent(power)
        return Poly({((), index): (factor, factor)})

    def same(self, a: Poly, b: Poly) -> bool:
        """Return True if two polynomials are equal, up to the rounding of constants."""
        for key in {*a.terms, *b.terms}:
            (x, gross), (y, size) = a.terms.get(key, (0.0, 0.0)), b.terms.get(key, (0.0, 0.0))
            if not (close(x, y) or abs(x - y) <= CANCELLED * (gross + size)):
                return False
        return True

    # ------------------------------------------------------------------ what is known

    def partial(self, key: Key) -> bool:
        """Return True if a monomial may be no real number."""
        exponent = self.exponents[key[1]]
        return any(self.variables[i].partial for i, _ in key[0]) or any(map(self.partial, exponent.terms))

    def positive(self, a: Poly) -> bool:
        """Return True if a polynomial is known to be more than 0."""
        return self.never_negative(a) and any(self._above(key) for key in a.terms)

    def never_negative(self, a: Poly) -> bool:
        """Return True if every monomial of a polynomial is known to be at least 0."""
        return all(value > 0 and self._at_least(key) for key, (value, _) in a.terms.items())

    def _above(self, key: Key) -> bool:
        return not self.partial(key) and all(self.variables[i].positive for i, _ in key[0])

    def _at_least(self, key: Key) -> bool:
        each = ((self.variables[i], power) for i, power in key[0])
        return not self.partial(key) and all(v.positive or v.least or power % 2 == 0 for v, power in each)

    # ------------------------------------------------------------------ quotients

    def whole(self, a: Poly) -> Quotient:
        """Return a polynomial as a quotient."""
        return Quotient(a, UNIT)

    def sum(self, a: Quotient, b: Quotient, factor: float = 1.0) -> Quotient:
        """Return a + factor * b."""
        if self.same(a.lower, b.lower):
            return Quotient(self.add(a.upper, b.upper, factor), a.lower)
        upper = self.add(self.mul(a.upper, b.lower), self.mul(b.upper, a.lower), factor)
        return Quotient(upper, self.mul(a.lower, b.lower))

    def product(self, a: Quotient, b: Quotient) -> Quotient:
        """Return a * b."""
        zeros = [x for x, y in ((a, b), (b, a)) if not y.upper.terms]
        if any(map(self.partial, (key for x in zeros for key in x.upper.terms))):
            raise Mismatch("0 times what may be no number")
        return Quotient(self.mul(a.upper, b.upper), self.mul(a.lower, b.lower))

    def equal(self, a: Quotient, b: Quotient) -> bool:
        """Return True if two quotients are known to be equal."""
        return self.same(self.mul(a.upper, b.lower), self.mul(b.upper, a.lower))

    def split(self, a: Poly) -> tuple[Poly, Poly]:
        """Return a power p and the rest r of a positive polynomial exp(p) * r, the same for all that differ by exp."""
        last = reduce(self._greater, (exponent for _, exponent in a.terms))
        return self.exponents[last], self.mul(a, self.exp(self.add(Poly(), self.exponents[last], -1.0)))

    def _greater(self, a: int, b: int) -> int:
        difference = self.add(self.exponents[a], self.exponents[b], -1.0).numbers()
        return a if not difference or difference[min(difference)] > 0 else b

    def follows(self, a: Poly, known: list[tuple[Poly, bool]], strict: bool) -> bool:
        """Return True if a >= 0 (or a > 0, if `strict`) follows from what is `known`: polynomials that are at least 0,
        each with whether it is more than 0."""
        if self.positive(a) or (not strict and self.never_negative(a)):
            return True
        return any(self._without(a, fact, above, known, strict, 2) for fact, above in known)

    def _without(
        self, a: Poly, fact: Poly, above: bool, known: list[tuple[Poly, bool]], strict: bool, depth: int
    ) -> bool:
        """Return True if a is a multiple of a fact and something that follows."""
        ratios = {a.terms[key][0] / value for key, value in fact.numbers().items() if key in a.terms}
        for ratio in sorted(r for r in ratios if r > 0):
            rest = self.add(a, fact, -ratio)
            if self.positive(rest) or (self.never_negative(rest) and (above or not strict)):
                return True
            if depth > 1 and any(
                self._without(rest, other, over, known, strict and not above, depth - 1) for other, over in known
            ):
                return True
        return False
