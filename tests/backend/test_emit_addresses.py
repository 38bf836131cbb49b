"""Addresses as text, evaluated for every thread and every counter, are what the layouts say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from argus.backend.emit.address import global_address, shared_address
from argus.backend.emit.copy import matrix_rows
from argus.backend.emit.flight import start
from argus.backend.emit.names import identifiers
from argus.backend.emit.registers import counters, digits
from argus.backend.emit.scope import Domain, Writer
from argus.ir.expr import Const, Coord, Expr, LoopVar, Op, Param, op
from argus.ir.instruction import MMA
from argus.ir.nodes import For, Shared, Tensor
from argus.ir.types import DType, bfloat16, float32, int8
from argus.layout import AnyLayout, FragmentLayout, Layout, Swizzle, SwizzledLayout, blocked
from argus.source import NO_SPAN
from tests.backend import emit_kernels as kernels

THREADS = 64


def writer_of(layout: FragmentLayout) -> Writer:
    kernel = kernels.kernel("k", (), (For("s", Const(0), Const(4), 1, ()),), (), (), ("M", "N"), THREADS // 32)
    kernel = replace(kernel, params=(tensor(),))
    return Writer(kernel, identifiers(kernel), {"M", "N", "s"}, THREADS, start((), ()), {})


def tensor() -> Tensor:
    return Tensor("x", float32, (Param("M"), Param("N")), (Param("x.stride0"), Const(1)), 4)


def evaluated(text: str, writer: Writer, thread: int, values: dict[str, int]) -> int:
    """C++ of non-negative integers, as Python."""
    known = {"thread": thread, "s": 0, **values}

    def value(expression: str) -> int:
        for token in ("argus::i64", "argus::block_id<0>"):
            expression = expression.replace(token, "")
        return int(eval(expression.replace("/", "//"), {"__builtins__": {}}, known))

    for (_, definition), name in writer.prologue.items():
        known[name] = value(definition)
    return value(text)


@st.composite
def tiles(draw: st.DrawFn) -> tuple[AnyLayout, FragmentLayout]:
    """A shared layout of (4, rows, columns), swizzled or not, flat or nested; a register layout of one stage."""
    rows, columns = draw(st.sampled_from([8, 16, 32])), draw(st.sampled_from([8, 16, 32]))
    pad = draw(st.sampled_from([0, 0, 0, 4, 8]))
    strides = draw(st.sampled_from([(columns + pad, 1), (1, rows + pad)]))
    stage = (columns + pad) * (rows + pad)
    inner = Layout((4, rows, columns), (stage, *strides))
    if draw(st.booleans()) and columns > 8:
        inner = Layout((4, rows, (8, columns // 8)), (stage, 8, (1, 8 * rows)))
    layout: AnyLayout = inner
    if draw(st.booleans()):
        bits, base = draw(st.integers(1, 3)), draw(st.integers(0, 3))
        swizzle = Swizzle(bits, base, draw(st.integers(bits, 4)) * draw(st.sampled_from([1, 1, 1, -1])))
        layout = SwizzledLayout(swizzle, draw(st.sampled_from([0, 0, 64])), inner)
    order = draw(st.sampled_from([(0, 1), (1, 0)]))
    return layout, blocked((rows, columns), THREADS, order, draw(st.sampled_from([1, 2, 4])))


def indices(rows: int, columns: int) -> st.SearchStrategy[tuple[Expr, Expr, Expr]]:
    s = LoopVar("s")
    stage = st.sampled_from([s, Const(2), op("mod", op("add", s, Const(1)), Const(4)), op("sub", Const(3), s)])
    row = st.sampled_from([Coord(0), op("xor", Coord(0), Const(1)), op("sub", Const(rows - 1), Coord(0))])
    rotated = Op("mod", (op("add", Coord(1), s), Const(columns)), Coord(1).dtype)
    return st.tuples(stage, row, st.sampled_from([Coord(1), rotated]))


@given(tiles(), st.data(), st.sampled_from([int8, bfloat16, float32]))
@settings(max_examples=60, deadline=None)
def test_shared_addresses(tile: tuple[AnyLayout, FragmentLayout], data: st.DataObject, dtype: DType) -> None:
    layout, fragment = tile
    rows, columns = fragment.shape
    index = data.draw(indices(rows, columns))
    writer = writer_of(fragment)
    loops = digits(fragment)
    domain = Domain(writer, fragment, loops, NO_SPAN)
    text = shared_address(Shared("tile", dtype, (4, rows, columns), layout, 96), index, domain)
    names = counters(loops)
    count = len(next(iter(names.values()))) if names else 1
    table, at = fragment.coordinates(), domain.coordinates()
    for s in range(3):
        for thread in (0, 1, 6, 31, 45, 63):
            for i in range(0, count, max(1, count // 8)):
                where = [int(c[thread, i]) for c in at]
                cell = [_value(e, where, s) for e in index]
                expected = layout(*cell) * dtype.bytes + 96
                values = {n: int(v[i]) for n, v in names.items()}
                assert evaluated(text, writer, thread, {**values, "s": s}) == expected, text
    assert table.shape[0] == THREADS


def _value(expr: Expr, at: list[int], s: int) -> int:
    match expr:
        case Const(value=value):
            return int(value)
        case Coord(axis=axis):
            return at[axis]
        case LoopVar():
            return s
        case Op(op=name, args=(x, y)):
            a, b = _value(x, at, s), _value(y, at, s)
            return {"add": a + b, "sub": a - b, "xor": a ^ b, "mod": a % b if b else 0}[name]
    raise AssertionError(expr)


@given(st.sampled_from([(16, 16), (8, 32), (64, 8)]), st.sampled_from([1, 2, 4]), st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_global_addresses(shape: tuple[int, int], vector: int, s: int) -> None:
    fragment = blocked(shape, THREADS, vector=vector)
    writer, loops = writer_of(fragment), digits(fragment)
    domain = Domain(writer, fragment, loops, NO_SPAN)
    row = op("add", op("mul", LoopVar("s"), Const(shape[0])), Coord(0))
    base, offset = global_address(tensor(), (row, op("add", Const(5), Coord(1))), domain)
    names = counters(loops)
    count = len(next(iter(names.values()))) if names else 1
    at = domain.coordinates()
    for thread in (0, 17, 63):
        for i in range(count):
            values = {"x": 0, "x_stride0": 1000, "s": s, **{n: int(v[i]) for n, v in names.items()}}
            got = evaluated(f"{base} + {offset}", writer, thread, values)
            assert got == (s * shape[0] + int(at[0][thread, i])) * 1000 + 5 + int(at[1][thread, i])


def test_lanes_address_the_rows_of_matrices() -> None:
    """Lane 8 * i + r stands at the start of row r of matrix i: what lane 4 * r holds as its i-th pair."""
    a = MMA["mma_m16n8k16"].a
    rows, held = matrix_rows(a, bfloat16, 8, False).coordinates(), a.coordinates()
    for i in range(4):
        for r in range(8):
            np.testing.assert_array_equal(rows[8 * i + r, 0], held[4 * r, 2 * i])
    transposed = matrix_rows(a.permute((1, 0)), bfloat16, 8, True).coordinates()
    held = a.permute((1, 0)).coordinates()
    for i in range(4):
        for r in range(8):
            np.testing.assert_array_equal(transposed[8 * i + r, 0], held[r // 2, 2 * i + r % 2])
