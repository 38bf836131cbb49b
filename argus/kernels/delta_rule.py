"""The gated delta rule on PyTorch tensors: the launches of `argus.kernels.delta_scan` in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from argus.backend.launch.evaluate import Number
from argus.ir.types import DType
from argus.kernels.attention_operands import rows_of_vectors
from argus.kernels.chunk_scan import chunk_outputs, levels
from argus.kernels.delta_scan import chunk_inverses, chunk_terms, chunk_updates
from argus.kernels.linear_attention import LARGEST, checked_mixer, power
from argus.kernels.rows import dtype_of, same_shape
from argus.runtime.device import target_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch


def gated_delta_rule(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, log_decay: torch.Tensor | None, beta: torch.Tensor
) -> torch.Tensor:
    """Return `out[t] = S[t] @ q[t]`, where `S[t] = exp(log_decay[t]) S[t - 1] + u[t] k[t].T`, and `u[t] = beta[t] (v[t]
    - exp(log_decay[t]) S[t - 1] @ k[t])`. The shape is `[B, T, H, D]`.

    `q` and `k` are `[B, T, J, E]`, `v` `[B, T, H, D]` with H a multiple of J (consecutive heads share q and k), all
    bfloat16 or float16, with D and E at most 128; `log_decay` and `beta` are `[B, T, H]` of float32. `log_decay` is at
    most 0; without it, nothing decays (the delta rule). Keys are usually of length 1, and `beta` is from 0 to 1: then
    the state stays bounded. Sums are of float32; `u` and the states between chunks are rounded to 16 bits. No gradient.
    Raises LaunchError.
    """
    given = beta.new_zeros(beta.shape) if log_decay is None else log_decay
    result: torch.Tensor = _rule((q, k, v, given, beta))
    return result


def _work(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...]) -> Work:
    dtype = _checked(*tensors)
    q, k, v, log_decay, beta = (t if t.stride(-1) == 1 else t.contiguous() for t in tensors)
    out = v.new_empty(v.shape)
    if not out.numel():
        return Work((), (out,))
    if not q.shape[3]:
        return Work((), (out.zero_(),))
    (batch, tokens, heads, width), features = v.shape, q.shape[3]
    target = target_of(str(v.device))
    small, stages = target == "cpu", 2 if target.startswith("sm_") else 1  # 64 KiB of LDS hold no more
    chunk = 32 if small else 64
    count, d, e = -(-tokens // chunk), power(width), power(features)
    all_k, all_v = _padded(k, count * chunk, e), _padded(v, count * chunk, d)
    rates, decays = (_padded(x, count * chunk, heads) for x in (beta, log_decay))
    level = rows_of_vectors(beta, batch, heads, count * chunk + 1)
    inverse = beta.new_empty(batch, heads, count * chunk, chunk)
    values, u = (v.new_empty(batch, heads, count * chunk, d) for _ in range(2))
    keys, states = v.new_empty(batch, heads, count * chunk, e), v.new_empty(batch, heads, count, d, e)
    way = {"DTYPE": dtype, "CHUNK": chunk, "SHARED": heads // q.shape[2], "E": e}
    last = {"D_BLOCK": d, "E_BLOCK": e, "SHARED": heads // q.shape[2], "num_warps": 8 if d == LARGEST else 4}
    known = (u.transpose(1, 2)[:, :tokens, :, :width], level[:, :, : tokens + 1], states[..., :width, :features])
    calls = (
        Call(levels, (decays, level), {"BLOCK": 64 if small else 1024}),
        Call(chunk_inverses, (all_k, rates, level, inverse), way),
        Call(chunk_terms, (all_k, all_v, rates, level, inverse, values, keys), {**way, "D": d}),
        Call(chunk_updates, (all_k, level, values, keys, states, u), {**way, "STAGES": stages}),
        Call(chunk_outputs, (q, k, *known, out), {"DTYPE": dtype, "CHUNK": chunk, **last}),
    )
    return Work(calls, (out,))


def _padded(x: torch.Tensor, tokens: int, width: int) -> torch.Tensor:
    """Return `x` with zeros behind its tokens and its last dimension, or `x` itself if it is as large as that."""
    if (x.shape[1], x.shape[-1]) == (tokens, width):
        return x
    found = x.new_zeros(x.shape[0], tokens, *x.shape[2:-1], width)
    found[:, : x.shape[1], ..., : x.shape[-1]] = x
    return found


def _checked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, log_decay: torch.Tensor, beta: torch.Tensor) -> DType:
    """Return the dtype. Raises LaunchError."""
    dtype = checked_mixer(q, k, v, log_decay)
    dtype_of("beta", beta, ("float32",))
    same_shape("beta", beta, tuple(v.shape[:3]))
    return dtype


def _fake(*tensors: Any) -> torch.Tensor:
    _checked(*tensors)
    result: torch.Tensor = tensors[2].new_empty(tensors[2].shape)
    return result


_rule = Function(
    _work,
    Operator("gated_delta_rule(Tensor q, Tensor k, Tensor v, Tensor log_decay, Tensor beta) -> Tensor", _fake),
)
