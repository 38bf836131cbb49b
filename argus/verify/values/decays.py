"""Recurrences: what a loop carries on and multiplies by a number in every step, as in gated and state-space models.

`h = g * h + u` is, by induction over the loop, the sum over all steps j so far of `u` at j times the product of `g`
over the steps after j. A product of exponentials is one of a sum, and that sum is a difference where it telescopes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from argus.verify.model.formulas import Tuple, numbered, relation
from argus.verify.model.isl import UnionMap, UnionSet, empty_map, isl, map_parts, point
from argus.verify.values.scope import Mismatch, close
from argus.verify.values.summands import Monomial, Placed, Ref, Summand
from argus.verify.values.term_builder import TermBuilder
from argus.verify.values.terms import Apply, Constant, Index, Load, Parameter, Reduce, Term, Via


@dataclass(frozen=True)
class Decay:
    """The factor by which the earlier values are multiplied. `pairs`: {[instance -> earlier one or itself] -> a point
    for both}.

    `scores` and `factors` start from these points. `regions`: instances beside the scores that only they have.
    """

    pairs: UnionMap
    scores: tuple[Monomial, ...]
    factors: tuple[Placed, ...]
    regions: tuple[tuple[UnionSet, tuple[Monomial, ...]], ...]

    def times(self, s: Summand, now: UnionMap, then: UnionMap) -> list[Summand]:
        """Return a summand times the steps from `then` to `now`, both {point -> instance}, by parts."""
        at = now.range_product(then).apply_range(self.pairs)
        factors = tuple(replace(p, ref=replace(p.ref, path=at.apply_range(p.ref.path))) for p in self.factors)
        s = replace(s, factors=(*s.factors, *factors))
        found: list[Summand] = []
        rest = s.points
        for region, scores in self.regions:
            here = now.intersect_range(region).domain()
            found.append(_weighed(s, s.points.intersect(here), (*self.scores, *scores), at))
            rest = rest.subtract(here)
        found.append(_weighed(s, rest, self.scores, at))
        return [each for each in found if not each.points.is_empty()]


def _weighed(s: Summand, points: UnionSet, scores: tuple[Monomial, ...], at: UnionMap) -> Summand:
    added = tuple((_seen(m, at.intersect_domain(points)), False) for m in scores)
    return replace(s, points=points, scores=(*s.scores, *added))


def _seen(m: Monomial, at: UnionMap) -> Monomial:
    assert m.ref is not None
    return replace(m, ref=replace(m.ref, path=at.apply_range(m.ref.path)))


def decays(s: Summand) -> bool:
    """Return True if an earlier value is multiplied by something that is no rescaling."""
    return not close(s.factor, 1.0) or bool(s.scalars or s.scores or s.factors or s.divisors)


def decay(builder: TermBuilder, past: list[Summand], steps: UnionMap, reach: UnionMap) -> Decay:
    """Return what the earlier values of a statement are multiplied by.

    `past`: its earlier value in its own term. `steps`: {instance -> the one before}. `reach`: {instance -> itself and
    all earlier ones}. Raise `Mismatch` for what is not multiplied by products of numbers, elements and exponentials.
    """
    pairs = _flat(builder, reach)
    step = _Steps(pairs, steps, reach)
    if not _products(past):
        whole = Reduce("mul", Constant(1.0), tuple((step.along(points), term) for points, term in _together(past)))
        return Decay(pairs, (), (Placed(Ref(whole, _itself(pairs))),), ())
    scores: list[Monomial] = []
    ends = _telescoped([s for s in past if s.scores], steps)
    if ends is None:
        scores.append(Monomial(1.0, (), Ref(step.collected("add", 0.0, past, _exponent), _itself(pairs))))
    regions = ((region, tuple(m for end in each for m in step.difference(end))) for region, each in ends or ())
    if not close(past[0].factor, 1.0):
        scores.append(Monomial(math.log(past[0].factor), (), Ref(Index(step.count()), _itself(pairs))))
    factors: tuple[Placed, ...] = ()
    if any(s.factors for s in past):
        factors = (Placed(Ref(step.collected("mul", 1.0, past, _product), _itself(pairs))),)
    return Decay(pairs, tuple(scores), factors, tuple(regions))


def _products(past: list[Summand]) -> bool:
    """Return True if an earlier value occurs once at each instance, times elements, exponentials and one number."""
    apart = past[0].points
    for s in past[1:]:
        if not apart.intersect(s.points).is_empty():
            return False
        apart = apart.union(s.points)
    return all(s.factor > 0 and close(s.factor, past[0].factor) and not (s.divisors or s.scalars) for s in past)


def _together(past: list[Summand]) -> list[tuple[UnionSet, Term]]:
    """Return the factors of the earlier value, each for a set of instances; the sets do not overlap."""
    found: list[tuple[UnionSet, Term]] = []
    for s in past:
        rest, parts = s.points, list[tuple[UnionSet, Term]]()
        for points, term in found:
            parts += [(points.intersect(s.points), Apply("add", (term, _whole(s)))), (points.subtract(s.points), term)]
            rest = rest.subtract(points)
        found = [(points, term) for points, term in (*parts, (rest, _whole(s))) if not points.is_empty()]
    return found


def _whole(s: Summand) -> Term:
    """Return all that a summand multiplies its earlier value by as one term."""
    if any(name[:2] in ("1/", "1:") for name in s.scalars):
        raise Mismatch("what a loop carries on is divided by a scalar")
    terms: list[Term] = [
        Constant(s.factor),
        *map(Parameter, s.scalars),
        *(Via(p.ref.path, p.ref.term) for p in s.factors),
    ]
    if s.scores:
        terms.append(Apply("exp", (_exponent(s),)))
    whole = _folded("mul", 1.0, terms)
    for p in s.divisors:
        if p.without is not None and (p.without.scalars or p.without.levelled):
            raise Mismatch("what a loop carries on is divided by a sum of weights")
        scale = 1.0 if p.without is None else p.without.factor
        whole = Apply("truediv", (Apply("mul", (whole, Constant(scale))), Via(p.ref.path, p.ref.term)))
    return whole


def _itself(pairs: UnionMap) -> UnionMap:
    return pairs.range().identity()


def _flat(builder: TermBuilder, reach: UnionMap) -> UnionMap:
    """Return a map from each pair [instance -> earlier one] to a point of a space of its own."""
    result = empty_map()
    for part in map_parts(reach):
        name = f"V{len(builder.places) + 1}"
        flat = isl.Map.from_union_map(part.to_union_map().wrap().identity()).flatten_range()
        flat = flat.set_tuple_name(isl.dim_type.out, name)
        builder.places[name] = flat.range().to_union_set()
        result = result.union(flat.to_union_map())
    return result


class _Steps:
    """The steps from an earlier instance to a later one, over the points of their pairs."""

    def __init__(self, pairs: UnionMap, steps: UnionMap, reach: UnionMap) -> None:
        both = pairs.reverse()
        whole = reach.wrap().unwrap()
        self.now = both.apply_range(whole.domain_map())
        self.then = both.apply_range(whole.range_map())
        self._pairs, self._step = pairs, steps
        after = reach.apply_range(steps).reverse()  # {instance -> those whose steps lead to it or to later ones}
        between = reach.domain_product(after)  # {[now -> then] -> instance}
        self._between = both.apply_range(between)

    def along(self, points: UnionSet) -> UnionMap:
        """Return {point -> the steps between its two instances}, those at some points."""
        return self._between.intersect_range(points)

    def collected(self, op: str, start: float, past: list[Summand], term: Callable[[Summand], Term]) -> Reduce:
        """Return a reduction over all steps between two instances."""
        parts = tuple((self.along(s.points), term(s)) for s in past)
        return Reduce(op, Constant(start), parts)

    def difference(self, end: Monomial) -> tuple[Monomial, Monomial]:
        """Return the value of a monomial at the later of two instances, minus that at the earlier one."""
        return _at(end, self.now, 1.0), _at(end, self.then, -1.0)

    def count(self) -> UnionMap:
        """Return {point -> [number of steps]}, which is the difference of one loop counter."""
        parts = map_parts(self._step)
        if len(parts) != 1:
            raise Mismatch("a loop whose steps cannot be counted")
        deltas = parts[0].deltas()
        rank = deltas.dim(isl.dim_type.set)
        for axis in range(rank):
            other = point(-1 if i == axis else 0 for i in range(rank))
            if deltas.set_tuple_name("").reset_tuple_id().is_subset(other.align_params(deltas.get_space())):
                return self._difference(rank, axis)
        raise Mismatch("a loop whose steps cannot be counted")

    def _difference(self, rank: int, axis: int) -> UnionMap:
        name = str(map_parts(self._pairs)[0].get_tuple_name(isl.dim_type.out))
        now_and_then = Tuple((*numbered("t", rank), *numbered("j", rank)), name)
        every = relation(now_and_then, Tuple((f"t{axis} - j{axis}",))).to_union_map()
        return every.intersect_domain(self._pairs.range())


def _telescoped(past: list[Summand], steps: UnionMap) -> list[tuple[UnionSet, list[Monomial]]] | None:
    """Return scores whose earlier values are all other scores, negated, with the instances that have them.

    None if the scores are not such pairs, or if a step leads from one such set of instances to another.
    """
    found: list[tuple[UnionSet, list[Monomial]]] = []
    for s in past:
        ends = _ends(s, steps.intersect_domain(s.points))
        if ends is None:
            return None
        region = reduce(UnionSet.intersect, (end.ref.path.domain() for end in ends if end.ref is not None))
        inside = steps.intersect_domain(region)
        closed = inside.domain().is_subset(s.points) and inside.range().is_subset(region)
        if not closed or any(not region.intersect(other).is_empty() for other, _ in found):
            return None
        found.append((region, ends))
    return found


def _ends(s: Summand, steps: UnionMap) -> list[Monomial] | None:
    left = [m for m, _ in s.scores]
    ends: list[Monomial] = []
    while left:
        m = left.pop(0)
        other = next((n for n in left if _opposite(m, n)), None)
        if other is None:
            return None
        left.remove(other)
        end = next((a for a, b in ((m, other), (other, m)) if _before(a, b, steps)), None)
        if end is None:
            return None
        ends.append(end)
    return ends


def _opposite(m: Monomial, n: Monomial) -> bool:
    return m.ref is not None and n.ref is not None and m.scalars == n.scalars and close(m.factor, -n.factor)


def _before(m: Monomial, n: Monomial, steps: UnionMap) -> bool:
    """Return True if the term of `n` is that of `m` in the step before, wherever there is one."""
    assert m.ref is not None and n.ref is not None
    match m.ref.term, n.ref.term:
        case Load(tensor=tensor, cells=cells), Load(tensor=other, cells=others) if tensor == other:
            mine, theirs = m.ref.path.apply_range(cells), n.ref.path.apply_range(others)
        case term, another if term is another:
            mine, theirs = m.ref.path, n.ref.path
        case _:
            return False
    earlier = theirs.intersect_domain(steps.domain())
    return bool(steps.apply_range(mine).is_equal(earlier))


def _at(end: Monomial, instance: UnionMap, sign: float) -> Monomial:
    assert end.ref is not None
    ref = replace(end.ref, path=instance.apply_range(end.ref.path))
    return replace(end, factor=sign * end.factor, ref=ref)


def _exponent(s: Summand) -> Term:
    """The exponent of a summand as a term."""
    return _folded("add", 0.0, [_scaled(m) for m, _ in s.scores])


def _scaled(m: Monomial) -> Term:
    if m.scalars:
        raise Mismatch("the exponent of what a loop carries on is multiplied by a scalar")
    number: Term = Constant(m.factor)
    return number if m.ref is None else Apply("mul", (number, Via(m.ref.path, m.ref.term)))


def _product(s: Summand) -> Term:
    """The factors of a summand as a term."""
    return _folded("mul", 1.0, [Via(p.ref.path, p.ref.term) for p in s.factors])


def _folded(op: str, start: float, terms: Sequence[Term]) -> Term:
    result: Term = Constant(start)
    for term in terms:
        result = Apply(op, (result, term))
    return result
