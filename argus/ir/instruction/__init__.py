"""Instruction tables: one table for each vendor, one row for each instruction. A new instruction needs a row and a
test."""

from argus.ir.instruction.amd import AMD
from argus.ir.instruction.nvidia import NVIDIA
from argus.ir.instruction.row import (
    BarrierRow,
    CopyRow,
    Ends,
    Law,
    Mechanism,
    MmaRow,
    Order,
    ReduceRow,
    Row,
    StepRow,
    WgmmaRow,
)

INSTRUCTIONS: dict[str, CopyRow] = {r.name: r for r in (*NVIDIA, *AMD) if isinstance(r, CopyRow)}
"""Copy instructions of all targets, by name."""

_BULK = tuple(r for r in INSTRUCTIONS.values() if r.mechanism is Mechanism.BULK)

BULK_LOADS = frozenset(r.name for r in _BULK if r.dst == "shared")
"""Loads of boxes by the copy engine, whose bytes mbarriers count."""

LOAD, LOAD_PIXELS = (next(r.name for r in _BULK if r.dst == "shared" and r.pixels == p) for p in (False, True))
"""The loads by the copy engine of boxes, and of columns of pixels, to one block."""

MULTICASTS = frozenset(r.name for r in _BULK if r.multicast)
"""Loads by the copy engine that deliver a box to several blocks of a cluster."""

BULK_STORES = frozenset(r.name for r in _BULK if r.src == "shared")
"""Stores of boxes by the copy engine, in bulk groups."""

REDUCES: dict[str, ReduceRow] = {r.name: r for r in NVIDIA if isinstance(r, ReduceRow)}
"""Updates of tensors by the copy engine: boxes, in bulk groups like its stores."""

MMA: dict[str, MmaRow] = {r.name: r for r in (*NVIDIA, *AMD) if isinstance(r, MmaRow)}
"""Matrix instructions of all targets, by name."""

WGMMA: dict[str, WgmmaRow] = {r.name: r for r in NVIDIA if isinstance(r, WgmmaRow)}
"""Warpgroup matrix instructions, by name."""

BARRIERS: dict[str, BarrierRow] = {r.name: r for r in NVIDIA if isinstance(r, BarrierRow)}
"""Instructions on named barriers, by name."""

STEPS: dict[str, StepRow] = {r.name: r for r in AMD if isinstance(r, StepRow)}
"""Waits and hints of AMD's waves, by name."""

__all__ = [
    "BARRIERS", "BULK_LOADS", "BULK_STORES", "INSTRUCTIONS", "LOAD", "LOAD_PIXELS", "MMA", "MULTICASTS", "REDUCES",
    "STEPS", "WGMMA", "BarrierRow", "CopyRow", "Ends", "Law", "Mechanism", "MmaRow", "Order", "ReduceRow", "Row",
    "StepRow", "WgmmaRow",
]  # fmt: skip
