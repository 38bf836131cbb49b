"""Compare sums of products, product by product.

The loads of an instance determine the specified instance, and the other factors of the product are compared there. At
each specified point, the arriving factors add up to the specified factor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import isfinite
from typing import TypeVar

from argus.ir.expr import REDUCTIONS
from argus.ir.types import float32
from argus.verify.model.isl import UnionMap, UnionSet, merged
from argus.verify.model.translator import NonAffine
from argus.verify.values.contributions import contributions
from argus.verify.values.exponentials import Exponentials
from argus.verify.values.functions import Shapes
from argus.verify.values.linear import Exponents
from argus.verify.values.logarithms import Logarithms
from argus.verify.values.numbers import Numbers
from argus.verify.values.pieces import CANCELLED, Group
from argus.verify.values.places import Places
from argus.verify.values.scope import Mismatch, Scope, close, first_that_holds
from argus.verify.values.summands import Monomial, Placed, Scale, Summand, one_image, scaled, tensors, total
from argus.verify.values.term_builder import TermBuilder
from argus.verify.values.terms import Apply, Constant, Reduce, Term, Via

_Part = TypeVar("_Part")
_Equal = Callable[[_Part, _Part], None]
_Likely = Callable[[_Part, _Part], bool]

IDEMPOTENT = ("maximum", "minimum")
"""Reductions whose value does not depend on how often a term contributes."""

Without = tuple["Scale | None", "Scale | None"]
"""The scales that were taken out of each of two sums."""


class Products(ABC):
    """Compares sums of products. Terms in them are compared by `match`, or by `once`, which remembers results."""

    def __init__(self, builder: TermBuilder) -> None:
        self.builder, self.model = builder, builder.model
        self.exponentials = Exponentials(Exponents(builder))
        self._logarithms = Logarithms(self.exponentials)
        self._places = Places()
        self._numbers = Numbers()
        self.shapes = Shapes()

    @abstractmethod
    def match(self, mine: Term, wanted: Term, scope: Scope) -> None:
        """Raise `Mismatch` unless both terms are equal for every root."""

    @abstractmethod
    def once(self, mine: Term, wanted: Term, scope: Scope, without: Without | None = None) -> None:
        """Match two terms once for each pair of instances. With `without`, match two sums from which these scales were
        taken out."""

    def account(self, found: list[Summand], wanted: list[Summand], scope: Scope, op: str = "add") -> None:
        """Check that the found products add up to the wanted products."""
        groups: list[Group] = []
        for s in self._logarithms.undone(self._logarithms.unless_empty(wanted)):
            self.join(groups, s, scope, True, op)
        hints: list[UnionMap] = []
        arrived = self._logarithms.undone(self._logarithms.unless_empty(found))
        for s in [left for each in arrived for left in self._count(groups, each, scope, op, hints)[0]]:
            # Other products have by now determined which instances correspond.
            self.join(groups, s, scope, False, op, hints)
        for group in sorted(groups, key=lambda group: group.specified):
            self._balance(group, scope, op)

    def join(
        self,
        groups: list[Group],
        s: Summand,
        scope: Scope,
        specified: bool,
        op: str,
        hints: list[UnionMap] | None = None,
    ) -> None:
        """Count a product in the groups of products equal to it, part by part. Parts that equal no group form a new
        group."""
        left, why = self._count(groups, s, scope, op, [] if hints is None else hints, specified)
        for each in left:
            groups.append(Group(each, specified, why))
            groups[-1].add(each.points, each.factor, specified)

    def _count(
        self, groups: list[Group], s: Summand, scope: Scope, op: str, hints: list[UnionMap], specified: bool = False
    ) -> tuple[list[Summand], Mismatch | None]:
        """Count a product in the groups of products equal to it. Return the part that equals none of them, and the
        reason."""
        why: Mismatch | None = None
        mine = self.shapes.of_product(s)
        alike = [g for g in groups if self.shapes.of_product(g.like) == mine]
        for group in alike if specified else [*alike, *(g for g in groups if g not in alike)]:
            try:
                where = self._onto(s, group.like, scope, hints)
            except Mismatch as mismatch:
                why = why or mismatch
                continue
            if op not in IDEMPOTENT and not (one_image(where.reverse()) or where.is_injective()):
                raise Mismatch("a term of the reduction contributes more than once", self._twice(s, where, scope))
            hints.append(where)
            group.add(where.range(), s.factor, specified)
            s = replace(s, points=merged(s.points.subtract(where.domain())))
            if s.points.is_empty():
                return [], None
        return [s], why

    def contributed(self, op: str, mine: Term, wanted: Term, scope: Scope) -> list[tuple[UnionSet, list[UnionMap]]]:
        """Return the terms of a specified reduction, and the map {contribution -> term} that assigns each contribution
        to one term.

        Different specified products are different terms. The factors of a term and of each of its contributions are
        equal.
        """
        if op == "add":
            found, specified = self.exponentials.sum(mine, scope.path), self.exponentials.sum(wanted, scope.other)
        else:
            found, specified = self.contributions_of(op, mine, wanted, scope)
        result: list[tuple[UnionSet, list[UnionMap]]] = [(s.points, []) for s in specified]
        for s in found:
            why: Mismatch | None = None
            for like, (_, arrived) in zip(specified, result, strict=True):
                try:
                    where = self._onto(s, like, scope, [])
                except Mismatch as mismatch:
                    why = why or mismatch
                    continue
                if not close(s.factor, like.factor):
                    raise Mismatch("a term of a sum is multiplied by another number")
                arrived.append(where)
                s = replace(s, points=s.points.subtract(where.domain()))
                if s.points.is_empty():
                    break
            else:
                raise why or Mismatch("a term that is not specified is contributed")
        return result

    def contributions_of(
        self, op: str, mine: Term, wanted: Term, scope: Scope, nested: bool = True
    ) -> tuple[list[Summand], list[Summand]]:
        """Return the operands of an associative operator in both terms."""
        identity, itself = identity_of(op, wanted, mine), scope.roots.identity()
        return (
            contributions(self._numbers, op, mine, scope.path, itself, identity, nested),
            contributions(self._numbers, op, wanted, scope.other, itself, identity, nested),
        )

    def _twice(self, s: Summand, where: UnionMap, scope: Scope) -> UnionSet:
        pairs = where.apply_range(where.reverse())
        distinct = pairs.subtract(pairs.domain().union(pairs.range()).identity()).domain()
        return scope.origins(distinct.apply(s.upward))

    def _balance(self, group: Group, scope: Scope, op: str) -> None:
        """Check that the arriving factors add up to the specified factor at each point."""
        for piece in group.pieces():
            where, found, wanted = piece.points, piece.found, piece.wanted
            if not isfinite(piece.gross):
                raise Mismatch("the numbers that a term is multiplied by are too large")
            if op in IDEMPOTENT:
                found, wanted = float(found != 0), float(wanted != 0)
            if close(found, wanted) or abs(found - wanted) < CANCELLED * piece.gross:
                if not (wanted or self._sure(group.like, where)):
                    raise Mismatch("a difference of equal terms that may be no numbers")
                continue
            wrong = where.intersect_params(self.model.context.defined)
            if wrong.is_empty():
                continue
            if not group.specified and group.why is not None:
                raise group.why
            text = "is missing" if not found else "is too many" if not wanted else "is multiplied by another number"
            raise Mismatch(f"a term of a sum {text}", scope.origins(wrong.apply(group.like.upward)))

    def _sure(self, s: Summand, points: UnionSet) -> bool:
        """Return True if a product is a real number at some of its points, for all real inputs."""
        if total(s):
            return True
        scalars = (*s.scalars, *(name for m, _ in s.scores for name in m.scalars))
        if any(name.startswith("1:") for name in scalars) or any(p.without and p.without.levelled for p in s.factors):
            return False
        refs = [(p.ref, p.root) for p in s.factors] + [(m.ref, root) for m, root in s.scores if m.ref is not None]
        real = (self._numbers.real(ref.term, points, s.over(ref.path, root)) for ref, root in refs)
        above = (self._numbers.positive(p.ref.term, points, s.over(p.ref.path, p.root)) for p in s.divisors)
        return all(map(points.is_subset, (*real, *above)))

    def _onto(self, s: Summand, like: Summand, scope: Scope, hints: list[UnionMap]) -> UnionMap:
        """Return {point -> point of `like`} at which both are the same product, apart from their factors."""
        if s.levels and like.divisors:
            raise Mismatch(_APART if s.divisors else "the weights are not divided by their sum")
        if any(t.levels or t.again is not None or t.level is not None for t in (s, like)):
            raise Mismatch("a product that is relative to a maximum, and the specified one is not, or to another")
        alike = len(s.factors) == len(like.factors) and len(s.divisors) == len(like.divisors)
        if not alike or s.scalars != like.scalars:
            divided = any(name.startswith("1:") for name in s.scalars)
            raise Mismatch(_DIVIDED if divided else "a product of other factors than specified")
        if not _loaded_by(s) <= _loaded_by(like):
            raise Mismatch("a product of elements of other tensors than specified")
        together = s.upward.apply_range(like.upward.reverse())

        def attempt(where: UnionMap) -> UnionMap:
            if where.is_empty():
                raise Mismatch("a product of other instances than specified")
            self._equal(s, like, where, scope)
            return where

        return first_that_holds(self._places.candidates(s, like, together, hints, scope), attempt)

    def _equal(self, s: Summand, like: Summand, where: UnionMap, scope: Scope) -> None:
        """Check that factors, divisors and exponents are equal in some order."""
        trail = (*scope.trail, s.upward)
        here = where.domain()
        paths: list[tuple[UnionMap, bool, UnionMap]] = []  # equality of relations is a question to ISL

        def path_of(mine: UnionMap, root: bool) -> UnionMap:
            known = next((path for of, above, path in paths if of is mine and above is root), None)
            if known is None:
                known = merged(s.along(mine, root).gist_domain(here)).intersect_domain(here)
                paths.append((mine, root, known))
            return known

        def inner(mine: UnionMap, root: bool, other: UnionMap, above: bool) -> Scope:
            return Scope(path_of(mine, root), where.apply_range(like.over(other, above)), trail, (), scope.walking)

        def factor(p: Placed, q: Placed) -> None:
            there = inner(p.ref.path, p.root, q.ref.path, q.root)
            if p.guarded or q.guarded:
                self._logarithms.require_live(q, there)
            if p.without or q.without:
                self._sums(p, q, (s.from_roots(p), like.from_roots(q)), there, scope)
            else:
                self.match(p.ref.term, q.ref.term, there)

        _each(s.factors, like.factors, factor, self._look_alike)
        _each(s.divisors, like.divisors, factor, self._look_alike)
        self._exponents(s, like, where, inner, replace(scope, trail=trail))

    def _look_alike(self, p: Placed, q: Placed) -> bool:
        return self.shapes.of(p.ref.term) == self.shapes.of(q.ref.term)

    def _sums(self, p: Placed, q: Placed, paths: tuple[UnionMap, UnionMap], there: Scope, scope: Scope) -> None:
        """Compare two sums, after the scales were taken out, at all roots or, if that fails, where the points add to
        roots."""
        without = p.without, q.without
        path, other = (merged(each.intersect_domain(scope.roots)) for each in paths)
        if path.is_single_valued() and other.is_single_valued():
            # All roots together are simpler than some, and the result then serves other points.
            with suppress(Mismatch, NonAffine):
                self.once(p.ref.term, q.ref.term, Scope(path, other, scope.trail, (), scope.walking), without)
        self.once(p.ref.term, q.ref.term, there, without)

    def _exponents(self, s: Summand, like: Summand, where: UnionMap, inner: Callable[..., Scope], scope: Scope) -> None:
        if not s.scores and not like.scores:
            return

        def score(a: tuple[Monomial, bool], b: tuple[Monomial, bool]) -> None:
            (m, root), (n, above) = a, b
            if m.scalars != n.scalars or not close(m.factor, n.factor):
                numbers = f"{_number(m.factor, m.scalars)}, and not by {_number(n.factor, n.scalars)}"
                raise Mismatch(f"an exponent is multiplied by {numbers}")
            if (m.ref is None) != (n.ref is None):
                raise Mismatch("an exponent is another sum than specified")
            if m.ref is not None and n.ref is not None:
                self.match(m.ref.term, n.ref.term, inner(m.ref.path, root, n.ref.path, above))

        mine, offset = _constants(s)
        theirs, other = _constants(like)
        try:
            if len(mine) != len(theirs) or not close(1.0 + offset, 1.0 + other):
                raise Mismatch("an exponent is another sum than specified")
            _each(mine, theirs, score, _any)
        except Mismatch as straight:
            if scope.walking:
                raise
            points = where.domain()
            found = [t for m, root in s.scores for t in self._score(m, s.over(_path(m, s), root), points)]
            paths = [(m, where.apply_range(like.over(_path(m, like), root))) for m, root in like.scores]
            wanted = [t for m, path in paths for t in self._score(m, path, points)]
            try:
                self.account(found, wanted, Scope(points.identity(), where, scope.trail))
            except (Mismatch, NonAffine):
                raise straight from None

    def _score(self, m: Monomial, path: UnionMap, points: UnionSet) -> list[Summand]:
        """Return a monomial as a sum of products, as seen from points."""
        terms = [Summand(points)]
        if m.ref is not None:
            terms = self.exponentials.sum(m.ref.term, path.intersect_domain(points))
        return [scaled(t, m.factor, m.scalars) for t in terms]


_DIVIDED = "a division by a size or a scalar that may be 0, where the specification has none"


_APART = (
    "what is divided and the sum that it is divided by are relative to different maxima: "
    "one of them is not rescaled with the other"
)


def identity_of(op: str, *terms: Term) -> float:
    """Return the neutral element of an operator, as a reduction in one of the terms has it."""
    pending = list(terms)
    while pending:
        match pending.pop(0):
            case Reduce(op=found, start=Constant(value=value)) if found == op:
                return value
            case Apply(op=found, args=args) if found == op:
                pending += args
            case Via(term=inner):
                pending.append(inner)
            case _:
                pass
    return float(REDUCTIONS[op](float32)) if op in REDUCTIONS else float("nan")


def _loaded_by(s: Summand) -> frozenset[str]:
    refs = [p.ref for p in (*s.factors, *s.divisors)] + [m.ref for m, _ in s.scores if m.ref is not None]
    return frozenset(name for ref in refs for name in tensors(ref.term))


def _each(mine: Sequence[_Part], others: Sequence[_Part], equal: _Equal[_Part], likely: _Likely[_Part]) -> None:
    """Check that every one of `mine` equals a different one of `others`. Equality is transitive, so any assignment will
    do."""
    left = list(others)
    for one in mine:
        left.pop(_partner(one, left, equal, likely))


def _partner(one: _Part, left: Sequence[_Part], equal: _Equal[_Part], likely: _Likely[_Part]) -> int:
    """Return the number of a part that equals `one`; `likely` ones are compared first.

    If there is none, raise the `Mismatch` of the first part, whichever was compared first.
    """
    found: dict[int, Mismatch] = {}
    for number in sorted(range(len(left)), key=lambda n: not likely(one, left[n])):
        try:
            equal(one, left[number])
            return number
        except Mismatch as mismatch:
            found[number] = mismatch
    raise found[0] if found else Mismatch("nothing to compare with")


def _any(_one: object, _other: object) -> bool:
    return True


def _constants(s: Summand) -> tuple[tuple[tuple[Monomial, bool], ...], float]:
    """Return the monomials of an exponent that are not constant, and the sum of the constant ones."""
    offset = sum(m.factor for m, _ in s.scores if m.ref is None and not m.scalars)
    return tuple((m, root) for m, root in s.scores if m.ref is not None or m.scalars), offset


def _path(m: Monomial, s: Summand) -> UnionMap:
    return s.points.identity() if m.ref is None else m.ref.path


def _number(factor: float, scalars: tuple[str, ...]) -> str:
    return " * ".join([f"{factor:.6g}", *(f"'{name}'" for name in scalars)])
