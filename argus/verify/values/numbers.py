"""Find terms that are known numbers, and terms that are real numbers, to determine the effect of padding.

Inputs are assumed to be real numbers. Terms with constants may not be real: 0 * -inf, 0 / 0 and -inf - -inf are not
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from operator import eq, ge, gt, le, lt, ne

from argus.ir.expr import REDUCTIONS
from argus.ir.types import float32
from argus.verify.model.isl import UnionMap, UnionSet, empty_set, merged, union_of_sets
from argus.verify.values.signs import always_positive, always_real, never_negative, partial
from argus.verify.values.terms import OF_INTEGERS, Again, Apply, Cases, Choice, Constant, Recurrence, Reduce, Term, Via

_NOTHING = -math.inf
_COMPARE = {"lt": lt, "le": le, "gt": gt, "ge": ge, "eq": eq, "ne": ne}


@dataclass(frozen=True)
class Ceiling:
    """Recognises terms that are real numbers or -inf for all real inputs, by their form alone.

    `earlier`: the term of a statement that reads its own earlier values.
    """

    earlier: Callable[[int], Term]

    def holds(self, term: Term, carried: frozenset[int] = frozenset()) -> bool:
        """Return True if a term is real or -inf. `carried`: statements whose earlier values are assumed to be so."""
        match term:
            case _ if always_real(term):
                return True
            case Constant(value=value):
                return value == _NOTHING
            case Via(term=inner):
                return self.holds(inner, carried)
            case Cases(parts=parts):
                return all(self.holds(inner, carried) for _, inner in parts)
            case Choice(yes=yes, no=no):
                return self.holds(yes, carried) and self.holds(no, carried)
            case Recurrence(site=site) | Again(site=site):
                return site in carried or self.holds(self.earlier(site), carried | {site})
            case Apply(op="add" | "maximum" | "minimum" | "exp" | "exp2", args=args):
                return all(self.holds(a, carried) for a in args)
            case Apply(op="sub", args=(a, b)):
                return self.holds(a, carried) and always_real(b)
            case Apply(op="mul", args=(a, b)):
                return any(always_positive(y) and self.holds(x, carried) for x, y in ((a, b), (b, a)))
            case Apply(op="truediv", args=(a, b)):
                return always_positive(b) and self.holds(a, carried)
            case Reduce(start=start, parts=parts):
                return all(self.holds(each, carried) for each in (start, *(inner for _, inner in parts)))
            case _:
                return False


class Numbers:
    """Finds the instances at which terms are known numbers, or real numbers, and keeps the result for each term."""

    def __init__(self) -> None:
        self._found: dict[Term, tuple[UnionSet, list[tuple[UnionSet, float]]]] = {}
        self._real: dict[Term, tuple[UnionSet, UnionSet]] = {}
        self._possible: dict[Term, bool] = {}

    def regions(self, term: Term, root: UnionSet, path: UnionMap) -> list[tuple[UnionSet, float]]:
        """Return sets of roots at which a term is a known number, and the number. `path`: {root -> instance}."""
        if isinstance(term, Constant):
            return [(root, term.value)]
        if not self._may_be_known(term):
            return []
        path = merged(path.intersect_domain(root))
        instances = merged(path.range())
        found = self._found.get(term)
        if found is None or not instances.is_subset(found[0]):
            known = instances if found is None else instances.union(found[0])
            found = self._found[term] = (known, self._of(term, known))
        here = [(merged(path.intersect_range(region).domain()), value) for region, value in found[1]]
        return [(region, value) for region, value in here if not region.is_empty()]

    def _may_be_known(self, term: Term) -> bool:
        """Return False if no instance of a term is a known number, by its form alone."""
        if term not in self._possible:
            self._possible[term] = self._by_form(term)
        return self._possible[term]

    def _by_form(self, term: Term) -> bool:
        match term:
            case Constant():
                return True
            case Via(term=inner) | Recurrence(term=inner) | Reduce(start=inner):
                return self._may_be_known(inner)
            case Cases(parts=parts):
                return any(self._may_be_known(inner) for _, inner in parts)
            case Choice(yes=yes, no=no):
                return self._may_be_known(yes) or self._may_be_known(no)
            case Apply(args=args):
                return any(self._may_be_known(each) for each in args)
            case _:
                return False

    def _of(self, term: Term, instances: UnionSet) -> list[tuple[UnionSet, float]]:
        """Compute `regions` for a term's own instances."""
        itself = instances.identity()
        match term:
            case Via(along=along, term=inner):
                along = along.intersect_domain(instances)
                return self.regions(inner, along.domain(), along)
            case Cases(parts=parts):
                cut = ((merged(instances.intersect(region)), inner) for region, inner in parts)
                return [found for here, inner in cut for found in self.regions(inner, here, itself)]
            case Recurrence(term=inner):
                return self.regions(inner, instances, itself)
            case Choice(yes=yes, no=no):
                both = product(*(self.regions(each, instances, itself) for each in (yes, no)))
                same = [(r.intersect(s), value) for (r, value), (s, other) in both if value == other]
                return same + self._chosen(term, instances)
            case Reduce():
                return self._reduction(term, instances)
            case Apply():
                return self._application(term, [self.regions(a, instances, itself) for a in term.args])
            case _:
                return []

    def _chosen(self, term: Choice, instances: UnionSet) -> list[tuple[UnionSet, float]]:
        """Return where the condition of a choice compares known numbers, and the value that it chooses is known."""
        itself = instances.identity()
        if not (self._decidable(term.test) and (self._may_be_known(term.yes) or self._may_be_known(term.no))):
            return []
        holds, fails = self._truth(term.test, instances, itself)
        sides = ((holds, term.yes), (fails, term.no))
        return [found for here, side in sides if not here.is_empty() for found in self.regions(side, here, itself)]

    def _decidable(self, test: Term) -> bool:
        """Return False if no part of a condition compares known numbers, by its form alone."""
        match test:
            case Via(term=inner) | Apply(op="not of truth values", args=(inner,)):
                return self._decidable(inner)
            case Apply(op="and" | "or", args=args):
                return any(map(self._decidable, args))
            case Apply(op=op, args=args) if op.removesuffix(OF_INTEGERS) in _COMPARE:
                return all(map(_padded if op.endswith(OF_INTEGERS) else self._may_be_known, args))
            case _:
                return False

    def _truth(self, test: Term, root: UnionSet, path: UnionMap) -> tuple[UnionSet, UnionSet]:
        """Return the roots at which a condition is known to hold, and those at which it is known not to."""
        match test:
            case Via(along=along, term=inner):
                path = path.apply_range(along)
                return self._truth(inner, root.intersect(path.domain()), path)
            case Apply(op="not of truth values", args=(inner,)):
                holds, fails = self._truth(inner, root, path)
                return fails, holds
            case Apply(op="and" | "or" as op, args=(a, b)):
                (yes, no), (also, neither) = self._truth(a, root, path), self._truth(b, root, path)
                both = yes.intersect(also), no.union(neither)
                return both if op == "and" else (yes.union(also), no.intersect(neither))
            case Apply(op=op, args=args) if self._decidable(test):
                return self._compared(_COMPARE[op.removesuffix(OF_INTEGERS)], args, root, path)
            case _:
                return empty_set(), empty_set()

    def _compared(
        self, compare: Callable[[float, float], bool], sides: tuple[Term, ...], root: UnionSet, path: UnionMap
    ) -> tuple[UnionSet, UnionSet]:
        holds, fails = empty_set(), empty_set()
        for (r, a), (s, b) in product(*(self.regions(side, root, path) for side in sides)):
            if compare(a, b):
                holds = holds.union(r.intersect(s))
            else:
                fails = fails.union(r.intersect(s))
        return holds, fails

    def _reduction(self, term: Reduce, instances: UnionSet) -> list[tuple[UnionSet, float]]:
        """Return where a reduction equals a known start value: every contribution is the identity there."""
        identity = float(REDUCTIONS[term.op](float32))
        counting = empty_set()
        for along, inner in term.parts:
            reached = along.intersect_domain(instances)
            pairs = reached.wrap()
            same = empty_set()
            for region, value in self.regions(inner, pairs, reached.range_map()):
                if value == identity:
                    same = same.union(region)
            counting = counting.union(merged(pairs.subtract(same)).apply(reached.domain_map()))
        starts = self.regions(term.start, instances, instances.identity())
        return [(merged(region.subtract(counting)), value) for region, value in starts]

    def _application(self, term: Apply, args: list[list[tuple[UnionSet, float]]]) -> list[tuple[UnionSet, float]]:
        """Return where an operator's result is known: 0 times a real number, 0 divided by a number, 0 plus or minus 0,
        -inf plus or minus a real number, -inf times a positive number, exp(-inf), -0, abs(0), and known extrema."""
        found: list[tuple[UnionSet, float]] = []
        if term.op == "mul":
            for number, other in ((0, 1), (1, 0)):
                found += [(self._real_at(term.args[other], r), 0.0) for r, value in args[number] if value == 0]
                scales = [(r, value) for r, value in args[other] if 0 < value]
                found += [(r.intersect(s), v) for r, v in args[number] if v == _NOTHING for s, _ in scales]
        elif term.op == "truediv":
            divisors = [r for r, value in args[1] if value and not math.isnan(value)]
            found += [(r.intersect(s), 0.0) for r, value in args[0] if value == 0 for s in divisors]
        elif term.op in ("sub", "add"):
            found += [(self._real_at(term.args[1], r), v) for r, v in args[0] if v == _NOTHING]
            found += [(r.intersect(s), 0.0) for r, v in args[0] if v == 0 for s, other in args[1] if other == 0]
        elif term.op in ("maximum", "minimum"):
            extremum = max if term.op == "maximum" else min
            numbers = [[(r, v) for r, v in each if not math.isnan(v)] for each in args]  # an extremum with NaN is NaN
            known = [(r.intersect(s), extremum(v, w)) for r, v in numbers[0] for s, w in numbers[1]]
            found += [(region, value) for region, value in known if math.isfinite(value)]
        elif term.op in ("neg", "abs"):
            found += [(region, abs(value)) for region, value in args[0] if value == 0]
        elif term.op in ("exp", "exp2"):
            found += [(region, 0.0) for region, value in args[0] if value == _NOTHING]
        return found

    # ------------------------------------------------------------------ real numbers

    def _real_at(self, term: Term, instances: UnionSet) -> UnionSet:
        """Return those of a term's own instances at which it is a real number."""
        return self.real(term, instances, instances.identity())

    def real(self, term: Term, root: UnionSet, path: UnionMap) -> UnionSet:
        """Return the root instances at which a term is known to be a real number, if all inputs are."""
        if root.is_empty() or always_real(term):
            return root
        path = merged(path.intersect_domain(root))
        instances = merged(path.range())
        found = self._real.get(term)
        if found is None or not instances.is_subset(found[0]):
            known = instances if found is None else instances.union(found[0])
            found = self._real[term] = (known, self._really(term, known))
        return merged(path.intersect_range(found[1]).domain())

    def _really(self, term: Term, instances: UnionSet) -> UnionSet:
        """Compute `real` for a term's own instances."""
        itself, result = instances.identity(), empty_set()
        match term:
            case Via(along=along, term=inner):
                along = along.intersect_domain(instances)
                return self.real(inner, along.domain(), along)
            case Cases(parts=parts):
                for region, inner in parts:
                    result = result.union(self.real(inner, instances.intersect(region), itself))
                return result
            case Recurrence(term=inner):
                return self.real(inner, instances, itself)
            case Choice(yes=yes, no=no):
                return self.real(no, self.real(yes, instances, itself), itself)
            case Apply(args=args):
                for region, value in self.regions(term, instances, itself):
                    result = result.union(region) if math.isfinite(value) else result
                if partial(term):  # real only where the last operand is known to be positive
                    instances = self.positive(args[-1], instances, itself)
                if term.op == "maximum":
                    return result.union(self._real_maximum(args, instances))
                for arg in args:
                    instances = self._real_at(arg, instances)
                return result.union(instances)
            case Reduce():
                return self._reduced(term, instances)
            case _:
                return result

    def _real_maximum(self, args: tuple[Term, ...], instances: UnionSet) -> UnionSet:
        """Return where all operands of a maximum are real numbers or -inf, and one of them is real."""
        some, every = empty_set(), instances
        for arg in args:
            real = self._real_at(arg, instances)
            known = self.regions(arg, instances, instances.identity())
            some = some.union(real)
            every = every.intersect(union_of_sets([real, *(region for region, value in known if value == _NOTHING)]))
        return some.intersect(every)

    def _never_negative(self, term: Term, root: UnionSet, path: UnionMap) -> UnionSet:
        zeros = (region for region, value in self.regions(term, root, path) if value == 0)
        return root if never_negative(term) else union_of_sets([self.positive(term, root, path), *zeros])

    def positive(self, term: Term, root: UnionSet, path: UnionMap) -> UnionSet:
        """Return the root instances at which a term is known to be a real number and more than 0."""
        if always_positive(term):
            return root
        path = path.intersect_domain(root)
        match term:
            case Via(along=along, term=inner):
                return self.positive(inner, root, path.apply_range(along))
            case Cases(parts=parts):
                limited = ((path.intersect_range(region), inner) for region, inner in parts)
                return union_of_sets([self.positive(inner, here.domain(), here) for here, inner in limited])
            case Apply(op="exp" | "exp2", args=(inner,)):
                return self.real(inner, root, path)
            case Apply(op="add", args=(a, b)):
                one = self.positive(a, root, path).intersect(self._never_negative(b, root, path))
                return one.union(self.positive(b, root, path).intersect(self._never_negative(a, root, path)))
            case Reduce(op="add", start=start, parts=parts) if never_negative(term):
                found = [self.positive(start, root, path)]
                for along, inner in parts:
                    reached = path.apply_range(along)
                    found.append(self.positive(inner, reached.wrap(), reached.range_map()).unwrap().domain())
                return merged(union_of_sets(found))
            case _:
                known = self.regions(term, root, path)
                return union_of_sets([region for region, value in known if 0 < value < math.inf])

    def _reduced(self, term: Reduce, instances: UnionSet) -> UnionSet:
        """Return where start and contributions are real numbers or the identity, and at least one of them is real."""
        itself, identity = instances.identity(), float(REDUCTIONS[term.op](float32))
        begun = self._real_at(term.start, instances)
        some, lost, neutral = begun, empty_set(), begun
        for region, value in self.regions(term.start, instances, itself):
            neutral = neutral.union(region) if value == identity else neutral
        for along, inner in term.parts:
            reached = along.intersect_domain(instances)
            pairs, to = reached.wrap(), reached.domain_map()
            counting = self.real(inner, pairs, reached.range_map())
            some, rest = some.union(counting.apply(to)), pairs.subtract(counting)
            for region, value in self.regions(inner, pairs, reached.range_map()):
                rest = rest.subtract(region) if value == identity else rest
            lost = lost.union(rest.apply(to))
        return merged(some.intersect(neutral).subtract(lost))


def _padded(term: Term) -> bool:
    """Return True for a number, and for what is one at some instances, such as padding."""
    match term:
        case Via(term=inner):
            return _padded(inner)
        case Cases(parts=parts):
            return any(_padded(inner) for _, inner in parts)
        case _:
            return isinstance(term, Constant)
