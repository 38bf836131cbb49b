"""Gradients of convolutions, as operators that have kernels.

    bias    the sum of the results' gradients over images and places
    image   a convolution, transposed if the forward one is not
    weight  one matrix product: gradients [filters, places] times the image moved by each tap [places, (taps, channels)]

For the weights, both tensors are copied once, with their channels first and their images last, and gradients with zeros
behind each row, so that a place has the same number in both. The image moved by a tap is then a run of the same memory
that begins elsewhere, and the product reads these runs, which overlap (`Partition`). With strides, each remainder of
places by the strides is an image of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import torch

from argus.graph.decompose_products import parts_of
from argus.graph.library import ImageGradient, WeightGradient
from argus.graph.two_steps import wide
from argus.graph.windows import each

aten = torch.ops.aten


def convolution_backward(
    gradient: Any, x: Any, weight: Any, sizes: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    further: Any, groups: int, wanted: Sequence[bool],
) -> Any:  # fmt: skip
    """Return the gradients of the image, the weights and the bias, each if it is wanted."""
    dims = weight.dim() - 2
    if not all(isinstance(size, int) for size in (*gradient.shape, *x.shape, *weight.shape)):
        return NotImplemented
    steps = tuple(each(v, dims) for v in (stride, padding, dilation))
    of_x = of_weight = of_bias = None
    leaves = [False, False]
    if gradient.device.type == "cuda":
        leaves = [bool(wanted[0]) and _leaves_image(gradient, x, weight, steps, transposed, groups),
                  bool(wanted[1]) and _is_left(gradient, x, weight, steps, transposed, groups)]  # fmt: skip
    if any(leaves) and [*leaves, False] == [bool(w) for w in wanted]:
        return NotImplemented
    if any(leaves):
        rest = (stride, padding, dilation, transposed, further, groups)
        of_x, of_weight, _ = aten.convolution_backward.default(gradient, x, weight, None, *rest, [*leaves, False])
    if wanted[0] and not leaves[0]:
        of_x = _of_image(gradient, x, weight, steps, transposed, groups)
    if wanted[1] and not leaves[1]:
        small, image = (x, gradient) if transposed else (gradient, x)
        of_weight = _of_weight(small, image, weight, steps, groups)
    if wanted[2]:
        of_bias = gradient.sum([0, *range(2, gradient.dim())])
    return of_x, of_weight, of_bias


def _of_image(gradient: Any, x: Any, weight: Any, steps: Sequence[list[int]], transposed: bool, groups: int) -> Any:
    stride, padding, dilation = steps
    further = [0] * len(stride)
    if not transposed:
        for d, (s, p, gap) in enumerate(zip(stride, padding, dilation, strict=True)):
            reached = (gradient.shape[2 + d] - 1) * s - 2 * p + gap * (weight.shape[2 + d] - 1) + 1
            further[d] = x.shape[2 + d] - reached
    made = aten.convolution.default(
        gradient, weight, None, stride, padding, dilation, not transposed, further, groups
    )  # fmt: skip
    for d in range(2, x.dim()):
        made = made if made.shape[d] == x.shape[d] else made.narrow(d, 0, x.shape[d])
    return made


# ---------------------------------------------------------------------------- weights


def _leaves_image(
    gradient: Any, x: Any, weight: Any, steps: Sequence[list[int]], transposed: bool, groups: int
) -> bool:
    """Return True if the library computes the gradient of the image faster: with strides, where a kernel computes
    phases with zeros among their taps."""
    stride, taps, bits = steps[0], weight.shape[2:], 8 * x.dtype.itemsize
    if transposed or groups > 1 or {*stride} == {1} or bits > 32:
        return False
    if bits == 32 and not torch.backends.cudnn.allow_tf32:
        return False
    return ImageGradient(
        read=gradient.numel() * x.dtype.itemsize,
        made=x.numel() * x.dtype.itemsize,
        bits=bits,
        products=gradient.numel() // gradient.shape[1] * weight.numel(),
        times=prod(-(-t // s) * s / t for t, s in zip(taps, stride, strict=True)),
        last=gradient.stride(1) == 1,
    ).is_left()


def _is_left(gradient: Any, x: Any, weight: Any, steps: Sequence[list[int]], transposed: bool, groups: int) -> bool:
    """Return True if the library computes the gradient of the weights faster."""
    small = x if transposed else gradient
    stride, padding, _ = steps
    bits = 8 * small.dtype.itemsize
    if bits > 32 or (bits == 32 and not torch.backends.cudnn.allow_tf32):
        return False
    one = groups == 1 and {*stride, *weight.shape[2:]} == {1} and not any(padding)
    last = all(t.stride(1) == 1 for t in (x, gradient))
    return WeightGradient(
        read=(x.numel() + gradient.numel()) * x.dtype.itemsize,
        bits=bits,
        products=small.numel() // small.shape[1] * weight.numel(),
        dims=weight.dim() - 2,
        depthwise=weight.shape[1] == 1 and groups > 1,
        last=last,
        copied=not one or not (last or (bits == 16 and small.shape[2:].numel() % 8 == 0)),
        parts=prod(stride),
    ).is_left()


@dataclass(frozen=True)
class _Line:
    """Places and taps along one dimension: `places` of the result, taps with a `stride`, a `dilation` and `padding`.

    `length`: places of an image of one remainder by the stride."""

    places: int
    taps: int
    stride: int
    padding: int
    dilation: int
    length: int

    def moved(self, remainder: int) -> dict[int, int]:
        """Return how far each tap of a remainder moves the image."""
        reached = {tap: tap * self.dilation for tap in range(self.taps)}
        return {tap: r // self.stride for tap, r in reached.items() if r % self.stride == remainder}


def _of_weight(small: Any, image: Any, weight: Any, steps: Sequence[list[int]], groups: int) -> Any:
    """Return the gradient of the weights. The tensor `small` has a place for each window, and `image` has the windows.
    """
    lines = [
        _Line(small.shape[2 + d], weight.shape[2 + d], s, p, gap,
              small.shape[2 + d] + gap * (weight.shape[2 + d] - 1) // s + (d == 0))
        for d, (s, p, gap) in enumerate(zip(*steps, strict=True))
    ]  # fmt: skip
    if groups == 1 and all(line.taps == line.stride == 1 and not line.padding for line in lines):
        return _of_one_tap(small, image).reshape(weight.shape)
    factor = _small_by_channels(small, lines).unflatten(0, (groups, -1))
    found: dict[tuple[int, ...], Any] = {}
    for remainders, moved in _images(image, lines):
        taps = [line.moved(r) for line, r in zip(lines, remainders, strict=True)]
        if all(taps):
            windows = _windows(moved.unflatten(0, (groups, -1)), lines, image.shape[0], taps, factor.shape[-1])
            found[remainders] = _product(factor, windows)
    made = _joined(found, lines, ())
    return made.permute(0, 1, made.dim() - 1, *range(2, made.dim() - 1)).flatten(0, 1).contiguous()


def _of_one_tap(small: Any, image: Any) -> Any:
    """Return the product of gradients and image, [filters, channels], over the images and their places. Neither is
    copied if its channels are last, or if its rows can be read for each image."""
    rows = small.shape[2:].numel() * small.dtype.itemsize
    if small.dtype != torch.float32 and small.is_contiguous() and image.is_contiguous() and rows % 16 == 0:
        a, b = (wide(x.flatten(2)) for x in (small, image))
        return torch.bmm(a, b.mT).sum(0).to(small.dtype)
    a, b = (x.transpose(0, 1).flatten(1).unsqueeze(0) for x in (small, image))
    return _product(a, b)


def _joined(found: dict[tuple[int, ...], Any], lines: Sequence[_Line], first: tuple[int, ...]) -> Any:
    """Return [groups, filters, taps of each dimension, channels] from parts for remainders that begin with `first`."""
    if len(first) == len(lines):
        return found[first]
    line, at = lines[len(first)], 2 + len(first)
    places = [(tap * line.dilation % line.stride, tap) for tap in range(line.taps)]
    parts = {r: _joined(found, lines, (*first, r)) for r in dict.fromkeys(r for r, _ in places)}
    if len(parts) == 1:
        return next(iter(parts.values()))
    return torch.cat([parts[r].narrow(at, list(line.moved(r)).index(tap), 1) for r, tap in places], at)


def _small_by_channels(small: Any, lines: Sequence[_Line]) -> Any:
    """Return [channels, places and images], with zeros at the places that only the image has."""
    pad = [e for line in reversed(lines[1:]) for e in (0, line.length - line.places)]
    moved = small.permute(1, *range(2, small.dim()), 0)
    padded = aten.constant_pad_nd.default(moved, [0, 0, *pad]) if any(pad) else moved
    return padded.contiguous().flatten(1)


def _images(image: Any, lines: Sequence[_Line]) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yield the image [channels, places and images] of each remainder of its places by the strides."""
    moved = image.permute(1, *range(2, image.dim()), 0)
    pad = [0, 0]
    for line, size in zip(reversed(lines), reversed(image.shape[2:]), strict=True):
        pad += [line.padding, line.length * line.stride - line.padding - size]
    padded = aten.constant_pad_nd.default(moved, pad) if any(pad) else moved
    for remainders in product(*(range(line.stride) for line in lines)):
        part = padded
        for d, (remainder, line) in enumerate(zip(remainders, lines, strict=True)):
            part = part if line.stride == 1 else part[(slice(None),) * (1 + d) + (slice(remainder, None, line.stride),)]
        yield remainders, part.contiguous().flatten(1)


def _windows(image: Any, lines: Sequence[_Line], images: int, taps: Sequence[dict[int, int]], terms: int) -> Any:
    """Return the image moved by each tap, [groups, channels, taps of each dimension, terms], as a view that overlaps in
    memory."""
    sizes = [max(taps[0].values()) + 1, *(line.length for line in lines[1:])]
    runs = image.unfold(-1, terms, images).narrow(2, 0, prod(sizes)).unflatten(2, sizes)
    for d, moved in enumerate(map(list, (t.values() for t in taps))):
        step = moved[1] - moved[0] if len(moved) > 1 else 1
        runs = runs[(slice(None),) * (2 + d) + (slice(moved[0], moved[-1] + 1, step),)]
    return runs


def _product(a: Any, windows: Any) -> Any:
    """Multiply [groups, filters, terms] by windows [groups, channels, taps, terms] over the terms. Return [groups,
    filters, taps, channels]."""
    taps = windows.shape[2:-1]
    if a.shape[1] == 1 or windows.shape[1] == 1:
        rows = wide(a).reshape(*a.shape[:2], *(1 for _ in taps), 1, a.shape[2])
        return (rows * wide(windows).movedim(1, -2).unsqueeze(1)).sum(-1).to(a.dtype)
    b = windows.movedim(1, -2).flatten(1, -2)
    parts = _parts(a.shape[1], a.shape[2], b.shape[1]) if a.dtype != torch.float32 else 1
    made: Any
    if a.shape[0] > 1:
        made = torch.bmm(a, b.mT)
    elif parts == 1:
        made = torch.mm(a.squeeze(0), b.squeeze(0).T).unsqueeze(0)
    else:
        left, right = (wide(x.squeeze(0)).unflatten(-1, (parts, -1)).transpose(0, 1) for x in (a, b))
        made = torch.bmm(left, right.mT).sum(0).to(a.dtype).unsqueeze(0)
    return made.unflatten(-1, (*taps, -1))


def _parts(rows: int, terms: int, columns: int) -> int:
    """Return the number of parts of the terms of a product of 16-bit floats: parts are added up in float32."""
    return parts_of(rows, columns, terms, 8)
