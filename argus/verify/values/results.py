"""Values that a kernel stores, known by the elements that hold them in the end, where specifications name these.

In `al.spec(u, lambda t: v[t] - al.sum(lambda s: al.where(s < t, a[t, s] * u[s], 0.0)))`, `u[s]` is what the kernel
stores there. The specification is an equation for the final contents of `u`. It is proved as such: wherever the kernel
computes with a value that it also stores to `u[s]`, unrounded, the value's term is the element `u[s]`. Each element is
stored once, which `coverage` proves, so both are the same number.

An equation such as `u[t] = u[t]` says nothing. Hence a specified element may only need elements that come before it, in
an order of all elements without cycles. Then there is exactly one solution.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from argus.ir.access import Mode
from argus.ir.nodes import Copy, Map, Spec, Tensor
from argus.ir.own_results import own_results
from argus.ir.spec_terms import elements_of
from argus.ir.visit import walk
from argus.verify.model.flow import sink_name
from argus.verify.model.isl import UnionMap, empty_map, isl, map_parts
from argus.verify.model.program import Site
from argus.verify.model.translator import identifier
from argus.verify.values.data_flow import DataFlow, writes
from argus.verify.values.terms import Apply, Cases, Choice, Load, Recurrence, Reduce, Term, Via


class Results:
    """The statements whose values an output holds in the end."""

    def __init__(self, data: DataFlow) -> None:
        self.data, self.model = data, data.model
        self.outputs = own_results(data.model.kernel)

    def held(self, reader: Site, source: Site, along: UnionMap) -> Load | None:
        """Return the elements that hold values of `source`, as `reader` receives them. `Load.cells` has the instances
        whose values are held. `along`: {reader -> source}.

        None if no output holds them, or if `reader` itself stores them or passes them on to a store. What `reader`
        computes is stored by itself: it may need other elements than its own, if its specification names their tensor.
        """
        if not self.outputs or source.index not in self._held or self._stores(reader):
            return None
        known, own = self._held[source.index], self._held.get(reader.index)
        if own is None:
            return known
        if not isinstance(reader.stmt, Map) or known.tensor not in self._named[own.tensor]:
            return None
        return None if known.tensor == own.tensor and _meet(along.apply_range(known.cells), own.cells) else known

    @cached_property
    def _named(self) -> dict[str, set[str]]:
        """Return {output -> the tensors that its specification names}."""
        specs = (s for s in walk(self.model.kernel.body) if isinstance(s, Spec))
        return {s.output: {e.obj for e in elements_of(s.value)} for s in specs}

    def _stores(self, site: Site) -> bool:
        return any(a.obj in self.outputs and a.mode is Mode.WRITE for a in site.accesses)

    @cached_property
    def _held(self) -> dict[int, Load]:
        found: dict[int, tuple[str, UnionMap]] = {}
        for site in self.model.sites:
            for number, access in enumerate(site.accesses):
                cells = self.model.cells(site, number) if access.obj in self.outputs else None
                if cells is not None and cells.exact:
                    self._trace(site, access.obj, cells.map.to_union_map(), found)
        return {
            index: Load(output, cells.coalesce())
            for index, (output, cells) in found.items()
            if cells.is_single_valued() and self._apart(self.model.sites[index], cells)
        }

    def _apart(self, site: Site, cells: UnionMap) -> bool:
        """Return True unless only some values of a statement that continues its own earlier values are held: those are
        sums, whose terms are found as a whole."""
        carried = site.accesses[-1].obj in {a.obj for a in site.accesses[:-1]}
        return not carried or bool(self._written(site).is_subset(cells.domain()))

    def _trace(self, reader: Site, output: str, cells: UnionMap, found: dict[int, tuple[str, UnionMap]]) -> None:
        """Add {instance -> cell} for the statements that computed what a copy writes to cells of an output."""
        assert isinstance(reader.stmt, Copy)
        number = self.data.source_number(reader, reader.stmt)
        flow = self.data.value_flow(reader.stmt.src.obj)
        if not flow.written:
            return
        for part in map_parts(flow.sources):
            if part.get_tuple_name(isl.dim_type.in_) != sink_name(reader, number):
                continue
            along = part.set_tuple_name(isl.dim_type.in_, reader.name).to_union_map()
            source = self.model.sites[int(str(part.get_tuple_name(isl.dim_type.out))[1:])]
            if not (writes(source, reader.stmt.src.obj) and self._computes(source)):
                continue
            other, before = found.get(source.index, (output, empty_map()))
            if other != output:
                continue
            held = along.reverse().apply_range(cells)
            found[source.index] = output, before.union(held)
            if isinstance(source.stmt, Copy):
                self._trace(source, output, held, found)

    def _computes(self, site: Site) -> bool:
        """Return True for a statement that computes its value, or copies what another one computed."""
        if isinstance(site.stmt, Copy):
            return not isinstance(self.model.kernel.object(site.stmt.src.obj), Tensor)
        return isinstance(site.stmt, Map)

    def _written(self, site: Site) -> isl.UnionSet:
        return self.model.cells(site, len(site.accesses) - 1).map.domain().to_union_set()


def _meet(some: UnionMap, others: UnionMap) -> bool:
    return not some.intersect(others).is_empty()


def without_order(outputs: frozenset[str], specified: list[tuple[Spec, Term]]) -> str | None:
    """Return an output whose specification may need the same element again, or None if there is no such output.

    `specified`: the specifications of `outputs`, with their terms over `V0[...]`.
    """
    needed = empty_map()
    for spec, term in specified:
        roots = empty_map()
        for tensor, cells in _named(term, None):
            if tensor in outputs:
                roots = roots.union(cells)
        for part in map_parts(roots):
            needed = needed.union(part.set_tuple_name(isl.dim_type.in_, identifier(spec.output)).to_union_map())
    if needed.is_empty():
        return None
    every = needed.transitive_closure()[0]  # or more than that
    again = every.intersect(every.domain().identity())
    again = again.union(needed.intersect(needed.domain().identity()))
    return None if again.is_empty() else str(map_parts(again)[0].get_tuple_name(isl.dim_type.in_))


def _named(term: Term, path: UnionMap | None) -> Iterator[tuple[str, UnionMap]]:
    """Yield the tensors that a term reads, with {root -> cell}. `path`: {root -> instance of the term}."""
    match term:
        case Load(tensor=tensor, cells=cells):
            yield tensor, cells if path is None else path.apply_range(cells)
        case Via(along=along, term=inner):
            yield from _named(inner, along if path is None else path.apply_range(along))
        case Cases(parts=parts):
            for region, inner in parts:
                here = region.identity() if path is None else path.intersect_range(region)
                if not here.is_empty():
                    yield from _named(inner, here)
        case Reduce(parts=parts):
            for along, inner in parts:
                yield from _named(inner, along if path is None else path.apply_range(along))
        case Apply(args=args):
            for each in args:
                yield from _named(each, path)
        case Choice(test=test, yes=yes, no=no):
            for each in (test, yes, no):
                yield from _named(each, path)
        case Recurrence(term=inner):
            yield from _named(inner, path)
        case _:
            return
