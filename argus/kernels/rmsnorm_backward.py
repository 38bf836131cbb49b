"""Compute the gradients of RMSNorm in one pass over memory. Each block processes several rows and sums its share of
`dweight`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.kernels.norm_gradients import NormGradient, checked
from argus.kernels.rmsnorm import rmsnorm_function
from argus.kernels.steps import group_at, mean_square, of_share, piece, piece_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Work
from argus.torch.gradient import attach

if TYPE_CHECKING:
    import torch


@argus.func
def inverse_root(x, eps, i):
    """Return 1 / sqrt(mean(x[i, :] ** 2) + eps)."""
    return al.rsqrt(mean_square(x, i) + eps)


@argus.func
def slope(dy, x, weight, eps, i):
    """Return mean(weight * dy[i, :] * x[i, :]) divided by mean(x[i, :] ** 2) + eps."""
    mean = al.sum(lambda k: weight[k] * dy[i, k] * x[i, k]) / x.shape[1].to(al.float32)
    return mean * (inverse_root(x, eps, i) * inverse_root(x, eps, i))


@argus.kernel
def rmsnorm_backward_rows(
    dy: al.Tensor[DTYPE, "M N"],
    x: al.Tensor[DTYPE, "M N"],
    weight: al.Tensor[WEIGHT, "N"],
    dx: al.Tensor[DTYPE, "M N"],
    parts: al.Tensor[al.float32, "BLOCKS N"],
    eps: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    WEIGHT: al.constexpr = al.bfloat16,
    BLOCKS: al.constexpr = 528,
    ROWS: al.constexpr = 4,
    BLOCK: al.constexpr = 1024,
    FROM: al.constexpr = 0,
):
    """Compute `dx = r * (weight * dy - x * mean(weight * dy * x) * r ** 2)`, with `r = 1 / sqrt(mean(x ** 2) + eps)`.

    A block has every BLOCKS-th group of ROWS rows, and adds up `dy * x * r` of these: its row of `parts`.
    """
    M, N = x.shape
    al.invariant(dx, M)
    al.requires((FROM <= N <= BLOCK) & (M <= 2**30))
    al.spec(dx, lambda i, j: inverse_root(x, eps, i) * (weight[j] * dy[i, j] - x[i, j] * slope(dy, x, weight, eps, i)))
    al.spec(
        parts,
        lambda p, j: al.sum(lambda i: of_share(i, p, ROWS, BLOCKS, dy[i, j] * (x[i, j] * inverse_root(x, eps, i)))),
    )
    block = al.grid(BLOCKS)
    cols = al.arange(BLOCK)
    inside = cols < N
    scale = al.load(weight[cols], mask=inside)
    total = al.zeros((ROWS, BLOCK), al.float32)
    loaded, given = group_at(x, block * ROWS, ROWS, BLOCK), group_at(dy, block * ROWS, ROWS, BLOCK)
    for first in range(block * ROWS, M, BLOCKS * ROWS):
        rows = first + al.arange(ROWS)[:, None]
        live = (rows < M) & inside
        values, gradient = loaded.to(al.float32), given.to(al.float32)
        loaded = group_at(x, first + BLOCKS * ROWS, ROWS, BLOCK)  # loaded while this group is processed
        given = group_at(dy, first + BLOCKS * ROWS, ROWS, BLOCK)
        scaled = scale.to(al.float32) * gradient
        squares = al.sum(values * values, axis=1, keep_dims=True)
        dot = al.sum(scaled * values, axis=1, keep_dims=True)
        root = al.where(rows < M, al.rsqrt(squares / N.to(al.float32) + eps), 0.0)
        share = dot / N.to(al.float32) * (root * root)
        al.store(dx[rows, cols], (root * (scaled - values * share)).to(DTYPE), mask=live)
        total += gradient * (values * root)
    al.store(parts[block, cols], al.sum(total, axis=0), mask=inside)


@argus.kernel
def rmsnorm_backward_long_rows(
    dy: al.Tensor[DTYPE, "M N"],
    x: al.Tensor[DTYPE, "M N"],
    weight: al.Tensor[WEIGHT, "N"],
    dx: al.Tensor[DTYPE, "M N"],
    roots: al.Tensor[al.float32, "M"],
    eps: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    WEIGHT: al.constexpr = al.bfloat16,
    BLOCK: al.constexpr = 4096,
):
    """Compute `dx` for rows of any length, which are read twice, BLOCK elements at a time; and `roots`, all r."""
    M, N = x.shape
    al.invariant(dx, M)
    al.invariant(roots, M)
    al.spec(dx, lambda i, j: inverse_root(x, eps, i) * (weight[j] * dy[i, j] - x[i, j] * slope(dy, x, weight, eps, i)))
    al.spec(roots, lambda i: inverse_root(x, eps, i))
    row = al.grid(M)
    squares, dots = al.zeros((BLOCK,), al.float32), al.zeros((BLOCK,), al.float32)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        values = piece(x, row, cols)
        scale = piece_of(weight, cols)
        squares += values * values
        dots += scale * piece(dy, row, cols) * values
    root = al.rsqrt(al.sum(squares) / N.to(al.float32) + eps)
    al.store(roots[row], root)
    share = al.sum(dots) / N.to(al.float32) * (root * root)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        values = piece(x, row, cols)
        scale = piece_of(weight, cols)
        scaled = scale * piece(dy, row, cols)
        al.store(dx[row, cols], (root * (scaled - values * share)).to(DTYPE), mask=cols < N)


@argus.kernel
def rmsnorm_backward_columns(
    dy: al.Tensor[DTYPE, "M N"],
    x: al.Tensor[DTYPE, "M N"],
    roots: al.Tensor[al.float32, "M"],
    parts: al.Tensor[al.float32, "BLOCKS N"],
    DTYPE: al.constexpr = al.bfloat16,
    BLOCKS: al.constexpr = 64,
    ROWS: al.constexpr = 8,
    BLOCK: al.constexpr = 256,
):
    """Compute `dy * x * r`, added up over every BLOCKS-th group of ROWS rows, with `roots` for r; BLOCK columns a
    block."""
    M, N = x.shape
    al.requires(M <= 2**30)
    al.spec(
        parts,
        lambda p, j: al.sum(lambda i: of_share(i, p, ROWS, BLOCKS, dy[i, j] * (x[i, j] * roots[i]))),
    )
    column, share = al.grid(al.cdiv(N, BLOCK), BLOCKS)
    cols = column * BLOCK + al.arange(BLOCK)
    total = al.zeros((ROWS, BLOCK), al.float32)
    for first in range(share * ROWS, M, BLOCKS * ROWS):
        rows = first + al.arange(ROWS)[:, None]
        live = (rows < M) & (cols < N)
        values = al.load(x[rows, cols], mask=live).to(al.float32)
        gradient = al.load(dy[rows, cols], mask=live).to(al.float32)
        total += gradient * (values * al.load(roots[rows], mask=rows < M))
    al.store(parts[share, cols], al.sum(total, axis=0), mask=cols < N)


def rmsnorm_backward(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of `x` and `weight`, in their dtypes. `dy` is the gradient of `rmsnorm(x, weight, eps)`.

    `dy` and `x` have the same shape and dtype: float32, float16 or bfloat16. `weight` may have any of these dtypes. The
    arithmetic is in float32. Rows may have any stride. Results have the same bits in every run. Raises LaunchError.
    """
    results: tuple[torch.Tensor, torch.Tensor] = _backward((dy, x, weight), (eps,))
    return results


_KERNELS = NormGradient(
    rmsnorm_backward_rows, rmsnorm_backward_long_rows, rmsnorm_backward_columns, saved=1, parameters=1
)


def _work(tensors: tuple[torch.Tensor, ...], numbers: tuple[Number, ...]) -> Work:
    calls, dx, parameters = _KERNELS.calls(tensors, numbers)
    return Work(calls, (dx, parameters[0]))


def _fake(dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, _eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    checked(dy, x, weight)
    return x.new_empty(x.shape), weight.new_empty(weight.shape)


_backward = Function(
    _work, Operator("rmsnorm_backward(Tensor dy, Tensor x, Tensor weight, float eps=1e-6) -> (Tensor, Tensor)", _fake)
)


def _save(ctx: Any, inputs: tuple[Any, ...], _output: torch.Tensor) -> None:
    x, weight, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def _gradients(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    return (*_backward((dy, *ctx.saved_tensors), (ctx.eps,)), None)


attach(rmsnorm_function, _gradients, _save)
