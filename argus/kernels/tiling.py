"""List the tiles of a matrix product that the machine can run. `tile_times` models how long each takes.

On sm_90a, if the copy engine takes the operands, a warpgroup (4 warps) multiplies 64 rows at a time. Tiles therefore
have a multiple of 64 rows, and 8 to 256 columns. They have as many stages as shared memory holds; a few deep stages are
preferred to many shallow ones.

If `a` has few rows (tokens), the operands are swapped: the rows of a tile are then columns of the result. The
result has many columns, one for each row of the weights. Every multiprocessor then streams weights into all of its
shared memory.

Elsewhere, tiles are those of mma.sync and cp.async. No shape is a special case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil

from argus.ir.machine import MI300X
from argus.kernels.product_tile import ENGINES, IN_TURNS, LINE, ROWS, SECTOR, ProductShape, Tile
from argus.kernels.wave_tiles import wave_parts, wave_shapes
from argus.tuning.model import MODELS

_ROW_BITS = 1024  # a row of a tile that the copy engine brings: 128 bytes
_MOST_STAGES, _MOST_BULK_STAGES = 4, 8
PANELS = 2  # of the result, each of 128 bytes of every row
_MOST_ROWS_DEEP = 4  # rows of 128 bytes: steps of up to 256 elements of 16 bits
SLACK = 1024  # bytes of shared memory: mbarriers and alignment
_Shape = tuple[int, int, int, str]
"""Rows, columns, warps of a group, schedule."""
_BULK: tuple[_Shape, ...] = (
    *((128, columns, 8, ROWS) for columns in (*range(256, 80, -16), 64)),
    *((64, columns, 4, ROWS) for columns in (256, 224, 192, 160, 128, 96, 64)),
)
_TALL_WARPS, _HELD_TALL = 12, 104
"""Warps of a tile of 192 rows: with those that copy, ptxas has 128 registers for a product, and these for tiles."""
_WIDE: tuple[_Shape, ...] = (
    *((128, columns, 8, ROWS) for columns in range(248, 80, -16)),
    *((128, columns, 4, IN_TURNS) for columns in range(192, 56, -8)),
    *((256, columns, 8, ROWS) for columns in range(192, 120, -8)),
    *((192, columns, _TALL_WARPS, ROWS) for columns in range(200, 56, -8)),
)
"""Additional shapes for many rows and columns. The best one leaves the fewest multiprocessors idle in the last
round."""
_LOADED: tuple[_Shape, ...] = ((128, 192, 8, ROWS), (128, 128, 8, ROWS), (64, 128, 4, ROWS), (64, 64, 4, ROWS))
"""Shapes if threads load operands. Wider tiles leave too few registers to the loading threads."""
_PARTED_ROUNDS = 2  # largest number of rounds of blocks over the multiprocessors for which sums are cut into parts
_HELD, _BESIDE_SUMS = 192, 48
"""Registers of a computing thread for tiles; besides the sums, if other threads load operands and need the rest."""
_CACHED_BYTES = 131072  # of stages, if threads load them: the rest is the L1 cache's, for words that two vectors share
_SHAPES = ((2, 1), (2, 2), (4, 1), (4, 2))
"""Number of blocks in a cluster, and how many of them lie side by side."""
_HALF_A_TILE = 32  # rows
_LEAST_ROWS = 64  # of a tile
ATOM_ROWS = 8  # rows of b that the blocks of a cluster share
_FEW = (8, 16, 32, 64, 128)
_PLAIN: tuple[_Shape, ...] = tuple(
    (*shape, ROWS) for shape in ((128, 128, 4), (128, 64, 4), (64, 128, 4), (64, 64, 4), (64, 32, 4), (32, 32, 1))
)


def tiles(problem: ProductShape) -> Iterator[Tile]:
    """Yield all tiles that can run `problem`, regardless of their speed."""
    if problem.target == MI300X.target:
        yield from _wave_tiles(problem)
        return
    if problem.target not in MODELS:
        yield Tile(32, 32, 32, 2, 1, 0)  # the CPU target, where small tiles keep lanes as fibers fast
        return
    yield from _tiles(problem)
    if problem.target == ENGINES and (problem.pack_a or problem.pack_b):
        yield from (replace(tile, packed=True) for tile in _tiles(problem.packed))


def _wave_tiles(problem: ProductShape) -> Iterator[Tile]:
    for shape in wave_shapes(problem.bits):
        rows, columns, depth, waves = shape
        tile = Tile(rows, columns, depth, 2, waves, 0)
        yield tile
        for part in wave_parts(shape, problem.m, problem.n, problem.k) if problem.batch == 1 else ():
            yield replace(tile, part=part)


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
        shift = (SECTOR // 2) * 8 // problem.bits
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
                for part in _parts(problem, blocks_of(seen, ring), depth):
                    yield replace(ring, part=part)


def _clusters(problem: ProductShape, tile: Tile) -> Iterator[tuple[int, int]]:
    """Yield how many blocks may share a box of the copy engine, and how many of them stand side by side.

    More than two blocks, or blocks side by side, are listed only if sectors are split, so that rows cost more to read.
    """
    yield 1, 1
    split = min(problem.a_line, problem.b_line) < SECTOR
    many = min(problem.m, problem.n) > _FEW[-1]
    rows = problem.a_rows and problem.b_rows
    # Only these tiles are used in clusters of four. Proofs of other tiles take long or do not finish.
    large = rows and tile.groups == 1
    shapes = [(n, across) for n, across in _SHAPES if (n == 2 or large) and (many or across == 1)]
    for count, across in shapes if problem.bulk and not problem.loaded else ():
        high = count // across
        filled = problem.m > tile.block_m * high // 2 and problem.n > tile.block_n * across // 2
        if filled and tile.block_n >= ATOM_ROWS * high and (split or (count, across) == (2, 1)):
            yield count, across


def blocks_of(problem: ProductShape, tile: Tile) -> int:
    """Return the number of blocks of one batch and part of a product."""
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
        return [(rows, n, warps, ROWS) for n in widths for rows, warps in heights]
    many = min(problem.m, problem.n) > _FEW[-1] and not problem.loaded
    if turned:
        whole = ((_LEAST_ROWS, ceil(problem.n / 16) * 16, 4, ROWS),) if problem.n <= 2 * _FEW[-1] else ()
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
    least = min(row, PANELS * LINE) if tile.groups == 1 else min(row, LINE + row % LINE)
    by_engine = problem.bulk_out and not tile.swapped
    found: dict[tuple[int, int], None] = {}
    for result in (tile.groups * rows * (least if by_engine else row), tile.groups * rows * row):
        free = machine.block_shared_bytes - SLACK - result
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
