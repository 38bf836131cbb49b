"""Loads of AMD's waves straight into LDS: what the hardware fixes about them, and the rules that explicit IR keeps.

A load to LDS takes no address of the target from its lanes: lane l of a wave writes four bytes at M0 + 4 * l, whatever
it read. So the cells of each instruction are one run of 256 bytes (64 lanes), in the order of lanes. Such loads of one
wave complete in the order of issue, and the wave counts those that have not (CDNA3 ISA, data dependency resolution:
vmcnt; memory loads to LDS: M0). Other vector memory instructions, of the compiler's making, share the counter: that
makes a wait longer, never shorter, since a load that is not complete keeps every younger load to LDS from completing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from argus.ir.instruction import INSTRUCTIONS, CopyRow, Order
from argus.ir.nodes import Copy, SchedGroup, Stmt, WaitCounts, WavePriority, WaveStep
from argus.source import Span

LARGEST_VM, LARGEST_LGKM = 63, 15
"""Of the counters' fields in s_waitcnt (CDNA3 ISA, s_waitcnt)."""
_KINDS = 0x7FF
"""All kinds of instructions that `SchedGroup.mask` names (LLVM, llvm.amdgcn.sched.group.barrier)."""

Problem = tuple[str, Span]


def counted(stmt: Stmt) -> bool:
    """Whether the statement's accesses complete by vmcnt."""
    return isinstance(stmt, Copy) and stmt.instr in INSTRUCTIONS and INSTRUCTIONS[stmt.instr].order is Order.VMCNT


def loads_to_lds(stmt: Stmt) -> int:
    """How many instructions each wave issues for a copy of explicit IR that completes by vmcnt; 0 for any other."""
    if not counted(stmt):
        return 0
    assert isinstance(stmt, Copy) and stmt.layout is not None
    return stmt.layout.num_values // stmt.vector


def in_lane_order(addresses: NDArray[np.int64], warp_size: int) -> NDArray[np.bool_]:
    """bool `[U, W, I]` of byte addresses `[U, T, I]`: whether the lanes of warp w write one run at instruction i."""
    lanes = addresses.reshape(addresses.shape[0], -1, warp_size, addresses.shape[-1])
    wanted = lanes[:, :, :1] + 4 * np.arange(warp_size)[:, None]
    return np.asarray((lanes == wanted).all(axis=2))


def load_to_lds(stmt: Copy, row: CopyRow) -> Iterator[Problem]:
    """Every thread issues every instruction, or waves would count differently; what is masked is filled with zeros."""
    assert stmt.layout is not None
    if not stmt.layout.primary().all():
        yield f"{row.name} needs a layout without replicas: every lane of every wave takes part", stmt.span
    if stmt.mask is not None and (stmt.other is None or stmt.other.value != 0):
        yield f"{row.name} writes in every lane: masked elements need `other` 0", stmt.span


def wave_step(stmt: WaveStep) -> Iterator[Problem]:
    """The operands are in the instruction's range."""
    match stmt:
        case WaitCounts(vm=vm, lgkm=lgkm):
            if vm is None and lgkm is None:
                yield "a wait names a counter", stmt.span
            for name, value, most in (("vmcnt", vm, LARGEST_VM), ("lgkmcnt", lgkm, LARGEST_LGKM)):
                if value is not None and not 0 <= value <= most:
                    yield f"{name} counts from 0 to {most}: {value} is none", stmt.span
        case WavePriority(level=level) if not 0 <= level <= 3:
            yield f"a priority is 0 to 3, not {level}", stmt.span
        case SchedGroup(mask=mask, size=size, sync=sync):
            if mask <= 0 or mask & ~_KINDS or size < 1 or sync < 0:
                yield f"a group of {size} instructions of the kinds {mask} with the number {sync} is none", stmt.span
        case _:
            pass

