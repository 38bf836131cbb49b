"""What instructions read and write, by kind of value.

| kind | value of a lane | registers |
|---|---|---|
| u, i | 32 bits, unsigned or signed | 1 |
| f | float32 | 1 |
| h | float16, the half that `op_sel` names | 1 |
| w, j | 16 bits, unsigned or signed | 1 |
| U, I | 64 bits, unsigned or signed | 2 |
| d | float64 | 2 |
| F | two float32, along the first axis | 2 |
| H | two float16, along the first axis | 1 |
| x | float32 or float16, as `op_sel_hi` says | 1 |
| m | a bit of a mask | 2 scalar |

A `Source` reads a value of all lanes; one that is the same for all is of no dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.machine.gfx942.operands import Operand, Operands
from tests.machine.gfx942.wave import Mask, Wave, bits_of, lanes_of

Source = Callable[[Wave], Any]
Sink = Callable[[Wave, Any, "Mask | None"], None]

_TYPES: dict[str, Any] = {
    "u": np.uint32, "i": np.int32, "f": np.float32, "U": np.uint64, "I": np.int64, "d": np.float64,
}  # fmt: skip
_SHORT: dict[str, Any] = {"h": np.float16, "w": np.uint16, "j": np.int16}


def source(operands: Operands, at: int, kind: str) -> Source:
    """Return the reader of operand `at`, which is the instruction's source number `at` less its results."""
    return _READERS[kind](operands, at)


def _position(operands: Operands, at: int, name: str, default: int) -> int:
    """Return a bit of a modifier for operand `at`; results stand before sources and have none."""
    return operands.bits(name, default)[at - 1]


def _plain(kind: str) -> Callable[[Operands, int], Source]:
    dtype, wide = _TYPES[kind], kind in "UId"

    def reader(operands: Operands, at: int) -> Source:
        op = operands.items[at]
        raw = _raw_pair(op, kind) if wide else _raw(op, kind)
        if kind in "fd":
            return _signed(op, lambda wave: raw(wave).view(dtype))
        return _sign_bits(op, raw) if kind == "u" else _unsigned(op, lambda wave: raw(wave).view(dtype))

    return reader


def _signed(op: Operand, read: Source) -> Source:
    """Apply a source's modifiers: absolute value, then the other sign."""
    if op.absolute and op.negative:
        return lambda wave: -np.abs(read(wave))
    if op.absolute:
        return lambda wave: np.abs(read(wave))
    if op.negative:
        return lambda wave: -read(wave)
    return read


def _sign_bits(op: Operand, raw: Source) -> Source:
    """Apply the modifiers to bits that are moved: they are those of a float32."""
    kept = np.uint32(0x7FFFFFFF if op.absolute else 0xFFFFFFFF)
    flipped = np.uint32(0x80000000 if op.negative else 0)
    return (lambda wave: raw(wave) & kept ^ flipped) if op.absolute or op.negative else raw


def _unsigned(op: Operand, read: Source) -> Source:
    if op.absolute or op.negative:
        raise NotImplementedError(f"a sign of {op.text}")
    return read


def _raw(op: Operand, kind: str) -> Source:
    if op.file == "v":
        return lambda wave: wave.vector(op.number)
    if op.file == "s":
        return lambda wave: np.uint32(wave.scalar(op.number))
    constant = np.uint32(op.bits(kind) & 0xFFFFFFFF)
    return lambda _wave: constant


def _raw_pair(op: Operand, kind: str) -> Source:
    if op.file == "v":
        low, high = op.number, op.number + 1
        shift = np.uint64(32)
        return lambda wave: wave.vector(low).astype(np.uint64) | wave.vector(high).astype(np.uint64) << shift
    if op.file == "s":
        return lambda wave: np.uint64(wave.pair(op.number))
    constant = np.uint64(op.bits(kind) & 0xFFFFFFFFFFFFFFFF)
    return lambda _wave: constant


def _short(kind: str) -> Callable[[Operands, int], Source]:
    dtype = _SHORT[kind]

    def reader(operands: Operands, at: int) -> Source:
        op, upper = operands.items[at], _position(operands, at, "op_sel", 0)
        raw, shift = _raw(op, kind), np.uint32(16 * upper)
        signed = _signed if kind == "h" else _unsigned
        return signed(op, lambda wave: (raw(wave) >> shift).astype(np.uint16).view(dtype))

    return reader


def _two_floats(operands: Operands, at: int) -> Source:
    """Two float32, from registers that `op_sel` chooses for the first and `op_sel_hi` for the second."""
    op = operands.items[at]
    chosen = [_position(operands, at, name, default) for name, default in (("op_sel", 0), ("op_sel_hi", 1))]
    if not op.file and chosen != [0, 0]:
        raise NotImplementedError("a constant as a second float")
    parts = [_plain("f")(Operands((Operand(op.file, op.number + n, 1, op.text),)), 0) for n in chosen]
    return _with_signs(operands, at, parts)


def _two_halves(operands: Operands, at: int) -> Source:
    op = operands.items[at]
    raw = _raw(op, "H")
    shifts = [np.uint32(16 * _position(operands, at, name, d)) for name, d in (("op_sel", 0), ("op_sel_hi", 1))]

    def half(shift: Any) -> Source:
        return lambda wave: (raw(wave) >> shift).astype(np.uint16).view(np.float16)

    return _with_signs(operands, at, [half(s) for s in shifts])


def _with_signs(operands: Operands, at: int, parts: list[Source]) -> Source:
    signs = [-1 if _position(operands, at, name, 0) else 1 for name in ("neg_lo", "neg_hi")]

    def read(wave: Wave) -> Any:
        low, high = (part(wave) for part in parts)
        low, high = low if signs[0] > 0 else -low, high if signs[1] > 0 else -high
        return np.stack(np.broadcast_arrays(np.atleast_1d(low), np.atleast_1d(high)))

    return read


def _mixed(operands: Operands, at: int) -> Source:
    half = _position(operands, at, "op_sel_hi", 0)
    if not half:
        return _plain("f")(operands, at)
    short = _short("h")(operands, at)
    return lambda wave: short(wave).astype(np.float32)


def _mask(operands: Operands, at: int) -> Source:
    op = operands.items[at]
    if not op.file:
        constant = lanes_of(op.bits("U"))
        return lambda _wave: constant
    return lambda wave: lanes_of(wave.pair(op.number))


_READERS: dict[str, Callable[[Operands, int], Source]] = {
    **{kind: _plain(kind) for kind in _TYPES},
    **{kind: _short(kind) for kind in _SHORT},
    "F": _two_floats,
    "H": _two_halves,
    "x": _mixed,
    "m": _mask,
}


# ---------------------------------------------------------------------------- results


def sink(op: Operand, kind: str) -> Sink:
    """Return the writer of a result of all lanes; those of `also` alone, if that is given."""
    if kind == "m":
        return lambda wave, value, _also: wave.set_pair(op.number, bits_of(np.broadcast_to(value, 64) & wave.mask))
    return _SINKS[kind](op.number)


def _word(n: int) -> Sink:
    return lambda wave, value, also: wave.set_vector(n, value.view(np.uint32), also)


def _halfword(n: int) -> Sink:
    """The upper half becomes zero."""
    return lambda wave, value, also: wave.set_vector(n, value.view(np.uint16).astype(np.uint32), also)


def _words(n: int) -> Sink:
    def write(wave: Wave, value: Any, also: Mask | None) -> None:
        bits = value.view(np.uint64)
        wave.set_vector(n, bits.astype(np.uint32), also)
        wave.set_vector(n + 1, (bits >> np.uint64(32)).astype(np.uint32), also)

    return write


def _two(n: int) -> Sink:
    def write(wave: Wave, value: Any, also: Mask | None) -> None:
        for i in range(2):
            wave.set_vector(n + i, value[i].view(np.uint32), also)

    return write


def _packed(n: int) -> Sink:
    def write(wave: Wave, value: Any, also: Mask | None) -> None:
        bits = np.ascontiguousarray(value).view(np.uint16).astype(np.uint32)
        wave.set_vector(n, bits[0] | bits[1] << np.uint32(16), also)

    return write


_SINKS: dict[str, Callable[[int], Sink]] = {
    **dict.fromkeys("uif", _word),
    **dict.fromkeys("hwj", _halfword),
    **dict.fromkeys("UId", _words),
    "F": _two,
    "H": _packed,
}
