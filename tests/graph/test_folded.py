"""Values that a graph computes from numbers alone."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.graph.compiled import compiled, left, same, taken  # noqa: E402


def test_positions_become_a_constant() -> None:
    def model(x: Any) -> Any:
        i = torch.arange(x.shape[-1])
        return torch.where((i[:, None] * 2 + 1) % 3 >= i // 2, x, 0.0)

    report = same(model, torch.randn(6, 6))
    assert taken(report) == ["where"] and not left(report)


def test_random_numbers_and_results_are_made_anew_in_each_call() -> None:
    def model(x: Any) -> Any:
        return x * torch.rand(4), torch.arange(4), torch.arange(4)[None]

    call, _ = compiled(model, dynamic=False)
    with torch.no_grad():
        first, i, j = call(torch.ones(4))
        i.add_(1), j.add_(1)
        second, *rest = call(torch.ones(4))
    assert not torch.equal(first, second)
    assert all(torch.equal(x.flatten(), torch.arange(4)) for x in rest)
