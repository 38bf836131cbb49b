"""The decomposition of matrix products: sums for one row or column, parts of terms, and factors laid out by rows."""

from __future__ import annotations

from math import ceil
from typing import Any

import torch

from argus.graph.library import LEAST_PRODUCT, by_terms, copies_too_much, is_large
from argus.graph.two_steps import wide
from argus.ir.machine import H200

aten = torch.ops.aten

_PRODUCTS, _LEAST_TERMS = H200.multiprocessors, 2048
"""Number of tiles of a product that fill a GPU, and smallest number of terms of a part that justifies a second kernel.
"""

_VECTORS = {torch.float32: 4, torch.bfloat16: 8, torch.float16: 8}
"""Elements of 16 bytes, of the dtypes whose products are cut."""


def product(a: Any, b: Any) -> Any:
    """Decompose a product with one row or column into a sum. Lay out the factors of other products by `_by_rows`."""
    if a.shape[0] != 1 and b.shape[1] != 1:
        if _is_left(a, b):
            return NotImplemented
        parts = _product_parts(a, b)
        if parts > 1:
            return _product_in_parts(a, b, parts).to(a.dtype)
        rows = _by_rows(a, b)
        return NotImplemented if rows is None else aten.mm.default(*rows)
    first, second = wide(a), wide(b)
    if b.shape[1] == 1:
        found = (first * second.reshape(1, -1)).sum(1, keepdim=True)
    else:
        found = (second * first.reshape(-1, 1)).sum(0, keepdim=True)
    return found.to(a.dtype)


def _product_parts(a: Any, b: Any) -> int:
    """Return the number of parts into which to cut the terms of a product, or 1 if its tiles fill a GPU or if there are
    few terms. Rows of a part begin at multiples of 16 bytes. Parts are added up in float32."""
    sizes = (*a.shape, b.shape[1])
    if not all(isinstance(size, int) for size in sizes) or a.dtype not in _VECTORS:
        return 1
    if a.dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32:
        return 1
    rows, terms, columns = sizes
    return parts_of(rows, columns, terms, _VECTORS[a.dtype])


def parts_of(rows: int, columns: int, terms: int, multiple: int) -> int:
    """Return the number of equal parts of a product's terms with which its tiles fill a GPU; 1 if there are too few.

    The terms of a part are a multiple of `multiple`.
    """
    wanted = _PRODUCTS // (ceil(rows / LEAST_PRODUCT) * ceil(columns / LEAST_PRODUCT))
    return next((n for n in range(min(wanted, terms // _LEAST_TERMS), 1, -1) if terms % (multiple * n) == 0), 1)


def _product_in_parts(a: Any, b: Any, parts: int) -> Any:
    """Multiply the parts of the terms as a batch, and add up, in float32. Kernels read factors of 16 bits as they are.
    """
    (rows, terms), columns = a.shape, b.shape[1]
    a, b = wide(a), wide(b)
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


def batched_product(a: Any, b: Any) -> Any:
    rows = None if _is_left(a, b) else _by_rows(a, b)
    return NotImplemented if rows is None else aten.bmm.default(*rows)


def added_product(c: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    if _is_left(a, b):
        return NotImplemented
    parts = _product_parts(a, b)
    if parts > 1:
        total = _product_in_parts(a, b, parts)
        total = (total if alpha == 1 else total * alpha) + (c if beta == 1 else c * beta)
        return total.to(a.dtype)
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
