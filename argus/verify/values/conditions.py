"""Conditions on integers: which of them sets decide, and when two others are the same, whatever their spelling."""

from __future__ import annotations

from functools import reduce

from argus.ir.expr import Param
from argus.verify.model.formulas import Tuple, equal, points
from argus.verify.model.isl import UnionMap, UnionSet, empty_map, isl, map_parts, point
from argus.verify.model.relations import Model
from argus.verify.model.translator import NonAffine
from argus.verify.values.integers import added, function, scaled
from argus.verify.values.terms import OF_INTEGERS, Apply, Cases, Constant, Index, Load, Parameter, Term, Via, index_data

_HOLDS = {"ge": "v >= 0", "eq": "v = 0", "ne": "v != 0"}
"""When a comparison of a difference with 0 holds."""


class Conditions:
    """Compares conditions on integers. The form of each is found once."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._found: dict[tuple[Term, str], tuple[str, UnionMap] | None] = {}

    def decided(self, test: Term, path: UnionMap) -> tuple[UnionSet, list[Term]]:
        """Split a conjunction: return the points of `path`, {point -> instance}, at which its conditions on indices
        hold, and its other conditions."""
        match test:
            case Via(along=along, term=inner):
                inside, rest = self.decided(inner, path.apply_range(along))
                return inside, [Via(along, each) for each in rest]
            case Apply(op="and", args=args):
                regions, rests = zip(*(self.decided(each, path) for each in args), strict=True)
                return reduce(UnionSet.intersect, regions), [each for rest in rests for each in rest]
            case _:
                found = self._seen(test, path) or _difference(self._model, test, path)
        if found is None or any(part.get_tuple_name(isl.dim_type.out) for part in map_parts(found[1])):
            return path.domain(), [test]
        holding = points(Tuple(("v",)), [_HOLDS[found[0]]]).to_union_set()
        return found[1].intersect_range(holding).domain(), []

    def same(self, mine: Term, path: UnionMap, wanted: Term, other: UnionMap) -> UnionSet | None:
        """Return the points at which two comparisons of integers are the same, or None if their forms do not tell."""
        found, specified = self._seen(mine, path), self._seen(wanted, other)
        if found is None or specified is None or found[0] != specified[0]:
            return None
        equal = found[1].intersect(specified[1]).domain()
        if found[0] != "ge":
            equal = equal.union(scaled(found[1], -1).intersect(specified[1]).domain())
        whole = path.domain().is_subset(equal)
        return None if not whole and any(map(_of_products, (found[1], specified[1]))) else equal

    def _seen(self, test: Term, path: UnionMap) -> tuple[str, UnionMap] | None:
        """Return a comparison as `_difference` does, over the points of the path."""
        parts, forms = map_parts(path), []
        for part in parts:
            form = self._form(test, part)
            if form is None:
                return None
            forms.append((form[0], part.to_union_map().apply_range(form[1])))
        kinds = {kind for kind, _ in forms}
        return (kinds.pop(), reduce(UnionMap.union, (image for _, image in forms))) if len(kinds) == 1 else None

    def _form(self, test: Term, part: isl.Map) -> tuple[str, UnionMap] | None:
        """Return a comparison over all instances of the statement to which a part of a path leads."""
        key = test, str(part.get_tuple_name(isl.dim_type.out))
        if key not in self._found:
            every = isl.Set.universe(part.range().get_space()).to_union_set()
            self._found[key] = _difference(self._model, test, every.identity())
        return self._found[key]


def _of_products(image: UnionMap) -> bool:
    """Return True if an integer is made of products of elements, which have other forms."""
    return any("mul" in str(part.get_tuple_name(isl.dim_type.out)) for part in map_parts(image))


def _difference(model: Model, test: Term, path: UnionMap) -> tuple[str, UnionMap] | None:
    """Return a comparison of integers as that of a difference with 0: which comparison, and {point -> difference}."""
    match test:
        case Apply(op=op, args=(a, b)) if op.endswith(OF_INTEGERS):
            left, right = integer(model, a, path), integer(model, b, path)
        case _:
            return None
    if left is None or right is None:
        return None
    comparison = op.removesuffix(OF_INTEGERS)
    if comparison in ("le", "lt"):
        left, right = right, left
    try:
        difference = added(left, right, -1)
        if comparison in ("gt", "lt"):
            difference = added(difference, _number(difference.domain(), point((1,)).to_union_set()), -1)
    except NonAffine:
        return None
    return comparison if comparison in ("eq", "ne") else "ge", difference


def integer(model: Model, term: Term, path: UnionMap) -> UnionMap | None:
    """Return {point -> integer} of an integer term at the instances to which `path` leads, in the form of `image_of`;
    None if it has none."""
    match term:
        case Via(along=along, term=inner):
            return integer(model, inner, path.apply_range(along))
        case Cases(parts=parts):
            limited = [(path.intersect_range(region), inner) for region, inner in parts]
            each = [integer(model, inner, p) for p, inner in limited if not p.is_empty()]
            known = [found for found in each if found is not None]
            return reduce(UnionMap.union, known, empty_map()) if len(known) == len(each) else None
        case Index(values=values):
            return path.apply_range(values)
        case Constant(value=value) if value.is_integer():
            return _number(path.domain(), point((int(value),)).to_union_set())
        case Parameter(name=name, bounds=bounds) if bounds is not None:
            value_of = model.points(Tuple(("v",)), equal("v", model.translator.integer(Param(name), ())))
            return _number(path.domain(), value_of.to_union_set())
        case Load(tensor=tensor, cells=cells) if model.kernel.object(tensor).dtype.is_int:
            return _elements(tensor, path.apply_range(cells))
        case Apply(op=op, args=args):
            return _applied(model, op, args, path)
        case _:
            return None


def _applied(model: Model, op: str, args: tuple[Term, ...], path: UnionMap) -> UnionMap | None:
    operands: list[UnionMap] = []
    for each in args:
        found = integer(model, each, path)
        if found is None:
            return None  # at once: the other operands may be large
        operands.append(found)
    try:
        return _computed(op, args, operands)
    except NonAffine:
        return None


def _computed(op: str, args: tuple[Term, ...], operands: list[UnionMap]) -> UnionMap:
    """Return the image of an operation, given those of its operands."""
    match op, args:
        case (("add" | "sub"), _):
            return added(operands[0], operands[1], 1 if op == "add" else -1)
        case "neg", _:
            return scaled(operands[0], -1)
        case "mul", (Constant(value=factor), _):
            return scaled(operands[1], int(factor))
        case "mul", (_, Constant(value=factor)):
            return scaled(operands[0], int(factor))
        case _:
            return function(op, operands)


def _number(points: UnionSet, number: UnionSet) -> UnionMap:
    return UnionMap.from_domain_and_range(points, number)


def _elements(tensor: str, cells: UnionMap) -> UnionMap | None:
    """Return the image of a tensor's elements at the cells; None if a cell's place depends on data itself."""
    result = empty_map()
    for part in map_parts(cells):
        if part.range_is_wrapping():
            return None
        rank = part.dim(isl.dim_type.out)
        named = part.insert_dims(isl.dim_type.out, rank, 1).fix_val(isl.dim_type.out, rank, 0)
        result = result.union(named.set_tuple_name(isl.dim_type.out, index_data(tensor)).to_union_map())
    return result
