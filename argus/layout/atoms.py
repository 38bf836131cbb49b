"""Lane maps of the matrix instructions and of the matrix loads and stores, as data.

Operand tiles have fixed orientations: A is `[M, K]`, B is `[N, K]`, C and D are `[M, N]`. Values are
numbered as the elements of the instruction's vector operand, low to high. Every row names its source:
section and title in the PTX ISA (numbers of version 9.2) or in the CDNA3 ISA guide.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from argus.layout.fragment import FragmentLayout, Mode, parse_fragment
from argus.layout.inttuple import LayoutError


@dataclass(frozen=True, slots=True)
class MmaAtom:
    """One matrix instruction `D[m,n] = sum_k A[m,k]*B[n,k] + C[m,n]`.

    `bits` is the width of an element of A and B. `a`, `b` and `c` (also D) are its register tiles; an
    operand that the instruction can only read from shared memory is None. `source` names the document.
    """

    name: str
    m: int
    n: int
    k: int
    bits: int
    a: FragmentLayout | None
    b: FragmentLayout | None
    c: FragmentLayout
    source: str

    @property
    def num_threads(self) -> int:
        """Threads that execute it together: 32 (warp), 64 (AMD wave) or 128 (warpgroup)."""
        return self.c.num_threads


@dataclass(frozen=True, slots=True)
class MatrixMove:
    """`ldmatrix` or `stmatrix`: `count` 8x8 matrices of 16-bit elements between shared memory and a warp.

    The tile stacks the matrices: row `8*i + r` is row r of matrix i, 16 contiguous bytes in shared memory.
    `address`, of shape `[8*count]`, says which thread supplies the address of which row: thread t of row t;
    further threads repeat addresses that the instruction ignores (the lowest thread counts).
    `data`, of shape `[8*count, 8]`, says which value of which thread is which element of the tile.
    """

    name: str
    count: int
    trans: bool
    address: FragmentLayout
    data: FragmentLayout
    source: str


def _warp_mma(name: str, k: int, bits: int, a: str, b: str, source: str) -> MmaAtom:
    c = parse_fragment("[16x8 | t 4@1*2 8@0 | v 2@1 2@0*8]")
    return MmaAtom(name, 16, 8, k, bits, parse_fragment(a), parse_fragment(b), c, source)


MMA_M16N8K16 = _warp_mma(
    "mma.m16n8k16",
    16,
    16,
    "[16x16 | t 4@1*2 8@0 | v 2@1 2@0*8 2@1*8]",
    "[8x16 | t 4@1*2 8@0 | v 2@1 2@1*8]",
    "PTX ISA 9.7.14.5.8, Matrix Fragments for mma.m16n8k16 with floating point type (.f16, .bf16)",
)

MMA_M16N8K8_TF32 = _warp_mma(
    "mma.m16n8k8.tf32",
    8,
    32,
    "[16x8 | t 4@1 8@0 | v 2@0*8 2@1*4]",
    "[8x8 | t 4@1 8@0 | v 2@1*4]",
    "PTX ISA 9.7.14.5.7, Matrix Fragments for mma.m16n8k8 (.tf32)",
)

MMA_M16N8K32_8BIT = _warp_mma(
    "mma.m16n8k32.8bit",
    32,
    8,
    "[16x32 | t 4@1*4 8@0 | v 4@1 2@0*8 2@1*16]",
    "[8x32 | t 4@1*4 8@0 | v 4@1 2@1*16]",
    "PTX ISA 9.7.14.5.10, Matrix Fragments for mma.m16n8k32 (.u8, .s8, .e4m3, .e5m2)",
)


def _move(name: str, section: str, count: int, trans: bool) -> MatrixMove:
    rows = 8 * count
    spare = f" {32 // rows}@_" if rows < 32 else ""
    pairs, lines = (0, 1) if trans else (1, 0)
    data = f"[{rows}x8 | t 4@{pairs}*2 8@{lines} | v 2@{pairs}" + (f" {count}@0*8]" if count > 1 else "]")
    return MatrixMove(
        f"{name}.x{count}" + (".trans" if trans else ""),
        count,
        trans,
        parse_fragment(f"[{rows} | t {rows}@0{spare} | v]"),
        parse_fragment(data),
        section,
    )


_LDMATRIX = "PTX ISA 9.7.14.5.15, Warp-level matrix load instruction: ldmatrix (.m8n8, .b16)"
_STMATRIX = "PTX ISA 9.7.14.5.16, Warp-level matrix store instruction: stmatrix (.m8n8, .b16)"

LDMATRIX = MappingProxyType(
    {(count, trans): _move("ldmatrix", _LDMATRIX, count, trans) for count in (1, 2, 4) for trans in (False, True)}
)
"""`LDMATRIX[count, trans]`; sm_75 on."""

STMATRIX = MappingProxyType(
    {(count, trans): _move("stmatrix", _STMATRIX, count, trans) for count in (1, 2, 4) for trans in (False, True)}
)
"""`STMATRIX[count, trans]`; sm_90 on."""


_WGMMA = "PTX ISA 9.7.15.5.1.1, Register Fragments of wgmma.mma_async"
_WGMMA_A = {
    32: "[64x8 | t 4@1 8@0 4@0*16 | v 2@0*8 2@1*4]",
    16: "[64x16 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 2@1*8]",
    8: "[64x32 | t 4@1*4 8@0 4@0*16 | v 4@1 2@0*8 2@1*16]",
}


def _wgmma(n: int, bits: int) -> MmaAtom:
    """Return the atom whose operand A comes from registers (or shared memory) and B from shared memory. Warp w holds
    rows 16*w to 16*w+15 of D."""
    repeat = f" {n // 8}@1*8" if n > 8 else ""
    k = 256 // bits
    d = parse_fragment(f"[64x{n} | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8{repeat}]")
    name = f"wgmma.m64n{n}k{k}"
    return MmaAtom(name, 64, n, k, bits, parse_fragment(_WGMMA_A[bits]), None, d, f"{_WGMMA}.m64nNk{k}")


WGMMA = MappingProxyType({(n, bits): _wgmma(n, bits) for bits in _WGMMA_A for n in range(8, 257, 8)})
"""`WGMMA[n, bits]` for n = 8, 16, …, 256 and operands of 32 (tf32), 16 and 8 bits; sm_90a.

Integer operands (8 bits) exist only for some n; see PTX ISA 9.7.15.2, Matrix Shape.
"""


def wgmma(n: int, bits: int = 16) -> MmaAtom:
    """Return the row `wgmma.m64nNk(256/bits)`. Raises `LayoutError` for an n or a width that the instruction does not
    have."""
    if (n, bits) not in WGMMA:
        raise LayoutError(
            f"there is no wgmma with n = {n!r} and {bits!r}-bit operands: n is a multiple of 8 up to 256, "
            "operands have 8, 16 or 32 bits"
        )
    return WGMMA[n, bits]


_MFMA = "CDNA3 ISA guide 7.1, Matrix Arithmetic Instructions: dense matrix register layout"


def _mfma(name: str, side: int, k: int, bits: int) -> MmaAtom:
    """Lane l holds `k*side/64` consecutive k of row `l % side`, from `l // side` times that on, of A and of B."""
    run = k * side // 64
    operand = parse_fragment(f"[{side}x{k} | t {side}@0 {64 // side}@1*{run} | v {run}@1]")
    rows = f"4@0 {side // 8}@0*8" if side == 32 else "4@0"
    c = parse_fragment(f"[{side}x{side} | t {side}@1 {64 // side}@0*4 | v {rows}]")
    return MmaAtom(name, side, side, k, bits, operand, operand, c, _MFMA)


def _swapped(atom: MmaAtom) -> MmaAtom:
    """Return the instruction with exchanged operands: `B A^T` is the transposed product. A lane then holds consecutive
    n of one m, as the operand `a` of another product needs them and as rows of memory store them."""
    c = FragmentLayout(
        (atom.n, atom.m), *(tuple(_turned(m) for m in modes) for modes in (atom.c.threads, atom.c.values))
    )
    return MmaAtom(f"{atom.name}_t", atom.m, atom.n, atom.k, atom.bits, atom.b, atom.a, c, atom.source)


def _turned(mode: Mode) -> Mode:
    return mode if mode.dim is None else Mode(mode.extent, 1 - mode.dim, mode.stride)


MFMA_32X32X8_16BIT = _mfma("mfma_32x32x8_16bit", 32, 8, 16)
MFMA_16X16X16_16BIT = _mfma("mfma_16x16x16_16bit", 16, 16, 16)
MFMA_32X32X16_8BIT = _mfma("mfma_32x32x16_8bit", 32, 16, 8)
MFMA_16X16X32_8BIT = _mfma("mfma_16x16x32_8bit", 16, 32, 8)
MFMA_32X32X2_32BIT = _mfma("mfma_32x32x2_32bit", 32, 2, 32)
MFMA_16X16X4_32BIT = _mfma("mfma_16x16x4_32bit", 16, 4, 32)
MFMA_32X32X4_XF32 = _mfma("mfma_32x32x4_xf32", 32, 4, 32)
MFMA_16X16X8_XF32 = _mfma("mfma_16x16x8_xf32", 16, 8, 32)
MFMA = (
    MFMA_32X32X8_16BIT,
    MFMA_16X16X16_16BIT,
    MFMA_32X32X16_8BIT,
    MFMA_16X16X32_8BIT,
    MFMA_32X32X2_32BIT,
    MFMA_16X16X4_32BIT,
    MFMA_32X32X4_XF32,
    MFMA_16X16X8_XF32,
)
MFMA_SWAPPED = MappingProxyType({a: _swapped(a) for a in MFMA})
"""By instruction: the same with its operands exchanged."""

MMA_ATOMS: tuple[MmaAtom, ...] = (
    MMA_M16N8K16,
    MMA_M16N8K8_TF32,
    MMA_M16N8K32_8BIT,
    *WGMMA.values(),
    *MFMA,
    *MFMA_SWAPPED.values(),
)
"""Every matrix instruction of this file."""
