"""Products of rows with the matrices of their groups."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.diagnostic import LaunchError  # noqa: E402
from argus.kernels.grouped import grouped_product  # noqa: E402
from tests.graph.compiled import compiled, left, taken  # noqa: E402

if not hasattr(torch, "_grouped_mm"):
    pytest.skip("this PyTorch has no products of groups", allow_module_level=True)


def given(turned: bool) -> tuple[Any, Any, Any]:
    chance = torch.Generator().manual_seed(5)
    x, w = (torch.randn(shape, generator=chance).bfloat16() for shape in ((70, 24), (4, 24, 40)))
    return x, w if turned else w.mT.contiguous().mT, torch.tensor([33, 33, 60, 70], dtype=torch.int32)


@pytest.mark.parametrize("turned", [False, True])
def test_groups_of_any_size_are_multiplied(turned: bool) -> None:
    x, w, ends = given(turned)
    found = grouped_product(x, w, torch.nn.functional.pad(ends, (1, 0)))
    begin = 0
    for e, end in enumerate(ends.tolist()):
        torch.testing.assert_close(found[begin:end].float(), x[begin:end].float() @ w[e].float(), rtol=2e-2, atol=2e-2)
        begin = end


def test_wrong_operands_are_refused() -> None:
    x, w, ends = given(False)
    with pytest.raises(LaunchError, match="offsets"):
        grouped_product(x, w, ends)  # there is one offset more than matrices


def test_a_model_runs_the_library_forward_and_for_the_gradient_of_the_rows() -> None:
    x, w, ends = given(False)
    call, backend = compiled(lambda x: torch._grouped_mm(x, w, offs=ends).float().square().sum(), dynamic=False)
    grads = []
    for run in (call, lambda x: sum((x[b:e] @ w[i]).float().square().sum() for i, b, e in bounds)):
        bounds = [(0, 0, 33), (2, 33, 60), (3, 60, 70)]
        leaf = x.clone().requires_grad_()
        run(leaf).backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(*grads, rtol=4e-2, atol=1.0)
    report = backend.report(call)
    assert taken(report).count("grouped_product") == 2
    assert not any("_grouped_mm" in name for name in left(report))
