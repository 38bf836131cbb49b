"""Small kernels that are called through the whole pipeline."""

import argus
import argus.language as al

FACTOR = 3


@argus.func
def scaled(x):
    return x * FACTOR


@argus.kernel
def scale(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "N"], shift: al.float32, BLOCK: al.constexpr = 256):
    """out = 3 x + shift."""
    N = x.shape[0]
    al.requires(N % 4 == 0)
    offs = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    mask = offs < N
    al.store(out[offs], scaled(al.load(x[offs], mask=mask)) + shift, mask=mask)


@argus.kernel
def unmasked(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "N"], BLOCK: al.constexpr = 256):
    N = x.shape[0]
    offs = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    al.store(out[offs], al.load(x[offs], mask=offs < N))


@argus.kernel
def misspelt(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "N"]):
    al.store(out[al.arrange(4)], 0.0)


@argus.kernel
def take(
    table: al.Tensor[al.float32, "V"],
    index: al.Tensor[al.int32, "N"],
    out: al.Tensor[al.float32, "N"],
    BLOCK: al.constexpr = 32,
):
    N, V = index.shape[0], table.shape[0]
    al.requires(al.in_range(index, 0, V))
    offs = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    mask = offs < N
    i = al.load(index[offs], mask=mask, other=0)
    al.store(out[offs], al.load(table[i], mask=mask), mask=mask)


@argus.kernel
def scale_heads(
    x: al.Tensor[al.float32, "B H N"], factor: al.Tensor[al.float32, "B H"], out: al.Tensor[al.float32, "B H N"],
    BLOCK: al.constexpr = 64,
):  # fmt: skip
    """Every head of every batch by its own factor; one axis of the grid counts both."""
    B, H, N = x.shape
    block, bh = al.grid(al.cdiv(N, BLOCK), B * H)
    b, h = bh // H, bh % H
    n = block * BLOCK + al.arange(BLOCK)
    al.store(out[b, h, n], al.load(x[b, h, n], mask=n < N) * al.load(factor[b, h]), mask=n < N)
