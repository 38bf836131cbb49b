"""PyTorch graphs: operators as index expressions, partition, kernels and their specifications, the compiler backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argus.graph.report import Report


def compile_report(model: Callable[..., object]) -> Report:
    """Report how a model that `torch.compile(model, backend="argus")` compiled, and that was called, was divided into
    kernels.

    The report prints as a table. `rows` has a dictionary for each kernel and each operator that was left to PyTorch.
    Raises ValueError for a model that was not compiled.
    """
    from argus.graph.backend import argus  # imported late, because it imports PyTorch

    return argus.report(model)
