"""A paged cache of one layer's keys and values."""

from __future__ import annotations

import torch

from argus.kernels import cache_append
from argus.kernels.cache_slots import next_slots


class PagedCache:
    """Keys and values `[pages, page, heads, features]` of sequences with up to `longest` tokens each.

    `lens[b]`, on the device, is the number of tokens of sequence b. Appending and attending make the same launches at
    every length, so a CUDA graph of a step stays valid. Page j of sequence b has the number `table[b, j]`.
    """

    def __init__(
        self,
        sequences: int,
        longest: int,
        heads: int,
        features: int,
        *,
        page: int = 64,
        dtype: torch.dtype = torch.bfloat16,
        device: torch.device | str = "cpu",
    ) -> None:
        each = -(-longest // page)
        shape = (sequences * each, page, heads, features)
        self.keys, self.values = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
        numbers = torch.arange(sequences * each, dtype=torch.int32, device=device)
        self.table = numbers.view(sequences, each)
        self.lens = torch.zeros(sequences, dtype=torch.int32, device=device)
        self.page, self.longest = page, each * page

    def append(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        cos: torch.Tensor | None = None,
        sin: torch.Tensor | None = None,
    ) -> None:
        """Append the keys and values `[B, M, heads, features]` of M new tokens of each sequence.

        With `cos` and `sin`, `[B M, features / 2]`, keys are rotated by the angles of their tokens on their way.

        Tokens beyond `longest` overwrite the last place, because checking the number would require a synchronisation
        with the host.
        """
        count = keys.shape[1]
        slots = self.table.new_empty(len(self.table), count)
        next_slots(self.lens, self.table, slots, PAGE=self.page)
        keys, values = (t.flatten(0, 1).to(self.keys.dtype) for t in (keys, values))
        turns = {} if cos is None or sin is None else {"cos": cos.float(), "sin": sin.float()}
        cache_append(keys, values, self.keys, self.values, slots.flatten(), **turns)
        self.lens.add_(count).clamp_(max=self.longest)
