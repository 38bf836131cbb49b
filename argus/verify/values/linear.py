"""Exponents: terms as sums of scaled terms, in which maxima are marked as levels.

The value of a softmax does not depend on which number is subtracted from its scores, as long as it is the same number
for all of them. So a maximum is kept as a *level*: a number identified by the statement instances that computed it.
Its value matters only if it may be -inf, because -inf - -inf is not a number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce

from argus.verify.model.formulas import Tuple, points
from argus.verify.model.isl import UnionMap, UnionSet, map_parts, merged, union_of_maps
from argus.verify.values.above import Above, domain_of
from argus.verify.values.contributions import contributions, loaded_cells
from argus.verify.values.numbers import Ceiling, Numbers
from argus.verify.values.scope import Mismatch
from argus.verify.values.summands import Monomial, Ref, inverted, together
from argus.verify.values.term_builder import TermBuilder
from argus.verify.values.terms import (
    Again,
    Apply,
    Cases,
    Choice,
    Constant,
    Opaque,
    Parameter,
    Recurrence,
    Reduce,
    Term,
    Via,
    compared_with,
    starts_at,
)


class EmptyRow(Mismatch):
    """A mismatch in the rows in which every score is masked."""


@dataclass(frozen=True)
class Linear:
    """The sum of `terms` at some points, or -inf if `nothing` is true, whatever the terms are."""

    points: UnionSet
    terms: tuple[Monomial, ...]
    nothing: bool = False


class Exponents:
    """Builds linear forms of terms, and finds where the maxima in them are more than -inf."""

    def __init__(self, builder: TermBuilder) -> None:
        self.builder = builder
        self.positive = builder.positive
        self.ceiling = Ceiling(self.term_of)
        self._heads: dict[str, Term] = {}
        self._opened: dict[Term, Term | None] = {}
        self._maxima: dict[Term, UnionMap | None] = {}
        self._numbers = Numbers()
        self._above = Above(builder, self.term_of)

    def term_of(self, site: int) -> Term:
        """Return the term of a statement, without the `Recurrence` around it."""
        term = self.builder.written(self.builder.model.sites[site])
        return term.term if isinstance(term, Recurrence) else term

    # ------------------------------------------------------------------ linear forms

    def linear(self, term: Term, path: UnionMap) -> list[Linear]:
        """Return the linear forms of a term at the points of `path`, {point -> instance}, by parts."""
        match term:
            case Via(along=along, term=inner):
                return self.linear(inner, path.apply_range(along))
            case Cases(parts=parts):
                limited = [(path.intersect_range(region), inner) for region, inner in parts]
                return [found for p, inner in limited if not p.is_empty() for found in self.linear(inner, p)]
            case Recurrence(term=inner):
                return self.linear(inner, path)
            case Again(site=site):
                return self.linear(self.term_of(site), path)
            case Constant(value=value):
                return [_constant(value, path.domain())]
            case Parameter(name=name):
                return [Linear(path.domain(), (Monomial(1.0, (name,)),))]
            case Apply(op="neg", args=(a,)):
                return [self.scaled(x, -1.0, ()) for x in self.linear(a, path)]
            case Apply(op="add" | "sub" as op, args=(a, b)):
                right = self.linear(b, path)
                if op == "sub":
                    right = [self.scaled(x, -1.0, ()) for x in right]
                return [sum_ for x, y in _pairs(self.linear(a, path), right) if (sum_ := _add(x, y)) is not None]
            case Apply(op="mul" | "truediv" as op, args=(a, b)):
                pairs = _pairs(self.linear(a, path), self.linear(b, path))
                return [found for x, y in pairs if (found := self._product(op, x, y, term, path)) is not None]
            case Choice():
                return self._choice(term, path)
            case Reduce(op="add") if (several := self._several(term)) is not None:
                return self.linear(several, path)
            case Opaque(reason=reason):
                raise Mismatch(reason)
            case _:
                level = isinstance(term, (Apply, Reduce)) and term.op == "maximum"
                return [Linear(path.domain(), (Monomial(1.0, (), Ref(term, path), level),))]

    def _several(self, term: Reduce) -> Term | None:
        """Rewrite a sum with a start value or single contributions (`x += y`) as additions; None for any other sum."""
        if term not in self._opened:
            zero, once, rest = Constant(0.0), [], []
            for along, inner in term.parts:
                if not along.is_single_valued():
                    rest.append((along, inner))
                    continue
                outside = self.builder.instances(along).subtract(along.domain())
                value = Via(along, inner)
                once.append(Cases(((along.domain(), value), (outside, zero))) if not outside.is_empty() else value)
            summands: list[Term] = [] if starts_at(term.start, 0.0) else [term.start]
            summands += [Reduce(term.op, zero, tuple(rest))] if rest else []
            summands += once
            plain = not once and len(summands) == 1
            self._opened[term] = None if plain else reduce(lambda a, b: Apply("add", (a, b)), summands)
        return self._opened[term]

    def scaled(self, form: Linear, factor: float, scalars: tuple[str, ...]) -> Linear:
        """Return a linear form times a number and launch-time scalars."""
        if form.nothing:
            self.require_positive(factor, scalars, "a masked score")
        terms = (replace(t, factor=t.factor * factor, scalars=together(t.scalars, scalars)) for t in form.terms)
        return replace(form, terms=tuple(terms))

    def require_positive(self, factor: float, scalars: tuple[str, ...], what: str) -> None:
        """Raise `Mismatch` unless -inf times these factors is -inf."""
        unknown = [name.removeprefix("1:") for name in scalars if name.removeprefix("1/") not in self.positive]
        if unknown:
            names = " and ".join(f"'{name}'" for name in unknown)
            remedy = f"state `al.requires({unknown[0]} > 0.0)`"
            raise Mismatch(f"{what} may be -inf, and nothing says that {names} is positive: {remedy}")
        if factor <= 0:
            raise Mismatch(f"{what} may be -inf, and is multiplied by {factor:g}: the exponent would be inf")

    def _product(self, op: str, a: Linear, b: Linear, term: Term, path: UnionMap) -> Linear | None:
        points = a.points.intersect(b.points)
        if points.is_empty():
            return None
        a, b = replace(a, points=points), replace(b, points=points)
        scale = _scalar(b)
        if op == "truediv":
            if scale is not None and scale.factor and (not a.nothing or self.positive.issuperset(scale.scalars)):
                return self.scaled(a, 1 / scale.factor, inverted(scale.scalars, self.positive))
        elif scale is not None:
            return self.scaled(a, scale.factor, scale.scalars)
        elif (scale := _scalar(a)) is not None:
            return self.scaled(b, scale.factor, scale.scalars)
        if a.nothing or b.nothing:
            raise Mismatch("a masked score is multiplied by what is not known to be positive")
        return Linear(points, (Monomial(1.0, (), Ref(term, path.intersect_domain(points))),))

    def _choice(self, term: Choice, path: UnionMap) -> list[Linear]:
        """Return the forms of a choice. `where(top == -inf, 0, top * c)` is a level that is 0 where `top` is -inf."""
        top, empty, used = _guard(term)
        if top is None:
            return [Linear(path.domain(), (Monomial(1.0, (), Ref(term, path)),))]
        found = []
        for level in self.linear(top, path):
            if level.nothing and not level.terms:
                found += self.linear(empty, path.intersect_domain(level.points))
                continue
            here = path.intersect_domain(level.points)
            for form in self.linear(used, here):
                single = form.terms[0] if len(form.terms) == 1 and not form.nothing else None
                base = level.terms[0] if len(level.terms) == 1 else None
                if single is None or base is None or not (single.level and base.level):
                    raise Mismatch("a choice by data that is not `where(top == -inf, 0, top * scale)`")
                if not self.same(single, base, form.points):
                    raise Mismatch("a choice that compares another maximum with -inf than it uses")
                for other in self.linear(empty, path.intersect_domain(form.points)):
                    if other.terms or other.nothing:
                        raise Mismatch("a level that is not 0 where the maximum is -inf")
                found.append(replace(form, terms=(replace(single, guarded=True),)))
        return found

    def finite(self, ref: Ref) -> UnionSet:
        """Return the points at which a term is known to be more than -inf for all real inputs."""
        return self._above.finite(ref)

    # ------------------------------------------------------------------ levels

    def instances(self, ref: Ref) -> UnionMap:
        """Return {point -> statement instances that computed a maximum}, which identify the maximum.

        A maximum of tensor elements is identified by these elements, because several blocks of a cluster find the same
        one. A maximum of another maximum and a number is identified by both.
        """
        match ref.term:
            case Reduce() as term if (elements := self._elements(term)) is not None:
                return ref.path.apply_range(elements)
            case Reduce(start=start, parts=parts):
                again = [self._named(inner, ref.path.apply_range(along)) for along, inner in parts]
                return merged(self._origins(start, ref.path).union(union_of_maps(again)))
            case Apply(op="maximum", args=(Constant(value=value), inner) | (inner, Constant(value=value))):
                made = self._origins(inner, ref.path)
                number = points(Tuple((), f"number{_letters(value)}")).to_union_set()
                return made.range_product(UnionMap.from_domain_and_range(made.domain(), number))
            case _:
                return self._named(ref.term, ref.path)

    def _elements(self, term: Reduce) -> UnionMap | None:
        """Return {instance -> the cells whose maximum it is}, or None if the term is not a maximum of plain tensor
        elements."""
        if term not in self._maxima:
            domain = domain_of(self.builder, term)
            itself = domain.identity()
            found = contributions(self._numbers, term.op, term, itself, itself, -math.inf)
            each = [(s, loaded_cells(s.factors[0].ref.term, s.factors[0].ref.path)) for s in found]
            plain = [s.upward.reverse().apply_range(cells) for s, cells in each if cells is not None]
            cells = union_of_maps(plain).coalesce() if plain and len(plain) == len(each) else None
            if cells is not None:  # the maximum of no elements is identified by `nothing`
                none = domain.subtract(cells.domain())
                cells = cells.union(UnionMap.from_domain_and_range(none, points(Tuple((), "nothing")).to_union_set()))
            self._maxima[term] = cells
        return self._maxima[term]

    def _origins(self, term: Term, path: UnionMap) -> UnionMap:
        match term:
            case Via(along=along, term=inner):
                return self._named(inner, path.apply_range(along))
            case Cases(parts=parts):
                return union_of_maps([self._origins(inner, path.intersect_range(region)) for region, inner in parts])
            case Recurrence(term=inner):
                return self._named(inner, path)
            case Again(site=site):
                return self._named(self.term_of(site), path)
            case Reduce() | Apply():
                return self.instances(Ref(term, path))
            case _:
                raise Mismatch("a maximum that starts from no plain value")

    def _named(self, term: Term, path: UnionMap) -> UnionMap:
        """Return `path`, after recording that its statements' instances identify the values of this term."""
        for part in map_parts(path):
            name = str(part.range().get_tuple_name())
            if self._heads.setdefault(name, term) is not term:
                raise Mismatch("a statement with two maxima: bind each to a name")
        return path

    def same(self, a: Monomial, b: Monomial, points: UnionSet) -> bool:
        """Return True if two levels are the same maximum at all points, apart from their scaling."""
        assert a.ref is not None and b.ref is not None
        mine, other = (merged(self.instances(ref).intersect_domain(points)) for ref in (a.ref, b.ref))
        return bool(mine.is_equal(other))


def _constant(value: float, points: UnionSet) -> Linear:
    if value == -math.inf:
        return Linear(points, (), True)
    if not math.isfinite(value):
        raise Mismatch(f"the constant {value} in an exponent")
    return Linear(points, (Monomial(value),) if value else ())


def _letters(value: float) -> str:
    """Return a number as part of a name."""
    return value.hex().replace("-", "m").replace("+", "p").replace(".", "_")


def _pairs(a: list[Linear], b: list[Linear]) -> list[tuple[Linear, Linear]]:
    return [(x, y) for x in a for y in b]


def _add(a: Linear, b: Linear) -> Linear | None:
    points = a.points.intersect(b.points)
    return None if points.is_empty() else Linear(points, (*a.terms, *b.terms), a.nothing or b.nothing)


def _scalar(form: Linear) -> Monomial | None:
    """Return a linear form as a number times launch-time scalars, or None for any other form."""
    if form.nothing or len(form.terms) > 1 or any(t.ref is not None for t in form.terms):
        return None
    return form.terms[0] if form.terms else Monomial(0.0)


def _guard(term: Choice) -> tuple[Term | None, Term, Term]:
    """Return (top, value where top is -inf, value elsewhere) of a choice that compares with -inf; else (None, ...)."""
    match compared_with(term.test, -math.inf):
        case ("eq" | "le", top):
            return top, term.yes, term.no
        case ("ne" | "gt", top):
            return top, term.no, term.yes
        case _:
            return None, term.yes, term.no
