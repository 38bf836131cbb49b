"""The vector instructions, one row each: the kinds of result and sources (`values`), and the function of a lane.

CDNA3 ISA, chapters 6 and 12.7 to 12.12. Names are without their suffix of encoding. In sources "." is VCC, read without
being named; "@" before a kind reads the result's register.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.machine.gfx942 import numbers as n

Function = Callable[..., Any]
Row = tuple[str, str, Function]
"""Kinds of results, kinds of sources, and the function from sources to the result, or to a tuple of results."""

_LOW5, _LOW4, _LOW6 = np.uint32(31), np.uint16(15), np.uint64(63)


def _u(x: int) -> np.uint32:
    return np.uint32(x)


def _cut24(x: Any) -> Any:
    return x & _u(0xFFFFFF)


def _with_carry(a: Any, b: Any, c: Any = 0) -> tuple[Any, Any]:
    whole = np.asarray(a, np.uint64) + b + np.asarray(c, np.uint64)
    return whole.astype(np.uint32), whole >> np.uint64(32) != 0


def _with_borrow(a: Any, b: Any, c: Any = 0) -> tuple[Any, Any]:
    whole = np.asarray(a, np.int64) - np.asarray(b, np.int64) - np.asarray(c, np.int64)
    return whole.astype(np.uint32), whole < 0


ROWS: dict[str, Row] = {
    # moves
    "v_mov_b32": ("u", "u", lambda a: a),
    "v_mov_b64": ("U", "U", lambda a: a),
    "v_accvgpr_write_b32": ("u", "u", lambda a: a),
    "v_accvgpr_read_b32": ("u", "u", lambda a: a),
    "v_accvgpr_mov_b32": ("u", "u", lambda a: a),
    "v_cndmask_b32": ("u", "uum", lambda a, b, m: np.where(m, b, a)),
    # bits
    "v_not_b32": ("u", "u", np.bitwise_not),
    "v_bfrev_b32": ("u", "u", n.reversed_bits),
    "v_and_b32": ("u", "uu", np.bitwise_and),
    "v_or_b32": ("u", "uu", np.bitwise_or),
    "v_xor_b32": ("u", "uu", np.bitwise_xor),
    "v_xnor_b32": ("u", "uu", lambda a, b: ~(a ^ b)),
    "v_or3_b32": ("u", "uuu", lambda a, b, c: a | b | c),
    "v_and_or_b32": ("u", "uuu", lambda a, b, c: a & b | c),
    "v_bfi_b32": ("u", "uuu", lambda a, b, c: a & b | ~a & c),
    "v_bfe_u32": ("u", "uuu", n.field),
    "v_bfe_i32": ("i", "iuu", n.signed_field),
    "v_lshlrev_b32": ("u", "uu", lambda a, b: b << (a & _LOW5)),
    "v_lshrrev_b32": ("u", "uu", lambda a, b: b >> (a & _LOW5)),
    "v_ashrrev_i32": ("i", "ui", lambda a, b: b >> (a & _LOW5).astype(np.int32)),
    "v_lshlrev_b16": ("w", "ww", lambda a, b: b << (a & _LOW4)),
    "v_lshrrev_b16": ("w", "ww", lambda a, b: b >> (a & _LOW4)),
    "v_ashrrev_i16": ("j", "wj", lambda a, b: b >> (a & _LOW4).astype(np.int16)),
    "v_lshlrev_b64": ("U", "uU", lambda a, b: b << (a.astype(np.uint64) & _LOW6)),
    "v_lshrrev_b64": ("U", "uU", lambda a, b: b >> (a.astype(np.uint64) & _LOW6)),
    "v_ashrrev_i64": ("I", "uI", lambda a, b: b >> (a.astype(np.int64) & 63)),
    "v_lshl_or_b32": ("u", "uuu", lambda a, b, c: a << (b & _LOW5) | c),
    "v_lshl_add_u32": ("u", "uuu", lambda a, b, c: (a << (b & _LOW5)) + c),
    "v_add_lshl_u32": ("u", "uuu", lambda a, b, c: (a + b) << (c & _LOW5)),
    "v_lshl_add_u64": ("U", "UuU", lambda a, b, c: (a << (b.astype(np.uint64) & _LOW6)) + c),
    "v_xad_u32": ("u", "uuu", lambda a, b, c: (a ^ b) + c),
    "v_alignbit_b32": ("u", "uuu", n.aligned_bits),
    "v_alignbyte_b32": ("u", "uuu", lambda a, b, c: n.aligned_bits(a, b, (c & _u(3)) * _u(8))),
    "v_perm_b32": ("u", "uuu", n.permuted_bytes),
    "v_pack_b32_f16": ("u", "hh", n.packed_halves),
    "v_bcnt_u32_b32": ("u", "uu", lambda a, b: n.population(a) + b),
    "v_ffbh_u32": ("u", "u", n.leading_zeros),
    "v_ffbl_b32": ("u", "u", n.trailing_zeros),
    "v_mbcnt_lo_u32_b32": ("u", "uu", lambda a, b: n.population(a & n.BELOW[0]) + b),
    "v_mbcnt_hi_u32_b32": ("u", "uu", lambda a, b: n.population(a & n.BELOW[1]) + b),
    # integers
    "v_add_u32": ("u", "uu", np.add),
    "v_sub_u32": ("u", "uu", np.subtract),
    "v_subrev_u32": ("u", "uu", lambda a, b: b - a),
    "v_add3_u32": ("u", "uuu", lambda a, b, c: a + b + c),
    "v_add_u16": ("w", "ww", np.add),
    "v_sub_u16": ("w", "ww", np.subtract),
    "v_subrev_u16": ("w", "ww", lambda a, b: b - a),
    "v_mul_lo_u16": ("w", "ww", np.multiply),
    "v_add_co_u32": ("um", "uu", _with_carry),
    "v_addc_co_u32": ("um", "uum", _with_carry),
    "v_sub_co_u32": ("um", "uu", _with_borrow),
    "v_subrev_co_u32": ("um", "uu", lambda a, b: _with_borrow(b, a)),
    "v_subb_co_u32": ("um", "uum", _with_borrow),
    "v_subbrev_co_u32": ("um", "uum", lambda a, b, c: _with_borrow(b, a, c)),
    "v_mul_lo_u32": ("u", "uu", np.multiply),
    "v_mul_hi_u32": ("u", "uu", lambda a, b: (np.asarray(a, np.uint64) * b >> np.uint64(32)).astype(np.uint32)),
    "v_mul_hi_i32": ("i", "ii", lambda a, b: (np.asarray(a, np.int64) * b >> 32).astype(np.int32)),
    "v_mul_u32_u24": ("u", "uu", lambda a, b: _cut24(a) * _cut24(b)),
    "v_mul_i32_i24": ("i", "ii", lambda a, b: (a << 8 >> 8) * (b << 8 >> 8)),
    "v_mad_u32_u24": ("u", "uuu", lambda a, b, c: _cut24(a) * _cut24(b) + c),
    "v_mad_i32_i24": ("i", "iii", lambda a, b, c: (a << 8 >> 8) * (b << 8 >> 8) + c),
    "v_mad_u64_u32": ("Um", "uuU", n.wide_product),
    "v_mad_i64_i32": ("Im", "iiI", lambda a, b, c: (np.asarray(a, np.int64) * b + c, np.False_)),
    "v_max_i32": ("i", "ii", np.maximum),
    "v_min_i32": ("i", "ii", np.minimum),
    "v_max_u32": ("u", "uu", np.maximum),
    "v_min_u32": ("u", "uu", np.minimum),
    "v_max_i16": ("j", "jj", np.maximum),
    "v_min_i16": ("j", "jj", np.minimum),
    "v_max_u16": ("w", "ww", np.maximum),
    "v_min_u16": ("w", "ww", np.minimum),
    "v_max3_i32": ("i", "iii", lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    "v_min3_i32": ("i", "iii", lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    "v_max3_u32": ("u", "uuu", lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    "v_min3_u32": ("u", "uuu", lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    "v_med3_i32": ("i", "iii", lambda a, b, c: np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))),
    # float32
    "v_add_f32": ("f", "ff", np.add),
    "v_sub_f32": ("f", "ff", np.subtract),
    "v_subrev_f32": ("f", "ff", lambda a, b: b - a),
    "v_mul_f32": ("f", "ff", np.multiply),
    "v_fma_f32": ("f", "fff", n.fused),
    "v_fmac_f32": ("f", "ff@f", n.fused),
    "v_fmamk_f32": ("f", "fff", lambda a, k, b: n.fused(a, k, b)),
    "v_fmaak_f32": ("f", "fff", lambda a, b, k: n.fused(a, b, k)),
    "v_max_f32": ("f", "ff", np.fmax),
    "v_min_f32": ("f", "ff", np.fmin),
    "v_max3_f32": ("f", "fff", lambda a, b, c: np.fmax(np.fmax(a, b), c)),
    "v_min3_f32": ("f", "fff", lambda a, b, c: np.fmin(np.fmin(a, b), c)),
    "v_med3_f32": ("f", "fff", n.median),
    "v_exp_f32": ("f", "f", n.exp2),
    "v_log_f32": ("f", "f", n.log2),
    "v_rcp_f32": ("f", "f", n.reciprocal),
    "v_rcp_iflag_f32": ("f", "f", n.reciprocal),
    "v_rsq_f32": ("f", "f", n.reciprocal_root),
    "v_sqrt_f32": ("f", "f", lambda a: np.sqrt(a.astype(np.float64)).astype(np.float32)),
    "v_floor_f32": ("f", "f", np.floor),
    "v_ceil_f32": ("f", "f", np.ceil),
    "v_trunc_f32": ("f", "f", np.trunc),
    "v_rndne_f32": ("f", "f", np.rint),
    "v_fract_f32": ("f", "f", lambda a: np.minimum(a - np.floor(a), np.float32(1 - 2**-24))),
    "v_ldexp_f32": ("f", "fi", np.ldexp),
    "v_frexp_mant_f32": ("f", "f", lambda a: np.frexp(a)[0]),
    "v_frexp_exp_i32_f32": ("i", "f", lambda a: np.where(np.isfinite(a), np.frexp(a)[1], 0).astype(np.int32)),
    "v_div_scale_f32": ("fm", "fff", n.division_scale),
    "v_div_fmas_f32": ("f", "fff.", n.division_step),
    "v_div_fixup_f32": ("f", "fff", n.division_end),
    # two float32
    "v_pk_mul_f32": ("F", "FF", np.multiply),
    "v_pk_add_f32": ("F", "FF", np.add),
    "v_pk_fma_f32": ("F", "FFF", n.fused),
    # float64
    "v_add_f64": ("d", "dd", np.add),
    "v_mul_f64": ("d", "dd", np.multiply),
    "v_ldexp_f64": ("d", "di", np.ldexp),
    "v_max_f64": ("d", "dd", np.fmax),
    "v_min_f64": ("d", "dd", np.fmin),
    # float16
    "v_add_f16": ("h", "hh", np.add),
    "v_sub_f16": ("h", "hh", np.subtract),
    "v_mul_f16": ("h", "hh", np.multiply),
    "v_max_f16": ("h", "hh", np.fmax),
    "v_min_f16": ("h", "hh", np.fmin),
    "v_pk_add_f16": ("H", "HH", np.add),
    "v_pk_mul_f16": ("H", "HH", np.multiply),
    "v_fma_mix_f32": ("f", "xxx", n.fused),
    # conversions
    "v_cvt_f32_i32": ("f", "i", lambda a: a.astype(np.float32)),
    "v_cvt_f32_u32": ("f", "u", lambda a: a.astype(np.float32)),
    "v_cvt_i32_f32": ("i", "f", lambda a: n.whole(a, np.int32)),
    "v_cvt_u32_f32": ("u", "f", lambda a: n.whole(a, np.uint32)),
    "v_cvt_f16_f32": ("h", "f", lambda a: a.astype(np.float16)),
    "v_cvt_f32_f16": ("f", "h", lambda a: a.astype(np.float32)),
    "v_cvt_f64_i32": ("d", "i", lambda a: a.astype(np.float64)),
    "v_cvt_f64_u32": ("d", "u", lambda a: a.astype(np.float64)),
    "v_cvt_f64_f32": ("d", "f", lambda a: a.astype(np.float64)),
    "v_cvt_f32_f64": ("f", "d", lambda a: a.astype(np.float32)),
    **{f"v_cvt_f32_ubyte{i}": ("f", "u", n.float_of_byte(i)) for i in range(4)},
    "v_cvt_f32_fp8": ("f", "u", lambda a: n.FP8["fp8"][a & _u(255)]),
    "v_cvt_f32_bf8": ("f", "u", lambda a: n.FP8["bf8"][a & _u(255)]),
}

_ORDERS: dict[str, Function] = {
    "lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def _comparisons() -> dict[str, Row]:
    rows: dict[str, Row] = {}
    kinds = {"i32": "i", "u32": "u", "i64": "I", "u64": "U", "i16": "j", "u16": "w", "f32": "f", "f64": "d", "f16": "h"}
    for name, kind in kinds.items():
        for order, function in _ORDERS.items():
            rows[f"v_cmp_{order}_{name}"] = ("m", kind * 2, function)
        if name[0] != "f":
            rows[f"v_cmp_ne_{name}"] = ("m", kind * 2, np.not_equal)
            continue
        for order, function in (*_ORDERS.items(), ("lg", n.unequal)):
            rows[f"v_cmp_n{order}_{name}"] = ("m", kind * 2, n.negated(function))
        rows[f"v_cmp_lg_{name}"] = ("m", kind * 2, n.unequal)
        rows[f"v_cmp_neq_{name}"] = ("m", kind * 2, np.not_equal)
        rows[f"v_cmp_u_{name}"] = ("m", kind * 2, lambda a, b: np.isnan(a) | np.isnan(b))
        rows[f"v_cmp_o_{name}"] = ("m", kind * 2, lambda a, b: ~(np.isnan(a) | np.isnan(b)))
    rows["v_cmp_class_f32"] = ("m", "fu", n.of_class)
    return rows


ROWS |= _comparisons()
