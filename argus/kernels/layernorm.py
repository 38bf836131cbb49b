"""LayerNorm of every row, of x or of x + residual, in one pass over memory: a row stays in registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.kernels.rows import CHUNK, CHUNK_WARPS, dtype_of, longest, matrix, same_shape, shaped, spread, vector
from argus.runtime.device import target_of
from argus.runtime.recipe import Function, Work

if TYPE_CHECKING:
    import torch

LONGEST = 6144
"""Elements of a row that stays in the registers of 4 warps, beside its weights. Of larger blocks few fit a
multiprocessor, which load together and then compute together: longer rows wait in shared memory."""
_LONGEST_SUM = 16384  # elements of a row of x and one of residual, which would take twice the shared memory
_LONG = 8192  # of these, elements above which a row gets twice the threads
_HELD = 96 * 1024  # bytes of a row there: two such rows fit a multiprocessor
_FEW = 12288  # elements of such a row that 8 warps work on; 16 on longer ones
_EACH = 16  # elements of such a row in a thread's registers, at a time


@argus.func
def mean(x, i):
    """Of row i: what specifications say."""
    return al.sum(lambda k: x[i, k]) / x.shape[1].to(al.float32)


@argus.func
def variance(x, i):
    """The mean of the squares of row i's differences from its mean."""
    return al.sum(lambda n: (x[i, n] - mean(x, i)) * (x[i, n] - mean(x, i))) / x.shape[1].to(al.float32)


@argus.func
def mean_of_sum(x, y, i):
    """Of row i of x + y."""
    return al.sum(lambda k: x[i, k] + y[i, k]) / x.shape[1].to(al.float32)


@argus.func
def variance_of_sum(x, y, i):
    """Of row i of x + y."""
    return al.sum(
        lambda n: (x[i, n] + y[i, n] - mean_of_sum(x, y, i)) * (x[i, n] + y[i, n] - mean_of_sum(x, y, i))
    ) / x.shape[1].to(al.float32)


@argus.func
def normalised(values, live, N, eps):
    """(values - mean) / sqrt(variance + eps) of each row of N elements; the variance is of the differences."""
    count = N.to(al.float32)
    mean = al.sum(values, axis=1, keep_dims=True) / count
    centred = al.where(live, values - mean, 0.0)
    variance = al.sum(centred * centred, axis=1, keep_dims=True) / count
    return centred * al.rsqrt(variance + eps)


@argus.func
def waiting(held, added, part, cols):
    """Elements of a row that waits in shared memory, in parts; of two rows, of their sum."""
    if added is None:
        values = al.load(held[part, cols]).to(al.float32)
    else:
        values = al.load(held[part, cols]).to(al.float32) + al.load(added[part, cols]).to(al.float32)
    return values


@argus.func
def inverse_deviation(held, added, mean, N, eps, BLOCK):
    """1 / sqrt(variance + eps) of such a row of N elements, BLOCK in a part."""
    cols = al.arange(BLOCK)
    squares = al.zeros((BLOCK,), al.float32)
    for part in range(al.cdiv(N, BLOCK)):
        values = waiting(held, added, part, cols)
        centred = al.where(part * BLOCK + cols < N, values - mean, 0.0)
        squares += centred * centred
    return al.rsqrt(al.sum(squares) / N.to(al.float32) + eps)


@argus.kernel
def layernorm_rows(
    x: al.Tensor[DTYPE, "M N"],
    weight: al.Tensor[WEIGHT, "N"],
    bias: al.Tensor[WEIGHT, "N"],
    out: al.Tensor[DTYPE, "M N"],
    eps: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    WEIGHT: al.constexpr = al.bfloat16,
    ROWS: al.constexpr = 4,
    BLOCK: al.constexpr = 1024,
):
    """`out[i, :] = (x[i, :] - mean) / sqrt(variance + eps) * weight + bias`; a block works on ROWS rows."""
    M, N = x.shape
    al.requires(N <= BLOCK)
    al.spec(out, lambda i, j: (x[i, j] - mean(x, i)) * al.rsqrt(variance(x, i) + eps) * weight[j] + bias[j])
    rows = al.grid(al.cdiv(M, ROWS)) * ROWS + al.arange(ROWS)
    cols = al.arange(BLOCK)
    live = (rows < M)[:, None] & (cols < N)
    values = al.load(x[rows[:, None], cols], mask=live).to(al.float32)
    normal = normalised(values, live, N, eps)
    scale = al.load(weight[cols], mask=cols < N)
    shift = al.load(bias[cols], mask=cols < N)
    result = normal * scale.to(al.float32) + shift.to(al.float32)
    al.store(out[rows[:, None], cols], result.to(DTYPE), mask=live)


@argus.kernel
def layernorm_held_rows(
    x: al.Tensor[DTYPE, "M N"],
    weight: al.Tensor[WEIGHT, "N"],
    bias: al.Tensor[WEIGHT, "N"],
    out: al.Tensor[DTYPE, "M N"],
    eps: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    WEIGHT: al.constexpr = al.bfloat16,
    BLOCK: al.constexpr = 4096,
    BLOCKS: al.constexpr = 4,
    COPY: al.constexpr = "cp.async",
):
    """The same for rows of at most BLOCKS * BLOCK elements, which wait in shared memory: registers hold but BLOCK."""
    M, N = x.shape
    al.requires(N <= BLOCK * BLOCKS)
    al.spec(out, lambda i, j: (x[i, j] - mean(x, i)) * al.rsqrt(variance(x, i) + eps) * weight[j] + bias[j])
    row = al.grid(M)
    held = al.shared((BLOCKS, BLOCK), DTYPE)
    cols = al.arange(BLOCK)
    places = al.arange(BLOCKS)[:, None] * BLOCK + cols
    al.copy(held[al.arange(BLOCKS)[:, None], cols], x[row, places], mask=places < N, other=0.0, instruction=COPY)
    al.cp_async_commit()
    al.cp_async_wait(0)
    al.barrier()
    total = al.zeros((BLOCK,), al.float32)
    for part in range(al.cdiv(N, BLOCK)):
        total += al.load(held[part, cols], mask=part * BLOCK + cols < N).to(al.float32)
    mean = al.sum(total) / N.to(al.float32)
    inverse = inverse_deviation(held, None, mean, N, eps, BLOCK)
    for part in range(al.cdiv(N, BLOCK)):
        places = part * BLOCK + cols
        values = waiting(held, None, part, cols)
        scale = al.load(weight[places], mask=places < N).to(al.float32)
        shift = al.load(bias[places], mask=places < N).to(al.float32)
        al.store(out[row, places], ((values - mean) * inverse * scale + shift).to(DTYPE), mask=places < N)


@argus.kernel
def layernorm_long_rows(
    x: al.Tensor[DTYPE, "M N"],
    weight: al.Tensor[WEIGHT, "N"],
    bias: al.Tensor[WEIGHT, "N"],
    out: al.Tensor[DTYPE, "M N"],
    eps: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    WEIGHT: al.constexpr = al.bfloat16,
    BLOCK: al.constexpr = 4096,
):
    """The same for rows of any length, which are read three times, BLOCK elements at a time."""
    M, N = x.shape
    al.spec(out, lambda i, j: (x[i, j] - mean(x, i)) * al.rsqrt(variance(x, i) + eps) * weight[j] + bias[j])
    row = al.grid(M)
    total = al.zeros((BLOCK,), al.float32)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        total += al.load(x[row, cols], mask=cols < N).to(al.float32)
    mean = al.sum(total) / N.to(al.float32)
    squares = al.zeros((BLOCK,), al.float32)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        centred = al.where(cols < N, al.load(x[row, cols], mask=cols < N).to(al.float32) - mean, 0.0)
        squares += centred * centred
    inverse = al.rsqrt(al.sum(squares) / N.to(al.float32) + eps)
    for start in range(0, N, BLOCK):
        cols = start + al.arange(BLOCK)
        values = al.load(x[row, cols], mask=cols < N).to(al.float32)
        scale = al.load(weight[cols], mask=cols < N).to(al.float32)
        shift = al.load(bias[cols], mask=cols < N).to(al.float32)
        al.store(out[row, cols], ((values - mean) * inverse * scale + shift).to(DTYPE), mask=cols < N)


@argus.kernel
def add_layernorm_rows(
    x: al.Tensor[DTYPE, "M N"],
    residual: al.Tensor[DTYPE, "M N"],
    weight: al.Tensor[WEIGHT, "N"],
    bias: al.Tensor[WEIGHT, "N"],
    out: al.Tensor[DTYPE, "M N"],
    total: al.Tensor[DTYPE, "M N"],
    eps: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    WEIGHT: al.constexpr = al.bfloat16,
    ROWS: al.constexpr = 4,
    BLOCK: al.constexpr = 1024,
):
    """`total = x + residual`, `out = layernorm(total)`; what is normalised is the sum before it is rounded."""
    M, N = x.shape
    al.requires(N <= BLOCK)
    al.spec(total, lambda i, j: x[i, j] + residual[i, j])
    al.spec(
        out,
        lambda i, j: (
            (x[i, j] + residual[i, j] - mean_of_sum(x, residual, i))
            * al.rsqrt(variance_of_sum(x, residual, i) + eps)
            * weight[j]
            + bias[j]
        ),
    )
    rows = al.grid(al.cdiv(M, ROWS)) * ROWS + al.arange(ROWS)
    cols = al.arange(BLOCK)
    live = (rows < M)[:, None] & (cols < N)
    first = al.load(x[rows[:, None], cols], mask=live)
    second = al.load(residual[rows[:, None], cols], mask=live)
    values = first.to(al.float32) + second.to(al.float32)
    al.store(total[rows[:, None], cols], values.to(DTYPE), mask=live)
    normal = normalised(values, live, N, eps)
    scale = al.load(weight[cols], mask=cols < N)
    shift = al.load(bias[cols], mask=cols < N)
    result = normal * scale.to(al.float32) + shift.to(al.float32)
    al.store(out[rows[:, None], cols], result.to(DTYPE), mask=live)


@argus.kernel
def add_layernorm_held_rows(
    x: al.Tensor[DTYPE, "M N"],
    residual: al.Tensor[DTYPE, "M N"],
    weight: al.Tensor[WEIGHT, "N"],
    bias: al.Tensor[WEIGHT, "N"],
    out: al.Tensor[DTYPE, "M N"],
    total: al.Tensor[DTYPE, "M N"],
    eps: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    WEIGHT: al.constexpr = al.bfloat16,
    BLOCK: al.constexpr = 4096,
    BLOCKS: al.constexpr = 4,
    COPY: al.constexpr = "cp.async",
):
    """The same for rows of at most BLOCKS * BLOCK elements, which wait in shared memory: registers hold but BLOCK."""
    M, N = x.shape
    al.requires(N <= BLOCK * BLOCKS)
    al.spec(total, lambda i, j: x[i, j] + residual[i, j])
    al.spec(
        out,
        lambda i, j: (
            (x[i, j] + residual[i, j] - mean_of_sum(x, residual, i))
            * al.rsqrt(variance_of_sum(x, residual, i) + eps)
            * weight[j]
            + bias[j]
        ),
    )
    row = al.grid(M)
    held, added = al.shared((BLOCKS, BLOCK), DTYPE), al.shared((BLOCKS, BLOCK), DTYPE)
    cols, parts = al.arange(BLOCK), al.arange(BLOCKS)[:, None]
    places = parts * BLOCK + cols
    al.copy(held[parts, cols], x[row, places], mask=places < N, other=0.0, instruction=COPY)
    al.copy(added[parts, cols], residual[row, places], mask=places < N, other=0.0, instruction=COPY)
    al.cp_async_commit()
    al.cp_async_wait(0)
    al.barrier()
    sums = al.zeros((BLOCK,), al.float32)
    for part in range(al.cdiv(N, BLOCK)):
        places = part * BLOCK + cols
        values = waiting(held, added, part, cols)
        al.store(total[row, places], values.to(DTYPE), mask=places < N)
        sums += al.where(places < N, values, 0.0)
    mean = al.sum(sums) / N.to(al.float32)
    inverse = inverse_deviation(held, added, mean, N, eps, BLOCK)
    for part in range(al.cdiv(N, BLOCK)):
        places = part * BLOCK + cols
        values = waiting(held, added, part, cols)
        scale = al.load(weight[places], mask=places < N).to(al.float32)
        shift = al.load(bias[places], mask=places < N).to(al.float32)
        al.store(out[row, places], ((values - mean) * inverse * scale + shift).to(DTYPE), mask=places < N)


def layernorm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """LayerNorm along the last dimension, with `weight` and `bias` `[N]` of one dtype; in x's dtype. No gradient.

    All are of float32, float16 or bfloat16; the arithmetic is float32's; rows may be any distance apart.
    Raises LaunchError.
    """
    result: torch.Tensor = _layernorm((x, weight, bias), (eps,))
    return result


def add_layernorm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor]:
    """(layernorm(x + residual), x + residual), both in the dtype of `x` and `residual`. No gradient.

    See `layernorm`; rows have at most 96 KiB. The sum is normalised before it is rounded to its dtype.
    Raises LaunchError.
    """
    results: tuple[torch.Tensor, torch.Tensor] = _add_layernorm((x, residual, weight, bias), (eps,))
    return results


def _work(tensors: tuple[torch.Tensor, ...], numbers: tuple[Number, ...]) -> Work:
    x, weight, bias = tensors
    dtype, scale, rows = dtype_of("x", x), dtype_of("weight", weight), matrix(x)
    weight, bias = _parameters(weight, bias, rows.shape[1])
    out = rows.new_empty(rows.shape)
    shape: dict[str, int | str | None]
    if rows.shape[1] <= LONGEST:
        s = spread(rows.shape[1], dtype.bytes)
        kernel, shape = layernorm_rows, {"ROWS": s.rows, "BLOCK": s.block, "num_warps": s.warps}
    elif rows.shape[1] * dtype.bytes <= _HELD:
        kernel, shape = layernorm_held_rows, _held(rows)
    else:
        kernel, shape = layernorm_long_rows, {"BLOCK": CHUNK, "num_warps": CHUNK_WARPS}
    constants = {"DTYPE": dtype, "WEIGHT": scale, **shape}
    return Work(kernel, (rows, weight, bias), (out,), (shaped(out, x),), numbers, constants)


def _work_of_sum(tensors: tuple[torch.Tensor, ...], numbers: tuple[Number, ...]) -> Work:
    x, residual, weight, bias = tensors
    dtype, scale, rows = dtype_of("x", x), dtype_of("weight", weight), matrix(x)
    same_shape("residual", residual, tuple(x.shape))
    dtype_of("residual", residual, (dtype.name,))
    longest("x", rows, _HELD // dtype.bytes)
    read = (rows, matrix(residual), *_parameters(weight, bias, rows.shape[1]))
    made = rows.new_empty(rows.shape), rows.new_empty(rows.shape)
    shape: dict[str, int | str | None]
    if rows.shape[1] <= _LONGEST_SUM:
        s = spread(rows.shape[1], dtype.bytes if rows.shape[1] <= _LONG else 4)
        kernel, shape = add_layernorm_rows, {"ROWS": s.rows, "BLOCK": s.block, "num_warps": s.warps}
    else:
        kernel, shape = add_layernorm_held_rows, _held(*read[:2])
    results = tuple(shaped(t, x) for t in made)
    return Work(kernel, read, made, results, numbers, {"DTYPE": dtype, "WEIGHT": scale, **shape})


_layernorm, _add_layernorm = Function(_work), Function(_work_of_sum)


def _held(*matrices: torch.Tensor) -> dict[str, int | str | None]:
    """How rows that wait in shared memory are spread; COPY brings them there."""
    columns = matrices[0].shape[1]
    warps = 8 if columns <= _FEW else 16
    block = 32 * warps * _EACH
    least = min(vector(rows) * rows.element_size() for rows in matrices)
    copy = "cp.async" if least >= 4 and target_of(str(matrices[0].device)) != "gfx942" else None
    return {"BLOCK": block, "BLOCKS": -(-columns // block), "COPY": copy, "num_warps": warps}


def _parameters(weight: torch.Tensor, bias: torch.Tensor, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    same_shape("weight", weight, (columns,))
    same_shape("bias", bias, (columns,))
    dtype_of("bias", bias, (str(weight.dtype).removeprefix("torch."),))
    return weight.contiguous(), bias.contiguous()
