"""Products of rows with the matrices of their groups, as `torch._grouped_mm` computes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from argus.backend.launch.evaluate import Number
from argus.ir.types import DType
from argus.kernels import dispatch, experts
from argus.kernels.expert_products import aligned, tile_of
from argus.kernels.rows import dtype_of, same_rank, same_shape
from argus.kernels.sorting import power, tiles
from argus.runtime.device import target_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch

Tensors = tuple["torch.Tensor", ...]


def grouped_product(x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Return `x[p] @ w[e]` for each row p, where `offsets[e] <= p < offsets[e + 1]`.

    `x` is `[P, K]` and `w` `[E, K, N]`, float16 or bfloat16, and either of K and N has a stride of 1. `offsets`, int32
    `[E + 1]`, begins with 0 and does not decrease. Rows from the last offset on are not computed. Offsets beyond P
    count as P. Raises LaunchError.
    """
    found: torch.Tensor = grouped_function((x, w, offsets))
    return found


def _work(tensors: Tensors, _numbers: tuple[Number, ...]) -> Work:
    x, w, offsets = tensors
    dtype = _checked(x, w, offsets)
    (rows, depth), (count, _, columns) = x.shape, w.shape
    out = x.new_empty(rows, columns)
    if not (out.numel() and x.numel()):
        return Work((), (out.zero_(),))
    turned = w.stride(2) == 1 and w.stride(1) != 1
    own = w if turned else w.mT
    x, own = (t if t.stride(-1) == 1 else t.contiguous() for t in (x, own))
    tile = tile_of(target_of(str(x.device)), rows, count, depth, aligned(x, own), False, turned)
    side = int(tile["ROWS"])
    first, owner = (offsets.new_empty(max(1, tiles(rows, count, side)) + 1) for _ in range(2))
    shape = {"ROWS": side, "EXPERTS": power(count), "num_warps": 8}
    cut = Call(dispatch.cut_into_tiles, (offsets, first, owner, rows), shape)
    constants = {"DTYPE": dtype, **({"WEIGHTS": "E K N"} if turned else {}), **tile}
    return Work((cut, Call(experts.expert_rows, (x, None, first, owner, own, out), constants)), (out,))


def _checked(x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor) -> DType:
    """Return the dtype. Raises LaunchError."""
    same_rank("x", x, 2)
    same_rank("w", w, 3)
    dtype = dtype_of("x", x, ("float16", "bfloat16"))
    dtype_of("w", w, (dtype.name,))
    dtype_of("offsets", offsets, ("int32",))
    same_shape("w", w, (w.shape[0], x.shape[1], w.shape[2]))
    same_shape("offsets", offsets, (w.shape[0] + 1,))
    return dtype


def _fake(x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    _checked(x, w, offsets)
    return x.new_empty((x.shape[0], w.shape[2]))


grouped_function = Function(_work, Operator("grouped_product(Tensor x, Tensor w, Tensor offsets) -> Tensor", _fake))
