"""Derive the register layouts of statements from those of the tiles that they access, and the other way round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd, prod

import numpy as np

from argus.ir.expr import Const, Coord, Expr, coords, reshaped
from argus.ir.locality import cells, foreign, holders
from argus.layout import FragmentLayout, LayoutError, Mode, blocked


def axes_of(index: Sequence[Expr]) -> tuple[int | None, ...] | None:
    """Return the domain axis of each index that is a bare `Coord`, and None for each constant index. Return None if
    there is any other index."""
    result: list[int | None] = []
    for expr in index:
        match expr:
            case Coord(axis=axis) if axis not in result:
                result.append(axis)
            case Const():
                result.append(None)
            case _:
                return None
    return tuple(result)


def project(domain: FragmentLayout, index: Sequence[Expr], shape: tuple[int, ...]) -> FragmentLayout | None:
    """Return the layout of a tile of `shape` in which every thread holds the elements that it needs for its elements of
    `domain`.

    `[128x64 | t 8@1*8 16@0 | v 8@1]` read at `(c0,)` gives `[128 | t 8@_ 16@0 | v]`. Return None unless every index is
    a coordinate that runs through its whole dimension, or 0 in a dimension of extent 1.
    """
    axes = axes_of(index)
    if axes is None or not _whole(axes, index, shape, domain.shape):
        return None
    place = {axis: dim for dim, axis in enumerate(axes) if axis is not None}

    def moved(mode: Mode) -> Mode:
        dim = None if mode.dim is None else place.get(mode.dim)
        return Mode(mode.extent, dim, mode.stride) if dim is not None else Mode(mode.extent, None)

    values = tuple(moved(m) for m in domain.values if m.dim in place)
    return FragmentLayout(shape, tuple(moved(m) for m in domain.threads), values).simplify()


def lift(tile: FragmentLayout, index: Sequence[Expr], domain: tuple[int, ...]) -> FragmentLayout | None:
    """Return the layout of a domain in which every thread computes the elements at `index` that it holds of the tile.

    Return None unless the access visits each element of the tile exactly once.
    """
    axes = axes_of(index)
    if axes is None or not _whole(axes, index, tile.shape, domain):
        return None
    if any(extent > 1 and axis not in axes for axis, extent in enumerate(domain)):
        return None

    def moved(mode: Mode) -> Mode:
        axis = None if mode.dim is None else axes[mode.dim]
        return Mode(mode.extent, axis, mode.stride) if axis is not None else Mode(mode.extent, None)

    values = tuple(m for m in tile.values if m.dim is not None and axes[m.dim] is not None)
    return FragmentLayout(domain, tuple(moved(m) for m in tile.threads), tuple(moved(m) for m in values)).simplify()


def carried(tile: FragmentLayout, index: Sequence[Expr], domain: tuple[int, ...]) -> FragmentLayout | None:
    """Return the layout of a domain that reads the tile's elements in another shape, or at a fixed place of the last
    dimension, such that every thread reads elements that it holds. Return None for other accesses."""
    if _same_elements(domain, index, tile.shape):
        return _reshaped(tile, domain)
    if tile.shape[:-1] == domain and tuple(index[:-1]) == coords(len(domain)) and isinstance(index[-1], Const):
        return _without_last(tile)
    return None


def joined(tile: FragmentLayout, index: Sequence[Expr], domain: tuple[int, ...]) -> FragmentLayout | None:
    """Return the layout of a domain that puts two tiles side by side along a new last dimension, such that every
    thread keeps its elements of both. Return None for other accesses."""
    if domain != (*tile.shape, 2) or tuple(index) != coords(len(tile.shape)):
        return None
    return FragmentLayout(domain, tile.threads, (Mode(2, len(tile.shape), 1), *tile.values)).simplify()


def brought(domain: FragmentLayout, index: Sequence[Expr], shape: tuple[int, ...]) -> FragmentLayout | None:
    """Return the layout of a tile of `shape` that `domain` reads in another shape, or at a fixed place of the last
    dimension, such that every thread holds the elements that it reads. Of a pair it then holds both elements."""
    if _same_elements(domain.shape, index, shape):
        return _reshaped(domain, shape)
    rank = len(domain.shape)
    if shape[:rank] != domain.shape or tuple(index[:rank]) != coords(rank) or len(shape) != rank + 1:
        return None
    if not isinstance(index[rank], Const):
        return None
    return FragmentLayout(shape, domain.threads, (Mode(shape[rank], rank), *domain.values)).simplify()


def _same_elements(domain: tuple[int, ...], index: Sequence[Expr], shape: tuple[int, ...]) -> bool:
    """Return True if a domain reads each element of a tile of `shape` once, in row-major order."""
    return prod(domain) == prod(shape) and tuple(index) == reshaped(domain, shape)


def _without_last(tile: FragmentLayout) -> FragmentLayout:
    last = len(tile.shape) - 1
    threads = tuple(Mode(m.extent, None) if m.dim == last else m for m in tile.threads)
    return FragmentLayout(tile.shape[:last], threads, tuple(m for m in tile.values if m.dim != last)).simplify()


def _reshaped(tile: FragmentLayout, shape: tuple[int, ...]) -> FragmentLayout | None:
    """Return a layout of another shape with the same elements in the same threads and registers, or None if a mode does
    not fit the shape."""
    modes = (*tile.threads, *tile.values)
    parts = [tuple(_split(m, tile.shape, shape)) for m in modes]
    if any(prod(p.extent for p in part) != m.extent for part, m in zip(parts, modes, strict=True)):
        return None
    threads = tuple(p for part in parts[: len(tile.threads)] for p in part)
    return FragmentLayout(shape, threads, tuple(p for part in parts[len(tile.threads) :] for p in part)).simplify()


def _split(mode: Mode, source: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[Mode]:
    """Yield a mode as modes along the dimensions of another shape, fastest first, as far as they fit."""
    if mode.dim is None or mode.extent == 1:
        yield mode if mode.dim is None else Mode(1, None)
        return
    step, left = mode.stride * prod(source[mode.dim + 1 :]), mode.extent
    for dim in reversed(range(len(shape))):
        behind = prod(shape[dim + 1 :])
        if left == 1 or step >= behind * shape[dim] or step % behind:
            continue
        room = behind * shape[dim] // step
        inside = left if left <= room else room
        if behind * shape[dim] % step or left % inside:
            return
        yield Mode(inside, dim, step // behind)
        step, left = step * inside, left // inside


def _whole(axes: tuple[int | None, ...], index: Sequence[Expr], tile: tuple[int, ...], domain: tuple[int, ...]) -> bool:
    for axis, expr, extent in zip(axes, index, tile, strict=True):
        if axis is None:
            if extent != 1 or expr != Const(0):
                return False
        elif domain[axis] != extent:
            return False
    return True


def complete(
    partial: FragmentLayout, index: Sequence[Expr], domain: tuple[int, ...], vector: int
) -> FragmentLayout | None:
    """Return a layout of `domain` whose projection at `index` is `partial`. Threads that `partial` replicates divide
    the other axes.

    A row maximum `[128 | t 8@_ 16@0 | v]` read at `(c0,)` in a domain 128x64 gives `[128x64 | t 8@1*8 16@0 | v 8@1]`
    with `vector` 8. Return None if the threads do not fit.
    """
    axes = axes_of(index)
    if axes is None or not _whole(axes, index, partial.shape, domain):
        return None
    free = [axis for axis in reversed(range(len(domain))) if axis not in axes and domain[axis] > 1]
    if not free:
        return None
    start = {axis: gcd(vector, domain[axis]) if axis == free[0] else 1 for axis in free}
    values = [Mode(start[free[0]], free[0])]
    threads: list[Mode] = []
    for mode in partial.threads:
        if mode.dim is not None and axes[mode.dim] is not None:
            threads.append(Mode(mode.extent, axes[mode.dim], mode.stride))
            continue
        left = mode.extent
        for axis in free:
            take = gcd(left, domain[axis] // start[axis])
            threads.append(Mode(take, axis, start[axis]))
            start[axis] *= take
            left //= take
        threads.append(Mode(left, None))
    kept = [Mode(m.extent, axes[m.dim], m.stride) for m in partial.values if m.dim is not None]
    rest = [Mode(domain[axis] // start[axis], axis, start[axis]) for axis in free]
    return FragmentLayout(domain, tuple(threads), (*values, *rest, *kept)).simplify()


def default(
    shape: tuple[int, ...], num_threads: int, order: tuple[int, ...] | None = None, vector: int = 1
) -> FragmentLayout:
    """Return `blocked` with at most `vector` consecutive elements for each thread, and with fewer if this keeps more
    threads busy.

    Shapes that the threads cannot share evenly fall back on as many threads as divide them.
    """
    size = prod(shape)
    while vector > 1 and size // vector < num_threads:
        vector //= 2
    try:
        return blocked(shape, num_threads, order, vector).simplify()
    except LayoutError:
        return _uneven(shape, num_threads, order or tuple(reversed(range(len(shape)))))


def _uneven(shape: tuple[int, ...], num_threads: int, order: tuple[int, ...]) -> FragmentLayout:
    threads: list[Mode] = []
    values: list[Mode] = []
    left = num_threads
    for dim in order:
        across = gcd(left, shape[dim])
        threads.append(Mode(across, dim))
        values.append(Mode(shape[dim] // across, dim, across))
        left //= across
    threads.append(Mode(left, None))
    return FragmentLayout(shape, tuple(threads), tuple(values)).simplify()


def uneven(layout: FragmentLayout, axis: int) -> bool:
    """Return True unless threads and registers divide an axis evenly, with each element in one register of each of its
    holders."""
    covered = 1
    for mode in sorted((m for m in (*layout.threads, *layout.values) if m.dim == axis), key=lambda m: m.stride):
        if mode.extent > 1 and mode.stride != covered:
            return True
        covered *= mode.extent
    return covered != layout.shape[axis] or any(m.dim is None and m.extent > 1 for m in layout.values)


@dataclass(frozen=True, slots=True)
class Digit:
    """A digit of an axis: `extent` positions of lanes, warps or registers, `stride` elements apart."""

    axis: int
    stride: int
    extent: int


def split_threads(layout: FragmentLayout, warp_size: int) -> tuple[tuple[Digit, ...], tuple[Digit, ...]] | None:
    """Return the digits of a layout's lanes and of its warps, fastest first, or None if a mode crosses the end of a
    warp."""
    lanes: list[Digit] = []
    warps: list[Digit] = []
    place = 1
    for mode in layout.threads:
        inside = gcd(mode.extent, max(1, warp_size // place))
        if place < warp_size and place * inside not in (warp_size, place * mode.extent):
            return None
        if mode.dim is not None and inside > 1:
            lanes.append(Digit(mode.dim, mode.stride, inside))
        if mode.dim is not None and mode.extent > inside:
            warps.append(Digit(mode.dim, mode.stride * inside, mode.extent // inside))
        place *= mode.extent
    return tuple(lanes), tuple(warps)


def everywhere(num_threads: int) -> FragmentLayout:
    """Return the layout of a scalar, which all threads hold."""
    return FragmentLayout((), (Mode(num_threads, None),), ())


def holds(tile: FragmentLayout, domain: FragmentLayout, index: tuple[Expr, ...]) -> bool:
    """Return True if every thread holds all elements `tile[index]` of its part of `domain`."""
    if project(domain, index, tile.shape) == tile.simplify():
        return True
    return cells(index, tile.shape, domain) is not None and foreign(domain, index, tile, None) is None


def in_order(tile: FragmentLayout, domain: FragmentLayout, index: tuple[Expr, ...], width: int) -> bool:
    """Return True if aligned runs of `width` elements in a thread's part of `domain` are consecutive registers of
    `tile`."""
    touched = cells(index, tile.shape, domain)
    if touched is None or width < 1 or touched.shape[1] % width:
        return False
    registers = tile.locate().reshape(tile.num_threads, -1)
    runs = np.take_along_axis(registers, touched, axis=1).reshape(domain.num_threads, -1, width)
    return bool((runs == runs[..., :1] + np.arange(width)).all())


def warp_holds(tile: FragmentLayout, domain: FragmentLayout, index: tuple[Expr, ...], warp_size: int) -> bool:
    """Return True if the lanes of each thread's warp together hold all elements `tile[index]` that the thread needs."""
    return cells(index, tile.shape, domain) is not None and foreign(domain, index, tile, warp_size) is None


def fills(tile: FragmentLayout, domain: FragmentLayout, index: tuple[Expr, ...]) -> bool:
    """Return True if a write of `tile[index]` over `domain` reaches every holder of each element that it writes."""
    if project(domain, index, tile.shape) == tile.simplify():
        return True
    touched = cells(index, tile.shape, domain)
    if touched is None or bool((touched < 0).any()) or not holds(tile, domain, index):
        return False
    written = np.zeros((tile.num_threads, tile.size), dtype=np.bool_)
    written[np.arange(tile.num_threads)[:, None], touched] = True
    some = np.asarray(written.any(axis=0))
    return bool((written == (holders(tile) & some[None, :])).all())
