"""The k greatest elements of every row, and the kernel of a router made of them.

An element and its column are one integer, its *key*: greater elements have greater keys, and of equal elements the one
that comes first. So a row's keys differ, and each of k rounds takes the greatest key below the one before.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.ir.types import DType
from argus.kernels.exponentials import LOG2E
from argus.kernels.rows import columns, dtype_of, matrix
from argus.runtime.device import target_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch

LOWEST = -2147483647 - 1  # of int32
HIGHEST = 2147483647
MOST_COLUMNS = 512
MOST_TAKEN = 16
HALVES = ("bfloat16", "float16")
"""Dtypes whose elements have zeros in the last 13 bits when converted to float32. The column is stored in these
bits."""
_EACH = 32  # elements in a thread, vectors of _WIDE
_WIDE = 8
_THREADS = 128


@argus.func
def key(x, column, SPAN):
    """Return an integer that sorts as x does, with SPAN - 1 - column in the last bits, which are zeros in x."""
    return al.sortable(x, al.int32) | (SPAN - 1 - column)


@argus.func
def keys_of(x, column, E, SPAN, FULL):
    """Return the keys of a tile whose columns from E on, if it has any, are not elements."""
    return key(x, column, SPAN) if FULL else al.where(column < E, key(x, column, SPAN), LOWEST)


@argus.func
def number(key, SPAN):
    """Return the float32 from which a key was made."""
    return al.sortable(key & -SPAN, al.float32)


@argus.func
def key_at(x, t, r, K, SPAN):
    """Return the r-th largest key of row t. Specifications use this function."""
    last = HIGHEST
    result = 0
    for i in al.static_range(K):
        last = al.max(
            lambda e: al.where(
                key(x[t, e].to(al.float32), e, SPAN) < last, key(x[t, e].to(al.float32), e, SPAN), LOWEST
            )
        )
        result = al.where(r == i, last, result)
    return result


@argus.func
def best_at(x, t, SPAN):
    """Return the largest element of row t, by its key."""
    best = al.max(
        lambda e: al.where(
            key(x[t, e].to(al.float32), e, SPAN) < HIGHEST, key(x[t, e].to(al.float32), e, SPAN), LOWEST
        )
    )
    return number(best, SPAN)


@argus.func
def held(TEXT):
    """Return a layout of registers, or None to leave it open."""
    return None if TEXT is None else al.fragment_layout(TEXT)


@argus.kernel
def topk_rows(
    x: al.Tensor[DTYPE, "T E"],
    values: al.Tensor[DTYPE, "T K", "K 1"],
    places: al.Tensor[INDEX, "T K", "K 1"],
    DTYPE: al.constexpr = al.bfloat16,
    INDEX: al.constexpr = al.int64,
    K: al.constexpr = 8,
    ROWS: al.constexpr = 16,
    BLOCK: al.constexpr = 128,
    SPAN: al.constexpr = 128,
    LANES: al.constexpr = None,
    FOUND: al.constexpr = None,
    FULL: al.constexpr = False,
):
    """Compute `values[t, :]`, the K greatest of `x[t, :]` in descending order, and their columns; ROWS rows a block."""
    T, E = x.shape
    al.invariant(values, T)
    al.invariant(places, T)
    al.requires((K <= E) & (E == BLOCK if FULL else E <= BLOCK))
    al.spec(values, lambda t, r: number(key_at(x, t, r, K, SPAN), SPAN))
    al.spec(places, lambda t, r: SPAN - 1 - (key_at(x, t, r, K, SPAN) & (SPAN - 1)))
    rows = al.grid(al.cdiv(T, ROWS)) * ROWS + al.arange(ROWS)[:, None]
    cols = al.arange(BLOCK)
    live = rows < T if FULL else (rows < T) & (cols < E)
    loaded = al.load(x[rows, cols], mask=live, layout=held(LANES))
    keys = keys_of(loaded.to(al.float32), cols, E, SPAN, FULL)
    last = al.full((ROWS, 1), HIGHEST, al.int32)
    found = al.zeros((ROWS, K), al.int32, layout=held(FOUND))
    for i in al.static_range(K):
        last = al.max(al.where(keys < last, keys, LOWEST), axis=1, keep_dims=True)
        found = al.where(al.arange(K) == i, last, found)
    al.store(values[rows, al.arange(K)], number(found, SPAN).to(DTYPE), mask=rows < T)
    al.store(places[rows, al.arange(K)], (SPAN - 1 - (found & (SPAN - 1))).to(INDEX), mask=rows < T)


@argus.func
def score(x, top, SIGMOID):
    """Return the number to which a weight of the row is proportional."""
    return al.sigmoid(x) if SIGMOID else al.exp2((x - top) * LOG2E)


@argus.func
def total_at(x, t, top, K, SPAN, SIGMOID):
    """Return the sum of the scores of the K largest elements of row t."""
    last = HIGHEST
    total = 0.0
    for _ in al.static_range(K):
        last = al.max(
            lambda e: al.where(
                key(x[t, e].to(al.float32), e, SPAN) < last, key(x[t, e].to(al.float32), e, SPAN), LOWEST
            )
        )
        total = total + score(number(last, SPAN), top, SIGMOID)
    return total


@argus.kernel
def router_rows(
    x: al.Tensor[DTYPE, "T E"],
    weights: al.Tensor[al.float32, "T K", "K 1"],
    experts: al.Tensor[al.int32, "T K", "K 1"],
    scale: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    SIGMOID: al.constexpr = False,
    SHARED: al.constexpr = True,
    K: al.constexpr = 8,
    ROWS: al.constexpr = 16,
    BLOCK: al.constexpr = 128,
    SPAN: al.constexpr = 128,
    LANES: al.constexpr = None,
    FOUND: al.constexpr = None,
    FULL: al.constexpr = False,
):
    """Find the K greatest logits of every row, `experts`, and their `weights`: softmax or sigmoid, times `scale`.

    SHARED: over the sum of the K weights, which then is `scale`; a single weight is `scale`. ROWS rows a block.
    """
    T, E = x.shape
    al.invariant(weights, T)
    al.invariant(experts, T)
    al.requires((K <= E) & (E == BLOCK if FULL else E <= BLOCK))
    if SHARED and K == 1:
        al.spec(weights, lambda t, r: scale)
    elif SHARED:
        al.spec(
            weights,
            lambda t, r: (
                score(number(key_at(x, t, r, K, SPAN), SPAN), best_at(x, t, SPAN), SIGMOID)
                / total_at(x, t, best_at(x, t, SPAN), K, SPAN, SIGMOID)
                * scale
            ),
        )
    elif SIGMOID:
        al.spec(weights, lambda t, r: al.sigmoid(number(key_at(x, t, r, K, SPAN), SPAN)) * scale)
    else:
        al.spec(
            weights,
            lambda t, r: (
                al.exp2((number(key_at(x, t, r, K, SPAN), SPAN) - al.max(lambda e: x[t, e])) * LOG2E)
                / al.sum(lambda n: al.exp2((x[t, n] - al.max(lambda e: x[t, e])) * LOG2E))
                * scale
            ),
        )
    al.spec(experts, lambda t, r: SPAN - 1 - (key_at(x, t, r, K, SPAN) & (SPAN - 1)))
    rows = al.grid(al.cdiv(T, ROWS)) * ROWS + al.arange(ROWS)[:, None]
    cols = al.arange(BLOCK)
    live = rows < T if FULL else (rows < T) & (cols < E)
    logits = al.load(x[rows, cols], mask=live, other=-float("inf"), layout=held(LANES)).to(al.float32)
    if not SHARED:
        top = al.max(logits, axis=1, keep_dims=True)
    keys = keys_of(logits, cols, E, SPAN, FULL)
    last = al.full((ROWS, 1), HIGHEST, al.int32)
    found = al.zeros((ROWS, K), al.int32, layout=held(FOUND))
    total = al.zeros((ROWS, 1), al.float32)
    for i in al.static_range(K):
        last = al.max(al.where(keys < last, keys, LOWEST), axis=1, keep_dims=True)
        found = al.where(al.arange(K) == i, last, found)
        if SHARED and i == 0:
            top = number(last, SPAN)
        if SHARED and K > 1:
            total += score(number(last, SPAN), top, SIGMOID)
    chosen = score(number(found, SPAN), top, SIGMOID)
    if SHARED and K == 1:
        result = al.full((ROWS, K), 1.0, al.float32) * scale
    elif SHARED:
        result = chosen * (scale / total)
    elif SIGMOID:
        result = chosen * scale
    else:
        result = chosen * (scale / al.sum(al.exp2((logits - top) * LOG2E), axis=1, keep_dims=True))
    al.store(weights[rows, al.arange(K)], result, mask=rows < T)
    al.store(experts[rows, al.arange(K)], SPAN - 1 - (found & (SPAN - 1)), mask=rows < T)


def topk(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the k largest elements of every row in descending order, and their columns as int64, as `torch.topk(x, k)`
    does.

    `x` is float16 or bfloat16, with rows of k to 512 elements any distance apart, and k at most 16. Of equal elements
    the one that comes first does so here, too, which PyTorch leaves open; -0.0 equals 0.0, and is given as that; NaN is
    greater than all others. No gradient. Raises LaunchError.
    """
    results: tuple[torch.Tensor, torch.Tensor] = _topk((x,), (), (k,))
    return results


def _work(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...], k: int) -> Work:
    import torch

    (x,) = tensors
    constants = {"DTYPE": checked(x, k), **tile_of(target_of(str(x.device)), columns(x), k)}
    rows, shape = matrix(x), (*x.shape[:-1], k)
    values = rows.new_empty(len(rows), k)
    places = rows.new_empty(len(rows), k, dtype=torch.int64)
    return Work((Call(topk_rows, (rows, values, places), constants),), (values.view(shape), places.view(shape)))


@lru_cache(maxsize=4096)
def tile_of(target: str, columns: int, k: int) -> dict[str, object]:
    """Return the constants for rows with this many columns: few lanes hold a row, with _EACH elements a thread, and the
    same lanes what is found in it."""
    block = 1 << max(3, (columns - 1).bit_length())
    lanes = max(1, block // _EACH)
    rows = _THREADS // lanes
    tile: dict[str, object] = {"K": k, "ROWS": rows, "BLOCK": block, "SPAN": block, "num_warps": _THREADS // 32}
    tile["FULL"] = columns == block
    if target == "gfx942":
        return tile
    holding = next(n for n in (16, 8, 4, 2, 1) if n <= lanes and k % n == 0)
    vectors = _digits((_WIDE, "@1"), (block // lanes // _WIDE, f"@1*{_WIDE * lanes}"))
    of_row = _digits((lanes, f"@1*{_WIDE}"), (rows, "@0"))
    of_found = _digits((holding, f"@1*{k // holding}"), (lanes // holding, "@_"), (rows, "@0"))
    return {
        **tile,
        "LANES": f"[{rows}x{block} | t{of_row} | v{vectors}]",
        "FOUND": f"[{rows}x{k} | t{of_found} | v{_digits((k // holding, '@1'))}]",
    }


def _digits(*digits: tuple[int, str]) -> str:
    """Return the digits of a layout in its notation, without those of one element."""
    return "".join(f" {extent}{place}" for extent, place in digits if extent > 1)


def checked(x: torch.Tensor, k: int) -> DType:
    """Return the dtype of rows whose k largest elements are wanted. Raises LaunchError."""
    if not (0 < k <= MOST_TAKEN and k <= columns(x) <= MOST_COLUMNS):
        what = f"the {k} greatest of rows of {columns(x)} elements are not supported"
        raise LaunchError.of("shape-mismatch", what, f"take 1 to {MOST_TAKEN} of at most {MOST_COLUMNS} elements")
    return dtype_of("x", x, HALVES)


def _fake(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    checked(x, k)
    return x.new_empty((*x.shape[:-1], k)), x.new_empty((*x.shape[:-1], k), dtype=torch.int64)


def _joined(tensors: tuple[torch.Tensor, ...], numbers: tuple[Number, ...], way: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the operator's arguments. PyTorch sees `k` as an integer; here `k` chooses a kernel."""
    return (*tensors, *numbers, *way)


_topk = Function(
    _work,
    Operator("topk(Tensor x, int k) -> (Tensor, Tensor)", _fake, join=_joined, split=lambda x, k: ((x,), (), (k,))),
)
