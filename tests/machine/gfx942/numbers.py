"""Functions of a lane that have no name in NumPy: bits, special functions, division, and narrow floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any

_LANES = np.arange(64, dtype=np.uint64)
BELOW = tuple((((np.uint64(1) << _LANES) - np.uint64(1)) >> np.uint64(shift)).astype(np.uint32) for shift in (0, 32))
"""For each lane the lower and the upper 32 lanes before it, as bits."""

_ONE, _WORD = np.uint32(1), np.uint64(32)
_NAN = np.float32(np.nan)


def reversed_bits(a: Array) -> Array:
    """Return the bits in opposite order."""
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF), (16, 0x0000FFFF)):
        s, m = np.uint32(shift), np.uint32(mask)
        a = a >> s & m | (a & m) << s
    return a


def population(a: Array) -> Array:
    """Count the bits that are set."""
    bits = np.asarray(a, np.uint32)[..., None] >> np.arange(32, dtype=np.uint32) & _ONE
    return bits.sum(-1, dtype=np.uint32)


def leading_zeros(a: Array) -> Array:
    """Count the zeros above the highest bit; all bits set for 0."""
    return np.where(a == 0, np.uint32(0xFFFFFFFF), (31 - np.floor(np.log2(np.maximum(a, 1)))).astype(np.uint32))


def trailing_zeros(a: Array) -> Array:
    """Count the zeros below the lowest bit; all bits set for 0."""
    return np.where(a == 0, np.uint32(0xFFFFFFFF), population((a & (~a + _ONE)) - _ONE))


def field(a: Array, offset: Array, width: Array) -> Array:
    """Return `width` bits from bit `offset` on."""
    low, count = offset & np.uint32(31), width & np.uint32(31)
    return a >> low & ((_ONE << count) - _ONE)


def signed_field(a: Array, offset: Array, width: Array) -> Array:
    """Return `width` bits from bit `offset` on, the highest as a sign."""
    count = (width & np.uint32(31)).astype(np.int64)
    low = np.asarray(a, np.int64) >> (offset & np.uint32(31)).astype(np.int64)
    return np.where(count == 0, 0, low << (64 - np.maximum(count, 1)) >> (64 - np.maximum(count, 1))).astype(np.int32)


def aligned_bits(a: Array, b: Array, shift: Array) -> Array:
    """Return 32 bits of the 64 bits a, b from bit `shift` of b on."""
    whole = np.asarray(a, np.uint64) << _WORD | b
    return (whole >> np.asarray(shift & np.uint32(31), np.uint64)).astype(np.uint32)


def permuted_bytes(a: Array, b: Array, selector: Array) -> Array:
    """Return four bytes, each of those of b (0 to 3), of a (4 to 7), or constant zeros (12) or ones (from 13)."""
    whole, result = np.asarray(a, np.uint64) << _WORD | b, np.uint32(0)
    for i in range(4):
        chosen = np.asarray(selector >> np.uint32(8 * i) & np.uint32(255), np.uint64)
        if (np.asarray(chosen) // 4 == 2).any():
            raise NotImplementedError("v_perm_b32: signs")
        byte = whole >> np.uint64(8) * np.minimum(chosen, np.uint64(7)) & np.uint64(255)
        byte = np.where(chosen >= 12, np.where(chosen == 12, 0, 255), byte)
        result = result | byte.astype(np.uint32) << np.uint32(8 * i)
    return result


def packed_halves(a: Array, b: Array) -> Array:
    """Return two halves as one word."""
    low, high = (np.atleast_1d(x).view(np.uint16).astype(np.uint32) for x in (a, b))
    return low | high << np.uint32(16)


def wide_product(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """Return a * b + c in 64 bits, and whether that carries."""
    product = np.asarray(a, np.uint64) * b
    total = product + c
    return total, total < product


def fused(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c, rounded once from float64."""
    wide = np.asarray(a, np.float64) * np.asarray(b, np.float64) + np.asarray(c, np.float64)
    return wide.astype(np.float32)


def median(a: Array, b: Array, c: Array) -> Array:
    """Return the middle number; the smallest if one is no number."""
    least, most = np.fmin(np.fmin(a, b), c), np.fmax(np.fmax(a, b), c)
    middle = np.fmax(np.fmin(a, b), np.fmin(np.fmax(a, b), c))
    return np.where(np.isnan(a) | np.isnan(b) | np.isnan(c), least, np.clip(middle, least, most))


def _flushed(x: Array) -> Array:
    return np.where(np.abs(x) < np.float32(2**-126), np.copysign(np.float32(0), x), x).astype(np.float32)


def exp2(a: Array) -> Array:
    """Return 2 ** a; results that are subnormal are 0."""
    return _flushed(np.exp2(_flushed(a).astype(np.float64)).astype(np.float32))


def log2(a: Array) -> Array:
    """Return log2(a); subnormal numbers count as 0."""
    return np.log2(_flushed(a).astype(np.float64)).astype(np.float32)


def reciprocal(a: Array) -> Array:
    """Return 1 / a without subnormal numbers."""
    return _flushed((1 / _flushed(a).astype(np.float64)).astype(np.float32))


def reciprocal_root(a: Array) -> Array:
    """Return 1 / sqrt(a); subnormal numbers count as 0."""
    return (1 / np.sqrt(_flushed(a).astype(np.float64))).astype(np.float32)


def whole(a: Array, dtype: Any) -> Array:
    """Return a toward zero, within the range of `dtype`; 0 for what is no number."""
    limits = np.iinfo(dtype)
    return np.clip(np.nan_to_num(np.trunc(a.astype(np.float64)), nan=0.0), limits.min, limits.max).astype(dtype)


def float_of_byte(n: int) -> Callable[[Array], Array]:
    """Return the function that converts byte `n`."""
    return lambda a: (a >> np.uint32(8 * n) & np.uint32(255)).astype(np.float32)


def negated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that is True where `function` is not."""
    return lambda a, b: ~function(a, b)


def unequal(a: Array, b: Array) -> Array:
    """Return True where a is less or greater than b."""
    return (a < b) | (a > b)


def of_class(a: Array, classes: Array) -> Array:
    """Return True where a is of one of the classes whose bits are set."""
    tiny = (np.abs(a) < np.float32(2**-126)) & (a != 0)
    minus, normal = np.signbit(a), np.isfinite(a) & (a != 0) & ~tiny
    nan = np.isnan(a)
    found = [nan & False, nan, minus & np.isinf(a), minus & normal, minus & tiny, minus & (a == 0)]
    found += [~minus & (a == 0), ~minus & tiny, ~minus & normal, ~minus & np.isinf(a)]
    return np.any([f & ((classes >> np.uint32(bit) & _ONE) != 0) for bit, f in enumerate(found)], axis=0)


# ---------------------------------------------------------------------------- division


def _exponent(a: Array) -> Array:
    """Return the exponent as it is encoded: 127 for numbers from 1 to 2, 0 for zero and subnormal numbers."""
    return (a.view(np.uint32) >> np.uint32(23) & np.uint32(255)).astype(np.int32)


def division_scale(value: Array, below: Array, above: Array) -> tuple[Array, Array]:
    """Scale an operand of above / below by 2**64 or 2**-64 so that no step of the division leaves the normal numbers;
    and say whether the last step must scale the result (v_div_scale_f32).

    The document's conditions name subnormal results; what chips test are differences of exponents, as LLVM's division
    needs and AMD's emulator does.
    """
    value, below, above = (np.ascontiguousarray(x) for x in np.broadcast_arrays(value, below, above))
    of_below = value.view(np.uint32) == below.view(np.uint32)
    apart = _exponent(above) - _exponent(below)
    cases = [
        (apart >= 96, np.where(of_below, 64, 0), True),
        (_exponent(below) == 0, 64, False),
        ((_exponent(below) >= 253) & (apart <= -96), np.where(of_below, -64, 0), True),
        (_exponent(below) >= 253, -64, False),
        (apart <= -96, np.where(of_below, 0, 64), True),
        (_exponent(above) <= 24, 64, False),
    ]
    where = [case for case, _, _ in cases]
    by = np.select(where, [np.broadcast_to(by, value.shape) for _, by, _ in cases], 0)
    scaled = np.where((below == 0) | (above == 0), np.float32(_NAN), np.ldexp(value, by.astype(np.int32)))
    return scaled.astype(np.float32), np.select(where, [np.full(value.shape, flag) for _, _, flag in cases], False)


def division_step(a: Array, b: Array, c: Array, scaled: Array) -> Array:
    """Return a * b + c; where `scaled` says so, times 2**64 if c is 2 or more, else 2**-64 (v_div_fmas_f32)."""
    wide = np.asarray(a, np.float64) * b + np.asarray(c, np.float64)
    c = np.ascontiguousarray(np.broadcast_to(c, wide.shape))
    by = np.where(_exponent(c) > 127, 64, -64) * scaled
    return np.ldexp(wide, by.astype(np.int32)).astype(np.float32)


def division_end(quotient: Array, below: Array, above: Array) -> Array:
    """Replace what the steps cannot make: zeros, infinities, and what is no number (v_div_fixup_f32)."""
    quotient, below, above = (np.ascontiguousarray(x) for x in np.broadcast_arrays(quotient, below, above))
    minus = np.signbit(below) ^ np.signbit(above)
    sign = np.where(minus, np.float32(-1), np.float32(1))
    none = np.isnan(below) | np.isnan(above) | ((below == 0) & (above == 0)) | (np.isinf(below) & np.isinf(above))
    infinite = (below == 0) | np.isinf(above)
    zero = np.isinf(below) | (above == 0) | (_exponent(above) - _exponent(below) < -150)
    return np.select(
        [none, infinite, zero, ~np.isfinite(quotient)],
        [np.full_like(quotient, _NAN), sign * np.float32(np.inf), sign * np.float32(0), sign * np.float32(np.inf)],
        sign * np.abs(quotient),
    ).astype(np.float32)


# ---------------------------------------------------------------------------- floats of 8 bits


def _fnuz(exponent_bits: int, bias: int) -> Array:
    """Return the values of a format without infinities and negative zero, whose place is what is no number."""
    bits = np.arange(256)
    fraction_bits = 7 - exponent_bits
    exponent, fraction = bits >> fraction_bits & (1 << exponent_bits) - 1, bits & (1 << fraction_bits) - 1
    size = np.where(
        exponent == 0,
        np.ldexp(fraction.astype(np.float64), 1 - bias - fraction_bits),
        np.ldexp(1 + fraction / (1 << fraction_bits), exponent - bias),
    )
    return np.where(bits == 128, np.nan, np.where(bits > 128, -size, size)).astype(np.float32)


FP8 = {"fp8": _fnuz(4, 8), "bf8": _fnuz(5, 16)}
