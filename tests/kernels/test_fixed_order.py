"""Products whose bits do not depend on the number of rows: values, the choice of tiles, and what is proved."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from argus.kernels import matmul
from argus.kernels.fixed_order import tile_in_order
from argus.kernels.product_tile import ROWS, ProductShape
from argus.kernels.tile_times import ranked
from tests.kernels.common import assert_proved, random

SIZES = (1, 16, 200, 4096)


def shape(m: int, n: int, k: int, target: str = "sm_90a") -> ProductShape:
    return ProductShape(m, n, k, 1, 16, 16, target, bulk=target == "sm_90a")


def test_rows_have_the_same_bits() -> None:
    a, b, bias = random(70, 200).bfloat16(), random(200, 96, seed=1).bfloat16(), random(96, seed=2)
    whole = matmul(a, b, bias=bias, batch_invariant=True)
    torch.testing.assert_close(whole.float(), a.float() @ b.float() + bias, rtol=1e-2, atol=1e-1)
    for rows in (slice(0, 1), slice(3, 20), slice(69, 70)):
        assert torch.equal(whole[rows], matmul(a[rows], b, bias=bias, batch_invariant=True))


def test_gradients() -> None:
    a, b = random(20, 40).requires_grad_(), random(40, 30, seed=1).requires_grad_()
    matmul(a, b, batch_invariant=True).sum().backward()
    assert a.grad is not None and b.grad is not None
    torch.testing.assert_close(a.grad, b.detach().sum(1).expand(20, 40), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(b.grad, a.detach().sum(0)[:, None].expand(40, 30), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("target", ["sm_90a", "sm_80", "gfx942"])
@pytest.mark.parametrize(("n", "k"), [(4096, 14336), (512, 8192), (2048, 2048)])
def test_one_split_serves_all_numbers_of_rows(target: str, n: int, k: int) -> None:
    tiles = [tile_in_order(shape(m, n, k, target)) for m in SIZES]
    assert len({t.part for t in tiles}) == 1
    assert all(t.schedule == ROWS and not t.shift for t in tiles)


def test_tiles_differ_and_few_lose_much() -> None:
    """By the model: the mean over sizes that a model's layers have loses less than a tenth."""
    shares = []
    for n, k in ((4096, 4096), (4096, 14336), (28672, 4096)):
        for m in SIZES:
            times = ranked(shape(m, n, k))
            tile = tile_in_order(shape(m, n, k))
            own = next((e.seconds for t, e in times if t == tile), None)
            if own is not None:
                shares.append(times[0][1].seconds / own)
    assert len(shares) > 6 and sum(shares) / len(shares) > 0.9


PROVED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("sm_90a", {"INVARIANT": "M", "BLOCK_N": 128, "num_warps": 8, "BIAS": "N", "RESIDUAL": "M N"}),
    ("sm_90a", {"INVARIANT": "M", "BLOCK_N": 128, "num_warps": 8, "CLUSTER": 2}),
    ("sm_90a", {"INVARIANT": "N", "BLOCK_M": 64, "BLOCK_N": 16, "BLOCK_K": 256, "STAGES": 5, "C": "N M"}),
    ("sm_90a", {"INVARIANT": "M", "BLOCK_N": 128, "num_warps": 8, "C": "Z M N", "OUT": "float32", "DEPTH": 2048}),
    ("sm_80", {"INVARIANT": "M", "BLOCK_N": 128, "BLOCK_K": 32, "PRODUCERS": 0}),
)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "constants"), PROVED, ids=str)
def test_proved(target: str, constants: dict[str, Any]) -> None:
    assert_proved("gemm", "gemm", target, **constants)


@pytest.mark.slow
def test_sums_of_parts_are_proved() -> None:
    assert_proved("gemm", "combine", "sm_90a", PARTS=3, DEPTH=256, EACH=3, ROWS=1, COLUMNS=512, BIAS="N", SCALED=True)


@pytest.mark.gpu
@pytest.mark.parametrize(("n", "k"), [(4096, 4096), (4096, 14336), (1024, 4096), (520, 8192)])
def test_bits_on_the_hardware(n: int, k: int) -> None:
    """Also between tiles, of which each is proved by itself."""
    a, b = random(4096, k).bfloat16().cuda(), random(k, n, seed=1).bfloat16().cuda()
    whole = matmul(a, b, batch_invariant=True)
    for m in (1, 7, 16, 33, 64, 100, 128, 256, 777, 1024, 2048):
        assert torch.equal(whole[37 : 37 + m], matmul(a[37 : 37 + m], b, batch_invariant=True)), m
