"""Slots of new tokens in a paged cache. They follow from how many tokens each sequence has, on the device."""

from __future__ import annotations

import argus
import argus.language as al
from argus.kernels.dispatch import clamped


@argus.kernel(num_warps=1)
def next_slots(
    lens: al.Tensor[al.int32, "B"],
    table: al.Tensor[al.int32, "B L"],
    slots: al.Tensor[al.int32, "B M"],
    PAGE: al.constexpr = 64,
    BLOCK: al.constexpr = 32,
):
    """Compute `slots[b, m]`, the slot of token `lens[b] + m` of sequence b; tokens beyond its pages share the last
    slot."""
    B, L, M = table.shape[0], table.shape[1], slots.shape[1]
    al.requires((0 < L) & (L < 2**20) & (M < 2**20))
    al.requires(al.in_range(lens, 0, 2**30))
    al.requires(al.in_range(table, 0, 2**20))
    al.spec(
        slots,
        lambda b, m: (
            table[b, al.minimum(al.minimum(lens[b], L * PAGE - 1) + m, L * PAGE - 1) // PAGE] * PAGE
            + al.minimum(al.minimum(lens[b], L * PAGE - 1) + m, L * PAGE - 1) % PAGE
        ),
    )
    block, b = al.grid(al.cdiv(M, BLOCK), B)
    m = block * BLOCK + al.arange(BLOCK)
    place = al.minimum(clamped(al.load(lens[b]), L * PAGE) + m, L * PAGE - 1)
    page = al.load(table[b, place // PAGE], mask=m < M)
    al.store(slots[b, m], page * PAGE + place % PAGE, mask=m < M)
