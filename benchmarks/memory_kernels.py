"""The kernels that `benchmarks.memory` measures: ours, the same in PyTorch, and the same in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

import argus.kernels

Shape = tuple[str, int, int]
"""dtype, rows, columns."""

EPS = 1e-6


@dataclass(frozen=True)
class Kernel:
    """`operands(device, rows, columns, dtype)` makes a set of arguments that all three functions take.

    `moved(rows, columns, itemsize)` are the bytes that have to be read and written.
    """

    ours: Callable[..., Any]
    eager: Callable[..., Any]
    exact: Callable[..., Any]
    operands: Callable[..., Sequence[Any]]
    moved: Callable[[int, int, int], int]
    shapes: Sequence[Shape]


ROWS: tuple[Shape, ...] = (
    ("bfloat16", 16384, 4096),
    ("bfloat16", 65536, 1024),
    ("bfloat16", 8192, 8192),
    ("bfloat16", 4096, 16384),
    ("bfloat16", 262144, 128),
    ("bfloat16", 10000, 5120),
    ("bfloat16", 9999, 3000),
    ("bfloat16", 9999, 4095),
    ("float32", 16384, 4096),
    ("float16", 32768, 2048),
)
"""Hidden sizes of models, a head's, rows that no tile divides, and a length that is odd: no vector of 16 bytes."""


FEED_FORWARD: tuple[Shape, ...] = (
    ("bfloat16", 16384, 14336),
    ("bfloat16", 16384, 4096),
    ("bfloat16", 65536, 1024),
    ("bfloat16", 9999, 3000),
    ("float16", 8192, 11008),
    ("float32", 16384, 4096),
)
"""Inner sizes of feed-forward layers."""


LOGITS: tuple[Shape, ...] = (
    ("bfloat16", 8192, 128256),
    ("bfloat16", 16384, 32000),
    ("bfloat16", 8192, 50257),
    ("float32", 4096, 128256),
)
"""Tokens and vocabularies."""

MATRICES: tuple[Shape, ...] = (
    ("bfloat16", 16384, 16384),
    ("bfloat16", 16384, 4096),
    ("bfloat16", 9999, 3000),
    ("bfloat16", 9999, 4095),
    ("float32", 8192, 8192),
)

REDUCTIONS: tuple[Shape, ...] = (
    ("bfloat16", 16384, 4096),
    ("bfloat16", 65536, 1024),
    ("bfloat16", 128, 1048576),
    ("bfloat16", 9999, 3000),
    ("float32", 16384, 4096),
)


def _matrix(device: str, rows: int, columns: int, dtype: Any) -> Sequence[Any]:
    return (torch.randn(rows, columns, device=device, dtype=dtype),)


def _with_weight(device: str, rows: int, columns: int, dtype: Any) -> Sequence[Any]:
    return (
        torch.randn(rows, columns, device=device, dtype=dtype),
        torch.randn(columns, device=device, dtype=dtype),
    )


def _with_weight_and_bias(device: str, rows: int, columns: int, dtype: Any) -> Sequence[Any]:
    return (*_with_weight(device, rows, columns, dtype), torch.randn(columns, device=device, dtype=dtype))


def _with_residual(device: str, rows: int, columns: int, dtype: Any) -> Sequence[Any]:
    x, *parameters = _with_weight_and_bias(device, rows, columns, dtype)
    return (x, torch.randn_like(x), *parameters)


def _halves(device: str, rows: int, columns: int, dtype: Any) -> Sequence[Any]:
    both = torch.randn(rows, 2 * columns, device=device, dtype=dtype)
    return tuple(both.chunk(2, -1))


def _softmax(x: Any) -> Any:
    return torch.softmax(x, -1)


def _rmsnorm(x: Any, weight: Any) -> Any:
    return F.rms_norm(x, weight.shape, weight, EPS)


def _layernorm(x: Any, weight: Any, bias: Any) -> Any:
    return F.layer_norm(x, weight.shape, weight, bias, EPS)


def _add_layernorm(x: Any, residual: Any, weight: Any, bias: Any) -> Any:
    total = x + residual
    return _layernorm(total, weight, bias), total


def _silu_mul(gate: Any, up: Any) -> Any:
    return F.silu(gate) * up


def _quantize(x: Any) -> Any:
    scale = x.abs().amax(-1, keepdim=True).float().clamp_min(1e-12) / 448
    return (x.float() / scale).to(torch.float8_e4m3fn), scale


def _quantize_exactly(x: Any) -> Any:
    """Values that are rounded to float8 are compared with those before rounding."""
    scale = x.double().abs().amax(-1, keepdim=True).clamp_min(1e-12) / 448
    return x.double() / scale, scale


def _logits(device: str, rows: int, columns: int, dtype: Any) -> Sequence[Any]:
    (logits,) = _matrix(device, rows, columns, dtype)
    return logits, torch.randint(columns, (rows,), device=device)


def _cross_entropy(logits: Any, target: Any) -> Any:
    return F.cross_entropy(logits.float(), target, reduction="none")


def _transpose(x: Any) -> Any:
    return x.t().contiguous()


def _with_gradient(device: str, rows: int, columns: int, dtype: Any) -> Sequence[Any]:
    x, weight = _with_weight(device, rows, columns, dtype)
    return torch.randn_like(x), x, weight


def _rmsnorm_backward(dy: Any, x: Any, weight: Any) -> Any:
    """The closed form, which torch.compile fuses, in float32 or, of such operands, float64."""
    of = x.dtype if x.dtype is torch.float64 else torch.float32
    d, v, w = dy.to(of), x.to(of), weight.to(of)
    root = torch.rsqrt(v.square().mean(-1, keepdim=True) + EPS)
    g = d * w
    dx = root * (g - v * ((g * v).mean(-1, keepdim=True) * root * root))
    return dx.to(x.dtype), (d * v * root).sum(0).to(weight.dtype)


def _layernorm_backward(dy: Any, x: Any, weight: Any) -> Any:
    """The closed form, in float32 or, for operands in float64, in float64; compare `_rmsnorm_backward`."""
    of = x.dtype if x.dtype is torch.float64 else torch.float32
    d, v, w = dy.to(of), x.to(of), weight.to(of)
    centred = v - v.mean(-1, keepdim=True)
    root = torch.rsqrt(centred.square().mean(-1, keepdim=True) + EPS)
    normal = centred * root
    g = d * w
    dx = root * (g - g.mean(-1, keepdim=True) - normal * (g * normal).mean(-1, keepdim=True))
    return dx.to(x.dtype), (d * normal).sum(0).to(weight.dtype), d.sum(0).to(weight.dtype)


def _softmax_backward(dy: Any, y: Any) -> Any:
    return y * (dy - (dy * y).sum(-1, keepdim=True))


def _softmax_and_gradient(device: str, rows: int, columns: int, dtype: Any) -> Sequence[Any]:
    (x,) = _matrix(device, rows, columns, dtype)
    return torch.randn_like(x), torch.softmax(x, -1)


def _doubled(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *operands: function(*(t.double() for t in operands))


def _reduction(op: str, dim: int) -> Kernel:
    function: Callable[..., Any] = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax}[op]  # type: ignore[assignment]
    return Kernel(
        lambda x: argus.kernels.reduce(x, op, dim),
        lambda x: function(x, dim),
        lambda x: function(x.double(), dim),
        _matrix,
        lambda m, n, size: (m * n + (n if dim == 0 else m)) * size,
        REDUCTIONS,
    )


KERNELS: dict[str, Kernel] = {
    "softmax": Kernel(
        argus.kernels.softmax,
        _softmax,
        lambda x: torch.softmax(x.double(), -1),
        _matrix,
        lambda m, n, size: 2 * m * n * size,
        ROWS,
    ),
    "rmsnorm": Kernel(
        lambda x, weight: argus.kernels.rmsnorm(x, weight, EPS),
        _rmsnorm,
        lambda x, weight: _rmsnorm(x.double(), weight.double()),
        _with_weight,
        lambda m, n, size: (2 * m * n + n) * size,
        ROWS,
    ),
    "layernorm": Kernel(
        lambda x, weight, bias: argus.kernels.layernorm(x, weight, bias, EPS),
        _layernorm,
        lambda *operands: _layernorm(*(t.double() for t in operands)),
        _with_weight_and_bias,
        lambda m, n, size: (2 * m * n + 2 * n) * size,
        ROWS,
    ),
    "add_layernorm": Kernel(
        lambda x, residual, weight, bias: argus.kernels.add_layernorm(x, residual, weight, bias, EPS),
        _add_layernorm,
        lambda *operands: _add_layernorm(*(t.double() for t in operands)),
        _with_residual,
        lambda m, n, size: (4 * m * n + 2 * n) * size,
        ROWS,
    ),
    "softmax_backward": Kernel(
        argus.kernels.softmax_backward,
        _softmax_backward,
        _doubled(_softmax_backward),
        _softmax_and_gradient,
        lambda m, n, size: 3 * m * n * size,
        ROWS,
    ),
    "rmsnorm_backward": Kernel(
        lambda dy, x, weight: argus.kernels.rmsnorm_backward(dy, x, weight, EPS),
        _rmsnorm_backward,
        _doubled(_rmsnorm_backward),
        _with_gradient,
        lambda m, n, size: (3 * m * n + 2 * n) * size,
        ROWS,
    ),
    "layernorm_backward": Kernel(
        lambda dy, x, weight: argus.kernels.layernorm_backward(dy, x, weight, EPS),
        _layernorm_backward,
        _doubled(_layernorm_backward),
        _with_gradient,
        lambda m, n, size: (3 * m * n + 3 * n) * size,
        ROWS,
    ),
    "silu_mul": Kernel(
        argus.kernels.silu_mul,
        _silu_mul,
        lambda gate, up: _silu_mul(gate.double(), up.double()),
        _halves,
        lambda m, n, size: 3 * m * n * size,
        FEED_FORWARD,
    ),
    "quantize": Kernel(
        argus.kernels.quantize,
        _quantize,
        _quantize_exactly,
        _matrix,
        lambda m, n, size: m * n * (size + 1) + 4 * m,
        ROWS,
    ),
    "cross_entropy": Kernel(
        argus.kernels.cross_entropy,
        _cross_entropy,
        lambda logits, target: F.cross_entropy(logits.double(), target, reduction="none"),
        _logits,
        lambda m, n, size: m * n * size + 12 * m,
        LOGITS,
    ),
    "transpose": Kernel(
        argus.kernels.transpose,
        _transpose,
        lambda x: x.double().t(),
        _matrix,
        lambda m, n, size: 2 * m * n * size,
        MATRICES,
    ),
    "sum_rows": _reduction("sum", 1),
    "sum_columns": _reduction("sum", 0),
    "max_rows": _reduction("max", 1),
    "mean_columns": _reduction("mean", 0),
}
