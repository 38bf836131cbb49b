"""Convolution whose filters are transposed: right for all filters that are symmetric."""

import argus
import argus.language as al


@argus.kernel
def conv2d_rejected(
    x: al.Tensor[al.float32, "B C H W"],
    weight: al.Tensor[al.float32, "F C 3 3"],
    bias: al.Tensor[al.float32, "F"],
    out: al.Tensor[al.float32, "B F H W"],
    ROWS: al.constexpr = 8,
    COLUMNS: al.constexpr = 32,
):
    B, C, H, W = x.shape
    F = bias.shape[0]
    al.spec(
        out,
        lambda b, f, h, w: al.sum(lambda c: al.sum(lambda r: al.sum(lambda s: al.where(
            (1 <= h + r) & (h + r <= H) & (1 <= w + s) & (w + s <= W),
            weight[f, c, r, s] * x[b, c, h + r - 1, w + s - 1],
            0.0,
        ))))
        + bias[f],
    )  # fmt: skip
    b, f, band = al.grid(B, F, al.cdiv(H, ROWS))
    h = (band * ROWS + al.arange(ROWS))[:, None]
    for w0 in range(0, W, COLUMNS):
        w = (w0 + al.arange(COLUMNS))[None, :]
        acc = al.zeros((ROWS, COLUMNS), al.float32)
        for c in range(C):
            for r in al.static_range(3):
                for s in al.static_range(3):
                    inside = (1 <= h + r) & (h + r <= H) & (1 <= w + s) & (w + s <= W)
                    acc += al.load(weight[f, c, s, r]) * al.load(x[b, c, h + r - 1, w + s - 1], mask=inside)
        al.store(out[b, f, h, w], acc + al.load(bias[f]), mask=(h < H) & (w < W))
