"""Choose the instruction of every copy, and the number of elements that it moves at once.

    copy x[c0] = a[128 * pid(0) + c0]       ->  copy x[c0] = a[128 * pid(0) + c0]  instr ld.global  vector 4

A vector is as wide as layout, alignment, index and mask allow. A matrix load is chosen if the register layout fits it
and ordinary loads would be narrower.
"""

from __future__ import annotations

from dataclasses import replace

from argus.diagnostic import Diagnostic
from argus.ir.affine import Facts, facts
from argus.ir.instruction import INSTRUCTIONS, CopyRow, Mechanism
from argus.ir.nodes import Accumulate, Fragment, Kernel, Shared, Stmt, Tensor, ThreadCopy
from argus.ir.target import Target
from argus.ir.visit import rewrite_body
from argus.passes.layouts import in_order
from argus.passes.moves import (
    by_engine,
    lane_order,
    matrix_width,
    moves,
    near,
    select,
    space,
    target_of,
    vector_width,
    within_reach,
)
from argus.passes.report import LoweringError, problem

_WIDEST = 16


def select_instructions(kernel: Kernel) -> Kernel:
    """Fill in `instr` and `vector` of every copy; check the instructions that the author named."""
    known = facts(kernel)
    problems: list[Diagnostic] = []

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        result: Stmt | Diagnostic
        match stmt:
            case Accumulate() if by_engine(stmt):
                return None
            case ThreadCopy():
                result = _choose(kernel, stmt, known) if stmt.instr is None else _checked(kernel, stmt, known)
            case Accumulate(instr=str()):
                result = _atomic(kernel, stmt)
            case _:
                return None
        if isinstance(result, Diagnostic):
            problems.append(result)
            return None
        return (result,)

    body = rewrite_body(kernel.body, change)
    if problems:
        raise LoweringError(*problems)
    return replace(kernel, body=body)


def _choose(kernel: Kernel, copy: ThreadCopy, known: Facts) -> ThreadCopy | Diagnostic:
    assert copy.layout is not None
    name = select(kernel, copy)
    assert name is not None  # Copies between two places in memory were split earlier.
    row = INSTRUCTIONS[near(kernel, copy) or name]
    width = vector_width(kernel, copy, copy.layout, row, known)
    size = kernel.object(copy.src.obj).dtype.bytes
    target = target_of(kernel)
    matrices = moves(target).store_matrix if row.writes_memory else moves(target).load_matrix
    for matrix in (INSTRUCTIONS[m] for m in matrices if width * size < _WIDEST and not row.peer):
        found = _matrix(kernel, copy, matrix) if target.has(matrix) else 0
        if found > width:
            return replace(copy, instr=matrix.name, vector=found)
    if width == 0:
        return problem(
            "copy-width",
            f"{row.name} cannot move elements of {kernel.object(copy.src.obj).dtype}",
            copy.span,
            f"it moves {_sizes(row)} bytes at a time",
        )
    return replace(copy, instr=row.name, vector=width)


def _matrix(kernel: Kernel, copy: ThreadCopy, row: CopyRow) -> int:
    """Return the elements that each lane gets from the matrix move `row` for `copy`, or 0 if it does not fit."""
    memory, register = (copy.dst, copy.src) if row.writes_memory else (copy.src, copy.dst)
    tile, fragment = kernel.object(memory.obj), kernel.object(register.obj)
    if not isinstance(tile, Shared) or not isinstance(fragment, Fragment) or copy.mask is not None:
        return 0
    if copy.layout is None or fragment.layout is None:
        return 0
    width = matrix_width(tile, memory.index, copy.layout, row)
    return width if in_order(fragment.layout, copy.layout, register.index, width) else 0


def _checked(kernel: Kernel, copy: ThreadCopy, known: Facts) -> ThreadCopy | Diagnostic:
    """Return a copy with the instruction that the author named."""
    target = target_of(kernel)
    row = INSTRUCTIONS.get(copy.instr or "")
    if row is None or not target.has(row):
        there = ", ".join(r.name for r in INSTRUCTIONS.values() if target.has(r))
        known_elsewhere = "" if row is None else f"; it is one of {', '.join(row.architectures)}"
        code = "unknown-instruction" if row is None else "instruction-target"
        what = f"{target.name} has no copy instruction {copy.instr}{known_elsewhere}"
        return problem(code, what, copy.span, f"{target.name} has {there}")
    source, destination = kernel.object(copy.src.obj), kernel.object(copy.dst.obj)
    if (row.src, row.dst) != (space(source), space(destination)):
        return problem(
            "instruction-spaces",
            f"{row.name} moves data from {row.src} to {row.dst}, not from {space(source)} to {space(destination)}",
            copy.span,
            "name an instruction between these spaces, or leave it open",
        )
    return _fitted(kernel, copy, row, known)


def _fitted(kernel: Kernel, copy: ThreadCopy, row: CopyRow, known: Facts) -> ThreadCopy | Diagnostic:
    assert copy.layout is not None
    zero_fill = copy.mask is None or copy.other is None or copy.other.value == 0
    fills = row.mechanism is Mechanism.ASYNCHRONOUS
    if row.in_lane_order and copy.mask is not None and copy.other is None:
        what = f"{row.name} writes in every lane of a wave: it cannot leave masked elements as they are"
        return problem("instruction-fill", what, copy.span, "use other=0, or load to registers and store")
    if fills and not zero_fill:
        what = f"{row.name} fills masked elements with zero, not with {copy.other.value if copy.other else None}"
        return problem("instruction-fill", what, copy.span, "use other=0, or load to registers and store")
    if row.collective:
        rows = [row] if row.transposed else [r for r in INSTRUCTIONS.values() if r.call == row.call]
        for candidate in rows:
            width = _matrix(kernel, copy, candidate)
            if width:
                return replace(copy, instr=candidate.name, vector=width)
        way = "out of" if row.writes_memory else "into"
        what = f"{row.name} cannot bring tile {copy.src.obj} {way} the layout {copy.layout}"
        help_text = "each lane must hold 4 bytes of rows of 16 bytes: use a layout of tiled_mma, and aligned rows"
        return problem("instruction-layout", what, copy.span, help_text)
    if row.reach and not within_reach(kernel, copy, row):
        what = f"{row.name} reaches {row.reach} bytes from the tile's first element, and elements of it may lie further"
        help_text = "say `al.requires((0 <= x.stride(0)) & (x.stride(0) < n))`, or leave the instruction open"
        return problem("instruction-layout", what, copy.span, help_text)
    width = vector_width(kernel, copy, copy.layout, row, known)
    if width == 0:
        return problem(
            "instruction-alignment",
            f"{row.name} moves {_sizes(row)} bytes at a time, and this copy cannot be proved to be aligned for that",
            copy.span,
            "declare the alignment of the tensor, state requires(size % n == 0) for its contiguous dimension, "
            "and keep masks the same over each vector",
        )
    if row.in_lane_order and not lane_order(kernel, copy, copy.layout, width):
        what = f"{row.name} fills consecutive bytes of {copy.dst.obj} from consecutive lanes, and this copy has others"
        help_text = (
            "give every thread 4 bytes at a time, in the tile's order of addresses, by "
            "`layout=al.fragment_layout(...)`, and leave swizzles out; or leave the instruction open"
        )
        return problem("instruction-layout", what, copy.span, help_text)
    return replace(copy, vector=width)


def _atomic(kernel: Kernel, stmt: Accumulate) -> Accumulate | Diagnostic:
    target = target_of(kernel)
    tensor = kernel.object(stmt.dst.obj)
    row = INSTRUCTIONS.get(stmt.instr or "")
    if row is None or not target.has(row):
        what = f"{target.name} has no atomic instruction {stmt.instr}"
        return problem("instruction-target", what, stmt.span, f"leave it open, or use {moves(target).reduce_global}")
    if isinstance(tensor, Tensor) and tensor.dtype.bytes not in row.vector_bytes:
        return problem(
            "atomic-type",
            f"{row.name} works on {_sizes(row)} bytes, and {tensor.name} holds {tensor.dtype}",
            stmt.span,
            _wider(stmt, target),
        )
    return stmt


def _wider(stmt: Accumulate, target: Target) -> str:
    """Return what to do where threads cannot update elements of 16 bits."""
    wider = "accumulate into a float32 or int32 tensor"
    if stmt.op != "add":
        wider = "accumulate into an int32 tensor: `al.sortable(x, al.int32)` has the order of float32 numbers"
    if target.vendor == "amd":
        return wider
    engine = "whole tiles of a loop with producer_warps, into a tensor aligned to 16 bytes"
    return f"{wider}; or {engine}, by the copy engine of sm_90a"


def _sizes(row: CopyRow) -> str:
    return ", ".join(str(n) for n in row.vector_bytes)
