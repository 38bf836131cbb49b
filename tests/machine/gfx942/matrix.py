"""Matrix instructions: one row for each kind of operand; the lane maps follow from the sizes.

CDNA3 ISA, chapter 7. With g = 64 / M groups of M lanes: lane l of A holds row l % M and the K / g elements of k from
l / M * (K / g) on; B likewise with columns. Of the result, register 4 b + r of lane l is row 4 (b g + l / M) + r of
column l % M.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.machine.gfx942.numbers import FP8
from tests.machine.gfx942.operands import Operand, Operands
from tests.machine.gfx942.wave import LANES, Wave, Words

_NAME = re.compile(r"v_mfma_(f32|i32)_(\d+)x(\d+)x(\d+)_(?:(fp8|bf8)_)?(\w+)$")


def _bfloat16(words: Words) -> Any:
    return (words.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def _table(name: str) -> Callable[[Words], Any]:
    return lambda words: FP8[name][words.view(np.uint8)]


def _tfloat32(words: Words) -> Any:
    return (words & np.uint32(0xFFFFE000)).view(np.float32)


_ELEMENTS: dict[str, tuple[int, Callable[[Words], Any]]] = {
    "bf16": (2, _bfloat16),
    "bf16_1k": (2, _bfloat16),
    "f16": (2, lambda words: words.view(np.float16)),
    "fp8": (1, _table("fp8")),
    "bf8": (1, _table("bf8")),
    "i8": (1, lambda words: words.view(np.int8)),
    "f32": (4, lambda words: words.view(np.float32)),
    "xf32": (4, _tfloat32),
}
"""Bytes of an element, and the conversion of words."""


def product(name: str, operands: Operands) -> Callable[[Wave], None] | None:
    """Return the step of a matrix instruction; None for another name."""
    found = _NAME.match(name)
    if found is None:
        return None
    if operands.modifiers:
        raise NotImplementedError(f"{name} with {operands.modifiers}")
    result, m, n, k, left, right = found.groups()
    rows, depth = int(m), int(k)
    assert rows == int(n) and rows in (16, 32), name
    d, a, b, c = operands.items
    dtype = np.float32 if result == "f32" else np.int32
    read_a, read_b = (_reader(op, rows, depth, kind) for op, kind in ((a, left or right), (b, right)))
    count = rows * rows // LANES
    add = _accumulator(c, count, rows, dtype)
    wide = np.float64 if result == "f32" else np.int64

    def step(wave: Wave) -> None:
        total = read_a(wave).astype(wide) @ read_b(wave).astype(wide).T + add(wave)
        wave.insist(range(d.number, d.number + count))
        wave.v[d.number : d.number + count] = _to_lanes(total.astype(dtype), rows).view(np.uint32)

    return step


def _reader(op: Operand, rows: int, depth: int, kind: str) -> Callable[[Wave], Any]:
    size, convert = _ELEMENTS[kind]
    groups = LANES // rows
    each = depth // groups
    words = each * size // 4

    def read(wave: Wave) -> Any:
        wave.insist(range(op.number, op.number + words))
        lanes = np.ascontiguousarray(wave.v[op.number : op.number + words].T)
        return convert(lanes).reshape(groups, rows, each).transpose(1, 0, 2).reshape(rows, depth)

    return read


def _accumulator(op: Operand, count: int, rows: int, dtype: Any) -> Callable[[Wave], Any]:
    if not op.file:
        constant = np.array(op.bits("f"), np.uint32).view(dtype)
        return lambda _wave: constant

    def read(wave: Wave) -> Any:
        wave.insist(range(op.number, op.number + count))
        return _from_lanes(wave.v[op.number : op.number + count].view(dtype), rows)

    return read


def _to_lanes(total: Any, rows: int) -> Any:
    groups = LANES // rows
    return total.reshape(-1, groups, 4, rows).transpose(0, 2, 1, 3).reshape(-1, LANES)


def _from_lanes(registers: Any, rows: int) -> Any:
    groups = LANES // rows
    return registers.reshape(-1, 4, groups, rows).transpose(0, 2, 1, 3).reshape(rows, rows)
