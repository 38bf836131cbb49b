"""Kernels that the tests of the border to PyTorch compile for the CPU."""

import argus
import argus.language as al


@argus.kernel
def double(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "N"], BLOCK: al.constexpr = 128):
    """`out = 2 x`."""
    N = x.shape[0]
    al.spec(out, lambda i: x[i] * 2.0)
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    al.store(out[i], al.load(x[i], mask=i < N) * 2.0, mask=i < N)


@argus.kernel
def affine(
    x: al.Tensor[al.float32, "N"],
    shift: al.Tensor[al.float32, "N"] | None,
    out: al.Tensor[al.float32, "N"],
    factor: al.float32,
    BLOCK: al.constexpr = 128,
):
    """`out = x * factor + shift`, or without a shift."""
    N = x.shape[0]
    if shift is None:
        al.spec(out, lambda i: x[i] * factor)
    else:
        al.spec(out, lambda i: x[i] * factor + shift[i])
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    y = al.load(x[i], mask=i < N) * factor
    if shift is not None:
        y = y + al.load(shift[i], mask=i < N)
    al.store(out[i], y, mask=i < N)
