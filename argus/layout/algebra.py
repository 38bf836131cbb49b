"""The layout algebra: composition, complement, inverses, division and product.

Each function states its law. `L(i)` is the offset of flat index `i`. Where a *tiler* is accepted it is
one of: an integer `n` (the layout `n:1`), a layout (acts on all of the left operand), or a tuple of
tilers (the k-th acts on mode k; modes without a tiler are left alone), as in CuTe.

A swizzled layout may stand on the left of every function that reads its left operand through
composition: the swizzle and offset are kept and the inner layout is transformed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from argus.layout import inttuple
from argus.layout.core import Layout, flat_modes, from_flat, join
from argus.layout.inttuple import IntTuple, LayoutError
from argus.layout.swizzle import SwizzledLayout

Tiler: TypeAlias = int | Layout | tuple["Tiler", ...]
AnyL = TypeVar("AnyL", Layout, SwizzledLayout)


def _on_inner(layout: AnyL, function: Callable[[Layout], Layout]) -> AnyL:
    if isinstance(layout, SwizzledLayout):
        return SwizzledLayout(layout.swizzle, layout.offset, function(layout.inner))
    return function(layout)


def _by_mode(layout: Layout, tilers: tuple[Tiler, ...], function: Callable[[Layout, Tiler], Layout]) -> Layout:
    """Apply `function` to each mode that has a tiler; keep the other modes."""
    if len(tilers) > layout.rank:
        raise LayoutError(f"{len(tilers)} tilers for layout {layout} of {layout.rank} modes: give at most one a mode")
    modes = list(layout)
    return join([function(m, t) for m, t in zip(modes, tilers, strict=False)] + modes[len(tilers) :])


def _as_layout(tiler: Tiler) -> Layout:
    if isinstance(tiler, Layout):
        return tiler
    if inttuple.is_int(tiler) and isinstance(tiler, int):
        return Layout(tiler, 1)
    raise LayoutError(f"tiler {tiler!r} is not an integer, a layout or a tuple of these")


# Coalesce


def coalesce(layout: AnyL, profile: IntTuple | None = None) -> AnyL:
    """Return the same function with as few modes as possible.

    Laws, with `R = coalesce(L)`: `R.size() == L.size()`; `R(i) == L(i)` for all `i < size`; `R.depth <= 1`. With a
    tuple `profile`, each mode k is coalesced to profile k, so the top-level modes keep their sizes.
    """
    return _on_inner(layout, lambda inner: _coalesce(inner, profile))


def _coalesce(layout: Layout, profile: IntTuple | None) -> Layout:
    if isinstance(profile, tuple):
        if len(profile) > layout.rank:
            raise LayoutError(
                f"profile {inttuple.text(profile)} has {len(profile)} entries for layout {layout} "
                f"of {layout.rank} modes: give at most one a mode"
            )
        modes = list(layout)
        done = [_coalesce(m, p) for m, p in zip(modes, profile, strict=False)]
        return join(done + modes[len(profile) :])
    return from_flat(coalesced_modes(flat_modes(layout)))


def coalesced_modes(modes: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Drop `1:d` and merge `s:d, t:s*d` to `s*t:d`; the empty tuple for a single element."""
    result: list[tuple[int, int]] = []
    for extent, step in modes:
        if extent == 1:
            continue
        if result and result[-1][0] * result[-1][1] == step:
            result[-1] = (result[-1][0] * extent, result[-1][1])
        else:
            result.append((extent, step))
    return tuple(result)


def filter_zeros(layout: Layout) -> Layout:
    """Coalesced layout without its stride-0 modes: the same image, every repetition removed."""
    return from_flat(coalesced_modes(tuple((s, d) for s, d in flat_modes(layout) if d != 0)))


# Composition


def composition(a: AnyL, b: Tiler) -> AnyL:
    """Return `R = a o b`, the layout with `R(i) == a(b(i))` for all `i < b.size()`, compatible with `b`'s shape.

    Offsets of `b` beyond `a.size()` continue along the last mode of `coalesce(a)`. With a tuple `b`, mode k of the
    result is `composition(a[k], b[k])`.

    Raises `LayoutError` when no layout of this shape is the composition: an extent of `a` cuts a mode of `b` at an
    uneven place (neither divides the other), two modes of `b` carry into each other inside `a`, or `b` has a negative
    stride.
    """
    return _on_inner(a, lambda inner: _composition(inner, b))


def _composition(a: Layout, b: Tiler) -> Layout:
    if isinstance(b, tuple):
        return _by_mode(a, b, _composition)
    b = _as_layout(b)
    modes = coalesced_modes(flat_modes(a)) or ((1, 0),)
    reach = [0] * len(modes)
    result = _compose_tree(modes, b.shape, b.stride, reach, f"composition of {a} with {b}")
    for (extent, _), most in zip(modes[:-1], reach[:-1], strict=True):
        if most >= extent:
            raise LayoutError(
                f"composition of {a} with {b} is not a layout: modes of the second add up to {most} in an "
                f"extent of {extent} of the first, so they carry into each other; reorder or split the modes"
            )
    return result


def _compose_tree(
    modes: tuple[tuple[int, int], ...], shape: IntTuple, stride: IntTuple, reach: list[int], what: str
) -> Layout:
    if isinstance(shape, tuple) and isinstance(stride, tuple):
        return join(_compose_tree(modes, s, d, reach, what) for s, d in zip(shape, stride, strict=True))
    assert isinstance(shape, int) and isinstance(stride, int)  # congruence, held by every Layout
    return _compose_mode(modes, shape, stride, reach, what)


def _compose_mode(modes: tuple[tuple[int, int], ...], extent: int, step: int, reach: list[int], what: str) -> Layout:
    """Return the layout `i -> A(i*step)` for `i < extent`. Record in `reach[k]` the largest digit used in mode k of A.
    """
    if step < 0:
        raise LayoutError(f"{what}: the second has the stride {step}, but indexes the first, from 0")
    if extent == 1 or step == 0:
        return Layout(extent, 0)
    result: list[tuple[int, int]] = []
    last = len(modes) - 1
    for k, (size, weight) in enumerate(modes):
        if k == last or (extent - 1) * step < size:
            result.append((extent, step * weight))
            reach[k] += (extent - 1) * step
            break
        if step % size == 0:
            step //= size
            continue
        count = size // step
        if size % step or extent % count:
            raise LayoutError(
                f"{what} is not a layout: the step {step} over {extent} elements meets the extent {size}, "
                "and neither divides the other; choose extents that divide"
            )
        result.append((count, step * weight))
        reach[k] += (count - 1) * step
        extent, step = extent // count, 1
    return from_flat(coalesced_modes(tuple(result)))


# Complement and inverses


def complement(layout: Layout, size: int | Layout = 1) -> Layout:
    """Return the layout that enumerates the offsets `layout` skips, up to `size` (an integer, or a layout's size).

    Laws, with `R = complement(L, n)`: strides of `R` are positive and increasing (ordered); `L(i) != R(j)` for all `i`
    and all `0 < j < R.size()` (disjoint); `R.cosize() <= n` rounded up to a multiple of the largest `extent * stride`
    of `L` (bounded); and when the strides of `L` nest, the sums `L(i) + R(j)` reach at least `n` different offsets
    (complete).

    Raises `LayoutError` when two different coordinates of `L` reach one offset through non-zero strides, or a stride is
    negative.
    """
    bound = size.size() if isinstance(size, Layout) else size
    if not inttuple.is_int(bound) or bound < 1:
        raise LayoutError(f"complement of {layout} up to {bound!r}: the bound must be a positive integer")
    skipped: list[tuple[int, int]] = []
    covered = 1
    kept = [(step, extent) for extent, step in flat_modes(layout) if extent != 1 and step != 0]
    for step, extent in sorted(kept):
        if step < covered:
            raise LayoutError(
                f"layout {layout} has no complement: its stride {step} falls inside the span {covered} of "
                "its smaller strides, so offsets may repeat; remove the overlap or the negative stride"
            )
        skipped.append((step // covered, covered))
        covered = step * extent
    skipped.append((-(-bound // covered), covered))
    return from_flat(coalesced_modes(tuple(skipped)))


def right_inverse(layout: Layout) -> Layout:
    """Return the largest `R` found by increasing strides with `L(R(i)) == i` for all `i < R.size()`."""
    place = 1
    entries: list[tuple[int, int, int]] = []
    for extent, step in flat_modes(layout):
        if extent != 1:
            entries.append((step, extent, place))
        place *= extent
    result: list[tuple[int, int]] = []
    reached = 1
    for step, extent, place in sorted(entries):
        if step < reached:
            continue
        if step > reached:
            break
        result.append((extent, place))
        reached *= extent
    return from_flat(coalesced_modes(tuple(result)))


def left_inverse(layout: Layout) -> Layout:
    """Return `R` with `R(L(i)) == i` for all `i < L.size()`, for an injective `L`.

    Offsets that `L` skips are numbered from `L.size()` on, in increasing order, where its strides nest. Raises
    `LayoutError` when `L` repeats a cell or its strides do not nest (neither divides the other).
    """
    result: list[tuple[int, int]] = []
    covered, previous, spare, place = 1, 1, layout.size(), 1
    entries: list[tuple[int, int, int]] = []
    for extent, step in flat_modes(layout):
        if extent != 1:
            entries.append((step, extent, place))
        place *= extent
    for step, extent, place in sorted(entries):
        if step < covered or step % previous:
            raise LayoutError(
                f"layout {layout} has no left inverse that is a layout: its stride {step} repeats a cell or "
                "does not nest with the smaller strides; make every stride a multiple of the one below"
            )
        gap, uneven = divmod(step, covered)
        if uneven:
            result[-1] = (step // previous, result[-1][1])
        elif gap > 1:
            result.append((gap, spare))
            spare *= gap
        result.append((extent, place))
        covered, previous = step * extent, step
    return from_flat(coalesced_modes(tuple(result)))


# Division


def logical_divide(layout: AnyL, tiler: Tiler) -> AnyL:
    """Split into (tile, rest): `R = layout o (tiler, complement(tiler, layout.size()))`.

    Law: `R((i, j)) == layout(tiler(i) + complement(tiler, layout.size())(j))`. With a tuple of tilers mode k
    becomes `(tile_k, rest_k)`. Raises `LayoutError` as `composition` and `complement` do.
    """
    return _on_inner(layout, lambda inner: _logical_divide(inner, tiler))


def _logical_divide(layout: Layout, tiler: Tiler) -> Layout:
    if isinstance(tiler, tuple):
        return _by_mode(layout, tiler, _logical_divide)
    tile = _as_layout(tiler)
    return _composition(layout, join((tile, complement(tile, layout.size()))))


def _unzip(split: Layout, tiler: Tiler) -> Layout:
    """Rearrange `((a, x), (b, y), z)` to `((a, b), (x, y, z))`, following the tuples of the tiler."""
    if not isinstance(tiler, tuple):
        return split
    modes = list(split)
    pairs = [_unzip(m, t) for m, t in zip(modes, tiler, strict=False)]
    rest = [p[1] for p in pairs] + modes[len(tiler) :]
    return join((join(p[0] for p in pairs), join(rest)))


def zipped_divide(layout: AnyL, tiler: Tiler) -> AnyL:
    """Return `logical_divide` with all tile modes gathered first: `((tile_0, tile_1, …), (rest_0, rest_1, …))`."""
    return _on_inner(layout, lambda inner: _unzip(_logical_divide(inner, tiler), tiler))


def tiled_divide(layout: AnyL, tiler: Tiler) -> AnyL:
    """Return `zipped_divide` with the rest spread out: `((tile_0, tile_1, …), rest_0, rest_1, …)`."""

    def divide(inner: Layout) -> Layout:
        zipped: Layout = _unzip(_logical_divide(inner, tiler), tiler)
        return join([zipped[0], *zipped[1]])

    return _on_inner(layout, divide)


# Product


def logical_product(layout: AnyL, tiler: Tiler) -> AnyL:
    """Repeat the layout as `tiler` says: `R = (layout, complement(layout, n) o tiler)`.

    Laws: `R((i, 0)) == layout(i)`, and `R((i, j)) == layout(i) + C(tiler(j))` where `C` enumerates what
    `layout` skips, up to `n = layout.size() * tiler.cosize()`. With a tuple of tilers mode k is repeated
    by tiler k.
    """
    return _on_inner(layout, lambda inner: _logical_product(inner, tiler))


def _logical_product(layout: Layout, tiler: Tiler) -> Layout:
    if isinstance(tiler, tuple):
        return _by_mode(layout, tiler, _logical_product)
    tile = _as_layout(tiler)
    free = complement(layout, layout.size() * tile.cosize())
    return join((layout, _composition(free, tile)))


def zipped_product(layout: AnyL, tiler: Tiler) -> AnyL:
    """Return `logical_product` with the block modes gathered first: `((block_0, …), (repeat_0, …))`."""
    return _on_inner(layout, lambda inner: _unzip(_logical_product(inner, tiler), tiler))


def _padded(layout: Layout, rank: int) -> list[Layout]:
    return [*layout, *(Layout(1, 0) for _ in range(rank - layout.rank))]


def _product_by_rank(layout: Layout, tiler: Layout, block_first: bool) -> Layout:
    rank = max(layout.rank, tiler.rank)
    block, repeat = join(_padded(layout, rank)), join(_padded(tiler, rank))
    both = _logical_product(block, repeat)
    pairs = zip(both[0], both[1], strict=True)
    return join(_coalesce(join(p if block_first else p[::-1]), None) for p in pairs)


def blocked_product(layout: AnyL, tiler: Layout) -> AnyL:
    """Repeat whole blocks: mode k of the result is `(block_k, repeat_k)`, coalesced, the block fastest.

    Law: the result of shape `block * tiler` by mode maps `(b + B*r)` by mode to `layout(b) + C(tiler(r))` as
    in `logical_product`.
    """
    return _on_inner(layout, lambda inner: _product_by_rank(inner, tiler, True))


def raked_product(layout: AnyL, tiler: Layout) -> AnyL:
    """Like `blocked_product` but interleaved: mode k is `(repeat_k, block_k)`, the repeat fastest."""
    return _on_inner(layout, lambda inner: _product_by_rank(inner, tiler, False))


def tile_to_shape(block: AnyL, shape: IntTuple, order: tuple[int, ...] | None = None) -> AnyL:
    """Repeat `block` by mode until it has the shape `shape`, a tuple with one integer a mode.

    `order[k]` ranks mode k: repetitions along the mode of smallest rank come first in memory; by default
    mode 0 first (column-major). Law: inside block 0 the result equals `block`, and every further block
    is a translated copy. Raises `LayoutError` unless the block's mode sizes divide the shape.
    """
    return _on_inner(block, lambda inner: _tile_to_shape(inner, shape, order))


def _tile_to_shape(block: Layout, shape: IntTuple, order: tuple[int, ...] | None) -> Layout:
    target = tuple(inttuple.product(s) for s in shape) if isinstance(shape, tuple) else (shape,)
    if block.rank > len(target):
        raise LayoutError(f"block {block} has {block.rank} modes, more than the target shape {target}")
    modes = _padded(block, len(target))
    counts: list[int] = []
    for extent, mode in zip(target, modes, strict=True):
        if extent < 1 or extent % mode.size():
            raise LayoutError(
                f"block {block} does not tile the shape {target}: {mode.size()} does not divide {extent}; "
                "pick a block whose modes divide the shape"
            )
        counts.append(extent // mode.size())
    ranks = tuple(range(len(target))) if order is None else order
    if len(ranks) != len(target):
        raise LayoutError(f"order {ranks} has {len(ranks)} entries for {len(target)} modes: give one a mode")
    strides = [0] * len(counts)
    step = 1
    for k in sorted(range(len(counts)), key=lambda k: (ranks[k], k)):
        strides[k] = step
        step *= counts[k]
    return _product_by_rank(join(modes), Layout(tuple(counts), tuple(strides)), True)
