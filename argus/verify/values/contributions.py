"""Contributions of a kernel's reductions: the roots that they count for, and the cells that they are loaded from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce

from argus.ir.expr import Const, Coord, Elem, Expr, Param, rewrite, walk
from argus.ir.nodes import SpecTerm
from argus.ir.spec_terms import elements_of
from argus.verify.model.isl import UnionMap, UnionSet, empty_map, isl, map_parts
from argus.verify.model.translator import NonAffine, Translator, identifier
from argus.verify.values.numbers import Numbers
from argus.verify.values.scope import Mismatch, Scope
from argus.verify.values.terms import Apply, Cases, Choice, Constant, Load, Recurrence, Reduce, Term, Via


def contributions(numbers: Numbers, term: Reduce, scope: Scope, identity: float) -> list[tuple[Scope, UnionMap, Term]]:
    """Return the contributions that count as (scope over [root -> instance], {that -> root}, term); sums are opened."""
    starts = [r for r, v in numbers.regions(term.start, scope.roots, scope.path) if v == identity]
    unstarted = scope.roots
    for region in starts:
        unstarted = unstarted.subtract(region)
    if not unstarted.is_empty():
        raise Mismatch("a reduction that does not start from its identity element")
    result = []
    for along, inner in term.parts:
        reached = scope.path.apply_range(along)
        if reached.is_empty():
            continue
        up, path = reached.domain_map(), reached.range_map()
        counting = path.domain()
        for region, value in numbers.regions(inner, counting, path):
            if value == identity:
                counting = counting.subtract(region).coalesce()
            elif not region.is_empty():
                text = f"the constant {value:g} (padding?) takes part in the reduction by '{term.op}'"
                raise Mismatch(text, region.apply(up).apply(scope.origin))
        up, path = (m.intersect_domain(counting).coalesce() for m in (up, path))
        leaf = Scope(path, empty_map(), (), up.apply_range(scope.origin).coalesce())
        opened = _open(numbers, term.op, inner, leaf, identity)
        result += [(s, u.apply_range(up).coalesce(), t) for s, u, t in opened]
    return result


def _open(numbers: Numbers, op: str, term: Term, scope: Scope, identity: float) -> list[tuple[Scope, UnionMap, Term]]:
    """Replace a contribution that is itself a reduction by the same operator by its own contributions."""
    match term:
        case Via(along=along, term=inner):
            return _open(numbers, op, inner, replace(scope, path=scope.path.apply_range(along)), identity)
        case Cases(parts=parts):
            found = []
            for region, inner in parts:
                here = scope.path.intersect_range(region).coalesce()
                if not here.is_empty():
                    found += _open(numbers, op, inner, replace(scope, path=here), identity)
            return found
        case Recurrence(term=inner):
            return _open(numbers, op, inner, scope, identity)
        case Reduce(op=inner_op) if inner_op == op:
            return contributions(numbers, term, scope, identity)
        case _:
            return [(scope, scope.roots.identity(), term)]


def bounds(term: Term, body: SpecTerm, axis: int, leaf: Scope) -> list[UnionMap]:
    """Return candidates for {root -> [k]}, the value of the bound variable `axis` that the term contributes for.

    Each candidate follows from a load that the specification indexes by the bound variable.
    """
    found = [*_read(term, body, axis, leaf)]
    if not found:
        raise Mismatch("a reduction whose terms do not load through the bound variable")
    total = [bound for bound in found if leaf.roots.is_subset(bound.domain())]
    total = total or [each for bound in found if (each := everywhere(bound, leaf.roots)) is not None]
    if not total:
        raise Mismatch("a reduction has terms that no value of its variable counts: padding that is not known "
                       "to change nothing, such as 0 times a logarithm of 0")  # fmt: skip
    return total


def everywhere(bound: UnionMap, roots: UnionSet) -> UnionMap | None:
    """Extend a relation to all roots by the equations that it satisfies; None if a root then lacks a unique image.

    A sum over no terms loads nothing, so its own relation does not contain its value of the variable.
    """
    result = empty_map()
    for part in map_parts(bound):
        hull = isl.Map.from_basic_map(part.affine_hull()).drop_constraints_not_involving_dims(isl.dim_type.out, 0, 1)
        result = result.union(hull.to_union_map())
    result = result.intersect_domain(roots)
    return result if roots.is_subset(result.domain()) and result.is_single_valued() else None


def _read(term: Term, body: SpecTerm, axis: int, scope: Scope) -> Iterator[UnionMap]:
    for elem in dict.fromkeys(elements_of(body)):
        for marker in markers(elem, axis):
            yield from marked(term, marker, scope.path)


@dataclass(frozen=True)
class Marker:
    """The indices of a specified element that determine a variable, which is Coord(0) in their expressions.

    `constants`: (dimension, number). `indices`: (place, expression). A place is a dimension, or, for an index of an
    index tensor, the dimension in which its element stands and the dimension of the index tensor.
    """

    tensor: str
    constants: tuple[tuple[int, int], ...]
    indices: tuple[tuple[tuple[int, ...], Expr], ...]


def markers(elem: Elem, axis: int) -> list[Marker]:
    """Return the ways in which an element determines `Coord(axis)`: each index that equals it, or else all indices that
    are computed from it alone together, as `table[b, j // 16], j % 16` determine j."""
    constants = tuple((dim, int(i.value)) for dim, i in enumerate(elem.index) if isinstance(i, Const))
    alone: list[tuple[tuple[int, ...], Expr]] = []
    computed: list[tuple[tuple[int, ...], Expr]] = []
    for place, index in _indices(elem):
        if index == Coord(axis) and len(place) == 1:
            alone.append((place, Coord(0)))
        elif {e for e in walk(index) if isinstance(e, Coord | Elem | Param)} == {Coord(axis)}:
            computed.append((place, rewrite(index, lambda e: Coord(0) if e == Coord(axis) else None)))
    if alone or not computed:
        return [Marker(elem.obj, constants, (one,)) for one in alone]
    return [Marker(elem.obj, constants, tuple(computed))]


def _indices(elem: Elem) -> Iterator[tuple[tuple[int, ...], Expr]]:
    for dim, index in enumerate(elem.index):
        if isinstance(index, Elem):
            yield from (((dim, inner), e) for inner, e in enumerate(index.index))
        else:
            yield (dim,), index


def marked(term: Term, marker: Marker, path: UnionMap) -> list[UnionMap]:
    """Return {root -> [value of the variable]} for each load in a term that may be the marker's element."""
    found: list[UnionMap] = []
    for cells in _cells(term, marker.tensor, path):
        for dim, value in marker.constants:
            there = isl.UnionSet(f"{{ [{value}] }}")
            cells = cells.intersect_domain(_project(cells, marker.tensor, (dim,)).intersect_range(there).domain())
        each = [_project(cells, marker.tensor, place) for place, _ in marker.indices]
        one = reduce(UnionMap.flat_range_product, each).apply_range(_solved(tuple(e for _, e in marker.indices)))
        if not one.is_empty() and one.is_single_valued() and not any(one.is_equal(other) for other in found):
            found.append(one)
    return found


def _solved(exprs: tuple[Expr, ...]) -> UnionMap:
    """Return {[values of expressions of Coord(0)] -> [Coord(0)]}, which is empty if an expression is not affine."""
    try:
        texts = [Translator().integer(e, ("k",)) for e in exprs]
    except NonAffine:
        return empty_map()
    return isl.UnionMap(f"{{ [k] -> [{', '.join(texts)}] }}").reverse()


def _cells(term: Term, tensor: str, path: UnionMap) -> list[UnionMap]:
    """Return {root -> cell} for each load of `tensor` in a term; corresponding loads of several parts are joined."""
    match term:
        case Load(tensor=name, cells=cells):
            reached = path.apply_range(cells)
            indices = (factor for part in map_parts(reached) for factor in _factors(part))
            data = [i.to_union_map() for i in indices if i.get_tuple_name(isl.dim_type.out) == index_data(tensor)]
            return ([reached] if name == tensor else []) + ([reduce(UnionMap.union, data)] if data else [])
        case Via(along=along, term=inner):
            return _cells(inner, tensor, path.apply_range(along))
        case Apply(args=args):
            return [found for arg in args for found in _cells(arg, tensor, path)]
        case Choice(test=test, yes=yes, no=no):  # prefer the loads of the values to those of the test
            return [found for each in (yes, no) for found in _cells(each, tensor, path)] or _cells(test, tensor, path)
        case Recurrence(term=inner):
            return _cells(inner, tensor, path)
        case Cases(parts=parts):
            limited = [(path.intersect_range(region), inner) for region, inner in parts]
            return _aligned([_cells(t, tensor, p) for p, t in limited if not (isinstance(t, Constant) or p.is_empty())])
        case Reduce(parts=parts):
            return _aligned([_cells(inner, tensor, path.apply_range(along)) for along, inner in parts])
        case _:
            return []


def loaded_cells(term: Term, path: UnionMap) -> UnionMap | None:
    """Return {point -> cell} of a term that is a tensor's element wherever the path leads; None for any other term."""
    match term:
        case Load(cells=cells):
            return path.apply_range(cells)
        case Via(along=along, term=inner):
            return loaded_cells(inner, path.apply_range(along))
        case Cases(parts=parts):
            limited = [(path.intersect_range(region), inner) for region, inner in parts]
            each = [loaded_cells(inner, p) for p, inner in limited if not p.is_empty()]
            known = [cells for cells in each if cells is not None]
            return reduce(UnionMap.union, known, empty_map()) if len(known) == len(each) else None
        case _:
            return None


def _aligned(each: list[list[UnionMap]]) -> list[UnionMap]:
    """Join the loads of several parts of a term in order; return none if the parts have different numbers of loads."""
    if len({len(found) for found in each}) > 1:
        return []
    return [reduce(UnionMap.union, same).coalesce() for same in zip(*each, strict=True)]


def _factors(part: isl.Map) -> list[isl.Map]:
    """Return the indices of a cell one by one if it is addressed through index data; else the cell as a whole."""
    if not part.range_is_wrapping():
        return [part]
    return [*_factors(part.range_factor_domain()), *_factors(part.range_factor_range())]


def _project(cells: UnionMap, tensor: str, place: tuple[int, ...]) -> UnionMap:
    """Return {root -> [index of the cell at `place`]} where that index is a number, which index data are not."""
    result = empty_map()
    for part in map_parts(cells):
        name = part.get_tuple_name(isl.dim_type.out)
        if name in (identifier(tensor), index_data(tensor)) and not part.range_is_wrapping():
            one = _coordinate(part, place[0]) if len(place) == 1 else empty_map()
        else:
            factors = _factors(part)
            factor = factors[place[0]] if place[0] < len(factors) else None
            if factor is None or factor.has_tuple_name(isl.dim_type.out) != (len(place) > 1):
                one = empty_map()
            else:
                one = _coordinate(factor, place[1]) if len(place) > 1 else factor.to_union_map()
        result = result.union(one)
    return result


def _coordinate(part: isl.Map, dim: int) -> UnionMap:
    """Return {root -> [coordinate dim]} of {root -> t[...]}."""
    name, rank = part.get_tuple_name(isl.dim_type.out), part.dim(isl.dim_type.out)
    dims = ", ".join(f"x{i}" for i in range(rank))
    return part.to_union_map().apply_range(isl.UnionMap(f"{{ {name}[{dims}] -> [x{dim}] }}"))


def index_data(tensor: str) -> str:
    """Return the tuple name of index data that are loaded from a tensor."""
    return f"data_{identifier(tensor)}"
