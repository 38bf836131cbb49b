"""Find the specified products to which a product may correspond: both load the same elements."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from argus.verify.model.isl import UnionMap, empty_map, isl, map_parts, merged
from argus.verify.values.contributions import Coordinates, Loads, everywhere
from argus.verify.values.scope import MOST, Mismatch, Scope
from argus.verify.values.summands import Summand, one_image
from argus.verify.values.terms import Load, Term


def in_order(together: UnionMap, before: int = 0) -> UnionMap:
    """Return the pairs of points whose last coordinates are equal: the same place of a tile and of a bound variable.

    `before`: of the first point, the coordinate so many places before its last one, such as the number of a trip."""
    result = empty_map()
    for part in map_parts(together):
        last = part.dim(isl.dim_type.in_) - 1 - before, part.dim(isl.dim_type.out) - 1
        if min(last) >= 0:
            result = result.union(part.equate(isl.dim_type.in_, last[0], isl.dim_type.out, last[1]).to_union_map())
    return result


def _one_by_one(s: Summand, together: UnionMap) -> Iterator[UnionMap]:
    """Yield ways to assign each point of a product another one, by a coordinate of its own."""
    depth = max((part.dim(isl.dim_type.in_) for part in map_parts(together)), default=0)
    for before in range(depth):
        where = in_order(together, before)
        if s.points.is_subset(where.domain()) and where.is_single_valued() and where.is_injective():
            yield where


class Places:
    """Finds instances of two terms, or points of two products, that load the same cells. Whether the terms are equal is
    decided elsewhere."""

    def __init__(self) -> None:
        self._loads = Loads()
        self._reads: dict[tuple[Summand, bool], list[tuple[str, Coordinates]]] = {}

    def of_terms(self, mine: Term, wanted: Term, every: UnionMap) -> Iterator[UnionMap]:
        """Yield candidates, as parts of `every`, for {instance -> instance} at which two terms may be equal."""
        return self.narrowed(every, self._loads.of(mine), self._loads.of(wanted))

    def candidates(
        self, s: Summand, like: Summand, together: UnionMap, hints: list[UnionMap], scope: Scope
    ) -> Iterator[UnionMap]:
        """Yield candidates for {point -> point of `like`} that have the same root and load the same cells."""
        if one_image(like.upward.reverse()):
            yield together
            return
        parts, mine, theirs = [], self._all_reads(s), self._all_reads(like)
        for where in self.narrowed(together, mine, theirs):
            if s.points.is_subset(where.domain()):
                yield where
                continue
            rest = everywhere(where, together)
            if rest is not None and s.points.is_subset(rest.domain()):
                yield rest
            parts.append(where)
        parts += [both for hint in hints if not (both := together.intersect(hint)).is_empty() and one_image(both)]
        if not parts:  # Sums up to each place load the same cells where the last of these are the same.
            parts += self.narrowed(together, self._all_reads(s, True), self._all_reads(like, True))
        yield from parts
        if not parts and {name for name, _ in mine} & {name for name, _ in theirs}:
            text = "the reduction has a term too many: the specification masks it, or has none of its place"
            raise Mismatch(text, scope.origins(s.roots))
        if not parts:
            yield from _one_by_one(s, together)
            alike = in_order(together)
            if alike.is_empty():
                raise Mismatch("a reduction whose terms do not load through the bound variable")
            yield alike

    def narrowed(
        self, where: UnionMap, mine: list[tuple[str, Coordinates]], others: list[tuple[str, Coordinates]]
    ) -> Iterator[UnionMap]:
        for number, (tensor, theirs) in enumerate(others):
            for name, here in mine:
                if name != tensor or len(here) != len(theirs):
                    continue
                both = where
                for a, b in zip(here, theirs, strict=True):
                    if a is not None and b is not None:
                        both = both.intersect(a.apply_range(b.reverse()))
                both = merged(both)
                if both.is_empty() or where.is_subset(both):
                    continue
                if one_image(both):
                    yield both
                    continue
                further = list(islice(self.narrowed(both, mine, others[number + 1 :]), MOST))
                yield from further
                if not further and both.is_single_valued():
                    yield both

    def _all_reads(self, s: Summand, last: bool = False) -> list[tuple[str, Coordinates]]:
        """Return the loads of a product as seen from its points, loads of elements first. `last`: see `Loads.of`."""
        if (s, last) not in self._reads:
            self._reads[s, last] = self._reads_of(s, last)
        return self._reads[s, last]

    def _reads_of(self, s: Summand, last: bool) -> list[tuple[str, Coordinates]]:
        refs = [(p.ref, p.root) for p in (*s.factors, *s.divisors)]
        refs += [(m.ref, root) for m, root in s.scores if m.ref is not None]
        found = []
        for ref, root in sorted(refs, key=lambda each: not isinstance(each[0].term, Load)):
            path = merged(s.along(ref.path, root).gist_domain(s.points))
            for tensor, each in self._loads.of(ref.term, last):
                found.append((tensor, tuple(None if c is None else path.apply_range(c) for c in each)))
        return found
