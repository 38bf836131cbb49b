"""Attention on 16-bit floats that PyTorch writes out in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.graph.report import Report  # noqa: E402
from tests.graph.compiled import left, same  # noqa: E402

math = torch.ops.aten._scaled_dot_product_attention_math


def factors(dtype: Any, tokens: int = 24) -> list[Any]:
    chance = torch.Generator().manual_seed(3)
    return [torch.randn(2, 2, tokens, 16, generator=chance).to(dtype) for _ in range(3)]


def multiplied(report: Report) -> list[bool]:
    """Whether each product's kernel uses matrix instructions, in the order of the graph."""
    texts = [Path(row["path"]).read_text() for row in report.rows if row["kernel"].startswith("bmm")]
    return ["al.mma" in text for text in texts]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_products_of_attention_multiply_the_16_bit_floats(dtype: Any) -> None:
    mask = torch.zeros(2, 1, 24, 24, dtype=dtype)
    mask[0, :, :, 15:] = mask[1, :, 3] = -float("inf")  # a row of which all is masked gives 0
    report = same(lambda q, k, v, m: math(q, k, v, m)[0], *factors(dtype), mask, tolerance=2e-2)
    assert not left(report) and multiplied(report) == [True, True]
    assert {row["verdict"] for row in report.rows} == {"proved"}


def test_scales_before_copies_of_factors_are_moved_behind_the_product() -> None:
    def scores(q: Any, k: Any) -> Any:
        left = (q.float() * 0.5).transpose(1, 2).contiguous().flatten(0, 1)
        right = (k.float() * 0.25).transpose(1, 2).contiguous().flatten(0, 1)
        return torch.bmm(left, right.mT)

    report = same(scores, *factors(torch.bfloat16)[:2], tolerance=2e-2)
    assert multiplied(report) == [True]
    assert {row["verdict"] for row in report.rows} == {"proved"}


def test_products_of_float32_stay_products_of_float32() -> None:
    report = same(lambda q, k, v: math(q, k, v)[0], *factors(torch.float32))
    assert multiplied(report) == [False, False]


def test_weights_are_rounded_only_if_the_result_is() -> None:
    def weighed(s: Any, v: Any) -> Any:
        return torch.bmm(s.softmax(-1), v.float())

    scores, v = torch.randn(2, 24, 24), factors(torch.bfloat16)[2][0]
    assert multiplied(same(weighed, scores, v)) == [False]
    report = same(lambda s, v: weighed(s, v).bfloat16(), scores, v, tolerance=2e-2)
    assert multiplied(report) == [True]


def test_other_factors_are_not_rounded() -> None:
    report = same(lambda s, v: torch.bmm(s, v.float()).bfloat16(), torch.randn(2, 8, 24), factors(torch.bfloat16)[2][0],
                  tolerance=2e-2)  # fmt: skip
    assert multiplied(report) == [False]


def test_numbers_stay_where_they_are_in_float32() -> None:
    def scaled(q: Any, k: Any) -> Any:
        return (q * 0.5) @ (k * 0.25).mT

    report = same(scaled, *factors(torch.float32)[:2])
    assert [row["kernel"] for row in report.rows] == ["mul", "mul", "bmm"]
