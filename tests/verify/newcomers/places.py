"""Packed, flattened, rolled and resampled elements, as a newcomer spells them."""

import argus
import argus.language as al

NEG = -float("inf")


@argus.kernel
def dequant_int8_groups(
    w: al.Tensor[al.int8, "N K"],
    scale: al.Tensor[al.float32, "N G"],
    out: al.Tensor[al.float32, "N K"],
    BN: al.constexpr = 8,
    BK: al.constexpr = 64,
):
    N, K = w.shape
    G = scale.shape[1]
    al.requires(K == G * 32)
    al.spec(out, lambda n, k: w[n, k].to(al.float32) * scale[n, k // 32])
    pn, pk = al.grid(al.cdiv(N, BN), al.cdiv(K, BK))
    n = (pn * BN + al.arange(BN))[:, None]
    k = (pk * BK + al.arange(BK))[None, :]
    live = (n < N) & (k < K)
    q = al.load(w[n, k], mask=live).to(al.float32)
    s = al.load(scale[n, k // 32], mask=live)
    al.store(out[n, k], q * s, mask=live)


@argus.kernel
def dequant_int4_packed(
    w: al.Tensor[al.uint8, "N H"],
    scale: al.Tensor[al.float32, "N"],
    out: al.Tensor[al.float32, "N K"],
    BLOCK: al.constexpr = 128,
):
    N, H = w.shape
    K = out.shape[1]
    al.requires((K == 2 * H) & (H < 2**29))
    al.spec(out, lambda n, k: (((w[n, k // 2].to(al.int32) >> (4 * (k % 2))) & 15) - 8).to(al.float32) * scale[n])
    n, pb = al.grid(N, al.cdiv(H, BLOCK))
    h = pb * BLOCK + al.arange(BLOCK)
    v = al.load(w[n, h], mask=h < H).to(al.int32)
    s = al.load(scale[n])
    al.store(out[n, 2 * h], ((v & 15) - 8).to(al.float32) * s, mask=h < H)
    al.store(out[n, 2 * h + 1], ((v >> 4) - 8).to(al.float32) * s, mask=h < H)


@argus.kernel
def dequant_gemv(
    w: al.Tensor[al.int8, "N K"],
    scale: al.Tensor[al.float32, "N"],
    zero: al.Tensor[al.float32, "N"],
    x: al.Tensor[al.float32, "K"],
    out: al.Tensor[al.float32, "N"],
    BK: al.constexpr = 128,
):
    N, K = w.shape
    al.spec(out, lambda n: al.sum(lambda k: (w[n, k].to(al.float32) - zero[n]) * scale[n] * x[k]))
    n = al.grid(N)
    acc = al.zeros((BK,), al.float32)
    sx = al.zeros((BK,), al.float32)
    for k0 in range(0, K, BK):
        k = k0 + al.arange(BK)
        xv = al.load(x[k], mask=k < K)
        acc += al.load(w[n, k], mask=k < K).to(al.float32) * xv
        sx += xv
    al.store(out[n], al.load(scale[n]) * (al.sum(acc) - al.load(zero[n]) * al.sum(sx)))


@argus.kernel
def roll_scatter(x: al.Tensor[al.float32, "M N"], out: al.Tensor[al.float32, "M N"], BLOCK: al.constexpr = 128):
    M, N = x.shape
    al.requires(N >= 1)
    al.spec(out, lambda i, j: x[i, (j + 1) % N])
    i, b = al.grid(M, al.cdiv(N, BLOCK))
    j = b * BLOCK + al.arange(BLOCK)
    al.store(out[i, j], al.load(x[i, (j + 1) % N], mask=j < N), mask=j < N)


@argus.kernel
def channel_shuffle(
    x: al.Tensor[al.float32, "B C L"],
    out: al.Tensor[al.float32, "B C L"],
    G: al.constexpr = 4,
    BLOCK: al.constexpr = 128,
):
    B, C, L = x.shape
    al.requires(C % G == 0)
    al.spec(out, lambda b, c, l: x[b, (c % G) * (C // G) + c // G, l])
    lb, c, b = al.grid(al.cdiv(L, BLOCK), C, B)
    l = lb * BLOCK + al.arange(BLOCK)
    source = (c % G) * (C // G) + c // G
    al.store(out[b, c, l], al.load(x[b, source, l], mask=l < L), mask=l < L)


@argus.kernel
def rotary_interleaved(
    x: al.Tensor[al.float32, "T D"],
    cos: al.Tensor[al.float32, "T H"],
    sin: al.Tensor[al.float32, "T H"],
    out: al.Tensor[al.float32, "T D"],
    BLOCK: al.constexpr = 64,
):
    T, D = x.shape
    H = cos.shape[1]
    al.requires((D == 2 * H) & (H < 2**29))
    al.spec(
        out,
        lambda t, d: al.where(
            d % 2 == 0,
            x[t, d] * cos[t, d // 2] - x[t, d + 1] * sin[t, d // 2],
            x[t, d] * cos[t, d // 2] + x[t, d - 1] * sin[t, d // 2],
        ),
    )
    t, b = al.grid(T, al.cdiv(H, BLOCK))
    h = b * BLOCK + al.arange(BLOCK)
    c = al.load(cos[t, h], mask=h < H)
    s = al.load(sin[t, h], mask=h < H)
    even = al.load(x[t, 2 * h], mask=h < H)
    odd = al.load(x[t, 2 * h + 1], mask=h < H)
    al.store(out[t, 2 * h], even * c - odd * s, mask=h < H)
    al.store(out[t, 2 * h + 1], odd * c + even * s, mask=h < H)


@argus.kernel
def rotary_half(
    x: al.Tensor[al.float32, "T D"],
    cos: al.Tensor[al.float32, "T D"],
    sin: al.Tensor[al.float32, "T D"],
    out: al.Tensor[al.float32, "T D"],
    D2: al.constexpr = 32,
):
    T, D = x.shape
    al.requires(D == 2 * D2)
    al.spec(out, lambda t, d: x[t, d] * cos[t, d] + al.where(d < D2, -x[t, d + D2], x[t, d - D2]) * sin[t, d])
    t = al.grid(T)
    d = al.arange(2 * D2)
    v = al.load(x[t, d])
    rotated = al.load(x[t, (d + D2) % (2 * D2)])
    sign = al.where(d < D2, -1.0, 1.0)
    al.store(out[t, d], v * al.load(cos[t, d]) + sign * rotated * al.load(sin[t, d]))


@argus.kernel
def lerp_upsample(x: al.Tensor[al.float32, "N L"], out: al.Tensor[al.float32, "N U"], BLOCK: al.constexpr = 64):
    N, L = x.shape
    U = out.shape[1]
    al.requires((U == 2 * L) & (L < 2**29))
    al.spec(out, lambda n, u: x[n, u // 2])
    ub, n = al.grid(al.cdiv(U, BLOCK), N)
    u = ub * BLOCK + al.arange(BLOCK)
    al.store(out[n, u], al.load(x[n, u >> 1], mask=u < U), mask=u < U)


@argus.kernel
def pixel_shuffle(
    x: al.Tensor[al.float32, "C H W"],
    out: al.Tensor[al.float32, "E P Q"],
    R: al.constexpr = 2,
    BLOCK: al.constexpr = 64,
):
    C, H, W = x.shape
    E, P, Q = out.shape
    al.requires((C == E * R * R) & (P == H * R) & (Q == W * R) & (P < 2**20) & (Q < 2**20) & (C < 2**20))
    al.spec(out, lambda e, p, q: x[e * R * R + (p % R) * R + q % R, p // R, q // R])
    qb, p, e = al.grid(al.cdiv(Q, BLOCK), P, E)
    q = qb * BLOCK + al.arange(BLOCK)
    c = (e * R + p % R) * R + q % R
    al.store(out[e, p, q], al.load(x[c, p // R, q // R], mask=q < Q), mask=q < Q)


@argus.kernel
def strided_slice(
    x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "M"], step: al.int32, BLOCK: al.constexpr = 256
):
    N, M = x.shape[0], out.shape[0]
    al.requires((step >= 1) & (step <= 4) & (M * 4 <= N) & (N < 2**29))
    al.spec(out, lambda i: x[i * step])
    i = al.grid(al.cdiv(M, BLOCK)) * BLOCK + al.arange(BLOCK)
    al.store(out[i], al.load(x[step * i], mask=i < M), mask=i < M)


@argus.kernel
def window_scalar(
    x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "M"], start: al.int32, BLOCK: al.constexpr = 256
):
    N, M = x.shape[0], out.shape[0]
    al.requires((0 <= start) & (start + M <= N))
    al.spec(out, lambda i: x[i + start])
    i = al.grid(al.cdiv(M, BLOCK)) * BLOCK + al.arange(BLOCK)
    al.store(out[i], al.load(x[start + i], mask=i < M), mask=i < M)


@argus.kernel
def flat_p_mod(x: al.Tensor[al.float32, "H W"], out: al.Tensor[al.float32, "H W"], BLOCK: al.constexpr = 64):
    H, W = x.shape
    al.requires((W >= 1) & (H < 32768) & (W < 32768))
    al.spec(out, lambda h, w: al.where(w <= h, x[h, w], 0.0))
    p = al.grid(al.cdiv(H * W, BLOCK)) * BLOCK + al.arange(BLOCK)
    r, c = p // W, p % W
    v = al.load(x[r, c], mask=(p < H * W) & (c <= r))
    al.store(out[r, c], v, mask=p < H * W)


@argus.kernel
def flat_transpose(x: al.Tensor[al.float32, "H W"], out: al.Tensor[al.float32, "W H"], BLOCK: al.constexpr = 64):
    H, W = x.shape
    al.requires((H >= 1) & (W >= 1) & (H < 32768) & (W < 32768))
    al.spec(out, lambda w, h: x[h, w])
    p = al.grid(al.cdiv(H * W, BLOCK)) * BLOCK + al.arange(BLOCK)
    live = p < H * W
    v = al.load(x[p // W, p % W], mask=live)
    al.store(out[p % W, p // W], v, mask=live)


@argus.kernel
def flat_bias_nchw(
    x: al.Tensor[al.float32, "N C H W"],
    bias: al.Tensor[al.float32, "C"],
    out: al.Tensor[al.float32, "N C H W"],
    BLOCK: al.constexpr = 64,
):
    N, C, H, W = x.shape
    al.requires((H >= 1) & (W >= 1) & (H < 32768) & (W < 32768))
    al.spec(out, lambda n, c, h, w: x[n, c, h, w] + bias[c])
    pb, c, n = al.grid(al.cdiv(H * W, BLOCK), C, N)
    p = pb * BLOCK + al.arange(BLOCK)
    live = p < H * W
    v = al.load(x[n, c, p // W, p % W], mask=live) + al.load(bias[c])
    al.store(out[n, c, p // W, p % W], v, mask=live)


@argus.kernel
def conv1d_causal_depthwise(
    x: al.Tensor[al.float32, "B C T"],
    w: al.Tensor[al.float32, "C 4"],
    bias: al.Tensor[al.float32, "C"],
    out: al.Tensor[al.float32, "B C T"],
    BLOCK: al.constexpr = 128,
):
    B, C, T = x.shape
    al.spec(out, lambda b, c, t: al.sum(lambda r: al.where(t + r >= 3, w[c, r] * x[b, c, t + r - 3], 0.0)) + bias[c])
    tb, c, b = al.grid(al.cdiv(T, BLOCK), C, B)
    t = tb * BLOCK + al.arange(BLOCK)
    acc = al.full((BLOCK,), 0.0, al.float32) + al.load(bias[c])
    for r in al.static_range(4):
        s = t - (3 - r)
        acc += al.load(w[c, r]) * al.load(x[b, c, s], mask=(s >= 0) & (t < T))
    al.store(out[b, c, t], acc, mask=t < T)


@argus.kernel
def conv2d_padded_flat(
    x: al.Tensor[al.float32, "C H W"],
    w: al.Tensor[al.float32, "F C 3 3"],
    out: al.Tensor[al.float32, "F H W"],
    BLOCK: al.constexpr = 64,
):
    C, H, W = x.shape
    F = w.shape[0]
    al.requires((W >= 1) & (H < 32768) & (W < 32768))
    al.spec(
        out,
        lambda f, h, q: al.sum(
            lambda c: al.sum(
                lambda r: al.sum(
                    lambda s: al.where(
                        (h + r >= 1) & (h + r <= H) & (q + s >= 1) & (q + s <= W),
                        w[f, c, r, s] * x[c, h + r - 1, q + s - 1],
                        0.0,
                    )
                )
            )
        ),
    )
    pb, f = al.grid(al.cdiv(H * W, BLOCK), F)
    p = pb * BLOCK + al.arange(BLOCK)
    row = p // W
    col = p % W
    acc = al.zeros((BLOCK,), al.float32)
    for c in range(C):
        for r in al.static_range(3):
            for s in al.static_range(3):
                y = row + r - 1
                z = col + s - 1
                ok = (p < H * W) & (y >= 0) & (y < H) & (z >= 0) & (z < W)
                acc += al.load(w[f, c, r, s]) * al.load(x[c, y, z], mask=ok)
    al.store(out[f, row, col], acc, mask=p < H * W)


@argus.kernel
def avg_pool_2x2(x: al.Tensor[al.float32, "N H W"], out: al.Tensor[al.float32, "N P Q"], BLOCK: al.constexpr = 64):
    N, H, W = x.shape
    P, Q = out.shape[1], out.shape[2]
    al.requires((H == 2 * P) & (W == 2 * Q) & (P < 2**28) & (Q < 2**28))
    al.spec(
        out,
        lambda n, p, q: (
            (x[n, 2 * p, 2 * q] + x[n, 2 * p, 2 * q + 1] + x[n, 2 * p + 1, 2 * q] + x[n, 2 * p + 1, 2 * q + 1]) / 4.0
        ),
    )
    qb, p, n = al.grid(al.cdiv(Q, BLOCK), P, N)
    q = qb * BLOCK + al.arange(BLOCK)
    acc = al.zeros((BLOCK,), al.float32)
    for r in al.static_range(2):
        for s in al.static_range(2):
            acc += al.load(x[n, 2 * p + r, 2 * q + s], mask=q < Q) * 0.25
    al.store(out[n, p, q], acc, mask=q < Q)


@argus.kernel
def max_pool_3_stride2(x: al.Tensor[al.float32, "N L"], out: al.Tensor[al.float32, "N U"], BLOCK: al.constexpr = 64):
    N, L = x.shape
    U = out.shape[1]
    al.requires((L == 2 * U) & (U < 2**29))
    al.spec(out, lambda n, u: al.max(lambda i: al.where((2 * u - 1 <= i) & (i <= 2 * u + 1), x[n, i], NEG)))
    ub, n = al.grid(al.cdiv(U, BLOCK), N)
    u = ub * BLOCK + al.arange(BLOCK)
    m = al.full((BLOCK,), NEG, al.float32)
    for r in al.static_range(3):
        i = 2 * u + r - 1
        m = al.maximum(m, al.load(x[n, i], mask=(i >= 0) & (u < U), other=NEG))
    al.store(out[n, u], m, mask=u < U)


@argus.kernel
def global_average_pool(
    x: al.Tensor[al.float32, "N C H W"], out: al.Tensor[al.float32, "N C"], BLOCK: al.constexpr = 128
):
    N, C, H, W = x.shape
    al.requires((H >= 1) & (W >= 1) & (H < 2**15) & (W < 2**15))
    al.spec(out, lambda n, c: al.sum(lambda h: al.sum(lambda w: x[n, c, h, w])) / (H * W).to(al.float32))
    c, n = al.grid(C, N)
    acc = al.zeros((BLOCK,), al.float32)
    for h in range(H):
        for w0 in range(0, W, BLOCK):
            w = w0 + al.arange(BLOCK)
            acc += al.load(x[n, c, h, w], mask=w < W)
    al.store(out[n, c], al.sum(acc) / (H * W).to(al.float32))


@argus.kernel
def lcg_uniform(out: al.Tensor[al.uint32, "N"], seed: al.uint32, BLOCK: al.constexpr = 256):
    N = out.shape[0]
    al.spec(out, lambda i: (seed + i.to(al.uint32)) * 1664525 + 1013904223)
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    al.store(out[i], 1013904223 + 1664525 * (i.to(al.uint32) + seed), mask=i < N)


@argus.kernel
def xorshift_hash(
    x: al.Tensor[al.uint32, "N"], out: al.Tensor[al.uint32, "N"], seed: al.uint32, BLOCK: al.constexpr = 256
):
    N = x.shape[0]
    al.spec(out, lambda i: ((x[i] ^ (x[i] >> 16)) * 0x85EBCA6B) ^ seed)
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    h = al.load(x[i], mask=i < N)
    h = h ^ (h >> 16)
    h = h * 0x85EBCA6B
    al.store(out[i], seed ^ h, mask=i < N)


@argus.kernel
def bucket_hash(x: al.Tensor[al.int32, "N"], out: al.Tensor[al.int32, "N"], BLOCK: al.constexpr = 256):
    N = x.shape[0]
    al.spec(out, lambda i: ((x[i].to(al.uint32) * 2654435761) >> 20).to(al.int32))
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    h = al.load(x[i], mask=i < N).to(al.uint32)
    al.store(out[i], ((h * 2654435761) >> 20).to(al.int32), mask=i < N)


@argus.kernel
def big_int64(x: al.Tensor[al.int64, "N"], out: al.Tensor[al.int64, "N"], BLOCK: al.constexpr = 256):
    N = x.shape[0]
    al.spec(out, lambda i: x[i] ^ 6364136223846793005)
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    al.store(out[i], 6364136223846793005 ^ al.load(x[i], mask=i < N), mask=i < N)


@argus.kernel
def tril_mask_scores(
    x: al.Tensor[al.float32, "B M N"], out: al.Tensor[al.float32, "B M N"], scale: al.float32, BLOCK: al.constexpr = 64
):
    B, M, N = x.shape
    al.spec(out, lambda b, i, j: al.where(j > i, NEG, x[b, i, j] * scale))
    jb, i, b = al.grid(al.cdiv(N, BLOCK), M, B)
    j = jb * BLOCK + al.arange(BLOCK)
    v = al.load(x[b, i, j], mask=(j < N) & (j <= i), other=0.0)
    al.store(out[b, i, j], al.where(i >= j, scale * v, NEG), mask=j < N)
