"""Lower tile IR to explicit IR by a sequence of passes."""

from __future__ import annotations

from dataclasses import replace

from argus.ir.nodes import Kernel
from argus.ir.promise import without_promises
from argus.ir.target import TARGETS
from argus.passes.allocate import allocate_shared
from argus.passes.assign import assign_layouts
from argus.passes.bulk_stores import store_in_bulk
from argus.passes.conditions import ask_once_a_vector, trust_the_grid
from argus.passes.held import hold_operands
from argus.passes.interleave import interleave
from argus.passes.late_sums import sum_behind_loops
from argus.passes.matrix import choose_matrix_instructions
from argus.passes.one_block import run_as_one_block
from argus.passes.persist import persist
from argus.passes.pipeline import pipeline
from argus.passes.reduce import split_reductions
from argus.passes.registers import check_registers
from argus.passes.report import LoweringError, problem
from argus.passes.roles import Pass, by_role
from argus.passes.scan import expand_scans
from argus.passes.select import select_instructions
from argus.passes.senders import send_apart
from argus.passes.slices import slice_products
from argus.passes.specialise import specialise
from argus.passes.spread import spread_copies
from argus.passes.staging import stage_tiles
from argus.passes.through_registers import copy_through_registers
from argus.passes.tiles import lay_out_tiles

PASSES: tuple[Pass, ...] = (
    specialise,  # pipelined loops with producer warps: roles, bulk copies, asynchronous products
    persist,  # persistent grids: the programs of each role
    by_role(choose_matrix_instructions),  # mma: instruction, warps
    hold_operands,  # stage: operands that stay in registers
    lay_out_tiles,  # shared tiles: layout
    pipeline,  # pipelined loops: buffers, copies, waits, barriers
    by_role(stage_tiles),  # stage: copies, barriers
    copy_through_registers,  # memory to memory: two copies
    store_in_bulk,  # roles: results through panels of shared memory
    send_apart,  # roles: results of loops, sent by a warp of their own
    by_role(assign_layouts),  # registers: layout of tiles and statements, moves between layouts
    by_role(slice_products),  # mma: operands in registers
    by_role(spread_copies),  # pipelined loops: copies between products
    by_role(expand_scans),  # scan: registers, lanes, warps
    by_role(split_reductions),  # accumulate: thread, warp, block
    by_role(sum_behind_loops),  # sums that loops carry: exchanges between lanes behind the loop
    trust_the_grid,  # where, masks: what the grid says
    by_role(ask_once_a_vector),  # where, masks: the same for a vector
    by_role(select_instructions),  # copies: instruction, vector
    interleave,  # gfx942: hints on what stands between products
    allocate_shared,  # shared tiles: offset
    check_registers,
    run_as_one_block,  # clusters where the target has none
)
"""# The passes in order. After each pass, the kernel is well-formed tile IR; after the last one, explicit IR."""


def lower(kernel: Kernel, target: str) -> Kernel:
    """Return the explicit form of `kernel` on `target`, a name in `TARGETS`.

    Explicit statements are left unchanged. Raises `LoweringError` with everything that the failing pass found:
    instructions that the target does not have, shapes that no instruction takes, shared memory or registers that do not
    suffice, block-wide steps in divergent branches.
    """
    kernel = for_target(kernel, target)
    for run in PASSES:
        kernel = run(kernel)
    return kernel


def for_target(kernel: Kernel, target: str) -> Kernel:
    """Return `kernel` with its target set, and NaN kept where that costs nothing. Raises an error if the target cannot
    run it."""
    machine = TARGETS.get(target)
    if machine is None:
        names = ", ".join(TARGETS)
        raise LoweringError(problem("unknown-target", f"there is no target {target}", kernel.span, f"one of {names}"))
    if machine.warp_size != kernel.warp_size:
        what = f"{kernel.name} was checked for warps of {kernel.warp_size} threads; {target} has {machine.warp_size}"
        raise LoweringError(problem("warp-size", what, kernel.span, f"check the kernel with the target {target}"))
    if kernel.num_threads > machine.max_threads:
        what = f"{kernel.num_threads} threads are too many for a block of {target}, which has {machine.max_threads}"
        raise LoweringError(problem("block-size", what, kernel.span, "use fewer warps"))
    kernel = kernel if machine.vendor == "amd" else without_promises(kernel)
    return replace(kernel, target=target)
