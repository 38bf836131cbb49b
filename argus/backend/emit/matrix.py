"""Matrix products: which registers each matrix instruction takes, by enumeration of the three layouts."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from argus.backend.device_api import cpp_type, mma_function, wgmma_function
from argus.backend.emit.address import matrix_descriptor
from argus.backend.emit.problem import problem
from argus.backend.emit.registers import Digit, Ints, counters, cut, fit, locate, register_layout
from argus.backend.emit.scope import Writer, digit_text
from argus.ir.expr import Coord, Expr
from argus.ir.instruction import MMA, WGMMA, WgmmaRow
from argus.ir.nodes import Access, Fragment, Mma, Shared
from argus.layout import FragmentLayout, Mode
from argus.layout.fragment import merged


@dataclass(frozen=True)
class _Operand:
    """A fragment of the product, the instruction's layout of it, and the axes of the domain it lies along."""

    fragment: Fragment
    index: tuple[Expr, ...]
    atom: FragmentLayout
    axes: tuple[int, int]


def emit_mma(stmt: Mma, writer: Writer) -> None:
    """Loops over the instructions of a warp: along K outside, then along N and M of the accumulator's
    registers.
    """
    if stmt.instr is None:
        raise problem("not-explicit", "the matrix product names no instruction", stmt.span)
    if stmt.instr in WGMMA:
        if any(access.index[-2] == Coord(2) for access in (stmt.a, stmt.b)):
            raise problem("not-emitted", "MN-major operands of wgmma are not emitted", stmt.span)
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
    """The digits of the fragment's registers that count instructions, slowest first; along `axis` only, if
    given.
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
    """(m, n, k): `[groups, combinations]`, where the instruction of each combination stands in the domain.

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
    """`[combinations]`: the first register of the operand of each instruction, the same in every group of lanes."""
    threads = np.arange(writer.threads, dtype=np.int64)[:, None]
    inside = operand.atom.coordinates().astype(np.int64)
    result: Ints | None = None
    for value in range(operand.atom.num_values):
        at = [np.repeat(block, lanes, axis=0) for block in blocks]
        for i, axis in enumerate(operand.axes):
            at[axis] = at[axis] + np.tile(inside[:, value, i], writer.threads // lanes)[:, None]
        found = locate(operand.fragment, operand.index, tuple(at), threads, stmt.span) - value
        result = found[0] if result is None else result
        if (found < 0).any() or (found != result[None, :]).any():
            raise problem(
                "mma-layout", f"the registers of `{operand.fragment.name}` do not suit {stmt.instr}",
                stmt.span, "give the operands the layouts of `al.tiled_mma`",
            )  # fmt: skip
    assert result is not None
    return np.asarray(result)


# ---------------------------------------------------------------------------- asynchronous, on warpgroups


def _asynchronous(stmt: Mma, row: WgmmaRow, writer: Writer) -> None:
    """Loops over the instructions of a warpgroup: along K outside, then over the accumulator's registers.

    The warpgroup's share of an operand's address is uniform over the warpgroup, and computed in the prologue.
    """
    d = _operand(stmt.d, row.c, (0, 1), writer, stmt)
    k = row.shape[2]
    steps = Digit("v0", stmt.shape[2] // k, 2, k, 0)
    loops = tuple(digit for digit in (steps, *_loops(d, None, "v1")) if digit.extent > 1)
    lanes = row.c.num_threads
    blocks = _blocks(d, loops, row.shape, lanes, stmt)
    form = fit(_numbers(d, blocks, lanes, writer, stmt), loops)
    if form is None:
        raise problem("mma-layout", f"the registers of `{d.fragment.name}` do not suit {row.name}", stmt.span,
                      "give the accumulator the layout of `wgmma_accumulator`")  # fmt: skip
    groups = (Mode(lanes, None), *cut(register_layout(d.fragment).threads, lanes))
    own = {axis: digit_text(groups, axis, writer.threads) for axis in (0, 1)}
    operands = [_shared_operand(a, writer, stmt) for a in (stmt.a, stmt.b)]
    texts = [
        matrix_descriptor(tile, access.index, axes, row, own, loops, writer, stmt.span)
        for tile, access, axes in zip(operands, (stmt.a, stmt.b), ((0, 2), (1, 2)), strict=True)
    ]
    name = writer.names[d.fragment.name]
    call = f"argus::{wgmma_function(row).name}<{cpp_type(operands[0].dtype)}>"
    with writer.loops(loops):
        writer.line(f"{call}(&{name}[{form.text()}], {', '.join(texts)});")


def _shared_operand(access: Access, writer: Writer, stmt: Mma) -> Shared:
    tile = writer.kernel.object(access.obj)
    if not isinstance(tile, Shared):
        raise problem("mma-operand", f"operand `{access.obj}` of {stmt.instr} is no shared tile", stmt.span,
                      "stage it in shared memory")  # fmt: skip
    return tile
