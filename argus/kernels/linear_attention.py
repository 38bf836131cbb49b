"""Linear attention with decay on PyTorch tensors: the launches of `argus.kernels.chunk_scan` in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.ir.types import DType
from argus.kernels.chunk_scan import chunk_outputs, chunk_states, levels, states_before
from argus.kernels.rows import dtype_of, same_rank, same_shape
from argus.runtime.device import target_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch

_HALVES = ("bfloat16", "float16")
LARGEST = 128  # features of a head


def linear_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, log_decay: torch.Tensor) -> torch.Tensor:
    """Return `out[t] = sum(exp(log_decay[s + 1] + ... + log_decay[t]) * (q[t] . k[s]) * v[s] for s <= t)`.

    The shape is `[B, T, H, D]`.

    `q` and `k` are `[B, T, J, E]`, `v` `[B, T, H, D]` with H a multiple of J (consecutive heads share q and k), all
    bfloat16 or float16, with D and E at most 128; `log_decay` is `[B, T, H]` of float32, at most 0. It is the state
    space of Mamba-2 with `q = C`, `k = B`, `v = dt * x` and `log_decay = dt * A`, and linear attention with a gate for
    each head. Sums are of float32; a chunk's states are rounded to 16 bits. No gradient. Raises LaunchError.
    """
    result: torch.Tensor = _attention((q, k, v, log_decay))
    return result


def _work(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...]) -> Work:
    dtype = checked_mixer(*tensors)
    q, k, v, log_decay = (t if t.stride(-1) == 1 else t.contiguous() for t in tensors)
    out = v.new_empty(v.shape)
    if not out.numel():
        return Work((), (out,))
    if not q.shape[3]:
        return Work((), (out.zero_(),))
    (batch, tokens, heads, width), features = v.shape, q.shape[3]
    small = target_of(str(v.device)) == "cpu"
    chunk = 32 if small else 64
    count = -(-tokens // chunk)
    level = log_decay.new_empty(batch, heads, tokens + 1)
    states, before = (v.new_empty(batch, heads, count, width, features) for _ in range(2))
    flat = [t.view(batch, heads, count, width * features) for t in (states, before)]
    blocks = {"D_BLOCK": power(width), "E_BLOCK": power(features), "SHARED": heads // q.shape[2]}
    way = {"DTYPE": dtype, "CHUNK": chunk, **blocks, "num_warps": 8 if blocks["D_BLOCK"] == LARGEST else 4}
    rows = {"ROWS": 32, "COLUMNS": 32, "DEPTH": 32} if small else {}
    calls = (
        Call(levels, (log_decay, level), {"BLOCK": 64 if small else 1024}),
        Call(chunk_states, (k, v, level, states), way),
        Call(states_before, (flat[0], level, flat[1]), {"DTYPE": dtype, "CHUNK": chunk, **rows}),
        Call(chunk_outputs, (q, k, v, level, before, out), way),
    )
    return Work(calls, (out,))


def power(count: int) -> int:
    """Return the next power of two, at least 32: the side of a tile with room for `count` features."""
    return max(32, 1 << (count - 1).bit_length())


def checked_mixer(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, log_decay: torch.Tensor) -> DType:
    """Return the dtype of linear attention. Raises LaunchError."""
    for name, x in (("q", q), ("v", v)):
        same_rank(name, x, 4)
    dtype = dtype_of("q", q, _HALVES)
    for name, x in (("k", k), ("v", v)):
        dtype_of(name, x, (dtype.name,))
    dtype_of("log_decay", log_decay, ("float32",))
    same_shape("k", k, tuple(q.shape))
    batch, tokens, heads, width = v.shape
    same_shape("q", q, (batch, tokens, *q.shape[2:]))
    same_shape("log_decay", log_decay, (batch, tokens, heads))
    if not q.shape[2] or heads % q.shape[2]:
        what = f"{heads} heads of `v` cannot share {q.shape[2]} heads of `q` and `k`"
        raise LaunchError.of("shape-mismatch", what, "pass a multiple of the heads of `q`")
    if max(width, q.shape[3]) > LARGEST:
        what = f"heads have {width} and {q.shape[3]} features"
        raise LaunchError.of("shape-mismatch", what, f"this kernel takes at most {LARGEST}")
    return dtype


def _fake(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, log_decay: torch.Tensor) -> torch.Tensor:
    checked_mixer(q, k, v, log_decay)
    return v.new_empty(v.shape)


_attention = Function(
    _work, Operator("linear_attention(Tensor q, Tensor k, Tensor v, Tensor log_decay) -> Tensor", _fake)
)
