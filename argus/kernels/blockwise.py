"""Float8 with a scale for each block: 128 elements of a row of activations, 128 x 128 elements of weights.

This is the scheme of DeepSeek-V3 and DeepGEMM. The tensor cores add up the 128 products of a block, and the sum of a
block is scaled and added in float32. A large element therefore reduces the precision of its own block alone, and
products of float8 are not added to a much larger sum.
"""

from __future__ import annotations

import argus
import argus.language as al
from argus.kernels.steps import mean_square

SIDE = 128
LARGEST = 448.0  # of e4m3fn (OCP 8-bit floating point specification)
UNIT = 1 / LARGEST
LEAST = 1e-12  # blocks of smaller magnitudes share the scale of this one: a scale must not underflow


@argus.func
def normed(x, weight, eps, i, k):
    """Return element k of row i, after RMSNorm if there is a weight."""
    return x[i, k] if weight is None else x[i, k] * al.rsqrt(mean_square(x, i) + eps) * weight[k]


@argus.func
def magnitude(x, weight, eps, i, g):
    """Return the largest magnitude in block g of row i, or LEAST. Specifications use this function."""
    return al.maximum(
        al.max(lambda k: al.where(k // SIDE == g, al.abs(normed(x, weight, eps, i, k)), -float("inf"))), LEAST
    )


@argus.kernel
def quantized_blocks(
    x: al.Tensor[DTYPE, "M N"],
    weight: al.Tensor[DTYPE, "N"] | None,
    values: al.Tensor[al.float8_e4m3fn, "M N"],
    scale: al.Tensor[al.float32, "G M"],
    eps: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    ROWS: al.constexpr = 4,
    BLOCK: al.constexpr = 1024,
):
    """Compute `scale[g, i]`, the largest magnitude of block g of row i over 448, and `values`, the row over its scales.

    With `weight`, rows are those of an RMSNorm. A block of threads works on ROWS rows of at most BLOCK elements.
    """
    M, N, G = x.shape[0], x.shape[1], scale.shape[0]
    al.invariant(scale, M)
    al.invariant(values, M)
    al.requires((N <= BLOCK) & (G == al.cdiv(N, SIDE)))
    al.spec(scale, lambda g, i: magnitude(x, weight, eps, i, g) * UNIT)
    al.spec(values, lambda i, j: normed(x, weight, eps, i, j) * (LARGEST / magnitude(x, weight, eps, i, j // SIDE)))
    rows, cols = al.grid(al.cdiv(M, ROWS)) * ROWS + al.arange(ROWS), al.arange(BLOCK)
    live = (rows < M)[:, None] & (cols < N)
    numbers = al.load(x[rows[:, None], cols], mask=live).to(al.float32)
    if weight is not None:
        squares = al.sum(numbers * numbers, axis=1, keep_dims=True)
        factors = al.load(weight[cols], mask=cols < N).to(al.float32)
        numbers = numbers * al.rsqrt(squares / N.to(al.float32) + eps) * factors
    blocks = al.reshape(al.where(live, al.abs(numbers), -float("inf")), (ROWS, BLOCK // SIDE, SIDE))
    largest = al.maximum(al.max(blocks, axis=2), LEAST)
    g = al.arange(BLOCK // SIDE)
    al.store(al.trans(scale[g[:, None], rows]), largest * UNIT, mask=(rows < M)[:, None] & (g < G))
    result = al.reshape(numbers, (ROWS, BLOCK // SIDE, SIDE)) * (LARGEST / largest)[:, :, None]
    al.store(values[rows[:, None], cols], al.reshape(result, (ROWS, BLOCK)).to(al.float8_e4m3fn), mask=live)


@argus.func
def multiplied(tile, MULTIPLY):
    """Return a staged tile, or its elements in registers if it is multiplied in another dtype."""
    return tile if MULTIPLY is al.float8_e4m3fn else al.load(tile).to(MULTIPLY)


@argus.func
def scales_at(scale_a, scale_b, g, m0, n0, ROWS):
    """Return the scales of the rows from m0 on, and of the columns from n0 on, in block g of k; 0 if there is none."""
    m = m0 + al.arange(ROWS)
    of_rows = al.load(scale_a[g, m], mask=(m < scale_a.shape[1]) & (g < scale_a.shape[0]))
    of_columns = al.load(scale_b[n0 // SIDE, g], mask=g < scale_b.shape[1])
    return of_rows, of_columns


@argus.func
def scale_of(scale_a, scale_b, g, m0, n0, ROWS):
    """Return the products of these scales."""
    of_rows, of_columns = scales_at(scale_a, scale_b, g, m0, n0, ROWS)
    return of_rows * of_columns


@argus.kernel(num_warps=8)
def product_of_blocks(
    a: al.Tensor[al.float8_e4m3fn, "M K"],
    b: al.Tensor[al.float8_e4m3fn, "N K"],
    scale_a: al.Tensor[al.float32, "G M"],
    scale_b: al.Tensor[al.float32, "L G"],
    out: al.Tensor[OUT, "M N"],
    OUT: al.constexpr = al.bfloat16,
    MULTIPLY: al.constexpr = al.float8_e4m3fn,
    ROWS: al.constexpr = 128,
    COLUMNS: al.constexpr = 128,
    STAGES: al.constexpr = 3,
    PRODUCERS: al.constexpr = 4,
    GROUP: al.constexpr = 16,
    SCHEDULE: al.constexpr = "rows",
    CLUSTER: al.constexpr = 1,
):
    """Compute `out[m, n] = sum(a[m, k] * scale_a[k // 128, m] * b[n, k] * scale_b[n // 128, k // 128])`."""
    M, K, N, G, L = a.shape[0], a.shape[1], b.shape[0], scale_a.shape[0], scale_b.shape[0]
    assert SIDE % COLUMNS == 0, "the columns of a tile are of one block"
    al.requires((G * SIDE >= K) & (L * SIDE >= N) & (K < 2**30) & (N < 2**30))
    al.spec(
        out,
        lambda m, n: al.sum(lambda k: a[m, k] * scale_a[k // SIDE, m] * (b[n, k] * scale_b[n // SIDE, k // SIDE])),
    )
    i, j = al.grid(
        al.cdiv(M, ROWS), al.cdiv(N, COLUMNS),
        group=GROUP, cluster=CLUSTER, persistent=PRODUCERS > 0, schedule=SCHEDULE,
    )  # fmt: skip
    m0, n0 = i * ROWS, j * COLUMNS
    # Two blocks an iteration: a product runs beside the scaling of the other. Scales are loaded an iteration ahead.
    acc = al.zeros((ROWS, COLUMNS), al.float32)
    first = scale_of(scale_a, scale_b, 0, m0, n0, ROWS)
    second = scale_of(scale_a, scale_b, 1, m0, n0, ROWS)
    for k0 in al.pipelined(0, K, 2 * SIDE, stages=STAGES, producer_warps=PRODUCERS):
        k1, g = k0 + SIDE, k0 // SIDE
        at = al.stage(a[m0 : m0 + ROWS, k0 : k0 + SIDE], boundary_check=(0, 1))
        bt = al.stage(b[n0 : n0 + COLUMNS, k0 : k0 + SIDE], boundary_check=(0, 1))
        au = al.stage(a[m0 : m0 + ROWS, k1 : k1 + SIDE], boundary_check=(0, 1))
        bu = al.stage(b[n0 : n0 + COLUMNS, k1 : k1 + SIDE], boundary_check=(0, 1))
        sums = al.zeros((ROWS, COLUMNS), al.float32)
        sums = al.mma(multiplied(at, MULTIPLY), multiplied(bt, MULTIPLY), sums)
        more = al.zeros((ROWS, COLUMNS), al.float32)
        more = al.mma(multiplied(au, MULTIPLY), multiplied(bu, MULTIPLY), more)
        rows_next, columns_next = scales_at(scale_a, scale_b, g + 2, m0, n0, ROWS)
        rows_after, columns_after = scales_at(scale_a, scale_b, g + 3, m0, n0, ROWS)
        acc += sums * first[:, None]
        acc += more * second[:, None]
        first = rows_next * columns_next
        second = rows_after * columns_after
    al.store(out[m0 : m0 + ROWS, n0 : n0 + COLUMNS], acc.to(OUT), boundary_check=(0, 1))
