"""The gated delta rule on PyTorch tensors: the launches of `argus.kernels.delta_scan`, in chunks or for one token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from argus.backend.launch.evaluate import Number
from argus.ir.types import DType
from argus.kernels.attention_operands import rows_of_vectors
from argus.kernels.chunk_scan import chunk_outputs, levels
from argus.kernels.delta_scan import chunk_inverses, chunk_terms, chunk_updates, delta_step
from argus.kernels.linear_attention import LARGEST, checked_mixer, power
from argus.kernels.rows import dtype_of, same_rank, same_shape
from argus.runtime.device import target_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch


def gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor | None,
    beta: torch.Tensor,
    *,
    state: torch.Tensor | None = None,
    return_state: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Return `out[t] = S[t] @ q[t]`, where `S[t] = exp(log_decay[t]) S[t - 1] + u[t] k[t].T`, and `u[t] = beta[t] (v[t]
    - exp(log_decay[t]) S[t - 1] @ k[t])`. The shape is `[B, T, H, D]`.

    `q` and `k` are `[B, T, J, E]`, `v` `[B, T, H, D]` with H a multiple of J (consecutive heads share q and k), all
    bfloat16 or float16, with D and E at most 128; `log_decay` and `beta` are `[B, T, H]` of float32. `log_decay` is at
    most 0; without it, nothing decays (the delta rule). Keys are usually of length 1, and `beta` is from 0 to 1: then
    the state stays bounded. Sums are of float32; `u` and the states between chunks are rounded to 16 bits. `state`,
    float32 `[B, H, D, E]`, is the state before the first token, by default zero; `return_state` returns the one behind
    the last token as well, with which `gated_delta_step` goes on. No gradient. Raises LaunchError.
    """
    given = beta.new_zeros(beta.shape) if log_decay is None else log_decay
    out, last = _rule((q, k, v, given, beta) if state is None else (q, k, v, given, beta, state))
    return (out, last) if return_state else out


def gated_delta_step(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor | None,
    beta: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one token's `out` `[B, H, D]` of each sequence, and the state behind it, in one launch: `gated_delta_rule`
    of one token, without its dimension.

    `q` and `k` are `[B, J, E]`, `v` `[B, H, D]`, `log_decay` and `beta` `[B, H]`, `state` `[B, H, D, E]`. Nothing but
    the result is rounded to 16 bits. The bits of a sequence's results do not depend on the others, which is proved.
    Raises LaunchError.
    """
    given = beta.new_zeros(beta.shape) if log_decay is None else log_decay
    out, after = _step((q, k, v, given, beta, state))
    return out, after


def _work(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...]) -> Work:
    dtype = _checked(*tensors)
    q, k, v, log_decay, beta, *given = (t if t.stride(-1) == 1 else t.contiguous() for t in tensors)
    out, after = _empty(q, v)
    if not (out.numel() and q.shape[3]):
        return Work((), (out.zero_(), after.copy_(given[0]) if given else after.zero_()))
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
    first = _room_for(given[0], d, e) if given else None
    way = {"DTYPE": dtype, "CHUNK": chunk, "SHARED": heads // q.shape[2], "E": e}
    last = {"D_BLOCK": d, "E_BLOCK": e, "SHARED": heads // q.shape[2], "num_warps": 8 if d == LARGEST else 4}
    known = (u.transpose(1, 2)[:, :tokens, :, :width], level[:, :, : tokens + 1], states[..., :width, :features])
    calls = (
        Call(levels, (decays, level), {"BLOCK": 64 if small else 1024}),
        Call(chunk_inverses, (all_k, rates, level, inverse), way),
        Call(chunk_terms, (all_k, all_v, rates, level, inverse, values, keys), {**way, "D": d}),
        Call(chunk_updates, (all_k, level, values, keys, first, states, u, after), {**way, "STAGES": stages}),
        Call(chunk_outputs, (q, k, *known, out), {"DTYPE": dtype, "CHUNK": chunk, **last}),
    )
    return Work(calls, (out, after))


def _one_token(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...]) -> Work:
    dtype = _checked_step(*tensors)
    q, k, v, log_decay, beta, before = (t.contiguous() for t in tensors)
    out, after = v.new_empty(v.shape), before.new_empty(before.shape)
    if not out.numel():
        return Work((), (out, after))
    if not q.shape[2]:
        return Work((), (out.zero_(), after))
    way = {"DTYPE": dtype, "SHARED": v.shape[1] // q.shape[1], "BLOCK": power(q.shape[2])}
    return Work((Call(delta_step, (q, k, v, log_decay, beta, before, after, out), way),), (out, after))


def _empty(q: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return empty tensors for the result and the last state."""
    import torch

    state = v.new_empty(v.shape[0], *v.shape[2:], q.shape[3], dtype=torch.float32)
    return v.new_empty(v.shape), state


def _room_for(state: torch.Tensor, d: int, e: int) -> torch.Tensor:
    """Return the state with zeros behind its last two dimensions, or the state itself if it is as large as that."""
    if state.shape[2:] == (d, e):
        return state
    found = state.new_zeros(*state.shape[:2], d, e)
    found[..., : state.shape[2], : state.shape[3]] = state
    return found


def _padded(x: torch.Tensor, tokens: int, width: int) -> torch.Tensor:
    """Return `x` with zeros behind its tokens and its last dimension, or `x` itself if it is as large as that."""
    if (x.shape[1], x.shape[-1]) == (tokens, width):
        return x
    found = x.new_zeros(x.shape[0], tokens, *x.shape[2:-1], width)
    found[:, : x.shape[1], ..., : x.shape[-1]] = x
    return found


def _checked(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, log_decay: torch.Tensor, beta: torch.Tensor, *state: torch.Tensor
) -> DType:
    """Return the dtype. Raises LaunchError."""
    dtype = checked_mixer(q, k, v, log_decay)
    dtype_of("beta", beta, ("float32",))
    same_shape("beta", beta, tuple(v.shape[:3]))
    for x in state:
        dtype_of("state", x, ("float32",))
        same_shape("state", x, (v.shape[0], *v.shape[2:], q.shape[3]))
    return dtype


def _checked_step(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, log_decay: torch.Tensor, beta: torch.Tensor, state: torch.Tensor
) -> DType:
    """Return the dtype. Raises LaunchError."""
    for name, x, rank in (("q", q, 3), ("k", k, 3), ("v", v, 3), ("log_decay", log_decay, 2), ("beta", beta, 2)):
        same_rank(name, x, rank)
    return _checked(*(x[:, None] for x in (q, k, v, log_decay, beta)), state)


def _fake(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *more: torch.Tensor | None) -> Any:
    _checked(q, k, v, *(x for x in more if x is not None))
    return _empty(q, v)


def _fake_step(*tensors: torch.Tensor) -> Any:
    _checked_step(*tensors)
    return tensors[2].new_empty(tensors[2].shape), tensors[5].new_empty(tensors[5].shape)


def _joined(tensors: tuple[Any, ...], _numbers: tuple[Number, ...], _way: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*tensors, *(None,) * (6 - len(tensors)))


def _split(*given: Any) -> tuple[tuple[Any, ...], tuple[Number, ...], tuple[Any, ...]]:
    return tuple(x for x in given if x is not None), (), ()


_GIVEN = "Tensor q, Tensor k, Tensor v, Tensor log_decay, Tensor beta"
_rule = Function(
    _work,
    Operator(
        f"gated_delta_rule({_GIVEN}, Tensor? state=None) -> (Tensor, Tensor)", _fake, join=_joined, split=_split
    ),
)
_step = Function(_one_token, Operator(f"gated_delta_step({_GIVEN}, Tensor state) -> (Tensor, Tensor)", _fake_step))
