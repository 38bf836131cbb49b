"""The decomposition of convolutions: laid out, and rewritten, for kernels that read images by boxes.

any strides              →  channels last, filters by taps first
stride 1, transposed     →  the same with filters turned around
one image, or a border that the copy engine does not have
                         →  an image with its border
transposed with strides  →  a convolution without strides, whose filters are those of all phases, and their results
                            in turns
other strides, or few channels
                         →  taps along the last dimension joined with the channels, as windows that overlap
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

import torch

from argus.graph.columns import has_columns
from argus.graph.convolution_tiles import FEW_CHANNELS, LEAST_CHANNELS, LEAST_FILTERS, row_width
from argus.graph.phase_taps import PhaseTaps, in_phases
from argus.graph.precise import HIGH, LOW, split
from argus.graph.turns import in_turns, ordered
from argus.graph.windows import each

aten = torch.ops.aten

_VECTOR, _WORTH = 32, 160
"""Channels of a row of a tile; filters times taps from which on a copy by channels last costs less than it saves."""
_MOST_READ = 280
"""Products of a pixel's row of taps for each vector of channels that is read: with fewer, direct ones are faster."""
_MOST_ZEROS = 10
"""The largest ratio of products with zeros, of all phases and groups, to products of a transposed convolution."""


def convolution(x: Any, weight: Any, bias: Any, *rest: Any) -> Any:
    """Rewrite a convolution for the kernel that computes it best. The result is laid out as it was."""
    taps = weight.shape[2:]
    stride, padding, dilation, further = (each(rest[place], len(taps)) for place in (0, 1, 2, 4))
    transposed, groups = rest[3], rest[5]
    if not all(isinstance(size, int) for size in (*x.shape, *weight.shape)):
        return NotImplemented
    if not transposed and groups == 1 and _is_one_window(x, weight, stride, padding, dilation):
        return _of_one_window(x, weight, bias, dilation)
    if transposed and groups == 1 and bias is None and {*taps} == {1} and not any(padding) and {*stride} != {1}:
        return _spread(x, weight, stride, further)
    if transposed and {*stride} != {1}:
        for shared in (False, True):
            found = _by_phases(x, weight, bias, stride, padding, dilation, further, groups, shared)
            if found is not None:
                return found
    outer, inner = weight.shape[0] // groups, weight.shape[1]
    channels, filters = (outer, inner) if transposed else (inner, outer)
    if channels == filters == 1:
        return _depthwise(x, weight, bias, stride, padding, dilation, transposed, further, groups)
    if groups == 1 and _is_a_product(x, filters, taps, stride, padding, further):
        return _product(x, weight.flatten(1).T if transposed else weight.flatten(1), bias)
    if channels < LEAST_CHANNELS or filters < LEAST_FILTERS:
        return NotImplemented
    if groups == 1 and not transposed:
        if _overlaps(x):
            return NotImplemented
        if _reads_columns(x, weight, stride, padding, dilation):
            places = [*range(2, x.dim())]
            packed, last = _laid_out(weight, [*places, 0, 1]), _laid_out(x, [0, *places, 1])
            if packed is weight and last is x:
                return NotImplemented
            return _as_before(aten.convolution.default(last, packed, bias, *rest), x)
        if any(t == 1 and s > 1 for t, s in zip(taps, stride, strict=True)):
            return _without_idle_strides(x, weight, bias, stride, padding, dilation)
        if _joins(x, weight, stride, padding, dilation):
            return _as_before(_by_joined_taps(x, weight, bias, stride, padding, dilation), x)
    if groups == 1 and transposed and not any(further):
        borders = [d * (t - 1) - p for d, t, p in zip(dilation, taps, padding, strict=True)]
        if min(borders) >= 0 and _reads_columns(x, weight.transpose(0, 1), stride, borders, dilation):
            flipped = weight.flip([*range(2, x.dim())]).transpose(0, 1)
            return aten.convolution.default(x, flipped, bias, stride, borders, dilation, False, further, 1)
    if groups == 1 and {*stride} == {1} and _boxes(x, channels) and filters * prod(taps) >= _WORTH:
        return _moved(x, weight, bias, padding, dilation, transposed, further)
    return _packed(x, weight, bias, channels, filters, stride, padding, dilation, transposed, further, groups)


def _is_one_window(x: Any, weight: Any, stride: Any, padding: Any, dilation: Any) -> bool:
    """Return True if the result has one pixel, whose window lies in the image, and if a product of matrices may be
    computed as a convolution is."""
    flags = torch.backends
    if x.dtype == torch.float32 and flags.cuda.matmul.allow_tf32 and not flags.cudnn.allow_tf32:
        return False
    if {*padding} != {0} or prod(weight.shape[1:]) < FEW_CHANNELS:
        return False
    reach = [d * (t - 1) + 1 for d, t in zip(dilation, weight.shape[2:], strict=True)]
    return all(r <= n < r + s for n, r, s in zip(x.shape[2:], reach, stride, strict=True))


def _of_one_window(x: Any, weight: Any, bias: Any, dilation: Any) -> Any:
    """Return a convolution with one pixel as a product of matrices, of an image's window by the filters."""
    for d, (taps, step) in enumerate(zip(weight.shape[2:], dilation, strict=True), 2):
        x = x.narrow(d, 0, step * (taps - 1) + 1)[(slice(None),) * d + (slice(None, None, step),)]
    rows, filters = x.flatten(1), weight.flatten(1).t()
    made = rows.mm(filters) if bias is None else torch.addmm(bias, rows, filters)
    return made.reshape(*made.shape, *(1 for _ in weight.shape[2:]))


def _spread(x: Any, weight: Any, stride: Any, further: Any) -> Any:
    """Return a transposed convolution with one tap: products, which lie a stride apart, and zeros between them."""
    dims = range(2, x.dim())
    ones, none = [1] * len(dims), [0] * len(dims)
    made = aten.convolution.default(x, weight.transpose(0, 1), None, ones, none, ones, False, none, 1)
    last = made.stride(1) == 1
    if last:  # in the order in which it lies in memory
        made = made.movedim(1, -1)
    first = 1 if last else 2
    for d in reversed(range(first, first + len(dims))):
        made = made.unsqueeze(d + 1)
    pad = [0, 0] if last else []
    for step in reversed(stride):
        pad += [0, step - 1, 0, 0]
    made = aten.constant_pad_nd.default(made, pad)
    for d, step, more in zip(range(first, first + len(dims)), stride, further, strict=True):
        made = made.flatten(d, d + 1)
        made = made.narrow(d, 0, made.shape[d] - step + 1 + more)
    return made.movedim(-1, 1) if last else made


def _depthwise(
    x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, further: Any,
    groups: int,
) -> Any:  # fmt: skip
    """Lay out the filters of a depthwise convolution like the channels of its image. A transposed one without strides
    becomes an ordinary one, with its filters flipped."""
    places = [*range(2, x.dim())]
    borders = [d * (t - 1) - p for d, t, p in zip(dilation, weight.shape[2:], padding, strict=True)]
    if transposed and {*stride} == {1} and not any(further) and min(borders) >= 0:
        return aten.convolution.default(x, weight.flip(places), bias, stride, borders, dilation, False, further, groups)
    packed = _laid_out(weight, [*places, 0, 1]) if x.stride(1) == 1 and not transposed else weight
    if packed is weight:
        return NotImplemented
    return aten.convolution.default(x, packed, bias, stride, padding, dilation, False, further, groups)


def _is_a_product(x: Any, filters: int, taps: Any, stride: Any, padding: Any, further: Any) -> bool:
    """Return True for a convolution with one tap that is a product, for each image or for all pixels, whose rows the
    copy engine can read."""
    places = prod(x.shape[2:])
    one = {*taps, *stride} == {1} and not any(padding) and not any(further)
    if not one or x.dtype.itemsize != 2 or places == 1:
        return False
    units = (places,) if x.is_contiguous() else (x.shape[1], filters)
    return (x.is_contiguous() or x.movedim(1, -1).is_contiguous()) and not any(u * x.dtype.itemsize % 16 for u in units)


def _product(x: Any, matrix: Any, bias: Any) -> Any:
    """Return a convolution with one tap as a product: for each image, or for all pixels if channels are last."""
    if x.is_contiguous():
        made = torch.bmm(matrix.expand(x.shape[0], *matrix.shape), x.flatten(2))
        return (made if bias is None else made + bias[:, None]).unflatten(2, x.shape[2:])
    pixels, filters = x.movedim(1, -1), matrix.T
    rows = pixels.flatten(0, -2)
    made = rows.mm(filters) if bias is None else torch.addmm(bias, rows, filters)
    return made.unflatten(0, pixels.shape[:-1]).movedim(-1, 1)


def _packed(x: Any, weight: Any, bias: Any, channels: int, filters: int, *rest: Any) -> Any:
    """Lay out a convolution for matrix instructions.

    Filters are stored with the taps first, so that channels are contiguous, or the filters if channels are few. Images
    are stored with the channels last, if the products are worth the copy."""
    stride, transposed, groups = rest[0], rest[3], rest[5]
    places = [*range(2, weight.dim())]
    packed, last = weight, x
    few = x.dtype == torch.float32 and channels < FEW_CHANNELS and not transposed
    order = [*places, 1, 0] if (transposed or few) and groups == 1 else [*places, 0, 1]
    if prod(weight.shape[2:]) > 1:
        packed = _laid_out(weight, order)
    work = filters * prod(weight.shape[2:]) / (1 if transposed else prod(stride))
    if channels % _VECTOR == 0 and work >= _WORTH:
        last = _laid_out(x, [0, *places, 1])
    if packed is weight and last is x:
        return NotImplemented
    return _as_before(aten.convolution.default(last, packed, bias, *rest), x)


def _reads_columns(x: Any, weight: Any, stride: Any, padding: Any, dilation: Any) -> bool:
    """Return True if the copy engine is to read the pixels in the order of windows that have strides or a border."""
    taps, wide = weight.shape[2:], x.dtype == torch.float32
    if x.shape[0] == 1 or not _boxes(x, x.shape[1]) or (wide and not torch.backends.cudnn.allow_tf32):
        return False
    if {*stride} == {1} and not any(padding):
        return False
    worth = x.stride(1) == 1 or weight.shape[0] * prod(taps) / prod(stride) >= _WORTH
    return bool(worth and has_columns(x.shape[2:], taps, stride, padding, dilation))


def _boxes(x: Any, channels: int) -> bool:
    """Return True if a pixel has at least `_VECTOR` channels, which fill whole vectors of 16 bytes."""
    return channels >= _VECTOR and int(channels * x.dtype.itemsize) % 16 == 0


# ---------------------------------------------------------------------------- without strides


def _moved(x: Any, weight: Any, bias: Any, padding: Any, dilation: Any, transposed: bool, further: Any) -> Any:
    """Return a convolution with stride 1 as one without padding: the image is copied with its border. A transposed
    convolution becomes an ordinary one, with its filters flipped."""
    places = [*range(2, weight.dim())]
    borders = [(p, p) for p in padding]
    if transposed:
        weight = weight.flip(places).transpose(0, 1)
        reach = [d * (t - 1) for d, t in zip(dilation, weight.shape[2:], strict=True)]
        borders = [(r - p, r - p + more) for r, p, more in zip(reach, padding, further, strict=True)]
    image = _bordered(x, borders)
    none, ones = [0] * len(places), [1] * len(places)
    packed = _laid_out(weight, [*places, 0, 1])
    laid = _laid_out(image, [0, *places, 1])
    if packed is weight and laid is x and not transposed:
        return NotImplemented
    return _as_before(aten.convolution.default(laid, packed, bias, ones, none, dilation, False, none, 1), x)


def _bordered(x: Any, borders: Sequence[tuple[int, int]], channels: int = 0) -> Any:
    """Return the image with a border of zeros along each spatial dimension, and with further channels of zeros."""
    pad = [e for border in reversed(borders) for e in border] + ([0, channels] if channels else [])
    return aten.constant_pad_nd.default(x, pad) if any(pad) else x


def _laid_out(x: Any, order: Sequence[int]) -> Any:
    """Return the tensor with its dimensions in memory in this order."""
    moved = x.permute(list(order))
    if moved.is_contiguous():
        return x
    return moved.contiguous().permute([order.index(d) for d in range(x.dim())])


def _as_before(made: Any, x: Any) -> Any:
    """Return a convolution's result, contiguous or with channels last, as its image was. The convolution's own kernel
    stores it that way."""
    if x.is_contiguous():
        return made.contiguous()
    return _laid_out(made, [0, *range(2, x.dim()), 1]) if x.stride(1) == 1 and x.shape[1] > 1 else made


# ---------------------------------------------------------------------------- with strides, or few channels


def _overlaps(x: Any) -> bool:
    """Return True for windows with the channels last, which lie in memory as their kernel reads them."""
    return bool(x.stride(1) == 1 and x.stride(-1) < x.shape[1] and x.shape[-1] > 1)


def _without_idle_strides(x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    """Return a convolution without strides along dimensions with one tap: of those, only what is read remains."""
    steps, rest = list(stride), list(padding)
    for d, taps in enumerate(weight.shape[2:]):
        if taps == 1 and steps[d] > 1:
            borders = [(p, p) if e == d else (0, 0) for e, p in enumerate(padding)]
            x = _bordered(x, borders)[(slice(None),) * (d + 2) + (slice(None, None, steps[d]),)]
            steps[d], rest[d] = 1, 0
    return aten.convolution.default(x, weight, bias, steps, rest, dilation, False, [0] * len(steps), 1)


def _joins(x: Any, weight: Any, stride: Any, padding: Any, dilation: Any) -> bool:
    """Return True if taps along the last dimension are to be joined with the channels: where there is a stride, or
    where channels alone are no row of a tile."""
    taps, wide = weight.shape[2:], x.dtype == torch.float32
    made = (x.shape[-1] + 2 * padding[-1] - dilation[-1] * (taps[-1] - 1) - 1) // stride[-1] + 1
    if taps[-1] == 1 or dilation[-1] != 1 or not row_width(made):
        return False
    if (wide and not torch.backends.cudnn.allow_tf32) or x.shape[1] < LEAST_CHANNELS:
        return False
    if _is_split(x) and weight.shape[0] * x.shape[1] * taps[-1] < _MOST_READ * -(-3 * x.shape[1] * taps[-1] // _VECTOR):
        return False
    if {*stride} == {1} and _boxes(x, x.shape[1]):
        return False
    return bool(weight.shape[0] * prod(taps) / prod(stride) >= _WORTH)


def _is_split(x: Any) -> bool:
    """Return True for an image of float32 with too few channels for TF32, whose parts are multiplied."""
    return bool(x.dtype == torch.float32 and x.shape[1] < FEW_CHANNELS)


def _by_joined_taps(x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    """Return a convolution as one whose channels are the channels of all taps along the last dimension.

    Windows along it are a view of the image with its border, and overlap in memory. Channels are filled up to whole
    vectors. Few channels of float32 are split into parts that TF32 multiplies exactly."""
    places = [*range(2, x.dim())]
    missing = -x.shape[1] % (16 // x.dtype.itemsize)
    image = _bordered(x, [(p, p) for p in padding], missing)
    filters = _bordered(weight, [(0, 0)] * len(places), missing)
    if _is_split(x):
        image, filters = split(image, (HIGH, LOW, HIGH)), split(filters, (HIGH, HIGH, LOW))
    image = _laid_out(image, [0, *places, 1])
    windows = image.unfold(-1, weight.shape[-1], stride[-1]).movedim(-1, 1).flatten(1, 2)
    joined = filters.movedim(-1, 1).flatten(1, 2).unsqueeze(-1)
    packed = _laid_out(joined, [*places, 0, 1])
    steps, gaps, none = [*stride[:-1], 1], [*dilation[:-1], 1], [0] * len(places)
    return aten.convolution.default(windows, packed, bias, steps, none, gaps, False, none, 1)


# ---------------------------------------------------------------------------- transposed with strides


def _by_phases(
    x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, further: Any, groups: int, shared: bool
) -> Any:
    """Return a transposed convolution by a convolution without strides, whose filters are those of all phases.

    A phase is a remainder `a` of a place of the result by the stride. Place p * stride + a adds up the products of
    x[p + e] and tap r, where a + padding == e * stride + r * dilation. All phases have the same number of taps `e`;
    what one lacks are zeros. Phases begin so many places before the result that these taps are few. Filters of groups
    are zero for the channels of other groups, if there are enough channels for boxes. `shared`: where stride and
    dilation have a common factor, phases that no tap meets are left out, and put in as zeros later. None if most
    products would be with zeros."""
    if groups > 1 and (groups > _MOST_ZEROS or not _boxes(x, x.shape[1])):
        return None
    filters, dims = (weight if groups == 1 else _for_all_channels(weight, groups)).transpose(0, 1), x.dim() - 2
    ones, borders, turns, taps = [1] * dims, [], [], list[PhaseTaps]()
    for d in range(dims):
        common = gcd(stride[d], dilation[d]) if shared else 1
        reach = dilation[d] * (weight.shape[2 + d] - 1)
        size = (x.shape[2 + d] - 1) * stride[d] - 2 * padding[d] + reach + further[d] + 1
        first = -padding[d] % common  # places of other remainders by `common` meet no tap
        step, border = stride[d] // common, (first + padding[d]) // common
        reach //= common
        begin = min(range(step), key=lambda b: (_reached(reach, step, border - b)[1], b))
        low, count = _reached(reach, step, border - begin)
        made = -(-(-(-size // common) + begin) // step)
        taps.append(PhaseTaps(step, dilation[d] // common, border - begin, low, count))
        borders.append((-low, made - x.shape[2 + d] + low + count - 1))
        turns.append(_Turns(step, begin, common, first, size))
    phases = prod(turn.step for turn in turns)
    zeros = prod(t.count for t in taps) * phases * groups > _MOST_ZEROS * prod(weight.shape[2:])
    if zeros or filters.shape[0] * phases < LEAST_FILTERS:
        return None
    together, none = in_phases(filters, taps), [0] * dims
    made = aten.convolution.default(_bordered(x, borders), together, None, ones, none, ones, False, none, 1)
    apart = made.unflatten(1, (*(turns[d].step for d in ordered(dims)), -1))
    result = in_turns(apart, *([getattr(t, key) for t in turns] for key in ("begin", "common", "first", "size")))
    return result if bias is None else result + bias.reshape(-1, *ones)


def _for_all_channels(weight: Any, groups: int) -> Any:
    """Return the filters of groups as filters of all channels, with zeros for the channels of other groups.

    Rows of `groups` blocks that are each one place longer than a row are the diagonal of a matrix."""
    channels, filters = weight.shape[0] // groups, weight.shape[1]
    block = channels * filters * prod(weight.shape[2:])
    rows = torch.nn.functional.pad(weight.reshape(groups, block), [0, groups * block])
    found = rows.flatten()[: groups * groups * block].reshape(groups, groups, channels, *weight.shape[1:])
    return found.transpose(1, 2).reshape(groups * channels, groups * filters, *weight.shape[2:])


@dataclass(frozen=True)
class _Turns:
    """The order in which phases of a dimension become places of the result (`in_turns`): `step` phases in turns,
    without the first `begin` places. Each is one of `common` places, number `first` of them; the others are 0. `size`:
    of the result."""

    step: int
    begin: int
    common: int
    first: int
    size: int


def _reached(reach: int, step: int, border: int) -> tuple[int, int]:
    """Return the least `e`, and how many there are, for taps whose last one is `reach` places from the first."""
    high, low = (step - 1 + border) // step, -((reach - border) // step)
    return low, high - low + 1
