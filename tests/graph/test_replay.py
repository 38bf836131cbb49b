"""CUDA graphs, as far as a machine without a GPU can tell."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.graph.replay import emptying  # noqa: E402


def test_a_recorded_graph_empties_the_list_of_its_inputs() -> None:
    def call(inputs: list[Any]) -> Any:
        return sum(inputs)

    inputs = [1, 2, 3]
    assert emptying(call)(inputs) == 6 and not inputs
