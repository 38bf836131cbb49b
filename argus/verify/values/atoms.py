"""Compare terms that are not sums of products: functions with equal arguments, and choices of equal terms by equal
conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from itertools import permutations

from argus.ir.expr import OPERATORS
from argus.verify.model.isl import UnionMap, UnionSet
from argus.verify.model.translator import NonAffine
from argus.verify.values.extrema import without_high_places
from argus.verify.values.functions import FLIPPED, Compared, compared, described, negated
from argus.verify.values.pieces import CANCELLED, Group
from argus.verify.values.products import Products
from argus.verify.values.rounding import rounds
from argus.verify.values.scope import Given, Mismatch, Scope, first_that_holds
from argus.verify.values.signs import never_negative
from argus.verify.values.summands import Summand, scaled, total
from argus.verify.values.term_builder import TermBuilder
from argus.verify.values.terms import Again, Apply, Choice, Constant, Recurrence, Term, Via, made, nested


class Atoms(Products):
    """Compares applications of operators and choices."""

    def __init__(self, builder: TermBuilder) -> None:
        super().__init__(builder)
        self._parted: set[tuple[Term, Term]] = set()
        """Pairs of choices that were compared case by case."""
        self._again = 0
        """How often one of them was so again."""

    def operands(self, op: str, mine: Term, wanted: Term, scope: Scope) -> None:
        """Check that an associative operator is applied to the same operands on both sides, each once if repetition
        matters."""
        found, specified = self.contributions_of(op, mine, wanted, scope)
        if op == "maximum":
            found = self._needed(found)
        elif op == "minimum":
            found, specified = without_high_places(found, specified, self.model.context.defined)
        for s in found:
            term = s.factors[0].ref.term
            if isinstance(term, Constant) and not any(isinstance(t.factors[0].ref.term, Constant) for t in specified):
                text = f"the constant {term.value:g} (padding?) takes part in the reduction by '{op}'"
                raise Mismatch(text, scope.origins(s.roots))
        self.account(found, specified, scope, op)

    def _needed(self, found: list[Summand]) -> list[Summand]:
        """Leave out numbers that another contribution to a maximum is never less than, as 0 beside absolute values."""
        known = [(s, self._numbers.regions(*_seen(s))) for s in found]
        return [left for s, numbers in known if (left := _without(s, numbers, known)) is not None]

    def or_by_difference(self, straight: Callable[[Term, Term, Scope], None], a: Term, b: Term, scope: Scope) -> None:
        """Compare two terms. If both are choices by a comparison and their forms differ, compare the differences of the
        compared sides."""
        try:
            straight(a, b, scope)
        except Mismatch as first:
            here, there = compared(a), compared(b)
            if here is None or there is None:
                raise
            try:
                self._by_difference(here, there, scope)
            except (Mismatch, NonAffine):
                raise first from None

    def alike(self, mine: Term, wanted: Term, scope: Scope) -> None:
        """Check that two terms are functions of equal arguments, or choices of equal terms by equal conditions."""
        match mine, wanted:
            case (Choice(), _) | (_, Choice()):
                self._choice(mine, wanted, scope)
            case Apply(), Apply():
                self._applied(mine, wanted, scope)
            case ((Recurrence() | Again()), _):
                raise Mismatch("a value carried from one iteration to the next by other than accumulation")
            case _:
                raise Mismatch(f"{described(mine)} where the specification has {described(wanted)}")

    def _applied(self, mine: Apply, wanted: Apply, scope: Scope) -> None:
        equal = self.builder.conditions.same(mine, scope.path, wanted, scope.other)
        if equal is not None:
            wrong = scope.roots.subtract(equal)
            if wrong.is_empty():
                return
            raise Mismatch("a condition that is another one than specified", scope.origins(wrong))
        operator, _, kind = wanted.op.partition(" ")
        if operator in FLIPPED and rounds(self.builder, mine):
            raise Mismatch("a choice by numbers that may be rounded")
        args = mine.args
        if f"{FLIPPED.get(operator)} {kind}".strip() == mine.op != wanted.op:
            args = args[::-1]
        elif mine.op != wanted.op or len(args) != len(wanted.args):
            raise Mismatch(f"'{mine.op}' where the specification has '{wanted.op}'")
        commutative = operator in OPERATORS and OPERATORS[operator].commutative
        orders = permutations(args) if commutative else iter([args])

        def attempt(order: tuple[Term, ...]) -> None:
            for a, b in zip(order, wanted.args, strict=True):
                self.match(a, b, scope)

        first_that_holds(orders, attempt)

    def _choice(self, mine: Term, wanted: Term, scope: Scope) -> None:
        """Compare choices. Use what is known of their conditions, compare them as they are written, or distinguish the
        cases of a condition that occurs in theirs."""
        taken, specified = self._taken(mine, scope.path, True, scope), self._taken(wanted, scope.other, False, scope)
        if taken is not mine or specified is not wanted:
            self.match(taken, specified, scope)
            return
        try:
            first_that_holds(_turned(mine, wanted), lambda each: self._written(each, wanted, scope))
        except Mismatch as straight:
            one = self._part(wanted, scope.other, False, scope) or self._part(mine, scope.path, True, scope)
            if one is None or len(scope.given) == _MOST_GIVEN or not (nested(mine) or nested(wanted)):
                raise
            if (mine, wanted) in self._parted:
                self._again += 1
                if self._again > _MOST_AGAIN:
                    raise
            self._parted.add((mine, wanted))
            try:
                self._by_cases(mine, wanted, one, scope)
            except (Mismatch, NonAffine):
                raise straight from None

    def _by_cases(self, mine: Term, wanted: Term, one: Given, scope: Scope) -> None:
        """Compare choices where a condition holds, and where it does not."""
        inside, rest = self.builder.conditions.decided(one.test, one.path.intersect_domain(scope.roots))
        if rest:
            for holds in (True, False):
                self.match(mine, wanted, replace(scope, given=(*scope.given, replace(one, holds=holds))))
        else:
            self.match(mine, wanted, scope.restricted(scope.roots.intersect(inside)))
            self.match(mine, wanted, scope.restricted(scope.roots.subtract(inside)))

    def _written(self, mine: Term, wanted: Term, scope: Scope) -> None:
        """Compare choices by equal conditions, which are assumed where they select a value."""
        if isinstance(mine, Choice) and isinstance(wanted, Choice):
            self.match(mine.test, wanted.test, scope)
            given = (*scope.given, Given(wanted.test, scope.other))
            self.match(mine.yes, wanted.yes, replace(scope, given=given))
            self.match(mine.no, wanted.no, scope)
        elif isinstance(mine, Choice):
            self.match(mine.yes, wanted, scope)
            self.match(mine.no, wanted, scope)
        elif isinstance(wanted, Choice):
            self.match(mine, wanted.yes, scope)
            self.match(mine, wanted.no, scope)

    def _taken(self, term: Term, path: UnionMap, found: bool, scope: Scope) -> Term:
        """Return the value that a choice takes if its condition is known, or the term itself."""
        asked = isinstance(term, Choice) and (scope.given or made(term.test))
        holds = self._truth(term.test, path, found, scope) if asked and isinstance(term, Choice) else None
        return term if holds is None or not isinstance(term, Choice) else term.yes if holds else term.no

    def _truth(self, test: Term, path: UnionMap, found: bool, scope: Scope) -> bool | None:
        """Return the truth of a condition if what is given decides it."""
        match test:
            case Via(along=along, term=inner):
                return self._truth(inner, path.apply_range(along), found, scope)
            case Apply(op="not of truth values", args=(inner,)):
                holds = self._truth(inner, path, found, scope)
                return None if holds is None else not holds
            case Apply(op="and" | "or" as op, args=args):
                known = [self._truth(each, path, found, scope) for each in args]
                return op == "or" if (op == "or") in known else None if None in known else op == "and"
            case _ if not scope.roots.is_subset(path.domain()):
                return None  # nothing wrote it at some roots
            case _:
                inside, rest = self.builder.conditions.decided(test, path.intersect_domain(scope.roots))
                if not rest:
                    return True if scope.roots.is_subset(inside) else False if inside.is_empty() else None
                here = Given(test, path, True, found)
                known = [g.holds for g in scope.given if self._one(here, g, scope)]
                opposite = negated(test)
                if not known and opposite is not None:
                    there = replace(here, test=opposite)
                    known = [not g.holds for g in scope.given if self._one(there, g, scope)]
                return known[0] if known else None

    def _part(self, term: Term, path: UnionMap, found: bool, scope: Scope) -> Given | None:
        """Return a condition that is not known yet and that occurs in the condition of a choice, or None."""
        return self._unknown(term.test, path, found, scope) if isinstance(term, Choice) else None

    def _unknown(self, test: Term, path: UnionMap, found: bool, scope: Scope) -> Given | None:
        match test:
            case Via(along=along, term=inner):
                return self._unknown(inner, path.apply_range(along), found, scope)
            case Apply(op="and" | "or" | "not of truth values", args=args):
                parts = (self._unknown(each, path, found, scope) for each in args)
                return next((part for part in parts if part is not None), None)
            case _ if not scope.roots.is_subset(path.domain()):
                return None
            case _:
                known = self._truth(test, path, found, scope)
                return Given(test, path, True, found) if known is None else None

    def _one(self, test: Given, given: Given, scope: Scope) -> bool:
        """Return True if two conditions are the same one. The kernel's are compared with the others."""
        orders = [(test, given), (given, test)] if test.found == given.found else [(test, given)]
        for mine, wanted in orders if test.found or not given.found else [(given, test)]:
            try:
                self.match(mine.test, wanted.test, replace(scope, path=mine.path, other=wanted.path, given=()))
            except (Mismatch, NonAffine):
                return False
        return True

    def _by_difference(self, mine: Compared, wanted: Compared, scope: Scope) -> None:
        """Compare choices by a comparison: the compared differences must be equal up to a factor, and the chosen values
        must be equal."""
        if any(rounds(self.builder, t) for t in (mine.left, mine.right)):
            raise Mismatch("a choice by numbers that were rounded")
        found = self._collected(Apply("sub", (mine.left, mine.right)), scope.path)
        difference = self._collected(Apply("sub", (wanted.left, wanted.right)), scope.other)
        ratios = sorted({s.factor / t.factor for s in found for t in difference if t.factor})

        def proportional(ratio: float) -> float:
            self.account([scaled(s, 1 / ratio) for s in found], difference, scope)
            return ratio

        sign = first_that_holds(ratios, proportional)
        yes, no = (wanted.yes, wanted.no) if sign > 0 else (wanted.no, wanted.yes)
        strict = wanted.strict if sign > 0 else not wanted.strict
        if mine.strict != strict and not self._continuous(wanted, difference, scope):
            raise Mismatch("a choice that falls out otherwise between equal numbers")
        self.match(mine.yes, yes, scope)
        self.match(mine.no, no, scope)

    def _collected(self, term: Term, path: UnionMap) -> list[Summand]:
        """Return a term as a sum of products in which equal products are added up."""
        groups: list[Group] = []
        for s in self.exponentials.sum(term, path):
            self.join(groups, s, Scope(path, path), False, "add")
        result: list[Summand] = []
        for group in groups:
            for piece in group.pieces():
                if abs(piece.found) > CANCELLED * piece.gross:
                    result.append(replace(group.like, points=piece.points, factor=piece.found))
                elif not total(group.like):
                    raise Mismatch("a difference of equal terms that may be no numbers")
        return result

    def _continuous(self, wanted: Compared, difference: list[Summand], scope: Scope) -> bool:
        """Check that both values of a choice are equal where its compared sides are equal: they must differ by a
        multiple of the difference of the sides."""
        between = self._collected(Apply("sub", (wanted.yes, wanted.no)), scope.other)
        twice = replace(scope, path=scope.other)
        for ratio in sorted({s.factor / t.factor for s in between for t in difference if t.factor}):
            try:
                self.account([scaled(s, 1 / ratio) for s in between], difference, twice)
                return True
            except Mismatch:
                continue
        return False


def _turned(mine: Term, wanted: Term) -> Iterator[Term]:
    """Yield a choice, and the same choice turned round if its condition is then the same kind of comparison."""
    yield mine
    if isinstance(mine, Choice) and isinstance(wanted, Choice):
        opposite = negated(mine.test)
        if opposite is not None and _kind(opposite) == _kind(wanted.test):
            yield Choice(opposite, mine.no, mine.yes)


def _kind(test: Term) -> str:
    match test:
        case Via(term=inner):
            return _kind(inner)
        case Apply(op=op):
            return op
        case _:
            return ""


_MOST_GIVEN = 2
"""The largest number of conditions whose cases are distinguished."""
_MOST_AGAIN = 1
"""How often choices that were compared case by case are compared so again: it costs much where they are different."""
_Known = list[tuple[UnionSet, float]]


def _seen(s: Summand) -> tuple[Term, UnionSet, UnionMap]:
    (placed,) = s.factors
    return placed.ref.term, s.points, placed.ref.path


def _without(s: Summand, numbers: _Known, all_known: list[tuple[Summand, _Known]]) -> Summand | None:
    """Return a contribution to a maximum without the points where it is a number that some other one exceeds."""
    points = s.points
    for region, value in numbers:
        rest = region.apply(s.upward)
        for other, known in all_known:
            for where, number in known:
                rest = rest.subtract(where.apply(other.upward)) if number > value else rest
            if value <= 0 and never_negative(other.factors[0].ref.term):
                least = reduce(UnionSet.subtract, (where for where, _ in known), other.points)
                rest = rest.subtract(least.apply(other.upward))
        points = points.subtract(region) if rest.is_empty() else points
    return None if points.is_empty() else replace(s, points=points)
