"""Attention of packed sequences of different lengths, forward.

The rows of all sequences stand one behind the other: sequence b has the queries `rows[b] .. rows[b + 1]` and the keys
`keys[b] .. keys[b + 1]`. The device cuts the queries into tiles, none of which has rows of two sequences. The number of
tiles is at most `T / BLOCK_M + B`, so the grid depends on sizes alone, and uneven sequences become even work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.ir.types import DType
from argus.kernels.attention_operands import HEAD_SIZES, scale_of
from argus.kernels.attention_scores import NEVER, raise_top
from argus.kernels.exponentials import LN2, LOG2E
from argus.kernels.rows import dtype_of, same_rank, same_shape
from argus.kernels.sorting import tiles
from argus.runtime.device import target_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch

_TILES: Mapping[str, int | str] = {"BLOCK_M": 128, "BLOCK_N": 128, "SCHEDULE": "turns", "num_warps": 8}
_SHORT: Mapping[str, int | str] = {"BLOCK_M": 64, "BLOCK_N": 128, "SCHEDULE": "rows", "num_warps": 4}
"""Tiles of sequences that have at most 64 queries on average."""
_ELSEWHERE: Mapping[str, int | str] = {"BLOCK_M": 64, "BLOCK_N": 32, "num_warps": 4}


@argus.func
def inside(number, most):
    """Return the nearest of the numbers from 0 to `most`."""
    return al.minimum(al.maximum(number, 0), most)


@argus.func
def behind(number):
    """Return the nearest of the numbers of rows by which one sequence of a batch may begin before another."""
    return al.minimum(al.maximum(number, -(2**28)), 2**28)


@argus.func
def tiles_of(rows, b, ROWS):
    """Return the number of tiles of sequence b. Specifications use this function, and the next four."""
    return (al.maximum(rows[b + 1] - rows[b], 0) + (ROWS - 1)) // ROWS


@argus.func
def tiles_through(rows, b, B, ROWS):
    """Return the number of tiles of the sequences up to b."""
    return al.sum(lambda c: al.where(c <= b, tiles_of(rows, c, ROWS), 0), B)


@argus.func
def tiles_before(rows, b, B, ROWS):
    """Return the number of tiles of the sequences before b."""
    return tiles_through(rows, b, B, ROWS) - tiles_of(rows, b, ROWS)


@argus.func
def has_tile(rows, t, b, B, ROWS):
    """Return True if tile t belongs to sequence b."""
    return (tiles_before(rows, b, B, ROWS) <= t) & (t < tiles_through(rows, b, B, ROWS))


@argus.func
def tile_start(rows, t, b, B, ROWS):
    """Return the first row of tile t, which belongs to sequence b."""
    return al.minimum(rows[b] + (t - tiles_before(rows, b, B, ROWS)) * ROWS, rows[b + 1])


@argus.func
def keys_end(rows, keys, t, b, B, ROWS, CAUSAL):
    """Return the end of the keys that the last row of tile t sees. Causal, each earlier row sees one key less."""
    end = tile_start(rows, t, b, B, ROWS) + ROWS
    return al.maximum(keys[b + 1] - (rows[b + 1] - al.minimum(end, rows[b + 1]) if CAUSAL else 0), keys[b])


@argus.func
def of_tiles(known, before, through, i, value):
    """Return, for each of the tiles i, the value of the sequence to which it belongs; 0 for none."""
    return al.sum(
        al.where(known[None, :] & (before[None, :] <= i[:, None]) & (i[:, None] < through[None, :]), value, 0), axis=1
    )


@argus.kernel
def cut_sequences(
    rows: al.Tensor[al.int32, "B1"],
    keys: al.Tensor[al.int32, "B1"],
    first: al.Tensor[al.int32, "L1"],
    begin: al.Tensor[al.int32, "L1"],
    end: al.Tensor[al.int32, "L1"],
    shift: al.Tensor[al.int32, "L1"] | None,
    T: al.int32,
    S: al.int32,
    ROWS: al.constexpr = 128,
    CAUSAL: al.constexpr = False,
    BLOCK: al.constexpr = 32,
    STEP: al.constexpr = 32,
):
    """Compute where each tile's queries begin (`first`), and from where up to where its last query sees keys.

    For gradients of keys, `rows` are the offsets of keys, and `keys` those of queries. Then, causal, the queries from
    `shift + j` on see key j. Tiles behind the last sequence begin at T and see no keys.

    Whatever the sequences' offsets are, queries are in `0 .. T`, and keys in `0 .. S`.
    """
    B, L = rows.shape[0] - 1, first.shape[0]
    al.requires((0 < B) & (B < 2**20) & (L < 2**22) & (0 <= T) & (T < 2**28) & (0 <= S) & (S < 2**28))
    al.requires(al.in_range(rows, 0, 2**28))
    al.requires(al.in_range(keys, 0, 2**28))
    al.spec(
        first,
        lambda t: al.where(
            t < al.sum(lambda b: tiles_of(rows, b, ROWS), B),
            inside(al.sum(lambda b: al.where(has_tile(rows, t, b, B, ROWS), tile_start(rows, t, b, B, ROWS), 0), B), T),
            T,
        ),
    )
    al.spec(begin, lambda t: inside(al.sum(lambda b: al.where(has_tile(rows, t, b, B, ROWS), keys[b], 0), B), S))
    al.spec(
        end,
        lambda t: inside(
            al.sum(
                lambda b: al.where(has_tile(rows, t, b, B, ROWS), keys_end(rows, keys, t, b, B, ROWS, CAUSAL), 0), B
            ),
            S,
        ),
    )
    if shift is not None:
        al.spec(
            shift,
            lambda t: behind(
                al.sum(lambda b: al.where(has_tile(rows, t, b, B, ROWS), keys[b + 1] - rows[b + 1], 0), B)
            ),
        )
    i = al.grid(al.cdiv(L, BLOCK)) * BLOCK + al.arange(BLOCK)
    starts, shifts = al.zeros((BLOCK,), al.int32), al.zeros((BLOCK,), al.int32)
    begins, ends = al.zeros((BLOCK,), al.int32), al.zeros((BLOCK,), al.int32)
    total = 0  # the number of tiles of earlier sequences
    for b0 in range(0, B, STEP):
        b = b0 + al.arange(STEP)
        start, stop = al.load(rows[b], mask=b < B), al.load(rows[b + 1], mask=b < B)
        n0, n1 = al.load(keys[b], mask=b < B), al.load(keys[b + 1], mask=b < B)
        tiles = al.where(b < B, (al.maximum(stop - start, 0) + (ROWS - 1)) // ROWS, 0)
        through = total + al.cumsum(tiles, 0)
        before = through - tiles
        m0 = al.minimum(start[None, :] + (i[:, None] - before[None, :]) * ROWS, stop[None, :])
        hidden = stop[None, :] - al.minimum(m0 + ROWS, stop[None, :]) if CAUSAL else 0
        m1 = al.maximum(n1[None, :] - hidden, n0[None, :])
        starts += of_tiles(b < B, before, through, i, m0)
        begins += of_tiles(b < B, before, through, i, n0[None, :])
        ends += of_tiles(b < B, before, through, i, m1)
        if shift is not None:
            shifts += of_tiles(b < B, before, through, i, (n1 - stop)[None, :])
        total += al.sum(tiles)
    al.store(first[i], al.where(i < total, inside(starts, T), T), mask=i < L)
    al.store(begin[i], inside(begins, S), mask=i < L)
    al.store(end[i], inside(ends, S), mask=i < L)
    if shift is not None:
        al.store(shift[i], behind(shifts), mask=i < L)


@argus.func
def packed_score(q, k, first, begin, end, i, h, p, j, scale, GROUP, CAUSAL):
    """Return the score of row p of tile i and key j, -inf for keys that the row cannot see."""
    return al.where(
        (begin[i] <= j) & (j < end[i] - (first[i + 1] - 1 - p if CAUSAL else 0)),
        al.sum(lambda d: q[p, h, d] * k[j, h // GROUP, d]) * (scale * LN2),
        NEVER,
    )


@argus.kernel(num_warps=8)
def attention_packed(
    q: al.Tensor[DTYPE, "T H D"],
    k: al.Tensor[DTYPE, "S HK D"],
    v: al.Tensor[DTYPE, "S HK D"],
    first: al.Tensor[al.int32, "L1"],
    begin: al.Tensor[al.int32, "L1"],
    end: al.Tensor[al.int32, "L1"],
    o: al.Tensor[DTYPE, "T H D"],
    lse: al.Tensor[al.float32, "H T"],
    scale: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    D: al.constexpr = 128,
    GROUP: al.constexpr = 1,
    CAUSAL: al.constexpr = False,
    BLOCK_M: al.constexpr = 128,
    BLOCK_N: al.constexpr = 128,
    STAGES: al.constexpr = 2,
    HEADS: al.constexpr = 33,
    SCHEDULE: al.constexpr = "rows",
):
    """Compute `o = softmax(q @ k.T * scale) @ v` for every tile of rows, `scale` times log2(e); `lse` the log-sum-exps.

    Tile i has the rows `first[i] .. first[i + 1]`. Its last row sees the keys `begin[i] .. end[i]`; causal, each row
    before it sees one key less. GROUP heads of q share one of k and v.
    """
    T, H, S, HK, L = q.shape[0], q.shape[1], k.shape[0], k.shape[1], first.shape[0] - 1
    al.requires((H == HK * GROUP) & (T < 2**28) & (S < 2**28) & (0 < L) & (L < 2**30))
    al.requires(scale > 0.0)
    al.requires(al.offsets(first, T, longest=BLOCK_M))
    al.requires(al.in_range(begin, 0, S + 1))
    al.requires(al.in_range(end, 0, S + 1))
    al.covers(o, at=lambda i, p, h, e: (p, h, e), where=lambda i, p, h, e: (first[i] <= p) & (p < first[i + 1]))
    al.covers(lse, at=lambda i, h, p: (h, p), where=lambda i, h, p: (first[i] <= p) & (p < first[i + 1]))
    al.spec(
        o,
        lambda i, p, h, e: al.sum(
            lambda n: (
                al.softmax(lambda j: packed_score(q, k, first, begin, end, i, h, p, j, scale, GROUP, CAUSAL))[n]
                * v[n, h // GROUP, e]
            )
        ),
    )
    al.spec(
        lse,
        lambda i, h, p: al.logsumexp(lambda j: packed_score(q, k, first, begin, end, i, h, p, j, scale, GROUP, CAUSAL)),
    )
    head, place = al.grid(H, L, group=HEADS, persistent=True, schedule=SCHEDULE)
    i = al.num_programs(1) - 1 - place  # The last rows of a sequence see the most keys, so they come first.
    m0, m1, begins, ends = al.load(first[i]), al.load(first[i + 1]), al.load(begin[i]), al.load(end[i])
    p = m0 + al.arange(BLOCK_M)
    seen = ends - (m1 - 1) + p
    blocks = al.maximum(al.cdiv(ends - begins, BLOCK_N), 1)  # rows that see no key process one block of masked keys
    hidden = m1 - 1 - m0 if CAUSAL else 0  # the number of last keys that the first row does not see
    kv = head // GROUP
    qt = al.stage(q[m0 : m0 + BLOCK_M, head, 0:D], boundary_check=(0,))
    top = al.full((BLOCK_M,), NEVER, al.float32)
    total = al.zeros((BLOCK_M,), al.float32)
    w = al.zeros((BLOCK_M, BLOCK_N), DTYPE)
    acc = al.zeros((BLOCK_M, D), al.float32)
    for t in al.pipelined(0, blocks, stages=STAGES, producer_warps=4):
        j0 = begins + t * BLOCK_N
        kt = al.stage(k[j0 : j0 + BLOCK_N, kv, 0:D], boundary_check=(0,))
        vt = al.stage(v[j0 - BLOCK_N : j0, kv, 0:D], boundary_check=(0,))
        s = al.mma(qt, kt, al.zeros((BLOCK_M, BLOCK_N), al.float32))
        if t > 0:
            acc = al.mma(w, al.trans(vt), acc)
        if ends - hidden < j0 + BLOCK_N:
            if CAUSAL:
                s = al.where((j0 + al.arange(BLOCK_N))[None, :] < seen[:, None], s, NEVER)
            else:
                s = al.where((j0 + al.arange(BLOCK_N) < ends)[None, :], s, NEVER)
        top, shift, shrink = raise_top(s, top, scale)
        acc = acc * shrink[:, None]
        x = al.exp2(al.fma(s, scale, shift[:, None]))
        total = total * shrink + al.sum(x, axis=1)
        w = al.moderate(x).to(DTYPE)
    last = begins + (blocks - 1) * BLOCK_N
    vt = al.stage(v[last : last + BLOCK_N, kv, 0:D], boundary_check=(0,))
    acc = al.mma(w, al.trans(vt), acc)
    y = acc * (1.0 / al.where(total == 0.0, 1.0, total))[:, None]
    al.store(o[p, head, 0:D], y.to(DTYPE), mask=(p < m1)[:, None])
    level = al.where(top == NEVER, 0.0, top * scale) + al.log2(total)
    al.store(lse[head, p], level * LN2, mask=p < m1)


def attention_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of packed queries `[T, H, D]` to the keys and values `[S, H / G, D]` of their own sequences.

    Sequence b has the queries `cu_seqlens_q[b] .. cu_seqlens_q[b + 1]` and the keys `cu_seqlens_k[b] ..
    cu_seqlens_k[b + 1]`. Both tensors are int32 `[B + 1]`, begin with 0, do not decrease, and end with T and S: this is
    not checked. `causal`, `scale` and G are those of `attention`; D is 64 or 128. With `return_lse` also the logarithm
    of each row's sum of exponentials, float32 `[H, T]`. Queries that see no key give zeros and -inf. An infinity or NaN
    in a sequence's values may reach results of the sequence before it. Raises LaunchError.
    """
    o, lse = varlen_function((q, k, v, cu_seqlens_q, cu_seqlens_k), scale_of(scale), (causal,))
    return (o, lse) if return_lse else o


def _work(tensors: tuple[torch.Tensor, ...], numbers: tuple[Number, ...], causal: bool) -> Work:
    q, k, v, rows, keys = tensors
    dtype, group = checked_varlen(*tensors)
    made = _results(q)
    if not (k.shape[0] and q.numel()):
        return Work((), (made[0].zero_(), made[1].fill_(NEVER)))
    read = tuple(x if x.stride(2) == 1 else x.contiguous() for x in (q, k, v))
    chosen = _tiles((*read, made[0]), len(q) <= 64 * (len(rows) - 1))
    side = int(chosen["BLOCK_M"])
    plan = tuple(rows.new_empty(tiles(len(q), len(rows) - 1, side) + 1) for _ in range(3))
    cut = Call(cut_sequences, (rows, keys, *plan, None, len(q), len(k)), {"ROWS": side, "CAUSAL": causal})
    constants = {"DTYPE": dtype, "D": q.shape[2], "GROUP": group, "CAUSAL": causal, **chosen}
    scale = numbers or (q.shape[2] ** -0.5 * LOG2E,)
    return Work((cut, Call(attention_packed, (*read, *plan, *made, *scale), constants)), made)


def _tiles(tensors: tuple[torch.Tensor, ...], short: bool) -> Mapping[str, int | str]:
    aligned = all(t.data_ptr() % 16 == 0 and all(s % 8 == 0 for s in t.stride()[:2]) for t in tensors)
    if target_of(str(tensors[0].device)) != "sm_90a" or not aligned:
        return _ELSEWHERE
    return _SHORT if short else _TILES


def checked_varlen(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: torch.Tensor, keys: torch.Tensor
) -> tuple[DType, int]:
    """Return the dtype, and the number of query heads for each head of keys. Raises LaunchError."""
    dtype = dtype_of("q", q, ("float16", "bfloat16"))
    for name, x in (("k", k), ("v", v)):
        dtype_of(name, x, (dtype.name,))
    for name, x, rank in (("q", q, 3), ("k", k, 3), ("cu_seqlens_q", rows, 1), ("cu_seqlens_k", keys, 1)):
        same_rank(name, x, rank)
    for name, x in (("cu_seqlens_q", rows), ("cu_seqlens_k", keys)):
        dtype_of(name, x, ("int32",))
    same_shape("k", k, (*k.shape[:2], q.shape[2]))
    same_shape("v", v, tuple(k.shape))
    same_shape("cu_seqlens_k", keys, tuple(rows.shape))
    (_, heads, size), shared = q.shape, k.shape[1]
    if size not in HEAD_SIZES or not shared or heads % shared or len(rows) < 2:
        what = f"{heads} heads of {size} elements on {shared} of keys, of {len(rows) - 1} sequences"
        help = "pass heads of 64 or 128 elements, a divisor of them as heads of keys, and at least one sequence"
        raise LaunchError.of("shape-mismatch", what, help)
    return dtype, heads // shared


def _results(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    return q.new_empty(q.shape), q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)


def _fake(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:
    checked_varlen(*given[:5])
    return _results(given[0])


def _joined(tensors: tuple[Any, ...], numbers: tuple[Number, ...], way: tuple[bool]) -> tuple[Any, ...]:
    return (*tensors, numbers[0] / LOG2E if numbers else None, *way)


def _split(*given: Any) -> tuple[tuple[Any, ...], tuple[Number, ...], tuple[Any, ...]]:
    *tensors, scale, causal = given
    return tuple(tensors), () if scale is None else (scale * LOG2E,), (causal,)


varlen_function = Function(
    _work,
    Operator(
        "attention_varlen(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k, float? scale=None, "
        "bool causal=False) -> (Tensor, Tensor)",
        _fake,
        join=_joined,
        split=_split,
    ),
)
