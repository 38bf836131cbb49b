"""Float8 products with a scale for each block, and the quantisation of activations, alone or together with the
preceding norm."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.ir.machine import H200
from argus.ir.types import DTYPES, DType
from argus.kernels.blockwise import SIDE, product_of_blocks, quantized_blocks
from argus.kernels.rows import LONGEST_ROW, dtype_of, longest, matrix, same_rank, same_shape, spread, vector
from argus.runtime.device import target_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch

_HALVES = ("bfloat16", "float16")
_MANY = 2048  # tiles: so many rounds hide that the blocks of a cluster wait for each other
_RESULTS = {name: DTYPES[name] for name in ("bfloat16", "float16", "float32")}


def quantize_blocks(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(values, scale): float8_e4m3fn values of x's shape, and a float32 scale for each 128 elements of a row.

    `x` is `[..., N]` of bfloat16 or float16, rows of at most 32768 elements; `scale` is `[..., ceil(N / 128)]`, with
    the scales of different rows next to each other in memory, as products read them. A scale is the largest magnitude
    of its block, at least 1e-12, over 448. No gradient. Raises LaunchError.
    """
    results: tuple[torch.Tensor, torch.Tensor] = _quantize((x,))
    return results


def rmsnorm_quantize(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `quantize_blocks(rmsnorm(x, weight, eps))` in one launch, without rounding in between.

    `x` `[..., N]` and the results are those of `quantize_blocks`; `weight` is `[N]`, in x's dtype. No gradient. Raises
    LaunchError.
    """
    results: tuple[torch.Tensor, torch.Tensor] = _rmsnorm((x, weight), (float(eps),))
    return results


def matmul_blocks(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    *,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Return `(a * scale_a) @ (b * scale_b).T`, `[..., N]`, of float8_e4m3fn with a scale for each block.

    `a` is `[..., K]` and `scale_a` `[..., ceil(K / 128)]`, a scale for each 128 elements of a row. `b` is `[N, K]` and
    `scale_b` `[ceil(N / 128), ceil(K / 128)]`, a scale for each 128 x 128 elements. Scales are float32. The result is
    of `out_dtype`: bfloat16 (the default), float16 or float32. No gradient. Raises LaunchError.
    """
    result: torch.Tensor = _product((a, b, scale_a, scale_b), (), (out_dtype,))
    return result


def _work_of_rows(tensors: tuple[torch.Tensor, ...], numbers: tuple[Number, ...]) -> Work:
    x = matrix(tensors[0])
    dtype = _checked_rows(*tensors)
    values, scale = _room(x)
    results = _shaped(values, scale, tensors[0])
    if not x.numel():
        return Work((), results)
    found = spread(max(SIDE, x.shape[1]), x.element_size(), width=vector(x))
    block = -(-found.block // SIDE) * SIDE
    constants = {"DTYPE": dtype, "ROWS": found.rows, "BLOCK": block, "num_warps": found.warps}
    weight = tensors[1].contiguous() if len(tensors) > 1 else None
    eps = numbers[0] if numbers else 0.0
    return Work((Call(quantized_blocks, (x, weight, values, scale, eps), constants),), results)


def _room(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return empty tensors for the values `[M, N]` and the scales `[ceil(N / 128), M]`."""
    import torch

    values = x.new_empty(x.shape, dtype=torch.float8_e4m3fn)
    return values, x.new_empty(-(-x.shape[1] // SIDE), x.shape[0], dtype=torch.float32)


def _shaped(values: torch.Tensor, scale: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return values.view(x.shape), scale.t().view(*x.shape[:-1], scale.shape[0]) if x.ndim != 2 else scale.t()


def _checked_rows(x: torch.Tensor, weight: torch.Tensor | None = None) -> DType:
    """Return the dtype. Raises LaunchError."""
    rows, dtype = matrix(x), dtype_of("x", x, _HALVES)
    longest("x", rows, LONGEST_ROW)
    if weight is not None:
        dtype_of("weight", weight, (dtype.name,))
        same_shape("weight", weight, (x.shape[-1],))
    return dtype


def _fake_rows(x: torch.Tensor, weight: torch.Tensor | None = None, _eps: float = 0.0) -> Any:
    _checked_rows(x, weight)
    return _shaped(*_room(matrix(x)), x)


@lru_cache(maxsize=4096)
def tile_of(target: str, rows: int, columns: int, aligned: bool) -> Mapping[str, Any]:
    """Return the constants of a product of so many rows and columns. `aligned`: the copy engine can load both operands.

    Few tiles are halved, so that more multiprocessors read the weights. Of very many tiles, clusters of two share the
    columns that they load.
    """
    if target == "sm_90a" and aligned:
        side = 64 if rows <= 64 else 128
        tiles = -(-rows // side) * -(-columns // SIDE)
        shape = {"ROWS": side, "STAGES": 3, "PRODUCERS": 4, "num_warps": side // 16}
        if tiles <= H200.multiprocessors // 2:
            shape |= {"COLUMNS": SIDE // 2, "STAGES": 5 if side == 64 else 4}
        in_pairs = tiles >= _MANY and -(-rows // side) % 2 == 0
        return shape | ({"CLUSTER": 2} if in_pairs else {})
    side = 32 if target == "cpu" else 64
    stages = 1 if target == "cpu" else 2
    tile = {"ROWS": side, "COLUMNS": side, "STAGES": stages, "PRODUCERS": 0, "num_warps": 4}
    return {**tile, "MULTIPLY": DTYPES["float16"], "SCHEDULE": "cooperative"}


def _work_of_product(
    tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...], out_dtype: torch.dtype | None
) -> Work:
    dtype = _checked(*tensors, out_dtype=out_dtype)
    a, b, scale_b = matrix(tensors[0]), matrix(tensors[1]), tensors[3].contiguous()
    scale_a = tensors[2].reshape(len(a), scale_b.shape[1]).t()
    scale_a = scale_a if scale_a.stride(1) == 1 or scale_a.shape[1] == 1 else scale_a.contiguous()
    out = _empty(tensors[0], b, dtype)
    if not out.numel():
        return Work((), (out,))
    tile = tile_of(target_of(str(a.device)), len(a), len(b), _aligned(a) and _aligned(b))
    tensors = (a, b, scale_a, scale_b, out.view(len(a), len(b)))
    return Work((Call(product_of_blocks, tensors, {"OUT": dtype, **tile}),), (out,))


def _empty(a: torch.Tensor, b: torch.Tensor, dtype: DType) -> torch.Tensor:
    import torch

    return a.new_empty(*a.shape[:-1], len(b), dtype=getattr(torch, dtype.name))


def _aligned(x: torch.Tensor) -> bool:
    return x.shape[1] > 0 and x.data_ptr() % 16 == 0 and x.stride(0) % 16 == 0


def _checked(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, *, out_dtype: torch.dtype | None
) -> DType:
    """Return the result's dtype. Raises LaunchError."""
    for name, x in (("a", a), ("b", b)):
        matrix(x)
        dtype_of(name, x, ("float8_e4m3fn",))
    same_rank("b", b, 2)
    same_shape("b", b, (len(b), a.shape[-1]))
    blocks = -(-a.shape[-1] // SIDE)
    for name, x, shape in (
        ("scale_a", scale_a, (*a.shape[:-1], blocks)),
        ("scale_b", scale_b, (-(-len(b) // SIDE), blocks)),
    ):
        dtype_of(name, x, ("float32",))
        same_shape(name, x, shape)
    found = "bfloat16" if out_dtype is None else str(out_dtype).removeprefix("torch.")
    if found not in _RESULTS:
        raise LaunchError.of("dtype-mismatch", f"the result cannot be {found}", f"use one of {', '.join(_RESULTS)}")
    return _RESULTS[found]


def _fake(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype | None
) -> torch.Tensor:
    return _empty(a, b, _checked(a, b, scale_a, scale_b, out_dtype=out_dtype))


_quantize = Function(_work_of_rows, Operator("quantize_blocks(Tensor x) -> (Tensor, Tensor)", _fake_rows))
_rmsnorm = Function(
    _work_of_rows,
    Operator("rmsnorm_quantize(Tensor x, Tensor weight, float eps=1e-6) -> (Tensor, Tensor)", _fake_rows),
)
_product = Function(
    _work_of_product,
    Operator(
        "matmul_blocks(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, ScalarType? out_dtype=None) -> Tensor", _fake
    ),
)
