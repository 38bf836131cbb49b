"""Emit matrix products. The registers of each matrix instruction are found by enumerating the three layouts."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from argus.backend.device_api import cpp_type, mma_function, wgmma_function
from argus.backend.emit.panels import Blocks, Descriptor, matrix_descriptor
from argus.backend.emit.problem import problem
from argus.backend.emit.registers import Affine, Digit, Ints, counters, fit, locate, register_layout
from argus.backend.emit.scope import Writer
from argus.ir.expr import Expr
from argus.ir.instruction import MMA, WGMMA, WgmmaRow
from argus.ir.nodes import Access, Fragment, Mma, Shared
from argus.ir.types import DType
from argus.layout import FragmentLayout
from argus.layout.fragment import cut, merged


@dataclass(frozen=True)
class _Operand:
    """A fragment of the product, the instruction's layout for it, and the axes of the domain that it spans."""

    fragment: Fragment
    index: tuple[Expr, ...]
    atom: FragmentLayout
    axes: tuple[int, int]


def emit_mma(stmt: Mma, writer: Writer) -> None:
    """Emit loops over a warp's instructions: along K outside, then along N and M of the accumulator's registers."""
    if stmt.instr is None:
        raise problem("not-explicit", "the matrix product names no instruction", stmt.span)
    if stmt.instr in WGMMA:
        _asynchronous(stmt, WGMMA[stmt.instr], writer)
        return
    row, lanes = MMA[stmt.instr], writer.kernel.warp_size
    d = _operand(stmt.d, row.c, (0, 1), writer, stmt)
    a = _operand(stmt.a, row.a, (0, 2), writer, stmt)
    b = _operand(stmt.b, row.b, (1, 2), writer, stmt)
    loops = (*_loops(a, 2, "v0"), *_loops(d, None, f"v{len(_loops(a, 2, 'v0'))}"))
    blocks = _blocks(d, loops, row.shape, lanes, stmt)
    numbers = [_numbers(o, blocks, lanes, writer, stmt) for o in (d, a, b)]
    call = f"argus::{mma_function(row).name}"
    names = [writer.names[o.fragment.name] for o in (d, a, b)]
    forms = [fit(n, loops) for n in numbers]
    if all(form is not None for form in forms):
        with writer.loops(loops):
            texts = [f"&{n}[{form.text()}]" for n, form in zip(names, forms, strict=True) if form is not None]
            writer.line(f"{call}({', '.join(texts)});")
        return
    for i in range(prod(digit.extent for digit in loops)):
        texts = [f"&{n}[{int(number[i])}]" for n, number in zip(names, numbers, strict=True)]
        writer.line(f"{call}({', '.join(texts)});")


def _operand(access: Access, atom: FragmentLayout, axes: tuple[int, int], writer: Writer, stmt: Mma) -> _Operand:
    fragment = writer.fragment(access.obj)
    if fragment is None:
        raise problem("mma-operand", f"operand `{access.obj}` is no register tile", stmt.span,
                      "load it to registers first")  # fmt: skip
    return _Operand(fragment, access.index, atom, axes)


def _loops(operand: _Operand, axis: int | None, first: str) -> tuple[Digit, ...]:
    """Return the digits of the fragment's registers that count instructions, slowest first; only those along `axis`,
    if given.
    """
    layout = register_layout(operand.fragment)
    result: list[Digit] = []
    number, weight = int(first[1:]), operand.atom.num_values
    for mode in cut(merged(layout.values), weight):
        if mode.dim is not None and axis in (None, operand.axes[mode.dim]):
            result.append(Digit(f"v{number + len(result)}", mode.extent, operand.axes[mode.dim], mode.stride, weight))
        weight *= mode.extent
    return tuple(reversed(result))


def _blocks(
    d: _Operand, loops: tuple[Digit, ...], atom: tuple[int, int, int], lanes: int, stmt: Mma
) -> tuple[Ints, Ints, Ints]:
    """Return (m, n, k), each `[groups, combinations]`: the position in the domain of each combination's instruction.

    The threads of an instruction are a group of `lanes`: a warp, or a warpgroup.
    """
    layout = register_layout(d.fragment)
    first = layout.coordinates()[::lanes, 0].astype(np.int64)
    own = [
        first[:, 0:1] // atom[0] * atom[0],
        first[:, 1:2] // atom[1] * atom[1],
        np.zeros_like(first[:, :1]),
    ]
    for digit, counter in zip(loops, counters(loops).values(), strict=True):
        own[digit.dim] = own[digit.dim] + counter[None, :] * digit.stride
    shape = (first.shape[0], prod(digit.extent for digit in loops))
    m, n, k = (np.broadcast_to(o, shape) for o in own)
    covered = prod(atom) * len({(int(x), int(y), int(z)) for x, y, z in zip(m.flat, n.flat, k.flat, strict=True)})
    if covered != prod(stmt.shape):
        raise problem("mma-layout", "the instructions of the warps do not cover the matrix product", stmt.span,
                      "give the operands the layouts of `al.tiled_mma`")  # fmt: skip
    return m, n, k


def _numbers(operand: _Operand, blocks: tuple[Ints, Ints, Ints], lanes: int, writer: Writer, stmt: Mma) -> Ints:
    """Return the number of the operand's first register for each instruction, as an array `[combinations]`.

    Raises `ArgusError` "mma-layout" if these numbers differ between groups of lanes.
    """
    threads = np.arange(writer.threads, dtype=np.int64)[:, None]
    inside = operand.atom.coordinates().astype(np.int64)
    at = [np.repeat(block, lanes, axis=0)[:, None, :] for block in blocks]
    for i, axis in enumerate(operand.axes):
        at[axis] = at[axis] + np.tile(inside[:, :, i], (writer.threads // lanes, 1))[:, :, None]
    shape = np.broadcast_shapes(*(a.shape for a in at))
    flat = tuple(np.broadcast_to(a, shape).reshape(shape[0], -1) for a in at)
    found = locate(operand.fragment, operand.index, flat, threads, stmt.span).reshape(shape)
    found = found - np.arange(shape[1], dtype=np.int64)[None, :, None]
    result = found[0, 0]
    if (found < 0).any() or (found != result).any():
        raise problem(
            "mma-layout", f"the registers of `{operand.fragment.name}` do not suit {stmt.instr}",
            stmt.span, "give the operands the layouts of `al.tiled_mma`",
        )  # fmt: skip
    return np.asarray(result)


# ---------------------------------------------------------------------------- asynchronous, on warpgroups


def _asynchronous(stmt: Mma, row: WgmmaRow, writer: Writer) -> None:
    """Emit loops over the instructions of a warpgroup: along K outside, then over the accumulator's registers.

    If the accumulator is empty, the first instruction along K overwrites it. The warpgroup's part of an operand's
    address is uniform over the warpgroup and computed in the prologue.
    """
    fresh = stmt.d.obj in writer.empty
    writer.empty.discard(stmt.d.obj)
    d = _operand(stmt.d, row.c, (0, 1), writer, stmt)
    steps = _steps(stmt, row, writer)
    loops = tuple(digit for digit in (*steps, *_loops(d, None, f"v{len(steps)}")) if digit.extent > 1)
    lanes = row.c.num_threads
    blocks = Blocks(_blocks(d, loops, row.shape, lanes, stmt), _groups(d, lanes), loops)
    registers = _numbers(d, blocks.at, lanes, writer, stmt)
    sides = [_side(access, axis, row, blocks, writer, stmt) for axis, access in enumerate((stmt.a, stmt.b))]
    name, types = writer.names[d.fragment.name], ", ".join(cpp_type(side.dtype) for side in sides)
    call = f"argus::{wgmma_function(row).name}<{types}, {', '.join(str(side.major) for side in sides)}>"
    forms = [fit(numbers, loops) for numbers in (registers, *(side.numbers for side in sides))]
    if all(form is not None for form in forms):
        known = [form for form in forms if form is not None]
        along = [digit.name for digit in loops if digit.dim == 2]
        add = (" + ".join(along) + " != 0" if along else "false") if fresh else "true"
        with writer.loops(loops):
            texts = [side.text(form) for side, form in zip(sides, known[1:], strict=True)]
            writer.line(f"{call}(&{name}[{known[0].text()}], {', '.join(texts)}, {add});")
        return
    for i in range(prod(digit.extent for digit in loops)):
        texts = [side.text(int(side.numbers[i])) for side in sides]
        add = "false" if fresh and blocks.at[2][0, i] == 0 else "true"
        writer.line(f"{call}(&{name}[{int(registers[i])}], {', '.join(texts)}, {add});")


@dataclass(frozen=True)
class _Side:
    """An operand of each combination: by descriptor `described`, or in registers of `name`; at positions `numbers`."""

    dtype: DType
    described: Descriptor | None
    name: str
    numbers: Ints

    @property
    def major(self) -> int:
        return 0 if self.described is None else self.described.major

    def text(self, number: Affine | int) -> str:
        if self.described is not None:
            return self.described.text(number)
        return f"&{self.name}[{number if isinstance(number, int) else number.text()}]"


def _side(access: Access, axis: int, row: WgmmaRow, blocks: Blocks, writer: Writer, stmt: Mma) -> _Side:
    tile = writer.kernel.object(access.obj)
    match tile:
        case Shared():
            described = matrix_descriptor(tile, access.index, axis, row, blocks, writer, stmt.span)
            return _Side(tile.dtype, described, tile.name, described.steps)
        case Fragment() if axis == 0:
            operand = _operand(access, row.a, (0, 2), writer, stmt)
            numbers = _numbers(operand, blocks.at, row.c.num_threads, writer, stmt)
            return _Side(tile.dtype, None, writer.names[tile.name], numbers)
        case _:
            raise problem("mma-operand", f"operand `{access.obj}` of {stmt.instr} is no shared tile", stmt.span,
                          "stage it in shared memory")  # fmt: skip


def _steps(stmt: Mma, row: WgmmaRow, writer: Writer) -> tuple[Digit, ...]:
    """Return the loops along K: over panels, and over the steps in a panel."""
    k, depth = row.shape[2], stmt.shape[2]
    width = row.row_bytes // writer.kernel.object(stmt.b.obj).dtype.bytes
    if depth <= width or depth % width:
        return (Digit("v0", depth // k, 2, k, 0),)
    return Digit("v0", depth // width, 2, width, 0), Digit("v1", width // k, 2, k, 0)


def _groups(d: _Operand, lanes: int) -> tuple[Digit, ...]:
    """Return the digits of the warpgroup's number as C++, slowest first."""
    result, weight = [], lanes
    for mode in cut(register_layout(d.fragment).threads, lanes):
        result.append(Digit(f"thread / {weight} % {mode.extent}", mode.extent, -1, 0, 0))
        weight *= mode.extent
    return tuple(reversed(result))
