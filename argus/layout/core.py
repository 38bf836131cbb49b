"""Layouts: functions from coordinates to offsets, written `shape:stride`.

Semantics are CuTe's: a layout of shape `(S0, S1, …)` and stride `(D0, D1, …)` maps the coordinate
`(c0, c1, …)` to `c0*D0 + c1*D1 + …`, and a flat index is split into coordinates colexicographically,
that is, the first mode is the fastest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from argus.layout import inttuple
from argus.layout.inttuple import IntTuple, LayoutError, flatten, product


@dataclass(frozen=True, slots=True)
class Layout:
    """`shape:stride`, a function from a coordinate (nested or flat) to an integer offset.

    `shape` holds positive integers; `stride` is congruent to it and may hold any integer (0 repeats
    a cell). Raises `LayoutError` otherwise.
    """

    shape: IntTuple
    stride: IntTuple

    def __post_init__(self) -> None:
        inttuple.check(self.shape, "shape")
        inttuple.check(self.stride, "stride")
        if not inttuple.congruent(self.shape, self.stride):
            raise LayoutError(
                f"shape {inttuple.text(self.shape)} and stride {inttuple.text(self.stride)} are nested "
                "differently: every extent needs exactly one stride"
            )
        if any(extent < 1 for extent in flatten(self.shape)):
            raise LayoutError(
                f"shape {inttuple.text(self.shape)} has an extent below 1: a layout has at least one element"
            )

    def __call__(self, *coords: IntTuple) -> int:
        """Offset of a flat index `L(5)`, of a nested coordinate `L((1, 2), 3)`, or of `L(((1, 2), 3))`.

        Law: `L(i) == L(coordinate of i)`. An index past the end continues along the last mode.
        Raises `LayoutError` for a coordinate that does not follow the shape, or is negative.
        """
        coord: IntTuple = coords[0] if len(coords) == 1 else coords
        inttuple.check(coord, "coordinate")
        return inttuple.inner_product(coord, self.shape, self.stride)

    def size(self) -> int:
        """Return the number of coordinates: the product of all extents."""
        return product(self.shape)

    def cosize(self) -> int:
        """Return one more than the span of the offsets: `max(L) - min(L) + 1`; `L(size-1)+1` if no stride is < 0."""
        pairs = zip(flatten(self.shape), flatten(self.stride), strict=True)
        return 1 + sum((extent - 1) * abs(step) for extent, step in pairs)

    @property
    def rank(self) -> int:
        """Number of top-level modes; 1 for an integer shape."""
        return len(self.shape) if isinstance(self.shape, tuple) else 1

    @property
    def depth(self) -> int:
        """Nesting depth of the shape; 0 for an integer shape."""
        return inttuple.depth(self.shape)

    def __getitem__(self, index: int) -> Layout:
        """Top-level mode `index` as a layout. Raises `LayoutError` if there is no such mode."""
        if not inttuple.is_int(index) or not -self.rank <= index < self.rank:
            raise LayoutError(f"layout {self} has {self.rank} modes: there is no mode {index}")
        if isinstance(self.shape, tuple) and isinstance(self.stride, tuple):
            return Layout(self.shape[index], self.stride[index])
        return self

    def __iter__(self) -> Iterator[Layout]:
        """Yield the top-level modes, first to last."""
        return (self[i] for i in range(self.rank))

    def __len__(self) -> int:
        return self.rank

    def _repr_html_(self) -> str:
        """Return a picture as a notebook shows it, or the notation where that would be too large."""
        from argus.layout.picture import notebook

        return notebook(self)

    def __str__(self) -> str:
        return f"{inttuple.text(self.shape)}:{inttuple.text(self.stride)}"


def layout(shape: IntTuple, stride: IntTuple | None = None) -> Layout:
    """Return `shape:stride`; without a stride, the compact column-major layout of `shape`."""
    return column_major(shape) if stride is None else Layout(shape, stride)


def column_major(shape: IntTuple) -> Layout:
    """Return the compact layout whose leftmost extent is fastest: `column_major((4,8)) == (4,8):(1,4)`."""
    inttuple.check(shape, "shape")
    return Layout(shape, inttuple.compact_strides(shape))


def row_major(shape: IntTuple) -> Layout:
    """Return the compact layout whose rightmost extent is fastest: `row_major((4,8)) == (4,8):(8,1)`."""
    inttuple.check(shape, "shape")
    return Layout(shape, inttuple.compact_strides_right(shape))


def join(modes: Iterable[Layout]) -> Layout:
    """Return the layout whose top-level modes are `modes`."""
    items = tuple(modes)
    return Layout(tuple(m.shape for m in items), tuple(m.stride for m in items))


def flat_modes(value: Layout) -> tuple[tuple[int, int], ...]:
    """Return all `(extent, stride)` leaves, fastest first."""
    return tuple(zip(flatten(value.shape), flatten(value.stride), strict=True))


def from_flat(modes: Iterable[tuple[int, int]]) -> Layout:
    """Return the flat layout of these `(extent, stride)` pairs: `1:0` for no pairs, and depth 0 for one pair."""
    items = tuple(modes)
    if not items:
        return Layout(1, 0)
    if len(items) == 1:
        return Layout(items[0][0], items[0][1])
    return Layout(tuple(s for s, _ in items), tuple(d for _, d in items))
