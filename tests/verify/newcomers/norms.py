"""Normalisations and softmaxes, as a newcomer spells them."""

import argus
import argus.language as al

NEG = -float("inf")


@argus.kernel
def layer_norm_two_pass(
    x: al.Tensor[al.float32, "M N"],
    g: al.Tensor[al.float32, "N"],
    b: al.Tensor[al.float32, "N"],
    out: al.Tensor[al.float32, "M N"],
    eps: al.float32,
    BLOCK: al.constexpr = 256,
):
    M, N = x.shape
    al.requires(N >= 1)
    al.requires(eps > 0.0)
    al.spec(
        out,
        lambda i, j: (
            (x[i, j] - al.sum(lambda k: x[i, k]) / N.to(al.float32))
            / al.sqrt(
                al.sum(
                    lambda n: (
                        (x[i, n] - al.sum(lambda k: x[i, k]) / N.to(al.float32))
                        * (x[i, n] - al.sum(lambda k: x[i, k]) / N.to(al.float32))
                    )
                )
                / N.to(al.float32)
                + eps
            )
            * g[j]
            + b[j]
        ),
    )
    row = al.grid(M)
    n = N.to(al.float32)
    acc = al.zeros((BLOCK,), al.float32)
    for j0 in range(0, N, BLOCK):
        c = j0 + al.arange(BLOCK)
        acc += al.load(x[row, c], mask=c < N)
    mean = al.sum(acc) / n
    var = al.zeros((BLOCK,), al.float32)
    for j0 in range(0, N, BLOCK):
        c = j0 + al.arange(BLOCK)
        d = al.where(c < N, al.load(x[row, c], mask=c < N) - mean, 0.0)
        var += d * d
    rstd = al.rsqrt(al.sum(var) / n + eps)
    for j0 in range(0, N, BLOCK):
        c = j0 + al.arange(BLOCK)
        v = al.load(x[row, c], mask=c < N)
        al.store(out[row, c], (v - mean) * rstd * al.load(g[c], mask=c < N) + al.load(b[c], mask=c < N), mask=c < N)


@argus.kernel
def layer_norm_one_pass(
    x: al.Tensor[al.float32, "M N"], out: al.Tensor[al.float32, "M N"], eps: al.float32, BLOCK: al.constexpr = 256
):
    M, N = x.shape
    al.requires(N >= 1)
    al.requires(eps > 0.0)
    al.spec(
        out,
        lambda i, j: (
            (x[i, j] - al.sum(lambda k: x[i, k]) / N.to(al.float32))
            / al.sqrt(
                al.sum(
                    lambda n: (
                        (x[i, n] - al.sum(lambda k: x[i, k]) / N.to(al.float32))
                        * (x[i, n] - al.sum(lambda k: x[i, k]) / N.to(al.float32))
                    )
                )
                / N.to(al.float32)
                + eps
            )
        ),
    )
    row = al.grid(M)
    s1 = al.zeros((BLOCK,), al.float32)
    s2 = al.zeros((BLOCK,), al.float32)
    for j0 in range(0, N, BLOCK):
        c = j0 + al.arange(BLOCK)
        v = al.load(x[row, c], mask=c < N)
        s1 += v
        s2 += v * v
    mean = al.sum(s1) / N.to(al.float32)
    var = al.sum(s2) / N.to(al.float32) - mean * mean
    r = 1.0 / al.sqrt(var + eps)
    for j0 in range(0, N, BLOCK):
        c = j0 + al.arange(BLOCK)
        v = al.load(x[row, c], mask=c < N)
        al.store(out[row, c], (v - mean) * r, mask=c < N)


@argus.kernel
def rms_norm_residual(
    x: al.Tensor[al.bfloat16, "M N"],
    res: al.Tensor[al.bfloat16, "M N"],
    w: al.Tensor[al.bfloat16, "N"],
    out: al.Tensor[al.bfloat16, "M N"],
    eps: al.float32,
    BLOCK: al.constexpr = 1024,
):
    M, N = x.shape
    al.requires((0 < N) & (N <= BLOCK))
    al.spec(
        out,
        lambda i, j: (
            (x[i, j].to(al.float32) + res[i, j].to(al.float32))
            * w[j].to(al.float32)
            / al.sqrt(
                al.sum(
                    lambda k: (
                        (x[i, k].to(al.float32) + res[i, k].to(al.float32))
                        * (x[i, k].to(al.float32) + res[i, k].to(al.float32))
                    )
                )
                / N.to(al.float32)
                + eps
            )
        ),
    )
    row = al.grid(M)
    c = al.arange(BLOCK)
    h = al.load(x[row, c], mask=c < N).to(al.float32) + al.load(res[row, c], mask=c < N).to(al.float32)
    ms = al.sum(h * h, axis=0) / N.to(al.float32)
    y = h * al.rsqrt(ms + eps) * al.load(w[c], mask=c < N).to(al.float32)
    al.store(out[row, c], y.to(al.bfloat16), mask=c < N)


@argus.kernel
def group_norm(
    x: al.Tensor[al.float32, "B G C L"],
    gamma: al.Tensor[al.float32, "G C"],
    beta: al.Tensor[al.float32, "G C"],
    out: al.Tensor[al.float32, "B G C L"],
    eps: al.float32,
    BLOCK: al.constexpr = 128,
):
    B, G, C, L = x.shape
    al.requires((C >= 1) & (L >= 1) & (C <= 4096) & (L <= 4096) & (eps > 0.0))
    al.spec(
        out,
        lambda b, g, c, l: (
            (x[b, g, c, l] - al.sum(lambda d: al.sum(lambda m: x[b, g, d, m])) / (C * L).to(al.float32))
            * al.rsqrt(
                al.sum(lambda d: al.sum(lambda m: x[b, g, d, m] * x[b, g, d, m])) / (C * L).to(al.float32)
                - (al.sum(lambda d: al.sum(lambda m: x[b, g, d, m])) / (C * L).to(al.float32))
                * (al.sum(lambda d: al.sum(lambda m: x[b, g, d, m])) / (C * L).to(al.float32))
                + eps
            )
            * gamma[g, c]
            + beta[g, c]
        ),
    )
    g, b = al.grid(G, B)
    size = (C * L).to(al.float32)
    total = al.zeros((BLOCK,), al.float32)
    squares = al.zeros((BLOCK,), al.float32)
    for c in range(C):
        for l0 in range(0, L, BLOCK):
            l = l0 + al.arange(BLOCK)
            v = al.load(x[b, g, c, l], mask=l < L)
            total += v
            squares += v * v
    mean = al.sum(total) / size
    var = al.sum(squares) / size - mean * mean
    r = al.rsqrt(var + eps)
    for c in range(C):
        scale = al.load(gamma[g, c]) * r
        shift = al.load(beta[g, c]) - mean * scale
        for l0 in range(0, L, BLOCK):
            l = l0 + al.arange(BLOCK)
            al.store(out[b, g, c, l], al.load(x[b, g, c, l], mask=l < L) * scale + shift, mask=l < L)


@argus.kernel
def weight_norm(
    v: al.Tensor[al.float32, "M N"],
    g: al.Tensor[al.float32, "M"],
    out: al.Tensor[al.float32, "M N"],
    BLOCK: al.constexpr = 512,
):
    M, N = v.shape
    al.requires(N <= BLOCK)
    al.spec(out, lambda i, j: g[i] * v[i, j] / al.sqrt(al.sum(lambda k: v[i, k] * v[i, k])))
    i = al.grid(M)
    c = al.arange(BLOCK)
    row = al.load(v[i, c], mask=c < N)
    norm = al.sqrt(al.sum(row * row))
    al.store(out[i, c], row * (al.load(g[i]) / norm), mask=c < N)


@argus.kernel
def l2_normalise_clamped(v: al.Tensor[al.float32, "M N"], out: al.Tensor[al.float32, "M N"], BLOCK: al.constexpr = 512):
    M, N = v.shape
    al.requires(N <= BLOCK)
    al.spec(out, lambda i, j: v[i, j] / al.maximum(al.sqrt(al.sum(lambda k: v[i, k] * v[i, k])), 1e-12))
    i = al.grid(M)
    c = al.arange(BLOCK)
    row = al.load(v[i, c], mask=c < N, other=0.0)
    inv = 1.0 / al.maximum(al.sqrt(al.sum(row * row)), 1e-12)
    al.store(out[i, c], row * inv, mask=c < N)


@argus.kernel
def log_softmax_online(x: al.Tensor[al.float32, "M N"], out: al.Tensor[al.float32, "M N"], BLOCK: al.constexpr = 128):
    M, N = x.shape
    al.requires(N > 0)
    al.spec(out, lambda i, j: x[i, j] - al.log(al.sum(lambda k: al.exp(x[i, k]))))
    row = al.grid(M)
    top = al.full((1,), -float("inf"), al.float32)
    total = al.zeros((1,), al.float32)
    for j0 in range(0, N, BLOCK):
        c = j0 + al.arange(BLOCK)
        v = al.load(x[row, c], mask=c < N, other=-float("inf"))
        new = al.maximum(top, al.max(v, axis=0, keep_dims=True))
        total = total * al.exp(top - new) + al.sum(al.exp(v - new), axis=0, keep_dims=True)
        top = new
    lse = top + al.log(total)
    for j0 in range(0, N, BLOCK):
        c = j0 + al.arange(BLOCK)
        v = al.load(x[row, c], mask=c < N)
        al.store(out[row, c], v - lse, mask=c < N)


@argus.kernel
def softmax_temperature(
    x: al.Tensor[al.float32, "M N"],
    out: al.Tensor[al.float32, "M N"],
    temperature: al.float32,
    BLOCK: al.constexpr = 512,
):
    M, N = x.shape
    al.requires((N <= BLOCK) & (temperature > 0.0))
    al.spec(out, lambda i, j: al.softmax(lambda k: x[i, k] / temperature)[j])
    row = al.grid(M)
    c = al.arange(BLOCK)
    v = al.load(x[row, c], mask=c < N, other=-float("inf")) * (1.0 / temperature)
    e = al.exp(v - al.max(v))
    al.store(out[row, c], e / al.sum(e), mask=c < N)


@argus.kernel
def softmax_bool_mask(
    x: al.Tensor[al.float32, "M N"],
    keep: al.Tensor[al.boolean, "M N"],
    out: al.Tensor[al.float32, "M N"],
    BLOCK: al.constexpr = 512,
):
    M, N = x.shape
    al.requires(N <= BLOCK)
    al.spec(out, lambda i, j: al.softmax(lambda k: al.where(keep[i, k], x[i, k], -1e9))[j])
    row = al.grid(M)
    c = al.arange(BLOCK)
    v = al.load(x[row, c], mask=c < N)
    v = al.where(al.load(keep[row, c], mask=c < N), v, -1e9)
    v = al.where(c < N, v, -float("inf"))
    e = al.exp(v - al.max(v))
    al.store(out[row, c], e / al.sum(e), mask=c < N)


@argus.kernel
def softmax_backward(
    y: al.Tensor[al.float32, "M N"],
    dy: al.Tensor[al.float32, "M N"],
    dx: al.Tensor[al.float32, "M N"],
    BLOCK: al.constexpr = 512,
):
    M, N = y.shape
    al.requires(N <= BLOCK)
    al.spec(dx, lambda i, j: y[i, j] * (dy[i, j] - al.sum(lambda k: y[i, k] * dy[i, k])))
    row = al.grid(M)
    c = al.arange(BLOCK)
    p = al.load(y[row, c], mask=c < N)
    d = al.load(dy[row, c], mask=c < N)
    z = p * d
    al.store(dx[row, c], z - p * al.sum(z), mask=c < N)


@argus.kernel
def layer_norm_backward(
    x: al.Tensor[al.float32, "M N"],
    dy: al.Tensor[al.float32, "M N"],
    w: al.Tensor[al.float32, "N"],
    mean: al.Tensor[al.float32, "M"],
    rstd: al.Tensor[al.float32, "M"],
    dx: al.Tensor[al.float32, "M N"],
    BLOCK: al.constexpr = 512,
):
    M, N = x.shape
    al.requires((1 <= N) & (N <= BLOCK))
    al.spec(
        dx,
        lambda i, j: (
            rstd[i]
            * (
                w[j] * dy[i, j]
                - al.sum(lambda k: w[k] * dy[i, k]) / N.to(al.float32)
                - (x[i, j] - mean[i])
                * rstd[i]
                * al.sum(lambda k: w[k] * dy[i, k] * (x[i, k] - mean[i]) * rstd[i])
                / N.to(al.float32)
            )
        ),
    )
    row = al.grid(M)
    c = al.arange(BLOCK)
    live = c < N
    mu = al.load(mean[row])
    r = al.load(rstd[row])
    xhat = al.where(live, (al.load(x[row, c], mask=live) - mu) * r, 0.0)
    wdy = al.load(w[c], mask=live) * al.load(dy[row, c], mask=live)
    c1 = al.sum(xhat * wdy) / N.to(al.float32)
    c2 = al.sum(wdy) / N.to(al.float32)
    al.store(dx[row, c], (wdy - (xhat * c1 + c2)) * r, mask=live)


@argus.kernel
def batch_norm_eval(
    x: al.Tensor[al.float32, "N C L"],
    mean: al.Tensor[al.float32, "C"],
    var: al.Tensor[al.float32, "C"],
    g: al.Tensor[al.float32, "C"],
    b: al.Tensor[al.float32, "C"],
    out: al.Tensor[al.float32, "N C L"],
    eps: al.float32,
    BLOCK: al.constexpr = 128,
):
    N, C, L = x.shape
    al.spec(out, lambda n, c, l: al.maximum((x[n, c, l] - mean[c]) / al.sqrt(var[c] + eps) * g[c] + b[c], 0.0))
    lb, c, n = al.grid(al.cdiv(L, BLOCK), C, N)
    l = lb * BLOCK + al.arange(BLOCK)
    s = al.load(g[c]) * al.rsqrt(al.load(var[c]) + eps)
    t = al.load(b[c]) - al.load(mean[c]) * s
    y = al.load(x[n, c, l], mask=l < L) * s + t
    al.store(out[n, c, l], al.where(y > 0.0, y, 0.0), mask=l < L)


@argus.kernel
def min_max_scale(x: al.Tensor[al.float32, "M N"], out: al.Tensor[al.float32, "M N"], BLOCK: al.constexpr = 512):
    M, N = x.shape
    al.requires((1 <= N) & (N <= BLOCK))
    al.spec(
        out,
        lambda i, j: (
            (x[i, j] - al.min(lambda k: x[i, k])) / (al.max(lambda k: x[i, k]) - al.min(lambda k: x[i, k]) + 1e-6)
        ),
    )
    i = al.grid(M)
    c = al.arange(BLOCK)
    v = al.load(x[i, c], mask=c < N)
    hi = al.max(al.where(c < N, v, NEG))
    lo = al.min(al.where(c < N, v, float("inf")))
    al.store(out[i, c], (v - lo) / (hi - lo + 1e-6), mask=c < N)
