"""Gathers, scatters, segments and choices by data, as a newcomer spells them."""

import argus
import argus.language as al

NEG = -float("inf")


@argus.kernel
def masked_mean(
    x: al.Tensor[al.float32, "B T D"],
    keep: al.Tensor[al.boolean, "B T"],
    out: al.Tensor[al.float32, "B D"],
    BD: al.constexpr = 64,
):
    B, T, D = x.shape
    al.spec(
        out,
        lambda b, d: (
            al.sum(lambda t: al.where(keep[b, t], x[b, t, d], 0.0))
            / al.maximum(al.sum(lambda t: al.where(keep[b, t], 1.0, 0.0)), 1.0)
        ),
    )
    db, b = al.grid(al.cdiv(D, BD), B)
    d = db * BD + al.arange(BD)
    acc = al.zeros((BD,), al.float32)
    n = al.zeros((1,), al.float32)
    for t in range(T):
        m = al.load(keep[b, t])
        acc += al.where(m, al.load(x[b, t, d], mask=d < D), 0.0)
        n += al.where(m, 1.0, 0.0)
    al.store(out[b, d], acc / al.maximum(n, 1.0), mask=d < D)


@argus.kernel
def mean_by_lengths(
    x: al.Tensor[al.float32, "B T D"],
    lens: al.Tensor[al.int32, "B"],
    out: al.Tensor[al.float32, "B D"],
    BD: al.constexpr = 64,
    BT: al.constexpr = 16,
):
    B, T, D = x.shape
    al.requires(al.in_range(lens, 1, T + 1))
    al.spec(out, lambda b, d: al.sum(lambda t: al.where(t < lens[b], x[b, t, d], 0.0)) / lens[b].to(al.float32))
    db, b = al.grid(al.cdiv(D, BD), B)
    d = db * BD + al.arange(BD)
    n = al.load(lens[b])
    acc = al.zeros((BD,), al.float32)
    for t0 in range(0, n, BT):
        t = t0 + al.arange(BT)
        v = al.load(x[b, t[:, None], d[None, :]], mask=(t < n)[:, None] & (d < D)[None, :])
        acc += al.sum(v, axis=0)
    al.store(out[b, d], acc / n.to(al.float32), mask=d < D)


@argus.kernel
def histogram(x: al.Tensor[al.int32, "N"], out: al.Tensor[al.int32, "K"], BLOCK: al.constexpr = 256):
    N, K = x.shape[0], out.shape[0]
    al.requires(al.in_range(x, 0, K))
    al.spec(out, lambda k: al.sum(lambda i: al.where(x[i] == k, 1, 0)))
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    k = al.load(x[i], mask=i < N)
    al.atomic_add(out[k], al.full((BLOCK,), 1, al.int32), mask=i < N)


@argus.kernel
def bincount_dense(
    x: al.Tensor[al.int32, "N"], out: al.Tensor[al.int32, "K"], BK: al.constexpr = 32, BN: al.constexpr = 64
):
    N, K = x.shape[0], out.shape[0]
    al.spec(out, lambda k: al.sum(lambda i: al.where(x[i] == k, 1, 0)))
    k = al.grid(al.cdiv(K, BK)) * BK + al.arange(BK)
    acc = al.zeros((BK,), al.int32)
    for i0 in range(0, N, BN):
        i = i0 + al.arange(BN)
        v = al.load(x[i], mask=i < N, other=-1)
        acc += al.sum(al.where((v[None, :] == k[:, None]) & (i < N)[None, :], 1, 0), axis=1)
    al.store(out[k], acc, mask=k < K)


@argus.kernel
def segmented_sum(
    x: al.Tensor[al.float32, "T D"],
    off: al.Tensor[al.int32, "S1"],
    out: al.Tensor[al.float32, "S D"],
    BD: al.constexpr = 64,
):
    T, D = x.shape
    S, S1 = out.shape[0], off.shape[0]
    al.requires(S1 == S + 1)
    al.requires(al.offsets(off, T))
    al.spec(out, lambda s, d: al.sum(lambda t: al.where((off[s] <= t) & (t < off[s + 1]), x[t, d], 0.0)))
    db, s = al.grid(al.cdiv(D, BD), S)
    d = db * BD + al.arange(BD)
    acc = al.zeros((BD,), al.float32)
    for t in range(al.load(off[s]), al.load(off[s + 1])):
        acc += al.load(x[t, d], mask=d < D)
    al.store(out[s, d], acc, mask=d < D)


@argus.kernel
def segment_softmax(
    x: al.Tensor[al.float32, "T"],
    off: al.Tensor[al.int32, "S1"],
    out: al.Tensor[al.float32, "T"],
    BLOCK: al.constexpr = 64,
):
    T, S1 = x.shape[0], off.shape[0]
    al.requires(S1 >= 1)
    al.requires(al.offsets(off, T, longest=BLOCK))
    al.covers(out, at=lambda s, t: (t,), where=lambda s, t: (off[s] <= t) & (t < off[s + 1]))
    al.spec(
        out, lambda s, t: al.exp(x[t]) / al.sum(lambda u: al.where((off[s] <= u) & (u < off[s + 1]), al.exp(x[u]), 0.0))
    )
    s = al.grid(S1 - 1)
    lo, hi = al.load(off[s]), al.load(off[s + 1])
    t = lo + al.arange(BLOCK)
    v = al.load(x[t], mask=t < hi, other=-float("inf"))
    e = al.exp(v - al.max(v))
    al.store(out[t], e / al.sum(e), mask=t < hi)


@argus.kernel
def embedding_bag(
    table: al.Tensor[al.float32, "V D"],
    ids: al.Tensor[al.int32, "B L"],
    w: al.Tensor[al.float32, "B L"],
    out: al.Tensor[al.float32, "B D"],
    BD: al.constexpr = 64,
):
    V, D = table.shape
    B, L = ids.shape
    al.requires(al.in_range(ids, 0, V))
    al.spec(out, lambda b, d: al.sum(lambda l: w[b, l] * table[ids[b, l], d]))
    b, db = al.grid(B, al.cdiv(D, BD))
    d = db * BD + al.arange(BD)
    acc = al.zeros((BD,), al.float32)
    for l in range(L):
        row = al.load(ids[b, l])
        acc = acc + al.load(table[row, d], mask=d < D) * al.load(w[b, l])
    al.store(out[b, d], acc, mask=d < D)


@argus.kernel
def index_select_2d(
    x: al.Tensor[al.float32, "M N"],
    rows: al.Tensor[al.int32, "R"],
    cols: al.Tensor[al.int32, "C"],
    out: al.Tensor[al.float32, "R C"],
    BR: al.constexpr = 16,
    BC: al.constexpr = 32,
):
    M, N = x.shape
    R, C = out.shape
    al.requires(al.in_range(rows, 0, M))
    al.requires(al.in_range(cols, 0, N))
    al.spec(out, lambda r, c: x[rows[r], cols[c]])
    pr, pc = al.grid(al.cdiv(R, BR), al.cdiv(C, BC))
    r = pr * BR + al.arange(BR)
    c = pc * BC + al.arange(BC)
    ri = al.load(rows[r], mask=r < R)
    ci = al.load(cols[c], mask=c < C)
    live = (r < R)[:, None] & (c < C)[None, :]
    al.store(out[r[:, None], c[None, :]], al.load(x[ri[:, None], ci[None, :]], mask=live), mask=live)


@argus.kernel
def take_along_last(
    x: al.Tensor[al.float32, "M N"],
    idx: al.Tensor[al.int32, "M K"],
    out: al.Tensor[al.float32, "M K"],
    BLOCK: al.constexpr = 64,
):
    M, N = x.shape
    K = idx.shape[1]
    al.requires(al.in_range(idx, 0, N))
    al.spec(out, lambda i, k: x[i, idx[i, k]])
    i, kb = al.grid(M, al.cdiv(K, BLOCK))
    k = kb * BLOCK + al.arange(BLOCK)
    j = al.load(idx[i, k], mask=k < K)
    al.store(out[i, k], al.load(x[i, j], mask=k < K), mask=k < K)


@argus.kernel
def argmax_rows(x: al.Tensor[al.float32, "M N"], out: al.Tensor[al.int32, "M"], BLOCK: al.constexpr = 512):
    M, N = x.shape
    al.requires((1 <= N) & (N <= BLOCK))
    al.spec(out, lambda i: al.argmax(lambda k: x[i, k]))
    i = al.grid(M)
    c = al.arange(BLOCK)
    al.store(out[i], al.argmax(al.load(x[i, c], mask=c < N, other=-float("inf")), axis=0))


@argus.kernel
def topk_gate(
    x: al.Tensor[al.float32, "T E"],
    w: al.Tensor[al.float32, "T 2"],
    ids: al.Tensor[al.int32, "T 2"],
    BLOCK: al.constexpr = 64,
):
    T, E = x.shape
    al.requires((2 <= E) & (E <= BLOCK))
    al.spec(ids, lambda t, r: al.topk(lambda e: x[t, e], 2)[1][r])
    al.spec(w, lambda t, r: al.topk(lambda e: x[t, e], 2)[0][r])
    t = al.grid(T)
    e = al.arange(BLOCK)
    v, p = al.topk(al.load(x[t, e], mask=e < E, other=-float("inf")), 2, 0, mask=e < E)
    al.store(w[t, :], v)
    al.store(ids[t, :], p)


@argus.kernel
def paged_kv_copy(
    new: al.Tensor[al.float32, "T D"],
    slot: al.Tensor[al.int32, "T"],
    cache: al.Tensor[al.float32, "P 16 D"],
    BD: al.constexpr = 64,
):
    T, D = new.shape
    P = cache.shape[0]
    al.requires(P < 2**26)
    al.requires(al.in_range(slot, 0, P * 16))
    al.requires(al.distinct(slot))
    al.covers(cache, at=lambda t, d: (slot[t] // 16, slot[t] % 16, d))
    al.spec(cache, lambda t, d: new[t, d])
    t, b = al.grid(T, al.cdiv(D, BD))
    d = b * BD + al.arange(BD)
    s = al.load(slot[t])
    al.store(cache[s // 16, s % 16, d], al.load(new[t, d], mask=d < D), mask=d < D)


@argus.kernel
def one_hot(t: al.Tensor[al.int32, "N"], out: al.Tensor[al.float32, "N K"], BK: al.constexpr = 64):
    N, K = out.shape
    al.spec(out, lambda n, k: al.where(t[n] == k, 1.0, 0.0))
    n, b = al.grid(N, al.cdiv(K, BK))
    k = b * BK + al.arange(BK)
    al.store(out[n, k], (k == al.load(t[n])).to(al.float32), mask=k < K)


@argus.kernel
def scatter_add_rows(
    src: al.Tensor[al.float32, "T D"],
    idx: al.Tensor[al.int32, "T"],
    out: al.Tensor[al.float32, "V D"],
    BD: al.constexpr = 64,
):
    T, D = src.shape
    V = out.shape[0]
    al.requires(al.in_range(idx, 0, V))
    al.spec(out, lambda v, d: al.sum(lambda t: al.where(v == idx[t], src[t, d], 0.0)))
    t, b = al.grid(T, al.cdiv(D, BD))
    d = b * BD + al.arange(BD)
    al.atomic_add(out[al.load(idx[t]), d], al.load(src[t, d], mask=d < D), mask=d < D)


@argus.kernel
def inverse_permutation(p: al.Tensor[al.int32, "N"], out: al.Tensor[al.int32, "N"], BLOCK: al.constexpr = 128):
    N = p.shape[0]
    al.requires(al.in_range(p, 0, N))
    al.requires(al.distinct(p))
    al.covers(out, at=lambda i: (p[i],))
    al.spec(out, lambda i: i)
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    al.store(out[al.load(p[i], mask=i < N)], i, mask=i < N)


@argus.kernel(num_warps=4)
def moe_gather_gemm(
    x: al.Tensor[al.bfloat16, "T K"],
    w: al.Tensor[al.bfloat16, "E N K"],
    token: al.Tensor[al.int32, "P"],
    expert: al.Tensor[al.int32, "P"],
    gate: al.Tensor[al.float32, "P"],
    out: al.Tensor[al.float32, "P N"],
    BN: al.constexpr = 64,
    BK: al.constexpr = 32,
):
    T, K = x.shape
    E, N = w.shape[0], w.shape[1]
    P = out.shape[0]
    al.requires(al.in_range(token, 0, T))
    al.requires(al.in_range(expert, 0, E))
    al.spec(
        out, lambda p, n: gate[p] * al.sum(lambda k: x[token[p], k].to(al.float32) * w[expert[p], n, k].to(al.float32))
    )
    nb, p = al.grid(al.cdiv(N, BN), P)
    n = nb * BN + al.arange(BN)
    t, e = al.load(token[p]), al.load(expert[p])
    acc = al.zeros((BN,), al.float32)
    for k0 in range(0, K, BK):
        k = k0 + al.arange(BK)
        xv = al.load(x[t, k], mask=k < K).to(al.float32)
        wv = al.load(w[e, n[:, None], k[None, :]], mask=(n < N)[:, None] & (k < K)[None, :]).to(al.float32)
        acc += al.sum(wv * xv[None, :], axis=1)
    al.store(out[p, n], acc * al.load(gate[p]), mask=n < N)


@argus.kernel
def moe_combine(
    y: al.Tensor[al.float32, "T K D"],
    w: al.Tensor[al.float32, "T K"],
    out: al.Tensor[al.float32, "T D"],
    BD: al.constexpr = 64,
):
    T, K, D = y.shape
    al.spec(out, lambda t, d: al.sum(lambda k: w[t, k] * y[t, k, d]) / al.sum(lambda k: w[t, k]))
    db, t = al.grid(al.cdiv(D, BD), T)
    d = db * BD + al.arange(BD)
    acc = al.zeros((BD,), al.float32)
    z = al.zeros((1,), al.float32)
    for k in range(K):
        wk = al.load(w[t, k])
        z += wk
        acc += wk * al.load(y[t, k, d], mask=d < D)
    al.store(out[t, d], acc / z, mask=d < D)


@argus.kernel
def top_p_threshold_count(
    p: al.Tensor[al.float32, "M N"],
    t: al.Tensor[al.float32, "M"],
    out: al.Tensor[al.int32, "M"],
    BLOCK: al.constexpr = 256,
):
    M, N = p.shape
    al.spec(out, lambda i: al.sum(lambda k: al.where(p[i, k] > t[i], 1, 0)))
    i = al.grid(M)
    n = al.zeros((BLOCK,), al.int32)
    th = al.load(t[i])
    for c0 in range(0, N, BLOCK):
        c = c0 + al.arange(BLOCK)
        n += al.where((al.load(p[i, c], mask=c < N) > th) & (c < N), 1, 0)
    al.store(out[i], al.sum(n))


@argus.kernel
def gated_load(
    x: al.Tensor[al.float32, "N"],
    keep: al.Tensor[al.int32, "N"],
    out: al.Tensor[al.float32, "N"],
    BLOCK: al.constexpr = 128,
):
    N = x.shape[0]
    al.spec(out, lambda i: al.where(keep[i] > 0, x[i], -1.0))
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    flag = al.load(keep[i], mask=i < N)
    al.store(out[i], al.load(x[i], mask=(i < N) & (flag >= 1), other=-1.0), mask=i < N)


@argus.kernel
def ragged_attention_scores(
    q: al.Tensor[al.float32, "T D"],
    k: al.Tensor[al.float32, "T D"],
    seq: al.Tensor[al.int32, "T"],
    out: al.Tensor[al.float32, "T T"],
    scale: al.float32,
    BT: al.constexpr = 16,
    BD: al.constexpr = 16,
):
    T, D = q.shape
    al.spec(out, lambda i, j: al.where(seq[i] == seq[j], scale * al.sum(lambda d: q[i, d] * k[j, d]), NEG))
    pi, pj = al.grid(al.cdiv(T, BT), al.cdiv(T, BT))
    i = pi * BT + al.arange(BT)
    j = pj * BT + al.arange(BT)
    acc = al.zeros((BT, BT), al.float32)
    for d0 in range(0, D, BD):
        d = d0 + al.arange(BD)
        qt = al.load(q[i[:, None], d[None, :]], mask=(i < T)[:, None] & (d < D)[None, :])
        kt = al.load(k[j[:, None], d[None, :]], mask=(j < T)[:, None] & (d < D)[None, :])
        acc += al.sum(qt[:, None, :] * kt[None, :, :], axis=2)
    si = al.load(seq[i], mask=i < T)
    sj = al.load(seq[j], mask=j < T)
    al.store(
        out[i[:, None], j[None, :]],
        al.where(si[:, None] == sj[None, :], acc * scale, NEG),
        mask=(i < T)[:, None] & (j < T)[None, :],
    )
