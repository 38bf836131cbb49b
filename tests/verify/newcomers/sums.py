"""Attention, scans, recurrences and contractions, as a newcomer spells them."""

import argus
import argus.language as al

NEG = -float("inf")


@argus.kernel(num_warps=4)
def attention_bias_softcap(
    q: al.Tensor[al.bfloat16, "BH M D"],
    k: al.Tensor[al.bfloat16, "BH N D"],
    v: al.Tensor[al.bfloat16, "BH N D"],
    bias: al.Tensor[al.float32, "M N"],
    out: al.Tensor[al.float32, "BH M D"],
    scale: al.float32,
    D: al.constexpr = 64,
    BM: al.constexpr = 64,
    BN: al.constexpr = 32,
    CAP: al.constexpr = 30.0,
):
    BH, M, N = q.shape[0], q.shape[1], k.shape[1]
    al.requires(N >= 1)
    al.spec(
        out,
        lambda b, i, e: al.sum(
            lambda n: (
                al.softmax(
                    lambda j: al.tanh(al.sum(lambda d: q[b, i, d] * k[b, j, d]) * scale / CAP) * CAP + bias[i, j]
                )[n]
                * v[b, n, e]
            )
        ),
    )
    mb, b = al.grid(al.cdiv(M, BM), BH)
    i0 = mb * BM
    i = i0 + al.arange(BM)
    qt = al.stage(q[b, i0 : i0 + BM, :], boundary_check=(0,))
    m = al.full((BM,), -1e30, al.float32)
    l = al.zeros((BM,), al.float32)
    acc = al.zeros((BM, D), al.float32)
    for n0 in range(0, N, BN):
        j = n0 + al.arange(BN)
        kt = al.stage(k[b, n0 : n0 + BN, :], boundary_check=(0,))
        vt = al.stage(v[b, n0 : n0 + BN, :], boundary_check=(0,))
        s = al.mma(qt, kt, al.zeros((BM, BN), al.float32))
        s = CAP * al.tanh(s * (scale / CAP))
        s = s + al.load(bias[i[:, None], j[None, :]], mask=(i < M)[:, None] & (j < N)[None, :])
        s = al.where((j < N)[None, :], s, NEG)
        mn = al.maximum(m, al.max(s, axis=1))
        alpha = al.exp(m - mn)
        p = al.exp(s - mn[:, None])
        l = l * alpha + al.sum(p, axis=1)
        acc = acc * alpha[:, None]
        acc = al.mma(p.to(al.bfloat16), al.trans(vt), acc)
        m = mn
    al.store(out[b, i0 : i0 + BM, :], acc / l[:, None], boundary_check=(0,))


@argus.kernel
def decode_attention_sink(
    q: al.Tensor[al.float32, "B D"],
    k: al.Tensor[al.float32, "B N D"],
    v: al.Tensor[al.float32, "B N D"],
    sink: al.float32,
    lens: al.Tensor[al.int32, "B"],
    out: al.Tensor[al.float32, "B D"],
    D: al.constexpr = 32,
    BN: al.constexpr = 32,
):
    B, N = k.shape[0], k.shape[1]
    al.requires(al.in_range(lens, 0, N + 1))
    al.spec(
        out,
        lambda b, e: (
            al.sum(lambda n: al.where(n < lens[b], al.exp(al.sum(lambda d: q[b, d] * k[b, n, d])) * v[b, n, e], 0.0))
            / (
                al.exp(sink)
                + al.sum(lambda n: al.where(n < lens[b], al.exp(al.sum(lambda d: q[b, d] * k[b, n, d])), 0.0))
            )
        ),
    )
    b = al.grid(B)
    d = al.arange(D)
    qv = al.load(q[b, d])
    length = al.load(lens[b])
    m = al.full((1,), sink, al.float32)
    l = al.full((1,), 1.0, al.float32)
    acc = al.zeros((D,), al.float32)
    for n0 in range(0, length, BN):
        n = n0 + al.arange(BN)
        live = n < length
        s = al.sum(qv[None, :] * al.load(k[b, n[:, None], d[None, :]], mask=live[:, None]), axis=1)
        s = al.where(live, s, NEG)
        mn = al.maximum(m, al.max(s, axis=0, keep_dims=True))
        a = al.exp(m - mn)
        p = al.exp(s - mn)
        l = l * a + al.sum(p, axis=0, keep_dims=True)
        acc = acc * a + al.sum(p[:, None] * al.load(v[b, n[:, None], d[None, :]], mask=live[:, None]), axis=0)
        m = mn
    al.store(out[b, d], acc / l)


@argus.kernel
def cumsum_scan(x: al.Tensor[al.float32, "M N"], out: al.Tensor[al.float32, "M N"], BLOCK: al.constexpr = 128):
    M, N = x.shape
    al.spec(out, lambda i, j: al.sum(lambda k: al.where(k <= j, x[i, k], 0.0)))
    i = al.grid(M)
    carry = al.zeros((1,), al.float32)
    for j0 in range(0, N, BLOCK):
        j = j0 + al.arange(BLOCK)
        v = al.load(x[i, j], mask=j < N)
        al.store(out[i, j], carry + al.cumsum(v, 0), mask=j < N)
        carry += al.sum(v, axis=0, keep_dims=True)


@argus.kernel
def cumulative_mean(x: al.Tensor[al.float32, "T D"], out: al.Tensor[al.float32, "T D"], BD: al.constexpr = 64):
    T, D = x.shape
    al.spec(out, lambda t, d: al.sum(lambda s: al.where(s <= t, x[s, d], 0.0)) / (t + 1).to(al.float32))
    d = al.grid(al.cdiv(D, BD)) * BD + al.arange(BD)
    acc = al.zeros((BD,), al.float32)
    for t in range(T):
        acc += al.load(x[t, d], mask=d < D)
        al.store(out[t, d], acc / (t + 1).to(al.float32), mask=d < D)


@argus.kernel
def cummax(x: al.Tensor[al.float32, "M N"], out: al.Tensor[al.float32, "M N"]):
    M, N = x.shape
    al.spec(out, lambda i, j: al.max(lambda k: al.where(k <= j, x[i, k], NEG)))
    i = al.grid(M)
    top = al.full((1,), NEG, al.float32)
    for j in range(N):
        top = al.maximum(top, al.load(x[i, j]))
        al.store(out[i, j + al.arange(1)], top)


@argus.kernel
def cumprod_rows(x: al.Tensor[al.float32, "M N"], out: al.Tensor[al.float32, "M N"], BLOCK: al.constexpr = 64):
    M, N = x.shape
    al.requires(N <= BLOCK)
    al.spec(out, lambda i, j: al.prod(lambda k: al.where(k <= j, x[i, k], 1.0)))
    i = al.grid(M)
    c = al.arange(BLOCK)
    al.store(out[i, c], al.cumprod(al.load(x[i, c], mask=c < N, other=1.0), 0), mask=c < N)


@argus.kernel
def einsum_bij_bjk(
    a: al.Tensor[al.float32, "B I J"],
    b: al.Tensor[al.float32, "B J K"],
    out: al.Tensor[al.float32, "I K"],
    BI: al.constexpr = 16,
    BK: al.constexpr = 16,
):
    B, I, J = a.shape
    K = b.shape[2]
    al.spec(out, lambda i, k: al.sum(lambda n: al.sum(lambda j: a[n, i, j] * b[n, j, k])))
    pi, pk = al.grid(al.cdiv(I, BI), al.cdiv(K, BK))
    i = pi * BI + al.arange(BI)
    k = pk * BK + al.arange(BK)
    acc = al.zeros((BI, BK), al.float32)
    for n in range(B):
        for j in range(J):
            left = al.load(a[n, i, j], mask=i < I)
            right = al.load(b[n, j, k], mask=k < K)
            acc += left[:, None] * right[None, :]
    al.store(out[i[:, None], k[None, :]], acc, mask=(i < I)[:, None] & (k < K)[None, :])


@argus.kernel
def bilinear(
    x: al.Tensor[al.float32, "M I"],
    w: al.Tensor[al.float32, "I J"],
    y: al.Tensor[al.float32, "M J"],
    out: al.Tensor[al.float32, "M"],
    BJ: al.constexpr = 64,
):
    M, I = x.shape
    J = w.shape[1]
    al.spec(out, lambda m: al.sum(lambda i: al.sum(lambda j: x[m, i] * w[i, j] * y[m, j])))
    m = al.grid(M)
    total = al.zeros((BJ,), al.float32)
    for j0 in range(0, J, BJ):
        j = j0 + al.arange(BJ)
        t = al.zeros((BJ,), al.float32)
        for i in range(I):
            t += al.load(x[m, i]) * al.load(w[i, j], mask=j < J)
        total += t * al.load(y[m, j], mask=j < J)
    al.store(out[m], al.sum(total))


@argus.kernel
def cdist_squared(
    x: al.Tensor[al.float32, "M D"],
    y: al.Tensor[al.float32, "N D"],
    out: al.Tensor[al.float32, "M N"],
    BM: al.constexpr = 16,
    BN: al.constexpr = 16,
    BD: al.constexpr = 16,
):
    M, D = x.shape
    N = y.shape[0]
    al.spec(out, lambda i, j: al.sum(lambda d: (x[i, d] - y[j, d]) * (x[i, d] - y[j, d])))
    pm, pn = al.grid(al.cdiv(M, BM), al.cdiv(N, BN))
    i0, j0 = pm * BM, pn * BN
    xy = al.zeros((BM, BN), al.float32)
    xx = al.zeros((BM,), al.float32)
    yy = al.zeros((BN,), al.float32)
    for d0 in range(0, D, BD):
        a = al.load(x[i0 : i0 + BM, d0 : d0 + BD], boundary_check=(0, 1))
        b = al.load(y[j0 : j0 + BN, d0 : d0 + BD], boundary_check=(0, 1))
        xy += al.sum(a[:, None, :] * b[None, :, :], axis=2)
        xx += al.sum(a * a, axis=1)
        yy += al.sum(b * b, axis=1)
    al.store(out[i0 : i0 + BM, j0 : j0 + BN], xx[:, None] + yy[None, :] - 2.0 * xy, boundary_check=(0, 1))


@argus.kernel
def linear_attention_recurrent(
    q: al.Tensor[al.float32, "T D"],
    k: al.Tensor[al.float32, "T D"],
    v: al.Tensor[al.float32, "T E"],
    out: al.Tensor[al.float32, "T E"],
    D: al.constexpr = 16,
    E: al.constexpr = 16,
):
    T = q.shape[0]
    al.spec(out, lambda t, e: al.sum(lambda s: al.where(s <= t, al.sum(lambda d: q[t, d] * k[s, d]) * v[s, e], 0.0)))
    g = al.grid(1)
    d = al.arange(D)
    e = al.arange(E)
    state = al.zeros((D, E), al.float32)
    for t in range(T):
        state += al.load(k[t, d])[:, None] * al.load(v[t, e])[None, :]
        al.store(out[t, e], al.sum(al.load(q[t, d])[:, None] * state, axis=0))


@argus.kernel
def gated_recurrence(
    a: al.Tensor[al.float32, "T D"],
    u: al.Tensor[al.float32, "T D"],
    out: al.Tensor[al.float32, "T D"],
    BD: al.constexpr = 64,
):
    T, D = a.shape
    al.spec(
        out,
        lambda t, d: al.sum(
            lambda j: al.where(
                j <= t, al.prod(lambda s: al.where((j < s) & (s <= t), al.sigmoid(a[s, d]), 1.0)) * u[j, d], 0.0
            )
        ),
    )
    d = al.grid(al.cdiv(D, BD)) * BD + al.arange(BD)
    h = al.zeros((BD,), al.float32)
    for t in range(T):
        g = al.sigmoid(al.load(a[t, d], mask=d < D))
        h = g * h + al.load(u[t, d], mask=d < D)
        al.store(out[t, d], h, mask=d < D)


@argus.kernel
def mamba_step(
    h: al.Tensor[al.float32, "D N"],
    dt: al.Tensor[al.float32, "D"],
    A: al.Tensor[al.float32, "D N"],
    B: al.Tensor[al.float32, "N"],
    C: al.Tensor[al.float32, "N"],
    x: al.Tensor[al.float32, "D"],
    y: al.Tensor[al.float32, "D"],
    hn: al.Tensor[al.float32, "D N"],
    N: al.constexpr = 16,
    BD: al.constexpr = 32,
):
    D = h.shape[0]
    al.spec(hn, lambda d, n: al.exp(dt[d] * A[d, n]) * h[d, n] + dt[d] * B[n] * x[d])
    al.spec(y, lambda d: al.sum(lambda n: (al.exp(dt[d] * A[d, n]) * h[d, n] + dt[d] * B[n] * x[d]) * C[n]))
    d = al.grid(al.cdiv(D, BD)) * BD + al.arange(BD)
    n = al.arange(N)
    live = d < D
    step = al.load(dt[d], mask=live)
    xv = al.load(x[d], mask=live)
    old = al.load(h[d[:, None], n[None, :]], mask=live[:, None])
    a = al.load(A[d[:, None], n[None, :]], mask=live[:, None])
    new = old * al.exp(a * step[:, None]) + (step * xv)[:, None] * al.load(B[n])[None, :]
    al.store(hn[d[:, None], n[None, :]], new, mask=live[:, None])
    al.store(y[d], al.sum(new * al.load(C[n])[None, :], axis=1), mask=live)
