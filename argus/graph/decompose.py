"""The decomposition of a graph before it is partitioned.

The result consists of PyTorch's core operators. A norm becomes several operators. A reduction that a single kernel
would compute slowly becomes two:

    sum over [N, H, W] of [N, C, H, W]    →  sum over [H, W], then over N, if there are few channels
    softmax of long rows                  →  maximum and sum of each part of a row, then of the parts

The operators are then sums, means and variances of the table, which can form groups with operators before and after
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod
from typing import Any

import torch

from argus.graph import adding
from argus.graph.convolved import convolution
from argus.graph.decompose_products import added_product, batched_product, product
from argus.graph.encoder import encoder_layer
from argus.graph.gradients import convolution_backward
from argus.graph.tiles import MOST_HELD, MOST_ROWS
from argus.graph.two_steps import LEAST_PART, dims_of, in_programs, in_rows, kept, wide

aten = torch.ops.aten

PARTS = (
    aten.native_group_norm_backward,
    aten._native_batch_norm_legit,
    aten._native_batch_norm_legit_functional,
    aten._batch_norm_with_update_functional,
    aten.native_batch_norm,
    aten.native_batch_norm_backward,
    aten.native_layer_norm_backward,
)

WHOLE = (
    aten.tril.default,
    aten.triu.default,
    aten.gelu_backward.default,
    aten.silu_backward.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten.embedding_dense_backward.default,
)
"""Operators of PyTorch's decompositions that stay whole. Triangles have rows of their own: parts would compute with
integers. Gradients of activations have rows, too. The parts of a CPU's attention give another second result than its
gradient reads, and other strides."""

def decompositions() -> dict[Any, Callable[..., Any]]:
    """Return the decompositions by operator. A decomposition may return NotImplemented, which leaves the operator
    unchanged."""
    from torch._decomp import core_aten_decompositions, get_decompositions

    found: dict[Any, Callable[..., Any]] = dict(core_aten_decompositions())
    for op in WHOLE:
        found.pop(op, None)
    found |= get_decompositions(PARTS)
    return found | OWN


def _sum(x: Any, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    over = dims_of(x, dims)
    found = in_programs(x, over) if x.is_floating_point() else None
    if found is None:
        return NotImplemented
    view, first, rest = found
    total = wide(view).sum(first).sum(rest)
    return total.reshape(kept(x, over, keepdim)).to(dtype or x.dtype)


def _mean(x: Any, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    over = dims_of(x, dims)
    if over and all(x.shape[d] == 1 for d in over) and x.is_floating_point():
        return x.reshape(kept(x, over, keepdim)).clone().to(dtype or x.dtype)
    found = in_programs(x, over)
    if found is None:
        return NotImplemented
    view, first, rest = found
    total = wide(view).sum(first).sum(rest) / prod(x.shape[d] for d in over)
    return total.reshape(kept(x, over, keepdim)).to(dtype or x.dtype)


def _extreme(name: str) -> Callable[..., Any]:
    def decomposed(x: Any, dims: Any = None, keepdim: bool = False) -> Any:
        over = dims_of(x, dims)
        found = in_programs(x, over) if x.is_floating_point() else None
        if found is None:
            return NotImplemented
        view, first, rest = found
        op = getattr(torch, name)
        return op(op(view, first), rest).reshape(kept(x, over, keepdim))

    return decomposed


def _variance_and_mean(x: Any, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """Compute a variance from parts of equal length: the mean of their variances plus the variance of their means."""
    over = dims_of(x, dims)
    found = in_rows(x, over) or in_programs(x, over)
    if found is None:
        return NotImplemented
    view, first, rest = found
    variances, means = torch.var_mean(wide(view), first, correction=0)
    count = prod(x.shape[d] for d in over)
    mean = means.mean(rest, keepdim=True)
    spread = variances + (means - mean) * (means - mean)
    left = count - (1 if correction is None else correction)
    factor = 1.0 / left if left > 0 else inf
    variance = spread.sum(rest) * (count / prod(means.shape[d] for d in rest) * factor)
    shape = kept(x, over, keepdim)
    return variance.reshape(shape).to(x.dtype), mean.reshape(shape).to(x.dtype)


def _variance(x: Any, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    found = _variance_and_mean(x, dims, correction=correction, keepdim=keepdim)
    return found if found is NotImplemented else found[0]


def _norm(x: Any, order: float = 2, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    over = dims_of(x, dims)
    if in_programs(x, over) is None or order not in (1, 2):
        return NotImplemented
    values = wide(x)
    total = (values * values).sum(over, keepdim=keepdim) if order == 2 else values.abs().sum(over, keepdim=keepdim)
    return (total.sqrt() if order == 2 else total).to(dtype or x.dtype)


def _layer_norm(x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    over = list(range(x.dim() - len(shape), x.dim()))
    if in_rows(x, over) is None:
        return NotImplemented
    values = wide(x)
    variance, mean = torch.var_mean(values, over, correction=0, keepdim=True)
    inverse = torch.rsqrt(variance + eps)
    value = (values - mean) * inverse
    value = value if weight is None else value * weight
    value = value if bias is None else value + bias
    return value.to(x.dtype), mean, inverse


def _softmax(logarithm: bool) -> Callable[..., Any]:
    """Compute the softmax of a long row from the maximum and the sum of exponentials of parts, and then of the row."""

    def decomposed(x: Any, dim: int, half_to_float: bool) -> Any:
        over = dims_of(x, dim)
        found = in_rows(x, over)
        if found is None:
            return NotImplemented
        view, first, rest = found
        view = wide(view)
        top = view.amax(first, keepdim=True)
        level = torch.where(top == -inf, 0.0, top)  # A part in which everything is masked contributes nothing.
        total = (view - level).exp().sum(first)
        tops = top.reshape(total.shape)
        highest = tops.amax(rest, keepdim=True)
        sums = (total * (tops - highest).exp()).sum(rest, keepdim=True)
        shape = kept(x, over, True)
        centred = wide(x) - highest.reshape(shape)
        value = centred - sums.log().reshape(shape) if logarithm else centred.exp() / sums.reshape(shape)
        return value.to(torch.float32 if half_to_float else x.dtype)

    return decomposed


# ---------------------------------------------------------------------------- norms


def _group_norm(
    x: Any, weight: Any, bias: Any, images: int, channels: int, inner: int, groups: int, eps: float
) -> tuple[Any, Any, Any]:
    """Compute a group norm from the mean and the variance of each group, in float32."""
    shape = (images, groups, channels // groups, inner)
    parts = wide(x).reshape(shape)
    variance, mean = torch.var_mean(parts, [2, 3], correction=0, keepdim=True)
    inverse = torch.rsqrt(variance + eps)
    value = (parts - mean) * inverse
    for parameter, op in ((weight, torch.mul), (bias, torch.add)):
        if parameter is not None:
            value = op(value, parameter.reshape(1, groups, channels // groups, 1))
    made = value.reshape(x.shape).to(x.dtype)
    return made, *(v.reshape(images, groups).to(x.dtype) for v in (mean, inverse))


LARGE = 2**22
"""Elements of an image beside which a launch costs little."""


def _batch_norm_with_statistics(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> tuple[Any, Any, Any]:
    """Decompose a batch norm whose statistics are given into a factor and a summand for each channel.

    For a small image they have its shape, so that they become part of the kernel before or after them, which computes
    them once for each channel of a tile. Beside a large one, the launch of a kernel of their own costs little, and the
    other kernel keeps its registers."""

    def along(parameter: Any) -> Any:
        return parameter.reshape(1, -1, *(1,) * (x.dim() - 2))

    size = x.numel()
    variance = along(variance)
    variance = variance.expand(x.shape) if isinstance(size, int) and size < LARGE else variance
    factor = torch.rsqrt(variance + eps)
    factor = factor if weight is None else factor * along(weight)
    moved = along(mean) * factor
    made = wide(x) * factor + (-moved if bias is None else along(bias) - moved)
    return made.to(x.dtype), x.new_empty((0,)), x.new_empty((0,))


def _extremum(value: Any, place: Any) -> Callable[..., Any]:
    """Decompose `max` or `min` into the extremum and its index, because a graph often needs only one of them."""

    def decomposed(x: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
        return value(x, [dim], keepdim), place(x, dim, keepdim)

    return decomposed


def _place(place: Any) -> Callable[..., Any]:
    """Decompose the index of an extremum of many elements into indices within parts, and the part of the extremum.

    A kernel finds the extremum and then its index. Parts are short enough to stay in registers meanwhile.
    """

    def decomposed(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is None or not x.dim() or not x.is_floating_point() or not all(isinstance(n, int) for n in x.shape):
            return NotImplemented
        d = dim % x.dim()
        size, most = x.shape[d], MOST_HELD if d == x.dim() - 1 else MOST_ROWS
        length = next((n for n in range(most, LEAST_PART - 1, -1) if size % n == 0), size)
        if length == size or size <= 2 * most:
            return NotImplemented
        parts = x.reshape(*x.shape[:d], size // length, length, *x.shape[d + 1 :])
        inner = place(parts, d + 1, True)
        part = place(torch.gather(parts, d + 1, inner), d, True)
        found = torch.gather(inner, d, part) + part * length
        return found.reshape(kept(x, [d], keepdim))

    return decomposed


def _any(x: Any, dims: Any = None, keepdim: bool = False) -> Any:
    """Compute if any truth value is true, as the maximum of ones and zeros."""
    if x.dtype != torch.bool or not x.dim():
        return NotImplemented
    return torch.where(x, 1.0, 0.0).amax(dims_of(x, dims), keepdim) > 0.5


def _embedding_gradient(gradient: Any, places: Any, rows: int, padding: int, by_frequency: bool) -> Any:
    """Add up rows in float32, as PyTorch does. A row that pads gets nothing."""
    if by_frequency or (padding < 0 and gradient.dtype == torch.float32):
        return NotImplemented
    made = wide(gradient)
    if padding >= 0:
        made = torch.where((places != padding).unsqueeze(-1), made, 0.0)
    return aten.embedding_dense_backward.default(made, places, rows, -1, False).to(gradient.dtype)


def _restrided(x: Any, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Any:
    """Return the tensor itself if only dimensions of one element get another stride, or a tensor of another shape with
    the same elements in the same order."""
    if _is_whole(x, size, stride, offset):
        return x.reshape(size)
    same = tuple(size) == tuple(x.shape) and offset in (None, 0) and x.storage_offset() == 0
    if not same or any(a != b for a, b, n in zip(stride, x.stride(), size, strict=True) if n > 1):
        return NotImplemented
    return aten.alias.default(x)


def _restrided_scatter(
    x: Any, source: Any, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Any:
    """Return the source in the shape of the tensor, if it has all of its elements in their order."""
    if not _is_whole(x, size, stride, offset):
        return NotImplemented
    return source.reshape(x.shape).clone(memory_format=torch.contiguous_format)


def _is_whole(x: Any, size: Sequence[int], stride: Sequence[int], offset: int | None) -> bool:
    """Return True if a part of a tensor's memory is the whole tensor, whose elements lie in their order."""
    if not x.is_contiguous() or offset not in (None, 0) or x.storage_offset() or prod(size) != x.numel():
        return False
    return all(n == 1 or step == prod(size[d + 1 :]) for d, (n, step) in enumerate(zip(size, stride, strict=True)))


OWN: dict[Any, Callable[..., Any]] = {
    aten.sum.default: _sum,
    aten.sum.dim_IntList: _sum,
    aten.mean.default: _mean,
    aten.mean.dim: _mean,
    aten.amax.default: _extreme("amax"),
    aten.amin.default: _extreme("amin"),
    aten.max.default: _extreme("amax"),
    aten.min.default: _extreme("amin"),
    aten.var.correction: _variance,
    aten.var_mean.correction: _variance_and_mean,
    aten.linalg_vector_norm.default: _norm,
    aten.native_layer_norm.default: _layer_norm,
    aten._softmax.default: _softmax(False),
    aten._log_softmax.default: _softmax(True),
    aten.native_group_norm.default: _group_norm,
    aten._native_batch_norm_legit_no_training.default: _batch_norm_with_statistics,
    aten.mm.default: product,
    aten.bmm.default: batched_product,
    aten.addmm.default: added_product,
    aten.convolution.default: convolution,
    aten.convolution_backward.default: convolution_backward,
    aten._transformer_encoder_layer_fwd.default: encoder_layer,
    aten.as_strided.default: _restrided,
    aten.as_strided_scatter.default: _restrided_scatter,
    aten.embedding_dense_backward.default: _embedding_gradient,
    aten.index_put.default: adding.index_put,
    aten.scatter_add.default: adding.scatter_add,
    aten.any.default: _any,
    aten.any.dim: _any,
    aten.any.dims: _any,
    aten.argmax.default: _place(aten.argmax),
    aten.argmin.default: _place(aten.argmin),
    aten.max.dim: _extremum(aten.amax, aten.argmax),
    aten.min.dim: _extremum(aten.amin, aten.argmin),
    aten.lift_fresh_copy.default: torch.clone,
}
