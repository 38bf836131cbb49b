"""A rotary embedding that turns the second of each pair the other way round: lengths change, and by angle 0 nothing."""

import argus
import argus.language as al


@argus.kernel
def rotary_rejected(
    x: al.Tensor[al.float32, "B T H 2 E"],
    position: al.Tensor[al.float32, "T"],
    frequency: al.Tensor[al.float32, "E"],
    out: al.Tensor[al.float32, "B T H 2 E"],
    BLOCK: al.constexpr = 64,
):
    B, T, H = x.shape[0], x.shape[1], x.shape[2]
    E = frequency.shape[0]
    al.spec(
        out,
        lambda b, t, h, p, e: al.where(
            p == 0,
            x[b, t, h, 0, e] * al.cos(position[t] * frequency[e])
            - x[b, t, h, 1, e] * al.sin(position[t] * frequency[e]),
            x[b, t, h, 1, e] * al.cos(position[t] * frequency[e])
            + x[b, t, h, 0, e] * al.sin(position[t] * frequency[e]),
        ),
    )
    block, h, t, b = al.grid(al.cdiv(E, BLOCK), H, T, B)
    e = block * BLOCK + al.arange(BLOCK)
    angle = al.load(position[t]) * al.load(frequency[e], mask=e < E)
    c, s = al.cos(angle), al.sin(angle)
    x0, x1 = al.load(x[b, t, h, 0, e], mask=e < E), al.load(x[b, t, h, 1, e], mask=e < E)
    al.store(out[b, t, h, 0, e], x0 * c - x1 * s, mask=e < E)
    al.store(out[b, t, h, 1, e], x1 * c - x0 * s, mask=e < E)
