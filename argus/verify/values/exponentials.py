"""Sums of exponentials: terms as `sum over k of exp(score(k) - level) * factors(k)`, also where a loop rescales them.

A sum that a loop carries on, `x = x * exp(old - new) + exp(score - new) * v`, is one such sum relative to `new`, if it
was one relative to `old`: by induction over the instances of the statement that writes it. The value of a level does
not matter, but every weight and every sum of a row must be relative to the same level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from argus.verify.model.isl import UnionMap, UnionSet, empty_map, empty_set
from argus.verify.values.linear import EmptyRow, Exponents, Linear, Monomial, Ref, close, closure
from argus.verify.values.numbers import Numbers, always_real
from argus.verify.values.products import inverted, together
from argus.verify.values.scope import Mismatch
from argus.verify.values.summands import Level, Placed, Summand, added_up, lifted, one_image, scaled, seen, spread
from argus.verify.values.terms import (
    Again,
    Apply,
    Cases,
    Constant,
    Opaque,
    Parameter,
    Recurrence,
    Reduce,
    Term,
    Via,
)


@dataclass(frozen=True)
class Shift:
    """The number that all summands of a root are relative to: `factor` * scalars * level. `made`: {root -> level}."""

    factor: float
    scalars: tuple[str, ...]
    made: UnionMap


@dataclass(frozen=True)
class Carried:
    """The value of a statement that reads its own earlier values: the summands of this and all earlier instances.

    `reach`: {instance -> itself and the earlier ones that it carries on}.
    """

    summands: tuple[Summand, ...]
    reach: UnionMap
    shift: Shift | None


class Exponentials:
    """Writes terms as sums of exponentials. A term that is not such a sum raises `Mismatch` with the reason."""

    def __init__(self, exponents: Exponents) -> None:
        self.exponents = exponents
        self.builder = exponents.builder
        self._carried: dict[int, Carried] = {}
        self._open: set[int] = set()
        self._numbers = Numbers()
        self.divided: set[str] = set()
        """Scalars that terms were divided by, although no precondition or assumption makes them positive."""
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
            case Apply(op="truediv", args=(a, b)):
                upper, lower = self.summands(a, path), self._inverse(b, path)
                if any(s.divisors for s in lower):
                    self._require_numbers(term, upper, path)
                return self.product(upper, lower)
            case Apply(op="sigmoid", args=(a,)):
                return self._inverse(self._derived(term, "add", Constant(1.0), _exp_of_negative(a)), path)
            case Apply(op="rsqrt", args=(a,)):
                root = self._derived(term, "sqrt", a)
                return [Summand(path.domain(), divisors=(Placed(Ref(root, path)),))]
            case Apply(op="log2", args=(a,)):
                natural = self._derived(term, "log", a)
                return [Summand(path.domain(), factor=1 / math.log(2), factors=(Placed(Ref(natural, path)),))]
            case Apply(op="exp" | "exp2" as op, args=(a,)):
                base = math.log(2) if op == "exp2" else 1.0
                forms = [self.exponents.scaled(form, base, ()) for form in self.exponents.linear(a, path)]
                return [s for form in forms if (s := self._exponential(form)) is not None]
            case Reduce(op="add", start=start, parts=parts):
                return self.summands(start, path) + self._sum(parts, path)
            case Opaque(reason=reason):
                raise Mismatch(reason)
            case _:
                return [Summand(path.domain(), factors=(Placed(Ref(term, path)),))]

    def _derived(self, term: Term, op: str, *args: Term) -> Term:
        """Return the term `op(args)` that replaces `term` or a part of it: the same object on every call."""
        return self._instead.setdefault(id(term), (term, Apply(op, args)))[1]

    def _require_numbers(self, term: Term, others: list[Summand], path: UnionMap) -> None:
        """Raise `Mismatch` if a term may not be a number where all the summands that it is multiplied by are 0."""
        if _splits(term):
            return
        zero = path.domain()
        for s in others:
            zero = zero.subtract(s.roots)
        if not zero.is_subset(self._numbers.real(term, zero, path)):
            raise Mismatch("a factor that may be no number, also where its weight is 0")

    def _inverse(self, term: Term, path: UnionMap) -> list[Summand]:
        """Return one over a term, by parts. Products are inverted factor by factor; a sum becomes one divisor."""
        found, points = self.summands(term, path), path.domain()
        apart = all(s.up is None and s.again is None and s.factor for s in found)
        for s in found if apart else ():
            apart = apart and s.points.is_subset(points)
            points = points.subtract(s.points)
        if not apart or not points.is_empty():
            return [Summand(path.domain(), divisors=(Placed(Ref(term, path)),))]
        self.divided |= {name for s in found for name in s.scalars if name not in self.exponents.positive}
        return [
            replace(
                s,
                factor=1 / s.factor,
                scalars=inverted(s.scalars),
                scores=tuple((replace(m, factor=-m.factor), root) for m, root in s.scores),
                levels=tuple(replace(level, factor=-level.factor) for level in s.levels),
                factors=s.divisors,
                divisors=s.factors,
            )
            for s in found
        ]

    def _exponential(self, form: Linear) -> Summand | None:
        """Return exp of a linear form as a summand; None if it is 0."""
        levels, scores = [], []
        for term in form.terms:
            if not term.level:
                if form.nothing and term.ref is not None and not always_real(term.ref.term):
                    raise Mismatch("a number is added to a masked score that may be inf, or none")
                scores.append((term, False))
                continue
            assert term.ref is not None
            levels.append(self._level(term, term.ref, form.points))
        return None if form.nothing else Summand(form.points, scores=tuple(scores), levels=tuple(levels))

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

    def _sum(self, parts: tuple[tuple[UnionMap, Term], ...], path: UnionMap) -> list[Summand]:
        found = []
        for along, inner in parts:
            reached = path.apply_range(along)
            if not reached.is_empty():
                up, down = spread(reached)
                found += [lifted(s, up) for s in self.summands(inner, down)]
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
        if a.up is not None and b.up is not None:  # a point for each pair
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
        )
        return self.settled(replace(product, scores=added_up(product)))

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
        """Return the level that all summands are relative to, by root; None if there are no summands."""
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
        base = path.apply_range(carried.reach)
        found = []
        for s in carried.summands:
            down = base.intersect_range(s.points) if s.up is None else base.apply_range(s.up.reverse())
            if down.is_empty():
                continue
            up, to = spread(down)
            levels: tuple[Level, ...] = ()
            if carried.shift is not None and carried.shift.factor:
                shift = carried.shift
                levels = (Level(shift.factor, shift.scalars, path.apply_range(shift.made), True),)
            found.append(seen(replace(s, levels=levels), to, up))
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
        _plain(site, past)
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
                step = step.intersect_range(shift.made.domain())  # elsewhere it was 0
                self._require_carried(s, step, shift)
            elif s.levels:
                raise Mismatch("a sum that is rescaled adds up what is relative to no maximum")
            steps = steps.union(step)
        if not steps.is_single_valued():
            raise Mismatch("a statement adds up several of its own earlier values")
        instances = self.builder.model.domain(self.builder.model.sites[site])[0].to_union_set()
        earlier = closure(steps)
        self._require_kept(own, past, steps, earlier)
        return Carried(tuple(own), instances.identity().union(earlier).coalesce(), shift)

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


_NOT_RESCALED = (
    "a sum adds up weights that are relative to different maxima: what was summed before is not rescaled by "
    "exp(old maximum - new maximum) when the maximum moves"
)
_OTHER_FACTOR = (
    "what a loop carries on is rescaled by another factor than exp(old maximum - new maximum), of the maxima that its "
    "weights before and after are relative to"
)


def _plain(site: int, past: list[Summand]) -> None:
    """Raise `Mismatch` unless the earlier value occurs once, times an exponential of levels and nothing else."""
    covered = empty_set()
    for s in past:
        assert s.again is not None
        if s.again[0] != site:
            raise Mismatch("two statements that carry each other on")
        plain = close(s.factor, 1.0) and not (s.scalars or s.scores or s.factors or s.divisors)
        if s.up is not None or not plain:
            raise Mismatch(_OTHER_FACTOR)
        if not covered.intersect(s.points).is_empty():
            raise Mismatch("a statement adds its own earlier value twice")
        covered = covered.union(s.points)


def _splits(term: Term) -> bool:
    """Return True if a term splits into real numbers and exponentials. Whether the exponentials are numbers is checked
    with their levels."""
    if always_real(term):
        return True
    match term:
        case Via(term=inner) | Recurrence(term=inner):
            return _splits(inner)
        case Cases(parts=parts):
            return all(_splits(inner) for _, inner in parts)
        case Reduce(op="add", start=start, parts=parts):
            return _splits(start) and all(_splits(inner) for _, inner in parts)
        case Apply(op="exp" | "exp2") | Again():
            return True
        case Apply(op="add" | "sub" | "mul" | "neg", args=args):
            return all(map(_splits, args))
        case Apply(op="truediv", args=(inner, divisor)):
            return _scalar(divisor) and _splits(inner)
        case _:
            return False


def _scalar(term: Term) -> bool:
    """Return True for a product of launch-time scalars and of numbers other than 0."""
    match term:
        case Constant(value=value):
            return bool(value)
        case Parameter():
            return True
        case Via(term=inner):
            return _scalar(inner)
        case Apply(op="mul", args=args):
            return all(map(_scalar, args))
        case _:
            return False


def _exp_of_negative(term: Term) -> Term:
    return Apply("exp", (Apply("neg", (term,)),))
