"""x @ w.T of weights kept as 4 or 8 bits, with a scale and a zero for each group of GROUP weights of a row.

Weights are packed in words of 32 bits, 32 words for SPAN = 1024 / BITS consecutive k of a row (`word_of`, `place_of`):
`packed[k // SPAN, n, word]`. So a tile is one run of memory, and a lane that loads a word has the weights that it
multiplies: consecutive halves of its registers, `k % 8 // 2` being the lane's place among the four of a row.

The product takes weights less their zeros, in units (`unit`) that one instruction makes of two packed weights; the sum
of a group is scaled in float32. Scales and zeros of all of a tile's groups, at most SCALES, are loaded before the loop:
one load for each group would keep the loop waiting. Rows of weights are the rows of the product, tokens its columns: a
tile of few tokens wastes nothing.
"""

from __future__ import annotations

import argus
import argus.language as al

WORDS = 32
"""Number of words of a row that are adjacent in memory."""


@argus.func
def word_of(k, BITS):
    """Return the word that holds weight k of its span."""
    return k // (128 // BITS) * 4 + k % 8 // 2


@argus.func
def place_of(k, BITS):
    """Return the lowest bit of weight k in its word."""
    return k % (128 // BITS) // 8 * BITS + k % 2 * 16


@argus.func
def weight_at(packed, n, k, BITS):
    """Return weight k of row n as an integer."""
    SPAN = 32 // BITS * WORDS
    return (packed[k // SPAN, n, word_of(k % SPAN, BITS)] >> place_of(k % SPAN, BITS)) & (2**BITS - 1)


@argus.func
def value_at(packed, scales, zeros, n, k, BITS, GROUP):
    """Return the value that weight k of row n represents."""
    less = zeros[n, k // GROUP] if zeros is not None else 2.0 ** (BITS - 1)
    return (weight_at(packed, n, k, BITS).to(al.float32) - less) * scales[n, k // GROUP]


@argus.func
def unit(DTYPE):
    """Return what a weight of one is worth: the least that keeps conversions to one instruction for two weights."""
    return 2.0**-6 if DTYPE is al.bfloat16 else 2.0**-9


@argus.func
def unpacked(words, less, BITS, DTYPE):
    """Return the weights in `words` `[rows, words]` minus their row's zero, in units; `less` is the zero in units."""
    ROWS, PER = words.shape[0], 32 // BITS
    each = al.reshape(words, (ROWS, words.shape[1] // 4, 1, 4, 1))
    place = al.arange(PER // 2)[:, None, None] * BITS + al.arange(2) * 16
    # This is a single statement, so that one instruction converts two weights.
    if less is None:
        w = ((each >> place) & (2**BITS - 1)).to(DTYPE) * unit(DTYPE) - 2.0 ** (BITS - 1) * unit(DTYPE)
    else:
        w = ((each >> place) & (2**BITS - 1)).to(DTYPE) * unit(DTYPE) - less[:, None, None, None, None]
    return al.reshape(w, (ROWS, words.shape[1] * PER))


@argus.func
def product_of_part(pt, zero, xt, part, EACH, BITS, DTYPE):
    """Return the products of part `part` of the weights of each row, EACH of them, with their tokens."""
    WIDE = EACH * BITS // 32
    words = al.load(pt[:, part * WIDE : (part + 1) * WIDE])
    w = unpacked(words, None if zero is None else zero * unit(DTYPE), BITS, DTYPE)
    sums = al.zeros((pt.shape[0], xt.shape[0]), al.float32)
    sums = al.mma(w, xt, sums)
    return sums


@argus.func
def columns(tile, g, APART):
    """Return a staged tile's columns for two parts, if there is a tile: g and g + 1 if they are APART, else g twice."""
    if tile is None:
        found = None, None
    elif APART:
        found = al.split(al.load(tile[:, g : g + 2]))
    else:
        one = al.load(tile[:, g])
        found = one, one
    return found


@argus.kernel(num_warps=4)
def product_of_packed(
    x: al.Tensor[DTYPE, "M K"],
    packed: al.Tensor[al.int32, "B N 32"],
    scales: al.Tensor[DTYPE, "N G"],
    zeros: al.Tensor[DTYPE, "N G"] | None,
    out: al.Tensor[OUT, "OUT_SHAPE"],
    DTYPE: al.constexpr = al.bfloat16,
    OUT: al.constexpr = al.bfloat16,
    OUT_SHAPE: al.constexpr = "M N",
    BITS: al.constexpr = 4,
    GROUP: al.constexpr = 128,
    ROWS: al.constexpr = 64,
    TOKENS: al.constexpr = 16,
    STAGES: al.constexpr = 4,
    PRODUCERS: al.constexpr = 0,
    SCALES: al.constexpr = 64,
    DEPTH: al.constexpr = 0,
    SCHEDULE: al.constexpr = "cooperative",
):
    """Compute `out[m, n] = sum(x[m, k] * (weight[n, k] - zero[n, k // GROUP]) * scale[n, k // GROUP])`.

    With DEPTH, part s of `out` is the sum over k from s DEPTH up to DEPTH more; `argus.kernels.gemm.combine` adds them.
    """
    M, K, N, B, G = x.shape[0], x.shape[1], packed.shape[1], packed.shape[0], scales.shape[1]
    SPAN = 32 // BITS * WORDS
    EACH, SHARE = min(GROUP, 128, SPAN // 2), SPAN // GROUP if GROUP < SPAN else 1
    al.requires((B * SPAN >= K) & (G * GROUP >= K) & (K < 2**30))
    assert SPAN % GROUP == 0 or GROUP % SPAN == 0, "groups are parts of spans, or whole spans"
    assert SCALES * GROUP % SPAN == 0 and DEPTH % SPAN == 0, "parts are whole spans"
    assert DEPTH + (GROUP if DEPTH % GROUP else 0) <= SCALES * GROUP, "the scales of a part have room"
    if DEPTH:
        al.requires(out.shape[0] <= 1024)
        al.spec(
            out,
            lambda s, m, n: al.sum(
                lambda k: al.where(
                    (s * DEPTH <= k) & (k < s * DEPTH + DEPTH),
                    x[m, k] * value_at(packed, scales, zeros, n, k, BITS, GROUP),
                    0.0,
                )
            ),
        )
        i, j, s = al.grid(al.cdiv(N, ROWS), al.cdiv(M, TOKENS), out.shape[0], schedule=SCHEDULE)
        first, last = s * DEPTH, al.minimum(s * DEPTH + DEPTH, K)
    else:
        al.spec(out, lambda m, n: al.sum(lambda k: x[m, k] * value_at(packed, scales, zeros, n, k, BITS, GROUP)))
        i, j = al.grid(al.cdiv(N, ROWS), al.cdiv(M, TOKENS), schedule=SCHEDULE)
        al.requires(K <= SCALES * GROUP)
        first, last = 0, K
    n0, m0 = i * ROWS, j * TOKENS
    acc = al.zeros((ROWS, TOKENS), al.float32)
    b0, g0 = first // SPAN, first // GROUP
    st = al.stage(scales[n0 : n0 + ROWS, g0 : g0 + SCALES], boundary_check=(0, 1))
    zt = None if zeros is None else al.stage(zeros[n0 : n0 + ROWS, g0 : g0 + SCALES], boundary_check=(0, 1))
    for b in al.pipelined(b0, al.cdiv(last, SPAN), 1, stages=STAGES, producer_warps=PRODUCERS):
        pt = al.stage(packed[b, n0 : n0 + ROWS, 0:WORDS], boundary_check=(0,))
        # A product of one part runs beside the unpacking of the next one, where products are asynchronous.
        for turn in al.static_range(SPAN // EACH // 2):
            part = 2 * turn
            k0, k1 = b * SPAN + part * EACH, b * SPAN + (part + 1) * EACH
            xt = al.stage(x[m0 : m0 + TOKENS, k0 : k0 + EACH], boundary_check=(0, 1))
            xu = al.stage(x[m0 : m0 + TOKENS, k1 : k1 + EACH], boundary_check=(0, 1))
            g = (b - b0) * SHARE + part * EACH // GROUP if GROUP < SPAN else b * SPAN // GROUP - g0
            z0, z1 = columns(zt, g, GROUP < SPAN)
            sums = product_of_part(pt, z0, xt, part, EACH, BITS, DTYPE)
            more = product_of_part(pt, z1, xu, part + 1, EACH, BITS, DTYPE)
            s0, s1 = columns(st, g, GROUP < SPAN)
            acc += sums * s0.to(al.float32)[:, None]
            acc += more * s1.to(al.float32)[:, None]
    result = (acc * (1.0 / unit(DTYPE))).to(OUT)
    if DEPTH:
        al.store(al.trans(out[s, m0 : m0 + TOKENS, n0 : n0 + ROWS]), result, boundary_check=(0, 1))
    else:
        al.store(al.trans(out[m0 : m0 + TOKENS, n0 : n0 + ROWS]), result, boundary_check=(0, 1))


@argus.kernel(num_warps=4)
def unpacked_weights(
    packed: al.Tensor[al.int32, "B N 32"],
    scales: al.Tensor[DTYPE, "N G"],
    zeros: al.Tensor[DTYPE, "N G"] | None,
    out: al.Tensor[DTYPE, "N K"],
    DTYPE: al.constexpr = al.bfloat16,
    BITS: al.constexpr = 4,
    GROUP: al.constexpr = 128,
    ROWS: al.constexpr = 16,
):
    """Compute `out[n, k] = (weight[n, k] - zero[n, k // GROUP]) * scale[n, k // GROUP]`: for products of many
    tokens."""
    N, K, B, G = out.shape[0], out.shape[1], packed.shape[0], scales.shape[1]
    SPAN = 32 // BITS * WORDS
    al.requires((B * SPAN >= K) & (G * GROUP >= K) & (K < 2**30))
    al.spec(out, lambda n, k: value_at(packed, scales, zeros, n, k, BITS, GROUP))
    i, b = al.grid(al.cdiv(N, ROWS), al.cdiv(K, SPAN))
    rows, k = i * ROWS + al.arange(ROWS)[:, None], b * SPAN + al.arange(SPAN)
    live = (rows < N) & (k < K)
    words = al.load(packed[b, rows, word_of(k - b * SPAN, BITS)], mask=live)
    scale = al.load(scales[rows, k // GROUP], mask=live).to(al.float32)
    w = ((words >> place_of(k - b * SPAN, BITS)) & (2**BITS - 1)).to(al.float32)
    less = 2.0 ** (BITS - 1) if zeros is None else al.load(zeros[rows, k // GROUP], mask=live).to(al.float32)
    al.store(out[rows, k], ((w - less) * scale).to(DTYPE), mask=live)
