"""The gradients of attention: one kernel for keys and values, one for queries, without atomics. Each result is the sum
of the same terms in the same order in each run. Where that is not asked for, one kernel may compute all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.ir.types import DType
from argus.kernels.attention import attention_function
from argus.kernels.attention_backward_fused import FUSED_KEYS, ORDERS, fused_calls
from argus.kernels.attention_operands import HEAD_SIZES, VECTOR, checked, rows_of_vectors, scale_of, window_of
from argus.kernels.attention_weights import key_gradient, query_gradient, value_gradient
from argus.kernels.attention_with import attention_with_function
from argus.kernels.exponentials import LN2, LOG2E
from argus.kernels.rows import dtype_of, same_shape
from argus.runtime.device import target_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work
from argus.torch.gradient import attach

if TYPE_CHECKING:
    import torch

Tiles = Mapping[str, int | str]

# Rows of the results of a block are `BLOCK`, and `STEP` is how many of the other side it goes through at a time.
_HOPPER: Tiles = {"BLOCK": 128, "STEP": 64, "STAGES": 3, "num_warps": 8}
_KEYS_OF_64: Tiles = {**_HOPPER, "STEP": 128, "STAGES": 2}
"""Tiles of keys and values, heads of 64 elements: more rows a turn, because accumulators leave registers for them."""
_ELSEWHERE: Tiles = {"BLOCK": 64, "STEP": 16, "STAGES": 2, "num_warps": 4}


@argus.kernel(num_warps=4)
def attention_backward_rows(
    dy: al.Tensor[DTYPE, "B H M D"],
    y: al.Tensor[DTYPE, "B H M D"],
    lse: al.Tensor[al.float32, "B H M"] | None,
    dlse: al.Tensor[al.float32, "B H M"] | None,
    delta: al.Tensor[al.float32, "B H M"],
    level: al.Tensor[al.float32, "B H M"] | None,
    sums: al.Tensor[al.float32, "SUMS"] | None,
    DTYPE: al.constexpr = al.bfloat16,
    D: al.constexpr = 128,
    ROWS: al.constexpr = 32,
    SUMS: al.constexpr = "B H D M",
):
    """Compute `delta = sum(dy * y)` of each row, the mean of its weights' gradients, less that of the log-sum-exp,
    `dlse`; and `level = lse`, in rows that the copy engine can load. `sums` becomes 0."""
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
    if lse is not None and level is not None:
        al.spec(level, lambda b, h, i: lse[b, h, i])
        al.store(level[batch, head, rows], al.load(lse[batch, head, rows], mask=rows < M), mask=rows < M)
    if sums is not None:
        al.spec(sums, lambda b, h, x, i: 0.0)
        if SUMS == "B H D M":
            zeros = al.zeros((D, ROWS), al.float32)
            al.store(sums[batch, head, :, first : first + ROWS], zeros, boundary_check=(1,))
        else:
            zeros = al.zeros((ROWS, D), al.float32)
            al.store(sums[batch, head, first : first + ROWS, :], zeros, boundary_check=(0,))


@argus.kernel(num_warps=8)
def attention_backward_keys(
    q: al.Tensor[DTYPE, "B H GROUP M D"],
    k: al.Tensor[DTYPE, "B H N D"],
    v: al.Tensor[DTYPE, "B H N D"],
    dy: al.Tensor[DTYPE, "B H GROUP M D"],
    lse: al.Tensor[al.float32, "B H GROUP M"],
    delta: al.Tensor[al.float32, "B H GROUP M"],
    dk: al.Tensor[DTYPE, "B H N D"],
    dv: al.Tensor[DTYPE, "B H N D"],
    scale: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    D: al.constexpr = 128,
    GROUP: al.constexpr = 1,
    CAUSAL: al.constexpr = False,
    BLOCK: al.constexpr = 128,
    STEP: al.constexpr = 64,
    STAGES: al.constexpr = 2,
    HEADS: al.constexpr = 33,
    SCHEDULE: al.constexpr = "rows",
    WINDOW: al.constexpr = 0,
):
    """Compute `dv = p.T @ dy` and `dk = (p * (dy @ v.T - delta)).T @ q * scale`, `p` being the weights `exp(scores -
    lse)`.

    Both are sums over the GROUP heads of queries that share the keys. `scale` is the scores' times log2(e).
    """
    B, H, M, N = q.shape[0], q.shape[1], q.shape[3], k.shape[2]
    al.requires(M * GROUP <= 2**30)
    al.requires(scale > 0.0)
    reach = N - M if CAUSAL else N
    al.spec(dv, lambda b, h, j, e: value_gradient(q, k, dy, lse, b, h, j, e, reach, scale, WINDOW))
    al.spec(dk, lambda b, h, j, d: key_gradient(q, k, v, dy, lse, delta, b, h, j, d, reach, scale, WINDOW))
    # Causal: the first keys of some heads, which the most rows see, come first, so that the last round is short.
    if CAUSAL:
        head, batch, place = al.grid(H, B, al.cdiv(N, BLOCK), group=HEADS, persistent=True, schedule=SCHEDULE)
    else:
        place, head, batch = al.grid(al.cdiv(N, BLOCK), H, B, persistent=True, schedule=SCHEDULE)
    n0 = place * BLOCK
    keys = n0 + al.arange(BLOCK)
    # The first row that sees one of the keys, or up to three before it: where the copy engine may begin.
    begin = al.maximum(n0 - (N - M + 3) // 4 * 4, 0) if CAUSAL else 0
    kt = al.stage(k[batch, head, n0 : n0 + BLOCK, :], boundary_check=(0,))
    vt = al.stage(v[batch, head, n0 : n0 + BLOCK, :], boundary_check=(0,))
    values, scores = al.zeros((BLOCK, D), al.float32), al.zeros((BLOCK, D), al.float32)
    end = al.minimum(M, n0 + BLOCK - 1 + WINDOW - (N - M)) if WINDOW else M  # the last row that sees one of the keys
    turns = al.cdiv(al.maximum(end - begin, 1), STEP) * GROUP  # the same rows of one head after the other
    for turn in al.pipelined(0, turns, 1, stages=STAGES, producer_warps=4):
        one, first = turn % GROUP, begin + turn // GROUP * STEP
        rows = first + al.arange(STEP)
        qt = al.stage(q[batch, head, one, first : first + STEP, :], boundary_check=(0,))
        lt = al.stage(lse[batch, head, one, first : first + STEP], boundary_check=(0,))
        dt = al.stage(dy[batch, head, one, first : first + STEP, :], boundary_check=(0,))
        mt = al.stage(delta[batch, head, one, first : first + STEP], boundary_check=(0,))
        s = al.mma(kt, qt, al.zeros((BLOCK, STEP), al.float32))
        g = al.mma(vt, dt, al.zeros((BLOCK, STEP), al.float32))
        level = al.load(lt) * LOG2E
        p = al.exp2(al.fma(s, scale, -level[None, :]))
        if CAUSAL and first < n0 + BLOCK - (N - M) - 1:
            p = al.where(keys[:, None] <= rows[None, :] + (N - M), p, 0.0)
        if WINDOW and n0 + WINDOW < first + STEP + (N - M):
            p = al.where(rows[None, :] + (N - M) - WINDOW < keys[:, None], p, 0.0)
        mean = al.load(mt)
        r = p * (g - mean[None, :])
        # Both are rounded before either product starts: no left operand is written while a product runs.
        weights, slopes = p.to(DTYPE), r.to(DTYPE)
        values = al.mma(weights, al.trans(dt), values)
        scores = al.mma(slopes, al.trans(qt), scores)
    al.store(dv[batch, head, n0 : n0 + BLOCK, :], values.to(DTYPE), boundary_check=(0,))
    al.store(dk[batch, head, n0 : n0 + BLOCK, :], (scores * (scale * LN2)).to(DTYPE), boundary_check=(0,))


@argus.kernel(num_warps=8)
def attention_backward_queries(
    q: al.Tensor[DTYPE, "B H GROUP M D"],
    k: al.Tensor[DTYPE, "B H N D"],
    v: al.Tensor[DTYPE, "B H N D"],
    dy: al.Tensor[DTYPE, "B H GROUP M D"],
    lse: al.Tensor[al.float32, "B H GROUP M"],
    delta: al.Tensor[al.float32, "B H GROUP M"],
    dq: al.Tensor[DTYPE, "B H GROUP M D"],
    scale: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    D: al.constexpr = 128,
    GROUP: al.constexpr = 1,
    CAUSAL: al.constexpr = False,
    BLOCK: al.constexpr = 128,
    STEP: al.constexpr = 64,
    STAGES: al.constexpr = 2,
    HEADS: al.constexpr = 33,
    SCHEDULE: al.constexpr = "rows",
    WINDOW: al.constexpr = 0,
):
    """Compute `dq = (p * (dy @ v.T - delta)) @ k * scale`, as `attention_backward_keys`."""
    B, H, M, N = q.shape[0], q.shape[1], q.shape[3], k.shape[2]
    al.requires(H * GROUP <= 2**24)
    al.requires(scale > 0.0)
    reach = N - M if CAUSAL else N
    al.spec(
        dq,
        lambda b, h, g, i, d: (
            query_gradient(q, k, v, dy, lse, delta, b, h, g, i, d, reach, scale, WINDOW) * (scale * LN2)
        ),
    )
    # Causal: the last rows of some heads, which see the most keys, come first.
    if CAUSAL:
        both, batch, place = al.grid(H * GROUP, B, al.cdiv(M, BLOCK), group=HEADS, persistent=True, schedule=SCHEDULE)
        place = al.num_programs(2) - 1 - place
    else:
        place, both, batch = al.grid(al.cdiv(M, BLOCK), H * GROUP, B, persistent=True, schedule=SCHEDULE)
    head, one, m0 = both // GROUP, both % GROUP, place * BLOCK
    rows = m0 + al.arange(BLOCK)
    ends = rows + (N - M) + 1 if CAUSAL else N + 0 * rows  # of the keys that rows see: at most N in rows that there are
    whole = m0 + (N - M) + 1 if CAUSAL else N
    stop = al.minimum(m0 + BLOCK + (N - M), N) if CAUSAL else N
    qt = al.stage(q[batch, head, one, m0 : m0 + BLOCK, :], boundary_check=(0,))
    dt = al.stage(dy[batch, head, one, m0 : m0 + BLOCK, :], boundary_check=(0,))
    level = al.load(lse[batch, head, one, rows], mask=rows < M) * LOG2E
    mean = al.load(delta[batch, head, one, rows], mask=rows < M)
    acc = al.zeros((BLOCK, D), al.float32)
    begin = al.maximum(m0 + (N - M) + 1 - WINDOW, 0) // STEP * STEP if WINDOW else 0
    for n0 in al.pipelined(0, al.maximum(stop - begin, 1), STEP, stages=STAGES, producer_warps=4):
        first = begin + n0
        kt = al.stage(k[batch, head, first : first + STEP, :], boundary_check=(0,))
        vt = al.stage(v[batch, head, first : first + STEP, :], boundary_check=(0,))
        s = al.mma(qt, kt, al.zeros((BLOCK, STEP), al.float32))
        g = al.mma(dt, vt, al.zeros((BLOCK, STEP), al.float32))
        p = al.exp2(al.fma(s, scale, -level[:, None]))
        if whole < first + STEP:
            p = al.where((first + al.arange(STEP))[None, :] < ends[:, None], p, 0.0)
        if WINDOW and first < m0 + BLOCK + (N - M) - WINDOW:
            p = al.where(ends[:, None] - WINDOW <= (first + al.arange(STEP))[None, :], p, 0.0)
        r = p * (g - mean[:, None])
        acc = al.mma(r.to(DTYPE), al.trans(kt), acc)
    al.store(dq[batch, head, one, m0 : m0 + BLOCK, :], (acc * (scale * LN2)).to(DTYPE), boundary_check=(0,))


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
    window: int | None = None,
    scale: float | None = None,
    deterministic: bool | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of q, k and v, given those of `y, lse = attention(q, k, v, return_lse=True)`: `dy` and
    `dlse`.

    `q`, `k` and `v` are those of `attention`. `dy` and `y` have the result's shape `[B, H, M, D]` and q's dtype, `lse`
    and `dlse` are float32 `[B, H, M]`. `causal` and `scale` are those of `attention`, `window` that of
    `attention_with`. Without `dlse`, nothing depends on the log-sum-exp. The results are in q's dtype. If
    `deterministic`, they are the same in each run; None stands for `torch.are_deterministic_algorithms_enabled()`.
    Otherwise the gradients of q may be added in another order in each run: on sm_90a, without a window, if a row sees
    2048 keys on average. Raises LaunchError.
    """
    import torch

    if deterministic is None:
        deterministic = torch.are_deterministic_algorithms_enabled()
    tensors = (dy, q, k, v, y, lse) if dlse is None else (dy, q, k, v, y, lse, dlse)
    results: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = _backward(
        tensors, scale_of(scale), (causal, window_of(window, causal), deterministic)
    )
    return results


def _work(
    tensors: tuple[torch.Tensor, ...], numbers: tuple[Number, ...], causal: bool, window: int, deterministic: bool
) -> Work:
    dtype, group = _checked(*tensors)
    q, k, v = tensors[1:4]
    made = tuple(x.new_empty(x.shape) for x in (q, k, v))
    if not (k.numel() and q.numel()):
        return Work((), tuple(x.zero_() for x in made))
    dy, q, k, v, y = (x if x.stride(3) == 1 else x.contiguous() for x in tensors[:5])
    lse, dlse = tensors[5].contiguous(), tensors[6].contiguous() if len(tensors) > 6 else None
    delta, level = (rows_of_vectors(lse, *lse.shape) for _ in range(2))
    tiles = tiles_for(q, k, v, dy)
    seen = k.shape[2] // 2 if causal else k.shape[2]
    together = tiles is _HOPPER and seen >= FUSED_KEYS and not (window or deterministic)
    order = ORDERS[q.shape[3]]
    extents = q.shape[2:] if order == "M D" else (q.shape[3], q.shape[2])
    sums = rows_of_vectors(lse, *q.shape[:2], *extents) if together else None
    laid = {"SUMS": f"B H {order}"} if together else {}
    copied = (lse, dlse, delta, level) if lse.shape[2] % VECTOR else (None, dlse, delta, None)
    first = Call(attention_backward_rows, (dy, y, *copied, sums), {"DTYPE": dtype, "D": q.shape[3], **laid})
    lse = level if lse.shape[2] % VECTOR else lse
    scale = numbers or (q.shape[3] ** -0.5 * LOG2E,)
    constants: dict[str, object] = {"DTYPE": dtype, "D": q.shape[3], "GROUP": group}
    constants["CAUSAL"] = causal and (q.shape[2] > 1 or window > 0)  # the last query sees all keys, or its window
    shared = (q.shape[0], k.shape[1], group)
    grouped = [x.view(*shared, *x.shape[2:]) for x in (q, dy, lse, delta, made[0])]
    given = (grouped[0], k, v, *grouped[1:4])
    if sums is not None:
        return Work((first, *fused_calls(given, sums, made, scale, constants)), made)
    constants |= {**tiles, "WINDOW": min(window, k.shape[2]) if window else 0}
    wide = _KEYS_OF_64 if tiles is _HOPPER and q.shape[3] == 64 else tiles
    keys = Call(attention_backward_keys, (*given, *made[1:], *scale), {**constants, **wide})
    queries = Call(attention_backward_queries, (*given, grouped[4], *scale), constants)
    return Work((first, keys, queries), made)


def tiles_for(*tensors: torch.Tensor) -> Tiles:
    """Return the tiles of the gradients for the tensors' target and alignment."""
    aligned = all(t.data_ptr() % 16 == 0 and all(s % 8 == 0 for s in t.stride()[:-1]) for t in tensors)
    target = target_of(str(tensors[0].device))
    if target == "sm_90a" and aligned:
        return _HOPPER
    return _ELSEWHERE if target.startswith("sm_") else {**_ELSEWHERE, "STAGES": 1}  # 64 KiB of LDS hold no more


Tensors = tuple[Any, ...]


def _checked(
    dy: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    y: torch.Tensor,
    lse: torch.Tensor,
    dlse: torch.Tensor | None = None,
) -> tuple[DType, int]:
    """Return the dtype, and the number of query heads for each head of keys. Raises LaunchError."""
    dtype, group = checked(q, k, v)
    for name, x in (("dy", dy), ("y", y)):
        dtype_of(name, x, (dtype.name,))
        same_shape(name, x, tuple(q.shape))
    for name, x in (("lse", lse), ("dlse", lse if dlse is None else dlse)):
        dtype_of(name, x, ("float32",))
        same_shape(name, x, tuple(q.shape[:3]))
    return dtype, group


def _fake(*given: Any) -> Tensors:
    *tensors, _scale, _causal, _window, _deterministic = given
    _checked(*tensors)
    return tuple(x.new_empty(x.shape) for x in tensors[1:4])


def _joined(tensors: Tensors, numbers: tuple[Number, ...], way: tuple[bool, int, bool]) -> Tensors:
    dlse = tensors[6] if len(tensors) > 6 else None
    return (*tensors[:6], dlse, numbers[0] / LOG2E if numbers else None, *way)


def _split(*given: Any) -> tuple[Tensors, tuple[Number, ...], tuple[bool, int, bool]]:
    *tensors, scale, causal, window, deterministic = given
    found = tuple(x for x in tensors if x is not None)
    return found, () if scale is None else (scale * LOG2E,), (causal, window, deterministic)


_backward = Function(
    _work,
    Operator(
        "attention_backward(Tensor dy, Tensor q, Tensor k, Tensor v, Tensor y, Tensor lse, Tensor? dlse=None,"
        " float? scale=None, bool causal=False, int window=0, bool deterministic=False) -> (Tensor, Tensor, Tensor)",
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


def _save_with(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    q, k, v, *added, ctx.scale, ctx.causal, ctx.window, cap, _ = inputs
    ctx.other = any(x is not None for x in added) or cap or q.shape[3] not in HEAD_SIZES or v.shape != k.shape
    ctx.save_for_backward(q, k, v, *output)


def _gradients_with(ctx: Any, dy: torch.Tensor | None, dlse: torch.Tensor | None) -> tuple[Any, ...]:
    if ctx.other:
        what = "`attention_with` has a gradient of windows alone, and of heads of 64 or 128 elements"
        raise LaunchError.of("no-gradient", what, "call it under torch.no_grad(), or detach its arguments")
    q, k, v, y, lse = ctx.saved_tensors
    given = y.new_zeros(y.shape) if dy is None else dy
    way = {"causal": ctx.causal, "window": ctx.window or None, "scale": ctx.scale}
    return (*attention_backward(given, q, k, v, y, lse, dlse, **way), *(None,) * 8)


attach(attention_with_function, _gradients_with, _save_with)
