"""Sums of exponentials: terms as `sum over k of exp(score(k) - level) * factors(k)`, including sums that a loop
rescales (`carried`).

Every weight and every sum of a row must be relative to the same level (`shifts`).
"""

from __future__ import annotations

import math
from dataclasses import replace

from argus.verify.model.isl import UnionMap, UnionSet, empty_set
from argus.verify.values.carried import CarriedSums
from argus.verify.values.linear import EmptyRow, Exponents, Linear
from argus.verify.values.numbers import Numbers
from argus.verify.values.scope import Mismatch, close
from argus.verify.values.shifts import Shifts
from argus.verify.values.signs import always_positive, always_real
from argus.verify.values.summands import (
    Level,
    Monomial,
    Placed,
    Ref,
    Scale,
    Summand,
    added_up,
    counted,
    inverted,
    lifted,
    scaled,
    seen,
    spread,
    together,
)
from argus.verify.values.terms import (
    Again,
    Apply,
    Cases,
    Choice,
    Constant,
    Opaque,
    Parameter,
    Recurrence,
    Reduce,
    Term,
    Via,
)
from argus.verify.values.weights import splits, unless_zero, weighs


class Exponentials:
    """Writes terms as sums of exponentials. A term that is not such a sum raises `Mismatch` with the reason."""

    def __init__(self, exponents: Exponents) -> None:
        self.exponents = exponents
        self.builder = exponents.builder
        self._shifts = Shifts(exponents)
        self._carried = CarriedSums(exponents, self._shifts, self.summands)
        self._numbers = Numbers()
        self.counting = self.counted = False
        """`counting`: terms that are the same for all values of a bound variable are multiplied by the number of
        values. `counted`: such a term was found."""
        self._instead: dict[Term, Term] = {}

    def summands(self, term: Term, path: UnionMap) -> list[Summand]:
        """Return the summands of a term, without those that are 0. `path` maps points of the root to instances."""
        match term:
            case Via(along=along, term=inner):
                return self.summands(inner, path.apply_range(along))
            case Cases(parts=parts):
                limited = [(path.intersect_range(region), inner) for region, inner in parts]
                return [s for p, inner in limited if not p.is_empty() for s in self.summands(inner, p)]
            case Recurrence(site=site) | Again(site=site):
                return self._carried.again(site, path)
            case Constant(value=value):
                if not math.isfinite(value):
                    raise Mismatch(f"the constant {value} (padding?) takes part in a sum of exponentials")
                return [Summand(path.domain(), factor=value)] if value else []
            case Parameter(name=name):
                return [Summand(path.domain(), scalars=(name,))]
            case Apply(op="add" | "sub" as op, args=(a, b)):
                right = self.summands(b, path)
                return self.summands(a, path) + (right if op == "add" else [scaled(s, -1.0) for s in right])
            case Apply(op="neg", args=(a,)):
                return [scaled(s, -1.0) for s in self.summands(a, path)]
            case Apply(op="mul", args=(a, b)):
                right = self.summands(b, path)
                left = self.summands(a, path)
                self._require_numbers(a, right, path)
                self._require_numbers(b, left, path)
                return self.product(left, right) if right else []
            case Apply(op="truediv", args=(a, Constant(value=value))) if value:
                return [scaled(s, 1 / value) for s in self.summands(a, path)]
            case Apply(op="truediv" | "share" as op, args=(a, b)):
                upper, lower = self.summands(a, path), self._inverse(b, path, op == "share")
                if any(p.without is not None and not p.guarded for s in lower for p in s.divisors):
                    self._require_numbers(term, upper, path, _NOTHING_BY_NOTHING)
                elif any(s.divisors for s in lower):
                    self._require_numbers(term, upper, path)
                return self.product(upper, lower)
            case Apply(op="sigmoid", args=(a,)):
                return self._inverse(self._derived(term, "add", Constant(1.0), _exp_of_negative(a)), path)
            case Apply(op="rsqrt", args=(a,)):
                root = self._derived(term, "sqrt", a)
                return [Summand(path.domain(), divisors=(Placed(Ref(root, path)),))]
            case Apply(op="log", args=(a,)):
                unfolded = self._unfolded(term, a, path)
                return self._logarithm(term, a, path) if unfolded is None else self.summands(unfolded, path)
            case Apply(op="log2", args=(a,)):
                natural = self._derived(term, "log", a)
                return [scaled(s, 1 / math.log(2)) for s in self.summands(natural, path)]
            case Apply(op="exp" | "exp2" as op, args=(a,)):
                base = math.log(2) if op == "exp2" else 1.0
                forms = [self.exponents.scaled(form, base, ()) for form in self.exponents.linear(a, path)]
                return [s for form in forms for s in self._exponential(form)]
            case Reduce(op="add", start=start, parts=parts, count=count):
                return self.summands(start, path) + self._sum(parts, path, count)
            case Opaque(reason=reason):
                raise Mismatch(reason)
            case _:
                return [Summand(path.domain(), factors=(Placed(Ref(term, path)),))]

    def sum(self, term: Term, path: UnionMap) -> list[Summand]:
        """Return the summands of a term, without levels that cancel."""
        return [self._shifts.settled(s) for s in self.summands(term, path)]

    def _derived(self, term: Term, op: str, *args: Term) -> Term:
        """Return the term `op(args)` that replaces `term` or a part of it: the same object on every call."""
        return self._instead.setdefault(term, Apply(op, args))

    def _require_numbers(
        self, term: Term, others: list[Summand], path: UnionMap,
        text: str = "a factor that may be no number, also where its weight is 0",
    ) -> None:  # fmt: skip
        """Raise `Mismatch` if a term may not be a number where all the summands by which it is multiplied are 0."""
        if splits(term, self.exponents.positive):
            return
        zero = path.domain()
        for s in others:
            zero = zero.subtract(s.roots)
        if not zero.is_subset(self._numbers.real(term, zero, path)):
            raise Mismatch(text)

    def _inverse(self, term: Term, path: UnionMap, guarded: bool = False) -> list[Summand]:
        """Return the inverse of a term by parts. The factors of a single product are inverted separately.

        A sum is kept without the factor and the level that all of its summands share. With `guarded`, the quotient is 0
        where the term is 0, as a sum of weights is where every weight is 0.
        """
        match term:
            case Via(along=along, term=inner):
                return self._inverse(inner, path.apply_range(along), guarded)
            case Cases(parts=parts):
                limited = [(path.intersect_range(region), inner) for region, inner in parts]
                return [s for p, inner in limited if not p.is_empty() for s in self._inverse(inner, p, guarded)]
            case Choice() if (total := unless_zero(term)) is not None:
                if not all(map(weighs, self.summands(total, path))):
                    return [Summand(path.domain(), divisors=(Placed(Ref(term, path)),))]
                return self._inverse(total, path, True)
            case _:
                pass
        found, points = self.summands(term, path), path.domain()
        if self._single(found, points) and not guarded:
            return [self._over(s) for s in found]
        scale, common = self._shared(found)
        below = Placed(Ref(term, path), without=scale, guarded=guarded)
        levels = tuple(replace(level, factor=-level.factor) for level in common)
        scalars = inverted(scale.scalars, self.exponents.positive)
        return [Summand(points, None, 1 / scale.factor, scalars, levels=levels, divisors=(below,))]

    def _over(self, s: Summand) -> Summand:
        """Return the inverse of a product."""
        return replace(
            s,
            factor=1 / s.factor,
            scalars=inverted(s.scalars, self.exponents.positive),
            scores=tuple((replace(m, factor=-m.factor), root) for m, root in s.scores),
            levels=tuple(replace(level, factor=-level.factor) for level in s.levels),
            factors=s.divisors,
            divisors=s.factors,
        )

    def _single(self, found: list[Summand], points: UnionSet) -> bool:
        """Return True if a term is one product at each of the points."""
        for s in found:
            if s.up is not None or s.again is not None or not s.factor or not s.points.is_subset(points):
                return False
            points = points.subtract(s.points)
        return bool(points.is_empty())

    def _shared(self, found: list[Summand]) -> tuple[Scale, tuple[Level, ...]]:
        """Return the factor that all summands of a sum share, and their level, which is the same for all summands of a
        root."""
        first = found[0] if found else Summand(empty_set())
        alike = first.factor and all(close(abs(s.factor), abs(first.factor)) for s in found)
        scalars = first.scalars if all(s.scalars == first.scalars for s in found) else ()
        shift = self._shifts.shift(found)
        levels: tuple[Level, ...] = ()
        if shift is not None and shift.factor:
            levels = (Level(shift.factor, shift.scalars, shift.made),)
        return Scale(abs(first.factor) if alike else 1.0, scalars, bool(levels)), levels

    def without(self, found: list[Summand], scale: Scale | None) -> list[Summand]:
        """Return the summands of a sum after the scale was taken out, at all points from which the sum is seen."""
        if any(s.levels for s in found) and not (scale is not None and scale.levelled):
            raise Mismatch("a sum of weights that are relative to a maximum, where the specification has none")
        if scale is None:
            return found
        if scale.scalars and any(s.scalars != scale.scalars for s in found):
            raise Mismatch("a sum whose terms are multiplied by different scalars")
        self._shifts.shift(found)
        rest = (replace(scaled(s, 1 / scale.factor), levels=()) for s in found)
        return [replace(s, scalars=()) if scale.scalars else s for s in rest]

    def _unfolded(self, term: Term, inner: Term, path: UnionMap) -> Term | None:
        """Return the logarithm of an exponential, or of a positive quotient, by parts; None for other logarithms."""
        match inner:
            case Via(along=along, term=Via() | Apply(op="exp" | "share" | "truediv") as further):
                parts: Term = Via(along, Apply("log", (further,)))
            case Apply(op="exp", args=(power,)) if always_real(power):
                return power
            case Apply(op="share" | "truediv", args=(a, b)) if always_positive(a):
                if not path.domain().is_subset(self._numbers.positive(b, path.domain(), path)):
                    return None
                parts = Apply("sub", (Apply("log", (a,)), Apply("log", (b,))))
            case _:
                return None
        return self._instead.setdefault(term, parts)

    def _logarithm(self, term: Term, inner: Term, path: UnionMap) -> list[Summand]:
        """Return the logarithm of a sum of weights, and the maximum to which the weights are relative."""
        alone = Summand(path.domain(), factors=(Placed(Ref(term, path)),))
        found = self.summands(inner, path)
        levelled = any(s.levels for s in found)
        if not found or not all(map(weighs, found)) or (self._single(found, path.domain()) and not levelled):
            return [alone]
        scale, common = self._shared(found)
        result = [replace(alone, factors=(Placed(Ref(term, path), without=scale),))]
        if not close(scale.factor, 1.0):
            result.append(Summand(path.domain(), factor=math.log(scale.factor)))
        for level in common:
            points = path.domain().intersect(level.made.domain())
            result.append(Summand(points, None, level.factor, level.scalars, level=level.made))
        return result

    def _exponential(self, form: Linear) -> list[Summand]:
        """Return exp of a linear form, without summands that are zero. exp(x - log(y)) is exp(x) / y."""
        levels, scores, factors = [], [], [Summand(form.points)]
        for term in form.terms:
            if term.level:
                assert term.ref is not None
                levels.append(self._level(term, term.ref, form.points))
                continue
            if form.nothing and term.ref is not None and not always_real(term.ref.term):
                raise Mismatch("a number is added to a masked score that may be inf, or none")
            power = None if form.nothing else self._power(term)
            if power is None:
                scores.append((term, False))
            else:
                factors = self.product(factors, power)
        if form.nothing:
            return []
        return self.product(factors, [Summand(form.points, scores=tuple(scores), levels=tuple(levels))])

    def _power(self, term: Monomial) -> list[Summand] | None:
        """Return exp of plus or minus the logarithm of a sum of weights, or None for other terms."""
        match term.ref:
            case Ref(term=Apply(op="log" | "log2" as op, args=(inner,)), path=path) if not term.scalars:
                found = self.summands(inner, path)
                base = 1.0 if op == "log" else 1 / math.log(2)
                if not found or not all(map(weighs, found)):
                    return None
                if close(term.factor * base, -1.0):
                    return self._inverse(inner, path)
                return found if close(term.factor * base, 1.0) else None
            case _:
                return None

    def _level(self, term: Monomial, ref: Ref, points: UnionSet) -> Level:
        made = self.exponents.instances(ref)
        if not self.exponents.ceiling.holds(ref.term):
            raise Mismatch("a maximum may be inf or no number, as that of masked scores times what may be negative")
        if term.guarded:
            return Level(term.factor, term.scalars, made)
        self.exponents.require_positive(abs(term.factor), term.scalars, "a maximum")
        if term.factor < 0 and not points.is_subset(self.exponents.finite(ref)):
            raise EmptyRow(
                "the maximum that is subtracted may be -inf, where nothing but masked terms was seen, "
                "and -inf - -inf is no number: subtract `al.where(top == -inf, 0.0, top)`"
            )
        return Level(term.factor, term.scalars, made, ref=ref if term.factor > 0 else None)

    def _sum(
        self, parts: tuple[tuple[UnionMap, Term], ...], path: UnionMap, count: Constant | Parameter | None
    ) -> list[Summand]:
        found = []
        for along, inner in parts:
            reached = path.apply_range(along)
            if reached.is_empty():
                continue
            up, down = spread(reached)
            for s in self.summands(inner, down):
                if count is not None and (first := counted(s, down, along)) is not None:
                    self.counted = True
                    if not self.counting:
                        found.append(lifted(s, up))
                        continue
                    number = count.value if isinstance(count, Constant) else 1.0
                    s = scaled(first, number, (count.name,) if isinstance(count, Parameter) else ())
                found.append(lifted(s, up))
        return found

    def product(self, left: list[Summand], right: list[Summand]) -> list[Summand]:
        """Return the products of all pairs of summands, one from each side, that have points in common."""
        return [s for a in left for b in right if (s := self._times(a, b)) is not None]

    def _times(self, a: Summand, b: Summand) -> Summand | None:
        if a.up is None:
            a, b = b, a
        if a.again is not None and b.again is not None:
            raise Mismatch("a product of what a loop carries on")
        lower = a.up is not None
        if lower and (a.again is not None or b.again is not None):
            raise Mismatch("a sum times what a loop carries on")
        if a.up is not None and b.up is not None:  # There is a point for each pair.
            pairs = a.up.intersect_domain(a.points).apply_range(b.up.intersect_domain(b.points).reverse())
            up = pairs.domain_map().apply_range(a.up)
            a, b = seen(a, pairs.domain_map(), up), seen(b, pairs.range_map(), up)
            points, lower = pairs.wrap(), False
        else:
            points = a.points.intersect(b.points.apply(a.up.reverse()) if a.up is not None else b.points)
        if points.is_empty():
            return None
        product = replace(
            a,
            points=points,
            factor=a.factor * b.factor,
            scalars=together(a.scalars, b.scalars),
            scores=(*a.scores, *((m, lower or root) for m, root in b.scores)),
            levels=(*a.levels, *(replace(x, root=lower or x.root) for x in b.levels)),
            factors=(*a.factors, *(replace(p, root=lower or p.root) for p in b.factors)),
            divisors=(*a.divisors, *(replace(p, root=lower or p.root) for p in b.divisors)),
            again=a.again or b.again,
            level=self._one_level(a, b, lower),
        )
        return self._shifts.settled(replace(product, scores=added_up(product)))

    def _one_level(self, a: Summand, b: Summand, lower: bool) -> UnionMap | None:
        """Return {point of a product -> the instances that computed the maximum by which it is multiplied}."""
        if a.level is not None and b.level is not None:
            raise Mismatch("a product of two maxima")
        return a.level if b.level is None else a.over(b.level, lower)


_NOTHING_BY_NOTHING = "0 / 0 where every score is masked: divide by `al.where(total == 0.0, 1.0, total)`"
def _exp_of_negative(term: Term) -> Term:
    return Apply("exp", (Apply("neg", (term,)),))
