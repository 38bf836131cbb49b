"""Choose the tile of a convolution: filters by pixels. This is a replaceable part of the generator, like `tiles`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from argus.graph.layout import LEFT, PARALLEL, PLACE, REDUCED, RIGHT, Axis, Layout
from argus.graph.space import Mismatch
from argus.graph.tiles import ELEMENTS, power, power_of
from argus.ir.machine import H200

LEAST_CHANNELS, LEAST_FILTERS = 3, 8
"""Smallest number of channels and filters of a convolution that uses matrix instructions."""

FEW_CHANNELS = 16
"""Number of channels below which a convolution does not round float32 to TF32. cuDNN does the same."""


@dataclass(frozen=True)
class ConvolutionTile:
    """A convolution's tile: `filters` along the axis `rows` (if any) by pixels along the axes `pixels`, each with its
    part of the tile, and `k` channels at a time. `mma`: a matrix instruction computes it. `flat`: the pixels that
    a tap meets are a box of the image. `last`: results have their channels last, and pixels are the tile's rows.
    `pairs`: pixels are the tile's rows, and of each the two phases of the last dimension lie side by side."""

    rows: Axis | None
    pixels: tuple[tuple[Axis, int], ...]
    grid: tuple[Axis, ...]
    filters: int
    width: int
    k: int
    stages: int
    mma: bool
    warps: int
    producers: int = 0
    flat: bool = False
    last: bool = False
    pairs: bool = False

    @property
    def rows_by_columns(self) -> str:
        """The tile's shape in the kernel's text."""
        return "(WIDTH, HEIGHT)" if self.last or self.pairs else "(HEIGHT, WIDTH)"


def flat_tile(
    layout: Layout, spatial: tuple[Axis, ...], places: int, target: str, bits: int, whole: bool
) -> ConvolutionTile:
    """Return the tile of a convolution whose image is read by boxes of `width` consecutive pixels. An image has
    `places` pixels. `whole`: all of them are pixels of the result."""
    rows = _filters(layout)
    if rows is None:
        raise Mismatch("no axis of filters")
    pixels = tuple((a, 1) for a in spatial)
    grid = _beside(layout, rows, pixels)
    filters, width = _fewest_turns(rows.extent, places, grid)
    last = _stored_last(layout, rows)
    # The result, or a tensor that is read behind the products, goes through shared memory, which must have room for it.
    if filters == 128 and ((len(spatial) == 1 and not last) or _turns(layout, rows)):
        width = min(width, 128)
    if bits == 32 and any(not p.use and len(p.axes) > 1 for p in layout.reads):
        width = _beside_others(filters, width, last)
    stages, warps, producers = 4, (width if last else filters) // 16, 4
    if last and whole:
        width, stages = _with_room(filters, width, bits // 8)
    warps = min(warps, 8)
    if target != "sm_90a":
        filters, width, stages, warps, producers = 32, 32, 3, 4, 0
    return ConvolutionTile(rows, pixels, grid, filters, width, 1024 // bits, stages, True, warps, producers, True, last)


def column_tile(
    layout: Layout, images: Axis, spatial: tuple[Axis, ...], places: int, target: str, bits: int
) -> ConvolutionTile:
    """Return the tile of a convolution whose image is read by columns of pixels. Each of the `images` has `places`
    pixels. Results are stored through shared memory, which must have room for them."""
    rows = _filters(layout)
    if rows is None:
        raise Mismatch("no axis of filters")
    pixels = tuple((axis, places) for axis in (images, *spatial))  # all indices differ within a tile
    if _beside(layout, rows, pixels):
        raise Mismatch("images along several axes")
    all_places = places * (images.extent if isinstance(images.extent, int) else _MANY)
    filters, width = _fewest_turns(rows.extent, all_places, ())
    last = _stored_last(layout, rows)
    width, stages = _with_room(filters, width, bits // 8)
    warps, producers = min((width if last else filters) // 16, 8), 4
    if target != "sm_90a":
        filters, width, stages, warps, producers = 32, 32, 3, 4, 0
    return ConvolutionTile(rows, pixels, (), filters, width, 1024 // bits, stages, True, warps, producers, False, last)


def _beside_others(filters: int, width: int, last: bool) -> int:
    """Return the width of a tile such that registers have room for its sums, and for as many numbers that are read
    behind the products."""
    while width > 64 and filters * width > 32 * _MOST_SUMS * _warps(filters, width, last):
        width //= 2
    return width


_MOST_SUMS = 64
"""Sums of a thread beside which its registers have room for as many numbers."""


def _warps(filters: int, width: int, last: bool) -> int:
    """Return the number of warps that multiply a tile: each has 16 of its rows."""
    return min((width if last else filters) // 16, 8)


def _with_room(filters: int, width: int, item: int) -> tuple[int, int]:
    """Return the width of a tile and the number of stages such that shared memory has room for its results, too.
    `item`: bytes of an element."""
    if filters * width * item > _MOST_RESULTS:
        width = _MOST_RESULTS // (filters * item)
    room = H200.block_shared_bytes - filters * width * item - _BARRIERS
    return width, min(4, room // (128 * (filters + width)))


_MOST_RESULTS = 1 << 16
"""Bytes of a tile's results in shared memory, beside which there is room for three stages of factors."""
_BARRIERS = 1024
"""Bytes that mbarriers may take."""


def _fewest_turns(filters: int, places: int, grid: tuple[Axis, ...]) -> tuple[int, int]:
    """Return the filters and the places of a tile such that the multiprocessors take the fewest turns, each as long as
    the tile is large. Small tiles read their factors for fewer products."""
    images = prod(a.extent if isinstance(a.extent, int) else _MANY for a in grid)

    def turns(tile: tuple[int, int]) -> float:
        blocks = -(-filters // tile[0]) * -(-places // tile[1]) * images
        return -(-blocks // H200.multiprocessors) * prod(tile) * (1 + 24 / tile[0] + 24 / tile[1])

    return min(((f, w) for f in (128, 64) for w in (256, 128, 64)), key=turns)


_MANY = 1024
"""The number of images that is assumed where it is not known."""


def _turns(layout: Layout, rows: Axis) -> bool:
    """Return True if of the results and the tensors that are read behind the products some have their channels last,
    and some have not."""
    beside = [p for p in layout.reads if not p.use and rows in p.axes and len(p.axes) > 1]
    return len({p.axes[-1] is rows for p in (*layout.writes, *beside) if p.axes}) > 1


def _stored_last(layout: Layout, rows: Axis) -> bool:
    """Return True if results, and so tensors that are read behind the products, have their channels last."""
    made = layout.writes[0]
    return bool(made.axes) and made.axes[-1] is rows and made.strides[-1] == 1


_WIDTHS, _MOST_IDLE, _LEAST_WIDTHS = (128, 64, 32), 1.6, 16
"""Of tiles within a row of pixels; the largest ratio of computed pixels to stored ones; pixels of a row that are worth
a tile."""


def row_width(pixels: int) -> int:
    """Return how many pixels of a row a tile has; 0 if too many of them would be outside.

    A narrow tile counts as more work: it reads its filters for fewer pixels."""
    width = min(_WIDTHS, key=lambda w: -(-pixels // w) * (w + 16))
    return width if pixels >= _LEAST_WIDTHS and -(-pixels // width) * width <= _MOST_IDLE * pixels else 0


def row_tile(layout: Layout, spatial: tuple[Axis, ...], row: int, target: str, bits: int) -> ConvolutionTile:
    """The tile of a convolution whose image is read row by row. `row`: pixels of a row."""
    rows = _filters(layout)
    if rows is None or not spatial:
        raise Mismatch("no axis of filters, or of pixels")
    filters = 64 if -(-rows.extent // 64) % 2 else 128
    width, stages, warps, producers = row_width(row), 4, filters // 16, 4
    if target != "sm_90a":
        filters, width, stages, warps, producers = 32, 32, 3, 4, 0
    pixels = (*((a, 1) for a in spatial[:-1]), (spatial[-1], width))
    grid, last = _beside(layout, rows, pixels), _stored_last(layout, rows)
    warps = min(width // 16, 8) if last and producers else warps
    return ConvolutionTile(rows, pixels, grid, filters, width, 1024 // bits, stages, True, warps, producers, True, last)


def pair_tile(
    layout: Layout, pixels: tuple[tuple[Axis, int], ...], places: int, target: str, bits: int, width: int = 0
) -> ConvolutionTile:
    """Return the tile of a convolution whose results are pairs of neighbours. It has two accumulators, one for each
    phase of the last dimension. `width`: pixels of a tile within a row; else tiles are runs of an image's `places`."""
    rows = _filters(layout)
    if rows is None:
        raise Mismatch("no axis of filters")
    grid = _beside(layout, rows, pixels)
    half, images = rows.extent // 2, prod(a.extent if isinstance(a.extent, int) else _MANY for a in grid)

    def turns(tile: tuple[int, int]) -> float:
        blocks: int = -(-half // tile[0]) * -(-places // tile[1]) * images
        return -(-blocks // H200.multiprocessors) * prod(tile) * (1 + 12 / tile[0] + 24 / tile[1])

    widths = (width,) if width else (256, 128, 64)
    filters, width = min(((f, w) for f in (128, 64, 32) for w in widths if f * w <= _MOST_PAIRS), key=turns)
    stages, warps, producers = 4, min(max(width // 16, 4), 8), 4
    if target != "sm_90a":
        filters, width, stages, warps, producers = 16, 32, 3, 4, 0
    if pixels[-1][1] > 1:
        pixels = (*pixels[:-1], (pixels[-1][0], width))
    return ConvolutionTile(
        rows, pixels, grid, filters, width, 1024 // bits, stages, True, warps, producers, True, pairs=True
    )  # fmt: skip


_MOST_PAIRS, PAIRS = 1 << 14, 64
"""Pairs of results of a tile, which are in the registers of two warpgroups; pixels of a warpgroup's product."""


def direct_tile(layout: Layout, spatial: tuple[Axis, ...]) -> ConvolutionTile:
    """Return the tile of a convolution whose products are accumulated one by one, over consecutive pixels."""
    rows = _filters(layout)
    filters = min(-(-rows.extent // 8) * 8, 32) if rows is not None else 1
    pixels = tuple((a, 2) for a in spatial)
    return ConvolutionTile(rows, pixels, _beside(layout, rows, pixels), filters, 256, 1, 1, False, 4)


def convolution_tile(layout: Layout, channels: Axis | None, spatial: tuple[Axis, ...], phases: dict[str, int],
                     target: str, bits: int) -> ConvolutionTile:  # fmt: skip
    """Return the tile of a convolution. `bits` is the width of an element that a matrix instruction multiplies, or 0 if
    no instruction fits."""
    rows = _filters(layout)
    depth = channels.extent if channels is not None else 1
    mma = bool(bits) and rows is not None and rows.extent >= LEAST_FILTERS and depth >= LEAST_CHANNELS
    warps, stages, producers = 4, 3, 0
    if mma and rows is not None and target == "sm_90a" and _rows_of_channels(layout, channels, bits):
        filters = 64 if rows.extent <= 64 else 128
        width, k, warps, stages, producers = 128, 1024 // bits, filters // 16, 4, 8
    elif mma:
        assert rows is not None
        filters = min(max(power(rows), 16), 32 if target == "cpu" else 128)
        width = 32 if target == "cpu" else 256 if filters <= 32 else 128
        warps = 8 if filters == 128 else 4
        k = min(max(power_of(depth), 256 // bits), 1024 // bits)
    else:
        filters = min(power(rows), 16) if rows is not None else 1
        width, k = ELEMENTS // filters, 1
    images = tuple(a for a in layout.of(PARALLEL) + layout.of(RIGHT) if a not in spatial)
    pixels = _shared_out(spatial, phases, width, images)
    grid = _beside(layout, rows, pixels)
    return ConvolutionTile(rows, pixels, grid, filters, width, k, stages, mma, warps, producers)


def _filters(layout: Layout) -> Axis | None:
    """Return the axis of filters, or None if there is none. Filters with phases that are stored in turns are read at
    computed places. Raises Mismatch if there are several axes."""
    found = layout.of(LEFT) or tuple(a for p in layout.reads if p.use == "w" for a in p.axes if a.kind == PLACE)
    if len(found) > 1:
        raise Mismatch("filters along several axes")
    return found[0] if found else None


def _beside(layout: Layout, rows: Axis | None, pixels: tuple[tuple[Axis, int], ...]) -> tuple[Axis, ...]:
    """Return the axes of a convolution's grid: the axes of the result along which a tile has neither filters nor
    pixels."""
    taken = {a.symbol for a, _ in pixels} | ({rows.symbol} if rows is not None else set())
    if rows is not None and rows.kind == PLACE:  # the results' filters follow from the rows
        return layout.of(RIGHT)
    return tuple(a for a in layout.axes if a.kind not in (REDUCED, PLACE) and a.symbol not in taken)


def _rows_of_channels(layout: Layout, channels: Axis | None, bits: int) -> bool:
    """Return True if channels are contiguous in images and filters, in whole rows of a tile."""
    factors = [p for p in layout.reads if p.use in ("x", "w")]
    rows = all(p.axes and p.axes[-1] is channels and p.strides[-1] == 1 for p in factors)
    return rows and channels is not None and channels.extent % (1024 // bits) == 0


def _shared_out(
    spatial: tuple[Axis, ...], phases: dict[str, int], width: int, images: tuple[Axis, ...]
) -> tuple[tuple[Axis, int], ...]:
    """Return how many of a tile's pixels lie along each axis, such that as few as possible are outside.

    Among equals, the split with more pixels along the contiguous axis is chosen. A tile larger than an image covers
    several images.
    """
    axes = [*(a for a in images[-1:] if isinstance(a.extent, int)), *spatial]
    best: tuple[tuple[float, int], tuple[int, ...]] | None = None
    for parts in _factors(width, len(axes)):
        work = 1.0
        for axis, part in zip(axes, parts, strict=True):
            extent = -(-axis.extent // phases.get(axis.symbol, 1))
            work *= -(-extent // part) * part / extent
        scattered = 1.2 if parts and parts[-1] < 8 else 1.0
        rank = (work * scattered, -parts[-1] if parts else 0)
        if best is None or rank < best[0]:
            best = rank, parts
    if best is None:
        raise Mismatch("a convolution with one pixel")
    return tuple((a, part) for a, part in zip(axes, best[1], strict=True) if part > 1 or a in spatial)


def _factors(width: int, count: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to write a power of two as a product of `count` powers of two."""
    if count <= 1:
        yield from ((width,),) if count else ()
        return
    part = 1
    while part <= width:
        for rest in _factors(width // part, count - 1):
            yield (part, *rest)
        part *= 2
