"""The contributions of a reduction, and the cells that terms load."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from argus.verify.model.formulas import Tuple, numbered, relation
from argus.verify.model.isl import UnionMap, empty_map, isl, map_parts
from argus.verify.values.numbers import Numbers
from argus.verify.values.summands import Placed, Ref, Summand, spread
from argus.verify.values.terms import DATA, Apply, Cases, Choice, Load, Recurrence, Reduce, Term, Via

Coordinates = tuple["UnionMap | None", ...]
"""{instance -> [coordinate]} of a load for each dimension, or None if an instance loads at several coordinates."""


def contributions(
    numbers: Numbers, op: str, term: Term, path: UnionMap, up: UnionMap, identity: float, nested: bool = True
) -> list[Summand]:
    """Return the operands to which `op` is applied, with nested reductions expanded. `path` is {point -> instance},
    `up` is {point -> root}.

    Operands that are known to be the identity element are left out. `nested`: applications of `op` in operands are
    expanded, too.
    """
    match term:
        case Via(along=along, term=inner):
            return contributions(numbers, op, inner, path.apply_range(along), up, identity, nested)
        case Cases(parts=parts):
            limited = ((path.intersect_range(region).coalesce(), inner) for region, inner in parts)
            each = [(p, inner) for p, inner in limited if not p.is_empty()]
            return [s for p, inner in each for s in contributions(numbers, op, inner, p, up, identity, nested)]
        case Recurrence(term=inner):
            return contributions(numbers, op, inner, path, up, identity, nested)
        case Apply(op=found, args=args) if found == op and nested:
            return [s for a in args for s in contributions(numbers, op, a, path, up, identity, nested)]
        case Reduce(op=found, start=start, parts=parts) if found == op:
            result = contributions(numbers, op, start, path, up, identity, nested)
            for along, inner in parts:
                reached = path.apply_range(along)
                if not reached.is_empty():
                    to, down = spread(reached)
                    above = to.apply_range(up).coalesce()
                    result += contributions(numbers, op, inner, down, above, identity, nested)
            return result
    points = path.domain()
    for region, value in numbers.regions(term, points, path):
        points = points.subtract(region).coalesce() if value == identity else points
    if points.is_empty():
        return []
    return [Summand(points, up.intersect_domain(points), factors=(Placed(Ref(term, path.intersect_domain(points))),))]


def everywhere(found: UnionMap, wanted: UnionMap) -> UnionMap | None:
    """Extend a relation to all points of `wanted`, which contains its domain. Return None if a point then has no image,
    or several.

    A sum over no terms loads nothing, so its own relation does not contain its value of the variable.
    """
    result = empty_map()
    for part in map_parts(found):
        hull = isl.Map.from_basic_map(part.affine_hull())
        outputs = hull.dim(isl.dim_type.out)
        result = result.union(hull.drop_constraints_not_involving_dims(isl.dim_type.out, 0, outputs).to_union_map())
    result = result.intersect(wanted)
    return result if result.is_single_valued() else None


# ---------------------------------------------------------------------------- loads


class Loads:
    """The loads in terms. The loads of each term are found once."""

    def __init__(self) -> None:
        self._cells: dict[Term, list[tuple[str, UnionMap]]] = {}
        self._found: dict[tuple[Term, bool], list[tuple[str, Coordinates]]] = {}

    def of(self, term: Term, last: bool = False) -> list[tuple[str, Coordinates]]:
        """Return the tensor and {instance -> [coordinate]} of each load in a term, over its own instances.

        `last`: an instance that loads at several coordinates, such as a sum up to a place, has the greatest of them.
        """
        key = term, last
        if key not in self._found:
            found: list[tuple[str, Coordinates]] = []
            for tensor, cells in self._cells_of(term):
                each = tuple(_one_of(c, last) for c in _coordinates(cells))
                if any(c is not None for c in each) and not any(tensor == t and _alike(each, c) for t, c in found):
                    found.append((tensor, each))
            self._found[key] = found
        return self._found[key]

    def _cells_of(self, term: Term) -> list[tuple[str, UnionMap]]:
        """Return {instance -> cell} for each load in a term. Parts of a term that load the same place share one entry.
        """
        if term not in self._cells:
            self._cells[term] = self._read(term)
        return self._cells[term]

    def _read(self, term: Term) -> list[tuple[str, UnionMap]]:
        match term:
            case Load(tensor=tensor, cells=cells):
                return [(tensor, cells)]
            case Via(along=along, term=inner):
                return self._along(along, inner)
            case Apply(args=args):
                return [found for arg in args for found in self._cells_of(arg)]
            case Choice(test=test, yes=yes, no=no):  # The chosen values say more about the term than the condition.
                return [found for each in (yes, no) for found in self._cells_of(each)] or self._cells_of(test)
            case Recurrence(term=inner):
                return self._cells_of(inner)
            case Cases(parts=parts):
                limited = (
                    [(t, c.intersect_domain(region)) for t, c in self._cells_of(inner)] for region, inner in parts
                )
                return _aligned([each for each in limited if each and not each[0][1].is_empty()])
            case Reduce(parts=parts):
                return _aligned([self._along(along, inner) for along, inner in parts])
            case _:
                return []

    def _along(self, along: UnionMap, term: Term) -> list[tuple[str, UnionMap]]:
        return [(tensor, along.apply_range(cells)) for tensor, cells in self._cells_of(term)]


def _one_of(coordinate: UnionMap, last: bool) -> UnionMap | None:
    """Return {instance -> [coordinate]} with one coordinate for each instance, the greatest one if `last`."""
    if _one_each(coordinate):
        return coordinate
    if not last or any(part.get_tuple_name(isl.dim_type.out) for part in map_parts(coordinate)):
        return None
    return coordinate.lexmax()


def _one_each(coordinate: UnionMap) -> bool:
    """Return True if each instance has one number and at most one place in an index tensor, which is another name of
    that number."""
    return all(part.is_single_valued() for part in map_parts(coordinate))


def _alike(some: Coordinates, others: Coordinates) -> bool:
    return len(some) == len(others) and all(
        (a is None) == (b is None) and (a is None or b is None or bool(a.is_equal(b)))
        for a, b in zip(some, others, strict=True)
    )


def _aligned(each: list[list[tuple[str, UnionMap]]]) -> list[tuple[str, UnionMap]]:
    """Return the loads of several parts of a term. If all parts load from the same tensors in the same order, each load
    of the result unites those of the parts."""
    if not each or len({tuple(name for name, _ in found) for found in each}) > 1:
        return [] if not each else [found for part in each for found in part]
    joined = ([cells for _, cells in same] for same in zip(*each, strict=True))
    return [(name, reduce(UnionMap.union, cells).coalesce()) for (name, _), cells in zip(each[0], joined, strict=True)]


def _coordinates(cells: UnionMap) -> list[UnionMap]:
    """Return {point -> coordinate} for each dimension: an integer, or a place in an index tensor."""
    found: list[UnionMap] = []
    for part in map_parts(cells):
        for number, one in enumerate(_split(part)):
            found[number:] = [found[number].union(one), *found[number + 1 :]] if number < len(found) else [one]
    return [each.coalesce() for each in found]


def _split(part: isl.Map) -> list[UnionMap]:
    """Split a map to cells into one map for each coordinate."""
    if part.range_is_wrapping():
        return [*_split(part.range_factor_domain()), *_split(part.range_factor_range())]
    name, rank = part.get_tuple_name(isl.dim_type.out) or "", part.dim(isl.dim_type.out)
    if name.startswith(DATA) or not name:
        return [part.to_union_map()]
    dims = numbered("x", rank)
    return [part.apply_range(relation(Tuple(dims, name), Tuple((each,)))).to_union_map() for each in dims]


def loaded_cells(term: Term, path: UnionMap) -> UnionMap | None:
    """Return {point -> cell} of a term that is a tensor's element wherever the path leads, or None for any other term.
    """
    return images(term, path, lambda leaf, here: here.apply_range(leaf.cells) if isinstance(leaf, Load) else None)


def images(term: Term, path: UnionMap, of_leaf: Callable[[Term, UnionMap], UnionMap | None]) -> UnionMap | None:
    """Return {point -> image} of a term, given the images of the terms that the path leads to; None if one has none."""
    match term:
        case Via(along=along, term=inner):
            return images(inner, path.apply_range(along), of_leaf)
        case Cases(parts=parts):
            limited = [(path.intersect_range(region), inner) for region, inner in parts]
            each = [images(inner, p, of_leaf) for p, inner in limited if not p.is_empty()]
            known = [found for found in each if found is not None]
            return reduce(UnionMap.union, known, empty_map()) if len(known) == len(each) else None
        case _:
            return of_leaf(term, path)
