"""Slow functions behind a product."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from argus.graph.backend import Backend, Survey  # noqa: E402


def kernels(model: Any, *shapes: tuple[int, ...]) -> list[str]:
    """Return the names of the kernels, which name each operator once, found with tensors without contents."""
    torch._dynamo.reset()
    backend = Backend(survey=Survey("sm_90a", prove=False))
    with FakeTensorMode(), torch.no_grad():
        inputs = [torch.empty(shape, dtype=torch.bfloat16) for shape in shapes]
        torch.compile(model, backend=backend, dynamic=False)(*inputs)
    return sorted(entry.kernel for graph in backend.graphs for entry in graph.entries)


def test_what_does_not_read_the_product_stays_with_the_function_that_reads_it() -> None:
    """Otherwise half of the function would go through memory in float32."""

    def model(a: Any, b: Any, x: Any) -> Any:
        return (a @ b) * (torch.erf(x.float() * 0.7) + 1)

    shapes = ((4096, 64), (64, 4096), (4096, 4096))
    assert kernels(model, *shapes) == ["mm", "to_copy_mul_erf_add"]  # and the product with it


def test_cheap_operators_stay_with_the_product() -> None:
    def model(a: Any, b: Any, x: Any) -> Any:
        return torch.erf((a @ b + x) * 0.5)

    shapes = ((4096, 64), (64, 4096), (4096, 4096))
    assert kernels(model, *shapes) == ["erf", "mm_add_mul"]
    assert kernels(model, (64, 64), (64, 64), (64, 64)) == ["mm_add_mul_erf"]


def test_a_function_behind_a_product_of_few_terms_is_a_kernel_of_its_own() -> None:
    def tanh(a: Any, b: Any) -> Any:
        return (a @ b).tanh()

    assert kernels(tanh, (4096, 64), (64, 4096)) == ["mm", "tanh"]
    assert kernels(tanh, (4096, 640), (640, 4096)) == ["mm_tanh"]


def test_mish_costs_more_than_a_hyperbolic_tangent() -> None:
    def mish(a: Any, b: Any) -> Any:
        return torch.nn.functional.mish((a @ b).float())

    assert kernels(mish, (4096, 640), (640, 4096))[-1] == "to_copy_tanh_softplus_mul"
    assert len(kernels(mish, (4096, 1280), (1280, 4096))) == 1
