"""Sums of weights under a logarithm or a division: their levels, and the points at which they have no nonzero term."""

from __future__ import annotations

from dataclasses import replace

from argus.verify.model.isl import UnionMap, UnionSet, empty_set
from argus.verify.values.exponentials import Exponentials
from argus.verify.values.scope import Mismatch, Scope, close
from argus.verify.values.summands import Placed, Summand, together, total
from argus.verify.values.terms import Apply, Reduce, Term, Via


class Logarithms:
    """Combines logarithms of sums of weights with the maxima to which the weights are relative."""

    def __init__(self, exponentials: Exponentials) -> None:
        self.exponentials, self.model = exponentials, exponentials.builder.model
        self._lacking: dict[Term, UnionSet] = {}
        """# Sums of weights, each with its instances that have no term."""

    def empty(self, total: Term, path: UnionMap) -> UnionSet:
        """Return the roots at which a sum has no nonzero term."""
        empty = path.domain()
        for s in self.exponentials.sum(total, path):
            empty = empty.subtract(s.roots)
        return empty.intersect_params(self.model.context.defined)

    def masked(self, specified: list[Summand], scope: Scope) -> UnionSet | None:
        """Return the points at which all scores of a specified softmax are masked although it has scores."""
        found = empty_set()
        for s in specified:
            for p in (*s.divisors, *s.factors):
                total = p.ref.term.args[0] if isinstance(p.ref.term, Apply) and p.without else p.ref.term
                path = s.upward.reverse().apply_range(p.ref.path)
                while isinstance(total, Via):
                    path, total = path.apply_range(total.along), total.term
                if isinstance(total, Reduce):
                    some = path.intersect_range(total.parts[0][0].domain())
                    found = found.union(self.empty(total, some))
        return None if found.is_empty() else scope.origins(found)

    def undone(self, found: list[Summand]) -> list[Summand]:
        """Return a sum in which the logarithm of a sum of weights and the maximum of these weights are combined."""
        for offset in [s for s in found if s.level is not None]:
            assert offset.level is not None
            rest = offset.points
            for s in [s for s in found if s.level is None and s.up is None and len(s.factors) == 1]:
                if not rest.is_empty() and self._cancels(s, offset):
                    rest = rest.subtract(s.points)
                    found = [t for t in found if t is not s]
            if not rest.is_empty() or offset.up is not None:
                raise Mismatch(
                    "the logarithm of a sum of weights lacks the maximum that they are relative to, or adds another"
                )
            found = [t for t in found if t is not offset]
        return found

    def unless_empty(self, found: list[Summand]) -> list[Summand]:
        """Return a sum without the summands of points where the logarithm of a sum of weights is -inf, because finite
        summands change nothing there."""
        for logarithm in [s for s in found if _is_logarithm(s)]:
            placed = logarithm.factors[0]
            assert isinstance(placed.ref.term, Apply)
            empty = logarithm.points
            for s in self.exponentials.sum(placed.ref.term.args[0], placed.ref.path.intersect_domain(empty)):
                empty = empty.subtract(s.roots)
            if not empty.is_empty():
                found = [s if s is logarithm or not _real(s) else _outside(s, empty) for s in found]
        return [s for s in found if not s.points.is_empty()]

    def _cancels(self, s: Summand, offset: Summand) -> bool:
        """Return True if a summand is the negative of a maximum that its instances identify."""
        assert offset.level is not None
        plain = not (s.divisors or s.scores or s.levels or s.again)
        if not plain:
            return False
        ref = s.factors[0].ref
        try:
            forms = self.exponentials.exponents.linear(ref.term, ref.path.intersect_domain(s.points))
        except Mismatch:
            return False
        for form in forms:
            here = form.points.intersect(offset.points)
            term = form.terms[0] if len(form.terms) == 1 else None
            if here.is_empty():
                continue
            if form.nothing or term is None or term.ref is None or not term.level:
                return False
            same = close(term.factor * s.factor, -offset.factor)
            made = self.exponentials.exponents.instances(term.ref).intersect_domain(here)
            if (
                not same
                or together(term.scalars, s.scalars) != offset.scalars
                or not made.is_equal(offset.level.intersect_domain(here))
            ):
                return False
            if not term.guarded and not here.is_subset(self.exponentials.exponents.finite(term.ref)):
                raise Mismatch("the maximum that is added to the logarithm may be -inf")
        return True

    def require_live(self, divisor: Placed, scope: Scope) -> None:
        """Raise `Mismatch` unless a specified sum of weights has a nonzero term, so that no replacement divisor is
        used."""
        term = divisor.ref.term
        if term not in self._lacking:
            instances = self.exponentials.builder.instances(scope.other.reverse())
            self._lacking[term] = self.empty(term, instances.identity())
        empty = scope.other.intersect_range(self._lacking[term]).domain()
        if not empty.is_empty():
            text = "0 / 0 where every score is masked: divide by `al.where(total == 0.0, 1.0, total)`"
            raise Mismatch(text, scope.origins(empty))


def _real(s: Summand) -> bool:
    """Return True if a product is a real number for all real inputs, and occurs once for each root."""
    return s.up is None and total(s) and not s.levels and s.again is None


def _outside(s: Summand, roots: UnionSet) -> Summand:
    return replace(s, points=s.points.subtract(roots))


def _is_logarithm(s: Summand) -> bool:
    """Return True for the logarithm of a sum of weights times a number."""
    alone = len(s.factors) == 1 and not (s.up or s.scalars or s.divisors or s.scores or s.levels or s.again)
    return alone and s.factors[0].without is not None and isinstance(s.factors[0].ref.term, Apply)
