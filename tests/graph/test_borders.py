"""Borders around borders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from tests.graph.compiled import same  # noqa: E402

CASES: dict[str, tuple[Callable[[Any], Any], int]] = {
    "both of zeros": (lambda x: F.pad(F.pad(x, (1, 2)), (0, 3, 1, 1)), 1),
    "the outer one of more dimensions": (lambda x: F.pad(F.pad(x, (1, 2, 3, 0)), (2, 2)), 1),
    "one of ones": (lambda x: F.pad(F.pad(x, (1, 2)), (0, 3), value=1.0), 2),
    "one that cuts off": (lambda x: F.pad(F.pad(x, (1, 2)), (-2, 3)), 2),
    "the inner one is read, too": (lambda x: (y := F.pad(x, (1, 2)), F.pad(y, (0, 3))), 2),
}


@pytest.mark.parametrize("case", CASES)
def test_borders_of_zeros_are_joined(case: str) -> None:
    model, kernels = CASES[case]
    report = same(model, torch.randn(3, 4, 5))
    assert sum("constant_pad_nd.default" in row["operators"] for row in report.rows) == kernels
