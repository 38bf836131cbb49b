"""Estimated times of a matrix product's tiles, by the model of the machine (`argus.tuning.model`).

The constants are fitted to measured products on an H200."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

from argus.ir.machine import H200, MI300X, WARPGROUP
from argus.kernels.product_tile import LINE, SECTOR, ProductShape, Tile
from argus.kernels.tiling import ATOM_ROWS, PANELS, SLACK, blocks_of, tiles
from argus.kernels.wave_tiles import wave_seconds
from argus.tuning.model import MODELS, Estimate, Modelled, Work, estimate

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

_FOUR_TAKE = (11, 10)
"""Ratio of occupied to used multiprocessors. The blocks of a cluster start together on one part of the machine, and
clusters of four do not fill that part (120 blocks run at a time on 132 multiprocessors)."""


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
    share = tile.block_n // (ATOM_ROWS * high) * ATOM_ROWS
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
    least = tile.block_m * (min(row, PANELS * LINE) if tile.groups == 1 else 2 * min(row, LINE + row % LINE))
    ragged = _RAGGED if not tile.swapped and row % SECTOR else 1.0
    end = _LAST_BYTES_CYCLES + ragged * result / _STORED_BYTES + (0.0 if p.bulk else _FIRST_BYTES_CYCLES)
    reached = 1.0 if p.bulk else _SYNC_SHARE if p.bits <= 16 else _SYNC_WORDS_SHARE
    hidden = tile.groups > 1
    apart = _APART if p.bulk and tile.num_warps > WARPGROUP else 1.0
    blocks = blocks_of(p, tile) * p.batch * parts
    again, uneven = 0.0, 1.0
    if few and p.bulk:
        again, real = _few_rows(p, tile)
        uneven = _uneven(max(blocks, 1), MODELS[p.target].machine.multiprocessors)
    return Work(
        blocks=_rooms(tile, blocks),
        threads=threads,
        registers=min(registers, H200.registers // threads),
        shared_bytes=int(tile.stages * staged + least) + SLACK,
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
    return sorted(((t, estimated(problem, t, on)) for t in tiles(problem)), key=lambda pair: pair[1].seconds)


def _on_waves(p: ProductShape, tile: Tile) -> Estimate:
    shape = (tile.block_m, tile.block_n, tile.block_k, tile.num_warps)
    return Estimate(wave_seconds(shape, p.m, p.n, p.k, p.batch, p.multiplied_bits, tile.part), "", 1)


def estimated(problem: ProductShape, tile: Tile, model: Modelled) -> Estimate:
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
