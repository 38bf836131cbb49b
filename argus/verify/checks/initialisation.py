"""Initialisation: every register and shared cell that is read was written before, in every iteration.

`races` checks that the write is also *visible* to the reader.
"""

from __future__ import annotations

from argus.diagnostic import Note, Verdict
from argus.ir.nodes import Fragment, Shared
from argus.verify.findings import Finding, place_of, unknown
from argus.verify.model.flow import Flow
from argus.verify.model.isl import isl, map_parts, set_parts, smallest
from argus.verify.model.program import Site
from argus.verify.model.relations import Model
from argus.verify.values.data_flow import DataFlow, writes


def check(model: Model, data: DataFlow) -> list[Finding]:
    """Find reads of cells that may not have been written, and reads of cells that another tile has overwritten."""
    findings: list[Finding] = []
    objects: tuple[Fragment | Shared, ...] = (*model.kernel.fragments, *model.kernel.shared)
    for obj in objects:
        flow = data.value_flow(obj.name)
        if not flow.uncovered.is_empty():
            findings += _uncovered(model, obj, flow)
        if model.aliases(obj.name):
            findings += _overwritten(model, obj, flow)
    return findings


def _overwritten(model: Model, obj: Fragment | Shared, flow: Flow) -> list[Finding]:
    """Find a read that gets its value from a write to another tile with the same bytes."""
    for part in map_parts(flow.sources):
        source = model.sites[int((part.get_tuple_name(isl.dim_type.out) or "S0")[1:])]
        if writes(source, obj.name):
            continue
        sink = part.get_tuple_name(isl.dim_type.in_) or ""
        site = _reader(model, sink)
        if int(sink.split("_")[1]) >= len(site.accesses):
            continue  # a tag statement, which the machine never carries out
        return [
            Finding(
                "overwritten-read",
                "initialisation",
                Verdict.REFUTED,
                f"shared tile '{obj.name}' is read after a tile that shares its bytes was written",
                site.stmt.span,
                label="reads another tile's data",
                notes=(Note("written here", source.stmt.span),),
                help="give the tiles byte ranges of their own, or write the tile again before this read",
                place=place_of(model.kernel, smallest(part.domain()), site),
            )
        ]
    return []


def _reader(model: Model, sink: str) -> Site:
    return model.sites[int(sink[1:].split("_")[0])]


def _uncovered(model: Model, obj: Fragment | Shared, flow: Flow) -> list[Finding]:
    findings = []
    space = "registers" if isinstance(obj, Fragment) else "shared tile"
    for part in set_parts(flow.uncovered):
        point = smallest(part)
        site = _reader(model, point.name)
        message = f"{space} '{obj.name}' read before anything was written there"
        help = f"write '{obj.name}' (al.zeros, al.load, al.copy) on every path that leads here"
        if not flow.exact:
            text = f"cannot decide whether {space} '{obj.name}' is written before it is read: {flow.reason}"
            findings.append(unknown("initialisation-unknown", "initialisation", site.stmt.span, text, help))
            continue
        findings.append(
            Finding(
                "uninitialised-read",
                "initialisation",
                Verdict.REFUTED,
                message,
                site.stmt.span,
                label="reads what nothing wrote",
                help=help,
                place=place_of(model.kernel, point, site),
                arrived="⊥ (never written)",
            )
        )
    return findings
