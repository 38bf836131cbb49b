"""The representation of numbers: each float as a float32 that its element type can hold, each integer in its own width.

Rounding is to nearest, ties to even. Overflow follows PyTorch's casts: float16, bfloat16 and float8_e5m2 become
infinity, float8_e4m3fn stays at its largest value (like the hardware's saturating conversion), and "fnuz" types become
NaN. The float8 formats are those of the OCP 8-bit floating point specification, and for "fnuz" those of Graphcore and
AMD (one zero, NaN at 0x80, larger bias).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from argus.ir.types import DType

Array: TypeAlias = NDArray[Any]
Bits: TypeAlias = NDArray[Any]
"""Unsigned integers of the element's storage width."""


_WIDE, _DISTURBED = " in 64 bits", " in 64 bits, disturbed"
"""Suffixes of the names of types that `widened` makes."""


def widened(dtype: DType, disturbed: bool = False) -> DType:
    """Return a float type that takes as much memory as `dtype` and holds every 64-bit number."""
    return DType(dtype.name + (_DISTURBED if disturbed else _WIDE), dtype.kind, dtype.bits)


def is_wide(dtype: DType) -> bool:
    """Return True for a type that `widened` made."""
    return dtype.name.endswith((_WIDE, _DISTURBED))


def disturbed(values: Array, dtype: DType) -> Array:
    """Return results of arithmetic, changed by at most a part in 2^40 if their type requests it. Equal numbers change
    alike."""
    return shaken(values) if dtype.name.endswith(_DISTURBED) else values


def shaken(values: Array) -> Array:
    """Change each 64-bit number by at most a part in 2^40 that depends on the number alone."""
    bits = np.ascontiguousarray(values, dtype=np.float64).view(np.uint64)
    with np.errstate(all="ignore"):
        mixed = (bits ^ (bits >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        part = (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1
        result: Array = (values * (1 + part * 2.0**-40)).reshape(np.shape(values))
    return result


_LARGE = 1e150


def strains(values: Array) -> bool:
    """Return True if a number is so large or small that float64 may overflow or underflow in what follows from it."""
    with np.errstate(all="ignore"):
        magnitude = np.abs(values)
        extreme = ((magnitude > _LARGE) & (magnitude < np.inf)) | ((magnitude < 1 / _LARGE) & (magnitude > 0))
    return bool(np.any(extreme))


def saturates(op: str, argument: Array, result: Array) -> bool:
    """Return True if a function reaches its limit at a finite argument, which only rounding lets it do."""
    match op:
        case "exp" | "exp2":
            limit = result == 0
        case "sigmoid":
            limit = (result == 0) | (result == 1)
        case "tanh" | "tanh_approx" | "erf":
            limit = np.abs(result) == 1
        case _:
            return False
    return bool(np.any(limit & np.isfinite(argument)))


def carrier(dtype: DType) -> np.dtype[Any]:
    """Return the NumPy type that carries `dtype` in the simulator: float32 for every float, else the type of the same
    name."""
    if dtype.is_float:
        return np.dtype(np.float64 if is_wide(dtype) else np.float32)
    return np.dtype(np.bool_ if dtype.kind == "bool" else dtype.name)


def round_to(values: Array, dtype: DType) -> Array:
    """Return `values` in the carrier of `dtype`, each rounded to the nearest value of `dtype`.

    Integers wrap to the width of `dtype`. A float becomes an integer by truncation; NaN becomes 0, and a float outside
    the range becomes the nearest integer of the type.
    """
    if not dtype.is_float:
        if dtype.kind == "bool":
            truth: Array = values != 0
            return truth
        if values.dtype.kind == "f":
            limit = np.iinfo(carrier(dtype))
            whole = np.nan_to_num(np.trunc(values.astype(np.float64)))
            # As a float, the largest 64-bit integer is one larger.
            inside = np.where(whole >= float(limit.max), 0, np.maximum(whole, float(limit.min)))
            result: Array = np.where(whole >= float(limit.max), limit.max, inside.astype(carrier(dtype)))
            return result
        return values.astype(carrier(dtype))
    if is_wide(dtype):
        return values.astype(np.float64)
    values = values.astype(np.float32)
    match dtype.name:
        case "float32":
            return values
        case "float16":
            with np.errstate(over="ignore"):
                return values.astype(np.float16).astype(np.float32)
        case "bfloat16":
            return _drop_mantissa(values, 16)
        case "tfloat32":
            return _drop_mantissa(values, 13)
        case _:
            return from_bits(to_bits(values, dtype), dtype)


def _drop_mantissa(values: Array, bits: int) -> Array:
    """Round float32 to nearest even with `bits` fewer mantissa bits."""
    raw = values.view(np.uint32)
    half = np.uint32((1 << (bits - 1)) - 1)
    keep = np.uint32((0xFFFFFFFF << bits) & 0xFFFFFFFF)
    with np.errstate(over="ignore"):
        rounded = (raw + (half + ((raw >> np.uint32(bits)) & np.uint32(1)))) & keep
    quiet = np.uint32(0x7FC00000)
    result: Array = np.where(np.isnan(values), quiet, rounded).astype(np.uint32).view(np.float32)
    return result


_UFUNCS: dict[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum}


def reduced(before: Array, values: Array, group: Array, op: str, dtype: DType) -> Array:
    """Return `before[g] op values[i] ...` for all i with `group[i] == g`, in order. Every step is rounded to `dtype`.
    """
    ufunc = _UFUNCS[op]
    result: Array = before.copy()
    third = np.full(1, 1 / 3, dtype=np.float32)
    if before.dtype.kind != "f" or round_to(third, dtype)[0] == third[0]:
        with np.errstate(all="ignore"):
            ufunc.at(result, group, values.astype(before.dtype))
        return disturbed(result, dtype) if op == "add" else result
    # One contribution of each group at a time.
    order = np.argsort(group, kind="stable")
    ranked = group[order]
    rank = np.arange(len(order)) - np.searchsorted(ranked, ranked, "left")
    for r in range(int(rank.max(initial=-1)) + 1):
        now = order[rank == r]
        result[group[now]] = round_to(ufunc(result[group[now]], values[now]), dtype)
    return result


def bf16_to_bits(values: Array) -> Bits:
    """Return the uint16 bit patterns of float32 values, rounded to bfloat16."""
    result: Array = (_drop_mantissa(values.astype(np.float32), 16).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return result


def bits_to_bf16(bits: Bits) -> Array:
    """Return the float32 values of uint16 bfloat16 bit patterns."""
    result: Array = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return result


def to_bits(values: Array, dtype: DType) -> Bits:
    """Return the unsigned storage bits of carried `values`, after rounding to `dtype`."""
    match dtype.name:
        case "bfloat16":
            return bf16_to_bits(values)
        case "float16":
            with np.errstate(over="ignore"):
                return values.astype(np.float32).astype(np.float16).view(np.uint16)
        case "float32" | "tfloat32":
            return round_to(values, dtype).view(np.uint32)
        case "bool":
            return values.astype(np.uint8)
        case _ if dtype.is_float:
            return _float8(dtype.name).encode(values.astype(np.float32))
        case _:
            return values.astype(carrier(dtype)).view(f"uint{dtype.bits}")


def from_bits(bits: Bits, dtype: DType) -> Array:
    """Return the carried values of storage bits. Law: `to_bits(from_bits(b)) == b`, except that NaNs may become quiet.
    """
    match dtype.name:
        case "bfloat16":
            return bits_to_bf16(bits)
        case "float16":
            return bits.astype(np.uint16).view(np.float16).astype(np.float32)
        case "float32" | "tfloat32":
            return bits.astype(np.uint32).view(np.float32)
        case "bool":
            result: Array = bits != 0
            return result
        case _ if dtype.is_float:
            return _float8(dtype.name).values[bits]
        case _:
            return bits.view(carrier(dtype))


@dataclass(frozen=True, slots=True)
class _Float8:
    """Tables of one 8-bit format: all 256 values, the midpoints between neighbours, and the result of overflow."""

    values: Array
    midpoints: Array
    overflow: int
    nan: int
    negative_zero: bool

    def encode(self, values: Array) -> Bits:
        magnitude = np.abs(values)
        low = np.searchsorted(self.midpoints, magnitude, side="left")
        high = np.searchsorted(self.midpoints, magnitude, side="right")
        # On a midpoint the two searches differ by one; the even code wins.
        code = np.where(low % 2 == 0, low, high).astype(np.int64)
        code = np.where(code >= len(self.midpoints), self.overflow, code)
        negative = np.signbit(values) & ((code != 0) | self.negative_zero) & (code != 0x80)
        code = np.where(negative, code | 0x80, code)
        return np.where(np.isnan(values), self.nan, code).astype(np.uint8)


@lru_cache(maxsize=8)
def _float8(name: str) -> _Float8:
    exponent_bits = 5 if "e5m2" in name else 4
    mantissa_bits = 7 - exponent_bits
    unsigned_zero = name.endswith("fnuz")
    bias = 2 ** (exponent_bits - 1) - (0 if unsigned_zero else 1)
    codes = np.arange(128)
    exponent, mantissa = codes >> mantissa_bits, codes & (2**mantissa_bits - 1)
    subnormal = exponent == 0
    scale = np.exp2(np.where(subnormal, 1, exponent) - bias - mantissa_bits)
    positive = (mantissa + np.where(subnormal, 0, 2**mantissa_bits)) * scale
    # Codes from `finite` on are not finite numbers; the value that follows the largest one bounds its rounding.
    finite = {"float8_e4m3fn": 127, "float8_e5m2": 124}.get(name, 128)
    past = positive[finite] if finite < 128 else 2 * positive[-1] - positive[-2]
    neighbours = np.append(positive[:finite], past)
    midpoints = ((neighbours[1:] + neighbours[:-1]) / 2).astype(np.float32)
    values = np.concatenate([positive, -positive]).astype(np.float32)
    match name:
        case "float8_e4m3fn":
            values[[127, 255]], overflow, nan = np.nan, 126, 127
        case "float8_e5m2":
            values[[124, 252]], values[[125, 126, 127, 253, 254, 255]] = (np.inf, -np.inf), np.nan
            overflow, nan = 124, 126
        case _:
            values[128], overflow, nan = np.nan, 128, 128
    return _Float8(values, midpoints, overflow, nan, not unsigned_zero)
