"""Decode attention of absorbed latent heads (MLA): every head of queries sees one row for each key, whose first
elements are the value. Rows of many heads are cut into blocks, which read the same pages at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.ir.types import DType
from argus.kernels.attention_decode import MOST_QUERIES, MOST_ROWS, check_index, decode, in_parts
from argus.kernels.attention_operands import scale_of
from argus.kernels.attention_scores import NEVER
from argus.kernels.exponentials import LOG2E
from argus.kernels.rows import dtype_of, same_rank, same_shape
from argus.runtime.device import target_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Work

if TYPE_CHECKING:
    import torch

ROW, VALUE = 576, 512
_FEW_ROWS = 16  # of a block: four warps share its results, eight those of more rows
_MOST_KEYS = (32, 64)
"""Keys of a step of few rows and of more. Three blocks of few rows share a multiprocessor, and hide each other's waits;
of more rows, a step takes as many keys as fit into shared memory beside the queries."""
_LEAST_KEYS = 128  # of a part
Tensors = tuple[Any, ...]


@argus.kernel(num_warps=4)
def attention_decode_rows(
    q: al.Tensor[DTYPE, "B H R D"],
    keys: al.Tensor[DTYPE, "PAGES PAGE H D"],
    table: al.Tensor[al.int32, "B MOST"],
    lens: al.Tensor[al.int32, "B"],
    parts: al.Tensor[al.float32, "B H P R E"],
    levels: al.Tensor[al.float32, "B H P R"],
    scale: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    D: al.constexpr = 576,
    E: al.constexpr = 512,
    PAGE: al.constexpr = 64,
    BLOCK: al.constexpr = 64,
    QUERIES: al.constexpr = 1,
    ROWS: al.constexpr = 16,
    SPAN: al.constexpr = 16,
    INVARIANT: al.constexpr = False,
):
    """Attention as `decode` computes it, of absorbed latent heads: the values are the first E elements of the keys."""
    decode(
        q, keys, None, None, None, table, lens, parts, levels, scale,
        DTYPE, PAGE, BLOCK, QUERIES, ROWS, SPAN, INVARIANT,
    )  # fmt: skip


def attention_decode_latent(
    q: torch.Tensor,
    cache: torch.Tensor,
    table: torch.Tensor,
    lens: torch.Tensor,
    *,
    scale: float,
    return_lse: bool = False,
    batch_invariant: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of the last queries `[B, H, M, 576]` of sequences to the rows of a cache `[pages, page, 576]`, whose
    first 512 elements are the values. The result is `[B, H, M, 512]`.

    This is multi-head latent attention with absorbed weights: 512 elements of a row are the latent, 64 those with
    rotary embedding. `scale` is that of the heads before absorption, and has to be given. `table`, `lens`, M, pages,
    `return_lse` and `batch_invariant` are those of `attention_decode`; all H heads share the rows. Raises LaunchError.
    """
    o, lse = _latent((q, cache, table, lens), scale_of(scale), (batch_invariant,))
    return (o, lse) if return_lse else o


def _work(tensors: Tensors, numbers: tuple[Number, ...], invariant: bool) -> Work:
    q, cache, table, lens = tensors
    dtype, made = _checked(*tensors), _results(q)
    if not (q.numel() and table.numel() and cache.numel()):
        return Work((), (made[0].zero_(), made[1].fill_(NEVER)))
    B, H, M, _ = q.shape
    waves = target_of(str(q.device)) == "gfx942"
    most = _FEW_ROWS if waves else MOST_ROWS  # beside more rows, LDS has no room for keys
    blocks = next(n for n in range(1, H + 1) if H % n == 0 and H // n * M <= most)
    rows = q.contiguous().view(B, blocks, -1, ROW)
    read = cache if cache.stride(2) == 1 else cache.contiguous()
    pages = read[:, :, None].expand(-1, -1, blocks, -1)
    many = rows.shape[2] > _FEW_ROWS
    block = next(n for n in (64, 32, 16) if n <= _MOST_KEYS[many] and cache.shape[1] % n == 0)
    products = -(-rows.shape[2] // 16) * (block // (16 if waves else 8))  # of a step's scores
    warps = min(8 if many else 4, 1 << products.bit_length() - 1)
    constants: dict[str, object] = {"DTYPE": dtype, "QUERIES": M, "BLOCK": block, "num_warps": warps}
    constants["INVARIANT"] = invariant
    room = (block + max(_FEW_ROWS, rows.shape[2])) * ROW * cache.element_size()
    return in_parts(attention_decode_rows, (rows, pages), (table, lens), numbers, made, constants, room, _LEAST_KEYS)


def _checked(q: torch.Tensor, cache: torch.Tensor, table: torch.Tensor, lens: torch.Tensor) -> DType:
    """Return the dtype. Raises LaunchError."""
    dtype = dtype_of("q", q, ("float16", "bfloat16"))
    dtype_of("cache", cache, (dtype.name,))
    for name, x, rank in (("q", q, 4), ("cache", cache, 3)):
        same_rank(name, x, rank)
    check_index(table, lens, len(q))
    same_shape("q", q, (*q.shape[:3], ROW))
    same_shape("cache", cache, (*cache.shape[:2], ROW))
    if cache.shape[1] % 16 or not cache.shape[1] or not 0 < q.shape[2] <= MOST_QUERIES:
        what = f"{q.shape[2]} queries over pages of {cache.shape[1]} rows"
        help = f"pass 1 to {MOST_QUERIES} queries, and pages of a multiple of 16 rows"
        raise LaunchError.of("shape-mismatch", what, help)
    return dtype


def _results(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    return q.new_empty((*q.shape[:3], VALUE)), q.new_empty(q.shape[:3], dtype=torch.float32)


def _fake(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:
    _checked(*given[:4])
    return _results(given[0])


def _joined(tensors: Tensors, numbers: tuple[Number, ...], way: tuple[bool]) -> Tensors:
    return (*tensors, numbers[0] / LOG2E, *way)


def _split(*given: Any) -> tuple[Tensors, tuple[Number, ...], tuple[bool]]:
    *tensors, scale, invariant = given
    return tuple(tensors), (scale * LOG2E,), (invariant,)


_latent = Function(
    _work,
    Operator(
        "attention_decode_latent(Tensor q, Tensor cache, Tensor table, Tensor lens, float scale, "
        "bool batch_invariant=False) -> (Tensor, Tensor)",
        _fake,
        join=_joined,
        split=_split,
    ),
)
