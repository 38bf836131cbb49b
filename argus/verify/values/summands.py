"""Sums of products that a kernel computes: their summands, and the test whether two summands are the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

from argus.verify.model.isl import UnionMap, UnionSet, empty_map, isl, map_parts, merged
from argus.verify.values.linear import CANCELLED, Monomial, Ref
from argus.verify.values.numbers import always_real
from argus.verify.values.products import together
from argus.verify.values.scope import Mismatch
from argus.verify.values.terms import Apply, Cases, Choice, Load, Recurrence, Reduce, Term, Via


@dataclass(frozen=True)
class Level:
    """`factor` times scalars times a maximum. `made`: {point -> the instances that computed it}, which identify it.

    `root`: `made` starts from roots instead of points. `ref`: the maximum, if it must be checked not to be -inf.
    """

    factor: float
    scalars: tuple[str, ...]
    made: UnionMap
    root: bool = False
    ref: Ref | None = None


@dataclass(frozen=True)
class Placed:
    """A reference from points, or, if `root` is true, from the roots that the points add to."""

    ref: Ref
    root: bool = False


@dataclass(frozen=True)
class Summand:
    """`factor` * scalars * exp(scores + levels) * factors / divisors at each of `points`, which add to roots.

    `up`: {point -> root}; None: points are roots. `again`: (statement, {point -> instance}), a factor written earlier.
    """

    points: UnionSet
    up: UnionMap | None = None
    factor: float = 1.0
    scalars: tuple[str, ...] = ()
    scores: tuple[tuple[Monomial, bool], ...] = ()
    levels: tuple[Level, ...] = ()
    factors: tuple[Placed, ...] = ()
    divisors: tuple[Placed, ...] = ()
    again: tuple[int, UnionMap] | None = None

    @property
    def roots(self) -> UnionSet:
        """The roots that the points add to."""
        return self.points if self.up is None else self.points.apply(self.up)

    def over(self, path: UnionMap, root: bool) -> UnionMap:
        """Return `path`, which starts from points or, if `root` is true, from roots, as a path from points."""
        limited = self.up.apply_range(path) if root and self.up is not None else path
        return limited.intersect_domain(self.points)


def one_image(relation: UnionMap) -> bool:
    """Return True if the simple hulls of a relation have one image for each point; then the relation has, too."""
    hulls = (isl.Map.from_basic_map(part.unshifted_simple_hull()) for part in map_parts(relation))
    return bool(reduce(UnionMap.union, (hull.to_union_map() for hull in hulls), empty_map()).is_single_valued())


def spread(reached: UnionMap) -> tuple[UnionMap, UnionMap]:
    """Return {point -> root} and {point -> instance}, with one point for each pair of `reached`, {root -> instance}.

    If each instance adds to one root only, the instances themselves are the points.
    """
    reached = merged(reached)
    if one_image(reached.reverse()) or reached.is_injective():
        return reached.reverse(), reached.range().identity()
    return reached.domain_map(), reached.range_map()


def _path(monomial: Monomial) -> UnionMap:
    return monomial.ref.path if monomial.ref is not None else empty_map()


def _moved(monomial: Monomial, path: UnionMap) -> Monomial:
    return monomial if monomial.ref is None else replace(monomial, ref=replace(monomial.ref, path=path))


def scaled(summand: Summand, factor: float, scalars: tuple[str, ...] = ()) -> Summand:
    """Return a summand times a number and launch-time scalars."""
    return replace(summand, factor=summand.factor * factor, scalars=together(summand.scalars, scalars))


def lifted(s: Summand, up: UnionMap) -> Summand:
    """Turn a summand of a contribution into a summand of the root. `up`: {contribution -> root}."""
    if s.again is not None:
        raise Mismatch("a sum over what a loop carries on")
    to = s.points.identity()
    if s.up is None:
        return replace(s, up=up.intersect_domain(s.points))
    alone = replace(
        s, levels=tuple(replace(x, made=s.over(x.made, x.root), root=False, ref=_from(s, x)) for x in s.levels)
    )
    return seen(alone, to, s.up.apply_range(up).intersect_domain(s.points))


def _from(s: Summand, level: Level) -> Ref | None:
    return None if level.ref is None else replace(level.ref, path=s.over(level.ref.path, level.root))


def seen(s: Summand, to: UnionMap | None, up: UnionMap) -> Summand:
    """Return a summand over other points. `to`: {new point -> old point} (None: the same). `up`: {new point -> root}.

    Levels that start from roots stay as they are; all other references then start from points.
    """

    def moved(path: UnionMap, root: bool) -> UnionMap:
        over = s.over(path, root)
        return over if to is None else to.apply_range(over)

    def placed(each: tuple[Placed, ...]) -> tuple[Placed, ...]:
        return tuple(Placed(replace(p.ref, path=moved(p.ref.path, p.root))) for p in each)

    def level(x: Level) -> Level:
        if x.root or to is None:
            return x
        return replace(x, made=to.apply_range(x.made), ref=x.ref and replace(x.ref, path=to.apply_range(x.ref.path)))

    scores = tuple((_moved(m, moved(_path(m), root)), False) for m, root in s.scores)
    return replace(
        s,
        points=up.domain(),
        up=up,
        scores=scores,
        levels=tuple(map(level, s.levels)),
        factors=placed(s.factors),
        divisors=placed(s.divisors),
    )


def added_up(s: Summand) -> tuple[tuple[Monomial, bool], ...]:
    """Return the scores of a product of exponentials, equal terms added up: exp(x) times exp(-x) is 1."""
    result: list[tuple[Monomial, bool]] = []
    for m, root in s.scores:
        same = next((i for i, (n, at) in enumerate(result) if _same_score(s, (m, root), (n, at))), None)
        if same is None:
            result.append((m, root))
        else:
            other, at = result[same]
            result[same] = (replace(other, factor=other.factor + m.factor), at)
    return tuple((m, root) for m, root in result if m.factor or m.ref is None or not always_real(m.ref.term))


def _same_score(s: Summand, some: tuple[Monomial, bool], other: tuple[Monomial, bool]) -> bool:
    (m, root), (n, at) = some, other
    if m.ref is None or n.ref is None or m.scalars != n.scalars:
        return False
    return _identical(s, Placed(m.ref, root), s, Placed(n.ref, at))


def collected(summands: list[Summand]) -> list[Summand]:
    """Add up summands that are equal products over the same points; leave out those that add up to 0."""
    result: list[Summand] = []
    sizes: list[float] = []
    for s in summands:
        same = next((i for i, t in enumerate(result) if _alike(s, t)), None)
        if same is None:
            result.append(s)
            sizes.append(abs(s.factor))
        else:
            result[same] = replace(s, factor=s.factor + result[same].factor)
            sizes[same] += abs(s.factor)
    kept = [s for s, size in zip(result, sizes, strict=True) if abs(s.factor) > CANCELLED * size]
    if any(
        s.divisors or not all(always_real(p.ref.term) for p in s.factors)
        for s in result
        if not any(s is k for k in kept)
    ):
        raise Mismatch("a difference of equal terms that may be no numbers")
    return kept


def _alike(a: Summand, b: Summand) -> bool:
    if (a.up is None) != (b.up is None) or a.scalars != b.scalars or not a.points.is_equal(b.points):
        return False
    if a.up is not None and b.up is not None and not a.up.is_equal(b.up):
        return False
    plain = not any((a.scores, b.scores, a.levels, b.levels, a.again, b.again))
    return plain and _same(a, a.factors, b, b.factors) and _same(a, a.divisors, b, b.divisors)


def _same(a: Summand, some: tuple[Placed, ...], b: Summand, others: tuple[Placed, ...]) -> bool:
    """Return True if two lists of factors are equal in some order."""
    rest = list(others)
    for p in some:
        same = next((i for i, q in enumerate(rest) if _identical(a, p, b, q)), None)
        if same is None:
            return False
        del rest[same]
    return not rest


def _identical(a: Summand, p: Placed, b: Summand, q: Placed) -> bool:
    mine, other = a.over(p.ref.path, p.root), b.over(q.ref.path, q.root)
    match p.ref.term, q.ref.term:
        case Load(tensor=tensor, cells=cells), Load(tensor=name, cells=others) if tensor == name:
            return bool(mine.apply_range(cells).is_equal(other.apply_range(others)))
        case term, another:
            return term is another and bool(mine.is_equal(other))


def tensors(term: Term) -> frozenset[str]:
    """Return the names of the tensors that a term loads from."""
    match term:
        case Load(tensor=tensor):
            return frozenset((tensor,))
        case Via(term=inner) | Recurrence(term=inner):
            return tensors(inner)
        case Cases(parts=parts):
            return frozenset(name for _, inner in parts for name in tensors(inner))
        case Reduce(start=start, parts=parts):
            return tensors(start).union(*(tensors(inner) for _, inner in parts))
        case Apply(args=args):
            return frozenset(name for a in args for name in tensors(a))
        case Choice(test=test, yes=yes, no=no):
            return tensors(test) | tensors(yes) | tensors(no)
        case _:
            return frozenset()
