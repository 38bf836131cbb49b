"""The gradients of attention: one kernel for keys and values, one for queries, without atomics. Each result is the sum
of the same terms in the same order in each run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.ir.types import DType
from argus.kernels.attention import attention_function, checked, scale_of, together
from argus.kernels.rows import dtype_of, same_shape
from argus.kernels.shares import add_shares
from argus.runtime.device import target_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work
from argus.torch.gradient import attach

if TYPE_CHECKING:
    import torch

LN2 = 0.6931471805599453
LOG2E = 1.4426950408889634
Tiles = Mapping[str, int | str]

# Rows of the results of a block are `BLOCK`, and `STEP` is how many of the other side it goes through at a time.
_HOPPER: Tiles = {"BLOCK": 128, "STEP": 64, "num_warps": 8}
_ELSEWHERE: Tiles = {"BLOCK": 64, "STEP": 32, "num_warps": 4}
_IN_LDS: Tiles = {"BLOCK": 64, "STEP": 16, "STAGES": 1, "num_warps": 4}  # 64 KiB hold no more of 128 numbers


@argus.func
def weight(q, k, lse, b, h, kv, i, j, reach, scale):
    """The weight of key j in row i, which sees the keys up to i + reach."""
    score = al.sum(lambda d: q[b, h, i, d] * k[b, kv, j, d]) * (scale * LN2)
    return al.where(j <= i + reach, al.exp(score - lse[b, h, i]), 0.0)


@argus.func
def slope(dy, v, delta, b, h, kv, i, j):
    """The gradient of that weight, relative to the mean of the row, `delta`."""
    return al.sum(lambda x: dy[b, h, i, x] * v[b, kv, j, x]) - delta[b, h, i]


@argus.kernel(num_warps=4)
def attention_backward_rows(
    dy: al.Tensor[DTYPE, "B H M D"],
    y: al.Tensor[DTYPE, "B H M D"],
    dlse: al.Tensor[al.float32, "B H M"] | None,
    delta: al.Tensor[al.float32, "B H M"],
    DTYPE: al.constexpr = al.bfloat16,
    D: al.constexpr = 128,
    ROWS: al.constexpr = 32,
):
    """`delta = sum(dy * y)` of each row, the mean of its weights' gradients, less that of the log-sum-exp, `dlse`."""
    B, H, M = dy.shape[0], dy.shape[1], dy.shape[2]
    if dlse is None:
        al.spec(delta, lambda b, h, i: al.sum(lambda x: dy[b, h, i, x] * y[b, h, i, x]))
    else:
        al.spec(delta, lambda b, h, i: al.sum(lambda x: dy[b, h, i, x] * y[b, h, i, x]) - dlse[b, h, i])
    place, head, batch = al.grid(al.cdiv(M, ROWS), H, B)
    first = place * ROWS
    rows = first + al.arange(ROWS)
    given = al.load(dy[batch, head, first : first + ROWS, :], boundary_check=(0,)).to(al.float32)
    made = al.load(y[batch, head, first : first + ROWS, :], boundary_check=(0,)).to(al.float32)
    total = al.sum(given * made, axis=1)
    if dlse is not None:
        total = total - al.load(dlse[batch, head, rows], mask=rows < M)
    al.store(delta[batch, head, rows], total, mask=rows < M)


@argus.kernel(num_warps=8)
def attention_backward_keys(
    q: al.Tensor[DTYPE, "B H M D"],
    k: al.Tensor[DTYPE, "B HK N D"],
    v: al.Tensor[DTYPE, "B HK N D"],
    dy: al.Tensor[DTYPE, "B H M D"],
    lse: al.Tensor[al.float32, "B H M"],
    delta: al.Tensor[al.float32, "B H M"],
    dk: al.Tensor[OUT, "B H N D"],
    dv: al.Tensor[OUT, "B H N D"],
    scale: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    OUT: al.constexpr = al.bfloat16,
    D: al.constexpr = 128,
    GROUP: al.constexpr = 1,
    CAUSAL: al.constexpr = False,
    BLOCK: al.constexpr = 128,
    STEP: al.constexpr = 64,
    STAGES: al.constexpr = 2,
    SCHEDULE: al.constexpr = "rows",
):
    """`dv = p.T @ dy` and `dk = (p * (dy @ v.T - delta)).T @ q * scale`, `p` being the weights `exp(scores - lse)`.

    Arguments are those of `attention_forward`. A head of keys that GROUP heads of q share has a result for each.
    """
    B, H, M = q.shape[0], q.shape[1], q.shape[2]
    HK, N = k.shape[1], k.shape[2]
    al.requires(H == HK * GROUP)
    al.requires(scale > 0.0)
    reach = N - M if CAUSAL else N
    al.spec(
        dv,
        lambda b, h, j, e: al.sum(lambda i: weight(q, k, lse, b, h, h // GROUP, i, j, reach, scale) * dy[b, h, i, e]),
    )
    al.spec(
        dk,
        lambda b, h, j, d: (
            al.sum(
                lambda i: (
                    weight(q, k, lse, b, h, h // GROUP, i, j, reach, scale)
                    * slope(dy, v, delta, b, h, h // GROUP, i, j)
                    * q[b, h, i, d]
                )
            )
            * (scale * LN2)
        ),
    )
    # Causal: the first keys are seen by the most rows.
    place, head, batch = al.grid(al.cdiv(N, BLOCK), H, B, persistent=True, schedule=SCHEDULE)
    n0 = place * BLOCK
    keys, kv = n0 + al.arange(BLOCK), head // GROUP
    begin = al.maximum(n0 - (N - M), 0) if CAUSAL else 0
    kt = al.stage(k[batch, kv, n0 : n0 + BLOCK, :], boundary_check=(0,))
    vt = al.stage(v[batch, kv, n0 : n0 + BLOCK, :], boundary_check=(0,))
    values, scores = al.zeros((BLOCK, D), al.float32), al.zeros((BLOCK, D), al.float32)
    for m0 in al.pipelined(0, al.maximum(M - begin, 1), STEP, stages=STAGES, producer_warps=4):
        first = begin + m0
        rows = first + al.arange(STEP)
        qt = al.stage(q[batch, head, first : first + STEP, :], boundary_check=(0,))
        dt = al.stage(dy[batch, head, first : first + STEP, :], boundary_check=(0,))
        s = al.mma(kt, qt, al.zeros((BLOCK, STEP), al.float32))
        g = al.mma(vt, dt, al.zeros((BLOCK, STEP), al.float32))
        level = al.load(lse[batch, head, rows], mask=rows < M) * LOG2E
        mean = al.load(delta[batch, head, rows], mask=rows < M)
        p = al.exp2(al.fma(s, scale, -level[None, :]))
        if CAUSAL and first < n0 + BLOCK - (N - M) - 1:
            p = al.where(keys[:, None] <= rows[None, :] + (N - M), p, 0.0)
        values = al.mma(p.to(DTYPE), al.trans(dt), values)
        r = p * (g - mean[None, :])
        scores = al.mma(r.to(DTYPE), al.trans(qt), scores)
    al.store(dv[batch, head, n0 : n0 + BLOCK, :], values.to(OUT), boundary_check=(0,))
    al.store(dk[batch, head, n0 : n0 + BLOCK, :], (scores * (scale * LN2)).to(OUT), boundary_check=(0,))


@argus.kernel(num_warps=8)
def attention_backward_queries(
    q: al.Tensor[DTYPE, "B H M D"],
    k: al.Tensor[DTYPE, "B HK N D"],
    v: al.Tensor[DTYPE, "B HK N D"],
    dy: al.Tensor[DTYPE, "B H M D"],
    lse: al.Tensor[al.float32, "B H M"],
    delta: al.Tensor[al.float32, "B H M"],
    dq: al.Tensor[DTYPE, "B H M D"],
    scale: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    D: al.constexpr = 128,
    GROUP: al.constexpr = 1,
    CAUSAL: al.constexpr = False,
    BLOCK: al.constexpr = 128,
    STEP: al.constexpr = 64,
    STAGES: al.constexpr = 2,
    SCHEDULE: al.constexpr = "rows",
):
    """`dq = (p * (dy @ v.T - delta)) @ k * scale`, as `attention_backward_keys`."""
    B, H, M = q.shape[0], q.shape[1], q.shape[2]
    HK, N = k.shape[1], k.shape[2]
    al.requires(H == HK * GROUP)
    al.requires(scale > 0.0)
    reach = N - M if CAUSAL else N
    al.spec(
        dq,
        lambda b, h, i, d: (
            al.sum(
                lambda j: (
                    weight(q, k, lse, b, h, h // GROUP, i, j, reach, scale)
                    * slope(dy, v, delta, b, h, h // GROUP, i, j)
                    * k[b, h // GROUP, j, d]
                )
            )
            * (scale * LN2)
        ),
    )
    place, head, batch = al.grid(al.cdiv(M, BLOCK), H, B, persistent=True, schedule=SCHEDULE)
    place = al.num_programs(0) - 1 - place  # causal: the last rows see the most keys
    m0, kv = place * BLOCK, head // GROUP
    rows = m0 + al.arange(BLOCK)
    ends = rows + (N - M) + 1 if CAUSAL else N + 0 * rows  # of the keys that rows see: at most N in rows that there are
    whole = m0 + (N - M) + 1 if CAUSAL else N
    stop = al.minimum(m0 + BLOCK + (N - M), N) if CAUSAL else N
    qt = al.stage(q[batch, head, m0 : m0 + BLOCK, :], boundary_check=(0,))
    dt = al.stage(dy[batch, head, m0 : m0 + BLOCK, :], boundary_check=(0,))
    level = al.load(lse[batch, head, rows], mask=rows < M) * LOG2E
    mean = al.load(delta[batch, head, rows], mask=rows < M)
    acc = al.zeros((BLOCK, D), al.float32)
    for n0 in al.pipelined(0, al.maximum(stop, 1), STEP, stages=STAGES, producer_warps=4):
        kt = al.stage(k[batch, kv, n0 : n0 + STEP, :], boundary_check=(0,))
        vt = al.stage(v[batch, kv, n0 : n0 + STEP, :], boundary_check=(0,))
        s = al.mma(qt, kt, al.zeros((BLOCK, STEP), al.float32))
        g = al.mma(dt, vt, al.zeros((BLOCK, STEP), al.float32))
        p = al.exp2(al.fma(s, scale, -level[:, None]))
        if whole < n0 + STEP:
            p = al.where((n0 + al.arange(STEP))[None, :] < ends[:, None], p, 0.0)
        r = p * (g - mean[:, None])
        acc = al.mma(r.to(DTYPE), al.trans(kt), acc)
    al.store(dq[batch, head, m0 : m0 + BLOCK, :], (acc * (scale * LN2)).to(DTYPE), boundary_check=(0,))


def attention_backward(
    dy: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    y: torch.Tensor,
    lse: torch.Tensor,
    dlse: torch.Tensor | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of q, k and v, given those of `y, lse = attention(q, k, v, return_lse=True)`: `dy` and `dlse`.

    `causal` and `scale` are those of `attention`. Without `dlse`, nothing depends on the log-sum-exp. The results are
    in q's dtype, and the same in each run. Raises LaunchError.
    """
    tensors = (dy, q, k, v, y, lse) if dlse is None else (dy, q, k, v, y, lse, dlse)
    results: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = _backward(tensors, scale_of(scale), (causal,))
    return results


def _work(tensors: tuple[torch.Tensor, ...], numbers: tuple[Number, ...], causal: bool) -> Work:
    dtype, group = _checked(*tensors)
    q, k, v = tensors[1:4]
    made = tuple(x.new_empty(x.shape) for x in (q, k, v))
    if not (k.numel() and q.numel()):
        return Work((), tuple(x.zero_() for x in made))
    dy, q, k, v, y = (x if x.stride(3) == 1 else x.contiguous() for x in tensors[:5])
    lse, dlse = tensors[5].contiguous(), tensors[6].contiguous() if len(tensors) > 6 else None
    B, _, M, D = q.shape
    causal = causal and M > 1  # the last query sees all keys
    delta = lse.new_empty(lse.shape)
    first = Call(attention_backward_rows, (dy, y, dlse, delta), {"DTYPE": dtype, "D": D})
    scale = numbers or (D**-0.5 * LOG2E,)
    constants = {"DTYPE": dtype, "D": D, "CAUSAL": causal, **_tiles(q, k, v, dy)}
    rows = [together(x, group) for x in (q, dy)]
    if not causal and None not in rows:  # without a mask nothing tells the rows of heads that share keys apart
        levels = [x.view(B, -1, group * M) for x in (lse, delta)]
        room, given, group = made[1:], (rows[0], k, v, rows[1], *levels), 1
    else:
        room, given = _rooms(made, group), (q, k, v, dy, lse, delta)
    constants["GROUP"] = group
    keys = Call(attention_backward_keys, (*given, *room, *scale), {**constants, "OUT": dtype_of("dk", room[0])})
    heads = made[0].view(given[0].shape)
    queries = Call(attention_backward_queries, (*given, heads, *scale), constants)
    return Work((first, keys, *_sums(room, made, group), queries), made)


def _tiles(*tensors: torch.Tensor) -> Tiles:
    aligned = all(t.data_ptr() % 16 == 0 and all(s % 8 == 0 for s in t.stride()[:3]) for t in tensors)
    target = target_of(str(tensors[0].device))
    if target == "sm_90a" and aligned:
        return _HOPPER
    return _IN_LDS if target == "gfx942" else _ELSEWHERE


Tensors = tuple[Any, ...]


def _rooms(made: Tensors, group: int) -> Tensors:
    """Where the gradients of keys and values go: if heads share them, those of each head, in float32, to be summed."""
    import torch

    _, dk, dv = made
    if group == 1:
        return dk, dv
    batch, heads, keys, size = dk.shape
    return tuple(dk.new_empty(batch, heads * group, keys, size, dtype=torch.float32) for _ in (dk, dv))


def _sums(rooms: Tensors, made: Tensors, group: int) -> tuple[Call, ...]:
    """The launches that add those up."""
    if group == 1:
        return ()
    heads = made[1].shape[0] * made[1].shape[1]
    shape = {"OUT": dtype_of("dk", made[1]), "ROWS": 1 << (min(group, 8) - 1).bit_length(), "BLOCK": 512}
    return tuple(
        Call(add_shares, (room.view(heads, group, -1), out.view(heads, -1)), shape)
        for room, out in zip(rooms, made[1:], strict=True)
    )


def _checked(
    dy: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    y: torch.Tensor,
    lse: torch.Tensor,
    dlse: torch.Tensor | None = None,
) -> tuple[DType, int]:
    """The dtype, and the query heads of each head of keys. Raises LaunchError."""
    dtype, group = checked(q, k, v)
    for name, x in (("dy", dy), ("y", y)):
        dtype_of(name, x, (dtype.name,))
        same_shape(name, x, tuple(q.shape))
    for name, x in (("lse", lse), ("dlse", lse if dlse is None else dlse)):
        dtype_of(name, x, ("float32",))
        same_shape(name, x, tuple(q.shape[:3]))
    return dtype, group


def _fake(*given: Any) -> Tensors:
    *tensors, _scale, _causal = given
    _checked(*tensors)
    return tuple(x.new_empty(x.shape) for x in tensors[1:4])


def _joined(tensors: Tensors, numbers: tuple[Number, ...], way: tuple[bool]) -> Tensors:
    dlse = tensors[6] if len(tensors) > 6 else None
    return (*tensors[:6], dlse, numbers[0] / LOG2E if numbers else None, *way)


def _split(*given: Any) -> tuple[Tensors, tuple[Number, ...], tuple[bool]]:
    *tensors, scale, causal = given
    found = tuple(x for x in tensors if x is not None)
    return found, () if scale is None else (scale * LOG2E,), (causal,)


_backward = Function(
    _work,
    Operator(
        "attention_backward(Tensor dy, Tensor q, Tensor k, Tensor v, Tensor y, Tensor lse, Tensor? dlse, float? scale,"
        " bool causal) -> (Tensor, Tensor, Tensor)",
        _fake,
        join=_joined,
        split=_split,
    ),
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    q, k, v, ctx.scale, ctx.causal = inputs
    ctx.save_for_backward(q, k, v, *output)


def _gradients(ctx: Any, dy: torch.Tensor | None, dlse: torch.Tensor | None) -> tuple[Any, ...]:
    q, k, v, y, lse = ctx.saved_tensors
    given = y.new_zeros(y.shape) if dy is None else dy
    return (*attention_backward(given, q, k, v, y, lse, dlse, causal=ctx.causal, scale=ctx.scale), None, None)


attach(attention_function, _gradients, _save)
