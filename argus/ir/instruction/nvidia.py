"""NVIDIA instructions. Documents: PTX ISA 9.0, section named in each row."""

from __future__ import annotations

from argus.ir.instruction.row import BarrierRow, CopyRow, Ends, Mechanism, MmaRow, Order, ReduceRow, Row, WgmmaRow
from argus.ir.types import DType, bfloat16, float8_e4m3fn, float8_e5m2, float16, float32, int8, int32, int64, tfloat32
from argus.layout.atoms import MMA_M16N8K8_TF32, MMA_M16N8K16, MMA_M16N8K32_8BIT, MmaAtom, wgmma

_ALL = ("sm_80",)
_ADA = ("sm_89",)
_HOPPER = ("sm_90a",)
THREADS, MATRIX, ASYNCHRONOUS, BULK = Mechanism
SYNC = Order.SYNC


def _mma(
    name: str, atom: MmaAtom, operands: tuple[DType, ...], accumulator: DType, architectures: tuple[str, ...]
) -> MmaRow:
    assert atom.a is not None and atom.b is not None  # mma.sync reads only registers
    shape = (atom.m, atom.n, atom.k)
    return MmaRow(name, shape, operands, accumulator, atom.a, atom.b, atom.c, 32, architectures, atom.source)


def _wgmma(n: int, bits: int) -> WgmmaRow:
    """Return the row of wgmma_m64n<n>k<256 / bits> with 128-byte swizzle. Only 16-bit operands may be K-major or
    MN-major."""
    atom = wgmma(n, bits)
    assert atom.a is not None
    operands: dict[int, tuple[DType, ...]] = {16: (bfloat16, float16), 32: (tfloat32,), 8: (float8_e4m3fn, float8_e5m2)}
    name, shape = f"wgmma_m64n{n}k{atom.k}", (64, n, atom.k)
    return WgmmaRow(name, shape, operands[bits], float32, atom.a, atom.c, 128, 3, bits == 16, _HOPPER, atom.source)


def _reduce(name: str, op: str, dtypes: tuple[DType, ...]) -> ReduceRow:
    """Return the row of a bulk reduction. Sums of 64 bits exist only for unsigned integers, so a tensor map of int64 is
    not accepted."""
    document = "PTX ISA, cp.reduce.async.bulk.tensor (.relaxed.gpu for each element)"
    return ReduceRow(name, op, dtypes, Order.BULK_WRITE, _HOPPER, document)


# ldmatrix: `vector` value digits of a lane (4, 8 or 16 bytes) are 1, 2 or 4 matrices of 8 rows of 16 bytes. Each lane
# gets four bytes of each matrix: lane i holds the bytes from 4 * (i % 4) on of row i // 4. In ldmatrix.trans the
# elements have 16 bits, and lane i holds elements 2 * (i % 4) and the next of *column* i // 4. stmatrix is the inverse
# of ldmatrix.
_WORDS = (1, 2, 4, 8, 16)
_CUT = "PTX ISA, ld, st: the aligned word if the mask leaves all of it; else element by element"
_MATRICES = (4, 8, 16)
_TENSOR_MAP = "PTX ISA, cp.async.bulk.tensor; CUDA driver API, cuTensorMapEncodeTiled"

NVIDIA: tuple[Row, ...] = (
    CopyRow("ld.global", "global", "fragment", _WORDS, THREADS, SYNC, "load_global", _ALL, "PTX ISA, ld"),
    CopyRow("ld.global.unaligned", "global", "fragment", (16,), THREADS, SYNC, "load_words", _ALL,
            "PTX ISA, ld, shf: the aligned words around, shifted", dtypes_bits=(8, 16, 32), ends=Ends.LAST),
    CopyRow("ld.global.cut", "global", "fragment", (16,), THREADS, SYNC, "load_global", _ALL, _CUT,
            dtypes_bits=(8, 16, 32), ends=Ends.BOTH),
    CopyRow("st.global", "fragment", "global", _WORDS, THREADS, SYNC, "store_global", _ALL, "PTX ISA, st"),
    CopyRow("st.global.cut", "fragment", "global", (4, 8, 16), THREADS, SYNC, "store_global", _ALL, _CUT,
            dtypes_bits=(8, 16, 32), ends=Ends.BOTH),
    CopyRow("ld.shared", "shared", "fragment", _WORDS, THREADS, SYNC, "load_shared", _ALL, "PTX ISA, ld"),
    CopyRow("st.shared", "fragment", "shared", _WORDS, THREADS, SYNC, "store_shared", _ALL, "PTX ISA, st"),
    CopyRow("ld.shared.cluster", "shared", "fragment", _WORDS, THREADS, SYNC, "load_peer", _HOPPER,
            "PTX ISA, ld (.shared::cluster), mapa", peer=True),
    CopyRow("st.shared.cluster", "fragment", "shared", _WORDS, THREADS, SYNC, "store_peer", _HOPPER,
            "PTX ISA, st (.shared::cluster), mapa", peer=True),
    CopyRow("red.global", "fragment", "global", (4, 8), THREADS, SYNC, "atomic", _ALL, "PTX ISA, red"),
    CopyRow("ldmatrix", "shared", "fragment", _MATRICES, MATRIX, SYNC, "ldmatrix", _ALL, "PTX ISA, ldmatrix",
            alignment=16, dtypes_bits=(8, 16, 32)),
    CopyRow("ldmatrix.trans", "shared", "fragment", _MATRICES, MATRIX, SYNC, "ldmatrix", _ALL, "PTX ISA, ldmatrix",
            alignment=16, dtypes_bits=(16,), transposed=True),
    CopyRow("stmatrix", "fragment", "shared", _MATRICES, MATRIX, SYNC, "stmatrix", _HOPPER, "PTX ISA, stmatrix",
            alignment=16, dtypes_bits=(8, 16, 32)),
    CopyRow("cp.async", "global", "shared", (4, 8, 16), ASYNCHRONOUS, Order.ASYNC_GROUP, "cp_async", _ALL,
            "PTX ISA, cp.async"),
    CopyRow("tma.load", "global", "shared", (16,), BULK, Order.ASYNC_BULK, "tma_load", _HOPPER, _TENSOR_MAP,
            alignment=128),
    CopyRow("tma.load.im2col", "global", "shared", (16,), BULK, Order.ASYNC_BULK, "tma_load_im2col", _HOPPER,
            "PTX ISA, cp.async.bulk.tensor (.im2col), tensor im2col mode; CUDA driver API, cuTensorMapEncodeIm2col",
            alignment=128, pixels=True),
    CopyRow("tma.load.multicast", "global", "shared", (16,), BULK, Order.ASYNC_BULK, "tma_load", _HOPPER,
            "PTX ISA, cp.async.bulk.tensor (.multicast::cluster)", alignment=128, multicast=True),
    CopyRow("tma.store", "shared", "global", (16,), BULK, Order.BULK_WRITE, "tma_store", _HOPPER, _TENSOR_MAP,
            alignment=128),
    _reduce("tma.reduce.add", "add", (float32, float16, bfloat16, int32)),
    _reduce("tma.reduce.min", "minimum", (float16, bfloat16, int32, int64)),
    _reduce("tma.reduce.max", "maximum", (float16, bfloat16, int32, int64)),
    # Named barriers order roles, which exist only on sm_90a, and blocks of a cluster on the CPU.
    BarrierRow("bar.sync", True, 16, 32, (*_HOPPER, "cpu"), "PTX ISA, bar, barrier; memory consistency model"),
    BarrierRow("bar.arrive", False, 16, 32, (*_HOPPER, "cpu"), "PTX ISA, bar, barrier; memory consistency model"),
    *(_wgmma(n, bits) for bits in (16, 32, 8) for n in range(8, 257, 8)),
    _mma("mma_m16n8k16", MMA_M16N8K16, (bfloat16, float16), float32, _ALL),
    _mma("mma_m16n8k8", MMA_M16N8K8_TF32, (tfloat32,), float32, _ALL),
    _mma("mma_m16n8k32", MMA_M16N8K32_8BIT, (int8,), int32, _ALL),
    # every combination of the 8-bit floats
    _mma("mma_m16n8k32_fp8", MMA_M16N8K32_8BIT, (float8_e4m3fn, float8_e5m2), float32, _ADA),
)  # fmt: skip
