"""Losses and functions of elements, as a newcomer spells them."""

import argus
import argus.language as al


@argus.kernel
def cross_entropy_smoothed(
    x: al.Tensor[al.float32, "M N"],
    target: al.Tensor[al.int32, "M"],
    loss: al.Tensor[al.float32, "M"],
    smoothing: al.float32,
    BLOCK: al.constexpr = 512,
):
    M, N = x.shape
    al.requires((N <= BLOCK) & (N >= 1))
    al.requires(al.in_range(target, 0, N))
    al.spec(
        loss,
        lambda i: (
            (1.0 - smoothing) * (al.logsumexp(lambda k: x[i, k]) - x[i, target[i]])
            + smoothing * (al.logsumexp(lambda k: x[i, k]) - al.sum(lambda k: x[i, k]) / N.to(al.float32))
        ),
    )
    row = al.grid(M)
    c = al.arange(BLOCK)
    v = al.load(x[row, c], mask=c < N, other=-float("inf"))
    top = al.max(v)
    lse = top + al.log(al.sum(al.exp(v - top)))
    t = al.load(target[row])
    right = al.load(x[row, t])
    mean = al.sum(al.load(x[row, c], mask=c < N)) / N.to(al.float32)
    al.store(loss[row], lse - (1.0 - smoothing) * right - smoothing * mean)


@argus.kernel
def nll_ignore_index(
    logp: al.Tensor[al.float32, "M N"],
    target: al.Tensor[al.int32, "M"],
    loss: al.Tensor[al.float32, "M"],
    BLOCK: al.constexpr = 256,
):
    M, N = logp.shape
    al.requires(al.in_range(target, -100, N))
    al.spec(loss, lambda i: al.where(target[i] >= 0, -logp[i, target[i]], 0.0))
    i = al.grid(al.cdiv(M, BLOCK)) * BLOCK + al.arange(BLOCK)
    t = al.load(target[i], mask=i < M, other=-1)
    v = al.load(logp[i, t], mask=(i < M) & (t >= 0), other=0.0)
    al.store(loss[i], -v, mask=i < M)


@argus.kernel
def huber_loss(
    p: al.Tensor[al.float32, "N"],
    t: al.Tensor[al.float32, "N"],
    out: al.Tensor[al.float32, "N"],
    delta: al.float32,
    BLOCK: al.constexpr = 256,
):
    al.spec(
        out,
        lambda i: al.where(
            al.abs(p[i] - t[i]) <= delta,
            0.5 * (p[i] - t[i]) * (p[i] - t[i]),
            delta * (al.abs(p[i] - t[i]) - 0.5 * delta),
        ),
    )
    N = p.shape[0]
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    d = al.abs(al.load(t[i], mask=i < N) - al.load(p[i], mask=i < N))
    q = al.minimum(d, delta)
    al.store(out[i], q * (d - 0.5 * q), mask=i < N)


@argus.kernel
def focal_loss(
    x: al.Tensor[al.float32, "N"],
    y: al.Tensor[al.float32, "N"],
    out: al.Tensor[al.float32, "N"],
    alpha: al.float32,
    BLOCK: al.constexpr = 256,
):
    N = x.shape[0]
    al.spec(
        out,
        lambda i: (
            -alpha * (1.0 - al.sigmoid(x[i])) * (1.0 - al.sigmoid(x[i])) * y[i] * al.log(al.sigmoid(x[i]))
            - (1.0 - alpha) * al.sigmoid(x[i]) * al.sigmoid(x[i]) * (1.0 - y[i]) * al.log(1.0 - al.sigmoid(x[i]))
        ),
    )
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    v = al.load(x[i], mask=i < N)
    t = al.load(y[i], mask=i < N)
    p = 1.0 / (1.0 + al.exp(-v))
    q = 1.0 - p
    pos = alpha * q * q * al.log(p) * t
    neg = (1.0 - alpha) * p * p * al.log(q) * (1.0 - t)
    al.store(out[i], -(pos + neg), mask=i < N)


@argus.kernel
def bce_with_logits(
    x: al.Tensor[al.float32, "N"],
    y: al.Tensor[al.float32, "N"],
    out: al.Tensor[al.float32, "N"],
    BLOCK: al.constexpr = 256,
):
    N = x.shape[0]
    al.spec(out, lambda i: -y[i] * al.log(al.sigmoid(x[i])) - (1.0 - y[i]) * al.log(1.0 - al.sigmoid(x[i])))
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    v = al.load(x[i], mask=i < N)
    t = al.load(y[i], mask=i < N)
    al.store(out[i], al.maximum(v, 0.0) - v * t + al.log1p(al.exp(-al.abs(v))), mask=i < N)


@argus.kernel
def kl_divergence(
    lp: al.Tensor[al.float32, "M N"],
    lq: al.Tensor[al.float32, "M N"],
    out: al.Tensor[al.float32, "M"],
    BLOCK: al.constexpr = 128,
):
    M, N = lp.shape
    al.spec(out, lambda i: al.sum(lambda k: al.exp(lp[i, k]) * (lp[i, k] - lq[i, k])))
    row = al.grid(M)
    acc = al.zeros((BLOCK,), al.float32)
    for j in range(al.cdiv(N, BLOCK)):
        c = j * BLOCK + al.arange(BLOCK)
        a = al.load(lp[row, c], mask=c < N)
        b = al.load(lq[row, c], mask=c < N)
        acc += al.exp(a) * (a - b)
    al.store(out[row], al.sum(acc))


@argus.kernel
def triplet_margin(
    a: al.Tensor[al.float32, "M D"],
    p: al.Tensor[al.float32, "M D"],
    n: al.Tensor[al.float32, "M D"],
    out: al.Tensor[al.float32, "M"],
    margin: al.float32,
    BLOCK: al.constexpr = 256,
):
    M, D = a.shape
    al.requires(D <= BLOCK)
    al.spec(
        out,
        lambda i: al.maximum(
            al.sqrt(al.sum(lambda d: (a[i, d] - p[i, d]) * (a[i, d] - p[i, d])))
            - al.sqrt(al.sum(lambda d: (a[i, d] - n[i, d]) * (a[i, d] - n[i, d])))
            + margin,
            0.0,
        ),
    )
    i = al.grid(M)
    d = al.arange(BLOCK)
    live = d < D
    av = al.load(a[i, d], mask=live)
    dp = av - al.load(p[i, d], mask=live)
    dn = av - al.load(n[i, d], mask=live)
    dist = al.sqrt(al.sum(dp * dp)) - al.sqrt(al.sum(dn * dn))
    al.store(out[i], al.where(dist + margin > 0.0, dist + margin, 0.0))


@argus.kernel
def logsumexp_pairwise(
    x: al.Tensor[al.float32, "N"],
    y: al.Tensor[al.float32, "N"],
    out: al.Tensor[al.float32, "N"],
    BLOCK: al.constexpr = 256,
):
    N = x.shape[0]
    al.spec(out, lambda i: al.log(al.exp(x[i]) + al.exp(y[i])))
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    a, b = al.load(x[i], mask=i < N), al.load(y[i], mask=i < N)
    m = al.maximum(a, b)
    al.store(out[i], m + al.log1p(al.exp(al.minimum(a, b) - m)), mask=i < N)


@argus.kernel
def gelu_tanh(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "N"], BLOCK: al.constexpr = 256):
    N = x.shape[0]
    al.spec(out, lambda i: 0.5 * x[i] * (1.0 + al.tanh(0.7978845608028654 * (x[i] + 0.044715 * x[i] * x[i] * x[i]))))
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    v = al.load(x[i], mask=i < N)
    u = 0.7978845608028654 * v * (1.0 + 0.044715 * v * v)
    al.store(out[i], v * al.sigmoid(2.0 * u), mask=i < N)


@argus.kernel
def smooth_clamp_hard_swish(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "N"], BLOCK: al.constexpr = 256):
    N = x.shape[0]
    al.spec(out, lambda i: al.where(x[i] <= -3.0, 0.0, al.where(x[i] >= 3.0, x[i], x[i] * (x[i] + 3.0) / 6.0)))
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    v = al.load(x[i], mask=i < N)
    al.store(out[i], v * al.minimum(al.maximum(v + 3.0, 0.0), 6.0) * (1.0 / 6.0), mask=i < N)


@argus.kernel
def swiglu(x: al.Tensor[al.bfloat16, "M N2"], out: al.Tensor[al.bfloat16, "M N"], BLOCK: al.constexpr = 256):
    M, N2 = x.shape
    N = out.shape[1]
    al.requires((N2 == 2 * N) & (N < 2**29))
    al.spec(
        out, lambda i, j: x[i, j].to(al.float32) / (1.0 + al.exp(-x[i, j].to(al.float32))) * x[i, j + N].to(al.float32)
    )
    i, b = al.grid(M, al.cdiv(N, BLOCK))
    c = b * BLOCK + al.arange(BLOCK)
    gate = al.load(x[i, c], mask=c < N).to(al.float32)
    up = al.load(x[i, N + c], mask=c < N).to(al.float32)
    al.store(out[i, c], (up * (gate * al.sigmoid(gate))).to(al.bfloat16), mask=c < N)


@argus.kernel
def adamw(
    p: al.Tensor[al.float32, "N"],
    g: al.Tensor[al.float32, "N"],
    m: al.Tensor[al.float32, "N"],
    v: al.Tensor[al.float32, "N"],
    op: al.Tensor[al.float32, "N"],
    om: al.Tensor[al.float32, "N"],
    ov: al.Tensor[al.float32, "N"],
    lr: al.float32,
    b1: al.float32,
    b2: al.float32,
    eps: al.float32,
    wd: al.float32,
    c1: al.float32,
    c2: al.float32,
    BLOCK: al.constexpr = 256,
):
    N = p.shape[0]
    al.spec(om, lambda i: b1 * m[i] + (1.0 - b1) * g[i])
    al.spec(ov, lambda i: b2 * v[i] + (1.0 - b2) * g[i] * g[i])
    al.spec(
        op,
        lambda i: (
            p[i]
            - lr * wd * p[i]
            - lr * ((b1 * m[i] + (1.0 - b1) * g[i]) / c1) / (al.sqrt((b2 * v[i] + (1.0 - b2) * g[i] * g[i]) / c2) + eps)
        ),
    )
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    live = i < N
    gi = al.load(g[i], mask=live)
    mi = al.load(m[i], mask=live)
    vi = al.load(v[i], mask=live)
    mi = mi + (gi - mi) * (1.0 - b1)
    vi = vi * b2 + gi * gi * (1.0 - b2)
    pi = al.load(p[i], mask=live) * (1.0 - lr * wd)
    pi = pi - lr * (mi / c1) / (al.sqrt(vi / c2) + eps)
    al.store(om[i], mi, mask=live)
    al.store(ov[i], vi, mask=live)
    al.store(op[i], pi, mask=live)


@argus.kernel
def scalar_order_clip(
    x: al.Tensor[al.float32, "N"],
    out: al.Tensor[al.float32, "N"],
    lo: al.float32,
    hi: al.float32,
    BLOCK: al.constexpr = 256,
):
    N = x.shape[0]
    al.requires(lo <= hi)
    al.spec(out, lambda i: al.minimum(al.maximum(x[i], lo), hi))
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    v = al.load(x[i], mask=i < N)
    al.store(out[i], al.maximum(al.minimum(v, hi), lo), mask=i < N)


@argus.kernel
def scalar_relation(
    x: al.Tensor[al.float32, "N"],
    out: al.Tensor[al.float32, "N"],
    a: al.float32,
    b: al.float32,
    BLOCK: al.constexpr = 256,
):
    N = x.shape[0]
    al.requires((0.0 < a) & (a < b))
    al.spec(out, lambda i: x[i] / (b - a))
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    v = al.load(x[i], mask=i < N)
    al.store(out[i], v * (1.0 / (b - a)), mask=i < N)


@argus.kernel
def cosine_similarity(
    x: al.Tensor[al.float32, "M D"],
    y: al.Tensor[al.float32, "M D"],
    out: al.Tensor[al.float32, "M"],
    BLOCK: al.constexpr = 256,
):
    M, D = x.shape
    al.spec(
        out,
        lambda i: (
            al.sum(lambda d: x[i, d] * y[i, d])
            / al.maximum(
                al.sqrt(al.sum(lambda d: x[i, d] * x[i, d])) * al.sqrt(al.sum(lambda d: y[i, d] * y[i, d])), 1e-8
            )
        ),
    )
    i = al.grid(M)
    xy = al.zeros((BLOCK,), al.float32)
    xx = al.zeros((BLOCK,), al.float32)
    yy = al.zeros((BLOCK,), al.float32)
    for d0 in range(0, D, BLOCK):
        d = d0 + al.arange(BLOCK)
        u, v = al.load(x[i, d], mask=d < D), al.load(y[i, d], mask=d < D)
        xy += u * v
        xx += u * u
        yy += v * v
    al.store(out[i], al.sum(xy) / al.maximum(al.sqrt(al.sum(xx)) * al.sqrt(al.sum(yy)), 1e-8))


@argus.kernel
def quantise_rowwise(
    x: al.Tensor[al.float32, "M N"],
    q: al.Tensor[al.int8, "M N"],
    s: al.Tensor[al.float32, "M"],
    BLOCK: al.constexpr = 512,
):
    M, N = x.shape
    al.requires((1 <= N) & (N <= BLOCK))
    al.spec(s, lambda i: al.max(lambda k: al.abs(x[i, k])) / 127.0)
    al.spec(q, lambda i, j: al.floor(x[i, j] / (al.max(lambda k: al.abs(x[i, k])) / 127.0) + 0.5).to(al.int8))
    i = al.grid(M)
    c = al.arange(BLOCK)
    v = al.load(x[i, c], mask=c < N)
    scale = al.max(al.abs(v)) / 127.0
    al.store(s[i], scale)
    al.store(q[i, c], al.floor(v / scale + 0.5).to(al.int8), mask=c < N)
