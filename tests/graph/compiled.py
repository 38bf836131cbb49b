"""Models through the backend, beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from argus.graph.backend import Backend
from argus.graph.report import Report


def compiled(
    model: Callable[..., Any], generator: Any = None, cudagraphs: bool = False, **options: Any
) -> tuple[Callable[..., Any], Backend]:
    """The model, compiled by a backend of its own. What is left runs eagerly."""
    torch._dynamo.reset()
    backend = Backend(generator)
    chosen: dict[str, Any] = {"fallback": "eager", "workers": 1, "cudagraphs": cudagraphs}
    return torch.compile(model, backend=backend, options=chosen, **options), backend


def same(model: Callable[..., Any], *inputs: Any, tolerance: float = 1e-5, generator: Any = None) -> Report:
    """Compare a model with eager, without gradients; the report."""
    call, backend = compiled(model, generator, dynamic=False)
    with torch.no_grad():
        wanted = model(*inputs)
        found = call(*inputs)
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
    return backend.report(call)


def same_gradients(model: torch.nn.Module, *inputs: Any, tolerance: float = 1e-5) -> Report:
    """Compare a model's gradients with eager's; the report."""
    call, backend = compiled(model, dynamic=False)

    def step(run: Callable[..., Any]) -> list[Any]:
        leaves = [x.detach().clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
        model.zero_grad()
        run(*leaves).backward()
        return [p.grad for p in (*model.parameters(), *leaves) if p.grad is not None]

    wanted, found = [g.clone() for g in step(model)], step(call)
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
    return backend.report(call)


def taken(report: Report) -> list[str]:
    """The kernels that were proved."""
    return [row["kernel"] for row in report.rows if row["verdict"] == "proved"]


def left(report: Report) -> list[str]:
    """The operators that PyTorch runs."""
    return [row["kernel"] for row in report.rows if row["by"] != "argus"]
