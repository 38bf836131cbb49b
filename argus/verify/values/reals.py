"""Equality over the reals: both sides as sums of products of atoms, compared product by product.

Terms that differ when they are walked together are compared again in this way. For each value of the bound variables,
the factors of the kernel's products must add up to the specified factor. Atoms are compared on their own: elements by
their indices, functions by their arguments, choices by the difference of the numbers that they compare.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial, reduce
from itertools import permutations, product
from math import isfinite

from argus.ir.expr import OPERATORS, Const, Op
from argus.ir.nodes import SpecOp, SpecTerm
from argus.ir.spec_terms import divisors_of, elements_of, parameters_of, rounds_in, strip
from argus.ir.types import boolean
from argus.verify.model.isl import UnionMap, UnionSet, empty_set, isl
from argus.verify.model.translator import NonAffine
from argus.verify.values.contributions import markers
from argus.verify.values.linear import CANCELLED, close
from argus.verify.values.products import Amount, Group, Product, Test, added, groups, total
from argus.verify.values.rounding import rounds
from argus.verify.values.scope import Mismatch, Scope, append, first_that_holds
from argus.verify.values.softmax import SoftmaxMatcher
from argus.verify.values.specified import region
from argus.verify.values.summands import Placed, Summand, collected, scaled, tensors
from argus.verify.values.terms import Apply, Choice, Constant, Term, TermBuilder, comparison, operation

_Piece = tuple[UnionSet, float, float, float]
"""A set of places, the factor found there, the factor specified, and the sum of the sizes of all their summands."""
_Pair = tuple[Placed, SpecTerm]
_Compared = tuple[bool, Term, Term, Term, Term]
"""(strict, left, right, the value where left > right, or left >= right if not strict, the value elsewhere)."""
_SpecCompared = tuple[bool, SpecTerm, SpecTerm, SpecTerm, SpecTerm]


class RealMatcher(SoftmaxMatcher):
    """A matcher that compares terms of different form over the real numbers."""

    def __init__(self, builder: TermBuilder) -> None:
        super().__init__(builder)
        self._walking = False

    def compare(self, term: Term, spec: SpecTerm, scope: Scope) -> None:
        walking, self._walking = self._walking, False
        try:
            self.match(term, spec, scope)
        finally:
            self._walking = walking

    def _form(self, term: Term, spec: SpecTerm, scope: Scope) -> None:
        if self._walking:
            super()._form(term, spec, scope)
            return
        self._walking = True
        try:
            super()._form(term, spec, scope)
        except Mismatch as straight:
            self._walking = False
            try:
                self._reals(term, strip(spec), scope)
            except (Mismatch, NonAffine):
                raise straight from None
        finally:
            self._walking = False

    def _reals(self, term: Term, spec: SpecTerm, scope: Scope) -> None:
        wanted, found = groups(spec), collected(self.exponentials.summands(term, scope.path))
        alone = len(found) == 1 and len(found[0].factors) == 1 and found[0].factors[0].ref.term is term
        if alone and [g.body for g in wanted] == [Product(atoms=(spec,))]:
            self._function(term, spec, scope)
            return
        self.require_divisors(spec, set())
        self._sum_of_products(found, wanted, scope)

    def require_divisors(self, spec: SpecTerm, known: set[str]) -> None:
        """Raise `Mismatch` for a divisor that may be 0, is not `known`, and is no divisor in the specification."""
        divided = {name for divisor in divisors_of(spec) for name in parameters_of(divisor)}
        if not self.exponentials.divided <= divided | known:
            raise Mismatch("a division by a size or a scalar that may be 0, where the specification has none")

    # ------------------------------------------------------------------ sums of products

    def _sum_of_products(self, found: list[Summand], wanted: list[Group], scope: Scope) -> None:
        arrived: list[list[tuple[UnionMap, float]]] = [[] for _ in wanted]
        for s in found:
            number, counted = first_that_holds(range(len(wanted)), partial(self._as_group, s, wanted, scope))
            arrived[number].append((counted, s.factor))
        for group, each in zip(wanted, arrived, strict=True):
            self._balance(group, each, scope)

    def _as_group(self, s: Summand, wanted: list[Group], scope: Scope, number: int) -> tuple[int, UnionMap]:
        return number, self._counted_as(s, wanted[number].body, scope)

    def _counted_as(self, s: Summand, body: Product, scope: Scope) -> UnionMap:
        """Return {[root -> values of bound variables] -> point} of a summand that equals a specified product."""
        if s.levels or s.again is not None:
            raise Mismatch("a product that is relative to a maximum, where the specification has none")
        alike = len(s.factors) == len(body.atoms) and len(s.divisors) == len(body.divisors)
        if not alike or s.scalars != body.scalars or bool(s.scores) != bool(body.exponent):
            raise Mismatch("a product of other factors than specified")
        up = (s.up if s.up is not None else s.points.identity()).intersect_domain(s.points)
        orders = product(_assignments(s.factors, body.atoms), _assignments(s.divisors, body.divisors))
        bound = first_that_holds(orders, partial(self._bound, s, body, scope, up))
        return up.range_product(bound).reverse()

    def _bound(
        self, s: Summand, body: Product, scope: Scope, up: UnionMap, order: tuple[tuple[_Pair, ...], tuple[_Pair, ...]]
    ) -> UnionMap:
        """Return {point -> values of bound variables} for one order of the factors; compare factors and exponents."""
        pairs = [*order[0], *order[1]]
        scores = [(Placed(m.ref, root), core) for m, root in s.scores if m.ref for _, _, core in body.exponent if core]
        places = [self._places_of(s, [*pairs, *scores], axis) for axis, _ in body.bound]
        variables, origin = up.apply_range(scope.variables), up.apply_range(scope.origin)
        axes = (*scope.axes, *(axis for axis, _ in body.bound))

        def attempt(each: tuple[UnionMap, ...]) -> UnionMap:
            nowhere = isl.UnionMap.from_domain_and_range(s.points, isl.UnionSet("{ [] }"))
            bound = reduce(UnionMap.flat_range_product, each) if each else nowhere
            every = append(variables, bound, len(scope.axes), len(each)) if each else variables
            inner = Scope(s.points.identity(), every, axes, origin)
            for placed, spec in pairs:
                self._leaf(placed.ref, s.over(placed.ref.path, placed.root), spec, inner)
            self._exponent(s, body.exponent, inner, "an exponent")
            return bound

        return first_that_holds(product(*places), attempt)

    def _places_of(self, s: Summand, pairs: list[_Pair], axis: int) -> list[UnionMap]:
        """Return candidates for {point -> [k]}, the value of a bound variable, from the loads of some factors."""
        places = []
        for placed, spec in pairs:
            path = s.over(placed.ref.path, placed.root)
            for elem in elements_of(spec):
                for marker in markers(elem, axis):
                    for there in self._marked_by(placed.ref.term, marker, path):
                        found = path.apply_range(there)
                        if s.points.is_subset(found.domain()) and found.is_single_valued():
                            places.append(found)
        if not places:
            raise Mismatch("a product whose factors do not load through the bound variable")
        return places

    def _exponent(self, s: Summand, amounts: tuple[Amount, ...], scope: Scope, what: str) -> None:
        try:
            super()._exponent(s, amounts, scope, what)
        except Mismatch as straight:
            found = []
            for m, root in s.scores:
                terms = [Summand(scope.roots)]
                if m.ref is not None:
                    path = s.over(m.ref.path, root).intersect_domain(scope.roots)
                    terms = self.exponentials.summands(m.ref.term, path)
                found += [scaled(t, m.factor, m.scalars) for t in terms]
            try:
                self._sum_of_products(collected(found), added(amounts), scope)
            except (Mismatch, NonAffine):
                raise straight from None

    def _balance(self, group: Group, arrived: list[tuple[UnionMap, float]], scope: Scope) -> None:
        """Raise `Mismatch` unless the factors add up to those specified, for all values of the bound variables."""
        pieces: list[_Piece] = []
        for counted, factor in arrived:
            if not counted.is_single_valued():
                raise Mismatch("a product is added more than once")
            pieces = _joined(pieces, counted.domain(), factor, 0.0)
        specified = empty_set()
        for factor, tests in group.parts:
            there = scope.variables.apply_range(self._values_of(group.body, tests, scope)).wrap()
            pieces, specified = _joined(pieces, there, 0.0, factor), specified.union(there)
        for counted, _ in arrived if not total(group.body) else ():
            if not counted.domain().is_subset(specified):
                raise Mismatch("terms that may be no numbers are added where none are specified")
        for where, found, wanted, size in pieces:
            if not isfinite(size):
                raise Mismatch("the numbers that a term is multiplied by are too large")
            if close(found, wanted) or abs(found - wanted) < CANCELLED * size:
                continue
            wrong = where.intersect_params(self.model.context.defined)
            if not wrong.is_empty():
                text = "is missing" if not found else "is too many" if not wanted else "is multiplied by another number"
                raise Mismatch(f"a term of a sum {text}", scope.origins(wrong.unwrap().domain()))

    def _values_of(self, body: Product, tests: tuple[Test, ...], scope: Scope) -> UnionMap:
        """Return {V[...] -> values of the bound variables} where each test has its given truth value."""
        free = [f"v{i}" for i in range(len(scope.axes))]
        bound = [f"k{i}" for i in range(len(body.bound))]
        names = dict(zip((*scope.axes, *(axis for axis, _ in body.bound)), free + bound, strict=True))
        coords = tuple(names.get(axis, "0") for axis in range(max((*names, -1)) + 1))
        extents = [self.model.translator.integer(extent, ()) for _, extent in body.bound]
        limits = " and ".join(f"0 <= {k} < {extent}" for k, extent in zip(bound, extents, strict=True)) or "true"
        space = f"V[{', '.join(free + bound)}]"
        inside = self.model.parse_set(f"{{ {space} : {limits} }}").to_union_set()
        inside = inside.intersect(region(self.model, tests, free + bound, coords))
        places = isl.UnionMap(f"{{ [V[{', '.join(free)}] -> [{', '.join(bound)}]] -> {space} }}")
        return places.intersect_range(inside).domain().unwrap()

    # ------------------------------------------------------------------ functions

    def _function(self, term: Term, spec: SpecTerm, scope: Scope) -> None:
        """Match a function whose arguments are equal over the reals, or else a choice by a comparison."""
        if spec.dtype == boolean:
            raise Mismatch("a condition of other numbers than specified, which rounding may decide")
        mine, wanted = _operands(term), _spec_operands(spec)
        if mine is not None and wanted is not None and mine[0] == wanted[0] and len(mine[1]) == len(wanted[1]):
            try:
                orders = permutations(mine[1]) if OPERATORS[mine[0]].commutative else [tuple(mine[1])]
                first_that_holds(orders, partial(self._each, wanted[1], scope))
                return
            except Mismatch:
                pass
        self._compared(_compared(term), _spec_compared(spec), scope)

    def _each(self, wanted: list[SpecTerm], scope: Scope, mine: tuple[Term, ...]) -> None:
        for term, spec in zip(mine, wanted, strict=True):
            self.compare(term, spec, scope)

    def _compared(self, mine: _Compared | None, wanted: _SpecCompared | None, scope: Scope) -> None:
        """Match a choice by a comparison: the differences compared are proportional, and the values are equal."""
        if mine is None or wanted is None:
            raise Mismatch("another function than specified")
        strict, left, right, yes, no = mine
        strictly, above, below, first, second = wanted
        if any(map(rounds_in, (above, below))) or any(rounds(self.builder, t) for t in (left, right)):
            raise Mismatch("a choice by numbers that were rounded")
        dtype = above.dtype
        difference = groups(SpecOp("sub", (above, below), dtype))
        found = collected(self.exponentials.summands(Apply("sub", (left, right)), scope.path))
        ratios = sorted({s.factor / part[0] for s in found[:1] for g in difference for part in g.parts[:1]})
        sign = 1.0 if first_that_holds(ratios, partial(self._proportional, found, difference, scope)) > 0 else -1.0
        between = groups(SpecOp("sub", (first, second), dtype))
        if strict != (strictly if sign > 0 else not strictly) and not _in_proportion(between, difference):
            raise Mismatch("a choice that falls out otherwise between equal numbers")
        for term, spec in zip((yes, no), (first, second) if sign > 0 else (second, first), strict=True):
            self.compare(term, spec, scope)

    def _proportional(self, found: list[Summand], wanted: list[Group], scope: Scope, ratio: float) -> float:
        self._sum_of_products([scaled(s, 1 / ratio) for s in found], wanted, scope)
        return ratio


def _assignments(found: tuple[Placed, ...], wanted: tuple[SpecTerm, ...]) -> Iterator[tuple[_Pair, ...]]:
    """Yield assignments of factors to atoms such that each factor loads only from tensors of its atom."""
    mine = [tensors(p.ref.term) for p in found]
    theirs = [frozenset(e.obj for e in elements_of(spec)) for spec in wanted]
    for order in permutations(range(len(found))):
        if all(mine[i] <= theirs[n] for n, i in enumerate(order)):
            yield tuple((found[i], wanted[n]) for n, i in enumerate(order))


def _joined(pieces: list[_Piece], more: UnionSet, found: float, wanted: float) -> list[_Piece]:
    """Add two numbers, and their sizes, to the numbers of all places in `more`; return the new pieces."""
    result: list[_Piece] = []
    rest, added = more, abs(found) + abs(wanted)
    for where, mine, theirs, size in pieces:
        both, apart = where.intersect(more), where.subtract(more)
        rest = rest.subtract(where)
        result += [(both, mine + found, theirs + wanted, size + added)] if not both.is_empty() else []
        result += [(apart, mine, theirs, size)] if not apart.is_empty() else []
    joined: dict[tuple[float, float, float], UnionSet] = {}
    for where, *numbers in [*result, *([] if rest.is_empty() else [(rest, found, wanted, added)])]:
        mine, theirs, size = numbers
        joined[mine, theirs, size] = joined.get((mine, theirs, size), empty_set()).union(where)
    return [(where.coalesce(), *numbers) for numbers, where in joined.items()]


def _in_proportion(some: list[Group], others: list[Group]) -> bool:
    """Return True if one sum of products is the other times a number."""
    a, b = ({(g.body, tests): factor for g in each for factor, tests in g.parts} for each in (some, others))
    if a.keys() != b.keys():
        return False
    ratios = [a[key] / b[key] for key in a]
    return all(close(ratio, ratios[0]) for ratio in ratios)


def _operands(term: Term) -> tuple[str, list[Term]] | None:
    match term:
        case Apply(op="maximum" | "minimum" as op, args=args):
            inner = [_operands(a) for a in args]
            return op, [t for a, i in zip(args, inner, strict=True) for t in (i[1] if i and i[0] == op else [a])]
        case Apply(op=op, args=args) if op in OPERATORS:
            return op, list(args)
        case _:
            return None


def _spec_operands(spec: SpecTerm) -> tuple[str, list[SpecTerm]] | None:
    match strip(spec):
        case Op(op="maximum" | "minimum" as op, args=args) | SpecOp(op="maximum" | "minimum" as op, args=args):
            inner = [_spec_operands(a) for a in args]
            return op, [t for a, i in zip(args, inner, strict=True) for t in (i[1] if i and i[0] == op else [a])]
        case (Op(op=op, args=args) | SpecOp(op=op, args=args)) as found if (
            operation(op, args[-1].dtype, found.dtype) == op
        ):
            return op, list(args)
        case _:
            return None


def _compared(term: Term) -> _Compared | None:
    """Return an extremum, an absolute value or a choice by a comparison as a choice by `>` or `>=`; else None."""
    match term:
        case Apply(op="maximum", args=(a, b)):
            return False, a, b, a, b
        case Apply(op="minimum", args=(a, b)):
            return False, a, b, b, a
        case Apply(op="abs", args=(a,)):
            return False, a, Constant(0.0), a, Apply("neg", (a,))
        case Choice(test=test, yes=yes, no=no):
            match comparison(test):
                case ("gt" | "ge" as op, a, b):
                    return op == "gt", a, b, yes, no
                case ("lt" | "le" as op, a, b):
                    return op == "lt", b, a, yes, no
    return None


def _spec_compared(spec: SpecTerm) -> _SpecCompared | None:
    """Return a specified term in the form of `_compared`; None for terms that have no such form."""
    match spec:
        case Op(op=op, args=args) | SpecOp(op=op, args=args):
            pass
        case _:
            return None
    match op, args:
        case "maximum", (a, b):
            return False, a, b, a, b
        case "minimum", (a, b):
            return False, a, b, b, a
        case "abs", (a,):
            return False, a, Const(0.0, a.dtype), a, SpecOp("neg", (a,), a.dtype)
        case "where", (Op() | SpecOp() as test, yes, no) if test.args[0].dtype.is_float:
            match test.op, test.args:
                case ("gt" | "ge", (a, b)):
                    return test.op == "gt", a, b, yes, no
                case ("lt" | "le", (a, b)):
                    return test.op == "lt", b, a, yes, no
    return None
