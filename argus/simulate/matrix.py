"""Matrix products with the registers that the instruction actually reads, whatever layouts the fragments declare.

The emitted code names the same registers for all threads. Every thread therefore uses the register in which the
declared layout of an operand keeps the first thread's element. The instruction's layout determines which element of the
product is in that register. If both layouts agree, the result is the product; otherwise it is what the hardware would
compute.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from argus.ir.expr import Const, Coord, Expr, substitute_coords
from argus.ir.instruction import MMA, MmaRow
from argus.ir.instruction.tiled import tiled_mma
from argus.ir.nodes import Access, Mma
from argus.layout import FragmentLayout
from argus.simulate import checked
from argus.simulate.contraction import Operand, contract
from argus.simulate.machine import Block
from argus.simulate.memory import Registers
from argus.simulate.numeric import Array, disturbed, round_to
from argus.simulate.order import Touch
from argus.simulate.provenance import hop
from argus.simulate.step import AccessCells, Step, domain_of
from argus.simulate.tagset import CONSTANT, TAGGED, Tags, accumulate


@dataclass(frozen=True, slots=True)
class Tables:
    """Registers by warp: `a[w, i, k]`, `b[w, j, k]`, `c[w, i, j]` are positions (thread * values + value) in `layouts`,
    the instruction's layouts of the three operands."""

    a: Array
    b: Array
    c: Array
    layouts: tuple[FragmentLayout, FragmentLayout, FragmentLayout]


@lru_cache(maxsize=64)
def tables(row: MmaRow, shape: tuple[int, int, int], warps: tuple[int, int]) -> Tables:
    """Return the tables of the registers that each warp multiplies."""
    tiled = tiled_mma(row, shape, warps)
    count = warps[0] * warps[1]
    c = by_group(tiled.c, row.warp_size, count)
    rows = [np.unique(np.flatnonzero((w >= 0).any(axis=1))) for w in c]
    columns = [np.unique(np.flatnonzero((w >= 0).any(axis=0))) for w in c]
    a, b = by_group(tiled.a, row.warp_size, count), by_group(tiled.b, row.warp_size, count)
    return Tables(
        np.stack([a[w][rows[w]] for w in range(count)]),
        np.stack([b[w][columns[w]] for w in range(count)]),
        np.stack([c[w][np.ix_(rows[w], columns[w])] for w in range(count)]),
        (tiled.a, tiled.b, tiled.c),
    )


def by_group(layout: FragmentLayout, size: int, groups: int) -> Array:
    """Return int64 `[groups, *shape]`: the first register of each group of `size` threads that holds an element, or -1.
    """
    linear = layout.linear()
    result = np.full((groups, layout.size), -1, dtype=np.int64)
    for g in range(groups):
        part = linear[g * size : (g + 1) * size].reshape(-1)
        held, first = np.unique(part, return_index=True)
        result[g, held] = first + g * size * linear.shape[1]
    return result.reshape(groups, *layout.shape)


def multiply(block: Block, stmt: Mma, step: Step) -> None:
    """Compute `d += a b^T` by the instruction `stmt.instr` on every warp."""
    if stmt.instr is None or stmt.warps is None:
        raise ValueError("a matrix product without an instruction is left: lower the kernel first")
    row = MMA[stmt.instr]
    block.together(step, row.name)
    table = tables(row, stmt.shape, stmt.warps)
    places = [
        registers(block, access, step, layout, axes)
        for access, layout, axes in zip((stmt.a, stmt.b, stmt.d), table.layouts, ((0, 2), (1, 2), (0, 1)), strict=True)
    ]
    if any(p is None for p in places):
        return
    a, b, d = (p for p in places if p is not None)
    x = a.memory.load(a.cell)[table.a]
    y = b.memory.load(b.cell)[table.b]
    for place, touch in ((a, Touch.READ), (b, Touch.READ), (d, Touch.ACCUMULATE)):
        checked.initialised(block, place.memory, place.cell[place.ok], step, touch)
    product = _product(x, y)
    active = step.frame.active[np.arange(len(table.c)) * row.warp_size]
    cells = d.cell[table.c[active]].reshape(-1)
    before = d.memory.load(cells)
    with np.errstate(all="ignore"):
        after = before + product[active].reshape(-1).astype(before.dtype)
    d.memory.store(cells, disturbed(round_to(after, d.memory.dtype), d.memory.dtype))
    _tags(block, table, (a, b, d), (x, y, before.reshape(product[active].shape)), active, step)


def _product(x: Array, y: Array) -> Array:
    """Return the product `[W, M, N]` of `[W, M, K]` and `[W, N, K]`. Integer products are exact."""
    with np.errstate(all="ignore"):
        if x.dtype.kind == "f":
            return np.asarray(np.matmul(x, y.transpose(0, 2, 1)))
        exact = np.matmul(x.astype(np.float64), y.astype(np.float64).transpose(0, 2, 1))
        result: Array = exact.astype(np.int64).astype(np.int32)
        return result


def registers(
    block: Block, access: Access, step: Step, layout: FragmentLayout, axes: tuple[int, int]
) -> AccessCells | None:
    """Return the cells that the instruction reads as its registers. The first thread's look-up serves all threads."""
    memory = block.memories[access.obj]
    if not isinstance(memory, Registers):
        raise ValueError(f"operand {access.obj} of a matrix instruction is not in registers: lower the kernel first")
    index = operand_index(access, axes)
    whole = Step(step.stmt, step.frame, domain_of(layout, layout.num_threads), step.event, step.on)
    on = np.repeat(step.frame.active, layout.num_values)
    first = np.zeros(whole.domain.size, dtype=np.bool_)
    first[: layout.num_values] = True
    place = checked.locate(block, access.obj, index, whole, on & first)
    register = place.cell[: layout.num_values]
    if (register < 0).any():
        return None
    cell = (np.arange(layout.num_threads)[:, None] * memory.per_thread + register[None, :]).reshape(-1)
    return AccessCells(memory, cell, place.coords, on, on)


@lru_cache(maxsize=1024)
def operand_index(access: Access, axes: tuple[int, int]) -> tuple[Expr, ...]:
    """Return the operand's index over its own two coordinates. The third coordinate of the statement does not occur in
    it."""
    values: list[Expr] = [Const(0)] * 3
    values[axes[0]], values[axes[1]] = Coord(0), Coord(1)
    return tuple(substitute_coords(e, tuple(values)) for e in access.index)


def _tags(
    block: Block,
    table: Tables,
    places: tuple[AccessCells, AccessCells, AccessCells],
    values: tuple[Array, Array, Array],
    active: Array,
    step: Step,
) -> None:
    """Return the contributions of every executing warp. `values` are A and B by warp, and the earlier D by executing
    warp."""
    schemas = block.run.schemas
    a, b, d = places
    if schemas is None or a.memory.tags is None or b.memory.tags is None or d.memory.tags is None:
        return
    x, y, before = values
    for number, w in enumerate(np.flatnonzero(active)):
        left, right = a.cell[table.a[w]], b.cell[table.b[w]]
        tags_a, tags_b = a.memory.tags.take(left.reshape(-1)), b.memory.tags.take(right.reshape(-1))
        zero_a = (tags_a.status.reshape(left.shape) == CONSTANT) & (x[w] == 0)
        zero_b = (tags_b.status.reshape(right.shape) == CONSTANT) & (y[w] == 0)
        new = contract(Operand(tags_a, zero_a), Operand(tags_b, zero_b), schemas)
        cells = d.cell[table.c[w]].reshape(-1)
        old = d.memory.tags.take(cells)
        start = (old.status == CONSTANT) & (before[number].reshape(-1) == 0)
        d.memory.tags.put(cells, accumulate(old, start, new))
        m, n = table.c[w].shape
        last = np.repeat(left[:, -1], n), np.tile(right[:, -1], m)
        brought = Products(tags_a, tags_b, n, x[w].shape[-1])
        hop(block, step.event, d.memory.name, cells, ((a.memory.name, last[0]), (b.memory.name, last[1])), brought)


@dataclass(frozen=True, slots=True)
class Products:
    """The contributions of one warp's product: `a` is `[M * columns]`, `b` is `[N * columns]`, cells `[M * N]`."""

    a: Tags
    b: Tags
    n: int
    columns: int

    def members(self, position: int, name: str) -> list[int] | None:
        """See `Brought`."""
        i, j = divmod(position, self.n)
        left = np.arange(i * self.columns, (i + 1) * self.columns)
        right = np.arange(j * self.columns, (j + 1) * self.columns)
        both = (self.a.status[left] == TAGGED) & (self.b.status[right] == TAGGED)
        for tags, at in ((self.a, left[both]), (self.b, right[both])):
            if len(at) and name in tags.schemas.names[int(tags.schema[at[0]])]:
                field = tags.field(name).take(at)
                return None if (field.size != 1).any() else [int(v) for v in field.low]
        return []
