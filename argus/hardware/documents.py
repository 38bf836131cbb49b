"""Numbers and lane maps as the documents print them, typed in apart from the instruction tables.

PTX ISA 9.0 and the CUDA C++ guide's table of compute capabilities for NVIDIA; the CDNA3 ISA guide for AMD.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

NVIDIA = ("cpu", "sm_80", "sm_89", "sm_90a")
HOPPER = ("sm_90a",)
AMD = ("gfx942",)


@dataclass(frozen=True, slots=True)
class Limits:
    """A machine's budgets: bytes of shared memory and threads of a block, and 32-bit registers of a thread."""

    shared_bytes: int
    threads: int
    registers: int


MACHINES = {
    "cpu": Limits(166_912, 1024, 255),
    "sm_80": Limits(166_912, 1024, 255),  # CUDA C++ guide, compute capabilities: 163 KB
    "sm_89": Limits(101_376, 1024, 255),  # 99 KB
    "sm_90a": Limits(232_448, 1024, 255),  # 227 KB
    "gfx942": Limits(65_536, 1024, 512),  # CDNA3 ISA: 64 KB of LDS; 512 VGPRs with the accumulation registers
}


@dataclass(frozen=True, slots=True)
class Move:
    """An instruction that moves data: the bytes that a lane moves at a time, bits of an element, and who has it.

    `unit`: what has to lie together in memory. "vector": the bytes of a lane. "row": 16 bytes of four adjacent lanes.
    "column": 16 bytes of each fourth lane. "wave": 4 bytes of each lane of a wave. `cut`: a mask may cut the vector at
    its end ("end"), at both ends ("ends") or nowhere (""). A vector that may be cut needs no alignment in a tensor.
    """

    sizes: tuple[int, ...]
    bits: tuple[int, ...]
    machines: tuple[str, ...]
    unit: str = "vector"
    cut: str = ""


_ANY, _SMALL = (8, 16, 32, 64), (8, 16, 32)
MOVES = {
    "ld.global": Move((1, 2, 4, 8, 16), _ANY, NVIDIA),
    "ld.global.unaligned": Move((16,), _SMALL, NVIDIA, cut="end"),
    "ld.global.cut": Move((16,), _SMALL, NVIDIA, cut="ends"),
    "st.global": Move((1, 2, 4, 8, 16), _ANY, NVIDIA),
    "st.global.cut": Move((4, 8, 16), _SMALL, NVIDIA, cut="ends"),
    "ld.shared": Move((1, 2, 4, 8, 16), _ANY, NVIDIA),
    "st.shared": Move((1, 2, 4, 8, 16), _ANY, NVIDIA),
    "ld.shared.cluster": Move((1, 2, 4, 8, 16), _ANY, HOPPER),
    "st.shared.cluster": Move((1, 2, 4, 8, 16), _ANY, HOPPER),
    "red.global": Move((4, 8), _ANY, NVIDIA),
    "ldmatrix": Move((4, 8, 16), _SMALL, NVIDIA, unit="row"),
    "ldmatrix.trans": Move((4, 8, 16), (16,), NVIDIA, unit="column"),
    "stmatrix": Move((4, 8, 16), _SMALL, HOPPER, unit="row"),
    "cp.async": Move((4, 8, 16), _ANY, NVIDIA),
    "buffer_load": Move((1, 2, 4, 8, 16), _ANY, AMD),
    "buffer_load.offen": Move((1, 2, 4, 8, 16), _ANY, AMD),
    "buffer_store": Move((1, 2, 4, 8, 16), _ANY, AMD),
    "ds_read": Move((1, 2, 4, 8, 16), _ANY, AMD),
    "ds_write": Move((1, 2, 4, 8, 16), _ANY, AMD),
    "global_load_lds": Move((4,), _ANY, AMD, unit="wave"),
    "buffer_load_lds.offen": Move((4,), _ANY, AMD, unit="wave"),
    "global_atomic": Move((4, 8), _ANY, AMD),
}

LaneMap = Callable[[int, int], tuple[int, int]]
"""A function of a lane and the number of one of its values. It returns the element's row and column."""


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix instruction of one warp: its shape (M, N, K), number of lanes, and operands' types. The lane maps of A
    are over (m, k), those of B over (n, k), those of C over (m, n). `mixed`: A and B may have different types."""

    shape: tuple[int, int, int]
    lanes: int
    types: tuple[str, ...]
    sums: str
    machines: tuple[str, ...]
    a: LaneMap
    b: LaneMap
    c: LaneMap
    mixed: bool = False


def _a_16(lane: int, i: int) -> tuple[int, int]:
    row = lane // 4 if i in (0, 1, 4, 5) else lane // 4 + 8
    return row, lane % 4 * 2 + i % 2 + (8 if i >= 4 else 0)


def _b_16(lane: int, i: int) -> tuple[int, int]:
    return lane // 4, lane % 4 * 2 + i % 2 + (8 if i >= 2 else 0)


def _a_32(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + (8 if i in (1, 3) else 0), lane % 4 + (4 if i >= 2 else 0)


def _b_32(lane: int, i: int) -> tuple[int, int]:
    return lane // 4, lane % 4 + 4 * i


def _a_8(lane: int, i: int) -> tuple[int, int]:
    row = lane // 4 if i < 4 or 8 <= i < 12 else lane // 4 + 8
    return row, lane % 4 * 4 + i % 4 + (16 if i >= 8 else 0)


def _b_8(lane: int, i: int) -> tuple[int, int]:
    return lane // 4, lane % 4 * 4 + i % 4 + (16 if i >= 4 else 0)


def _c(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + (8 if i >= 2 else 0), lane % 4 * 2 + i % 2


def _mma(shape: tuple[int, int, int], types: tuple[str, ...], sums: str, a: LaneMap, b: LaneMap) -> Product:
    return Product(shape, 32, types, sums, NVIDIA, a, b, _c)


def _mfma(side: int, k: int, types: tuple[str, ...], sums: str, swapped: bool) -> Product:
    run = k * side // 64

    def operand(lane: int, i: int) -> tuple[int, int]:
        return lane % side, lane // side * run + i

    def result(lane: int, i: int) -> tuple[int, int]:
        row, column = 8 * (i // 4) + 4 * (lane // side) + i % 4, lane % side
        return (column, row) if swapped else (row, column)

    mixed = "float8" in types[0]
    return Product((side, side, k), 64, types, sums, AMD, operand, operand, result, mixed)


_HALVES, _FP8, _FNUZ = ("bfloat16", "float16"), ("float8_e4m3fn", "float8_e5m2"), ("float8_e4m3fnuz", "float8_e5m2fnuz")
_MFMA: tuple[tuple[str, int, int, tuple[str, ...], str], ...] = (
    ("mfma_f32_32x32x8", 32, 8, _HALVES, "float32"),
    ("mfma_f32_16x16x16", 16, 16, _HALVES, "float32"),
    ("mfma_f32_32x32x16_fp8", 32, 16, _FNUZ, "float32"),
    ("mfma_f32_16x16x32_fp8", 16, 32, _FNUZ, "float32"),
    ("mfma_i32_32x32x16", 32, 16, ("int8",), "int32"),
    ("mfma_i32_16x16x32", 16, 32, ("int8",), "int32"),
    ("mfma_f32_32x32x2", 32, 2, ("float32",), "float32"),
    ("mfma_f32_16x16x4", 16, 4, ("float32",), "float32"),
    ("mfma_f32_32x32x4_xf32", 32, 4, ("tfloat32",), "float32"),
    ("mfma_f32_16x16x8_xf32", 16, 8, ("tfloat32",), "float32"),
)
PRODUCTS = {
    "mma_m16n8k16": _mma((16, 8, 16), _HALVES, "float32", _a_16, _b_16),
    "mma_m16n8k8": _mma((16, 8, 8), ("tfloat32",), "float32", _a_32, _b_32),
    "mma_m16n8k32": _mma((16, 8, 32), ("int8",), "int32", _a_8, _b_8),
    "mma_m16n8k32_fp8": Product((16, 8, 32), 32, _FP8, "float32", ("sm_89", "sm_90a"), _a_8, _b_8, _c, mixed=True),
    **{name: _mfma(side, k, types, sums, False) for name, side, k, types, sums in _MFMA},
    **{f"{name}_t": _mfma(side, k, types, sums, True) for name, side, k, types, sums in _MFMA},
}
