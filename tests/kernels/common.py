"""What the tests of the shipped kernels share: tensors, how near is near, and that a kernel is proved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import argus.kernels
from argus.compile import prove
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.ir.types import DTYPES
from argus.source import SourceFile

DTYPE_NAMES = ("float32", "float16", "bfloat16")
TARGETS = ("sm_80", "sm_90a")
SHAPES = ((0, 5), (1, 1), (5, 0), (3, 7), (2, 3, 20), (5, 264), (2, 1030))
"""Empty, single, odd, of rank 3, longer than a warp's part, and of two warps and more."""


def random(*shape: int, dtype: str = "float32", device: str = "cpu", seed: int = 0) -> torch.Tensor:
    """Normal numbers; the same for the same arguments."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(getattr(torch, dtype)).to(device)


def close(got: torch.Tensor, exact: torch.Tensor) -> None:
    """`got` is the float64 result to within the rounding of its dtype; NaN and infinities at the same places."""
    assert got.shape == exact.shape
    eps = torch.finfo(got.dtype).eps
    torch.testing.assert_close(got.double(), exact, rtol=max(eps, 4e-6), atol=4e-6, equal_nan=True)


def source_of(file: str) -> SourceFile:
    """The text of argus/kernels/`file`.py."""
    path = Path(argus.kernels.__file__).parent / f"{file}.py"
    return SourceFile(str(path), path.read_text(encoding="utf-8"))


def assert_proved(
    file: str, kernel: str, target: str, *, num_warps: int = 4, alignment: int = 16, **constants: Any
) -> None:
    """`kernel` of argus/kernels/`file`.py is proved for `target`, for all sizes that its constants admit.

    `alignment` in bytes, of all tensors; dtypes among the constants by their names.
    """
    source = source_of(file)
    values = {name: DTYPES.get(value, value) if isinstance(value, str) else value for name, value in constants.items()}
    report = prove(source, kernel, Options(target, num_warps, values, default_alignment=alignment))
    assert report.verdict is Verdict.PROVED, [d.message for d in report.diagnostics]
