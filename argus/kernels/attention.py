"""Attention, forward: online softmax over blocks of keys, with the log-sum-exp of every row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.ir.types import float32
from argus.kernels.attention_operands import checked, results_like, scale_of
from argus.kernels.attention_scores import NEVER, cut, edges, odds, raise_top, score, unit_of
from argus.kernels.attention_tiles import AttentionShape, apart, hopper_tiles, wave_tiles
from argus.kernels.exponentials import LN2, LOG2E
from argus.runtime.device import target_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch

_ELSEWHERE: Mapping[str, int | str] = {"BLOCK_M": 64, "BLOCK_N": 64, "STAGES": 2, "num_warps": 4}


@argus.func
def programs(M, N, H, B, BLOCK_M, CAUSAL, HEADS, SCHEDULE, PARTS):
    """Return the program's head, batch and place among the blocks of rows (and parts of the keys), and its first row.
    Then, the end of the keys that each of its rows sees, that all rows see, and that any row sees.

    Causal: some heads at a time, whose keys and values stay in the cache; of these the longest rows first. Of 33, a
    quarter of the 132 multiprocessors, four blocks of rows are a round of programs, and rounds that go back and forth
    come out even within the group. Else all rows of a head, so that they share its keys and values in the cache.
    """
    if CAUSAL:
        head, batch, place = al.grid(H, B, al.cdiv(M, BLOCK_M) * PARTS, group=HEADS, persistent=True, schedule=SCHEDULE)
        place = al.num_programs(2) - 1 - place
        m0 = place // PARTS * BLOCK_M
        ends = m0 + al.arange(BLOCK_M) + (N - M) + 1  # at most N for rows that exist
        whole = m0 + (N - M) + 1
        stop = al.minimum(m0 + BLOCK_M + (N - M), N)
    else:
        place, head, batch = al.grid(al.cdiv(M, BLOCK_M) * PARTS, H, B, persistent=True, schedule=SCHEDULE)
        m0 = place // PARTS * BLOCK_M
        ends = N + 0 * al.arange(BLOCK_M)
        whole = N
        stop = N
    return head, batch, place, m0, ends, whole, stop


@argus.func
def contract(
    q, k, v, o, lse, sinks, slopes, bias, reach, scale, GROUP, VALUES, PARTS, SPAN, WINDOW, CAP, SCORE, MASK, INVARIANT
):
    """State what `attend` requires, and what its results are if VALUES is true."""
    al.requires(q.shape[1] == k.shape[1] * GROUP)
    al.requires(o.shape[2] == PARTS)
    al.requires((PARTS == 1) | (k.shape[2] <= PARTS * SPAN))
    al.requires(scale > 0.0)
    if INVARIANT:
        al.invariant(o, q.shape[0])
        al.invariant(lse, q.shape[0])
    # fmt: off
    if VALUES and sinks is None:
        al.spec(o, lambda b, h, t, i, e: al.sum(lambda n: v[b, h // GROUP, n, e] * al.softmax(lambda j: score(
            q, k, slopes, bias, b, h, t, i, j, reach, scale, GROUP, PARTS, SPAN, WINDOW, CAP, SCORE, MASK))[n]))
        al.spec(lse, lambda b, h, t, i: al.logsumexp(lambda j: score(
            q, k, slopes, bias, b, h, t, i, j, reach, scale, GROUP, PARTS, SPAN, WINDOW, CAP, SCORE, MASK)))
    elif VALUES:
        al.spec(o, lambda b, h, t, i, e: al.sum(lambda n: v[b, h // GROUP, n, e] * al.exp(score(
            q, k, slopes, bias, b, h, t, i, n, reach, scale, GROUP, PARTS, SPAN, WINDOW, CAP, SCORE, MASK
        ))) / odds(q, k, sinks, slopes, bias, b, h, t, i, reach, scale, GROUP, PARTS, SPAN, WINDOW, CAP, SCORE, MASK))
        al.spec(lse, lambda b, h, t, i: al.log(
            odds(q, k, sinks, slopes, bias, b, h, t, i, reach, scale, GROUP, PARTS, SPAN, WINDOW, CAP, SCORE, MASK)))
    # fmt: on


@argus.func
def attend(
    q, k, v, o, lse, scale, sinks, slopes, bias,
    DTYPE, OUT, D, GROUP, CAUSAL, BLOCK_M, BLOCK_N, STAGES, VALUES, HEADS, SCHEDULE, PARTS, SPAN, BESIDE, WIDTH, WINDOW,
    CAP, SCORE, MASK, RANGE, INVARIANT,
):  # fmt: skip
    """Compute `o = softmax(q @ k.T * scale) @ v` for every head, and `lse`, the log-sum-exp of each row. `scale`
    includes log2(e).

    GROUP heads of q share one of k and v. CAUSAL: row i sees the keys up to i + N - M. With WINDOW, a row sees at most
    that many keys, up to the last one. MASK hides further keys; keys outside of RANGE, which are hidden too, are not
    read. Scores get the bias and the slope of the head (`score`), with an approximate tangent. PARTS: result t is that
    of the SPAN keys from t * SPAN on. Programs go through all rows of HEADS heads before the next heads. BESIDE: the
    product of values is in one piece with the softmax of a block; the first product is of zeros. Tiles of rows and of
    values have WIDTH elements, if not D. INVARIANT: the bits of a batch's results do not depend on the other batches.
    Without VALUES, tags prove which elements are combined; values are not specified."""
    B, H, M = q.shape[0], q.shape[1], q.shape[2]
    N, E = k.shape[2], v.shape[3]
    contract(
        q, k, v, o, lse, sinks, slopes, bias, N - M if CAUSAL else N, scale,
        GROUP, VALUES, PARTS, SPAN, WINDOW, CAP, SCORE, MASK, INVARIANT,
    )  # fmt: skip
    head, batch, place, m0, ends, whole, stop = programs(M, N, H, B, BLOCK_M, CAUSAL, HEADS, SCHEDULE, PARTS)
    part = place % PARTS
    begin, ends, whole, stop = cut(
        M, N, part, batch, head, m0, ends, whole, stop, BLOCK_M, BLOCK_N, PARTS, SPAN, WINDOW, RANGE
    )
    length = al.maximum(stop - begin, 1)  # rows that see no key go through a block of masked ones
    keys = al.arange(BLOCK_N)
    kv = head // GROUP
    al.tag(q, lambda b, h, m, d: (b, h, m, d))
    al.tag(k, lambda b, kv, n, d: (b, kv, n, d))
    al.tag(v, lambda b, kv, n, e: (b, kv, n, e))
    W = WIDTH if WIDTH else D
    Y = W if E == D else E
    OTHER = SCORE is not None or slopes is not None or bias is not None
    qt = al.stage(q[batch, head, m0 : m0 + BLOCK_M, 0:W], boundary_check=edges(D, W))
    slope = 0.0 if slopes is None else al.load(slopes[head])
    top = al.full((BLOCK_M,), NEVER, al.float32)
    total = al.zeros((BLOCK_M,), al.float32)
    if sinks is not None:  # the first score of all rows, one without a value
        top = al.zeros((BLOCK_M,), al.float32) + al.load(sinks[head]) * (LOG2E / unit_of(scale, CAP, OTHER))
        total = al.full((BLOCK_M,), 1.0, al.float32)
    p = al.zeros((BLOCK_M, BLOCK_N), DTYPE)
    acc = al.zeros((BLOCK_M, Y), al.float32)
    for n0 in al.pipelined(0, length, BLOCK_N, stages=STAGES, producer_warps=4):
        first = begin + n0
        # The values are those of the block before, so that their product runs beside the softmax of this one.
        kt = al.stage(k[batch, kv, first : first + BLOCK_N, 0:W], boundary_check=edges(D, W))
        vt = al.stage(v[batch, kv, first - BLOCK_N : first, 0:Y], boundary_check=edges(E, Y))
        s = al.mma(qt, kt, al.zeros((BLOCK_M, BLOCK_N), al.float32))
        al.assert_tags(
            lambda i, j: s[i, j] == (head, m0 + i, kv, first + j, batch, al.once(0, D)),
            where=lambda i, j: (m0 + i < M) & (first + j < N),
        )
        if not BESIDE and n0 > 0:
            acc = al.mma(p, al.trans(vt), acc)
        if CAP != 0.0:
            s = al.tanh_approx(s * (scale * (LN2 / CAP)))
        if OTHER:
            s = s * (unit_of(scale, CAP, False) * LN2)
        if slopes is not None:
            away = (first + keys)[None, :] - (m0 + al.arange(BLOCK_M) + (N - M))[:, None]
            s = s + slope * away.to(al.float32)
        if bias is not None:
            added = bias[batch, head, m0 : m0 + BLOCK_M, first : first + BLOCK_N]
            s = s + al.load(added, boundary_check=(0, 1)).to(al.float32)
        if SCORE is not None:
            i, j = (m0 + al.arange(BLOCK_M))[:, None], (first + keys)[None, :]
            s = SCORE(s, batch, head, i, j)
        unit = unit_of(scale, CAP, OTHER)
        if whole < first + BLOCK_N:
            s = al.where((first + keys)[None, :] < ends[:, None], s, NEVER)
        if WINDOW and first < m0 + BLOCK_M + (N - M) - WINDOW:
            s = al.where(ends[:, None] - WINDOW <= (first + keys)[None, :], s, NEVER)
        if MASK is not None:
            i, j = (m0 + al.arange(BLOCK_M))[:, None], (first + keys)[None, :]
            s = al.where(MASK(batch, head, i, j), s, NEVER)
        if BESIDE:
            acc = al.mma(p, al.trans(vt), acc)
        top, shift, shrink = raise_top(s, top, unit)
        acc = acc * shrink[:, None]  # ends the product before: from here on, its registers are free for new weights
        w = al.exp2(al.fma(s, unit, shift[:, None]))
        total = total * shrink + al.sum(w, axis=1)
        p = al.moderate(w).to(DTYPE)
        al.tag(p, lambda i, j: dict(h=head, m=m0 + i, kv=kv, n=first + j, b=batch))
    last = begin + (al.cdiv(length, BLOCK_N) - 1) * BLOCK_N
    vt = al.stage(v[batch, kv, last : last + BLOCK_N, 0:Y], boundary_check=edges(E, Y))
    acc = al.mma(p, al.trans(vt), acc)
    # Every key once, up to the last block that a row of these may see.
    if W == D:
        al.assert_tags(lambda i, j: acc[i, j].n == al.once(begin, al.minimum(last + BLOCK_N, N)))
        al.assert_tags(lambda i, j: acc[i, j].m == m0 + i)
        al.assert_tags(lambda i, j: acc[i, j].e == j)
    y = acc * (1.0 / al.where(total == 0.0, 1.0, total))[:, None]
    al.store(o[batch, head, part, m0 : m0 + BLOCK_M, 0:Y], y.to(OUT), boundary_check=edges(E, Y))
    rows = m0 + al.arange(BLOCK_M)
    unit = unit_of(scale, CAP, OTHER)
    level = al.where(top == NEVER, 0.0, top * unit) + al.log2(total)
    al.store(lse[batch, head, part, rows], level * LN2, mask=rows < M)


@argus.kernel(num_warps=8)
def attention_forward(
    q: al.Tensor[DTYPE, "B H M D"],
    k: al.Tensor[DTYPE, "B HK N D"],
    v: al.Tensor[DTYPE, "B HK N D"],
    o: al.Tensor[OUT, "B H P M D"],
    lse: al.Tensor[al.float32, "B H P M"],
    scale: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    OUT: al.constexpr = al.bfloat16,
    D: al.constexpr = 128,
    GROUP: al.constexpr = 1,
    CAUSAL: al.constexpr = False,
    BLOCK_M: al.constexpr = 128,
    BLOCK_N: al.constexpr = 128,
    STAGES: al.constexpr = 2,
    VALUES: al.constexpr = True,
    HEADS: al.constexpr = 33,
    SCHEDULE: al.constexpr = "rows",
    PARTS: al.constexpr = 1,
    SPAN: al.constexpr = 0,
    BESIDE: al.constexpr = False,
    WIDTH: al.constexpr = 0,
    WINDOW: al.constexpr = 0,
    CAP: al.constexpr = 0.0,
    SCORE: al.constexpr = None,
    MASK: al.constexpr = None,
    RANGE: al.constexpr = None,
    INVARIANT: al.constexpr = False,
):
    """Attention as `attend` computes it."""
    attend(
        q, k, v, o, lse, scale, None, None, None,
        DTYPE, OUT, D, GROUP, CAUSAL, BLOCK_M, BLOCK_N, STAGES, VALUES, HEADS, SCHEDULE, PARTS, SPAN, BESIDE, WIDTH,
        WINDOW, CAP, SCORE, MASK, RANGE, INVARIANT,
    )  # fmt: skip


@argus.kernel(num_warps=4)
def attention_combine(
    parts: al.Tensor[al.float32, "Z P M D"],
    levels: al.Tensor[al.float32, "Z P M"],
    o: al.Tensor[DTYPE, "Z M D"],
    lse: al.Tensor[al.float32, "Z M"],
    DTYPE: al.constexpr = al.bfloat16,
    D: al.constexpr = 128,
    ROOM: al.constexpr = 16,
    SIDE: al.constexpr = 16,
):
    """Combine the attention to `parts` of the keys by their log-sum-exps, `levels`, into `o` and its log-sum-exp.

    A block joins the at most ROOM parts of a row, SIDE of them at a time. Parts without keys add zeros to the sums:
    the bits do not depend on how many of those there are.
    """
    Z, P, M = parts.shape[0], parts.shape[1], parts.shape[2]
    al.requires((0 < P) & (P <= ROOM))
    al.invariant(o, Z)
    al.invariant(lse, Z)
    al.spec(o, lambda z, i, e: al.sum(lambda t: al.softmax(lambda u: levels[z, u, i])[t] * parts[z, t, i, e]))
    al.spec(lse, lambda z, i: al.logsumexp(lambda t: levels[z, t, i]))
    z, i = al.grid(Z, M)  # the other axes of the hardware end at 65535
    every = al.arange(ROOM)
    top = al.max(al.load(levels[z, every, i], mask=every < P, other=NEVER))
    shift = al.where(top == NEVER, 0.0, top)
    totals = al.zeros((SIDE,), al.float32)
    acc = al.zeros((SIDE, D), al.float32)
    for first in range(0, P, SIDE):
        t = first + al.arange(SIDE)
        weight = al.exp(al.load(levels[z, t, i], mask=t < P, other=NEVER) - shift)
        x = al.load(parts[z, t, i, :], mask=(t < P)[:, None])
        totals += weight
        acc += x * weight[:, None]
    total = al.sum(totals)
    y = al.sum(acc, axis=0) * (1.0 / al.where(total == 0.0, 1.0, total))
    al.store(o[z, i, :], y.to(DTYPE))
    al.store(lse[z, i], shift + al.log(total))


def room_of(parts: int) -> int:
    """Return the constant ROOM for this many parts."""
    return 1 << max(4, (parts - 1).bit_length())


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of queries `[B, H, M, D]` to keys and values `[B, H / G, N, D]`, float16 or bfloat16.

    D is 64 or 128; dimensions may have any strides, the last is copied unless it is contiguous. G query heads share a
    head of keys and values. `causal`: query i sees the keys up to i + N - M, as if both ended together. `scale`,
    positive, is 1 / sqrt(D) if not given. With `return_lse` also the logarithm of each row's sum of exponentials,
    float32 `[B, H, M]`. Rows that see no key give zeros and -inf. Raises LaunchError.
    """
    o, lse = attention_function((q, k, v), scale_of(scale), (causal,))
    return (o, lse) if return_lse else o


def _work(tensors: tuple[torch.Tensor, ...], numbers: tuple[Number, ...], causal: bool) -> Work:
    q, k, v = tensors
    dtype, group = checked(q, k, v)
    made = results_like(q)
    if not (k.shape[2] and q.numel()):
        return Work((), (made[0].zero_(), made[1].fill_(NEVER)))
    read = tuple(x if x.stride(3) == 1 else x.contiguous() for x in tensors)
    causal = causal and q.shape[2] > 1  # the last query sees all keys
    aligned = all(t.data_ptr() % 16 == 0 and all(s % 8 == 0 for s in t.stride()[:3]) for t in (*read, made[0]))
    target = target_of(str(q.device))
    hopper = aligned and target == "sm_90a"
    rows = _together(read[0], group) if group > 1 else None
    scale = numbers or (q.shape[3] ** -0.5 * LOG2E,)
    if rows is not None and not causal:
        read, group = (rows, *read[1:]), 1
    (B, H, M, size), (_, shared, N, _) = read[0].shape, k.shape
    problem = AttentionShape(size, M, N, B * H, B * shared, causal)
    constants = {"DTYPE": dtype, "D": size, "GROUP": group, "CAUSAL": causal}
    if hopper and rows is not None and causal and apart(problem):
        return _apart(read, rows, made, scale, constants)
    elsewhere = wave_tiles(problem, dtype) if target == "gfx942" else _ELSEWHERE
    tiles = hopper_tiles(problem) if hopper else elsewhere
    constants |= tiles
    parts = int(tiles.get("PARTS", 1))
    if parts == 1:
        written = made[0].view(B, H, 1, M, size), made[1].view(B, H, 1, M)
        return Work((Call(attention_forward, (*read, *written, *scale), {**constants, "OUT": dtype}),), made)
    rooms, written = _parts(made, parts, B, H)
    first = Call(attention_forward, (*read, *written, *scale), {**constants, "OUT": float32})
    return Work((first, *_join(rooms, made, B, H, dtype)), made)


def _apart(
    read: tuple[torch.Tensor, ...],
    rows: torch.Tensor,
    made: tuple[torch.Tensor, ...],
    scale: tuple[Number, ...],
    constants: Mapping[str, object],
) -> Work:
    """Compute causal queries that are fewer than the keys in parts: the keys that all queries see, for `rows`, in which
    heads that share keys are one head; and as one more part the other keys, head by head."""
    (q, k, v), (B, H, M, size) = read, read[0].shape
    shared, both = k.shape[1], k.shape[2] - M
    tiles = hopper_tiles(AttentionShape(size, rows.shape[2], both, B * shared, B * shared, False))
    parts = int(tiles.get("PARTS", 1))
    rooms, written = _parts(made, parts + 1, B, shared)
    first = written[0][:, :, :parts], written[1][:, :, :parts]
    last = rooms[0][parts:].view(B, H, 1, M, size), rooms[1][parts:].view(B, H, 1, M)
    constants = {**constants, "OUT": float32}
    rest = AttentionShape(size, M, M, B * H, B * shared, True)
    read = rows, k[:, :, :both], v[:, :, :both]
    before = Call(attention_forward, (*read, *first, *scale), {**constants, "GROUP": 1, "CAUSAL": False, **tiles})
    read = q, k[:, :, both:], v[:, :, both:]
    beside = Call(attention_forward, (*read, *last, *scale), {**constants, **hopper_tiles(rest)})
    return Work((before, beside, *_join(rooms, made, B, shared, constants["DTYPE"])), made)


Tensors = tuple[Any, ...]


def _parts(made: Tensors, parts: int, batch: int, heads: int) -> tuple[Tensors, Tensors]:
    """Room for results of parts of the keys, part by part; and the same as results, of so many heads."""
    o, lse = made
    rooms = lse.new_empty(parts, *o.shape), lse.new_empty(parts, *lse.shape)
    shape = (parts, batch, heads, -1)
    return rooms, (rooms[0].view(*shape, o.shape[3]).movedim(0, 2), rooms[1].view(shape).movedim(0, 2))


def _join(rooms: Tensors, made: Tensors, batch: int, heads: int, dtype: object) -> list[Call]:
    """Return the calls that join the parts of all heads: one, or one for each batch if heads lie within rows."""
    (o, lse), parts, size = made, len(rooms[0]), made[0].shape[3]
    joined = rooms[0].view(parts, batch, heads, -1, size).movedim(0, 2), rooms[1].view(parts, batch, heads, -1)
    given = [joined[0], joined[1].movedim(0, 2), o.view(batch, heads, -1, size), lse.view(batch, heads, -1)]
    constants = {"DTYPE": dtype, "D": size, "ROOM": room_of(parts)}
    if o.is_contiguous():
        return [Call(attention_combine, tuple(x.flatten(0, 1) for x in given), constants)]
    return [Call(attention_combine, tuple(x[b] for x in given), constants) for b in range(batch)]


def _fake(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, _scale: float | None, _causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    checked(q, k, v)
    return results_like(q)


def _joined(tensors: Tensors, numbers: tuple[Number, ...], way: tuple[bool]) -> Tensors:
    return (*tensors, numbers[0] / LOG2E if numbers else None, *way)


def _split(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None, causal: bool
) -> tuple[Tensors, tuple[Number, ...], tuple[bool]]:
    return (q, k, v), () if scale is None else (scale * LOG2E,), (causal,)


attention_function = Function(
    _work,
    Operator(
        "attention(Tensor q, Tensor k, Tensor v, float? scale=None, bool causal=False) -> (Tensor, Tensor)",
        _fake,
        join=_joined,
        split=_split,
    ),
)


def _together(q: torch.Tensor, group: int) -> torch.Tensor | None:
    """Return the rows of all query heads of a head of keys as the rows of one head, if they are adjacent in memory.
    Less is padded then, and keys are loaded once for all of them. Without a mask, nothing depends on the head."""
    batch, heads, rows, size = q.shape
    if rows > 1 and q.stride(1) != rows * q.stride(2):
        return None
    return q.view(batch, heads // group, group * rows, size)
