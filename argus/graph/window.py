"""Windows as the partition and the generator see them: sizes and steps of a convolution or of pooling.

The atoms of a convolution are images n; groups g; channels c and f of a group; places of the image and of the result;
and taps of the filters. Atoms of taps are not joined with other dimensions.

    x [n, (g, c), h, w]    weight [(g, f), c, r, s]    result [n, (g, f), p, q]
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from argus.graph import capture
from argus.graph.capture import Value, inputs, meta_of
from argus.graph.operators import name_of
from argus.graph.space import Dim, Dims, Mismatch, Space
from argus.graph.turned import NAME as TURNED
from argus.graph.windows import each

if TYPE_CHECKING:
    from torch.fx import Node


@dataclass(frozen=True)
class Window:
    """A window operator. `op` is "convolution", "max" or "average". The tuples have an entry for each spatial
    dimension. `divisor` is the divisor of an average; None means the number of places inside the image, including its
    border if `padded`. `depthwise`: each channel has one filter for itself. `turns`: the phases of each dimension that
    are stored in turns, and the number of places before the first one that is stored."""

    op: str
    taps: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool = False
    groups: int = 1
    divisor: int | None = None
    padded: bool = True
    depthwise: bool = False
    turns: tuple[tuple[int, int], ...] = ()

    @property
    def spatial(self) -> int:
        return len(self.taps)


def window_of(node: Node) -> Window:
    """Return the window of an operator. Raises Mismatch if no kernel can be generated for it."""
    name, arguments = name_of(node.target), capture.given(node)
    if name == "convolution.default":
        weight = meta_of(inputs(node)[1])
        assert weight is not None
        taps = tuple(weight.shape[2:])
        stride, padding, dilation = (tuple(each(v, len(taps))) for v in arguments[3:6])
        transposed, groups = bool(arguments[6]), arguments[8]
        depthwise = not transposed and groups > 1 and weight.shape[:2] == (groups, 1)
        return Window(
            "convolution", taps, stride, padding, dilation, transposed, groups, depthwise=depthwise
        )  # fmt: skip
    if name == TURNED:
        weight = meta_of(inputs(node)[1])
        assert weight is not None
        taps, steps, begin = tuple(weight.shape[2:]), arguments[2], arguments[3]
        ones = (1,) * len(taps)
        return Window(
            "convolution", taps, ones, (0,) * len(taps), ones, turns=tuple(zip(steps, begin, strict=True))
        )  # fmt: skip
    if name.startswith("_adaptive"):
        return _adaptive(node)
    spatial = int(name[8])
    taps = tuple(each(arguments[1], spatial))
    given = (*arguments[2:], *(None,) * 5)
    stride = tuple(each(given[0] or taps, spatial))
    padding = tuple(each(given[1] or [0], spatial))
    if name.startswith("max"):
        return Window("max", taps, stride, padding, tuple(each(given[2] or [1], spatial)))
    padded = True if given[3] is None else bool(given[3])
    return Window("average", taps, stride, padding, (1,) * spatial, divisor=given[4], padded=padded)


def _adaptive(node: Node) -> Window:
    """Return pooling to a given size, if all windows have the same size."""
    read, made = meta_of(inputs(node)[0]), capture.results(node)[0]
    assert read is not None and made is not None
    sizes = tuple(zip(read.shape[-2:], made.shape[-2:], strict=True))
    if any(a % b for a, b in sizes):
        raise Mismatch("windows of different sizes")
    taps = tuple(a // b for a, b in sizes)
    return Window("average", taps, taps, (0, 0), (1, 1))


def most_filter_axes(node: Node) -> int:
    """The most axes along which a convolution's kernel takes its filters, groups included; 0 for windows whose kernels
    take channels along any number of axes."""
    window = window_of(node)
    return 0 if window.op != "convolution" or window.depthwise else 1 if window.groups == 1 else 2


@dataclass(frozen=True)
class Placed:
    """A window in a space: the dimensions of the values that it reads and computes, and the role of each of its atoms.
    """

    reads: tuple[tuple[Value, str, Dims], ...]
    result: Dims
    contracted: Dim
    places: Dim
    fixed: Dim


def placed(space: Space, node: Node) -> Placed:
    """Make new atoms for a window operator. Raises Mismatch for sizes that are known only at run time."""
    window = window_of(node)
    values, made = inputs(node), capture.results(node)[0]
    metas = [meta_of(v) for v in values[: 2 if window.op == "convolution" else 1]]
    sizes = [e for m in (*metas, made) if m is not None for e in m.shape[-window.spatial - 1 :]]
    if not all(isinstance(e, int) for e in sizes):
        raise Mismatch("a window over sizes that are known only when it runs")
    if len(node.args) and any(user.args[1:] == (1,) for user in node.users if len(capture.results(node)) > 1):
        raise Mismatch("the places of maxima")
    assert metas[0] is not None and made is not None
    here = space.fresh(metas[0].shape[-window.spatial :])
    there = space.fresh(made.shape[-window.spatial :])
    atoms = tuple(a for dim in (*here, *there) for a in dim)
    if window.op != "convolution":
        lead = space.fresh(metas[0].shape[: -window.spatial])
        places = tuple(a for dim in here for a in dim)
        return Placed(((values[0], "x", (*lead, *here)),), (*lead, *there), places, places, atoms)
    if window.turns:
        return _turned(space, window, values, here, there, atoms)
    return _convolution(space, window, values, here, there, atoms)


def _turned(space: Space, window: Window, values: tuple[Value, ...], here: Dims, there: Dims, atoms: Dim) -> Placed:
    """Return a convolution whose phases are stored in turns: filters with their phases are read at computed places."""
    x, weight = meta_of(values[0]), meta_of(values[1])
    assert x is not None and weight is not None
    rows, phases = weight.shape[0], prod(step for step, _ in window.turns)
    n, c, f, filters, *taps = space.fresh((*x.shape[:2], rows // phases, rows, *window.taps))
    places = tuple(a for dim in (*here, filters) for a in dim)
    summed = (*c, *(a for dim in taps for a in dim))
    return Placed(
        ((values[0], "x", (n, c, *here)), (values[1], "w", (filters, c, *taps))),
        (n, f, *there),
        (*summed, *places),
        places,
        (*atoms, *summed, *f, *filters),
    )


def _convolution(
    space: Space, window: Window, values: tuple[Value, ...], here: Dims, there: Dims, atoms: Dim
) -> Placed:
    x, weight = meta_of(values[0]), meta_of(values[1])
    assert x is not None and weight is not None
    if values[0] == values[1]:
        raise Mismatch("a convolution of a tensor with itself")
    inner, outer = weight.shape[1], weight.shape[0] // window.groups
    channels, filters = (outer, inner) if window.transposed else (inner, outer)
    n, g, c, f, *taps = space.fresh((x.shape[0], window.groups, channels, filters, *window.taps))
    first, second = ((*g, *c), f) if window.transposed else ((*g, *f), c)
    summed = (*c, *(a for dim in taps for a in dim))
    places = tuple(a for dim in here for a in dim)
    return Placed(
        ((values[0], "x", (n, (*g, *c), *here)), (values[1], "w", (first, second, *taps))),
        (n, (*g, *f), *there),
        (*summed, *places),
        places,
        (*atoms, *summed, *f),
    )
