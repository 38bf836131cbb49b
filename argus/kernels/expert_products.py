"""The launches of a mixture's products with the weights of experts: tiles, gathered rows, weighted sums."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from argus.ir.types import DType
from argus.kernels import experts
from argus.kernels.sorting import Order, Tiles
from argus.runtime.device import target_of
from argus.runtime.work import Call

if TYPE_CHECKING:
    import torch

_FEW = 48  # rows of an expert, on average, up to which weights are the rows of the products
_WAVES_ROWS = 128  # rows of a tile of four waves; of twice as many rows tiles of eight waves take 256
_SHORT, _SHORT_GATED = 4096, 2048  # terms of a sum, up to which two groups of warps take turns
_COLUMNS = 1024  # of a token's result in a block
_MOVED = 2048  # elements of a row that a block gathers


@lru_cache(maxsize=4096)
def tile_of(
    target: str, rows: int, count: int, depth: int, aligned: bool, gated: bool, turned: bool = False
) -> Mapping[str, int | bool | str]:
    """Return the constants of a product of `rows` rows in all, of `depth` elements, with the weights of `count`
    experts."""
    each = rows / count
    if target == "gfx942" and aligned and each > _FEW:
        side, warps = (256, 8) if each > 2 * _WAVES_ROWS else (_WAVES_ROWS, 4)
        columns = 128 if gated or side < 256 else 256
        return {"ROWS": side, "COLUMNS": columns, "DEPTH": 32, "STAGES": 2, "PRODUCERS": 0, "num_warps": warps}
    if target != "sm_90a" or not aligned:
        side, stages = (32, 1) if target == "cpu" else (64, 2)
        return {"ROWS": side, "COLUMNS": side, "DEPTH": 32, "STAGES": stages, "PRODUCERS": 0, "num_warps": 4}
    shape = {"DEPTH": 64, "PRODUCERS": 4}
    if each > _FEW:
        return {**shape, "ROWS": 128, "STAGES": 4, **_columns(depth, gated, turned)}
    if turned:
        return {**shape, "ROWS": 64, "COLUMNS": 128, "STAGES": 5, "num_warps": 4}
    side = next(n for n in (16, 32, 64) if each <= 3 * n // 4 or n == 64)
    return {**shape, "ROWS": side, "COLUMNS": 128, "STAGES": 5, "TOGETHER": 1, "num_warps": 8, "SWAPPED": True}


def _columns(depth: int, gated: bool, turned: bool) -> Mapping[str, int | str]:
    """Return the columns of a tile of 128 rows, and how warps share it.

    If sums are short, one group of warps stores its results while the other multiplies. If they are long, wider tiles,
    whose operands are read for more products, count for more.
    """
    if depth <= (_SHORT_GATED if gated else _SHORT) and not turned:
        turns: Mapping[str, int | str] = {"SCHEDULE": "pingpong", "num_warps": 4}
        return {**turns, "COLUMNS": 96, "TOGETHER": 16} if gated else {**turns, "COLUMNS": 192}
    rows: Mapping[str, int | str] = {"SCHEDULE": "rows", "num_warps": 8}
    return {**rows, "COLUMNS": 128, "TOGETHER": 16} if gated else {**rows, "COLUMNS": 256}


class Products:
    """The products of a mixture's rows with the weights of experts, in the order of experts."""

    def __init__(self, order: Order, dtype: DType) -> None:
        self._order, self._dtype = order, dtype
        self._cuts: dict[int, Tiles] = {}
        self.calls: list[Call] = list(order.calls)

    def add(self, x: torch.Tensor, token: torch.Tensor | None, w: torch.Tensor, out: torch.Tensor, **way: Any) -> None:
        """Add the product of rows `x`, or of those that `token` names, with `w`; `way` is of `expert_rows`."""
        gated, turned = "ACTIVATION" in way, "WEIGHTS" in way
        target = target_of(str(out.device))
        tile = tile_of(target, len(out), len(w), x.shape[1], aligned(x, w), gated, turned)
        if token is not None and tile["PRODUCERS"]:  # the copy engine brings rows that stand one after the other
            rows = x.new_empty(len(out), x.shape[1])
            self.gather(x, token, None, rows)
            x, token = rows, None
        cut = self.cut(int(tile["ROWS"]))
        constants = {"DTYPE": self._dtype, **way, **tile}
        self.calls.append(Call(experts.expert_rows, (x, token, cut.first, cut.owner, w, out), constants))

    def gather(self, x: torch.Tensor, token: torch.Tensor, factor: torch.Tensor | None, rows: torch.Tensor) -> None:
        """Add the launch that gathers `rows`, each times its factor."""
        constants = {"DTYPE": self._dtype, "BLOCK": _MOVED}
        self.calls.append(Call(experts.gather_rows, (x, token, factor, rows), constants))

    def combine(self, parts: torch.Tensor, weights: torch.Tensor, more: torch.Tensor | None, out: torch.Tensor) -> None:
        """Add the weighted sum of each token's rows."""
        constants = {"DTYPE": self._dtype, "BLOCK": _COLUMNS, "CHOICES": weights.shape[1]}
        self.calls.append(Call(experts.combine_rows, (parts, self._order.place, weights, more, out), constants))

    def cut(self, side: int) -> Tiles:
        """Return the cut of the rows into tiles of `side` rows, and add its launch if there is none yet."""
        if side not in self._cuts:
            self._cuts[side] = self._order.cut(side)
            self.calls.append(self._cuts[side].call)
        return self._cuts[side]


def rows_of(w: torch.Tensor) -> torch.Tensor:
    """Return weights whose rows are consecutive elements."""
    return w if w.shape[2] < 2 or w.stride(2) == 1 else w.contiguous()


def aligned(*tensors: torch.Tensor) -> bool:
    """Return True if the copy engine can bring tiles of all tensors: every row begins at a multiple of 16 bytes."""
    places = ((t.data_ptr(), *(s * t.element_size() for s in t.stride()[:-1])) for t in tensors)
    return all(place % 16 == 0 for each in places for place in each)
