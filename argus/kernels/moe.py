"""A mixture of experts, from the router's logits to the sum of the outputs of each token's experts.

The host reads no number from the device. The device counts and places rows and cuts them into tiles
(`argus.kernels.dispatch`), grids depend on sizes alone, and the products (`argus.kernels.experts`) load the numbers
that they need. A layer is therefore a fixed list of launches, which a CUDA graph can record, and results have the same
bits in every run.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.kernels import dispatch, experts
from argus.kernels.routing import Choice, routed
from argus.kernels.rows import dtype_of, matrix, same_rank, same_shape
from argus.runtime.device import target_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch

ACTIVATIONS = {"swiglu": experts.swiglu, "geglu": experts.geglu, "clamped_swiglu": experts.clamped_swiglu}
PAIRS = 512
"""Number of pairs that are counted and placed together."""
_HALVES = ("bfloat16", "float16")
_FEW = 48  # rows of an expert, on average, up to which weights are the rows of the products
_WAVES_ROWS = 128  # rows of a tile of four waves; of twice as many rows tiles of eight waves take 256
_COLUMNS = 1024  # of a token's result in a block
_MOVED = 2048  # elements of a row that a block gathers


def moe(
    x: torch.Tensor,
    router_logits: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    *,
    topk: int,
    sigmoid: bool = False,
    renormalize: bool = True,
    scale: float = 1.0,
    activation: str = "swiglu",
    shared: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return, for each token, the weighted sum of the outputs of its `topk` experts: `[T, H]`, in x's dtype.

    `x` `[T, H]`, `w1` `[E, 2 I, H]` (an expert's gates and, behind these, what passes them) and `w2` `[E, H, I]` are of
    bfloat16 or float16, all the same; `router_logits` `[T, E]` are as `router` takes them, and choose experts and
    weights as it does. `activation` is "swiglu", "geglu" or "clamped_swiglu". `shared`, what experts of all tokens
    gave, is added. Float32 arithmetic, results of one order for the same tokens; no gradient. Raises LaunchError.
    """
    tensors = (x, router_logits, w1, w2) if shared is None else (x, router_logits, w1, w2, shared)
    result: torch.Tensor = _moe(tensors, (float(scale),), (topk, sigmoid, renormalize, activation))
    return result


@lru_cache(maxsize=4096)
def tile_of(target: str, rows: int, count: int, aligned: bool, gated: bool, gathered: bool) -> Mapping[str, int | bool]:
    """Return the constants of a product of `rows` rows in total with the weights of `count` experts."""
    each = rows / count
    if target == "gfx942" and aligned and each > _FEW:
        side, warps = (256, 8) if each > 2 * _WAVES_ROWS else (_WAVES_ROWS, 4)
        columns = 128 if gated or side < 256 else 256
        return {"ROWS": side, "COLUMNS": columns, "DEPTH": 32, "STAGES": 2, "PRODUCERS": 0, "num_warps": warps}
    if target != "sm_90a" or not aligned:
        side, stages = (32, 1) if target == "cpu" else (64, 2)
        return {"ROWS": side, "COLUMNS": side, "DEPTH": 32, "STAGES": stages, "PRODUCERS": 0, "num_warps": 4}
    if each > _FEW:
        columns = 128 if gated else 256
        return {"ROWS": 128, "COLUMNS": columns, "DEPTH": 64, "STAGES": 4, "PRODUCERS": 4, "num_warps": 8}
    producers = 8 if gathered else 4
    side = next(n for n in (16, 32, 64) if each <= 3 * n // 4 or n == 64)
    shape = {"ROWS": side, "COLUMNS": 128, "DEPTH": 64, "STAGES": 5, "PRODUCERS": producers, "num_warps": 8}
    return {**shape, "SWAPPED": True}


def tiles(rows: int, count: int, side: int) -> int:
    """Return the largest number of tiles of `side` rows into which `rows` rows of `count` experts can be cut."""
    return (rows + min(count, rows) * (side - 1)) // side


class Sorted:
    """The pairs of a call in the order of experts: the launches that compute the order, and the tensors that hold it.
    """

    def __init__(self, chosen: torch.Tensor, count: int) -> None:
        """Sort `chosen` `[T, k]`, which holds numbers of experts below `count`."""
        self._chosen, self.pairs, self.count = chosen, chosen.numel(), count
        blocks, every = -(-self.pairs // PAIRS), _power(count)
        flat = chosen.view(-1)
        counts, begin = self._new(blocks, count), self._new(blocks, count)
        self.offsets, self.place, self.token = self._new(count + 1), self._new(*chosen.shape), self._new(self.pairs)
        warps = {"num_warps": 8}
        self.calls = (
            Call(dispatch.count_pairs, (flat, counts), {"BLOCK": PAIRS, "EXPERTS": every, **warps}),
            Call(dispatch.add_counts, (counts, begin, self.offsets), {"EXPERTS": every, **warps}),
            Call(dispatch.place_pairs, (flat, begin, self.place.view(-1)), {"BLOCK": PAIRS, **warps}),
            Call(dispatch.tokens_of_places, (self.place.view(-1), self.token, chosen.shape[1])),
        )

    def _new(self, *shape: int) -> torch.Tensor:
        return self._chosen.new_empty(shape)

    def cut(self, side: int) -> tuple[Call, torch.Tensor, torch.Tensor]:
        """Return the launch that cuts the rows into tiles of `side` rows, and writes where each tile begins and whose
        rows it has."""
        many = max(1, tiles(self.pairs, self.count, side))
        first, owner = self._new(many + 1), self._new(many + 1)
        constants = {"ROWS": side, "EXPERTS": _power(self.count), "num_warps": 8}
        return Call(dispatch.cut_into_tiles, (self.offsets, first, owner), constants), first, owner


def _power(count: int) -> int:
    return 1 << max(4, (count - 1).bit_length())


def _work(
    tensors: tuple[torch.Tensor, ...], numbers: tuple[Number, ...], k: int, sigmoid: bool, renormalize: bool, act: str
) -> Work:
    dtype = _checked(tensors, k, act)
    x, logits, w1, w2 = (matrix(tensors[0]), matrix(tensors[1]), *map(_rows, tensors[2:4]))
    more = matrix(tensors[4]) if len(tensors) > 4 else None
    out = x.new_empty(x.shape)
    if not x.numel():
        return Work((), (out,))
    route = routed(logits, None, numbers, Choice(k, sigmoid, renormalize))
    weights, chosen = route.results
    order = Sorted(chosen, len(w1))
    hidden = x.new_empty(order.pairs, w2.shape[2])
    parts = x.new_empty(order.pairs, x.shape[1])
    up = tile_of(target_of(str(x.device)), order.pairs, len(w1), _aligned(x, w1), True, True)
    down = tile_of(target_of(str(x.device)), order.pairs, len(w1), _aligned(hidden, w2), False, False)
    cut, first, owner = order.cut(int(up["ROWS"]))
    calls = [*route.calls, *order.calls, cut]
    token: torch.Tensor | None = order.token
    if up["PRODUCERS"] == 4:  # The copy engine loads consecutive rows.
        rows = x.new_empty(order.pairs, x.shape[1])
        calls.append(Call(experts.gather_rows, (x, token, rows), {"DTYPE": dtype, "BLOCK": _MOVED}))
        x, token = rows, None
    gated = {"DTYPE": dtype, "ACTIVATION": ACTIVATIONS[act], **up}
    calls.append(Call(experts.expert_rows, (x, token, first, owner, w1, hidden), gated))
    if down["ROWS"] != up["ROWS"]:
        cut, first, owner = order.cut(int(down["ROWS"]))
        calls.append(cut)
    calls.append(Call(experts.expert_rows, (hidden, None, first, owner, w2, parts), {"DTYPE": dtype, **down}))
    summed = {"DTYPE": dtype, "BLOCK": _COLUMNS, "CHOICES": k}
    calls.append(Call(experts.combine_rows, (parts, order.place, weights, more, out), summed))
    return Work(tuple(calls), (out,))


def _rows(w: torch.Tensor) -> torch.Tensor:
    """Return the weights with rows of consecutive elements."""
    return w if w.shape[2] < 2 or w.stride(2) == 1 else w.contiguous()


def _aligned(*tensors: torch.Tensor) -> bool:
    """Return True if the copy engine can bring tiles of all tensors: every row begins at a multiple of 16 bytes."""
    size = tensors[0].element_size()
    return all(t.data_ptr() % 16 == 0 and not any(s * size % 16 for s in t.stride()[:-1]) for t in tensors)


def _checked(tensors: tuple[torch.Tensor, ...], k: int, activation: str) -> Any:
    """Return the dtype. Raises LaunchError."""
    x, logits, w1, w2 = tensors[:4]
    for name, t, rank in (("x", x, 2), ("router_logits", logits, 2), ("w1", w1, 3), ("w2", w2, 3)):
        same_rank(name, t, rank)
    dtype = dtype_of("x", x, _HALVES)
    for name, t in (("w1", w1), ("w2", w2)):
        dtype_of(name, t, (dtype.name,))
    count, wide, hidden = w1.shape
    same_shape("x", x, (len(logits), hidden))
    same_shape("router_logits", logits, (len(x), count))
    same_shape("w2", w2, (count, hidden, wide // 2))
    if wide % 2 or not wide or not hidden:
        what = f"`w1` has the shape {tuple(w1.shape)}, and its rows are gates and, behind these, as many others"
        raise LaunchError.of("shape-mismatch", what, "pass [experts, 2 * width, hidden]")
    if activation not in ACTIVATIONS:
        what = f'`activation` is "{activation}"'
        raise LaunchError.of("argument-type", what, f"use one of {', '.join(ACTIVATIONS)}")
    Choice(k).checked(logits, None)
    if len(tensors) > 4:
        same_shape("shared", tensors[4], tuple(x.shape))
        dtype_of("shared", tensors[4], (dtype.name,))
    return dtype


def _fake(
    x: torch.Tensor, logits: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, shared: torch.Tensor | None,
    _scale: float, k: int, _sigmoid: bool, _renormalize: bool, activation: str,
) -> torch.Tensor:  # fmt: skip
    _checked((x, logits, w1, w2) if shared is None else (x, logits, w1, w2, shared), k, activation)
    return x.new_empty(x.shape)


def _joined(tensors: tuple[torch.Tensor, ...], numbers: tuple[Number, ...], way: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*tensors[:4], tensors[4] if len(tensors) > 4 else None, *numbers, *way)


def _split(*given: Any) -> tuple[tuple[Any, ...], tuple[Number, ...], tuple[Any, ...]]:
    return tuple(t for t in given[:5] if t is not None), given[5:6], given[6:]


_moe = Function(
    _work,
    Operator(
        "moe(Tensor x, Tensor router_logits, Tensor w1, Tensor w2, Tensor? shared, float scale, int k, "
        "bool sigmoid, bool renormalize, str activation) -> Tensor",
        _fake,
        join=_joined,
        split=_split,
    ),
)
