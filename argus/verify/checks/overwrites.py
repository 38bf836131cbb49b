"""Several writes of one cell by one statement. Its elements are simultaneous, so none of the writes is the last.

A statement that writes a cell for two of its elements is refused, unless both values are the same by construction: the
same operations on the same constants, sizes and cells. So data-flow, simulator and emitter may process the elements of
a statement in any order. Two threads that write one cell are a race (`races`). Elements of an output that are written
twice are reported by `coverage`.
"""

from __future__ import annotations

import numpy as np

from argus.diagnostic import Verdict
from argus.ir.access import Mode, Relation
from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, Thread, op, walk
from argus.ir.locality import cells
from argus.ir.nodes import Copy, Fragment, Map, Tensor
from argus.verify.checks.meetings import never_meet
from argus.verify.findings import Finding, place_of, unknown
from argus.verify.model.isl import Map as Pairs
from argus.verify.model.isl import isl, smallest
from argus.verify.model.program import Site
from argus.verify.model.relations import Model
from argus.verify.model.resolving import only_writer
from argus.verify.model.translator import NonAffine, identifier

_HELP = "give each element a cell of its own, or keep one element of each cell: reduce the others away before the store"


def check(model: Model) -> list[Finding]:
    """Find statements that may write one cell for two of their elements with different values."""
    outputs = _outputs(model)
    findings = []
    for site in model.sites:
        for number, relation in enumerate(site.accesses):
            if relation.mode is Mode.WRITE and relation.obj not in outputs and not _one_to_one(model, relation):
                findings += _overwrites(model, site, number)
    return findings


def _outputs(model: Model) -> set[str]:
    """Return the tensors that are only written. `coverage` checks that none of their elements is written twice."""
    modes: dict[str, set[Mode]] = {}
    for site in model.sites:
        for relation in site.accesses:
            if isinstance(model.kernel.object(relation.obj), Tensor):
                modes.setdefault(relation.obj, set()).add(relation.mode)
    return {name for name, found in modes.items() if found == {Mode.WRITE}}


def _one_to_one(model: Model, relation: Relation) -> bool:
    """Return True if the form of an index, or its table of registers, shows that each element has its own cell."""
    told = {axis for e in relation.index if (axis := _axis(e)) is not None}
    if all(axis in told for axis, extent in enumerate(relation.shape) if extent > 1):
        return True
    obj = model.kernel.object(relation.obj)
    if not isinstance(obj, Fragment) or relation.layout is None:
        return False
    table = cells(relation.index, obj.shape, relation.layout)
    if table is None:
        return True  # `ownership` reports that such a register has no address
    element = relation.layout.linear()
    written = np.stack([np.broadcast_to(table, element.shape), element], axis=-1)
    threads = np.broadcast_to(np.arange(len(element))[:, None, None], (*element.shape, 1))
    distinct = np.unique(np.concatenate([threads, written], axis=-1).reshape(-1, 3), axis=0)
    distinct = distinct[distinct[:, 1] >= 0]
    return len(np.unique(distinct[:, :2], axis=0)) == len(distinct)


def _axis(index: Expr) -> int | None:
    """Return the axis of the domain on which an index depends one to one; None if there is no such axis."""
    match index:
        case Coord(axis=axis):
            return axis
        case Op(op="add", args=(a, b)) if not _by_element(b):
            return _axis(a)
        case Op(op="add", args=(a, b)) if not _by_element(a):
            return _axis(b)
        case Op(op="sub", args=(a, b)) if not _by_element(b):
            return _axis(a)
        case Op(op="mul", args=(a, Const(value=value))) | Op(op="mul", args=(Const(value=value), a)) if value:
            return _axis(a)
        case Op(op="cast", args=(a,)) if (
            index.dtype.is_int and index.dtype.bits >= a.dtype.bits and not a.dtype.modular
        ):
            return _axis(a)
        case _:
            return None


def _by_element(expr: Expr) -> bool:
    return any(isinstance(e, Coord | Elem | Thread) for e in walk(expr))


def _overwrites(model: Model, site: Site, number: int) -> list[Finding]:
    name = site.accesses[number].obj
    what = f"two elements of this statement write one cell of '{name}', and their values may differ"
    try:
        own = model.cells(site, number)
        twice = own.map.apply_range(own.map.reverse())
        for position in range(len(site.iterators)):
            twice = twice.equate(isl.dim_type.in_, position, isl.dim_type.out, position)
        twice = twice.subtract(isl.Map.identity(twice.get_space()))
        if twice.is_empty():
            return []
        differing = twice.intersect(_differing(model, site, _value(model, site), twice))
        if differing.is_empty():
            return []
    except NonAffine as error:
        return [unknown("races-unknown", "races", site.stmt.span, f"cannot exclude: {what} ({error})", _HELP)]
    if not own.exact:
        if never_meet(model, own, own, blocks=False):
            return []
        return [unknown("races-unknown", "races", site.stmt.span, f"cannot exclude: {what} ({own.reason})", _HELP)]
    return [
        Finding(
            "cell-written-twice",
            "races",
            Verdict.REFUTED,
            what,
            site.stmt.span,
            label="elements of a statement are written in no order",
            help=_HELP,
            place=place_of(model.kernel, smallest(differing.domain()), site),
        )
    ]


def _value(model: Model, site: Site) -> Expr:
    """Return the value that a statement writes for an element."""
    match site.stmt:
        case Copy(src=src, mask=mask, other=other):
            loaded = Elem(src.obj, src.index, model.kernel.object(src.obj).dtype)
            return loaded if mask is None or other is None else op("where", mask, loaded, other)
        case Map(value=value):
            return value
        case _:
            raise NonAffine("the statement is no copy and computes nothing")


def _differing(model: Model, site: Site, value: Expr, pairs: Pairs) -> Pairs:
    """Return the pairs of instances at which a value may differ."""
    nowhere = isl.Map.empty(pairs.get_space())
    match value:
        case Const() | Param() | ProgramId() | LoopVar():
            return nowhere
        case Thread():
            return pairs
        case Elem():
            differing = _any(model, site, value.index, pairs)
            return differing if differing.is_empty() else _written(model, site, value, differing)
        case Coord():
            return _unequal(model, site, value, pairs)
        case Op(op="where", args=(condition, yes, no)):
            try:
                inside = model.where(site, condition)
            except NonAffine:
                return _any(model, site, value.args, pairs)
            outside = pairs.domain().union(pairs.range()).subtract(inside)
            both = pairs.intersect_domain(inside).intersect_range(inside)
            neither = pairs.intersect_domain(outside).intersect_range(outside)
            one = pairs.subtract(both).subtract(neither)
            return one.union(_differing(model, site, yes, both)).union(_differing(model, site, no, neither))
        case Op(args=args):
            differing = _any(model, site, args, pairs)
            if differing.is_empty():
                return nowhere
            try:
                if value.dtype.kind == "bool":
                    inside = model.where(site, value)
                    outside = pairs.domain().union(pairs.range()).subtract(inside)
                    here = differing.intersect_domain(inside).intersect_range(outside)
                    return here.union(differing.intersect_domain(outside).intersect_range(inside))
                return _unequal(model, site, value, differing) if value.dtype.is_int else differing
            except NonAffine:
                return differing
        case _:
            return pairs


def _written(model: Model, site: Site, read: Elem, pairs: Pairs) -> Pairs:
    """Return the pairs at which two elements of a register tile may differ, by the values that its only writer wrote.
    """
    obj = model.kernel.object(read.obj)
    writer = only_writer(model.sites, site, read.obj) if isinstance(obj, Fragment) else None
    if writer is None or not isinstance(writer.stmt, Copy | Map):
        return pairs
    number = next(n for n, access in enumerate(writer.accesses) if access.mode is Mode.WRITE)
    written = model.cells(writer, number)
    if not written.exact or written.relation.guard is not None:
        return pairs
    cell = model.image(site, read.index, identifier(read.obj))
    to = cell.apply_range(written.map.reverse())
    for position in range(len(writer.iterators)):
        to = to.equate(isl.dim_type.in_, position, isl.dim_type.out, position)
    if not pairs.domain().union(pairs.range()).is_subset(to.domain()):
        return pairs
    inner = to.reverse().apply_range(pairs).apply_range(to)
    differing = _differing(model, writer, _value(model, writer), inner)
    return pairs.intersect(to.apply_range(differing).apply_range(to.reverse()))


def _any(model: Model, site: Site, values: tuple[Expr, ...], pairs: Pairs) -> Pairs:
    """Return the pairs at which at least one of several values may differ."""
    found = isl.Map.empty(pairs.get_space())
    for value in values:
        found = found.union(_differing(model, site, value, pairs))
    return found


def _unequal(model: Model, site: Site, value: Expr, pairs: Pairs) -> Pairs:
    """Return the pairs at which an integer that is affine in the coordinates differs."""
    of = model.image(site, (value,))
    return pairs.subtract(of.apply_range(of.reverse()))
