"""The dimensions of a convolution: the axes of its results, images, taps and channels."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, gcd

from argus.graph.capture import inputs, meta_of
from argus.graph.convolution_tiles import FEW_CHANNELS, LEAST_CHANNELS, LEAST_FILTERS
from argus.graph.group import Group
from argus.graph.layout import Axis, Layout
from argus.graph.window import window_of


@dataclass(frozen=True)
class Spatial:
    """A spatial dimension of a convolution. It has axes for the result, the image and the taps, if these have more
    than one element. `phases` are the distinguished remainders of a coordinate; `turns` are the taps that each
    phase uses."""

    number: int
    result: Axis | None
    image: Axis | None
    tap: Axis | None
    size: int
    taps: int
    stride: int
    padding: int
    dilation: int
    transposed: bool

    @property
    def common(self) -> int:
        return gcd(self.stride, self.dilation)

    @property
    def phases(self) -> int:
        return self.stride if self.transposed else 1

    @property
    def step(self) -> int:
        """The distance between consecutive taps of a phase."""
        return self.stride // self.common if self.transposed else 1

    @property
    def turns(self) -> int:
        return ceil(self.taps / self.step)


def spatials(group: Group, layout: Layout) -> tuple[Spatial, ...]:
    """Return the spatial dimensions of a group's convolution."""
    window, space = window_of(group.window), group.space
    x, weight = inputs(group.window)[:2]
    image, taps, result = space[(x, "x")], space[(weight, "w")], space[(group.window, 0)]
    sizes = next(p for p in layout.reads if p.use == "x").meta.shape
    return tuple(
        Spatial(
            d, layout.axis(result[2 + d]), layout.axis(image[2 + d]), layout.axis(taps[2 + d]), sizes[2 + d],
            window.taps[d], window.stride[d], window.padding[d], window.dilation[d], window.transposed,
        )
        for d in range(window.spatial)
    )  # fmt: skip


def pixels_of(d: Spatial) -> int:
    """Return the number of places along a dimension at which a convolution without border or strides has its windows.
    """
    return d.size - (d.taps - 1) * d.dilation


def by_matrices(group: Group) -> bool:
    """Return True for a convolution that has enough channels and filters for matrix instructions."""
    window = window_of(group.window)
    if window.op != "convolution":
        return False
    weight = meta_of(inputs(group.window)[1])
    assert weight is not None
    outer, inner, *_ = weight.shape
    outer //= window.groups
    channels, filters = (outer, inner) if window.transposed else (inner, outer)
    least = FEW_CHANNELS if weight.dtype == "float32" else LEAST_CHANNELS
    return bool(channels >= least and filters >= LEAST_FILTERS)


def in_pairs(group: Group, layout: Layout) -> bool:
    """Return True for a convolution whose results are pairs of neighbours: of the two phases of the last dimension."""
    turns, result = window_of(group.window).turns, group.space[(group.window, 0)]
    last, made = layout.axis(result[-1]), layout.writes[0]
    contiguous = bool(made.axes) and made.axes[-1] is last and made.strides[-1] == 1
    return bool(turns) and turns[-1][0] == 2 and contiguous and layout.axis(result[1]) is not None


def channels(group: Group, layout: Layout) -> Axis | None:
    """Return the axis of the channels over which the convolution sums."""
    window, weight = window_of(group.window), inputs(group.window)[1]
    dim = group.space[(weight, "w")][0 if window.transposed else 1]
    over = set(group.space.atoms(group.contracted))
    return layout.axis(tuple(a for a in dim if a in over))
