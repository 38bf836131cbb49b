"""AMD instructions. Document: CDNA3 ISA reference guide, section named in each row."""

from __future__ import annotations

from argus.ir.instruction.row import CopyRow, Law, Mechanism, MmaRow, Order, Row, StepRow
from argus.ir.types import DType, bfloat16, float8_e4m3fnuz, float8_e5m2fnuz, float16, float32, int8, int32, tfloat32
from argus.layout.atoms import (
    MFMA_16X16X4_32BIT,
    MFMA_16X16X8_XF32,
    MFMA_16X16X16_16BIT,
    MFMA_16X16X32_8BIT,
    MFMA_32X32X2_32BIT,
    MFMA_32X32X4_XF32,
    MFMA_32X32X8_16BIT,
    MFMA_32X32X16_8BIT,
    MFMA_SWAPPED,
    MmaAtom,
)

_CDNA3 = ("gfx942",)
_BUFFER = "CDNA3 ISA, 9.1 buffer addressing"
_OFFEN = "CDNA3 ISA, 9.1 buffer addressing: offsets of 32 bits; lanes that are out of range load 0"
_LDS = "CDNA3 ISA, 11.2 LDS"
_ATOMIC = "CDNA3 ISA, 10.4 atomics"
_TO_LDS = "CDNA3 ISA, 9.1 memory loads to LDS, 4.4 s_waitcnt; LLVM AMDGPU, global_load_lds_dword"
THREADS, ASYNCHRONOUS, SYNC = Mechanism.THREADS, Mechanism.ASYNCHRONOUS, Order.SYNC
_BYTES = (1, 2, 4, 8, 16)


def _mfma(name: str, atom: MmaAtom, operands: tuple[DType, ...], accumulator: DType) -> tuple[MmaRow, MmaRow]:
    """Return two rows: the instruction, and the instruction with exchanged operands."""

    def row(name: str, atom: MmaAtom) -> MmaRow:
        assert atom.a is not None and atom.b is not None  # mfma reads only registers
        shape = (atom.m, atom.n, atom.k)
        return MmaRow(name, shape, operands, accumulator, atom.a, atom.b, atom.c, 64, _CDNA3, atom.source)

    return row(name, atom), row(f"{name}_t", MFMA_SWAPPED[atom])


AMD: tuple[Row, ...] = (
    CopyRow("buffer_load", "global", "fragment", _BYTES, THREADS, SYNC, "load_global", _CDNA3, _BUFFER),
    CopyRow("buffer_load.offen", "global", "fragment", _BYTES, THREADS, SYNC, "load_near", _CDNA3, _OFFEN, reach=2**31),
    CopyRow("buffer_store", "fragment", "global", _BYTES, THREADS, SYNC, "store_global", _CDNA3, _BUFFER),
    CopyRow("ds_read", "shared", "fragment", _BYTES, THREADS, SYNC, "load_shared", _CDNA3, _LDS),
    CopyRow("ds_write", "fragment", "shared", _BYTES, THREADS, SYNC, "store_shared", _CDNA3, _LDS),
    CopyRow("global_load_lds", "global", "shared", (4,), ASYNCHRONOUS, Order.VMCNT, "load_to_lds", _CDNA3, _TO_LDS,
            in_lane_order=True),
    CopyRow("buffer_load_lds.offen", "global", "shared", (4,), ASYNCHRONOUS, Order.VMCNT, "load_near_to_lds", _CDNA3,
            f"{_TO_LDS}; {_OFFEN}", in_lane_order=True, reach=2**31),
    CopyRow("global_atomic", "fragment", "global", (4, 8), THREADS, SYNC, "atomic", _CDNA3, _ATOMIC),
    StepRow("s_waitcnt vmcnt", (("vmcnt", 0, 63),), Law.LOADS, _CDNA3, "CDNA3 ISA, 4.4 s_waitcnt"),
    StepRow("s_waitcnt lgkmcnt", (("lgkmcnt", 0, 15),), Law.ACCESSES, _CDNA3, "CDNA3 ISA, 4.4 s_waitcnt"),
    StepRow("s_barrier", (), Law.MEETING, _CDNA3, "CDNA3 ISA, s_barrier"),
    StepRow("s_setprio", (("priority", 0, 3),), Law.HINT, _CDNA3, "CDNA3 ISA, s_setprio", "wave_priority"),
    StepRow("sched_group_barrier", (("mask", 1, 0x7FF), ("size", 1, 2**31 - 1), ("sync_id", 0, 2**31 - 1)), Law.HINT,
            _CDNA3, "LLVM AMDGPU, llvm.amdgcn.sched.group.barrier", "sched_group"),
    StepRow("sched_barrier", (("mask", 0, 0x7FF),), Law.HINT, _CDNA3, "LLVM AMDGPU, llvm.amdgcn.sched.barrier",
            "sched_kinds"),
    *_mfma("mfma_f32_32x32x8", MFMA_32X32X8_16BIT, (bfloat16, float16), float32),
    *_mfma("mfma_f32_16x16x16", MFMA_16X16X16_16BIT, (bfloat16, float16), float32),
    *_mfma("mfma_f32_32x32x16_fp8", MFMA_32X32X16_8BIT, (float8_e4m3fnuz, float8_e5m2fnuz), float32),
    *_mfma("mfma_f32_16x16x32_fp8", MFMA_16X16X32_8BIT, (float8_e4m3fnuz, float8_e5m2fnuz), float32),
    *_mfma("mfma_i32_32x32x16", MFMA_32X32X16_8BIT, (int8,), int32),
    *_mfma("mfma_i32_16x16x32", MFMA_16X16X32_8BIT, (int8,), int32),
    *_mfma("mfma_f32_32x32x2", MFMA_32X32X2_32BIT, (float32,), float32),
    *_mfma("mfma_f32_16x16x4", MFMA_16X16X4_32BIT, (float32,), float32),
    *_mfma("mfma_f32_32x32x4_xf32", MFMA_32X32X4_XF32, (tfloat32,), float32),
    *_mfma("mfma_f32_16x16x8_xf32", MFMA_16X16X8_XF32, (tfloat32,), float32),
)  # fmt: skip
