"""A matrix product by its sizes and operands, and the tile into which a kernel cuts it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from argus.ir.machine import H200, TF32_BITS

ENGINES = "sm_90a"  # the target that has copy engines and wgmma
_VECTOR_BITS = 128  # what the copy engine asks of rows

LINE = 128
"""Bytes of a cache line, and of a row of a box."""


@dataclass(frozen=True, slots=True)
class ProductShape:
    """A product c[m, n] = sum over k of a[m, k] b[n, k], `batch` times. Bits are those of an element.

    `bulk`: wgmma takes both operands. `a_rows`, `b_rows`: k is the contiguous dimension. `bulk_out`: the copy engine
    stores the result. `residual`: bits of an element of another tile of its shape that is held in registers; 0: there
    is none. `loaded`: how many of the operands threads load, because the copy engine cannot. `a_line`, `b_line`: bytes
    that the rows of a tile start at multiples of, 16 to 128, which are a cache line. `pack_a`, `pack_b`: what has to be
    copied before wgmma and the copy engine take both operands. `halves`: a has as many rows that begin at whole sectors
    as rows that do not, in turns. `exact`: operands of float32 are multiplied as they are, not as tfloat32.
    """

    m: int
    n: int
    k: int
    batch: int
    bits: int
    out_bits: int
    target: str
    bulk: bool
    a_rows: bool = True
    b_rows: bool = True
    bulk_out: bool = True
    residual: int = 0
    loaded: int = 0
    a_line: int = 128
    b_line: int = 128
    pack_a: bool = False
    pack_b: bool = False
    halves: bool = False
    exact: bool = False

    @property
    def multiplied_bits(self) -> int:
        """Bits of an operand that count for its products: of float32 those of tfloat32, unless it is `exact`."""
        return TF32_BITS if self.bits == 32 and not self.exact else self.bits

    @property
    def packed(self) -> ProductShape:
        """The product of the operands after `argus.kernels.pack` has packed them."""
        vector = _VECTOR_BITS // self.bits
        return replace(
            self, k=ceil(self.k / vector) * vector, bulk=self.target == ENGINES, loaded=0,
            a_rows=self.a_rows or self.pack_a, b_rows=self.b_rows or self.pack_b,
            a_line=LINE if self.pack_a else self.a_line, b_line=LINE if self.pack_b else self.b_line,
            pack_a=False, pack_b=False, halves=False,
        )  # fmt: skip

    @property
    def halved(self) -> ProductShape:
        """The product as two batches, the even and the odd rows of a, each in whole sectors."""
        return replace(self, m=self.m // 2, batch=2, a_line=SECTOR, halves=False)

    @property
    def swapped(self) -> ProductShape:
        """The transposed product: b times a."""
        return replace(
            self, m=self.n, n=self.m, a_rows=self.b_rows, b_rows=self.a_rows, bulk_out=False,
            a_line=self.b_line, b_line=self.a_line, pack_a=self.pack_b, pack_b=self.pack_a, halves=False,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tile:
    """The cut of a product. `swapped`: b times a, so that `block_m` counts columns of the result. `part`: how many
    terms of the sum a block adds up, so that a second kernel adds up the blocks' results; 0: all terms.
    `cluster`: so many blocks bring tiles for one another, `across` of them side by side along n, the others along m:
    neighbours along m share a tile of b, those along n one of a. `packed`: the operands are copied first, into rows
    that the copy engine takes. `schedule`: warpgroups have "rows" of the tile each, or two groups of `num_warps` take
    turns at whole tiles ("pingpong"). `shift`: even and odd rows of a are two batches, and the terms of the odd ones
    begin at -shift, so that their rows as well are read in whole sectors; 0: rows as they are.
    """

    block_m: int
    block_n: int
    block_k: int
    stages: int
    num_warps: int
    producers: int
    swapped: bool = False
    part: int = 0
    cluster: int = 1
    packed: bool = False
    across: int = 1
    schedule: str = "rows"
    shift: int = 0

    def parts(self, k: int) -> int:
        """Return the number of parts into which a sum of `k` terms is cut, or 0 if it is not cut."""
        return max(ceil(k / self.part), 1) if self.part else 0

    @property
    def groups(self) -> int:
        """The number of groups of `num_warps` warps that multiply."""
        return 2 if self.schedule == IN_TURNS else 1

    @property
    def constants(self) -> dict[str, int | str]:
        """The kernel's constexpr parameters, including `num_warps`."""
        return {"BLOCK_M": self.block_m, "BLOCK_N": self.block_n, "BLOCK_K": self.block_k, "STAGES": self.stages,
                "PRODUCERS": self.producers, "DEPTH": self.part, "CLUSTER": self.cluster,
                "ACROSS": self.across, "SCHEDULE": self.schedule, "SHIFT": self.shift,
                "num_warps": self.num_warps}  # fmt: skip

    def __str__(self) -> str:
        more = (" swapped" if self.swapped else "") + (f", parts of {self.part}" if self.part else "")
        more += f", clusters of {self.cluster}" if self.cluster > 1 else ""
        more += (f", {self.across} across" if self.across > 1 else "") + (", packed" if self.packed else "")
        more += (", in turns" if self.schedule == IN_TURNS else "") + (", rows in halves" if self.shift else "")
        return f"{self.block_m}x{self.block_n}x{self.block_k}, {self.stages} stages, {self.num_warps} warps{more}"


ROWS, IN_TURNS = "rows", "pingpong"  # schedules

SECTOR = 32  # bytes


def read_once(problem: ProductShape, tile: Tile) -> dict[str, bool]:
    """Return the constants that mark operands whose elements are each read by one block only. Such operands need not
    stay in the cache."""
    p = problem.swapped if tile.swapped else problem.halved if tile.shift else problem
    by_engine = p.bulk and p.batch == 1
    wide, high = tile.block_n * tile.across, tile.block_m * tile.cluster // tile.across
    return {"A_ONCE": by_engine and p.n <= wide, "B_ONCE": by_engine and p.m <= high}


def rows_together(problem: ProductShape) -> dict[str, int]:
    """Return the kernel's constant for the number of rows of tiles that run together. If operands are read from memory
    repeatedly, it is larger, so that the running tiles form nearly a square; if the cache holds operands and result, it
    is smaller."""
    p = problem
    held = ((p.m + p.n) * p.k * p.bits + p.m * p.n * p.out_bits) // 8 <= H200.cache_bytes
    return {"GROUP": 8} if held and p.bulk and p.batch == 1 else {}
