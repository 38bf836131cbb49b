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
from math import ceil, inf, prod
from typing import Any

import torch

from argus.graph.convolved import convolution
from argus.graph.library import LEAST_PRODUCT, by_terms, copies_too_much, is_large
from argus.graph.tiles import MOST_HELD, MOST_ROWS

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
)
"""Operators of PyTorch's decompositions that stay whole. Triangles have rows of their own: parts would compute with
integers. Gradients of activations have rows, too. The parts of a CPU's attention give another second result than its
gradient reads, and other strides."""

_BLOCKS = 1056
"""Number of programs at which a reduction fills a GPU: eight for each multiprocessor of the largest GPU."""
_FEW_TERMS, _LEAST_PART, _ACROSS = 4096, 32, 64
"""Number of terms up to which a sum needs no second kernel; smallest length of a part; columns of a tile whose rows are
summed."""


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Return the decompositions by operator. A decomposition may return NotImplemented, which leaves the operator
    unchanged."""
    from torch._decomp import core_aten_decompositions, get_decompositions

    found: dict[Any, Callable[..., Any]] = dict(core_aten_decompositions())
    for op in WHOLE:
        found.pop(op, None)
    found |= get_decompositions(PARTS)
    return found | OWN


_PRODUCTS, _LEAST_TERMS = 132, 2048
"""Number of tiles of a product that fill a GPU, and smallest number of terms of a part that justifies a second kernel.
"""


# ---------------------------------------------------------------------------- reductions in two steps


def _dims(x: Any, dims: Any) -> list[int]:
    given = [dims] if isinstance(dims, int) else list(dims or range(x.dim()))
    return sorted(d % x.dim() for d in given) if x.dim() else []


def _few(x: Any, dims: Sequence[int]) -> tuple[Any, list[int], list[int]] | None:
    """Return a view of x, the dimensions to reduce first, and those to reduce second in the result of the first step.

    Return None if a reduction in one step has enough programs, or if no such split is found.
    """
    if not dims or not all(isinstance(size, int) for size in x.shape):
        return None
    sizes = [x.shape[d] for d in dims]
    outs = max(prod(x.shape) // max(prod(sizes), 1), 1)
    blocks = outs if dims[-1] == x.dim() - 1 else ceil(outs / _ACROSS)
    if prod(sizes) < _FEW_TERMS or 2 * blocks >= _BLOCKS:
        return None
    wanted, outer = ceil(_BLOCKS / blocks), 1
    for place, d in enumerate(dims):
        left = prod(sizes[place:])
        if outer >= wanted and left >= _LEAST_PART:
            return x, list(dims[place:]), list(dims[:place])
        if outer * x.shape[d] >= wanted and left // x.shape[d] < _LEAST_PART:
            part = _divisor(x.shape[d], ceil(wanted / outer))
            if part is None:
                return None
            split = x.reshape(*x.shape[:d], part, x.shape[d] // part, *x.shape[d + 1 :])
            return split, [d + 1, *(e + 1 for e in dims[place + 1 :])], [*dims[:place], d]
        outer *= x.shape[d]
    return None


def _divisor(size: int, least: int) -> int | None:
    """Return the number of equal parts to cut into: the smallest number that is at least `least`, or else the largest.

    A part has at least `_LEAST_PART` elements. Return None if there is no such number.
    """
    found = [n for n in range(2, size // _LEAST_PART + 1) if size % n == 0]
    return next((n for n in found if n >= least), found[-1] if found else None)


def _rows(x: Any, dims: Sequence[int]) -> tuple[Any, list[int], list[int]] | None:
    """Return a view of x and its dimensions like `_few`, with rows of the first step that fit registers.

    Return None if the rows of a reduction in one step fit, or if there is no such view.
    """
    if not dims or dims[-1] != x.dim() - 1 or not all(isinstance(size, int) for size in x.shape):
        return None
    if prod(x.shape[d] for d in dims) <= MOST_HELD:
        return None
    length, place = 1, len(dims)
    while place and length * x.shape[dims[place - 1]] <= MOST_HELD:
        place -= 1
        length *= x.shape[dims[place]]
    d = dims[place - 1]
    size = x.shape[d]
    part = next((n for n in range(MOST_HELD // length, 1, -1) if size % n == 0), 1)
    if length * part < _LEAST_PART * 4:
        return None
    if part == 1:
        return x, list(dims[place:]), list(dims[:place])
    split = x.reshape(*x.shape[:d], size // part, part, *x.shape[d + 1 :])
    return split, [d + 1, *(e + 1 for e in dims[place:])], list(dims[:place])


def _kept(x: Any, dims: Sequence[int], keep: bool) -> list[int]:
    return [1 if d in dims else size for d, size in enumerate(x.shape) if keep or d not in dims]


def _wide(x: Any) -> Any:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _sum(x: Any, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    over = _dims(x, dims)
    found = _few(x, over) if x.is_floating_point() else None
    if found is None:
        return NotImplemented
    view, first, rest = found
    total = _wide(view).sum(first).sum(rest)
    return total.reshape(_kept(x, over, keepdim)).to(dtype or x.dtype)


def _mean(x: Any, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    over = _dims(x, dims)
    found = _few(x, over)
    if found is None:
        return NotImplemented
    view, first, rest = found
    total = _wide(view).sum(first).sum(rest) / prod(x.shape[d] for d in over)
    return total.reshape(_kept(x, over, keepdim)).to(dtype or x.dtype)


def _extreme(name: str) -> Callable[..., Any]:
    def decomposed(x: Any, dims: Any = None, keepdim: bool = False) -> Any:
        over = _dims(x, dims)
        found = _few(x, over) if x.is_floating_point() else None
        if found is None:
            return NotImplemented
        view, first, rest = found
        op = getattr(torch, name)
        return op(op(view, first), rest).reshape(_kept(x, over, keepdim))

    return decomposed


def _variance_and_mean(x: Any, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """Compute a variance from parts of equal length: the mean of their variances plus the variance of their means."""
    over = _dims(x, dims)
    found = _rows(x, over) or _few(x, over)
    if found is None:
        return NotImplemented
    view, first, rest = found
    variances, means = torch.var_mean(_wide(view), first, correction=0)
    count = prod(x.shape[d] for d in over)
    mean = means.mean(rest, keepdim=True)
    spread = variances + (means - mean) * (means - mean)
    factor = 1.0 / (count - (1 if correction is None else correction))
    variance = spread.sum(rest) * (count / prod(means.shape[d] for d in rest) * factor)
    shape = _kept(x, over, keepdim)
    return variance.reshape(shape).to(x.dtype), mean.reshape(shape).to(x.dtype)


def _variance(x: Any, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    found = _variance_and_mean(x, dims, correction=correction, keepdim=keepdim)
    return found if found is NotImplemented else found[0]


def _norm(x: Any, order: float = 2, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    over = _dims(x, dims)
    if _few(x, over) is None or order not in (1, 2):
        return NotImplemented
    wide = _wide(x)
    total = (wide * wide).sum(over, keepdim=keepdim) if order == 2 else wide.abs().sum(over, keepdim=keepdim)
    return (total.sqrt() if order == 2 else total).to(dtype or x.dtype)


def _layer_norm(x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    over = list(range(x.dim() - len(shape), x.dim()))
    if _rows(x, over) is None:
        return NotImplemented
    wide = _wide(x)
    variance, mean = torch.var_mean(wide, over, correction=0, keepdim=True)
    inverse = torch.rsqrt(variance + eps)
    value = (wide - mean) * inverse
    value = value if weight is None else value * weight
    value = value if bias is None else value + bias
    return value.to(x.dtype), mean, inverse


def _softmax(logarithm: bool) -> Callable[..., Any]:
    """Compute the softmax of a long row from the maximum and the sum of exponentials of parts, and then of the row."""

    def decomposed(x: Any, dim: int, half_to_float: bool) -> Any:
        over = _dims(x, dim)
        found = _rows(x, over)
        if found is None:
            return NotImplemented
        view, first, rest = found
        view = _wide(view)
        top = view.amax(first, keepdim=True)
        level = torch.where(top == -inf, 0.0, top)  # A part in which everything is masked contributes nothing.
        total = (view - level).exp().sum(first)
        tops = top.reshape(total.shape)
        highest = tops.amax(rest, keepdim=True)
        sums = (total * (tops - highest).exp()).sum(rest, keepdim=True)
        shape = _kept(x, over, True)
        centred = _wide(x) - highest.reshape(shape)
        value = centred - sums.log().reshape(shape) if logarithm else centred.exp() / sums.reshape(shape)
        return value.to(torch.float32 if half_to_float else x.dtype)

    return decomposed


# ---------------------------------------------------------------------------- norms, products


def _group_norm(
    x: Any, weight: Any, bias: Any, images: int, channels: int, inner: int, groups: int, eps: float
) -> tuple[Any, Any, Any]:
    """Compute a group norm from the mean and the variance of each group, in float32."""
    shape = (images, groups, channels // groups, inner)
    parts = _wide(x).reshape(shape)
    variance, mean = torch.var_mean(parts, [2, 3], correction=0, keepdim=True)
    inverse = torch.rsqrt(variance + eps)
    value = (parts - mean) * inverse
    for parameter, op in ((weight, torch.mul), (bias, torch.add)):
        if parameter is not None:
            value = op(value, parameter.reshape(1, groups, channels // groups, 1))
    made = value.reshape(x.shape).to(x.dtype)
    return made, *(v.reshape(images, groups).to(x.dtype) for v in (mean, inverse))


def _batch_norm_with_statistics(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> tuple[Any, Any, Any]:
    """Decompose a batch norm whose statistics are given into a factor and a summand for each channel."""
    factor = torch.rsqrt(variance + eps)
    factor = factor if weight is None else factor * weight
    summand = -mean * factor if bias is None else bias - mean * factor
    shape = (1, -1, *(1,) * (x.dim() - 2))
    made = _wide(x) * factor.reshape(shape) + summand.reshape(shape)
    return made.to(x.dtype), x.new_empty((0,)), x.new_empty((0,))


def _product(a: Any, b: Any) -> Any:
    """Decompose a product with one row or column into a sum. Lay out the factors of other products by `_by_rows`."""
    if a.shape[0] != 1 and b.shape[1] != 1:
        if _is_left(a, b):
            return NotImplemented
        parts = _product_parts(a, b)
        if parts > 1:
            return _product_in_parts(a, b, parts)
        rows = _by_rows(a, b)
        return NotImplemented if rows is None else aten.mm.default(*rows)
    first, second = _wide(a), _wide(b)
    if b.shape[1] == 1:
        found = (first * second.reshape(1, -1)).sum(1, keepdim=True)
    else:
        found = (second * first.reshape(-1, 1)).sum(0, keepdim=True)
    return found.to(a.dtype)


def _product_parts(a: Any, b: Any) -> int:
    """Return the number of parts into which to cut the terms of a product, or 1 if its tiles fill a GPU or if there are
    few terms.

    Parts are added up in float32, so only factors of float32 are cut: parts of other factors would be rounded.
    """
    sizes = (*a.shape, b.shape[1])
    if a.dtype != torch.float32 or not torch.backends.cuda.matmul.allow_tf32:
        return 1
    if not all(isinstance(size, int) for size in sizes):
        return 1
    rows, terms, columns = sizes
    wanted = _PRODUCTS // (ceil(rows / LEAST_PRODUCT) * ceil(columns / LEAST_PRODUCT))
    return next((n for n in range(min(wanted, terms // _LEAST_TERMS), 1, -1) if terms % (4 * n) == 0), 1)


def _product_in_parts(a: Any, b: Any, parts: int) -> Any:
    """Multiply the parts of the terms as a batch, and add up."""
    (rows, terms), columns = a.shape, b.shape[1]
    left = a.reshape(rows, parts, terms // parts).transpose(0, 1)
    right = b.reshape(parts, terms // parts, columns)
    return torch.bmm(left, right).sum(0)


def _is_left(a: Any, b: Any) -> bool:
    """Return True for a product on a GPU that the library computes faster (`argus.graph.library`)."""
    known = a.device.type == "cuda" and a.dtype == torch.float32
    if not known or not all(isinstance(n, int) for n in (*a.shape, *a.stride(), *b.shape, *b.stride())):
        return False
    rows = b.mT
    return copies_too_much((a.shape, a.stride()), (rows.shape, rows.stride()))


def _batched_product(a: Any, b: Any) -> Any:
    rows = None if _is_left(a, b) else _by_rows(a, b)
    return NotImplemented if rows is None else aten.bmm.default(*rows)


def _added_product(c: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    if _is_left(a, b):
        return NotImplemented
    parts = _product_parts(a, b)
    if parts > 1:
        total = _product_in_parts(a, b, parts)
        return (total if alpha == 1 else total * alpha) + (c if beta == 1 else c * beta)
    rows = _by_rows(a, b)
    return NotImplemented if rows is None else aten.addmm.default(c, *rows, beta=beta, alpha=alpha)


def _by_rows(a: Any, b: Any) -> tuple[Any, Any] | None:
    """Copy float32 factors so that their terms are contiguous and rows begin at multiples of 16 bytes, as the fastest
    TF32 instructions require. Zeros extend the terms to a multiple of 4.

    Return None if the factors already have this form, or if a copy does not pay.
    """
    sizes = (*a.shape, *b.shape)
    if a.dtype != torch.float32 or not torch.backends.cuda.matmul.allow_tf32:
        return None
    if not all(isinstance(size, int) for size in sizes):
        return None
    if not is_large(a.shape[-2], a.shape[-1], b.shape[-1]):
        return None
    rows = b.mT
    first, second = _terms_last(a), _terms_last(rows)
    return None if first is a and second is rows else (first, b if second is rows else second.mT)


def _terms_last(x: Any) -> Any:
    """Return `x`, or a copy of it, with a contiguous last dimension and rows that begin at multiples of 4 elements."""
    missing = -x.shape[-1] % 4
    if missing:
        return torch.nn.functional.pad(x, (0, missing))
    return x if by_terms(x.shape, x.stride()) else x.contiguous()


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
        length = next((n for n in range(most, _LEAST_PART - 1, -1) if size % n == 0), size)
        if length == size or size <= 2 * most:
            return NotImplemented
        parts = x.reshape(*x.shape[:d], size // length, length, *x.shape[d + 1 :])
        inner = place(parts, d + 1, True)
        part = place(torch.gather(parts, d + 1, inner), d, True)
        found = torch.gather(inner, d, part) + part * length
        return found.reshape(_kept(x, [d], keepdim))

    return decomposed


def _any(x: Any, dims: Any = None, keepdim: bool = False) -> Any:
    """Compute if any truth value is true, as the maximum of ones and zeros."""
    if x.dtype != torch.bool or not x.dim():
        return NotImplemented
    return torch.where(x, 1.0, 0.0).amax(_dims(x, dims), keepdim) > 0.5


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
    aten.mm.default: _product,
    aten.bmm.default: _batched_product,
    aten.addmm.default: _added_product,
    aten.convolution.default: convolution,
    aten.any.default: _any,
    aten.any.dim: _any,
    aten.any.dims: _any,
    aten.argmax.default: _place(aten.argmax),
    aten.argmin.default: _place(aten.argmin),
    aten.max.dim: _extremum(aten.amax, aten.argmax),
    aten.min.dim: _extremum(aten.amin, aten.argmin),
    aten.lift_fresh_copy.default: torch.clone,
}
