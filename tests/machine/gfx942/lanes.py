"""Values that move between lanes, or are cut out of registers: data-parallel primitives, SDWA, LDS's crossbar."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.machine.gfx942.operands import Operands
from tests.machine.gfx942.wave import LANES, Mask, Wave, Words

Moved = Callable[[Wave], "tuple[Words, Mask | None]"]
"""Returns the first source as it arrives, and the lanes that write their result; None: all."""

_LANE = np.arange(LANES)
_ROW = _LANE % 16
_SELECTED = {
    "DWORD": (0, 32),
    **{f"BYTE_{n}": (8 * n, 8) for n in range(4)},
    **{f"WORD_{n}": (16 * n, 16) for n in (0, 1)},
}


def primitive(operands: Operands, at: int) -> Moved:
    """Return the reader of operand `at` of a DPP instruction (CDNA3 ISA, section 6.6.2)."""
    lanes, inside = _permutation(operands.modifiers)
    rows, banks = operands.number("row_mask", 15), operands.number("bank_mask", 15)
    allowed = (rows >> _LANE // 16 & 1 == 1) & (banks >> _LANE % 16 // 4 & 1 == 1)
    zero_outside, register = "bound_ctrl" in operands.modifiers, operands.items[at].number

    def read(wave: Wave) -> tuple[Words, Mask | None]:
        valid = inside & wave.mask[lanes]
        value = wave.vector(register)[lanes]
        if zero_outside:
            return np.where(valid, value, np.uint32(0)), allowed
        return value, allowed & valid

    return read


def _permutation(modifiers: dict[str, str]) -> tuple[NDArray[Any], Mask]:
    """Return the lane that each lane reads, and whether it exists."""
    for name, text in modifiers.items():
        if name == "quad_perm":
            order = np.array([int(t) for t in text.strip("[]").split(",")])
            return _LANE // 4 * 4 + order[_LANE % 4], np.ones(LANES, np.bool_)
        if name in _MIRRORS:
            return _LANE // _MIRRORS[name] * _MIRRORS[name] + _MIRRORS[name] - 1 - _LANE % _MIRRORS[name], _LANE >= 0
        if name in _STEPS:
            return _STEPS[name](int(text, 0))
    raise NotImplementedError(f"data-parallel primitive {modifiers}")


_MIRRORS = {"row_mirror": 16, "row_half_mirror": 8}
_STEPS: dict[str, Callable[[int], tuple[Any, Any]]] = {
    "row_shl": lambda n: (np.minimum(_LANE + n, 63), _ROW + n < 16),
    "row_shr": lambda n: (np.maximum(_LANE - n, 0), _ROW >= n),
    "row_ror": lambda n: (_LANE - _ROW + (_ROW - n) % 16, _LANE >= 0),
    "row_newbcast": lambda n: (_LANE - _ROW + n, _LANE >= 0),
    "row_bcast": lambda n: (np.maximum(_LANE // (n + 1) * (n + 1) - 1, 0), _LANE > n),
    "wave_shl": lambda n: (np.minimum(_LANE + n, 63), _LANE + n < 64),
    "wave_shr": lambda n: (np.maximum(_LANE - n, 0), n <= _LANE),
    "wave_ror": lambda n: ((_LANE - n) % 64, _LANE >= 0),
}


def cut(raw: Callable[[Wave], Any], selection: str, kind: str, signed: bool) -> Callable[[Wave], Any]:
    """Return the reader of a byte or half of what `raw` reads, as a number of `kind` (SDWA, section 6.6.1)."""
    shift, width = _SELECTED[selection]
    dtype = {"u": np.uint32, "i": np.int32, "f": np.float32, "w": np.uint16, "j": np.int16, "h": np.float16}[kind]
    mask = np.uint32((1 << width) - 1)

    def read(wave: Wave) -> Any:
        bits = np.asarray(raw(wave) >> np.uint32(shift) & mask)
        if signed:
            bits = (bits.view(np.int32) << (32 - width) >> (32 - width)).view(np.uint32)
        return (bits.astype(np.uint16) if kind in "wjh" else bits).view(dtype)

    return read


def placed(result: Any, old: Words, selection: str, unused: str) -> Words:
    """Return a result in the byte or half of a register that SDWA selects."""
    shift, width = _SELECTED[selection]
    mask = np.uint32((1 << width) - 1)
    bits = np.broadcast_to(result.view(_WORD[result.dtype.itemsize]).astype(np.uint32) & mask, LANES)
    if unused == "UNUSED_SEXT":
        raise NotImplementedError(unused)
    around = old & ~(mask << np.uint32(shift)) if unused == "UNUSED_PRESERVE" else np.uint32(0)
    return bits << np.uint32(shift) | around


_WORD = {2: np.uint16, 4: np.uint32}


def swizzle(offset: int) -> NDArray[Any]:
    """Return the lane that each lane reads in `ds_swizzle_b32` (section 11.4)."""
    if offset & 0x8000:
        return _LANE // 4 * 4 + (offset >> 2 * (_LANE % 4) & 3)
    kept, ones, flipped = offset & 31, offset >> 5 & 31, offset >> 10 & 31
    return _LANE // 32 * 32 + ((_LANE & kept | ones) ^ flipped) % 32


def gathered(values: Words, lanes: NDArray[Any], active: Mask) -> Words:
    """Return what each lane reads of `lanes`; those that are not active give 0."""
    return np.where(active[lanes], values[lanes], np.uint32(0))


ENCODINGS = re.compile(r"_(e32|e64|dpp|sdwa|e64_dpp)$")
