"""Rotary embedding: pairs of features of every head are rotated by the angle of their token's position."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.ir.types import DType
from argus.kernels.rows import dtype_of, same_rank, same_shape
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work
from argus.torch.gradient import attach

if TYPE_CHECKING:
    import torch

_THREADS = 128
_EACH = 8  # pairs of a thread


@argus.kernel
def rotated(
    x: al.Tensor[DTYPE, "B T H D"],
    cos: al.Tensor[ANGLES, "T R"],
    sin: al.Tensor[ANGLES, "T R"],
    out: al.Tensor[DTYPE, "B T H D"],
    DTYPE: al.constexpr = al.bfloat16,
    ANGLES: al.constexpr = al.float32,
    BESIDE: al.constexpr = False,
    R: al.constexpr = 64,
    HEADS: al.constexpr = 16,
    BLOCK: al.constexpr = 64,
):
    """Features i and i + R of a head (BESIDE: 2 i and 2 i + 1) turn by the angle of `cos[t, i]`, `sin[t, i]`.

    Features from 2 R on stay. A block works on HEADS heads of a token.
    """
    B, T, H, D = x.shape
    al.invariant(out, B, T)
    al.requires((2 * R <= D) & (R <= BLOCK))
    if BESIDE:
        al.spec(
            out,
            lambda b, t, h, d: al.where(
                d < 2 * R,
                al.where(
                    d % 2 == 0,
                    x[b, t, h, d] * cos[t, d // 2] - x[b, t, h, d + 1] * sin[t, d // 2],
                    x[b, t, h, d] * cos[t, d // 2] + x[b, t, h, d - 1] * sin[t, d // 2],
                ),
                x[b, t, h, d],
            ),
        )
    else:
        al.spec(
            out,
            lambda b, t, h, d: al.where(
                d < R,
                x[b, t, h, d] * cos[t, d] - x[b, t, h, d + R] * sin[t, d],
                al.where(
                    d < 2 * R,
                    x[b, t, h, d] * cos[t, d - R] + x[b, t, h, d - R] * sin[t, d - R],
                    x[b, t, h, d],
                ),
            ),
        )
    t, group, b = al.grid(T, al.cdiv(H, HEADS), B)
    h, i = (group * HEADS + al.arange(HEADS))[:, None], al.arange(BLOCK)
    live = (h < H) & (i < R)
    c, s = al.load(cos[t, i], mask=i < R).to(al.float32), al.load(sin[t, i], mask=i < R).to(al.float32)
    first, second = (2 * i, 2 * i + 1) if BESIDE else (i, i + R)
    x0 = al.load(x[b, t, h, first], mask=live).to(al.float32)
    x1 = al.load(x[b, t, h, second], mask=live).to(al.float32)
    al.store(out[b, t, h, first], (x0 * c - x1 * s).to(DTYPE), mask=live)
    al.store(out[b, t, h, second], (x1 * c + x0 * s).to(DTYPE), mask=live)
    for d0 in range(2 * R, D, BLOCK):
        rest = d0 + i
        al.store(out[b, t, h, rest], al.load(x[b, t, h, rest], mask=(h < H) & (rest < D)), mask=(h < H) & (rest < D))


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, interleaved: bool = False) -> torch.Tensor:
    """Turn features i and i + R of queries or keys `[B, T, H, D]` by the angle of `cos[t, i]`, `sin[t, i]`.

    `cos` and `sin` are `[T, R]`, of one dtype; `2 R <= D`, and features from 2 R on stay as they are. `interleaved`:
    features 2 i and 2 i + 1 turn together. Dtypes are float32, float16 or bfloat16; float32 arithmetic. Differentiable
    with respect to `x`. Raises LaunchError.
    """
    result: torch.Tensor = _rotary((x, cos, sin), (), (interleaved,))
    return result


def _work(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...], interleaved: bool) -> Work:
    dtype, angles = _checked(*tensors)
    x, cos, sin = (t if t.stride(-1) == 1 else t.contiguous() for t in tensors)
    out = x.new_empty(x.shape)
    if not out.numel():
        return Work((), (out,))
    pairs, heads = cos.shape[1], x.shape[2]
    block = max(8, 1 << (pairs - 1).bit_length())
    rows = min(max(1, _THREADS * _EACH // block), 1 << (heads - 1).bit_length())
    warps = max(1, min(4, ceil(rows * block / (32 * _EACH))))
    constants = {"DTYPE": dtype, "ANGLES": angles, "BESIDE": interleaved, "R": pairs, "HEADS": rows, "BLOCK": block}
    return Work((Call(rotated, (x, cos, sin, out), {**constants, "num_warps": warps}),), (out,))


def _checked(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[DType, DType]:
    """Return the dtypes of x and of the angles. Raises LaunchError."""
    same_rank("x", x, 4)
    same_rank("cos", cos, 2)
    if not 0 < 2 * cos.shape[1] <= x.shape[3]:
        what = f"`cos` has angles of {cos.shape[1]} pairs, and heads have {x.shape[3]} features"
        raise LaunchError.of("shape-mismatch", what, "pass one angle for each pair of features, or for fewer")
    same_shape("cos", cos, (x.shape[1], cos.shape[1]))
    same_shape("sin", sin, tuple(cos.shape))
    angles = dtype_of("cos", cos)
    dtype_of("sin", sin, (angles.name,))
    return dtype_of("x", x), angles


def _fake(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, _interleaved: bool) -> torch.Tensor:
    _checked(x, cos, sin)
    return x.new_empty(x.shape)


_rotary = Function(_work, Operator("rotary(Tensor x, Tensor cos, Tensor sin, bool interleaved=False) -> Tensor", _fake))


def _save(ctx: Any, inputs: tuple[Any, ...], _output: torch.Tensor) -> None:
    _, cos, sin, ctx.interleaved = inputs
    ctx.save_for_backward(cos, sin)


def _backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Rotate the gradient back. Raises LaunchError if the angles need a gradient."""
    if any(ctx.needs_input_grad[1:3]):
        what = "`rotary` has no gradient with respect to its angles"
        raise LaunchError.of("no-gradient", what, "detach `cos` and `sin`")
    cos, sin = ctx.saved_tensors
    return _rotary((gradient, cos, -sin), (), (ctx.interleaved,)), None, None, None


attach(_rotary, _backward, _save)
