"""Mixtures of experts in float8, with scales of blocks: tokens and activations are quantised on their way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from argus.backend.launch.evaluate import Number
from argus.ir.types import DTYPES, DType
from argus.kernels import expert_blocks as blocks
from argus.kernels.blockwise import SIDE
from argus.kernels.expert_products import Products, aligned, rows_of
from argus.kernels.mixture import ACTIVATIONS, checked
from argus.kernels.rows import dtype_of, matrix, same_shape
from argus.kernels.sorting import order_of
from argus.runtime.device import target_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch

_FEW = 48  # rows of an expert, on average, up to which tiles have 64 rows


def mixture_blocks(
    x: torch.Tensor,
    weights: torch.Tensor,
    chosen: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    scale1: torch.Tensor,
    scale2: torch.Tensor,
    *,
    activation: str = "swiglu",
    shared: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return what `mixture` returns, for weights of experts in float8_e4m3fn with a scale for each block.

    `scale1` `[E, ceil(2 I / 128), ceil(H / 128)]` and `scale2` `[E, ceil(H / 128), ceil(I / 128)]` are float32, one for
    each 128 x 128 elements of `w1` and `w2`; or `[E]`, one for each expert. Tokens and activations are quantised with a
    scale for each 128 elements, as `quantize_blocks` says. No gradient. Raises LaunchError.
    """
    given = (x, weights, chosen, w1, w2, scale1, scale2, *(() if shared is None else (shared,)))
    result: torch.Tensor = _mixture(given, (), (activation,))
    return result


def tile_of(target: str, rows: int, count: int, copied: bool) -> Mapping[str, Any]:
    """Return the constants of a product of `rows` rows; `copied`: the copy engine can bring all operands."""
    if target == "sm_90a" and copied:
        side = 128 if rows > _FEW * count else 64
        return {"ROWS": side, "COLUMNS": 128, "STAGES": 3, "PRODUCERS": 4, "num_warps": side // 16}
    side, stages = (32, 1) if target == "cpu" else (64, 2)
    tile = {"ROWS": side, "COLUMNS": side, "STAGES": stages, "PRODUCERS": 0, "num_warps": 4}
    return {**tile, "MULTIPLY": DTYPES["float16"]}


def _work(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...], activation: str) -> Work:
    dtype = _checked(tensors, activation)
    x, weights, chosen = matrix(tensors[0]), tensors[1].contiguous(), tensors[2].contiguous()
    w1, w2 = (rows_of(w) for w in tensors[3:5])
    scales = [_of_blocks(s, w) for s, w in zip(tensors[5:7], (w1, w2), strict=True)]
    out = x.new_empty(x.shape)
    if not x.numel():
        return Work((), (out,))
    order = order_of(chosen, len(w1))
    products = Products(order, dtype)
    rows, scale = _room(x, order.pairs, x.shape[1])
    hidden, scale_h = _room(x, order.pairs, w2.shape[2])
    both, parts = (x.new_empty(order.pairs, w.shape[1]) for w in (w1, w2))
    tile = tile_of(target_of(str(x.device)), order.pairs, len(w1), aligned(rows, hidden, w1, w2))
    cut = products.cut(int(tile["ROWS"]))
    way = {"DTYPE": dtype, **tile}
    active = {"DTYPE": dtype, "ACTIVATION": ACTIVATIONS[activation]}
    halves = both.view(order.pairs, 2, -1)
    products.calls += (
        Call(blocks.gathered_blocks, (x, order.token, rows, scale), {"DTYPE": dtype}),
        Call(blocks.expert_blocks, (rows, scale, cut.first, cut.owner, w1, scales[0], both), way),
        Call(blocks.activated_blocks, (halves, hidden, scale_h), active),
        Call(blocks.expert_blocks, (hidden, scale_h, cut.first, cut.owner, w2, scales[1], parts), way),
    )
    products.combine(parts, weights, matrix(tensors[7]) if len(tensors) > 7 else None, out)
    return Work(tuple(products.calls), (out,))


def _room(x: torch.Tensor, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return room for float8 rows, which begin at multiples of 16 bytes, and for their scales."""
    import torch

    values = x.new_empty(rows, -(-columns // 16) * 16, dtype=torch.float8_e4m3fn)[:, :columns]
    return values, x.new_empty(-(-columns // SIDE), rows, dtype=torch.float32)


def _of_blocks(scale: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return the scales of all blocks of the weights `w`."""
    shape = _blocks(w)
    return (scale.view(-1, 1, 1).expand(shape) if scale.ndim == 1 else scale).contiguous()


def _blocks(w: torch.Tensor) -> tuple[int, ...]:
    return len(w), *(-(-size // SIDE) for size in w.shape[1:])


def _checked(tensors: tuple[torch.Tensor, ...], activation: str) -> DType:
    """Return the dtype. Raises LaunchError."""
    dtype = checked(tensors[:5], tensors[7:], activation, "float8_e4m3fn")
    for name, scale, w in zip(("scale1", "scale2"), tensors[5:7], tensors[3:5], strict=True):
        dtype_of(name, scale, ("float32",))
        same_shape(name, scale, (len(w),) if scale.ndim == 1 else _blocks(w))
    return dtype


def _fake(*given: Any) -> torch.Tensor:
    tensors, _, (activation,) = _split(*given)
    _checked(tensors, activation)
    result: torch.Tensor = given[0].new_empty(given[0].shape)
    return result


def _joined(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...], way: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*tensors[:7], tensors[7] if len(tensors) > 7 else None, *way)


def _split(*given: Any) -> tuple[tuple[Any, ...], tuple[Number, ...], tuple[Any, ...]]:
    return tuple(t for t in given[:8] if t is not None), (), given[8:]


_mixture = Function(
    _work,
    Operator(
        "mixture_blocks(Tensor x, Tensor weights, Tensor chosen, Tensor w1, Tensor w2, Tensor scale1, Tensor scale2, "
        "Tensor? shared=None, str activation='swiglu') -> Tensor",
        _fake,
        join=_joined,
        split=_split,
    ),
)
