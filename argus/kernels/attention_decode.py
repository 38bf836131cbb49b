"""Decode attention over a paged cache: a few queries of each sequence attend to keys in the pages of a table. Programs
work on parts of the keys side by side, and a second kernel joins the parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.ir.machine import H200
from argus.ir.types import DType
from argus.kernels.attention import HEAD_SIZES, attention_combine, scale_of
from argus.kernels.rows import dtype_of, same_rank, same_shape
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch

NEVER = -float("inf")
LN2 = 0.6931471805599453
LOG2E = 1.4426950408889634
MOST_QUERIES, MOST_ROWS = 8, 64
_LEAST_KEYS = 256  # keys of a part
_PROGRAMS = {4: 2, 2: 8}
"""Programs for each multiprocessor, by their warps, where sequences are long enough: with more of them, beginnings and
the parts that are joined cost more than an even end gains. On an H200, heads of 32,768 keys are read at 4.3 TB/s in
parts of 8192, at 4.1 in parts of 2048."""


@argus.kernel(num_warps=4)
def attention_decode_pages(
    q: al.Tensor[DTYPE, "B H R D"],
    keys: al.Tensor[DTYPE, "PAGES PAGE H D"],
    values: al.Tensor[DTYPE, "PAGES PAGE H D"],
    table: al.Tensor[al.int32, "B MOST"],
    lens: al.Tensor[al.int32, "B"],
    parts: al.Tensor[al.float32, "B H P R D"],
    levels: al.Tensor[al.float32, "B H P R"],
    scale: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    D: al.constexpr = 128,
    PAGE: al.constexpr = 64,
    QUERIES: al.constexpr = 1,
    ROWS: al.constexpr = 16,
    SPAN: al.constexpr = 16,
):
    """Attention of the R rows of each head to the keys of SPAN pages: `parts`, and their log-sum-exps, `levels`.

    Key j of sequence b is `keys[table[b, j // PAGE], j % PAGE]`, for `j < lens[b]`. A head's rows are of the queries
    that share its keys, QUERIES of each, which see the last keys one after the other.
    """
    B, H, R, PAGES, MOST, P = q.shape[0], q.shape[1], q.shape[2], keys.shape[0], table.shape[1], parts.shape[2]
    al.requires(scale > 0.0)
    al.requires(R <= ROWS)
    al.requires(MOST <= P * SPAN)
    al.requires((MOST < 2**20) & (P < 2**20))
    al.requires(al.in_range(table, 0, PAGES))
    al.requires(al.in_range(lens, 0, MOST * PAGE + 1))
    al.spec(
        parts,
        lambda b, h, t, i, e: al.sum(
            lambda n: (
                al.softmax(
                    lambda j: al.where(
                        (j <= lens[b] - QUERIES + i % QUERIES) & (t * SPAN * PAGE <= j) & (j < (t + 1) * SPAN * PAGE),
                        al.sum(lambda d: q[b, h, i, d] * keys[table[b, j // PAGE], j % PAGE, h, d]) * (scale * LN2),
                        NEVER,
                    )
                )[n]
                * values[table[b, n // PAGE], n % PAGE, h, e]
            )
        ),
    )
    al.spec(
        levels,
        lambda b, h, t, i: al.logsumexp(
            lambda j: al.where(
                (j <= lens[b] - QUERIES + i % QUERIES) & (t * SPAN * PAGE <= j) & (j < (t + 1) * SPAN * PAGE),
                al.sum(lambda d: q[b, h, i, d] * keys[table[b, j // PAGE], j % PAGE, h, d]) * (scale * LN2),
                NEVER,
            )
        ),
    )
    head, part, b = al.grid(H, P, B)
    length = al.load(lens[b])
    rows = al.arange(ROWS)
    hidden = QUERIES - 1 - rows % QUERIES  # the number of last keys that a row does not see
    qt = al.load(q[b, head, 0:ROWS, :], boundary_check=(0,))
    top = al.full((ROWS,), NEVER, al.float32)
    total = al.zeros((ROWS,), al.float32)
    acc = al.zeros((ROWS, D), al.float32)
    pages = al.minimum(al.cdiv(length, PAGE), MOST)  # An unchecked length reads no more than the table.
    for p in range(part * SPAN, al.minimum(pages, (part + 1) * SPAN)):
        page = al.load(table[b, p])
        kt = al.stage(keys[page, :, head, :])
        # Memory behind a sequence may hold NaN, and zero times NaN is NaN.
        vt = al.stage(values[page, :, head, :], mask=(p * PAGE + al.arange(PAGE) < length)[:, None])
        s = al.mma(qt, kt, al.zeros((ROWS, PAGE), al.float32))
        s = al.where((p * PAGE + al.arange(PAGE))[None, :] + hidden[:, None] < length, s, NEVER)
        new = al.maximum(top, al.max(s, axis=1))
        shift = al.where(new == NEVER, 0.0, -new * scale)
        shrink = al.exp2(al.fma(top, scale, shift))
        w = al.exp2(al.fma(s, scale, shift[:, None]))
        total = total * shrink + al.sum(w, axis=1)
        top = new
        acc = acc * shrink[:, None]
        acc = al.mma(w.to(DTYPE), al.trans(vt), acc)
    y = acc * (1.0 / al.where(total == 0.0, 1.0, total))[:, None]
    al.store(parts[b, head, part, 0:ROWS, :], y, boundary_check=(0,))
    level = al.where(top == NEVER, 0.0, top * scale) + al.log2(total)
    al.store(levels[b, head, part, rows], level * LN2, mask=rows < R)


def attention_decode(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    table: torch.Tensor,
    lens: torch.Tensor,
    *,
    scale: float | None = None,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of the last queries `[B, H, M, D]` of sequences to their keys in a cache `[pages, page, H / G, D]`.

    Key j of sequence b is `keys[table[b, j // page], j % page]`, for `j < lens[b]`; `table` `[B, most]` and `lens`
    `[B]` are int32. The M queries, at most 8, are the last of each sequence: the last one sees all keys, the one before
    it one key less. D is 64 or 128, a page a multiple of 16 keys, and `M * G` at most 64. All numbers in `table` have
    to be those of pages, also where a sequence has none, and lengths at most `most * page`: this is not checked.
    Queries that see no key give zeros. `scale` and `return_lse` are those of `attention`. Raises LaunchError.
    """
    o, lse = _decode((q, keys, values, table, lens), scale_of(scale), ())
    return (o, lse) if return_lse else o


def _work(tensors: tuple[torch.Tensor, ...], numbers: tuple[Number, ...]) -> Work:
    q, keys, values, table, lens = tensors
    dtype, made = _checked(*tensors), _results(q)
    if not (q.numel() and table.numel() and keys.numel()):
        return Work((), (made[0].zero_(), made[1].fill_(NEVER)))
    (B, _, M, D), (_, page, heads, _) = q.shape, keys.shape
    rows = q.contiguous().view(B, heads, -1, D)
    read = (rows, *(x if x.stride(3) == 1 else x.contiguous() for x in (keys, values)))
    index = table if table.stride(1) == 1 else table.contiguous(), lens.contiguous()
    warps = 2 if page % 32 else 4
    span, parts = _parts(B * heads, table.shape[1], page, warps)
    room, levels = (made[1].new_empty(B, heads, parts, rows.shape[2], *each) for each in ((D,), ()))
    constants: dict[str, object] = {"DTYPE": dtype, "D": D, "PAGE": page, "QUERIES": M, "SPAN": span}
    constants |= {"ROWS": max(16, 1 << (rows.shape[2] - 1).bit_length()), "num_warps": warps}
    scale = numbers or (D**-0.5 * LOG2E,)
    first = Call(attention_decode_pages, (*read, *index, room, levels, *scale), constants)
    joined = room.view(B * heads, parts, -1, D), levels.view(B * heads, parts, -1)
    results = made[0].view(B * heads, -1, D), made[1].view(B * heads, -1)
    join = Call(attention_combine, (*joined, *results), {"DTYPE": dtype, "D": D, "PARTS": parts})
    return Work((first, join), made)


def _parts(heads: int, pages: int, page: int, warps: int) -> tuple[int, int]:
    """Return the number of pages of a part and the number of parts, both powers of two, so that few kernels are built.
    The parts keep all multiprocessors busy if all sequences have the largest allowed length."""
    wanted = -(-_PROGRAMS[warps] * H200.multiprocessors // heads)
    span = 1 << (max(1, -(-_LEAST_KEYS // page), pages // wanted) - 1).bit_length()
    return span, 1 << (-(-pages // span) - 1).bit_length()


def _checked(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, table: torch.Tensor, lens: torch.Tensor
) -> DType:
    """Return the dtype. Raises LaunchError."""
    dtype = dtype_of("q", q, ("float16", "bfloat16"))
    for name, x in (("keys", keys), ("values", values)):
        dtype_of(name, x, (dtype.name,))
    for name, x, rank in (("q", q, 4), ("keys", keys, 4), ("table", table, 2), ("lens", lens, 1)):
        same_rank(name, x, rank)
    for name, x in (("table", table), ("lens", lens)):
        dtype_of(name, x, ("int32",))
    (B, H, M, D), (_, page, heads, _) = q.shape, keys.shape
    same_shape("keys", keys, (*keys.shape[:3], D))
    same_shape("values", values, tuple(keys.shape))
    same_shape("table", table, (B, table.shape[1]))
    same_shape("lens", lens, (B,))
    if D not in HEAD_SIZES or page % 16 or not page or not 0 < M <= MOST_QUERIES:
        what = f"{M} queries of size {D} over pages of {page} keys"
        help = f"pass 1 to {MOST_QUERIES} queries of 64 or 128 elements, and pages of a multiple of 16 keys"
        raise LaunchError.of("shape-mismatch", what, help)
    if not heads or H % heads or H // heads * M > MOST_ROWS:
        what = f"{H} heads of {M} queries share {heads} heads of keys"
        help = f"pass a divisor of the heads, which leaves each of them at most {MOST_ROWS} rows of queries"
        raise LaunchError.of("shape-mismatch", what, help)
    return dtype


def _results(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    return q.new_empty(q.shape), q.new_empty(q.shape[:3], dtype=torch.float32)


def _fake(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:
    _checked(*given[:5])
    return _results(given[0])


def _joined(tensors: tuple[Any, ...], numbers: tuple[Number, ...], _way: tuple[()]) -> tuple[Any, ...]:
    return (*tensors, numbers[0] / LOG2E if numbers else None)


def _split(*given: Any) -> tuple[tuple[Any, ...], tuple[Number, ...], tuple[()]]:
    *tensors, scale = given
    return tuple(tensors), () if scale is None else (scale * LOG2E,), ()


_decode = Function(
    _work,
    Operator(
        "attention_decode(Tensor q, Tensor keys, Tensor values, Tensor table, Tensor lens, float? scale)"
        " -> (Tensor, Tensor)",
        _fake,
        join=_joined,
        split=_split,
    ),
)
