"""A filter of 3 x 3 for each channel, with a border of zeros: a grid of images, channels, bands and strips."""

import argus
import argus.language as al


@argus.kernel
def depthwise(
    x: al.Tensor[al.float32, "N C H W"],
    weight: al.Tensor[al.float32, "C 3 3"],
    bias: al.Tensor[al.float32, "C"],
    out: al.Tensor[al.float32, "N C H W"],
    ROWS: al.constexpr = 8,
    COLUMNS: al.constexpr = 64,
):
    N, C, H, W = x.shape
    al.spec(
        out,
        lambda n, c, h, w: al.sum(lambda r: al.sum(lambda s: al.where(
            (1 <= h + r) & (h + r <= H) & (1 <= w + s) & (w + s <= W),
            weight[c, r, s] * x[n, c, h + r - 1, w + s - 1],
            0.0,
        )))
        + bias[c],
    )  # fmt: skip
    strip, band, c, n = al.grid(al.cdiv(W, COLUMNS), al.cdiv(H, ROWS), C, N)
    h = (band * ROWS + al.arange(ROWS))[:, None]
    w = (strip * COLUMNS + al.arange(COLUMNS))[None, :]
    acc = al.zeros((ROWS, COLUMNS), al.float32)
    for r in al.static_range(3):
        for s in al.static_range(3):
            inside = (1 <= h + r) & (h + r <= H) & (1 <= w + s) & (w + s <= W)
            acc += al.load(weight[c, r, s]) * al.load(x[n, c, h + r - 1, w + s - 1], mask=inside)
    al.store(out[n, c, h, w], acc + al.load(bias[c]), mask=(h < H) & (w < W))
