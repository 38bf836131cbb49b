"""What `benchmarks.memory` measures: each kernel, the same in PyTorch, and the same in float64."""

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


def _matrix(device: str, rows: int, columns: int, dtype: Any) -> Sequence[Any]:
    return (torch.randn(rows, columns, device=device, dtype=dtype),)


def _with_weight(device: str, rows: int, columns: int, dtype: Any) -> Sequence[Any]:
    return (
        torch.randn(rows, columns, device=device, dtype=dtype),
        torch.randn(columns, device=device, dtype=dtype),
    )


def _softmax(x: Any) -> Any:
    return torch.softmax(x, -1)


def _rmsnorm(x: Any, weight: Any) -> Any:
    return F.rms_norm(x, weight.shape, weight, EPS)


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
}
