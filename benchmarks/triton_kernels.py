"""Triton kernels that are measured beside Argus. Imports triton."""

import triton
import triton.language as tl


@triton.jit
def vector_add(x, y, out, n, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i] for i < n."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    """out[i, :] = softmax(x[i, :]) of rows of at most BLOCK elements."""
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + cols, mask=cols < columns, other=-float("inf")).to(tl.float32)
    powers = tl.exp(values - tl.max(values, 0))
    result = powers / tl.sum(powers, 0)
    tl.store(out + row * columns + cols, result.to(out.dtype.element_ty), mask=cols < columns)


@triton.jit
def rmsnorm(x, weight, out, columns, eps, BLOCK: tl.constexpr):
    """out[i, :] = x[i, :] / sqrt(mean(x[i, :] ** 2) + eps) * weight of rows of at most BLOCK elements."""
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + cols, mask=cols < columns, other=0.0).to(tl.float32)
    inverse = tl.rsqrt(tl.sum(values * values, 0) / columns + eps)
    scale = tl.load(weight + cols, mask=cols < columns).to(tl.float32)
    tl.store(out + row * columns + cols, (values * inverse * scale).to(out.dtype.element_ty), mask=cols < columns)


@triton.jit
def matmul(a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """c = a @ b of row-major matrices whose sizes the tile divides."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        depth = start + tl.arange(0, BLOCK_K)
        sums = tl.dot(tl.load(a + rows[:, None] * K + depth), tl.load(b + depth[:, None] * N + cols), sums)
    tl.store(c + rows[:, None] * N + cols, sums.to(c.dtype.element_ty))
