"""The benchmark of layers: its sides agree with float64 where no GPU is needed."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from argus.layers import Shape  # noqa: E402
from benchmarks.layers import OURS, Case, error_of, operands_of, sides_of  # noqa: E402

SHAPES = {
    "gated": Shape(hidden=64, inner=96, heads=2, shared_heads=1, features=64),
    "mixture": Shape(hidden=64, inner=24, heads=2, shared_heads=2, features=64, experts=4, chosen=2, head_norm=True),
}
ROUNDED = 6 * 2**-8
"""A layer and its gradients round to bfloat16 some ten times on their way."""


@pytest.mark.parametrize("case", [Case("gated", "decode", 2, 9), Case("gated", "training", 2, 7)], ids=str)
def test_sides_agree(case: Case, require_tool: object, granted: None) -> None:
    _assert_sides_agree(case, require_tool)


@pytest.mark.slow
@pytest.mark.parametrize("case", [Case("mixture", "decode", 2, 9), Case("mixture", "prefill", 2, 7)], ids=str)
def test_mixtures_agree(case: Case, require_tool: object, granted: None) -> None:
    _assert_sides_agree(case, require_tool)


def _assert_sides_agree(case: Case, require_tool: object) -> None:
    require_tool("g++", "clang++", "c++")  # type: ignore[operator]
    given = operands_of(case, "cpu", SHAPES[case.model])
    sides = sides_of(case, ["eager"])
    assert set(sides) == {OURS, "eager"}
    for side in sides.values():
        assert error_of(case, side, given) < ROUNDED
