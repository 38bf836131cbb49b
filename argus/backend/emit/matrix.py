"""Matrix products: which registers each matrix instruction takes, by enumeration of the three layouts."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from argus.backend.device_api import mma_function
from argus.backend.emit.problem import problem
from argus.backend.emit.registers import Digit, Ints, counters, cut, fit, locate, register_layout
from argus.backend.emit.scope import Writer
from argus.ir.expr import Expr
from argus.ir.instruction import MMA
from argus.ir.nodes import Access, Fragment, Mma
from argus.layout import FragmentLayout
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
    row = MMA[stmt.instr]
    d = _operand(stmt.d, row.c, (0, 1), writer, stmt)
    a = _operand(stmt.a, row.a, (0, 2), writer, stmt)
    b = _operand(stmt.b, row.b, (1, 2), writer, stmt)
    loops = (*_loops(a, 2, "v0"), *_loops(d, None, f"v{len(_loops(a, 2, 'v0'))}"))
    blocks = _blocks(d, loops, row.shape, writer, stmt)
    numbers = [_numbers(o, blocks, row.shape, writer, stmt) for o in (d, a, b)]
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
    d: _Operand, loops: tuple[Digit, ...], atom: tuple[int, int, int], writer: Writer, stmt: Mma
) -> tuple[Ints, Ints, Ints]:
    """(m, n, k): `[warps, combinations]`, where the instruction of each combination stands in the domain."""
    layout, warp = register_layout(d.fragment), writer.kernel.warp_size
    first = layout.coordinates()[::warp, 0].astype(np.int64)
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


def _numbers(
    operand: _Operand, blocks: tuple[Ints, Ints, Ints], atom: tuple[int, int, int], writer: Writer, stmt: Mma
) -> Ints:
    """`[combinations]`: the first register of the operand of each instruction, the same in every warp."""
    warp = writer.kernel.warp_size
    threads = np.arange(writer.kernel.num_threads, dtype=np.int64)[:, None]
    inside = operand.atom.coordinates().astype(np.int64)
    result: Ints | None = None
    for value in range(operand.atom.num_values):
        at = [np.repeat(block, warp, axis=0) for block in blocks]
        for i, axis in enumerate(operand.axes):
            lanes = np.tile(inside[:, value, i], writer.kernel.num_warps)[:, None]
            at[axis] = at[axis] + lanes
        found = locate(operand.fragment, operand.index, tuple(at), threads, stmt.span) - value
        result = found[0] if result is None else result
        if (found < 0).any() or (found != result[None, :]).any():
            raise problem(
                "mma-layout", f"the registers of `{operand.fragment.name}` do not suit {stmt.instr}",
                stmt.span, "give the operands the layouts of `al.tiled_mma`",
            )  # fmt: skip
    assert result is not None
    return np.asarray(result)
