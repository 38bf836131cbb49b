"""Cuts of reductions: the parts into which rows and columns are cut, and the constants of the kernel for a part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from argus.ir.machine import H200
from argus.kernels.rows import spread

_BLOCKS = 2048  # about two rounds of the blocks that a large processor runs at once
_LEAST = 8192  # elements of a part: one turn of a block
_LONGEST = 8192  # elements of a row at a time
_SHORT = 128  # elements of a short row
_FEW_LANES = 8  # of a row of whole vectors: a longer one has 32
_MEMORY, _WARP, _AT_ONCE = 4.2e6, 2.1e3, 32 * H200.multiprocessors
"""Measured on an H200: bytes a microsecond, the same of one warp; and the warps that run at once."""
_JOIN = 6.0  # microseconds of a second launch
_COLUMNS = 256  # at a time; half as many of whole vectors, twice as many where nothing is cut, as there are so many
_FEW, _SHORT_COLUMN = 4 << 20, 4096  # bytes that are read in one launch, and elements of a column
_EACH = 8  # rows of a thread that are in flight
_VECTOR = 8  # elements: 16 bytes of a 16-bit type


@dataclass(frozen=True)
class Cut:
    """A reduction in `parts` parts of `length` (of columns the last is shorter, of rows there may be a rest); the
    constants and the warps of the kernel for a part."""

    parts: int
    length: int
    constants: Mapping[str, int]
    warps: int


@lru_cache(maxsize=4096)
def along_rows(rows: int, length: int, width: int, itemsize: int, step: int = 0) -> Cut:
    """Cut `rows` rows of `length` elements of `itemsize` bytes, which are read in vectors of `width` elements; if there
    is a `step` (see `step_of`), in whole vectors that the mask cuts.

    Short rows of whole vectors get as few lanes as hold four vectors each: few lanes idle, and few sums go between
    lanes. Rows of narrower vectors get 8 lanes. A row is cut if its parts save more than the second launch costs.
    """
    if step:
        width = 16 // itemsize
        found = along_rows(rows, length + width - 1, width, itemsize)
        even = length if found.parts == 1 else length // found.parts // _VECTOR * _VECTOR
        return replace(found, length=even, constants={**found.constants, "STEP": step, "WIDTH": width})
    vectors = -(-length // width)
    if width * itemsize == 16 and 0 < vectors <= 4 * _FEW_LANES:
        lanes = _power(-(-vectors // 4))
        each = -(-vectors // lanes)
        return Cut(1, length, {"EACH": each, "ROWS": 128 // lanes * (4 // each), "BLOCK": lanes * width}, 4)
    s = spread(min(length, _LONGEST), itemsize)
    block = min(s.block, 8 * width if length <= _SHORT else 256 * max(1, s.warps // s.rows))
    blocks = max(1, -(-rows // s.rows))
    parts = max(1, min(_BLOCKS // blocks, length // _LEAST))
    whole, cut = (_microseconds(blocks * n, s.rows * length * itemsize / n, s.warps) for n in (1, parts))
    if whole <= cut + _JOIN:
        parts = 1
    each = length if parts == 1 else length // parts // _VECTOR * _VECTOR
    turns = -(-min(max(1, length), s.block) // block)
    return Cut(parts, each, {"EACH": turns, "ROWS": s.rows, "BLOCK": block}, s.warps)


def _microseconds(blocks: int, bytes: float, warps: int) -> float:
    """Return how long `blocks` blocks read `bytes` each: limited by the memory, and by _WARP for each warp."""
    rounds, rest = divmod(blocks, _AT_ONCE // warps)
    each = bytes / (_WARP * warps)
    return sum(n * max(count * bytes / _MEMORY, each) for n, count in ((rounds, _AT_ONCE // warps), (1, rest)) if count)


@lru_cache(maxsize=4096)
def across_rows(tensors: int, length: int, columns: int, vector: int, itemsize: int) -> Cut:
    """Cut matrices of `length` rows of `columns` elements of `itemsize` bytes each, which are read in vectors.

    Few bytes are read in one launch, by narrow blocks, so that there are many blocks. Parts are whole turns of a block.
    """
    most, width, warps = _BLOCKS, _COLUMNS, 4
    if length <= _SHORT_COLUMN and tensors * length * columns * itemsize <= _FEW:
        most, width, warps = 0, 64 // itemsize, 8
    elif itemsize > 2:
        most, width, warps = 8 * H200.multiprocessors, 128, 8  # 512 bytes wide as well
    elif tensors * columns >= 2 * _COLUMNS * most:
        width *= 2
    elif vector == _VECTOR:
        most, width = 9 * H200.multiprocessors, width // 2  # one round of blocks, with parts of half the bytes
    block = min(width, _power(columns))
    rows = warps * 32 * (16 // itemsize) // block
    turn = _EACH * rows
    room = most // max(1, tensors * -(-columns // block))
    parts = min(room, length * block // _LEAST)
    more = turn - 1 if parts == room and most < _BLOCKS else 3 * turn // 4  # A single round stays a single round.
    part = max(1, (-(-length // parts) + more) // turn) * turn if parts > 1 else max(1, length)
    return Cut(max(1, -(-length // part)), part, {"EACH": _EACH, "ROWS": rows, "BLOCK": block}, warps)


def _power(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()
