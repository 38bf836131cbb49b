"""Rows in the order of experts: the launches that find it, and how many tiles of rows there may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from argus.kernels import dispatch
from argus.runtime.work import Call

if TYPE_CHECKING:
    import torch

PAIRS = 512
"""Pairs that are counted and placed together."""


def tiles(rows: int, count: int, side: int) -> int:
    """Return the largest number of tiles of `side` rows into which `rows` rows of `count` experts can be cut."""
    return (rows + min(count, rows) * (side - 1)) // side


@dataclass(frozen=True, slots=True)
class Order:
    """The pairs of tokens and experts in the order of experts, and the launches that find it.

    `place` `[T, k]` is where each pair stands, `token` `[T k]` the token of each place, and expert e has the places
    `offsets[e] .. offsets[e + 1]`.
    """

    place: torch.Tensor
    token: torch.Tensor
    offsets: torch.Tensor
    calls: tuple[Call, ...] = ()

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return self.token.shape[0]

    def cut(self, side: int) -> Tiles:
        """Return the cut of the rows into tiles of `side` rows."""
        count = self.offsets.shape[0] - 1
        many = max(1, tiles(self.pairs, count, side))
        first, owner = (self.token.new_empty(many + 1) for _ in range(2))
        constants = {"ROWS": side, "EXPERTS": power(count), "num_warps": 8}
        return Tiles(Call(dispatch.cut_into_tiles, (self.offsets, first, owner, self.pairs), constants), first, owner)


@dataclass(frozen=True, slots=True)
class Tiles:
    """A cut into tiles: its launch, where tiles begin, and whose they are."""

    call: Call
    first: torch.Tensor
    owner: torch.Tensor


def order_of(chosen: torch.Tensor, count: int) -> Order:
    """Return the order of pairs whose experts are `chosen` `[T, k]`, of `count`."""
    pairs, every = chosen.numel(), power(count)
    flat, blocks = chosen.view(-1), -(-pairs // PAIRS)
    counts, begin = (chosen.new_empty(blocks, count) for _ in range(2))
    place, token, offsets = chosen.new_empty(chosen.shape), chosen.new_empty(pairs), chosen.new_empty(count + 1)
    warps = {"num_warps": 8}
    calls = (
        Call(dispatch.count_pairs, (flat, counts), {"BLOCK": PAIRS, "EXPERTS": every, **warps}),
        Call(dispatch.add_counts, (counts, begin, offsets), {"EXPERTS": every, **warps}),
        Call(dispatch.place_pairs, (flat, begin, place.view(-1)), {"BLOCK": PAIRS, **warps}),
        Call(dispatch.tokens_of_places, (place.view(-1), token, chosen.shape[1])),
    )
    return Order(place, token, offsets, calls)


def power(count: int) -> int:
    """Return the smallest power of two that is at least `count`, and at least 16."""
    return 1 << max(4, (count - 1).bit_length())
