"""Attention, forward, of 8-bit floats with a scale for each head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.ir.types import DTYPES, DType, float16
from argus.kernels.attention import programs
from argus.kernels.attention_operands import HEAD_SIZES, scale_of
from argus.kernels.attention_scores import NEVER, raise_top
from argus.kernels.blockwise import multiplied
from argus.kernels.exponentials import LN2, LOG2E
from argus.kernels.rows import dtype_of, same_rank, same_shape
from argus.runtime.device import target_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch

_VECTOR = 16  # keys: rows of the copy engine's tiles begin at multiples of 16 bytes
_HOPPER: Mapping[str, Any] = {"BLOCK_M": 128, "BLOCK_N": 128, "STAGES": 2, "num_warps": 8}
_ELSEWHERE: Mapping[str, Any] = {"BLOCK_M": 64, "BLOCK_N": 32, "STAGES": 2, "num_warps": 4, "MULTIPLY": float16}
_RESULTS = {name: DTYPES[name] for name in ("bfloat16", "float16")}
Tensors = tuple[Any, ...]


@argus.func
def factored_score(q, k, factor, b, h, i, j, reach, scale, GROUP):
    """Return the score of query i and key j, times the factor of the head; -inf for keys that i cannot see."""
    return al.where(
        j <= i + reach,
        al.sum(lambda d: q[b, h, i, d] * k[b, h // GROUP, j, d]) * factor[h] * (scale * LN2),
        NEVER,
    )


@argus.kernel(num_warps=8)
def attention_eight_bits(
    q: al.Tensor[al.float8_e4m3fn, "B H M D"],
    k: al.Tensor[al.float8_e4m3fn, "B HK N D"],
    v: al.Tensor[al.float8_e4m3fn, "B HK D N"],
    factor: al.Tensor[al.float32, "H"],
    value_scale: al.Tensor[al.float32, "HK"],
    o: al.Tensor[OUT, "B H M D"],
    lse: al.Tensor[al.float32, "B H M"],
    scale: al.float32,
    OUT: al.constexpr = al.bfloat16,
    MULTIPLY: al.constexpr = al.float8_e4m3fn,
    D: al.constexpr = 128,
    GROUP: al.constexpr = 1,
    CAUSAL: al.constexpr = False,
    BLOCK_M: al.constexpr = 128,
    BLOCK_N: al.constexpr = 128,
    STAGES: al.constexpr = 2,
    HEADS: al.constexpr = 33,
):
    """Compute `o = softmax(q @ k.T * factor * scale) @ v * value_scale`, and the log-sum-exp of each row.

    `scale` includes log2(e). GROUP heads of q share one of k and v, whose keys are contiguous. Causal: row i sees the
    keys up to i + N - M. Roundings, none of which the specification has: the weight of a key, relative to the largest
    so far, is rounded to MULTIPLY before it is multiplied, and the result to OUT. Sums are of float32, and the sum of
    weights is that of the weights before they are rounded.
    """
    B, H, M = q.shape[0], q.shape[1], q.shape[2]
    HK, N = k.shape[1], k.shape[2]
    al.requires(H == HK * GROUP)
    al.requires(scale > 0.0)
    reach = N - M if CAUSAL else N
    al.spec(
        o,
        lambda b, h, i, e: (
            al.sum(
                lambda n: (
                    v[b, h // GROUP, e, n]
                    * al.softmax(lambda j: factored_score(q, k, factor, b, h, i, j, reach, scale, GROUP))[n]
                )
            )
            * value_scale[h // GROUP]
        ),
    )
    al.spec(
        lse,
        lambda b, h, i: al.logsumexp(lambda j: factored_score(q, k, factor, b, h, i, j, reach, scale, GROUP)),
    )
    head, batch, _, m0, ends, whole, stop = programs(M, N, H, B, BLOCK_M, CAUSAL, HEADS, "cooperative", 1)
    kv, keys = head // GROUP, al.arange(BLOCK_N)
    length = al.maximum(stop, 1)
    qt = al.stage(q[batch, head, m0 : m0 + BLOCK_M, :], boundary_check=(0,))
    own = al.load(factor[head])
    top = al.full((BLOCK_M,), NEVER, al.float32)
    total = al.zeros((BLOCK_M,), al.float32)
    acc = al.zeros((BLOCK_M, D), al.float32)
    for first in al.pipelined(0, length, BLOCK_N, stages=STAGES, producer_warps=4):
        kt = al.stage(k[batch, kv, first : first + BLOCK_N, :], boundary_check=(0,))
        vt = al.stage(v[batch, kv, :, first : first + BLOCK_N], boundary_check=(1,))
        s = al.mma(multiplied(qt, MULTIPLY), multiplied(kt, MULTIPLY), al.zeros((BLOCK_M, BLOCK_N), al.float32))
        s = s * own
        if whole < first + BLOCK_N:
            s = al.where((first + keys)[None, :] < ends[:, None], s, NEVER)
        top, shift, shrink = raise_top(s, top, scale)
        acc = acc * shrink[:, None]
        w = al.exp2(al.fma(s, scale, shift[:, None]))
        total = total * shrink + al.sum(w, axis=1)
        # Registers of sums are not those of a left operand of 8 bits: weights go through shared memory.
        pt = al.stage(w.to(MULTIPLY))
        acc = al.mma(multiplied(pt, MULTIPLY), multiplied(vt, MULTIPLY), acc)
    y = acc * (1.0 / al.where(total == 0.0, 1.0, total))[:, None] * al.load(value_scale[kv])
    al.store(o[batch, head, m0 : m0 + BLOCK_M, :], y.to(OUT), boundary_check=(0,))
    rows = m0 + al.arange(BLOCK_M)
    level = al.where(top == NEVER, 0.0, top * scale) + al.log2(total)
    al.store(lse[batch, head, rows], level * LN2, mask=rows < M)


def attention_float8(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    query_scale: torch.Tensor,
    key_scale: torch.Tensor,
    value_scale: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    out_dtype: torch.dtype | None = None,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of queries `[B, H, M, D]` to keys and values `[B, H / G, N, D]` of float8_e4m3fn, times their scales.

    Scales are float32, one for each head of q, k or v, or `[1]` for all of them. D is 64 or 128. Values are copied,
    with the keys one behind the other, unless they stand so already (`v.mT` with rows of 16 bytes' multiples). On
    sm_90a weights are rounded to float8_e4m3fn, relative to the largest of their row so far: those below 2**-10 of it
    count as none. Elsewhere operands are multiplied as float16. The result is of `out_dtype`: bfloat16 (the default) or
    float16. `causal`, `scale` and `return_lse` are those of `attention`. No gradient. Raises LaunchError.
    """
    import torch

    _checked(q, k, v, query_scale, key_scale, value_scale)
    group = q.shape[1] // k.shape[1]
    factor = query_scale.expand(q.shape[1]) * key_scale.expand(k.shape[1]).repeat_interleave(group)
    found = "bfloat16" if out_dtype is None else str(out_dtype).removeprefix("torch.")
    if found not in _RESULTS:
        raise LaunchError.of("dtype-mismatch", f"the result cannot be {found}", f"use one of {', '.join(_RESULTS)}")
    given = (q, k, _keys_together(v), factor, value_scale.expand(k.shape[1]).contiguous())
    o, lse = _attention(given, scale_of(scale), (causal, getattr(torch, found)))
    return (o, lse) if return_lse else o


def _keys_together(v: torch.Tensor) -> torch.Tensor:
    """Return values as `[B, H, D, N]`, each row of which begins at a multiple of 16 bytes."""
    B, H, N, D = v.shape
    turned = v.mT
    if turned.stride(3) == 1 and all(s % _VECTOR == 0 for s in turned.stride()[:3]):
        return turned
    return v.new_empty(B, H, D, -(-N // _VECTOR) * _VECTOR)[..., :N].copy_(turned)


def _checked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *scales: torch.Tensor) -> None:
    """Raise LaunchError unless all tensors fit."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        same_rank(name, x, 4)
        dtype_of(name, x, ("float8_e4m3fn",))
    (batch, heads, _, size), shared = q.shape, k.shape[1]
    same_shape("k", k, (batch, *k.shape[1:3], size))
    same_shape("v", v, tuple(k.shape))
    if size not in HEAD_SIZES or not shared or heads % shared:
        what = f"{heads} heads of {size} elements on {shared} of keys"
        help = "pass heads of 64 or 128 elements, and a divisor of them as heads of keys"
        raise LaunchError.of("shape-mismatch", what, help)
    named = zip(("query_scale", "key_scale", "value_scale"), scales, (heads, shared, shared), strict=True)
    for name, x, count in named:
        dtype_of(name, x, ("float32",))
        same_shape(name, x, (1,) if tuple(x.shape) == (1,) else (count,))


def _work(tensors: Tensors, numbers: tuple[Number, ...], causal: bool, out: torch.dtype) -> Work:
    q, k, v, factor, value_scale = tensors
    made = _results(q, out)
    if not (k.shape[2] and q.numel()):
        return Work((), (made[0].zero_(), made[1].fill_(NEVER)))
    read = (*(x if x.stride(3) == 1 else x.contiguous() for x in (q, k)), v)
    scale = numbers or (q.shape[3] ** -0.5 * LOG2E,)
    constants = {"OUT": _dtype(out), "D": q.shape[3], "GROUP": q.shape[1] // k.shape[1], **_tiles(*read, made[0])}
    constants["CAUSAL"] = causal and q.shape[2] > 1  # the last query sees all keys
    return Work((Call(attention_eight_bits, (*read, factor, value_scale, *made, *scale), constants),), made)


def _dtype(out: torch.dtype) -> DType:
    return _RESULTS[str(out).removeprefix("torch.")]


def _tiles(*tensors: torch.Tensor) -> Mapping[str, Any]:
    vectors = (_VECTOR // t.element_size() for t in tensors)
    aligned = all(
        t.data_ptr() % _VECTOR == 0 and all(s % vector == 0 for s in t.stride()[:3])
        for t, vector in zip(tensors, vectors, strict=True)
    )
    return _HOPPER if aligned and target_of(str(tensors[0].device)) == "sm_90a" else _ELSEWHERE


def _results(q: torch.Tensor, out: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    return q.new_empty(q.shape, dtype=out), q.new_empty(q.shape[:3], dtype=torch.float32)


def _fake(q: torch.Tensor, *given: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return _results(q, given[-1])


def _joined(tensors: Tensors, numbers: tuple[Number, ...], way: Tensors) -> Tensors:
    return (*tensors, numbers[0] / LOG2E if numbers else None, *way)


def _split(*given: Any) -> tuple[Tensors, tuple[Number, ...], Tensors]:
    *tensors, scale, causal, out = given
    return tuple(tensors), () if scale is None else (scale * LOG2E,), (causal, out)


_attention = Function(
    _work,
    Operator(
        "attention_float8(Tensor q, Tensor k, Tensor v, Tensor factor, Tensor value_scale, float? scale, bool causal,"
        " ScalarType out_dtype) -> (Tensor, Tensor)",
        _fake,
        join=_joined,
        split=_split,
    ),
)
