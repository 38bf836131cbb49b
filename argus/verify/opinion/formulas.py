"""Translation of ISL's sets and relations to formulas of Z3, from their constraints alone: ISL computes nothing here.

A set is a union of conjunctions of linear constraints over parameters, coordinates and further integers. Those are
quotients, which have a definition, and *unnamed* integers, which are existentially quantified. A formula that will be
negated should have no unnamed integers (`argus.verify.opinion.elimination`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from argus.verify.model.isl import Map, Set, UnionMap, UnionSet, isl
from argus.verify.model.solver import z3

Union = Set | Map | UnionSet | UnionMap
Variable = tuple[str, str | int]
"""("param", its name), ("in", place), ("out", place), or ("div", place) for an integer of the constraints alone."""
Variables = tuple[Variable, ...]
Value = Callable[[Variable], z3.ArithRef]
Space = tuple[object, ...]
"""A tuple's name, and its number of coordinates or the two tuples that it pairs. Coordinates' names do not matter."""
Spaces = tuple[Space, Space]
"""The two spaces of a relation, from and to. For a set, the first one is empty."""

_DIM = isl.dim_type
_ORDER = (_DIM.cst, _DIM.param, _DIM.in_, _DIM.out, _DIM.div)


@dataclass(frozen=True, slots=True)
class Row:
    """A linear form: nonzero coefficients by variable, and a constant."""

    terms: Mapping[Variable, int]
    constant: int

    def value(self, of: Value) -> z3.ArithRef:
        """Return the linear form as a Z3 term."""
        scaled = [of(v) if c == 1 else c * of(v) for v, c in self.terms.items()]
        parts = [*scaled, *([z3.IntVal(self.constant)] if self.constant or not scaled else [])]
        return parts[0] if len(parts) == 1 else z3.Sum(parts)

    def combined(self, factor: int, other: Row, times: int) -> Row:
        """Return `factor` · this + `times` · other."""
        keys = dict.fromkeys((*self.terms, *other.terms))
        terms = {v: factor * self.terms.get(v, 0) + times * other.terms.get(v, 0) for v in keys}
        return Row({v: c for v, c in terms.items() if c}, factor * self.constant + times * other.constant)


@dataclass(frozen=True, slots=True)
class Conjunction:
    """A conjunction of constraints: rows of `equal` are 0, rows of `least` are at least 0.

    A variable in `quotients` is row // divisor. The other variables in `divs` are unnamed.
    """

    equal: tuple[Row, ...]
    least: tuple[Row, ...]
    quotients: Mapping[Variable, tuple[Row, int]]
    divs: Variables

    @property
    def unnamed(self) -> frozenset[Variable]:
        """The integers without a definition, and the quotients whose definitions depend on such integers."""
        found = {d for d in self.divs if d not in self.quotients}
        for _ in self.divs:
            found |= {d for d, (row, _) in self.quotients.items() if not found.isdisjoint(row.terms)}
        return frozenset(found)

    def projected(self, side: str) -> Conjunction:
        """Project out the coordinates of one side, "in" or "out": they become existential integers."""
        return self._renamed(lambda v: ("div", f"{side} {v[1]}") if v[0] == side else v)

    def then(self, other: Conjunction) -> Conjunction:
        """Compose this conjunction of a relation with one of another relation, which is applied second."""
        first = self._renamed(
            lambda v: {"div": ("div", f"first {v[1]}"), "out": ("div", f"middle {v[1]}")}.get(v[0], v)
        )
        second = other._renamed(
            lambda v: {"div": ("div", f"second {v[1]}"), "in": ("div", f"middle {v[1]}")}.get(v[0], v)
        )
        return Conjunction(
            (*first.equal, *second.equal),
            (*first.least, *second.least),
            {**first.quotients, **second.quotients},
            tuple(dict.fromkeys((*first.divs, *second.divs))),
        )

    def _renamed(self, to: Callable[[Variable], Variable]) -> Conjunction:
        def row(r: Row) -> Row:
            return Row({to(v): c for v, c in r.terms.items()}, r.constant)

        mentioned = {to(v): None for r in (*self.equal, *self.least) for v in r.terms}
        divs = dict.fromkeys((*(to(d) for d in self.divs), *(v for v in mentioned if v[0] == "div")))
        quotients = {to(d): (row(r), m) for d, (r, m) in self.quotients.items()}
        divs.update((v, None) for r, _ in quotients.values() for v in r.terms if v[0] == "div")
        return Conjunction(tuple(map(row, self.equal)), tuple(map(row, self.least)), quotients, tuple(divs))

    def formula(self, of: Value) -> z3.BoolRef:
        """Return the conjunction with a fresh constant for each unnamed integer. The result must not be negated."""
        fresh = {d: z3.FreshInt("e") for d in self.divs if d not in self.quotients}
        value = Values(of, self.quotients, fresh)
        return conjunction(
            [row.value(value) == 0 for row in self.equal] + [row.value(value) >= 0 for row in self.least]
        )


class Values:
    """A function from variables to terms: `known` ones, quotients by their definitions, and all others by `of`."""

    def __init__(
        self, of: Value, quotients: Mapping[Variable, tuple[Row, int]], known: Mapping[Variable, z3.ArithRef]
    ) -> None:
        self._of, self._quotients, self._known = of, quotients, dict(known)

    def __call__(self, variable: Variable) -> z3.ArithRef:
        if variable[0] != "div":
            return self._of(variable)
        if variable not in self._known:
            row, divisor = self._quotients[variable]
            self._known[variable] = row.value(self) / z3.IntVal(divisor)
        return self._known[variable]


def conjunction(parts: list[z3.BoolRef]) -> z3.BoolRef:
    """Return the conjunction of `parts`."""
    return z3.And(parts) if parts else z3.BoolVal(True)


def disjunction(parts: list[z3.BoolRef]) -> z3.BoolRef:
    """Return the disjunction of `parts`."""
    return z3.Or(parts) if parts else z3.BoolVal(False)


@dataclass(frozen=True, slots=True)
class Pieces:
    """The part of a union in one pair of spaces, which have `inputs` and `outputs` coordinates."""

    inputs: int
    outputs: int
    conjunctions: tuple[Conjunction, ...]


def pieces(union: Union) -> dict[Spaces, Pieces]:
    """Split a union by spaces."""
    return {_spaces(part): _pieces(part) for part in _parts(union)}


def _parts(union: Union) -> Iterator[Set | Map]:
    match union:
        case UnionSet():
            sets = union.get_set_list()
            yield from (sets.get_at(i) for i in range(sets.n_set()))
        case UnionMap():
            maps = union.get_map_list()
            yield from (maps.get_at(i) for i in range(maps.n_map()))
        case _:
            yield union


def _spaces(part: Set | Map) -> Spaces:
    space = part.get_space()
    return ((), _space(space)) if isinstance(part, Set) else (_space(space.domain()), _space(space.range()))


def _space(space: isl.Space) -> Space:
    """Convert the space of a set."""
    name = space.get_tuple_name(_DIM.set) if space.has_tuple_name(_DIM.set) else None
    if not space.is_wrapping():
        return name, space.dim(_DIM.set)
    pair = space.unwrap()
    return name, _space(pair.domain()), _space(pair.range())


def _pieces(part: Set | Map) -> Pieces:
    if isinstance(part, Set):
        return Pieces(0, part.dim(_DIM.set), tuple(_conjunction(b) for b in part.get_basic_sets()))
    return Pieces(part.dim(_DIM.in_), part.dim(_DIM.out), tuple(_conjunction(b) for b in part.get_basic_maps()))


def _conjunction(basic: isl.BasicSet | isl.BasicMap) -> Conjunction:
    flat = basic.wrap() if isinstance(basic, isl.BasicMap) else basic
    order = _ORDER if flat is not basic else tuple(d for d in _ORDER if d != _DIM.in_)
    names: Variables = tuple(("param", str(basic.get_dim_name(_DIM.param, i))) for i in range(basic.dim(_DIM.param)))
    inputs: Variables = tuple(("in", i) for i in range(basic.dim(_DIM.in_) if flat is not basic else 0))
    outputs: Variables = tuple(("out", i) for i in range(basic.dim(_DIM.out)))
    divs: Variables = tuple(("div", i) for i in range(basic.dim(_DIM.div)))
    columns = (*names, *inputs, *outputs, *divs)
    quotients: dict[Variable, tuple[Row, int]] = {}
    for place, div in enumerate(divs):
        try:
            aff = flat.get_local_space().get_div(place)
        except isl.Error:  # it has no definition
            continue
        quotients[div] = _quotient(aff, names, (*inputs, *outputs), divs)
    equal, least = basic.equalities_matrix(*order), basic.inequalities_matrix(*order)
    return Conjunction(_rows(equal, columns), _rows(least, columns), quotients, divs)


def _rows(matrix: isl.Mat, columns: Variables) -> tuple[Row, ...]:
    def row(number: int) -> Row:
        values = [int(matrix.get_element_val(number, c).to_python()) for c in range(matrix.cols())]
        return Row({v: c for v, c in zip(columns, values[1:], strict=True) if c}, values[0])

    return tuple(row(number) for number in range(matrix.rows()))


def _quotient(aff: isl.Aff, names: Variables, coordinates: Variables, divs: Variables) -> tuple[Row, int]:
    divisor = int(aff.get_denominator_val().to_python())
    terms: dict[Variable, int] = {}
    for kind, variables in ((_DIM.param, names), (_DIM.in_, coordinates), (_DIM.div, divs)):
        for place, variable in enumerate(variables):
            factor = (aff.get_coefficient_val(kind, place) * divisor).to_python()
            if factor:
                terms[variable] = int(factor)
    return Row(terms, int((aff.get_constant_val() * divisor).to_python())), divisor
