"""Kernels and programs that tests prove, run, and change."""

import argus
import argus.language as al


@argus.kernel
def scale(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"], a: al.float32, BLOCK: al.constexpr = 128):
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    al.store(y[i], al.load(x[i], mask=i < N) * a, mask=i < N)
    al.spec(y, lambda i: x[i] * a)


@argus.kernel
def add(
    x: al.Tensor[al.float32, "N"],
    z: al.Tensor[al.float32, "N"],
    y: al.Tensor[al.float32, "N"],
    BLOCK: al.constexpr = 128,
):
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    al.store(y[i], al.load(x[i], mask=i < N) + al.load(z[i], mask=i < N), mask=i < N)
    al.spec(y, lambda i: x[i] + z[i])


@argus.kernel
def gather(
    x: al.Tensor[al.float32, "N"],
    index: al.Tensor[al.int32, "M"],
    y: al.Tensor[al.float32, "M"],
    BLOCK: al.constexpr = 128,
):
    al.requires(al.in_range(index, 0, N))
    i = al.grid(al.cdiv(M, BLOCK)) * BLOCK + al.arange(BLOCK)
    at = al.load(index[i], mask=i < M, other=0)
    al.store(y[i], al.load(x[at], mask=i < M), mask=i < M)
    al.spec(y, lambda i: x[index[i]])


@argus.kernel
def product(
    a: al.Tensor[al.float32, "M K"],
    b: al.Tensor[al.float32, "K N"],
    c: al.Tensor[al.float32, "M N"],
    RELU: al.constexpr = False,
    BM: al.constexpr = 16,
    BN: al.constexpr = 16,
):
    M, K = a.shape
    p0, p1 = al.grid(al.cdiv(M, BM), al.cdiv(N, BN))
    rows = p0 * BM + al.arange(BM)
    cols = p1 * BN + al.arange(BN)
    acc = al.zeros((BM, BN), al.float32)
    for k in range(K):
        left = al.load(a[rows, k], mask=rows < M, other=0.0)
        right = al.load(b[k, cols], mask=cols < N, other=0.0)
        acc += left[:, None] * right[None, :]
    if RELU:
        al.spec(c, lambda m, n: al.maximum(al.sum(lambda k: a[m, k] * b[k, n]), 0.0))
        mask = (rows < M)[:, None] & (cols < N)[None, :]
        al.store(c[rows[:, None], cols[None, :]], al.maximum(acc, 0.0), mask=mask)
    else:
        al.spec(c, lambda m, n: al.sum(lambda k: a[m, k] * b[k, n]))
        al.store(c[rows[:, None], cols[None, :]], acc, mask=(rows < M)[:, None] & (cols < N)[None, :])


@argus.program
def twice(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"]):
    half = al.empty((N,), al.float32)
    scale(x, half, 2.0)
    scale(half, y, 3.0, BLOCK=256)
    al.spec(y, lambda i: x[i] * 6.0)


@argus.program
def forked(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"], a: al.float32):
    main, side = al.current_stream(), al.stream()
    left = al.empty((N,), al.float32)
    right = al.empty((N,), al.float32)
    begin = main.record()
    side.wait(begin)
    scale(x, left, a)
    scale(x, right, 3.0, stream=side)
    done = side.record()
    main.wait(done)
    add(left, right, y)
    al.spec(y, lambda i: x[i] * a + x[i] * 3.0)


@argus.program
def rows(x: al.Tensor[al.float32, "M N"], y: al.Tensor[al.float32, "M N"]):
    h = al.empty((M, N), al.float32)
    for i in range(M):
        scale(x[i, :], h[i, :], 2.0)
    for i in range(M):
        scale(h[i, :], y[i, :], 3.0)
    al.spec(y, lambda m, n: x[m, n] * 6.0)


@argus.program
def mlp(
    x: al.Tensor[al.float32, "M K"],
    w1: al.Tensor[al.float32, "K H"],
    w2: al.Tensor[al.float32, "H N"],
    y: al.Tensor[al.float32, "M N"],
):
    h = al.empty((M, H), al.float32)
    product(x, w1, h, RELU=True)
    product(h, w2, y)
    al.spec(y, lambda m, n: al.sum(lambda h: al.maximum(al.sum(lambda k: x[m, k] * w1[k, h]), 0.0) * w2[h, n]))


@argus.program
def chunks(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"], CHUNK: al.constexpr = 32):
    al.requires(N % CHUNK == 0)
    main, side = al.current_stream(), al.stream()
    h = al.empty((N,), al.float32)
    begin = main.record()
    side.wait(begin)
    for i in range(N // CHUNK):
        lo = i * CHUNK
        scale(x[lo : lo + CHUNK], h[lo : lo + CHUNK], 2.0)
        ready = main.record()
        side.wait(ready)
        scale(h[lo : lo + CHUNK], y[lo : lo + CHUNK], 3.0, stream=side)
    done = side.record()
    main.wait(done)
    al.spec(y, lambda i: x[i] * 6.0)


@argus.program
def ring(x: al.Tensor[al.float32, "T N"], y: al.Tensor[al.float32, "T N"]):
    main, side = al.current_stream(), al.stream()
    h = al.empty((2, N), al.float32)
    free = main.record()
    side.wait(free)
    used = side.record()
    for i in range(T):
        main.wait(used)
        scale(x[i, :], h[i % 2, :], 2.0)
        used = side.record()
        ready = main.record()
        side.wait(ready)
        scale(h[i % 2, :], y[i, :], 3.0, stream=side)
    done = side.record()
    main.wait(done)
    al.spec(y, lambda t, n: x[t, n] * 6.0)


@argus.program
def picked(
    x: al.Tensor[al.float32, "N"],
    index: al.Tensor[al.int32, "M"],
    y: al.Tensor[al.float32, "M"],
    a: al.float32,
    deep: al.int32,
):
    al.requires(al.in_range(index, 0, N))
    h = al.empty((N,), al.float32)
    z = al.empty((M,), al.float32)
    if deep > 0:
        scale(x, h, a)
    else:
        scale(x, h, 1.0)
    gather(h, index, z)
    u = al.empty((M,), al.float32)
    scale(z, u, 2.0)
    add(u, z, y)
    al.spec(y, lambda i: 3.0 * al.where(deep > 0, x[index[i]] * a, x[index[i]]))


@argus.program
def reduced(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"]):
    part = al.empty((N,), al.float32)
    whole = al.empty((N,), al.float32)
    scale(x, part, 2.0)
    al.collective("all_reduce", reads=(part,), writes=(whole,))
    scale(whole, y, 0.5)
