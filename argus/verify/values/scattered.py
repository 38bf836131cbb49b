"""Sums at places that an index tensor holds: what blocks add at `out[at[p], d]`.

`al.spec(out, lambda t, d: al.sum(lambda p: al.where(at[p] == t, y[p, d], 0.0)))` adds each `y[p, d]` in row `at[p]`.
The blocks therefore compute it if they add `y[p, d]` once for each p and d, in row `at[p]`. If the output has no row
`at[p]`, nothing is specified, and the blocks may leave `y[p, d]` out. Elsewhere in the specification `t` is `at[p]`:
`& (t != 0)` means `at[p] != 0`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce

from argus.ir.expr import Const, Coord, Elem, Expr, Op, Param
from argus.ir.nodes import Accumulate, SpecOp, SpecReduce, SpecTerm
from argus.ir.spec_terms import renumbered, strip, substituted
from argus.ir.types import boolean, int32
from argus.verify.model.formulas import Tuple, between, facts
from argus.verify.model.isl import UnionMap, isl, map_parts
from argus.verify.model.program import PROGRAM, Site, turns
from argus.verify.model.resolving import loaded
from argus.verify.values.data_flow import DataFlow
from argus.verify.values.scope import Mismatch
from argus.verify.values.stated import ROOT
from argus.verify.values.terms import index_data


@dataclass(frozen=True)
class Scatter:
    """A sum by places: the `index` tensor holds the numbers along one `axis` of the output.

    `extents`: those of the index tensor. `value`: what is added, over the other axes of the output and then over the
    places in the index tensor.
    """

    axis: int
    index: str
    extents: tuple[Expr, ...]
    value: SpecTerm


def scattered(value: SpecTerm, rank: int) -> Scatter | None:
    """Return the parts of a specified sum at places that an index tensor holds; None for another specification."""
    sums: list[SpecReduce] = []
    inner = strip(value)
    while isinstance(inner, SpecReduce) and inner.op == "add":
        sums.append(inner)
        inner = strip(inner.body)
    if not (isinstance(inner, (Op, SpecOp)) and inner.op == "where" and _zero(inner.args[2])):
        return None
    bound = {each.axis: each for each in sums}
    tests = list(_conditions(inner.args[0]))
    for test in tests:
        found = _place(test, rank, bound)
        if found is None:
            continue
        axis, elem, axes = found
        left: SpecTerm = inner.args[1]
        for other in tests:
            left = left if other is test else SpecOp("where", (other, left, inner.args[2]), inner.dtype)
        left = substituted(left, axis, _as_place(elem))
        for each in reversed(sums):
            left = left if each.axis in axes else replace(each, body=left)
        free = [a for a in range(rank) if a != axis] + axes
        extents = tuple(bound[a].extent for a in axes)
        return Scatter(axis, elem.obj, extents, renumbered(left, {a: at for at, a in enumerate(free)}))
    return None


def _as_place(elem: Elem) -> Expr:
    """Return the element as a number along an axis, which it is equal to where it is added."""
    return elem if elem.dtype == int32 else Op("cast", (elem,), int32)


def _zero(term: SpecTerm) -> bool:
    return isinstance(term, Const) and not term.value


def _conditions(test: SpecTerm) -> Iterator[SpecTerm]:
    if isinstance(test, (Op, SpecOp)) and test.op == "and" and test.dtype == boolean:
        for each in test.args:
            yield from _conditions(each)
    else:
        yield test


def _place(test: SpecTerm, rank: int, bound: dict[int, SpecReduce]) -> tuple[int, Elem, list[int]] | None:
    """Return the axis of the output, the element and its bound axes of a test `index[p] == t`."""
    if not (isinstance(test, (Op, SpecOp)) and test.op == "eq"):
        return None
    for elem, coord in (test.args, test.args[::-1]):
        elem, coord = strip(elem), strip(coord)
        if not (isinstance(elem, Elem) and isinstance(coord, Coord) and coord.axis < rank):
            continue
        axes = [e.axis for e in elem.index if isinstance(e, Coord) and e.axis in bound]
        if len(axes) == len(elem.index) == len(set(axes)):
            return coord.axis, elem, axes
    return None


def touched(data: DataFlow, site: Site, number: int, scatter: Scatter) -> UnionMap:
    """Return {instance -> place} of a statement's contributions. A place is that of the other axes of the output, and
    then that in the index tensor."""
    if not isinstance(site.stmt, Accumulate) or turns(site.role) > 1 or PROGRAM in site.iterators:
        raise Mismatch("it is not accumulated into by a plain statement")
    relation = site.accesses[number]
    each = [data.image(site, index) for axis, index in enumerate(relation.index) if axis != scatter.axis]
    each.append(_read(data, site, relation.index[scatter.axis], scatter))
    domain = data.model.domain(site)[0].to_union_set()
    if relation.guard is not None:
        domain = domain.intersect(data.where(site, relation.guard))
    together = reduce(UnionMap.flat_range_product, each).intersect_domain(domain)
    return isl.Map.from_union_map(together).set_tuple_name(isl.dim_type.out, ROOT).to_union_map()


def inside(data: DataFlow, stores: Iterable[tuple[Site, int]], scatter: Scatter) -> isl.Set:
    """Return the parameters at which all indices that were loaded for a program are places of the output."""
    model, found = data.model, facts(())
    for site, number in stores:
        relation = site.accesses[number]
        index = model.resolve(site, relation.index[scatter.axis])
        if isinstance(index, Param):
            tensor = next(t for t in model.kernel.tensors if t.name == relation.obj)
            extent = model.translator.integer(tensor.shape[scatter.axis], ())
            place = model.translator.integer(index, ())
            found = found.intersect(model.facts(between(place, "0", extent)))
    return found.params()


def _read(data: DataFlow, site: Site, index: Expr, scatter: Scatter) -> UnionMap:
    """Return {instance -> place in the index tensor} of an index that was read there."""
    model = data.model
    index = model.resolve(site, index)
    names = {name: access for access, name in loaded(model.sites).items()}
    if isinstance(index, Param) and index.name in names and names[index.name].obj == scatter.index:
        coords = model.coords(len(site.shape))
        place = Tuple([model.translator.integer(e, coords) for e in names[index.name].index])
        return model.relation(model.instance(site, coords), place).to_union_map()
    image = data.image(site, index)
    parts = map_parts(image)
    last = len(scatter.extents)
    if any(
        part.get_tuple_name(isl.dim_type.out) != index_data(scatter.index)
        or not part.is_subset(part.fix_val(isl.dim_type.out, last, 0))
        for part in parts
    ):
        raise Mismatch(f"it is accumulated into at other places than '{scatter.index}' holds")
    places = (part.project_out(isl.dim_type.out, last, 1) for part in parts)
    return reduce(UnionMap.union, (part.set_tuple_name(isl.dim_type.out, "").to_union_map() for part in places))
