"""Compute the gradients of LayerNorm in one pass over memory. Each block processes several rows and sums its shares of
`dweight` and `dbias`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.kernels.layernorm import layernorm_function
from argus.kernels.norm_gradients import NormGradient, checked
from argus.kernels.steps import group_at, mean, of_share, piece, piece_of, variance
from argus.runtime.function import Function, Operator
from argus.runtime.work import Work
from argus.torch.gradient import attach

if TYPE_CHECKING:
    import torch


@argus.func
def inverse_root(x, eps, i):
    """Return 1 / sqrt(variance(x[i, :]) + eps)."""
    return al.rsqrt(variance(x, i) + eps)


@argus.func
def gradient(dy, x, weight, eps, i, j):
    """Return the gradient of LayerNorm's `x[i, j]` by the textbook formula."""
    count = x.shape[1].to(al.float32)
    average = al.sum(lambda k: weight[k] * dy[i, k]) / count
    along = al.sum(lambda k: weight[k] * dy[i, k] * (x[i, k] - mean(x, i))) / count
    slope = along * (inverse_root(x, eps, i) * inverse_root(x, eps, i))
    return inverse_root(x, eps, i) * (weight[j] * dy[i, j] - average - (x[i, j] - mean(x, i)) * slope)


@argus.kernel
def layernorm_backward_rows(
    dy: al.Tensor[DTYPE, "M N"],
    x: al.Tensor[DTYPE, "M N"],
    weight: al.Tensor[WEIGHT, "N"],
    dx: al.Tensor[DTYPE, "M N"],
    weights: al.Tensor[al.float32, "BLOCKS N"],
    biases: al.Tensor[al.float32, "BLOCKS N"],
    eps: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    WEIGHT: al.constexpr = al.bfloat16,
    BLOCKS: al.constexpr = 528,
    ROWS: al.constexpr = 4,
    BLOCK: al.constexpr = 1024,
    FROM: al.constexpr = 0,
):
    """Compute `dx = r * (g - mean(g) - c * mean(g * c) * r ** 2)`, where `c = x - mean(x)`, `r = 1 / sqrt(mean(c ** 2)
    + eps)` and `g = weight * dy`, row by row.

    A block has every BLOCKS-th group of ROWS rows, and adds up `dy * c * r` and `dy` of these: its rows of
    `weights` and `biases`.
    """
    M, N = x.shape
    al.invariant(dx, M)
    al.requires((FROM <= N <= BLOCK) & (M <= 2**30))
    al.spec(dx, lambda i, j: gradient(dy, x, weight, eps, i, j))
    al.spec(
        weights,
        lambda p, j: al.sum(
            lambda i: of_share(i, p, ROWS, BLOCKS, dy[i, j] * ((x[i, j] - mean(x, i)) * inverse_root(x, eps, i)))
        ),
    )
    al.spec(biases, lambda p, j: al.sum(lambda i: of_share(i, p, ROWS, BLOCKS, dy[i, j])))
    block = al.grid(BLOCKS)
    cols = al.arange(BLOCK)
    inside = cols < N
    count = N.to(al.float32)
    scale = al.load(weight[cols], mask=inside)
    of_weight, of_bias = al.zeros((ROWS, BLOCK), al.float32), al.zeros((ROWS, BLOCK), al.float32)
    loaded, arrived = group_at(x, block * ROWS, ROWS, BLOCK), group_at(dy, block * ROWS, ROWS, BLOCK)
    for first in range(block * ROWS, M, BLOCKS * ROWS):
        rows = first + al.arange(ROWS)[:, None]
        live = (rows < M) & inside
        values, given = loaded.to(al.float32), arrived.to(al.float32)
        loaded = group_at(x, first + BLOCKS * ROWS, ROWS, BLOCK)  # loaded while this group is processed
        arrived = group_at(dy, first + BLOCKS * ROWS, ROWS, BLOCK)
        centre = al.sum(values, axis=1, keep_dims=True) / count
        centred = al.where(live, values - centre, 0.0)
        root = al.rsqrt(al.sum(centred * centred, axis=1, keep_dims=True) / count + eps)
        scaled = scale.to(al.float32) * given
        average = al.sum(scaled, axis=1, keep_dims=True) / count
        slope = al.sum(scaled * centred, axis=1, keep_dims=True) / count * (root * root)
        al.store(dx[rows, cols], (root * (scaled - average - centred * slope)).to(DTYPE), mask=live)
        of_weight += given * (centred * al.where(rows < M, root, 0.0))
        of_bias += given
    al.store(weights[block, cols], al.sum(of_weight, axis=0), mask=inside)
    al.store(biases[block, cols], al.sum(of_bias, axis=0), mask=inside)


@argus.kernel
def layernorm_backward_long_rows(
    dy: al.Tensor[DTYPE, "M N"],
    x: al.Tensor[DTYPE, "M N"],
    weight: al.Tensor[WEIGHT, "N"],
    dx: al.Tensor[DTYPE, "M N"],
    means: al.Tensor[al.float32, "M"],
    roots: al.Tensor[al.float32, "M"],
    eps: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    WEIGHT: al.constexpr = al.bfloat16,
    BLOCK: al.constexpr = 4096,
):
    """Compute `dx` for rows of any length, which are read three times, BLOCK elements at a time; `means` of the rows,
    and `roots`, all r."""
    M, N = x.shape
    al.invariant(dx, M)
    al.invariant(means, M)
    al.invariant(roots, M)
    al.spec(dx, lambda i, j: gradient(dy, x, weight, eps, i, j))
    al.spec(means, lambda i: mean(x, i))
    al.spec(roots, lambda i: inverse_root(x, eps, i))
    row = al.grid(M)
    count = N.to(al.float32)
    total, sums = al.zeros((BLOCK,), al.float32), al.zeros((BLOCK,), al.float32)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        total += piece(x, row, cols)
        scale = piece_of(weight, cols)
        sums += scale * piece(dy, row, cols)
    centre, average = al.sum(total) / count, al.sum(sums) / count
    squares, dots = al.zeros((BLOCK,), al.float32), al.zeros((BLOCK,), al.float32)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        centred = al.where(cols < N, piece(x, row, cols) - centre, 0.0)
        scale = piece_of(weight, cols)
        squares += centred * centred
        dots += scale * piece(dy, row, cols) * centred
    root = al.rsqrt(al.sum(squares) / count + eps)
    al.store(means[row], centre)
    al.store(roots[row], root)
    slope = al.sum(dots) / count * (root * root)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        centred = piece(x, row, cols) - centre
        scale = piece_of(weight, cols)
        scaled = scale * piece(dy, row, cols)
        al.store(dx[row, cols], (root * (scaled - average - centred * slope)).to(DTYPE), mask=cols < N)


@argus.kernel
def layernorm_backward_columns(
    dy: al.Tensor[DTYPE, "M N"],
    x: al.Tensor[DTYPE, "M N"],
    means: al.Tensor[al.float32, "M"],
    roots: al.Tensor[al.float32, "M"],
    weights: al.Tensor[al.float32, "BLOCKS N"],
    biases: al.Tensor[al.float32, "BLOCKS N"],
    DTYPE: al.constexpr = al.bfloat16,
    BLOCKS: al.constexpr = 64,
    ROWS: al.constexpr = 8,
    BLOCK: al.constexpr = 256,
):
    """Compute `dy * c * r` and `dy`, added up over every BLOCKS-th group of ROWS rows, with `means` for the mean in c
    and `roots` for r; BLOCK columns a block."""
    M, N = x.shape
    al.requires(M <= 2**30)
    al.spec(
        weights,
        lambda p, j: al.sum(lambda i: of_share(i, p, ROWS, BLOCKS, dy[i, j] * ((x[i, j] - means[i]) * roots[i]))),
    )
    al.spec(biases, lambda p, j: al.sum(lambda i: of_share(i, p, ROWS, BLOCKS, dy[i, j])))
    column, share = al.grid(al.cdiv(N, BLOCK), BLOCKS)
    cols = column * BLOCK + al.arange(BLOCK)
    of_weight, of_bias = al.zeros((ROWS, BLOCK), al.float32), al.zeros((ROWS, BLOCK), al.float32)
    for first in range(share * ROWS, M, BLOCKS * ROWS):
        rows = first + al.arange(ROWS)[:, None]
        live = (rows < M) & (cols < N)
        centred = al.load(x[rows, cols], mask=live).to(al.float32) - al.load(means[rows], mask=rows < M)
        given = al.load(dy[rows, cols], mask=live).to(al.float32)
        of_weight += given * (centred * al.load(roots[rows], mask=rows < M))
        of_bias += given
    al.store(weights[share, cols], al.sum(of_weight, axis=0), mask=cols < N)
    al.store(biases[share, cols], al.sum(of_bias, axis=0), mask=cols < N)


def layernorm_backward(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of `x`, `weight` and `bias`. `dy` is the gradient of `layernorm(x, weight, bias, eps)`.

    `dy` and `x` have one shape and one dtype: float32, float16 or bfloat16. `weight` has any of these dtypes, and the
    gradients of `weight` and `bias` have the dtype of `weight`. Rows may be any distance apart. The arithmetic is that
    of float32, and the results are the same in each run. Raises LaunchError.
    """
    dx, parameters = _backward((dy, x, weight), (eps,))
    return dx, parameters[0], parameters[1]


_KERNELS = NormGradient(
    layernorm_backward_rows, layernorm_backward_long_rows, layernorm_backward_columns, saved=2, parameters=2
)


def _work(tensors: tuple[torch.Tensor, ...], numbers: tuple[Number, ...]) -> Work:
    calls, dx, parameters = _KERNELS.calls(tensors, numbers)
    return Work(calls, (dx, parameters))


def _fake(dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, _eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    checked(dy, x, weight)
    return x.new_empty(x.shape), weight.new_empty(2, *weight.shape)


_backward = Function(
    _work, Operator("layernorm_backward(Tensor dy, Tensor x, Tensor weight, float eps=1e-5) -> (Tensor, Tensor)", _fake)
)


def _save(ctx: Any, inputs: tuple[Any, ...], _output: torch.Tensor) -> None:
    x, weight, _, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def _gradients(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    dx, parameters = _backward((dy, *ctx.saved_tensors), (ctx.eps,))
    return dx, parameters[0], parameters[1], None


attach(layernorm_function, _gradients, _save)
