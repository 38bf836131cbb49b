"""Instructions are data: one table per vendor, one row per instruction. Adding one is adding a row and its test."""

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
"""Loads by the copy engine: of boxes, which mbarriers count."""

MULTICASTS = frozenset(r.name for r in _BULK if r.multicast)
"""Loads by the copy engine that reach several blocks of a cluster."""

BULK_STORES = frozenset(r.name for r in _BULK if r.src == "shared")
"""Stores by the copy engine: of boxes, in bulk groups."""

REDUCES: dict[str, ReduceRow] = {r.name: r for r in NVIDIA if isinstance(r, ReduceRow)}
"""Updates of tensors by the copy engine: of boxes, in bulk groups like its stores."""

MMA: dict[str, MmaRow] = {r.name: r for r in (*NVIDIA, *AMD) if isinstance(r, MmaRow)}
"""Matrix instructions of all targets, by name."""

WGMMA: dict[str, WgmmaRow] = {r.name: r for r in NVIDIA if isinstance(r, WgmmaRow)}
"""Warpgroup matrix instructions, by name."""

BARRIERS: dict[str, BarrierRow] = {r.name: r for r in NVIDIA if isinstance(r, BarrierRow)}
"""Instructions on named barriers, by name."""

STEPS: dict[str, StepRow] = {r.name: r for r in AMD if isinstance(r, StepRow)}
"""What waves wait for and are told, by name."""

__all__ = [
    "BARRIERS", "BULK_LOADS", "BULK_STORES", "INSTRUCTIONS", "MMA", "MULTICASTS", "REDUCES", "STEPS", "WGMMA",
    "BarrierRow", "CopyRow", "Ends", "Law", "Mechanism", "MmaRow", "Order", "ReduceRow", "Row", "StepRow", "WgmmaRow",
]  # fmt: skip
