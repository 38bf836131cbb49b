"""Points at which terms are more than -inf for all real inputs: a maximum that a loop carries on stays so."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

from argus.ir.expr import OPERATORS
from argus.verify.model.isl import UnionMap, UnionSet, closure, empty_set, map_parts, union_of_maps, union_of_sets
from argus.verify.values.signs import always_positive
from argus.verify.values.summands import Ref
from argus.verify.values.term_builder import TermBuilder
from argus.verify.values.terms import (
    Again,
    Apply,
    Cases,
    Choice,
    Constant,
    Index,
    Load,
    Parameter,
    Recurrence,
    Reduce,
    Term,
    Via,
)


class Above:
    """Finds the points at which terms are more than -inf."""

    def __init__(self, builder: TermBuilder, term_of: Callable[[int], Term]) -> None:
        """Create the search. `term_of`: the term of a statement, by its number, without the `Recurrence` around it."""
        self._builder = builder
        self._term_of = term_of
        self._found: dict[tuple[int, Term], UnionSet] = {}
        self._steps: dict[int, list[UnionMap]] = {}

    def finite(self, ref: Ref) -> UnionSet:
        """Return the points at which a term is known to be more than -inf for all real inputs."""
        if isinstance(ref.term, Reduce):
            key = (-1, ref.term)
            if key not in self._found:
                self._found[key] = self._above(ref.term, domain_of(self._builder, ref.term).identity(), False)
            return ref.path.intersect_range(self._found[key]).domain()
        if not isinstance(ref.term, Apply):
            return self._above(ref.term, ref.path, False)
        known = empty_set()
        for part in map_parts(ref.path):
            known = known.union(self._above_here(ref.term, str(part.range().get_tuple_name())))
        return ref.path.intersect_range(known).domain()

    def _above_here(self, term: Term, space: str) -> UnionSet:
        """Return the instances of the statement `space` at which the term, a maximum in it, is more than -inf."""
        site = -2 - int(space[1:]) if space in self._builder.places else int(space[1:])
        if space not in self._builder.places and self._term_of(site) is term:
            return self._above_site(site)
        key = (site, term)
        if key not in self._found:
            self._found[key] = self._above(term, self._builder.domain(space).identity(), False)
        return self._found[key]

    def _above(self, term: Term, path: UnionMap, climbing: bool) -> UnionSet:
        """Return the points at which a term is more than -inf. `climbing`: the whole value is at least this term."""
        match term:
            case Constant(value=value):
                return path.domain() if value > -math.inf else empty_set()
            case Parameter() | Load() | Index():
                return path.domain()
            case Via(along=along, term=inner):
                return self._above(inner, path.apply_range(along), climbing)
            case Cases(parts=parts):
                limited = ((path.intersect_range(region), inner) for region, inner in parts)
                return union_of_sets(self._above(inner, p, climbing) for p, inner in limited)
            case Apply(op="maximum", args=args):
                return union_of_sets([self._above(a, path, climbing) for a in args])
            case Apply(op=op, args=args) if _real(op) or (op == "truediv" and _divides(args[1])):
                return _intersection([self._above(a, path, False) for a in args])
            case Choice(yes=yes, no=no):
                return _intersection([self._above(a, path, False) for a in (yes, no)])
            case Reduce(op=op, start=start, parts=parts):
                return self._above_reduced(op, start, parts, path)
            case Recurrence(site=site) | Again(site=site):
                if site in self._steps:
                    if climbing:
                        self._steps[site].append(path)
                    return empty_set()
                return path.intersect_range(self._above_site(site)).domain()
            case _:
                return empty_set()

    def _above_reduced(
        self, op: str, start: Term, parts: tuple[tuple[UnionMap, Term], ...], path: UnionMap
    ) -> UnionSet:
        begun, some, lost = self._above(start, path, False), empty_set(), empty_set()
        for along, inner in parts:
            reached = path.apply_range(along)
            above = self._above(inner, reached.range_map(), False)  # pairs of a root and what contributes to it
            if op == "maximum":
                some = some.union(above.unwrap().domain())
            else:
                lost = lost.union(reached.wrap().subtract(above).unwrap().domain())
        return begun.union(some) if op == "maximum" else begun.subtract(lost)

    def _above_site(self, site: int) -> UnionSet:
        """Return the instances at which a statement is more than -inf: a maximum that a loop carries on stays so."""
        term = self._term_of(site)
        key = (site, term)
        if key not in self._found:
            where = self._builder.model.sites[site]
            domain = self._builder.model.domain(where)[0].to_union_set()
            self._steps[site] = []
            try:
                found = self._above(term, domain.identity(), True)
            finally:
                steps = self._steps.pop(site)
            earlier = closure(union_of_maps(steps))
            self._found[key] = found.union(earlier.intersect_range(found).domain()).coalesce()
        return self._found[key]


def _divides(term: Term) -> bool:
    """Return True for a number that quotients of real numbers by it are real numbers for."""
    return (isinstance(term, Constant) and bool(term.value)) or always_positive(term)


def _real(op: str) -> bool:
    return op in OPERATORS and OPERATORS[op].real


def _intersection(sets: list[UnionSet]) -> UnionSet:
    return reduce(UnionSet.intersect, sets)


def domain_of(builder: TermBuilder, term: Reduce) -> UnionSet:
    """Return all instances of the statements to whose elements a reduction contributes."""
    return union_of_sets([builder.instances(along) for along, _ in term.parts])
