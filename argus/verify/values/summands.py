"""Sums of products that a kernel computes: their summands, and the test whether two summands are the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, reduce

from argus.verify.model.isl import UnionMap, UnionSet, empty_map, explicit, isl, map_parts, merged, set_parts
from argus.verify.values.scope import Mismatch
from argus.verify.values.signs import always_real
from argus.verify.values.terms import Apply, Cases, Choice, Constant, Load, Parameter, Recurrence, Reduce, Term, Via


@dataclass(frozen=True)
class Ref:
    """A term as seen from points: {point -> instance of the term}."""

    term: Term
    path: UnionMap


@dataclass(frozen=True)
class Monomial:
    """The product of `factor`, launch-time scalars and a term (None: 1).

    A `level` is a maximum. `guarded`: the maximum counts as 0 where it is -inf.
    """

    factor: float
    scalars: tuple[str, ...] = ()
    ref: Ref | None = None
    level: bool = False
    guarded: bool = False


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
class Scale:
    """The scale that was taken out of a sum: a factor, launch-time scalars and, if `levelled`, the level of its
    summands."""

    factor: float
    scalars: tuple[str, ...]
    levelled: bool


@dataclass(frozen=True)
class Placed:
    """A reference from points or, if `root` is true, from the roots to which the points add.

    `without`: the term is a sum, or the logarithm of a sum, from which this scale was taken out; the scale is a
    separate factor of the product. `guarded`: the term is a divisor that is replaced by another number where it is 0.
    """

    ref: Ref
    root: bool = False
    without: Scale | None = None
    guarded: bool = False


@dataclass(frozen=True, eq=False)
class Summand:
    """The summand `factor` * scalars * exp(scores + levels) * factors / divisors at each of `points`, which add to
    roots.

    `up` is {point -> root}; None means that the points are roots. `again`: the summand is multiplied by a value that a
    statement wrote, {point -> instance}. `level`: it is multiplied by a maximum, identified by {point -> the instances
    that computed it}. Summands are compared by identity, as terms are.
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
    level: UnionMap | None = None

    @cached_property
    def upward(self) -> UnionMap:
        """Return {point -> root}."""
        return (self.points.identity() if self.up is None else self.up).intersect_domain(self.points)

    @property
    def roots(self) -> UnionSet:
        """The roots to which the points add."""
        return self.points if self.up is None else self.points.apply(self.up)

    def along(self, path: UnionMap, root: bool) -> UnionMap:
        """Return a path from points, and perhaps from others."""
        return self.up.apply_range(path) if root and self.up is not None else path

    def from_roots(self, placed: Placed) -> UnionMap:
        """Return the path that leads from roots to a factor or a divisor."""
        path = placed.ref.path
        return path if placed.root or self.up is None else self.upward.reverse().apply_range(path)

    def over(self, path: UnionMap, root: bool) -> UnionMap:
        """Return `path`, which starts from points or, if `root` is true, from roots, as a path from points."""
        return self.along(path, root).intersect_domain(self.points)


def hulls(relation: UnionMap) -> UnionMap:
    """Return the simple hull of each part of a relation."""
    each = (isl.Map.from_basic_map(part.unshifted_simple_hull()) for part in map_parts(relation))
    return reduce(UnionMap.union, (hull.to_union_map() for hull in each), empty_map())


def one_image(relation: UnionMap) -> bool:
    """Return True if the simple hulls of a relation have one image for each point: the relation then has one as well.
    """
    return bool(hulls(relation).is_single_valued())


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
    if s.up is None:
        return replace(s, up=up.intersect_domain(s.points))
    alone = replace(
        s, levels=tuple(replace(x, made=s.over(x.made, x.root), root=False, ref=_from(s, x)) for x in s.levels)
    )
    up = explicit(s.up.apply_range(up).intersect_domain(s.points))
    return seen(alone, s.points.identity(), up)


def counted(s: Summand, down: UnionMap, along: UnionMap) -> Summand | None:
    """Return a summand at the first of the instances to which `along`, {instance -> instances that it adds up}, leads,
    if the summand is the same at all of them. Otherwise return None. The last dimension counts these instances. `down`
    is {root of the summand -> instance}."""
    (space,), parts = map_parts(along), set_parts(s.points)
    if len(parts) != 1 or s.levels or s.again or s.level:
        return None
    flat = isl.UnionMap.from_map(parts[0].identity().flatten_range()).reverse()  # {one tuple -> point}
    s = seen(s, flat, flat.apply_range(s.upward))
    (points,), (counting,) = set_parts(s.points), map_parts(s.upward.apply_range(down))
    last, dims = counting.dim(isl.dim_type.out) - 1, range(points.dim(isl.dim_type.set))
    same = [i for i in dims if counting.is_subset(counting.equate(isl.dim_type.in_, i, isl.dim_type.out, last))]
    free = points
    for i in same:
        free = free.project_out(isl.dim_type.set, i, 1).insert_dims(isl.dim_type.set, i, 1)
    for i in same:
        free = free.equate(isl.dim_type.set, same[0], isl.dim_type.set, i)
    own = counting.gist_domain(points)
    free, own = free.set_tuple_name("F"), own.set_tuple_name(isl.dim_type.in_, "F")
    every = space.range().apply(own.reverse())
    if not same or not free.intersect(every).is_equal(points.set_tuple_name("F")):
        return None

    def varies(path: UnionMap) -> bool:
        gists = (part.gist_domain(points) for part in map_parts(path.intersect_domain(s.points)))
        return any(gist.involves_dims(isl.dim_type.in_, i, 1) for gist in gists for i in same)

    refs = [p.ref for p in (*s.factors, *s.divisors)] + [m.ref for m, _ in s.scores if m.ref]
    if any(_varies(ref.term, ref.path, varies) for ref in refs):
        return None
    return replace(s, points=points.fix_val(isl.dim_type.set, same[0], 0).to_union_set())


def _varies(term: Term, path: UnionMap, varies: Callable[[UnionMap], bool]) -> bool:
    """Return True if a term may depend on the variables with which its instances, {point -> instance}, vary."""
    if not varies(path):
        return False
    match term:
        case Load(cells=cells):
            return varies(path.apply_range(cells))
        case Via(along=along, term=inner):
            return _varies(inner, path.apply_range(along), varies)
        case Apply(args=args):
            return any(_varies(a, path, varies) for a in args)
        case _:
            return not isinstance(term, (Constant, Parameter))


def _from(s: Summand, level: Level) -> Ref | None:
    return None if level.ref is None else replace(level.ref, path=s.over(level.ref.path, level.root))


def seen(s: Summand, to: UnionMap | None, up: UnionMap) -> Summand:
    """Return a summand over other points. `to`: {new point -> old point} (None: the same). `up`: {new point -> root}.

    Levels that start from roots stay as they are; all other references then start from points.
    """

    def moved(path: UnionMap, root: bool) -> UnionMap:
        return s.over(path, root) if to is None else to.apply_range(s.along(path, root))

    def placed(each: tuple[Placed, ...]) -> tuple[Placed, ...]:
        return tuple(replace(p, ref=replace(p.ref, path=moved(p.ref.path, p.root)), root=False) for p in each)

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
        level=None if s.level is None else moved(s.level, False),
    )


def added_up(s: Summand) -> tuple[tuple[Monomial, bool], ...]:
    """Return the scores of a product of exponentials with equal terms added up, so that exp(x) times exp(-x) is 1."""
    result: list[tuple[Monomial, bool]] = []
    for m, root in s.scores:
        same = next((i for i, (n, at) in enumerate(result) if _same_score(s, (m, root), (n, at))), None)
        if same is None:
            result.append((m, root))
        else:
            other, at = result[same]
            result[same] = (replace(other, factor=other.factor + m.factor), at)
    return tuple((m, root) for m, root in result if m.factor or not _vanishes(m))


def _vanishes(m: Monomial) -> bool:
    """Return True if a monomial is 0 where its factor is."""
    return m.ref is not None and always_real(m.ref.term) and not any(name.startswith("1:") for name in m.scalars)


def _same_score(s: Summand, some: tuple[Monomial, bool], other: tuple[Monomial, bool]) -> bool:
    (m, root), (n, at) = some, other
    if m.ref is None or n.ref is None or m.scalars != n.scalars:
        return False
    return _identical(s, Placed(m.ref, root), s, Placed(n.ref, at))


def _identical(a: Summand, p: Placed, b: Summand, q: Placed) -> bool:
    mine, other = a.over(p.ref.path, p.root), b.over(q.ref.path, q.root)
    match p.ref.term, q.ref.term:
        case Load(tensor=tensor, cells=cells), Load(tensor=name, cells=others) if tensor == name:
            return bool(mine.apply_range(cells).is_equal(other.apply_range(others)))
        case term, another:
            return term is another and bool(mine.is_equal(other))


def together(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    """Return the product of launch-time scalars. "1/N" stands for the inverse of N and cancels with N; "1:N" does not
    cancel."""
    left = list(a)
    for name in b:
        opposite = name[2:] if name.startswith("1/") else f"1/{name}"
        if opposite in left:
            left.remove(opposite)
        else:
            left.append(name)
    return tuple(sorted(left))


def inverted(scalars: tuple[str, ...], positive: frozenset[str]) -> tuple[str, ...]:
    """Return the inverse of a product of launch-time scalars: "1/N" for scalars in `positive`, and "1:N" for scalars
    that may be 0."""

    def one(name: str) -> str:
        return name[2:] if name.startswith("1/") else f"1{'/' if name in positive else ':'}{name}"

    return tuple(sorted(map(one, scalars)))


def total(s: Summand) -> bool:
    """Return True if a product is a number for all real inputs: it has no divisors, and its atoms are real."""
    refs = (*(p.ref for p in s.factors), *(m.ref for m, _ in s.scores if m.ref is not None))
    scalars = (*s.scalars, *(name for m, _ in s.scores for name in m.scalars))
    return not s.divisors and all(always_real(r.term) for r in refs) and not any(n.startswith("1:") for n in scalars)


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
