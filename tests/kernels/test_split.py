"""Products whose sum is cut into parts: values, what is proved of each part and of their sum, and what is not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from argus.kernels.gemm import combine, gemm
from argus.kernels.matmul import Matmul
from argus.kernels.product_tile import Tile
from tests.kernels.common import assert_proved, random

pytestmark = pytest.mark.slow


def in_parts(part: int, swapped: bool = False) -> Matmul:
    return Matmul(gemm, lambda problem: Tile(32, 32, 32, 2, 1, 0, swapped, part), combine)


@pytest.mark.parametrize(("part", "k"), [(32, 100), (64, 64), (96, 193), (128, 40), (64, 0)])
def test_values(part: int, k: int) -> None:
    a, b = random(37, k, seed=1).bfloat16(), random(k, 45, seed=2).bfloat16()
    got = in_parts(part)(a, b, out_dtype=torch.float32)
    torch.testing.assert_close(got, a.float() @ b.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.product
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("columns", [False, True])
def test_what_is_done_with_the_sum(swapped: bool, columns: bool) -> None:
    a, b = random(20, 70, seed=1).bfloat16(), random(70, 33, seed=2).bfloat16()
    more: dict[str, Any] = {"bias": random(33, seed=3), "residual": random(20, 33, seed=4)}
    scale_a, scale_b = torch.rand(20) + 0.5, torch.rand(33) + 0.5
    out = torch.empty(33, 20).t() if columns else torch.empty(20, 33)
    got = in_parts(32, swapped)(a, b, epilogue="relu", scale_a=scale_a, scale_b=scale_b, out=out, **more)
    exact = torch.relu(scale_a[:, None] * scale_b * (a.float() @ b.float()) + more["bias"]) + more["residual"]
    assert got is out
    torch.testing.assert_close(got, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("target", "stages"),
    [("sm_80", 2), ("sm_90a", 2), ("sm_90a", 3), ("sm_90a", 4), pytest.param("gfx942", 2, marks=pytest.mark.nightly)],
)
def test_parts_are_proved(target: str, stages: int) -> None:
    """Also those of fewer steps than there are stages, whose buffers are filled once."""
    shape = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "STAGES": stages, "PRODUCERS": 4 * (target == "sm_90a")}
    assert_proved("gemm", "gemm", target, C="Z M N", OUT="float32", DEPTH=192, **shape)


@pytest.mark.product
@pytest.mark.parametrize("result", ["Z M N", pytest.param("Z N M", marks=pytest.mark.slow)])
@pytest.mark.parametrize("shape", [(2, 1), pytest.param((4, 2), marks=pytest.mark.slow)])
def test_parts_in_clusters_are_proved(shape: tuple[int, int], result: str) -> None:
    constants = {"BLOCK_M": 64, "BLOCK_N": 96, "STAGES": 4, "CLUSTER": shape[0], "ACROSS": shape[1]}
    assert_proved("gemm", "gemm", "sm_90a", C=result, OUT="float32", DEPTH=192, **constants)


@pytest.mark.parametrize("parts", [2, 3, 13])
def test_their_sum_is_proved(parts: int) -> None:
    assert_proved("gemm", "combine", "sm_90a", PARTS=parts, DEPTH=192, BIAS="N", SCALED=True)
