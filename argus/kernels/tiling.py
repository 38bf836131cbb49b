"""Choose the tile of a matrix product: all tiles that the machine can run, and a model of how long each takes.

On sm_90a with operands that the copy engine takes, a warpgroup (4 warps) multiplies 64 rows at a time, so tiles have 64
or 128 rows and 8 to 256 columns, and as many stages as shared memory holds, deeper ones rather than many. With few rows
of `a` the roles of the operands are swapped: the rows of the tile are then columns of the result, which there are many
of (weights), and its columns the few rows (tokens); every multiprocessor streams weights with all of its shared memory
in flight. Elsewhere tiles are those of mma.sync and cp.async. No shape is treated apart: see `argus.tuning.model` for
what decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

from argus.ir.machine import H200, MI300X, WARPGROUP
from argus.kernels.wave_tiles import wave_seconds, wave_shapes
from argus.tuning.model import MODELS, Estimate, Modelled, Work, estimate

_ENGINES = "sm_90a"  # the target that has copy engines and wgmma
_VECTOR_BITS = 128  # what the copy engine asks of rows
_ROW_BITS = 1024  # a row of a tile that the copy engine brings: 128 bytes
_MOST_STAGES, _MOST_BULK_STAGES = 4, 8
_PANELS = 2  # of the result, each of 128 bytes of every row
_MOST_ROWS_DEEP = 4  # rows of 128 bytes: steps of up to 256 elements of 16 bits
_SLACK = 1024  # bytes of shared memory: mbarriers and alignment
_FIRST_BYTES_CYCLES = 600.0  # cycles until the first tile arrives
_LAST_BYTES_CYCLES = 590.0  # cycles from the last product to the end, without the time for the bytes of the result
_STORED_BYTES, _RAGGED = 21.0, 1.6
"""Of the result, a cycle; and the time of one whose tiles do not end with whole sectors, of that of one whose do."""
_STEP_CYCLES = 64.0  # smallest number of cycles of one step along the depth: waits, barriers, issue
_APART = 1.08
"""The time that shared memory takes for several warpgroups that read a tile at times of their own, of that for one that
has it for itself."""
_COPY_CYCLES = 2200.0  # cycles from the request of a tile to its arrival; the stages ahead are multiplied meanwhile
_COMBINE_S, _COMBINE_PART_S, _COMBINED_SHARE = 0.3e-6, 0.1e-6, 0.31
"""Of adding up parts, and of each of them, besides their bytes; of the L2 cache's rate."""
_LOADED_BYTES = 14.5  # bytes a cycle that threads load and store if the copy engine cannot
_STRADDLING = ((16, 2.7), (32, 1.56), (64, 1.31))
"""Where rows start, and the time that one takes, of that of one in whole cache lines. Of rows that begin at multiples
of 32 bytes three of four are in two lines, of 64 one of two; 16 bytes split sectors as well."""
_CLUSTER_CYCLES = 1600.0  # cycles until the blocks of a cluster know that all have started
_AGAIN, _AND_AGAIN = 0.37, 0.5
"""Of few rows: the time of a byte of the other operand that a second block reads, of that of one from memory; and that
of each further block, of that of the one before, as more of the cache is near one that has read it. The few rows, which
all blocks read, are near."""
_STREAMED_ROWS = 256  # largest number of rows for which the path of the other operand from memory is modelled
_UNPAIRED = 0.35
"""Of few rows: the share of the last round's multiprocessors without a block, by which memory's rate drops. They share
their way to it in pairs: one block a pair is as even as two."""
_PACK_S = 1.75e-6  # seconds for packing an operand, in addition to its bytes
_PACKED_SHARE = 0.8  # the share of the memory's rate that packing reaches
_SYNC_SHARE, _SYNC_WORDS_SHARE = 0.6, 0.25
"""Of the tensor cores' rate that mma.sync reaches; the same of 32-bit operands, whose fragments are loaded by words."""


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
    as rows that do not, in turns.
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

    @property
    def packed(self) -> ProductShape:
        """The product of the operands after `argus.kernels.pack` has packed them."""
        vector = _VECTOR_BITS // self.bits
        return replace(
            self, k=ceil(self.k / vector) * vector, bulk=self.target == _ENGINES, loaded=0,
            a_rows=self.a_rows or self.pack_a, b_rows=self.b_rows or self.pack_b,
            a_line=LINE if self.pack_a else self.a_line, b_line=LINE if self.pack_b else self.b_line,
            pack_a=False, pack_b=False, halves=False,
        )  # fmt: skip

    @property
    def halved(self) -> ProductShape:
        """The product as two batches, the even and the odd rows of a, each in whole sectors."""
        return replace(self, m=self.m // 2, batch=2, a_line=_SECTOR, halves=False)

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
    terms of the sum a block adds up, the results of which a second kernel adds up; 0: all of them, and no such kernel.
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
        return 2 if self.schedule == _IN_TURNS else 1

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
        more += (", in turns" if self.schedule == _IN_TURNS else "") + (", rows in halves" if self.shift else "")
        return f"{self.block_m}x{self.block_n}x{self.block_k}, {self.stages} stages, {self.num_warps} warps{more}"


_ROWS, _IN_TURNS = "rows", "pingpong"  # schedules
_Shape = tuple[int, int, int, str]
"""Rows, columns, warps of a group, schedule."""
_BULK: tuple[_Shape, ...] = (
    *((128, columns, 8, _ROWS) for columns in (*range(256, 80, -16), 64)),
    *((64, columns, 4, _ROWS) for columns in (256, 224, 192, 160, 128, 96, 64)),
)
_TALL_WARPS, _HELD_TALL = 12, 104
"""Warps of a tile of 192 rows: with those that copy, ptxas has 128 registers for a product, and these for tiles."""
_WIDE: tuple[_Shape, ...] = (
    *((128, columns, 8, _ROWS) for columns in range(248, 80, -16)),
    *((128, columns, 4, _IN_TURNS) for columns in range(192, 56, -8)),
    *((256, columns, 8, _ROWS) for columns in range(192, 120, -8)),
    *((192, columns, _TALL_WARPS, _ROWS) for columns in range(200, 56, -8)),
)
"""Additional shapes for many rows and columns. The best one leaves the fewest multiprocessors idle in the last
round."""
_LOADED: tuple[_Shape, ...] = ((128, 192, 8, _ROWS), (128, 128, 8, _ROWS), (64, 128, 4, _ROWS), (64, 64, 4, _ROWS))
"""Shapes if threads load operands. Wider tiles leave too few registers to the loading threads."""
_PARTED_ROUNDS = 2  # largest number of rounds of blocks over the multiprocessors for which sums are cut into parts
_HELD, _BESIDE_SUMS = 192, 48
"""Registers of a computing thread for tiles; besides the sums, if other threads load operands and need the rest."""
_CACHED_BYTES = 131072  # of stages, if threads load them: the rest is the L1 cache's, for words that two vectors share
_FOUR_TAKE = (11, 10)
"""Ratio of occupied to used multiprocessors. The blocks of a cluster start together on one part of the machine, and
clusters of four do not fill that part (120 blocks run at a time on 132 multiprocessors)."""
_SHAPES = ((2, 1), (2, 2), (4, 1), (4, 2))
"""Number of blocks in a cluster, and how many of them lie side by side."""
_SECTOR = 32  # bytes
_HALF_A_TILE = 32  # rows
_LEAST_ROWS = 64  # of a tile
_ATOM_ROWS = 8  # rows of b that the blocks of a cluster share
_FEW = (8, 16, 32, 64, 128)
_PLAIN: tuple[_Shape, ...] = tuple(
    (*shape, _ROWS) for shape in ((128, 128, 4), (128, 64, 4), (64, 128, 4), (64, 64, 4), (64, 32, 4), (32, 32, 1))
)


def tiles(problem: ProductShape) -> Iterator[Tile]:
    """Yield all tiles that can run `problem`, regardless of their speed."""
    if problem.target == MI300X.target:
        for rows, columns, depth, waves in wave_shapes(problem.bits):
            yield Tile(rows, columns, depth, 2, waves, 0)
        return
    if problem.target not in MODELS:
        yield Tile(32, 32, 32, 2, 1, 0)  # the CPU target, where small tiles keep lanes as fibers fast
        return
    yield from _tiles(problem)
    if problem.target == _ENGINES and (problem.pack_a or problem.pack_b):
        yield from (replace(tile, packed=True) for tile in _tiles(problem.packed))


def _tiles(problem: ProductShape) -> Iterator[Tile]:
    """Yield tiles for operands that need no packing. For few rows, tiles in which padding would fill half of 64 rows or
    more are left out if there are swapped tiles, which may have any number of columns."""
    swapped = list(_turned_tiles(problem, True))
    fitting = bool(swapped) and problem.bulk and problem.m <= (_HALF_A_TILE if problem.loaded else _FEW[-1])
    for tile in _turned_tiles(problem, False):
        if not fitting or tile.block_m - problem.m < _HALF_A_TILE:
            yield tile
    yield from swapped
    if problem.halves and problem.halved.m > _FEW[-1]:
        shift = (_SECTOR // 2) * 8 // problem.bits
        yield from (replace(t, shift=shift) for t in _turned_tiles(problem.halved, False) if t.groups == 1)


def _turned_tiles(problem: ProductShape, turned: bool) -> Iterator[Tile]:
    seen = problem.swapped if turned else problem
    for rows, columns, warps, schedule in _shapes(seen, turned):
        tile = Tile(rows, columns, 0, 0, warps, _producers(problem), turned, schedule=schedule)
        for depth, stages in _rings(problem, tile):
            for cluster, across in _clusters(seen, tile):
                yield replace(tile, block_k=depth, stages=stages, cluster=cluster, across=across)
        few = turned and seen.n <= _FEW[-1]
        # Few rows: blocks that add up find no registers beside the warps of tall tiles, and come late.
        good = warps < _TALL_WARPS if few else columns % 16 == 0
        in_parts = problem.batch == 1 and tile.groups == 1 and good
        parted = replace(problem, out_bits=32)
        for depth, stages in _rings(parted, tile) if in_parts else ():
            for cluster, across in _clusters(seen, tile):
                ring = replace(tile, block_k=depth, stages=stages, cluster=cluster, across=across)
                for part in _parts(problem, _blocks(seen, ring), depth):
                    yield replace(ring, part=part)


def _clusters(problem: ProductShape, tile: Tile) -> Iterator[tuple[int, int]]:
    """Yield how many blocks may share a box of the copy engine, and how many of them stand side by side: more than two,
    or side by side, only if sectors are split and rows are dear."""
    yield 1, 1
    split = min(problem.a_line, problem.b_line) < _SECTOR
    many = min(problem.m, problem.n) > _FEW[-1]
    rows = problem.a_rows and problem.b_rows
    # Only these tiles are used in clusters of four. Proofs of other tiles take long or do not finish.
    large = rows and tile.groups == 1
    shapes = [(n, across) for n, across in _SHAPES if (n == 2 or large) and (many or across == 1)]
    for count, across in shapes if problem.bulk and not problem.loaded else ():
        high = count // across
        filled = problem.m > tile.block_m * high // 2 and problem.n > tile.block_n * across // 2
        if filled and tile.block_n >= _ATOM_ROWS * high and (split or (count, across) == (2, 1)):
            yield count, across


def _blocks(problem: ProductShape, tile: Tile) -> int:
    high, across = tile.cluster // tile.across, tile.across
    return ceil(problem.m / (tile.block_m * high)) * high * ceil(problem.n / (tile.block_n * across)) * across


def _parts(problem: ProductShape, blocks: int, depth: int) -> Iterator[int]:
    """Yield the number of terms of a part, in steps of the tile, such that there are only a few blocks for each
    multiprocessor.

    There are four lengths for each power of two, so that sums of many lengths share kernels.
    """
    steps = ceil(problem.k / depth)
    most = _PARTED_ROUNDS * MODELS[problem.target].machine.multiprocessors // max(blocks, 1)
    unit = 1
    while unit <= steps:
        for length in (4 * unit, 5 * unit, 6 * unit, 7 * unit):
            if 2 <= ceil(steps / length) <= most:
                yield length * depth
        unit *= 2


def _producers(problem: ProductShape) -> int:
    """Return the number of warps that load operands: one warpgroup for the copy engine, or two if threads load
    something."""
    return 0 if not problem.bulk else 8 if problem.loaded else 4


def _shapes(problem: ProductShape, turned: bool) -> Iterator[_Shape]:
    """Yield the shapes of tiles. Small swapped shapes are included only if the other order would pad most rows."""
    for rows, columns, warps, schedule in _any_shape(problem, turned):
        panels = (problem.a_rows or rows % 64 == 0) and (problem.b_rows or columns % 64 == 0)
        sums = rows * columns // (32 * warps)
        more = sums * problem.residual // 32
        held = _HELD if warps < _TALL_WARPS else _HELD_TALL
        fits = more < _BESIDE_SUMS if problem.loaded else sums + more <= held
        if fits and (panels or not problem.bulk):
            yield rows, columns, warps, schedule


def _any_shape(problem: ProductShape, turned: bool) -> Sequence[_Shape]:
    few = problem.n <= _FEW[-1]
    if not problem.bulk:
        return _PLAIN if few or not turned else ()
    if problem.loaded and not turned:
        return _LOADED
    heights = ((64, 4),) if problem.loaded else ((64, 4), (128, 8), (192, _TALL_WARPS))
    if turned and few:
        needed = ceil(problem.n / 16) * 16 if problem.n > _FEW[0] else _FEW[0]
        widths = sorted({*(n for n in _FEW if n < 2 * max(problem.n, 5)), needed})
        return [(rows, n, warps, _ROWS) for n in widths for rows, warps in heights]
    many = min(problem.m, problem.n) > _FEW[-1] and not problem.loaded
    if turned:
        whole = ((_LEAST_ROWS, ceil(problem.n / 16) * 16, 4, _ROWS),) if problem.n <= 2 * _FEW[-1] else ()
        return [*whole, *(shape for shape in (*_BULK, *_WIDE) if shape[0] > _LEAST_ROWS)] if many else ()
    return (*_BULK, *_WIDE) if many else _BULK


def _rings(problem: ProductShape, tile: Tile) -> Iterator[tuple[int, int]]:
    """Depths and numbers of stages: as many as shared memory holds beside what the result needs there.

    That is the whole tile, to bring it into order; or, where the copy engine stores it, two panels at least, of which
    one is filled while the other is stored. Groups that take turns have theirs each, of one panel and the columns that
    are no whole one at least: one is stored while the other multiplies.
    """
    machine, rows, columns = MODELS[problem.target].machine, tile.block_m, tile.block_n
    row = columns * problem.out_bits // 8
    least = min(row, _PANELS * LINE) if tile.groups == 1 else min(row, LINE + row % LINE)
    by_engine = problem.bulk_out and not tile.swapped
    found: dict[tuple[int, int], None] = {}
    for result in (tile.groups * rows * (least if by_engine else row), tile.groups * rows * row):
        free = machine.block_shared_bytes - _SLACK - result
        if not problem.bulk:
            depth, most = min(_ROW_BITS // problem.bits // 2, 32), _MOST_STAGES
            free //= 2  # Two blocks on a multiprocessor hide each other's waits.
        else:
            depth, most = _ROW_BITS // problem.bits, _MOST_BULK_STAGES
            deepest = depth * _MOST_ROWS_DEEP
            while depth < deepest and free // ((rows + columns) * depth * problem.bits // 8) > most:
                depth *= 2
        if problem.loaded and rows == 128:
            most = min(most, _CACHED_BYTES // ((rows + columns) * depth * problem.bits // 8))
        stages = min(free // ((rows + columns) * depth * problem.bits // 8), most)
        if stages >= 2:
            found[depth, stages] = None
    yield from found


def read_once(problem: ProductShape, tile: Tile) -> dict[str, bool]:
    """Return the kernel's constants that mark operands of which no two blocks read the same elements, so that they need
    not stay in the cache."""
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


def work(problem: ProductShape, tile: Tile) -> Work:
    """Return the work of a launch of `tile`, for the model."""
    problem = problem.packed if tile.packed else problem
    p = problem.swapped if tile.swapped else problem.halved if tile.shift else problem
    parts, terms = max(tile.parts(p.k), 1), tile.part or p.k
    unit, out = p.bits / 8, (4.0 if tile.part else p.out_bits / 8)
    steps = ceil(min(terms, p.k) / tile.block_k)
    staged = (tile.block_m + tile.block_n) * tile.block_k * unit
    a_lines, b_lines = (dict(_STRADDLING).get(line, 1.0) for line in (p.a_line, p.b_line))
    high = tile.cluster // tile.across
    share = tile.block_n // (_ATOM_ROWS * high) * _ATOM_ROWS
    own_a, own_b = tile.block_m / tile.across, tile.block_n - share * (high - 1)
    fetched = (own_a * a_lines + own_b * b_lines) * tile.block_k * unit
    groups = tile.block_m // 64 if p.bulk else ceil(tile.num_warps / 2)
    read = (tile.block_m + groups * tile.block_n) * tile.block_k * unit
    # With one operand for four warps, three quarters of the time of both for eight.
    loading = staged * (1.0 if p.loaded > 1 else 0.75 if p.loaded else 0.0) / _LOADED_BYTES
    by_threads = loading * MODELS[p.target].machine.shared_rate
    result = tile.block_m * tile.block_n * out
    flops = 2.0 * prod((tile.block_m, tile.block_n, tile.block_k))
    rate = MODELS[p.target].machine.matrix_rate(p.bits)
    few = 0 < min(p.m, p.n) <= _STREAMED_ROWS
    real = (min(p.m, tile.block_m) + min(p.n, tile.block_n)) * tile.block_k * unit
    registers = tile.block_m * tile.block_n // (32 * tile.num_warps) + 64
    threads = 32 * (tile.groups * tile.num_warps + tile.producers)
    row = tile.block_n * out
    least = tile.block_m * (min(row, _PANELS * LINE) if tile.groups == 1 else 2 * min(row, LINE + row % LINE))
    ragged = _RAGGED if not tile.swapped and row % _SECTOR else 1.0
    end = _LAST_BYTES_CYCLES + ragged * result / _STORED_BYTES + (0.0 if p.bulk else _FIRST_BYTES_CYCLES)
    reached = 1.0 if p.bulk else _SYNC_SHARE if p.bits <= 16 else _SYNC_WORDS_SHARE
    hidden = tile.groups > 1
    apart = _APART if p.bulk and tile.num_warps > WARPGROUP else 1.0
    blocks = _blocks(p, tile) * p.batch * parts
    again, uneven = 0.0, 1.0
    if few and p.bulk:
        again, real = _few_rows(p, tile)
        uneven = _uneven(max(blocks, 1), MODELS[p.target].machine.multiprocessors)
    return Work(
        blocks=_rooms(tile, blocks),
        threads=threads,
        registers=min(registers, H200.registers // threads),
        shared_bytes=int(tile.stages * staged + least) + _SLACK,
        matrix_flops=steps * max(flops, _STEP_CYCLES * rate) / reached,
        matrix_bits=p.bits,
        scalar_flops=0.0,
        shared_traffic=steps * (staged + read + by_threads) * apart + 2 * result,
        global_traffic=steps * fetched + result,
        all_bytes=p.batch * ((p.m * p.k + p.n * p.k) * unit + p.m * p.n * out * parts + again) * uneven,
        in_flight=min(tile.stages, max(steps, 1)) * real,
        start_cycles=(_FIRST_BYTES_CYCLES if p.bulk else 0.0)
        + (_CLUSTER_CYCLES if tile.cluster > 1 else 0.0)
        + (end if hidden else 0.0),
        idle_cycles=0.0 if hidden else end,
        steps=max(steps, 1),
        stages=tile.stages,
        arrival_cycles=_COPY_CYCLES,
    )


def _few_rows(p: ProductShape, tile: Tile) -> tuple[float, float]:
    """Return the cost of repeated reads, in bytes that take as long from memory, and the bytes of one stage from there.

    Memory brings the larger operand. The few rows are in the cache.
    """
    a, b = (rows * p.k * p.bits / 8 for rows in (p.m, p.n))
    high = tile.cluster // tile.across
    by_a, by_b = ceil(ceil(p.n / tile.block_n) / tile.across), ceil(ceil(p.m / tile.block_m) / high)
    larger, rows, readers = (a, min(p.m, tile.block_m), by_a) if p.m > p.n else (b, min(p.n, tile.block_n), by_b)
    falling = (1.0 - _AND_AGAIN ** (readers - 1)) / (1.0 - _AND_AGAIN)
    return _AGAIN * falling * larger, rows / readers * tile.block_k * p.bits / 8


def _uneven(blocks: int, multiprocessors: int) -> float:
    """Return the factor by which reading takes longer because in their last round the blocks leave some multiprocessors
    idle."""
    last = blocks % multiprocessors or multiprocessors
    even = next(n for n in (multiprocessors // 2, multiprocessors) if n >= last)
    return 1.0 + _UNPAIRED * (even - last) / blocks


def _rooms(tile: Tile, blocks: int) -> int:
    """Return the number of multiprocessors that `blocks` blocks occupy, including those that clusters of four leave
    idle."""
    taken, of = _FOUR_TAKE
    return -(-blocks * taken // of) if tile.cluster == 4 else blocks


def ranked(problem: ProductShape, model: Modelled | None = None) -> list[tuple[Tile, Estimate]]:
    """Return all tiles with their estimated times, the fastest first. Equal times keep the order of `tiles`."""
    on = model or MODELS.get(problem.target)
    if problem.target == MI300X.target:
        return sorted(((t, _on_waves(problem, t)) for t in tiles(problem)), key=lambda pair: pair[1].seconds)
    if on is None:
        return [(t, Estimate(0.0, "", 1)) for t in tiles(problem)]
    return sorted(((t, _estimate(problem, t, on)) for t in tiles(problem)), key=lambda pair: pair[1].seconds)


def _on_waves(p: ProductShape, tile: Tile) -> Estimate:
    shape = (tile.block_m, tile.block_n, tile.block_k, tile.num_warps)
    return Estimate(wave_seconds(shape, p.m, p.n, p.k, p.batch, p.bits), "", 1)


def _estimate(problem: ProductShape, tile: Tile, model: Modelled) -> Estimate:
    """Return the time of a product, including packing operands and summing its parts: the launches, their bytes in
    memory, and the bytes of parts, which are in the L2 cache."""
    found = estimate(work(problem, tile), model)
    seconds = found.seconds
    for rows, packs in ((problem.m, problem.pack_a), (problem.n, problem.pack_b)):
        if tile.packed and packs:
            seconds += _PACK_S + 2 * rows * problem.k * problem.bits / 8 / (model.memory_bytes_s * _PACKED_SHARE)
    if tile.part:
        parts = tile.parts(problem.packed.k if tile.packed else problem.k)
        read = problem.m * problem.n * (4 * parts + problem.out_bits // 8)
        rate = model.cache_rate * model.machine.multiprocessors * model.clock_hz * _COMBINED_SHARE
        seconds += _COMBINE_S + parts * _COMBINE_PART_S + read / rate
    return replace(found, seconds=seconds)
