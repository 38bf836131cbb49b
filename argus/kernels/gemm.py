"""c = epilogue(scale_a * scale_b * (a @ b.T) + bias) + residual: one kernel for every layout, dtype and target.

A shape is a string of names in memory's order of dimensions: `A` is "M K" or "K M", with "Z" before it if there are
batches; "1" stands for one element, which a vector or a residual that is absent has. On sm_90a one warp brings tiles of
both operands with the copy engine while the others multiply them; elsewhere all warps do both.

`A_ONCE`, `B_ONCE` say that no two blocks read the same of an operand, which then need not stay in the cache.

With `SHIFT`, the two batches are the even and the odd rows of one product: where every other row of `a` begins inside
of a 32-byte sector, the terms of the odd ones begin at -SHIFT, so that rows of both are read in whole sectors.

With `NEAR`, rows of both operands in memory are fewer than NEAR elements apart: then gfx942 loads tiles by offsets.

`INVARIANT` names the dimension that is the batch, "M" or "N", if the bits of the others' elements must not depend on
it. Then no tile but for its steps along k says in which order an element is added up: each step's tiles are asserted
to hold the terms from k0 on.

With `DEPTH`, the sum over k is cut into parts of DEPTH terms, the last dimension of the grid, and c is of float32 with
a dimension for them before the others; `combine` adds them up, always in the same order. What `gemm` asserts of a part
is what `combine` takes a part for, in the same words: each k of [s DEPTH, min(s DEPTH + DEPTH, K)) once. There it is
proved that the parts are all of [0, K), each k once, for every K.
"""

from __future__ import annotations

import argus
import argus.language as al

MOST_PARTS = 1024


@argus.func
def in_order(x, SHAPE, ROW_MAJOR):
    """Return all of `x` with its dimensions in the order batch (if any), rows, columns."""
    if SHAPE in ROW_MAJOR:
        y = x
    elif len(x.shape) == 3:
        y = al.permute(x, (0, 2, 1))
    else:
        y = al.trans(x)
    return y


@argus.func
def part(x, z, i, j, ROWS, COLUMNS):
    """Return a tile of `x`, of its batch `z` if it has batches."""
    return x[z, i : i + ROWS, j : j + COLUMNS] if len(x.shape) == 3 else x[i : i + ROWS, j : j + COLUMNS]


@argus.func
def operand(view, ROW_MAJOR, STORED, MULTIPLIED, ONCE):
    """Return a tile in shared memory, laid out as in memory, or in registers if it is multiplied in another dtype.

    Half of each number, if it is float8_e4m3fnuz: that has all halves of float8_e4m3fn, but not all of its numbers.
    """
    if ROW_MAJOR:
        staged = al.stage(view, boundary_check=(0, 1), once=ONCE)
    else:
        staged = al.trans(al.stage(al.trans(view), boundary_check=(0, 1), once=ONCE))
    if STORED == MULTIPLIED:
        tile = staged
    elif MULTIPLIED == al.float8_e4m3fnuz:
        tile = (al.load(staged).to(al.float32) * 0.5).to(MULTIPLIED)
    else:
        tile = al.load(staged).to(MULTIPLIED)
    return tile


@argus.func
def along(x, SHAPE, i, n):
    """Return `n` elements of a vector from `i` on, or its only element, as float32."""
    return al.load(x[0:1] if SHAPE == "1" else x[i : i + n], boundary_check=(0,)).to(al.float32)


@argus.func
def finished(
    x, scale_a, scale_b, bias, residual, z, m, n, SCALED, SCALE_A, SCALE_B, BIAS, EPILOGUE, RESIDUAL
):  # fmt: skip
    """Return the final value of the product's element `x` at (m, n) of batch z: scale, bias, epilogue, residual."""
    if SCALED:
        x = x * scale_a[0 if SCALE_A == "1" else m] * scale_b[0 if SCALE_B == "1" else n]
    if BIAS == "M":
        x = x + bias[m]
    elif BIAS == "N":
        x = x + bias[n]
    if EPILOGUE is not None:
        x = EPILOGUE(x)
    if RESIDUAL != "1 1":
        x = x + (residual[z, m, n] if len(residual.shape) == 3 else residual[m, n])
    return x


@argus.func
def in_clusters(M, N, BLOCK_M, BLOCK_N, CLUSTER, ACROSS):
    """Return the extents of the grid. Clusters of CLUSTER tiles, ACROSS side by side, lie along the first axis."""
    rows = al.cdiv(M, BLOCK_M) if ACROSS == 1 else al.cdiv(M, BLOCK_M * (CLUSTER // ACROSS)) * CLUSTER
    return rows, al.cdiv(N, BLOCK_N * ACROSS)


@argus.func
def programs(
    c, M, N, K, BLOCK_M, BLOCK_N, DEPTH, CLUSTER, ACROSS, PERSISTENT, GROUP, SCHEDULE, SHIFT
):  # fmt: skip
    """Return the program's tile and batch (or part of the sum), and the range of k over which it sums."""
    rows, columns = in_clusters(M, N, BLOCK_M, BLOCK_N, CLUSTER, ACROSS)
    if DEPTH > 0:
        al.requires(c.shape[0] <= MOST_PARTS)
        pid_m, pid_n, z = al.grid(rows, columns, c.shape[0], cluster=CLUSTER)
        first = z * DEPTH
        last = al.minimum(first + DEPTH, K)
    elif len(c.shape) == 3:
        pid_m, pid_n, z = al.grid(rows, columns, c.shape[0], cluster=CLUSTER, persistent=PERSISTENT, schedule=SCHEDULE)
        if SHIFT > 0:
            al.requires(c.shape[0] == 2)
        first, last = 0, K + SHIFT
    else:
        pid_m, pid_n = al.grid(rows, columns, group=GROUP, cluster=CLUSTER, persistent=PERSISTENT, schedule=SCHEDULE)
        z, first, last = 0, 0, K
    if ACROSS > 1:
        high, rank = CLUSTER // ACROSS, al.cluster_rank()
        pid_m, pid_n = pid_m // CLUSTER * high + rank % high, pid_n * ACROSS + rank // high
    return pid_m, pid_n, z, first, last


@argus.func
def stated(
    a, b, c, scale_a, scale_b, bias, residual, DEPTH, SCALED, SCALE_A, SCALE_B, BIAS, EPILOGUE, RESIDUAL
):  # fmt: skip
    """State the tags of the operands, and the specification; with parts, the sum over k of each part."""
    if len(a.shape) == 3:
        al.tag(a, lambda z, m, k: (z, m, k))
    else:
        al.tag(a, lambda m, k: (m, k))
    if len(b.shape) == 3:
        al.tag(b, lambda z, n, k: (z, n, k))
    else:
        al.tag(b, lambda n, k: (n, k))
    if len(c.shape) == 3:
        al.spec(
            c,
            lambda z, m, n: finished(
                al.sum(
                    lambda k: al.where(
                        (DEPTH == 0) | ((z * DEPTH <= k) & (k < z * DEPTH + DEPTH)),
                        (a[z, m, k] if len(a.shape) == 3 else a[m, k]) * (b[z, n, k] if len(b.shape) == 3 else b[n, k]),
                        0.0,
                    )
                ),
                scale_a, scale_b, bias, residual, z, m, n,
                SCALED, SCALE_A, SCALE_B, BIAS, EPILOGUE, RESIDUAL,
            ),
        )  # fmt: skip
    else:
        al.spec(
            c,
            lambda m, n: finished(
                al.sum(lambda k: a[m, k] * b[n, k]),
                scale_a, scale_b, bias, residual, 0, m, n,
                SCALED, SCALE_A, SCALE_B, BIAS, EPILOGUE, RESIDUAL,
            ),
        )  # fmt: skip


@argus.kernel(num_warps=8)
def gemm(  # noqa: D103 (the docstring of the file describes it)
    a: al.Tensor[IN, "A", "A_STRIDES"],
    b: al.Tensor[IN, "B", "B_STRIDES"],
    c: al.Tensor[OUT, "C"],
    bias: al.Tensor[BIAS_TYPE, "BIAS"],
    residual: al.Tensor[RESIDUAL_TYPE, "RESIDUAL"],
    scale_a: al.Tensor[al.float32, "SCALE_A"],
    scale_b: al.Tensor[al.float32, "SCALE_B"],
    IN: al.constexpr = al.bfloat16,
    MULTIPLY: al.constexpr = al.bfloat16,
    OUT: al.constexpr = al.bfloat16,
    A: al.constexpr = "M K",
    B: al.constexpr = "N K",
    C: al.constexpr = "M N",
    A_STRIDES: al.constexpr = "lda 1",
    B_STRIDES: al.constexpr = "ldb 1",
    BIAS: al.constexpr = "1",
    BIAS_TYPE: al.constexpr = al.float32,
    RESIDUAL: al.constexpr = "1 1",
    RESIDUAL_TYPE: al.constexpr = al.float32,
    SCALED: al.constexpr = False,
    SCALE_A: al.constexpr = "1",
    SCALE_B: al.constexpr = "1",
    EPILOGUE: al.constexpr = None,
    BLOCK_M: al.constexpr = 128,
    BLOCK_N: al.constexpr = 256,
    BLOCK_K: al.constexpr = 64,
    STAGES: al.constexpr = 3,
    PRODUCERS: al.constexpr = 4,
    GROUP: al.constexpr = 16,
    DEPTH: al.constexpr = 0,
    CLUSTER: al.constexpr = 1,
    A_ONCE: al.constexpr = False,
    B_ONCE: al.constexpr = False,
    ACROSS: al.constexpr = 1,
    SCHEDULE: al.constexpr = "rows",
    SHIFT: al.constexpr = 0,
    NEAR: al.constexpr = 0,
    INVARIANT: al.constexpr = "",
):
    assert DEPTH == 0 or (len(A) == 3 and len(B) == 3 and len(C) == 5), "parts are those of one product"
    if NEAR > 0:
        al.requires((0 <= a.stride(len(a.shape) - 2)) & (a.stride(len(a.shape) - 2) < NEAR))
        al.requires((0 <= b.stride(len(b.shape) - 2)) & (b.stride(len(b.shape) - 2) < NEAR))
    a, b = in_order(a, A, ("M K", "Z M K")), in_order(b, B, ("N K", "Z N K"))
    if INVARIANT == "M":
        al.invariant(c, a.shape[len(a.shape) - 2])
    elif INVARIANT == "N":
        al.invariant(c, b.shape[len(b.shape) - 2])
    c, residual = in_order(c, C, ("M N", "Z M N")), in_order(residual, RESIDUAL, ("M N", "Z M N"))
    M, K = a.shape[len(a.shape) - 2], a.shape[len(a.shape) - 1]
    N = b.shape[len(b.shape) - 2]
    pid_m, pid_n, z, first, last = programs(
        c, M, N, K, BLOCK_M, BLOCK_N, DEPTH, CLUSTER, ACROSS, PRODUCERS > 0, GROUP, SCHEDULE, SHIFT
    )
    stated(
        a, b, c, scale_a, scale_b, bias, residual, DEPTH, SCALED, SCALE_A, SCALE_B, BIAS, EPILOGUE, RESIDUAL
    )  # fmt: skip
    m0, n0 = pid_m * BLOCK_M, pid_n * BLOCK_N

    acc = al.zeros((BLOCK_M, BLOCK_N), al.float32)
    for k0 in al.pipelined(first, last, BLOCK_K, stages=STAGES, producer_warps=PRODUCERS):
        at = operand(part(a, z, m0, k0 - SHIFT * z, BLOCK_M, BLOCK_K), A in ("M K", "Z M K"), IN, MULTIPLY, A_ONCE)
        bt = operand(part(b, z, n0, k0 - SHIFT * z, BLOCK_N, BLOCK_K), B in ("N K", "Z N K"), IN, MULTIPLY, B_ONCE)
        al.assert_tags(lambda i, j, k: at[i, k].k == bt[j, k].k)
        if INVARIANT:
            al.assert_tags(lambda i, k: at[i, k].k == k0 + k, where=lambda i, k: (m0 + i < M) & (k0 + k < K))
        acc = al.mma(at, bt, acc)
    al.assert_tags(
        lambda i, j: acc[i, j].m == m0 + i and acc[i, j].n == n0 + j,
        where=lambda i, j: (m0 + i < M) & (n0 + j < N),
    )
    al.assert_tags(
        lambda i, j: acc[i, j].k == al.once(z * DEPTH, al.minimum(z * DEPTH + DEPTH, K) if DEPTH > 0 else K),
        where=lambda i, j: (m0 + i < M) & (n0 + j < N),
    )
    if len(a.shape) == 3 or len(b.shape) == 3:
        al.assert_tags(lambda i, j: acc[i, j].z == z, where=lambda i, j: (m0 + i < M) & (n0 + j < N))

    if IN != MULTIPLY and MULTIPLY == al.float8_e4m3fnuz:
        acc = acc * 4.0  # a product of halves
    if SCALED:
        acc = acc * along(scale_a, SCALE_A, m0, BLOCK_M)[:, None]
        acc = acc * along(scale_b, SCALE_B, n0, BLOCK_N)[None, :]
    if BIAS == "M":
        acc = acc + along(bias, BIAS, m0, BLOCK_M)[:, None]
    elif BIAS == "N":
        acc = acc + along(bias, BIAS, n0, BLOCK_N)[None, :]
    if EPILOGUE is not None:
        acc = EPILOGUE(acc)
    if RESIDUAL != "1 1":
        r = part(residual, z, m0, n0, BLOCK_M, BLOCK_N)
        acc = acc + al.load(r, boundary_check=(0, 1)).to(al.float32)
    al.store(part(c, z, m0, n0, BLOCK_M, BLOCK_N), acc.to(OUT), boundary_check=(0, 1))


@argus.kernel(num_warps=4)
def combine(
    parts: al.Tensor[al.float32, "S M N"],
    c: al.Tensor[OUT, "M N"],
    bias: al.Tensor[BIAS_TYPE, "BIAS"],
    residual: al.Tensor[RESIDUAL_TYPE, "RESIDUAL"],
    scale_a: al.Tensor[al.float32, "SCALE_A"],
    scale_b: al.Tensor[al.float32, "SCALE_B"],
    K: al.int32,
    OUT: al.constexpr = al.bfloat16,
    BIAS: al.constexpr = "1",
    BIAS_TYPE: al.constexpr = al.float32,
    RESIDUAL: al.constexpr = "1 1",
    RESIDUAL_TYPE: al.constexpr = al.float32,
    SCALED: al.constexpr = False,
    SCALE_A: al.constexpr = "1",
    SCALE_B: al.constexpr = "1",
    EPILOGUE: al.constexpr = None,
    PARTS: al.constexpr = 4,
    DEPTH: al.constexpr = 1024,
    EACH: al.constexpr = 4,
    ROWS: al.constexpr = 4,
    COLUMNS: al.constexpr = 256,
):
    """c = epilogue(scale_a * scale_b * sum of parts + bias) + residual, of the parts that `gemm` made with DEPTH.

    EACH of them are asked for before the first of those is added: else each would be a way to the cache of its own.
    """
    S, M, N = parts.shape
    al.invariant(c, M, N)
    residual = in_order(residual, RESIDUAL, ("M N",))
    al.requires(S == PARTS)
    al.requires(K <= PARTS * DEPTH)
    al.tag(parts, lambda s, m, n: dict(m=m, n=n, k=al.once(s * DEPTH, al.minimum(s * DEPTH + DEPTH, K))))
    al.spec(
        c,
        lambda m, n: finished(
            al.sum(lambda s: parts[s, m, n]), scale_a, scale_b, bias, residual, 0, m, n,
            SCALED, SCALE_A, SCALE_B, BIAS, EPILOGUE, RESIDUAL,
        ),
    )  # fmt: skip
    pid_m, pid_n = al.grid(al.cdiv(M, ROWS), al.cdiv(N, COLUMNS))
    m0, n0 = pid_m * ROWS, pid_n * COLUMNS

    acc = al.zeros((ROWS, COLUMNS), al.float32)
    for s in al.static_range(0, PARTS, EACH):
        some = al.load(parts[s : s + EACH, m0 : m0 + ROWS, n0 : n0 + COLUMNS], boundary_check=(0, 1, 2))
        acc += al.sum(some, axis=0)
    al.assert_tags(
        lambda i, j: acc[i, j].m == m0 + i and acc[i, j].n == n0 + j and acc[i, j].k == al.once(0, K),
        where=lambda i, j: (m0 + i < M) & (n0 + j < N),
    )

    if SCALED:
        acc = acc * along(scale_a, SCALE_A, m0, ROWS)[:, None] * along(scale_b, SCALE_B, n0, COLUMNS)[None, :]
    if BIAS == "M":
        acc = acc + along(bias, BIAS, m0, ROWS)[:, None]
    elif BIAS == "N":
        acc = acc + along(bias, BIAS, n0, COLUMNS)[None, :]
    if EPILOGUE is not None:
        acc = EPILOGUE(acc)
    if RESIDUAL != "1 1":
        acc = acc + al.load(residual[m0 : m0 + ROWS, n0 : n0 + COLUMNS], boundary_check=(0, 1)).to(al.float32)
    al.store(c[m0 : m0 + ROWS, n0 : n0 + COLUMNS], acc.to(OUT), boundary_check=(0, 1))


# ---------------------------------------------------------------------------- epilogues, of a tile of float32


@argus.func
def relu(x):
    """Return max(x, 0)."""
    return al.maximum(x, 0.0)


@argus.func
def silu(x):
    """Return x times its sigmoid."""
    return x * al.sigmoid(x)


@argus.func
def gelu(x):
    """Return x times the probability that a normally distributed number is below x."""
    return 0.5 * x * (1.0 + al.erf(x * 0.7071067811865476))


@argus.func
def gelu_tanh(x):
    """Return PyTorch's `gelu(approximate="tanh")`."""
    return 0.5 * x * (1.0 + al.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
