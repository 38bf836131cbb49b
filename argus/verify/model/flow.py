"""Data-flow: the instances whose values reach the reads of one memory object."""

from __future__ import annotations

from dataclasses import dataclass

from argus.ir.access import Mode
from argus.verify.model.isl import UnionMap, UnionSet, empty_map, isl, map_parts
from argus.verify.model.program import Site
from argus.verify.model.relations import Cells, Model


@dataclass(frozen=True)
class Flow:
    """The instances whose values reach the reads of one object.

    `sources` maps sink instances to source instances: the last write, and all accumulations since that write.
    Sinks are named `R<site>_<access>`, sources `S<site>`. `uncovered` are the sinks that no write precedes. Tag
    statements are left out of `uncovered`, because the machine never reads for them. `exact`: all accesses are known
    exactly. `written`: all writes are known exactly; the sources of an exactly known read are then known too.
    """

    sources: UnionMap
    uncovered: UnionSet
    exact: bool
    written: bool
    reason: str


def sink_name(site: Site, number: int) -> str:
    """Return the name of a read's instance space."""
    return f"R{site.index}_{number}"


def data_flow(model: Model, accesses: list[Cells], clobbers: list[Cells]) -> Flow:
    """Exact array data-flow over one object's accesses (Feautrier 1991; isl's `compute_flow`).

    Inexact reads of tag statements do not make the result inexact, since they change nothing for other statements.
    Accumulations are may-sources: the last write and all accumulations since then reach a read. `clobbers`, the
    writes to tiles that share the object's bytes, are may-sources too. The flow is computed for all values of the
    parameters, with few constraints, and then restricted to the context.
    """
    empty = empty_map()
    sinks, reads, musts, mays, schedule = empty, empty, empty, empty, empty
    exact, known, reason = True, True, ""
    for cells in accesses:
        site, mode = cells.site, cells.relation.mode
        by_machine = cells.number < len(site.accesses)
        if not cells.exact and by_machine:
            exact, known, reason = False, known and mode is Mode.READ, cells.reason
        own = model.schedule(site)
        if mode is not Mode.WRITE:
            name = sink_name(site, cells.number)
            sink = cells.bare.set_tuple_name(isl.dim_type.in_, name).to_union_map()
            sinks, reads = sinks.union(sink), reads.union(sink) if by_machine else reads
            schedule = schedule.union(own.set_tuple_name(isl.dim_type.in_, name).to_union_map())
        if mode is Mode.WRITE and cells.exact:
            musts = musts.union(cells.bare.to_union_map())
        elif mode is not Mode.READ:
            mays = mays.union(cells.bare.to_union_map())
        if mode is not Mode.READ:
            schedule = schedule.union(own.to_union_map())
    for cells in clobbers:
        mays = mays.union(cells.bare.to_union_map())
        schedule = schedule.union(model.schedule(cells.site).to_union_map())
    info = isl.UnionAccessInfo.from_sink(sinks).set_must_source(musts).set_may_source(mays)
    sources = info.set_schedule_map(schedule).compute_flow().get_may_dependence().reverse()
    if model.persistent:  # values left by another program of the block do not count as written in this program
        sources = _within_program(sources)
    written = sources.intersect_range(musts.domain()).domain()
    uncovered = reads.domain().subtract(written).intersect_params(model.context.set)
    return Flow(sources.intersect_params(model.context.set), uncovered, exact, known, reason)


def _within_program(pairs: UnionMap) -> UnionMap:
    """Return the pairs of instances in the same program of the block: their first counter, the program number, is
    equal."""
    result = empty_map()
    for part in map_parts(pairs):
        result = result.union(part.equate(isl.dim_type.in_, 0, isl.dim_type.out, 0).to_union_map())
    return result
