"""Short causal convolution along time with one filter for each channel, as sequence mixers apply it before their
scan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.ir.types import DType
from argus.kernels.gemm import silu
from argus.kernels.rows import dtype_of, same_rank, same_shape
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch

_ACTIVATIONS = {None: None, "silu": silu}
_MOST_TAPS = 8


@argus.func
def filtered(x, weight, b, t, d, W):
    """Return the weighted sum of the last W elements of a channel. Specifications use this function."""
    return al.sum(lambda w: al.where(t + w >= W - 1, weight[d, w] * x[b, t + w - (W - 1), d], 0.0))


@argus.kernel
def convolved(
    x: al.Tensor[DTYPE, "B T D"],
    weight: al.Tensor[DTYPE, "D W"],
    bias: al.Tensor[DTYPE, "D"] | None,
    out: al.Tensor[DTYPE, "B T D"],
    DTYPE: al.constexpr = al.bfloat16,
    ACTIVATION: al.constexpr = None,
    W: al.constexpr = 4,
    TIMES: al.constexpr = 16,
    BLOCK: al.constexpr = 256,
):
    """Compute `out[b, t, d] = activation(sum(weight[d, w] * x[b, t - W + 1 + w, d]) + bias[d])`. `x` counts as 0
    at negative times."""
    B, T, D = x.shape
    if ACTIVATION is None:
        al.spec(out, lambda b, t, d: filtered(x, weight, b, t, d, W) + (0.0 if bias is None else bias[d]))
    else:
        al.spec(out, lambda b, t, d: ACTIVATION(filtered(x, weight, b, t, d, W) + (0.0 if bias is None else bias[d])))
    block, span, b = al.grid(al.cdiv(D, BLOCK), al.cdiv(T, TIMES), B)
    t, d = (span * TIMES + al.arange(TIMES))[:, None], block * BLOCK + al.arange(BLOCK)
    total = al.zeros((TIMES, BLOCK), al.float32)
    for w in al.static_range(W):
        live = (t + w >= W - 1) & (t < T) & (d < D)
        factor = al.load(weight[d, w], mask=d < D).to(al.float32)
        total += factor * al.load(x[b, t + w - (W - 1), d], mask=live).to(al.float32)
    if bias is not None:
        total += al.load(bias[d], mask=d < D).to(al.float32)
    if ACTIVATION is not None:
        total = ACTIVATION(total)
    al.store(out[b, t, d], total.to(DTYPE), mask=(t < T) & (d < D))


def causal_conv1d(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, activation: str | None = None
) -> torch.Tensor:
    """Return `activation(conv(x) + bias)` of `x` `[B, T, D]` along T, with zeros before the first time step.

    The result is `[B, T, D]`.

    `weight` is `[D, W]` with W at most 8, the last tap that of the element itself; `bias` is `[D]`; `activation` is
    None or "silu". All are of float32, float16 or bfloat16, the same; float32 arithmetic. No gradient. Raises
    LaunchError.
    """
    tensors = (x, weight) if bias is None else (x, weight, bias)
    result: torch.Tensor = _conv(tensors, (), (activation,))
    return result


def _work(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...], activation: str | None) -> Work:
    dtype = _checked(*tensors, activation=activation)
    x = tensors[0] if tensors[0].stride(-1) == 1 else tensors[0].contiguous()
    weight, bias = tensors[1].contiguous(), tensors[2].contiguous() if len(tensors) > 2 else None
    out = x.new_empty(x.shape)
    if not out.numel():
        return Work((), (out,))
    block = min(256, max(32, 1 << (x.shape[2] - 1).bit_length()))
    constants = {"DTYPE": dtype, "ACTIVATION": _ACTIVATIONS[activation], "W": weight.shape[1], "BLOCK": block}
    return Work((Call(convolved, (x, weight, bias, out), {**constants, "TIMES": 4096 // block}),), (out,))


def _checked(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, activation: str | None
) -> DType:
    """Return the dtype. Raises LaunchError."""
    same_rank("x", x, 3)
    same_rank("weight", weight, 2)
    dtype, taps = dtype_of("x", x), weight.shape[1]
    dtype_of("weight", weight, (dtype.name,))
    same_shape("weight", weight, (x.shape[2], taps))
    if not 0 < taps <= _MOST_TAPS:
        raise LaunchError.of("shape-mismatch", f"`weight` has {taps} taps", f"use 1 to {_MOST_TAPS}")
    if bias is not None:
        dtype_of("bias", bias, (dtype.name,))
        same_shape("bias", bias, (x.shape[2],))
    if activation not in _ACTIVATIONS:
        raise LaunchError.of("argument-type", f"`activation` is {activation!r}", 'use None or "silu"')
    return dtype


def _fake(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: str | None) -> torch.Tensor:
    _checked(x, weight, bias, activation=activation)
    return x.new_empty(x.shape)


_conv = Function(
    _work,
    Operator(
        "causal_conv1d(Tensor x, Tensor weight, Tensor? bias=None, str? activation=None) -> Tensor",
        _fake,
        join=lambda tensors, _, way: (*tensors, *(None,) * (3 - len(tensors)), *way),
        split=lambda x, weight, bias, way: ((x, weight) if bias is None else (x, weight, bias), (), (way,)),
    ),
)
