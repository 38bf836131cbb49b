"""Assign rows to experts on the device: counts, offsets, places and tiles.

A *pair* is one choice of a token: pair p is choice `p % k` of token `p // k`, and `experts[p]` is its expert. Pairs are
sorted by expert; pairs of the same expert keep their order. `place[p]` is the position of pair p, and expert e has the
places `offsets[e] .. offsets[e + 1]`. Pairs are counted in blocks, so that all places are computed in parallel. The
places of one expert are cut into tiles of ROWS: tile i has the places `first[i] .. first[i + 1]`, all of expert
`owner[i]`. There are at most `places // ROWS + experts` tiles; unused tiles at the end are empty.
"""

from __future__ import annotations

import argus
import argus.language as al


@argus.func
def clamped(number, count):
    """Return the nearest number in the range from 0 to `count` - 1."""
    return al.minimum(al.maximum(number, 0), count - 1)


@argus.kernel
def count_pairs(
    experts: al.Tensor[al.int32, "P"],
    counts: al.Tensor[al.int32, "B E"],
    BLOCK: al.constexpr = 512,
    EXPERTS: al.constexpr = 128,
    STEP: al.constexpr = 32,
):
    """Compute `counts[b, e]`: the number of pairs of block b that go to expert e."""
    P, B, E = experts.shape[0], counts.shape[0], counts.shape[1]
    al.requires((P <= B * BLOCK) & (B < 2**20))
    al.spec(
        counts,
        lambda b, e: al.sum(
            lambda p: al.where(
                (b * BLOCK <= p) & (p < b * BLOCK + BLOCK), al.where(clamped(experts[p], E) == e, 1, 0), 0
            )
        ),
    )
    b, pid = al.grid(B, al.cdiv(E, EXPERTS))
    e = pid * EXPERTS + al.arange(EXPERTS)
    total = al.zeros((EXPERTS,), al.int32)
    for p0 in range(0, BLOCK, STEP):
        p = b * BLOCK + p0 + al.arange(STEP)
        found = clamped(al.load(experts[p], mask=p < P), E)
        total += al.sum(al.where((p < P)[:, None], al.where(found[:, None] == e[None, :], 1, 0), 0), axis=0)
    al.store(counts[b, e], total, mask=e < E)


@argus.kernel
def add_counts(
    counts: al.Tensor[al.int32, "B E"],
    begin: al.Tensor[al.int32, "B E"],
    offsets: al.Tensor[al.int32, "E1"],
    EXPERTS: al.constexpr = 128,
    STEP: al.constexpr = 16,
):
    """Compute `offsets[e]`, the number of pairs of experts before e, and `begin[b, e]`, which adds the pairs of e in
    blocks before b."""
    B, E = counts.shape
    al.requires((offsets.shape[0] == E + 1) & (E <= EXPERTS) & (0 < B) & (B < 2**20))
    al.spec(offsets, lambda e: al.sum(lambda c: al.sum(lambda f: al.where(f < e, counts[c, f], 0))))
    al.spec(
        begin,
        lambda b, e: (
            al.sum(lambda c: al.sum(lambda f: al.where(f < e, counts[c, f], 0)))
            + al.sum(lambda c: al.where(c < b, counts[c, e], 0))
        ),
    )
    b = al.grid(B)
    e = al.arange(EXPERTS)
    total = al.zeros((EXPERTS,), al.int32)
    earlier = al.zeros((EXPERTS,), al.int32)
    for c0 in range(0, B, STEP):
        c = c0 + al.arange(STEP)[:, None]
        n = al.load(counts[c, e], mask=(c < B) & (e < E))
        total += al.sum(n, axis=0)
        earlier += al.sum(al.where(c < b, n, 0), axis=0)
    before = al.sum(al.where(e[None, :] < e[:, None], total[None, :], 0), axis=1)
    al.store(begin[b, e], before + earlier, mask=e < E)
    if b == 0:
        al.store(offsets[e], before, mask=e < E)
        al.store(offsets[E], al.sum(total))


@argus.kernel
def place_pairs(
    experts: al.Tensor[al.int32, "P"],
    begin: al.Tensor[al.int32, "B E"],
    place: al.Tensor[al.int32, "P"],
    BLOCK: al.constexpr = 512,
    STEP: al.constexpr = 32,
):
    """Compute `place[p]`, which comes after the pairs of all earlier experts, those of earlier blocks, and the earlier
    pairs of its block."""
    P, B, E = experts.shape[0], begin.shape[0], begin.shape[1]
    al.requires((P <= B * BLOCK) & (B < 2**20))
    al.spec(
        place,
        lambda p: (
            al.sum(lambda e: al.where(clamped(experts[p], E) == e, begin[p // BLOCK, e], 0))
            + al.sum(
                lambda q: al.where(
                    (p // BLOCK * BLOCK <= q) & (q < p),
                    al.where(clamped(experts[q], E) == clamped(experts[p], E), 1, 0),
                    0,
                )
            )
        ),
    )
    block = al.grid(al.cdiv(P, BLOCK))
    p = block * BLOCK + al.arange(BLOCK)
    own = clamped(al.load(experts[p], mask=p < P), E)
    found = al.zeros((BLOCK,), al.int32)
    for e0 in range(0, E, STEP):
        e = e0 + al.arange(STEP)
        n = al.load(begin[block, e], mask=e < E)
        found += al.sum(al.where(own[:, None] == e[None, :], n[None, :], 0), axis=1)
    among = al.zeros((BLOCK,), al.int32)
    for q0 in range(0, BLOCK, STEP):
        q = block * BLOCK + q0 + al.arange(STEP)
        other = clamped(al.load(experts[q], mask=q < P), E)
        among += al.sum(al.where(q[None, :] < p[:, None], al.where(other[None, :] == own[:, None], 1, 0), 0), axis=1)
    al.store(place[p], found + among, mask=p < P)


@argus.kernel
def tokens_of_places(
    place: al.Tensor[al.int32, "P"],
    token: al.Tensor[al.int32, "P"],
    k: al.int32,
    BLOCK: al.constexpr = 256,
):
    """Compute `token[place[p]] = p // k`."""
    P = place.shape[0]
    al.requires(k > 0)
    al.requires(al.permutation(place))
    al.covers(token, at=lambda p: (place[p],))
    al.spec(token, lambda p: p // k)
    p = al.grid(al.cdiv(P, BLOCK)) * BLOCK + al.arange(BLOCK)
    to = al.load(place[p], mask=p < P)
    al.store(token[to], p // k, mask=p < P)


@argus.func
def tiles_of(offsets, e, ROWS):
    """Return the number of tiles of expert e. Specifications use this function, and the next two."""
    return (offsets[e + 1] - offsets[e] + (ROWS - 1)) // ROWS


@argus.func
def tiles_before(offsets, e, E, ROWS):
    """Return the number of tiles of the experts before e."""
    return al.sum(lambda f: al.where(f < e, tiles_of(offsets, f, ROWS), 0), E)


@argus.func
def owner_of(offsets, t, E, ROWS):
    """Return the expert of tile t: the number of experts with all their tiles before t, in the range of experts."""
    return clamped(al.sum(lambda e: al.where(tiles_before(offsets, e + 1, E, ROWS) <= t, 1, 0), E), E)


@argus.kernel
def cut_into_tiles(
    offsets: al.Tensor[al.int32, "E1"],
    first: al.Tensor[al.int32, "L1"],
    owner: al.Tensor[al.int32, "L1"],
    P: al.int32,
    ROWS: al.constexpr = 128,
    EXPERTS: al.constexpr = 128,
    BLOCK: al.constexpr = 16,
):
    """Compute where each tile begins (`first`), in the range from 0 to P, and which expert it belongs to (`owner`)."""
    E = offsets.shape[0] - 1
    L = first.shape[0]
    al.requires((E > 0) & (E <= EXPERTS) & (L < 2**22) & (0 <= P) & (P < 2**30))
    al.requires(al.in_range(offsets, 0, 2**30))
    al.spec(owner, lambda t: owner_of(offsets, t, E, ROWS))
    al.spec(
        first,
        lambda t: clamped(
            al.minimum(
                al.sum(lambda e: al.where(e == owner_of(offsets, t, E, ROWS), offsets[e], 0), E)
                + (t - tiles_before(offsets, owner_of(offsets, t, E, ROWS), E, ROWS)) * ROWS,
                al.sum(lambda e: al.where(e == owner_of(offsets, t, E, ROWS), offsets[e + 1], 0), E),
            ),
            P + 1,
        ),
    )
    i = al.grid(al.cdiv(L, BLOCK)) * BLOCK + al.arange(BLOCK)
    e = al.arange(EXPERTS)
    begin = al.load(offsets[e], mask=e < E)
    end = al.load(offsets[e + 1], mask=e < E)
    tiles = al.where(e < E, (end - begin + (ROWS - 1)) // ROWS, 0)
    through = al.sum(al.where(e[None, :] <= e[:, None], tiles[None, :], 0), axis=1)
    own = clamped(al.sum(al.where((e < E)[None, :] & (through[None, :] <= i[:, None]), 1, 0), axis=1), E)
    before = al.sum(al.where(e[None, :] < own[:, None], tiles[None, :], 0), axis=1)
    start = al.sum(al.where(e[None, :] == own[:, None], begin[None, :], 0), axis=1)
    last = al.sum(al.where(e[None, :] == own[:, None], end[None, :], 0), axis=1)
    al.store(first[i], clamped(al.minimum(start + (i - before) * ROWS, last), P + 1), mask=i < L)
    al.store(owner[i], own, mask=i < L)
