"""Dropout that drops what it should keep, and keeps the rest."""

import argus
import argus.language as al


@argus.func
def random_number(seed, i):
    """The first of Philox's four numbers for the counter (i, 0, 0, 0) and the key (seed, 0), after ten rounds."""
    c0 = i
    c1 = i * 0
    c2 = i * 0
    c3 = i * 0
    k0 = seed
    k1 = seed * 0
    for _ in al.static_range(10):
        n0 = al.umulhi(c2, 0xCD9E8D57) ^ c1 ^ k0
        n2 = al.umulhi(c0, 0xD2511F53) ^ c3 ^ k1
        c1 = c2 * 0xCD9E8D57
        c3 = c0 * 0xD2511F53
        c0 = n0
        c2 = n2
        k0 = k0 + 0x9E3779B9
        k1 = k1 + 0xBB67AE85
    return c0


@argus.func
def kept(seed, i, share):
    """Element i is kept with a probability of share / 2^24."""
    return (random_number(seed.to(al.uint32), i.to(al.uint32)) >> 8).to(al.int32) < share


@argus.kernel
def dropout_rejected(
    x: al.Tensor[al.float32, "N"],
    out: al.Tensor[al.float32, "N"],
    seed: al.int32,
    share: al.int32,
    scale: al.float32,
    BLOCK: al.constexpr = 256,
):
    """`out[i]` is `x[i] * scale` with a probability of share / 2^24, and 0 otherwise."""
    al.spec(out, lambda i: al.where(kept(seed, i, share), x[i] * scale, 0.0))
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    v = al.load(x[i], mask=i < N)
    al.store(out[i], al.where(kept(seed, i, share), 0.0, v * scale), mask=i < N)
