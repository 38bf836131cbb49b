"""The scalar instructions, one row each: kinds of result and sources, what becomes of SCC, and the function.

CDNA3 ISA, chapters 5 and 12.1 to 12.5. Kinds: u and i 32 bits, U and I 64 bits, k a constant of 16 bits with sign, K
one without. SCC: "" is left alone, "z" says whether the result is not zero, "c" is what the function returns second,
"t" is the only result, "r" is the function's first argument, "rc" both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = tuple[str, str, str, Callable[..., Any]]

_MAX = 0xFFFFFFFF


def _carry(a: int, b: int) -> tuple[int, bool]:
    return a + b, a + b > _MAX


def _overflow(value: int) -> tuple[int, bool]:
    return value, not -(2**31) <= value < 2**31


def _extreme(larger: bool) -> Callable[[int, int], tuple[int, bool]]:
    return lambda a, b: (a, True) if (a > b if larger else a < b) else (b, False)


def _field(a: int, b: int, bits: int = 32) -> int:
    return a >> (b & bits - 1) & (1 << (b >> 16 & 0x7F)) - 1


def _signed_field(a: int, b: int) -> int:
    width = b >> 16 & 0x7F
    value = (a & _MAX) >> (b & 31) & (1 << width) - 1
    return value - (1 << width) if width and value >> width - 1 else value


def _lowest(a: int) -> int:
    return (a & -a).bit_length() - 1


ROWS: dict[str, Row] = {
    "s_mov_b32": ("u", "u", "", lambda a: a),
    "s_mov_b64": ("U", "U", "", lambda a: a),
    "s_movk_i32": ("u", "k", "", lambda a: a),
    "s_not_b32": ("u", "u", "z", lambda a: ~a & _MAX),
    "s_not_b64": ("U", "U", "z", lambda a: ~a & (1 << 64) - 1),
    "s_brev_b32": ("u", "u", "", lambda a: int(f"{a:032b}"[::-1], 2)),
    "s_abs_i32": ("i", "i", "z", abs),
    "s_sext_i32_i16": ("i", "u", "", lambda a: (a & 0xFFFF ^ 0x8000) - 0x8000),
    "s_sext_i32_i8": ("i", "u", "", lambda a: (a & 0xFF ^ 0x80) - 0x80),
    "s_bcnt1_i32_b32": ("u", "u", "z", lambda a: a.bit_count()),
    "s_bcnt1_i32_b64": ("u", "U", "z", lambda a: a.bit_count()),
    "s_ff1_i32_b32": ("i", "u", "", _lowest),
    "s_ff1_i32_b64": ("i", "U", "", _lowest),
    "s_flbit_i32_b32": ("i", "u", "", lambda a: 32 - a.bit_length() if a else -1),
    "s_and_b32": ("u", "uu", "z", lambda a, b: a & b),
    "s_and_b64": ("U", "UU", "z", lambda a, b: a & b),
    "s_or_b32": ("u", "uu", "z", lambda a, b: a | b),
    "s_or_b64": ("U", "UU", "z", lambda a, b: a | b),
    "s_xor_b32": ("u", "uu", "z", lambda a, b: a ^ b),
    "s_xor_b64": ("U", "UU", "z", lambda a, b: a ^ b),
    "s_andn2_b32": ("u", "uu", "z", lambda a, b: a & ~b),
    "s_andn2_b64": ("U", "UU", "z", lambda a, b: a & ~b),
    "s_orn2_b64": ("U", "UU", "z", lambda a, b: a | ~b & (1 << 64) - 1),
    "s_lshl_b32": ("u", "uu", "z", lambda a, b: a << (b & 31) & _MAX),
    "s_lshl_b64": ("U", "Uu", "z", lambda a, b: a << (b & 63) & (1 << 64) - 1),
    "s_lshr_b32": ("u", "uu", "z", lambda a, b: a >> (b & 31)),
    "s_lshr_b64": ("U", "Uu", "z", lambda a, b: a >> (b & 63)),
    "s_ashr_i32": ("i", "iu", "z", lambda a, b: a >> (b & 31)),
    "s_ashr_i64": ("I", "Iu", "z", lambda a, b: a >> (b & 63)),
    "s_bfe_u32": ("u", "uu", "z", _field),
    "s_bfe_i32": ("i", "uu", "z", _signed_field),
    "s_bfe_u64": ("U", "Uu", "z", lambda a, b: _field(a, b, 64)),
    "s_bfm_b32": ("u", "uu", "", lambda a, b: (1 << (a & 31)) - 1 << (b & 31) & _MAX),
    "s_pack_ll_b32_b16": ("u", "uu", "", lambda a, b: a & 0xFFFF | (b & 0xFFFF) << 16),
    "s_add_u32": ("u", "uu", "c", _carry),
    "s_addc_u32": ("u", "uu", "rc", lambda scc, a, b: (a + b + scc, a + b + scc > _MAX)),
    "s_sub_u32": ("u", "uu", "c", lambda a, b: (a - b, b > a)),
    "s_subb_u32": ("u", "uu", "rc", lambda scc, a, b: (a - b - scc, b + scc > a)),
    "s_add_i32": ("i", "ii", "c", lambda a, b: _overflow(a + b)),
    "s_sub_i32": ("i", "ii", "c", lambda a, b: _overflow(a - b)),
    "s_addk_i32": ("i", "@ik", "c", lambda a, b: _overflow(a + b)),
    "s_mulk_i32": ("i", "@ik", "", lambda a, b: a * b),
    "s_mul_i32": ("i", "ii", "", lambda a, b: a * b),
    "s_mul_hi_u32": ("u", "uu", "", lambda a, b: a * b >> 32),
    "s_mul_hi_i32": ("i", "ii", "", lambda a, b: a * b >> 32),
    **{f"s_lshl{n}_add_u32": ("u", "uu", "c", lambda a, b, n=n: _carry(a << n, b)) for n in range(1, 5)},
    "s_min_i32": ("i", "ii", "c", _extreme(False)),
    "s_max_i32": ("i", "ii", "c", _extreme(True)),
    "s_min_u32": ("u", "uu", "c", _extreme(False)),
    "s_max_u32": ("u", "uu", "c", _extreme(True)),
    "s_cselect_b32": ("u", "uu", "r", lambda scc, a, b: a if scc else b),
    "s_cselect_b64": ("U", "UU", "r", lambda scc, a, b: a if scc else b),
    "s_bitcmp0_b32": ("", "uu", "t", lambda a, b: not a >> (b & 31) & 1),
    "s_bitcmp1_b32": ("", "uu", "t", lambda a, b: bool(a >> (b & 31) & 1)),
}

_ORDERS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
for _name, _function in _ORDERS.items():
    for _kind, _type in (("i", "i32"), ("u", "u32"), ("U", "u64")):
        ROWS[f"s_cmp_{_name}_{_type}"] = ("", _kind * 2, "t", _function)
    ROWS[f"s_cmpk_{_name}_i32"] = ("", "ik", "t", _function)
    ROWS[f"s_cmpk_{_name}_u32"] = ("", "uK", "t", _function)
