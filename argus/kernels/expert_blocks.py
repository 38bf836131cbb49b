"""Multiply float8 rows by the float8 weights of their experts, with a scale for each block of 128 (DeepSeek-V3).

Rows, their tiles and owners are those of `argus.kernels.experts`, and scales those of `argus.kernels.blockwise`: one
for each 128 elements of a row, and one for each 128 x 128 elements of an expert's weights. Tokens are quantised as
they are gathered (`gathered_blocks`), and activations as they are computed (`activated_blocks`).
"""

from __future__ import annotations

import argus
import argus.language as al
from argus.kernels.blockwise import LARGEST, LEAST, SIDE, UNIT, multiplied
from argus.kernels.experts import swiglu


@argus.kernel
def gathered_blocks(
    x: al.Tensor[DTYPE, "T N"],
    token: al.Tensor[al.int32, "P"],
    values: al.Tensor[al.float8_e4m3fn, "P N"],
    scale: al.Tensor[al.float32, "G P"],
    DTYPE: al.constexpr = al.bfloat16,
    BLOCKS: al.constexpr = 8,
):
    """Quantise row `token[p]` of x: `scale[g, p]`, the largest magnitude of its block g over 448, and `values[p]`."""
    T, N, P, G = x.shape[0], x.shape[1], token.shape[0], scale.shape[0]
    al.requires(G == al.cdiv(N, SIDE))
    al.requires(al.in_range(token, 0, T))
    al.spec(scale, lambda g, p: magnitude_of_token(x, token, p, g) * UNIT)
    al.spec(values, lambda p, n: x[token[p], n] * (LARGEST / magnitude_of_token(x, token, p, n // SIDE)))
    p, column = al.grid(P, al.cdiv(G, BLOCKS))
    g = column * BLOCKS + al.arange(BLOCKS)
    n = g[:, None] * SIDE + al.arange(SIDE)
    numbers = al.load(x[al.load(token[p]), n], mask=n < N).to(al.float32)
    largest = al.maximum(al.max(al.where(n < N, al.abs(numbers), -float("inf")), axis=1), LEAST)
    al.store(scale[g, p], largest * UNIT, mask=g < G)
    al.store(values[p, n], (numbers * (LARGEST / largest)[:, None]).to(al.float8_e4m3fn), mask=n < N)


@argus.func
def magnitude_of_token(x, token, p, g):
    """Return the largest magnitude in block g of row `token[p]`, at least LEAST."""
    return al.maximum(al.max(lambda n: al.where(n // SIDE == g, al.abs(x[token[p], n]), -float("inf"))), LEAST)


@argus.kernel
def activated_blocks(
    both: al.Tensor[DTYPE, "P 2 C"],
    values: al.Tensor[al.float8_e4m3fn, "P C"],
    scale: al.Tensor[al.float32, "G P"],
    ACTIVATION: al.constexpr = swiglu,
    DTYPE: al.constexpr = al.bfloat16,
    BLOCKS: al.constexpr = 8,
):
    """Quantise the activations of the two halves of each row."""
    P, C, G = values.shape[0], values.shape[1], scale.shape[0]
    al.requires(G == al.cdiv(C, SIDE))
    al.spec(scale, lambda g, p: magnitude_of_activation(both, ACTIVATION, p, g) * UNIT)
    al.spec(
        values,
        lambda p, n: (
            ACTIVATION(both[p, 0, n], both[p, 1, n])
            * (LARGEST / magnitude_of_activation(both, ACTIVATION, p, n // SIDE))
        ),
    )
    p, column = al.grid(P, al.cdiv(G, BLOCKS))
    g = column * BLOCKS + al.arange(BLOCKS)
    n = g[:, None] * SIDE + al.arange(SIDE)
    gate = al.load(both[p, 0, n], mask=n < C).to(al.float32)
    up = al.load(both[p, 1, n], mask=n < C).to(al.float32)
    numbers = ACTIVATION(gate, up)
    largest = al.maximum(al.max(al.where(n < C, al.abs(numbers), -float("inf")), axis=1), LEAST)
    al.store(scale[g, p], largest * UNIT, mask=g < G)
    al.store(values[p, n], (numbers * (LARGEST / largest)[:, None]).to(al.float8_e4m3fn), mask=n < C)


@argus.func
def magnitude_of_activation(both, ACTIVATION, p, g):
    """Return the largest magnitude in block g of the activations of row p, at least LEAST."""
    return al.maximum(
        al.max(lambda n: al.where(n // SIDE == g, al.abs(ACTIVATION(both[p, 0, n], both[p, 1, n])), -float("inf"))),
        LEAST,
    )


@argus.kernel(num_warps=8)
def expert_blocks(
    x: al.Tensor[al.float8_e4m3fn, "P K"],
    scale: al.Tensor[al.float32, "G P"],
    first: al.Tensor[al.int32, "L1"],
    owner: al.Tensor[al.int32, "L1"],
    w: al.Tensor[al.float8_e4m3fn, "E N K"],
    scale_w: al.Tensor[al.float32, "E S G"],
    out: al.Tensor[DTYPE, "P N"],
    DTYPE: al.constexpr = al.bfloat16,
    MULTIPLY: al.constexpr = al.float8_e4m3fn,
    ROWS: al.constexpr = 128,
    COLUMNS: al.constexpr = 128,
    STAGES: al.constexpr = 3,
    PRODUCERS: al.constexpr = 4,
    TOGETHER: al.constexpr = 8,
):
    """Compute `out[p, n]`: with e the expert of row p and g = k // 128, the sum over k of `x[p, k] * scale[g, p]` times
    `w[e, n, k] * scale_w[e, n // 128, g]`.

    An iteration multiplies two blocks, so that one product runs while the sums of the other are scaled.
    """
    P, K, E, N, G, S = x.shape[0], x.shape[1], w.shape[0], w.shape[1], scale.shape[0], scale_w.shape[1]
    assert SIDE % COLUMNS == 0, "the columns of a tile are of one block"
    al.requires((first.shape[0] > 1) & (P < 2**30) & (0 < E) & (0 < K) & (K < 2**29) & (N < 2**30))
    al.requires((G * SIDE >= K) & (S * SIDE >= N))
    al.requires(al.in_range(owner, 0, E))
    al.requires(al.offsets(first, P, longest=ROWS))
    al.covers(out, at=lambda i, p, n: (p, n), where=lambda i, p, n: (first[i] <= p) & (p < first[i + 1]))
    al.spec(
        out,
        lambda i, p, n: al.sum(
            lambda k: x[p, k] * scale[k // SIDE, p] * (w[owner[i], n, k] * scale_w[owner[i], n // SIDE, k // SIDE])
        ),
    )
    i, column = al.grid(first.shape[0] - 1, al.cdiv(N, COLUMNS), group=TOGETHER, persistent=PRODUCERS > 0)
    m0, end, e, n0 = al.load(first[i]), al.load(first[i + 1]), al.load(owner[i]), column * COLUMNS
    p = m0 + al.arange(ROWS)
    acc = al.zeros((ROWS, COLUMNS), al.float32)
    for k0 in al.pipelined(0, K, 2 * SIDE, stages=STAGES, producer_warps=PRODUCERS):
        k1, g, h = k0 + SIDE, k0 // SIDE, k0 // SIDE + 1
        xt = al.stage(x[m0 : m0 + ROWS, k0 : k0 + SIDE], boundary_check=(0, 1))
        wt = al.stage(w[e, n0 : n0 + COLUMNS, k0 : k0 + SIDE], boundary_check=(0, 1))
        xu = al.stage(x[m0 : m0 + ROWS, k1 : k1 + SIDE], boundary_check=(0, 1))
        wu = al.stage(w[e, n0 : n0 + COLUMNS, k1 : k1 + SIDE], boundary_check=(0, 1))
        sums = al.zeros((ROWS, COLUMNS), al.float32)
        sums = al.mma(multiplied(xt, MULTIPLY), multiplied(wt, MULTIPLY), sums)
        more = al.zeros((ROWS, COLUMNS), al.float32)
        more = al.mma(multiplied(xu, MULTIPLY), multiplied(wu, MULTIPLY), more)
        of_rows = al.load(scale[g, p], mask=p < end)
        of_more = al.load(scale[h, p], mask=(p < end) & (h < G))
        of_rows = of_rows * al.load(scale_w[e, n0 // SIDE, g])
        of_more = of_more * al.load(scale_w[e, n0 // SIDE, h], mask=h < G)
        acc += sums * of_rows[:, None]
        acc += more * of_more[:, None]
    al.store(out[p, n0 : n0 + COLUMNS], acc.to(DTYPE), mask=(p < end)[:, None], boundary_check=(1,))
