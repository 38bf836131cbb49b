"""Choose the tiles of attention: on sm_90a with a model of the time that each choice takes, and on gfx942.

The order of a persistent `al.grid` fixes which programs a multiprocessor runs: rounds go back and forth. The model
assigns programs in the same way as the kernel, and takes the multiprocessor with the most work. A program takes a fixed
time, plus a time for each block of keys that some of its rows see. No shape is a special case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from argus.ir.machine import H200, MI300X
from argus.ir.types import DType, bfloat16

Tiles = dict[str, int | str]

_GROUPS = (33, 11, 22, 66, 44, 132)
"""Heads that causal programs go through together: shares of the multiprocessors, so that rounds are whole blocks of
rows. The cache holds the keys and values of fewer heads; of more heads the programs come out more even. Nine blocks of
rows of 44 heads are three rounds."""
_SPAN = 128
_LEAST_SPANS = 8
"""Smallest number of keys in a part, in units of 128. Shorter parts would cost as much as the second kernel."""
_PARTED_ROUNDS = 2
"""Largest number of rounds of programs for which the keys are divided into parts. More rounds are balanced without
parts."""
_JOIN_S, _JOINED_BYTES_S = 6.2e-6, 3.7e12
"""Time of a second kernel that joins parts, and the rate at which it moves their bytes, which stay in the cache."""
_CACHE_BYTES, _MEMORY_BYTES_S = 30e6, 4.1e12
_AS_FAST = 1.01
_SHOWN = 0.2
"""The part of the shorter of the two times, of programs and of memory, that the longer one does not hide."""


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """`rows` queries of each of `heads` heads of `size` elements, in all batches; `shared` heads of `keys` keys."""

    size: int
    rows: int
    keys: int
    heads: int
    shared: int
    causal: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """A tile of `rows` queries and blocks of up to `columns` keys; the seconds of 128 keys, of a program besides, and
    of what a mask cuts through, each divided by the programs that share a multiprocessor."""

    rows: int
    columns: int
    num_warps: int
    block_s: float
    program_s: float
    edge_s: float
    sharing: int = 1


_SHAPES = {
    64: (
        Shape(128, 128, 8, 1.04e-6, 1.35e-6, 0.25e-6),
        Shape(192, 128, 12, 1.43e-6, 2.0e-6, 0.4e-6),
        Shape(64, 128, 4, 0.67e-6, 1.35e-6, 0.2e-6),
        Shape(64, 64, 4, 0.68e-6, 0.65e-6, 0.0, 2),
    ),
    128: (Shape(128, 128, 8, 1.42e-6, 1.6e-6, 0.9e-6), Shape(64, 128, 4, 0.95e-6, 1.4e-6, 0.6e-6)),
}
"""By head size, as measured on an H200."""


def hopper_tiles(problem: AttentionShape) -> Mapping[str, int | str]:
    """Return the constants of the fastest tiles according to the model. Among tiles with equal times the first one is
    taken, so that shapes share kernels.

    If there are few blocks of keys, they are as wide as the keys need, in steps of 16: 77 keys are a block of 80.
    """
    return _fastest(problem)[1]


_WAVE_ROWS = 32
"""# Rows of a product for each wave, which then holds rows of scores in the layout that the next product needs."""


def wave_tiles(problem: AttentionShape, dtype: DType) -> Tiles:
    """Return the constants on gfx942: eight waves share keys and values if such programs fill the machine, else four.

    Blocks of keys are as wide as LDS holds two of; where eight waves have 256 registers each, float16 leaves none for
    the wider ones, and neither do four waves for 128 numbers.
    """
    waves = 8
    if -(-problem.rows // (waves * _WAVE_ROWS)) * problem.heads < MI300X.multiprocessors:
        waves = 4
    narrow = problem.size > 64 and (waves == 4 or dtype != bfloat16)
    return {"BLOCK_M": waves * _WAVE_ROWS, "BLOCK_N": 32 if narrow else 64, "STAGES": 2, "BESIDE": True,
            "num_warps": waves}  # fmt: skip


def apart(problem: AttentionShape) -> bool:
    """Return True if causal queries run faster in three launches: one for the keys that all queries see, with the rows
    of all heads that share keys as rows of one head; one for the other keys; and one that joins both."""
    together = problem.rows * problem.heads // problem.shared
    if problem.rows >= problem.keys:
        return False
    whole = replace(problem, rows=together, keys=problem.keys - problem.rows, heads=problem.shared, causal=False)
    rest = replace(problem, keys=problem.rows)
    if "PARTS" in hopper_tiles(rest):
        return False
    launches = _JOIN_S * (1 if "PARTS" in hopper_tiles(whole) else 2)
    return _fastest(whole)[0] + _fastest(rest)[0] + launches < _fastest(problem)[0]


@lru_cache(maxsize=1024)
def _fastest(problem: AttentionShape) -> tuple[float, Mapping[str, int | str]]:
    choices = list(_choices(problem))
    fastest = min(seconds for seconds, _ in choices)
    return next(found for found in choices if found[0] <= fastest * _AS_FAST)


def _choices(problem: AttentionShape) -> Iterator[tuple[float, Tiles]]:
    """Yield tiles and their times in seconds."""
    for shape in _SHAPES[problem.size]:
        blocks = -(-problem.keys // shape.columns)
        width = 16 * -(-problem.keys // (16 * blocks))
        # Three warpgroups hide each other's softmax best together.
        schedule = {4: "rows", 8: "turns", 12: "cooperative"}[shape.num_warps]
        tiles: Tiles = {"BLOCK_M": shape.rows, "BLOCK_N": width, "STAGES": 2, "SCHEDULE": schedule}
        programs = -(-problem.rows // shape.rows) * problem.heads
        few = programs <= _PARTED_ROUNDS * H200.multiprocessors
        for span in (problem.keys, *_spans(problem.keys)) if few else (problem.keys,):
            parts = -(-problem.keys // span)
            parted: Tiles = {"PARTS": parts, "SPAN": span} if parts > 1 else {}
            each = costs(problem, shape, width, span)
            for group in _groups(problem):
                together: Tiles = {"HEADS": group} if problem.causal else {}
                busy = max(slowest(each, problem.heads, group, problem.causal), shape.sharing * float(each.max()))
                seconds = _seconds(problem, busy, len(each), parts, group)
                yield seconds, {**tiles, **parted, **together, "num_warps": shape.num_warps}


def _spans(keys: int) -> Iterator[int]:
    """Yield numbers of keys in a part. There are few sizes, so that few kernels are built: 8, 10, 12, 14, 16, 20, 24
    ... times 128."""
    span = _LEAST_SPANS
    while span * _SPAN < keys:
        yield span * _SPAN
        span += max(1, 1 << span.bit_length() - 3)


def _groups(problem: AttentionShape) -> Iterator[int]:
    """Return the group sizes to try. Without a mask there is one order, and groups of all heads are equal."""
    yield _GROUPS[0]
    if problem.causal:
        yield from (g for g in _GROUPS[1:] if min(g, _GROUPS[0]) < problem.heads)


def costs(problem: AttentionShape, shape: Shape, width: int, span: int) -> NDArray[np.float64]:
    """Return the time in seconds of each program of a head, in order."""
    first = np.arange(0, problem.rows, shape.rows)[:, None]
    begin = np.arange(0, problem.keys, span)[None, :]
    stop = np.full_like(first, problem.keys)
    if problem.causal:
        stop = np.minimum(stop, first + shape.rows + problem.keys - problem.rows)
    length = np.maximum(np.minimum(stop, begin + span) - begin, 1).ravel()
    edge = shape.edge_s if problem.causal else 0.0
    found = -(-length // width) * (shape.block_s * width / _SPAN) + shape.program_s + edge
    return found[::-1] if problem.causal else found


def slowest(costs: NDArray[np.float64], heads: int, group: int, causal: bool) -> float:
    """Return the seconds of the multiprocessor with the most work. Programs take `costs` in each head. Without a mask,
    the programs of one head run after those of another; with a mask, the same program of all heads of a group runs
    before the next one."""
    if causal:
        whole, rest = divmod(heads, group)
        dealt = np.concatenate((np.tile(np.repeat(costs, group), whole), np.repeat(costs, rest)))
    else:
        dealt = np.tile(costs, heads)
    table = np.zeros((-(-len(dealt) // H200.multiprocessors), H200.multiprocessors))
    table.flat[: len(dealt)] = dealt
    table[1::2] = table[1::2, ::-1]
    return float(table.sum(axis=0).max())


def _seconds(problem: AttentionShape, busy: float, programs: int, parts: int, group: int) -> float:
    """Return the total time: of multiprocessors that are `busy` with `programs` of each head, of memory, and of joining
    parts."""
    heads, rounds = problem.heads, -(-programs * problem.heads // H200.multiprocessors)
    memory = _bytes(problem, rounds, group) / _MEMORY_BYTES_S
    join = _JOIN_S + 4 * parts * heads * problem.rows * problem.size / _JOINED_BYTES_S if parts > 1 else 0.0
    return max(busy, memory) + _SHOWN * min(busy, memory) + join


def _bytes(problem: AttentionShape, rounds: int, group: int) -> float:
    """Return the bytes that memory moves. Queries and results move once; so do keys and values if there is no mask, or
    if the cache holds those of a group of heads. Otherwise each round reads on average half of the keys and values of
    its heads: as many as a group has, but at least `_GROUPS[0]`, because heads do not stay in step."""
    rows = 4 * problem.heads * problem.rows * problem.size
    keys = 4 * problem.shared * problem.keys * problem.size
    held = not problem.causal or min(group / problem.heads, 1.0) * keys <= _CACHE_BYTES
    together = min(max(group, _GROUPS[0]), H200.multiprocessors, problem.heads) / problem.heads
    return rows + keys * (1.0 if held else max(rounds * together / 2, 1.0))
