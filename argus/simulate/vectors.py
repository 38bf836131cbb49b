"""Check vector accesses and matrix loads: addresses must be consecutive, aligned, and under one mask."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from argus.ir.instruction import CopyRow, Ends
from argus.ir.waves import in_lane_order
from argus.simulate.machine import Block
from argus.simulate.memory import GlobalTensor, Memory, SharedTile
from argus.simulate.numeric import Array
from argus.simulate.step import AccessCells, Step


@dataclass(frozen=True, slots=True)
class _Rows:
    """Elements that must be consecutive in memory: positions `[rows, length]` in the domain, and the alignment in
    bytes.

    `ends`: a mask may leave out the last elements of a row, or its first and its last elements.
    """

    positions: Array
    alignment: int
    ends: Ends = Ends.WHOLE


def check(block: Block, row: CopyRow | None, vector: int, source: AccessCells, target: AccessCells, step: Step) -> None:
    """Report vectors that are misaligned, not consecutive in memory, or cut by a mask."""
    for place in (source, target):
        memory = place.memory
        if isinstance(memory, GlobalTensor | SharedTile):
            rows = _rows(row, vector, memory, step)
            if rows is not None:
                _check(block, memory, place, rows, step)
        if isinstance(memory, SharedTile) and row is not None and row.in_lane_order:
            _check_lanes(block, memory, place, vector, step)


def _rows(row: CopyRow | None, vector: int, memory: Memory, step: Step) -> _Rows | None:
    threads, values = step.domain.shape
    item = memory.dtype.bytes
    position = np.arange(threads * values)
    if row is None or not row.collective:
        if vector == 1:
            return None
        if row is not None and row.ends is not Ends.WHOLE and isinstance(memory, GlobalTensor):
            return _Rows(position.reshape(-1, vector), item, row.ends)
        return _Rows(position.reshape(-1, vector), vector * item)
    # Matrices of 8 rows of 16 bytes: lane i of 8 x 4 holds four bytes of each (argus/ir/instruction/nvidia.py).
    each = 4 // item
    if threads % 32 or values % each:
        return None
    lanes = position.reshape(-1, 8, 4, values // each, each)
    # The last axis has the elements of one 16-byte row: those of 4 adjacent lanes, or one of each eighth lane.
    order = (0, 2, 3, 4, 1) if row.transposed else (0, 1, 3, 2, 4)
    return _Rows(lanes.transpose(order).reshape(-1, 16 // item), row.alignment)


def _check(block: Block, memory: Memory, place: AccessCells, rows: _Rows, step: Step) -> None:
    moved = place.ok[rows.positions]
    any_, all_ = moved.any(axis=1), moved.all(axis=1)
    length = rows.positions.shape[1]
    begins = (moved[:, 1:] & ~moved[:, :-1]).sum(axis=1)
    split = {Ends.WHOLE: any_ & ~all_, Ends.LAST: begins > 0, Ends.BOTH: begins + moved[:, 0] > 1}[rows.ends]
    if split.any():
        at = int(rows.positions[int(np.argmax(split))][0])
        text = f"a mask cuts through a vector of {length} elements of {memory.name}, which moves as a whole"
        _report(block, step, "split-vector", text, place, at, int(split.sum()))
    if not all_.any():
        return
    first = rows.positions[all_]
    address = _addresses(memory, place, first.reshape(-1)).reshape(first.shape)
    apart = (address != address[:, :1] + np.arange(length) * memory.dtype.bytes).any(axis=1)
    if apart.any():
        at = int(first[int(np.argmax(apart))][0])
        text = f"the {length} elements of a vector are not consecutive in {memory.name}"
        _report(block, step, "scattered-vector", text, place, at, int(apart.sum()))
    skewed = address[:, 0] % rows.alignment != 0
    if isinstance(memory, GlobalTensor) and rows.alignment > memory.alignment:
        skewed = np.ones_like(skewed)  # The base address may have any value that the declared alignment allows.
    if skewed.any():
        at = int(first[int(np.argmax(skewed))][0])
        text = f"a vector of {memory.name} may start at a byte that is not a multiple of {rows.alignment}"
        _report(block, step, "misaligned-vector", text, place, at, int(skewed.sum()))


def _check_lanes(block: Block, memory: SharedTile, place: AccessCells, vector: int, step: Step) -> None:
    """Check loads to LDS: lane l of a wave writes 4 * l bytes after lane 0, whatever index the statement names."""
    threads, values = step.domain.shape
    first = np.arange(threads * values)[::vector]
    address = _addresses(memory, place, first).reshape(1, threads, -1)
    size = block.run.kernel.warp_size
    whole = place.ok[first].reshape(-1, size, address.shape[-1]).all(axis=1)
    wrong = whole & ~in_lane_order(address, size)[0]
    if wrong.any():
        wave, load = (int(n) for n in np.argwhere(wrong)[0])
        at = wave * size * values + load * vector
        text = f"the lanes of a wave load to LDS in one run of bytes, but their elements of {memory.name} are not one"
        _report(block, step, "lds-lane-order", text, place, at, int(wrong.sum()))


def _addresses(memory: Memory, place: AccessCells, at: Array) -> Array:
    if isinstance(memory, GlobalTensor):
        return memory.addresses(tuple(c[at] for c in place.coords))
    assert isinstance(memory, SharedTile)
    return place.cell[at] * memory.memory.grain


def _report(block: Block, step: Step, code: str, text: str, place: AccessCells, at: int, count: int) -> None:
    cell = int(place.cell[at])
    thread = int(step.thread[at])
    logical = tuple(int(c[at]) for c in place.coords)
    block.report(
        step,
        "machine",
        code,
        text,
        thread,
        place.memory,
        cell if cell >= 0 else None,
        logical=logical,
        count=count,
    )
