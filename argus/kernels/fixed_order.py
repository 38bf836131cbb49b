"""Tiles of products whose sums have one order, whatever the number of rows.

Each element of such a product is added up in steps along k, one matrix instruction after the other from the first term
of a part to its last; the parts are then added in order. Tiles of other sizes keep this order, so tiles may be chosen
by the number of rows, and the length of a part by everything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from math import ceil

from argus.ir.machine import MI300X
from argus.kernels.product_tile import ROWS, ProductShape, Tile
from argus.kernels.tile_times import estimated, ranked
from argus.kernels.tiling import tiles
from argus.tuning.model import MODELS

_ROWS = (1, 16, 64, 256, 1024, 8192)
"""Numbers of rows for which one length of parts has to serve."""
_ONE_TILE = 256  # rows whose tile serves any number, where tiles have instructions of their own
_PARTS = (2, 3, 4, 6, 8)
_UNIT = 256  # terms: parts are multiples of the deepest step


def tile_in_order(problem: ProductShape) -> Tile:
    """Return the fastest tile among those that add up each element in the order of any number of rows."""
    if problem.target == MI300X.target:
        return next(t for t, _ in ranked(replace(problem, m=_ONE_TILE)) if not t.part)
    if problem.target not in MODELS:
        return ranked(problem)[0][0]
    return _best(problem, _length(replace(problem, m=1, residual=0)))[0]


@lru_cache(maxsize=4096)
def _length(problem: ProductShape) -> int:
    """Return the length of parts, or 0 for whole sums, with which the worst number of rows loses least."""
    lengths = [0, *sorted({ceil(ceil(problem.k / count) / _UNIT) * _UNIT for count in _PARTS}, reverse=True)]
    shapes = [replace(problem, m=rows) for rows in _ROWS]
    fastest = [ranked(shape)[0][1].seconds for shape in shapes]

    def loss(length: int) -> float:
        return max(_best(shape, length)[1] / least for shape, least in zip(shapes, fastest, strict=True))

    return min((n for n in lengths if n < problem.k and (not n or problem.batch == 1)), key=loss)


@lru_cache(maxsize=4096)
def _best(problem: ProductShape, length: int) -> tuple[Tile, float]:
    """Return the fastest tile with parts of a length, and its seconds."""
    model = MODELS[problem.target]
    timed = ((tile, estimated(problem, tile, model).seconds) for tile in _in_order(problem, length))
    return min(timed, key=lambda pair: pair[1])


def _in_order(problem: ProductShape, length: int) -> Iterator[Tile]:
    """Yield the tiles that add up parts of a length step by step, in matrix instructions of one kind."""
    packs = not problem.bulk and (problem.pack_a or problem.pack_b)
    for tile in tiles(replace(problem, out_bits=32) if length else problem):
        whole = tile.schedule == ROWS and not (tile.part or tile.shift)
        if whole and tile.packed >= packs and (not length or length % tile.block_k == 0):
            yield replace(tile, part=length)
