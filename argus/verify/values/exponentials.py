"""Sums of exponentials: terms as `sum over k of exp(score(k) - level) * factors(k)`, including sums that a loop
rescales.

A sum that a loop continues, `x = x * exp(old - new) + exp(score - new) * v`, is a sum relative to `new` if `x` was a
sum relative to `old`. The proof is by induction over the instances of the statement that writes `x`. The value of a
level does not matter, but every weight and every sum of a row must be relative to the same level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce

from argus.verify.model.isl import UnionMap, UnionSet, empty_map, empty_set
from argus.verify.values.decays import Decay, decay, decays
from argus.verify.values.linear import EmptyRow, Exponents, Linear, closure
from argus.verify.values.numbers import Numbers
from argus.verify.values.scope import Mismatch, close
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
    one_image,
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


@dataclass(frozen=True)
class Shift:
    """The number to which all summands of a root are relative: `factor` * scalars * level. `made` is {root -> level}.
    """

    factor: float
    scalars: tuple[str, ...]
    made: UnionMap


@dataclass(frozen=True)
class Carried:
    """The value of a statement that reads its own earlier values: the summands of this and all earlier instances.

    `reach`: {instance -> itself and the earlier ones that it carries on}. `added`: it adds to what it wrote before.
    `decay`: what each step multiplies the earlier values by.
    """

    summands: tuple[Summand, ...]
    reach: UnionMap
    shift: Shift | None
    added: bool
    decay: Decay | None = None


class Exponentials:
    """Writes terms as sums of exponentials. A term that is not such a sum raises `Mismatch` with the reason."""

    def __init__(self, exponents: Exponents) -> None:
        self.exponents = exponents
        self.builder = exponents.builder
        self._carried: dict[int, Carried] = {}
        self._open: set[int] = set()
        self._numbers = Numbers()
        self.counting = self.counted = False
        """`counting`: terms that are the same for all values of a bound variable are multiplied by the number of
        values. `counted`: such a term was found."""
        self._instead: dict[int, tuple[Term, Term]] = {}

    # ------------------------------------------------------------------ terms

    def summands(self, term: Term, path: UnionMap) -> list[Summand]:
        """Return the summands of a term at the points of `path`, {root -> instance}, without those that are 0."""
        match term:
            case Via(along=along, term=inner):
                return self.summands(inner, path.apply_range(along))
            case Cases(parts=parts):
                limited = [(path.intersect_range(region), inner) for region, inner in parts]
                return [s for p, inner in limited if not p.is_empty() for s in self.summands(inner, p)]
            case Recurrence(site=site) | Again(site=site):
                return self._again(site, path)
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
        return [self.settled(s) for s in self.summands(term, path)]

    def _derived(self, term: Term, op: str, *args: Term) -> Term:
        """Return the term `op(args)` that replaces `term` or a part of it: the same object on every call."""
        return self._instead.setdefault(id(term), (term, Apply(op, args)))[1]

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
        shift = self.shift(found)
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
        self.shift(found)
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
        return self._instead.setdefault(id(term), (term, parts))[1]

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
        return self.settled(replace(product, scores=added_up(product)))

    def _one_level(self, a: Summand, b: Summand, lower: bool) -> UnionMap | None:
        """Return {point of a product -> the instances that computed the maximum by which it is multiplied}."""
        if a.level is not None and b.level is not None:
            raise Mismatch("a product of two maxima")
        return a.level if b.level is None else a.over(b.level, lower)

    # ------------------------------------------------------------------ levels

    def settled(self, summand: Summand) -> Summand:
        """Return the summand without levels that cancel."""
        levels = list(summand.levels)
        for a in summand.levels:
            for b in summand.levels:
                if a.factor > 0 > b.factor and a in levels and b in levels and self._cancel(summand, a, b):
                    levels = [level for level in levels if level is not a and level is not b]
        return replace(summand, levels=tuple(levels))

    def _cancel(self, summand: Summand, a: Level, b: Level) -> bool:
        if not close(a.factor, -b.factor) or a.scalars != b.scalars:
            return False
        if a.root == b.root:
            mine, other = a.made, b.made
            where = summand.roots if a.root else summand.points
        else:
            mine, other, where = summand.over(a.made, a.root), summand.over(b.made, b.root), summand.points
        if not mine.intersect_domain(where).is_equal(other.intersect_domain(where)):
            return False
        self._require_finite(summand, a, summand.points)
        return True

    def _require_finite(self, summand: Summand, level: Level, points: UnionSet) -> None:
        """Raise `Mismatch` if a maximum may be -inf at these points, since rescaling would then wipe out the sum."""
        if level.ref is None:
            return
        finite = self.exponents.finite(level.ref)
        if level.root and summand.up is not None:
            finite = finite.apply(summand.up.reverse())
        if not points.is_subset(finite):
            raise Mismatch(
                "the maximum may fall back to -inf after terms were added up, and rescaling by "
                "exp(old maximum - new maximum) then forgets them: keep it a maximum of the old one and the new terms"
            )

    def shift(self, summands: list[Summand]) -> Shift | None:
        """Return the level to which all summands are relative, by root, or None if there are no summands."""
        found: list[Shift] = []
        for summand in summands:
            if len(summand.levels) > 1:
                one, *others = summand.levels
                if any(not close(abs(o.factor), abs(one.factor)) or o.scalars != one.scalars for o in others):
                    raise Mismatch(
                        "a weight is not relative to one maximum: what it was relative to, and what it was rescaled "
                        "by, are maxima times different factors"
                    )
                raise Mismatch(
                    "a weight is not relative to one maximum: what it was relative to, and what it was rescaled from, "
                    "are maxima of different steps"
                )
            made, level = empty_map(), summand.levels[0] if summand.levels else None
            if level is not None:
                made = self._by_root(summand, level)
                self._require_finite(summand, level, summand.points)
            found.append(Shift(level.factor, level.scalars, made) if level is not None else Shift(0.0, (), made))
        return joined(found)

    def _by_root(self, summand: Summand, level: Level) -> UnionMap:
        """Return {root -> instances} of a level, also for points at which the summand is 0."""
        if level.root or summand.up is None:
            return level.made
        by_root = summand.up.reverse().apply_range(level.made)
        if not summand.up.apply_range(by_root).intersect_domain(summand.points).is_subset(level.made):
            raise Mismatch(_NOT_RESCALED)
        return by_root.coalesce()

    # ------------------------------------------------------------------ what loops carry on

    def _again(self, site: int, path: UnionMap) -> list[Summand]:
        if site in self._open:
            return [Summand(path.domain(), again=(site, path))]
        carried = self.carried(site)
        if not carried.added:
            return self.summands(self.exponents.term_of(site), path)
        base = path.apply_range(carried.reach)
        found = []
        for s in carried.summands:
            down = base.apply_range(s.upward.reverse())
            if down.is_empty():
                continue
            up, to = spread(down)
            levels: tuple[Level, ...] = ()
            if carried.shift is not None and carried.shift.factor:
                shift = carried.shift
                levels = (Level(shift.factor, shift.scalars, path.apply_range(shift.made), True),)
            placed = seen(replace(s, levels=levels), to, up)
            if carried.decay is None:
                found.append(placed)
            else:
                found += carried.decay.times(placed, up.apply_range(path), to.apply_range(s.upward))
        return found

    def carried(self, site: int) -> Carried:
        """Return the closed form of a statement that reads its own earlier values, by induction over its instances."""
        if site not in self._carried:
            where = self.builder.model.sites[site]
            domain = self.builder.model.domain(where)[0].to_union_set()
            self._open.add(site)
            try:
                found = self.summands(self.exponents.term_of(site), domain.identity())
            finally:
                self._open.discard(site)
            self._carried[site] = self._induction(site, found)
        return self._carried[site]

    def _induction(self, site: int, found: list[Summand]) -> Carried:
        own = [s for s in found if s.again is None]
        past = [s for s in found if s.again is not None]
        _own(site, past)
        if any(map(decays, past)):
            return self._decaying(site, own, past)
        _once(past)
        if any(len(s.levels) not in (0, 2) for s in past):
            raise Mismatch(_OTHER_FACTOR)
        relative = self.shift(own)
        sign = relative.factor if relative is not None and relative.factor else -1.0
        new = [replace(s, levels=tuple(x for x in s.levels if x.factor * sign > 0)) for s in past if s.levels]
        shift = self.shift([*own, *new])
        steps = empty_map()
        for s in past:
            assert s.again is not None
            step = s.again[1].intersect_domain(s.points)
            if shift is not None and shift.factor:
                step = step.intersect_range(shift.made.domain())  # Elsewhere the earlier value is 0.
                self._require_carried(s, step, shift)
            elif s.levels:
                raise Mismatch("a sum that is rescaled adds up what is relative to no maximum")
            steps = steps.union(step)
        if not steps.is_single_valued():
            raise Mismatch("a statement adds up several of its own earlier values")
        instances = self.builder.model.domain(self.builder.model.sites[site])[0].to_union_set()
        earlier = closure(steps)
        self._require_kept(own, past, steps, earlier)
        return Carried(tuple(own), instances.identity().union(earlier).coalesce(), shift, bool(past))

    def _decaying(self, site: int, own: list[Summand], past: list[Summand]) -> Carried:
        """Return the closed form of a recurrence, which multiplies its earlier value in every step."""
        if any(s.levels or s.level is not None for s in (*own, *past)):
            raise Mismatch(_OTHER_FACTOR)
        steps = reduce(UnionMap.union, (s.again[1].intersect_domain(s.points) for s in past if s.again), empty_map())
        if not steps.is_single_valued():
            raise Mismatch("a statement adds up several of its own earlier values")
        instances = self.builder.model.domain(self.builder.model.sites[site])[0].to_union_set()
        reach = instances.identity().union(closure(steps)).coalesce()
        return Carried(tuple(own), reach, None, True, decay(self.builder, past, steps, reach))

    def _require_kept(self, own: list[Summand], past: list[Summand], steps: UnionMap, earlier: UnionMap) -> None:
        """Raise `Mismatch` unless a nonempty earlier sum is always rescaled from a maximum that is more than -inf."""
        summed = empty_set()
        for s in own:
            summed = summed.union(s.roots)
        summed = summed.union(earlier.intersect_range(summed).domain())
        kept = steps.intersect_range(summed).domain()
        for s in past:
            for level in s.levels:
                self._require_finite(s, level, kept.intersect(s.points))

    def _require_carried(self, s: Summand, step: UnionMap, shift: Shift) -> None:
        """Raise `Mismatch` unless the earlier value is rescaled by exp(its level - the level of this instance)."""
        before = step.apply_range(shift.made)
        if not s.levels:
            if not before.is_equal(shift.made.intersect_domain(step.domain())):
                raise Mismatch(_NOT_RESCALED)
            return
        old = [level for level in s.levels if level.factor * shift.factor < 0]
        if len(s.levels) != 2 or len(old) != 1 or not close(old[0].factor, -shift.factor):
            raise Mismatch(_OTHER_FACTOR)
        if old[0].scalars != shift.scalars:
            raise Mismatch(_OTHER_FACTOR)
        if not before.is_equal(old[0].made.intersect_domain(step.domain())):
            raise Mismatch(_OTHER_FACTOR)


def alike(a: Shift, b: Shift) -> bool:
    """Return True if two levels have the same factor, up to rounding, and the same scalars."""
    return (close(a.factor, b.factor) or a.factor == b.factor) and a.scalars == b.scalars


def joined(shifts: list[Shift]) -> Shift | None:
    """Combine the shifts of several sums or summands into one. Raise `Mismatch` unless they agree."""
    if not shifts:
        return None
    both = shifts[0].made
    for other in shifts[1:]:
        if not alike(other, shifts[0]):
            raise Mismatch("weights of one sum are relative to the maximum times different factors")
        both = both.union(other.made)
    for one in shifts if not one_image(both) else []:
        if not both.intersect_domain(one.made.domain()).is_equal(one.made):
            raise Mismatch(_NOT_RESCALED)
    return replace(shifts[0], made=both.coalesce())


_NOTHING_BY_NOTHING = "0 / 0 where every score is masked: divide by `al.where(total == 0.0, 1.0, total)`"
_NOT_RESCALED = (
    "a sum adds up weights that are relative to different maxima: what was summed before is not rescaled by "
    "exp(old maximum - new maximum) when the maximum moves"
)
_OTHER_FACTOR = (
    "what a loop carries on is rescaled by another factor than exp(old maximum - new maximum), of the maxima that its "
    "weights before and after are relative to"
)


def _own(site: int, past: list[Summand]) -> None:
    """Raise `Mismatch` unless earlier values are the statement's own, and are added up by nothing else."""
    for s in past:
        assert s.again is not None
        if s.again[0] != site:
            raise Mismatch("two statements that carry each other on")
        if s.up is not None:
            raise Mismatch(_OTHER_FACTOR)


def _once(past: list[Summand]) -> None:
    """Raise `Mismatch` unless the earlier value occurs once at each instance."""
    covered = empty_set()
    for s in past:
        if not covered.intersect(s.points).is_empty():
            raise Mismatch("a statement adds its own earlier value twice")
        covered = covered.union(s.points)


def _exp_of_negative(term: Term) -> Term:
    return Apply("exp", (Apply("neg", (term,)),))
