"""Dropout with a counter-based generator: element i is kept if a random number of its own says so.

Philox 4x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) makes four random numbers of a key and
a counter, here the seed and the element's number. So the backward pass can make the same numbers again, in any order.
The arithmetic is that of uint32, modulo 2^32 by definition, in the kernel and in its specification.
"""

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
def dropout(
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
    al.store(out[i], al.where(kept(seed, i, share), v * scale, 0.0), mask=i < N)


def main():
    """Keep nine tenths of 10,000 ones, twice with one seed and once with another."""
    import numpy as np

    x, results = np.ones(10_000, np.float32), []
    for seed in (7, 7, 8):
        out = np.empty_like(x)
        dropout(x, out, seed, int(0.9 * 2**24), 1 / 0.9)
        results.append(out)
    assert (results[0] == results[1]).all() and (results[0] != results[2]).any()
    share = float((results[0] != 0).mean())
    assert abs(share - 0.9) < 0.02
    print(f"dropout: {share:.3f} of the elements are kept")


if __name__ == "__main__":
    main()
