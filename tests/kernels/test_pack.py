"""Operands that are copied before they are multiplied: values, proofs, and when it pays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from argus.kernels.gemm import gemm
from argus.kernels.matmul import Matmul
from argus.kernels.operands import packing, problem, request
from argus.kernels.product_tile import ProductShape, Tile
from argus.kernels.tile_times import ranked
from argus.kernels.tiling import tiles
from tests.kernels.common import assert_proved, random

pytestmark = pytest.mark.slow

LARGE = ProductShape(3001, 1537, 4099, 1, 16, 16, "sm_90a", True, loaded=2, a_line=16, b_line=16,
                pack_a=True, pack_b=True)  # fmt: skip
EIGHT = torch.float8_e4m3fn


def packing_tile(part: int = 0, swapped: bool = False) -> Matmul:
    return Matmul(gemm, lambda _: Tile(32, 32, 32, 2, 1, 0, swapped, part, packed=True))


@pytest.mark.product
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, EIGHT])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize(("rows", "depth"), [(37, 75), (5, 1), (33, 300), (64, 64)])
def test_what_is_packed_is_the_operand_and_zeros(rows: int, depth: int, columns: bool, dtype: torch.dtype) -> None:
    kept = random(depth, rows).to(dtype).t() if columns else random(rows, depth).to(dtype)
    found = packing(kept)
    found.out.fill_(7.0)
    found.kernel(found.x, found.out, **found.constants)
    assert found.out.shape[1] * dtype.itemsize % 16 == 0 and found.out.stride(0) * dtype.itemsize % 128 == 0
    assert torch.equal(found.out[:, :depth].float(), kept.float())
    assert not found.out[:, depth:].float().any() and found.out.shape[1] - depth < 16 // dtype.itemsize


@pytest.mark.parametrize("alignment", [2, 8, 16])
def test_rows_are_proved(alignment: int) -> None:
    load = "ld.global.unaligned" if alignment == 2 else None
    assert_proved("pack", "pack_rows", "sm_90a", num_warps=8, alignment=alignment, LOAD=load)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float8_e4m3fn"])
def test_columns_are_proved(dtype: str) -> None:
    assert_proved("pack", "pack_columns", "sm_90a", num_warps=8, alignment=1, DTYPE=dtype)


@pytest.mark.product
@pytest.mark.parametrize("part", [0, 32])
@pytest.mark.parametrize("swapped", [False, True])
def test_products_of_copies(part: int, swapped: bool) -> None:
    a, b, bias = random(37, 75, seed=1).bfloat16(), random(75, 41, seed=2).bfloat16(), random(41, seed=3)
    product = packing_tile(part, swapped)
    for _ in range(2):  # prepared, and found prepared
        got = product(a, b, bias=bias, epilogue="relu", out_dtype=torch.float32)
        exact = torch.relu(a.float() @ b.float() + bias)
        torch.testing.assert_close(got, exact, rtol=1e-4, atol=1e-4)


def packs(a: torch.Tensor, b: torch.Tensor) -> tuple[bool, bool]:
    c = torch.empty(*a.shape[:-1], b.shape[-1])
    nothing: Any = None
    found = problem(request(a, b, c, nothing, nothing, nothing, nothing, nothing))
    return found.pack_a, found.pack_b


def test_what_there_is_to_pack() -> None:
    def m(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.zeros(*shape).to(dtype)

    assert packs(m(8, 64), m(64, 16)) == (False, False)
    assert packs(m(8, 64), m(64, 17)) == (False, True)
    assert packs(m(8, 63), m(63, 16)) == (True, True)  # b could stay, but for its depth
    assert packs(m(8, 64).float(), m(64, 16).float()) == (False, True)  # tf32 takes rows of the depth alone
    assert packs(m(8, 64, dtype=EIGHT), m(16, 64, dtype=EIGHT).t()) == (False, False)
    assert packs(m(8, 130)[:, ::2], m(65, 16)) == (False, False)  # no dimension of stride 1
    assert packs(m(8, 0), m(0, 3)) == packs(m(2, 8, 63), m(2, 63, 16)) == (False, False)


def test_large_products_pay_for_a_copy_and_few_rows_do_not() -> None:
    assert ranked(LARGE)[0][0].packed
    assert not ranked(replace(LARGE, m=1))[0][0].packed
    assert not any(t.packed for t in tiles(replace(LARGE, pack_a=False, pack_b=False)))
    assert not any(t.packed for t in tiles(replace(LARGE, target="sm_80", bulk=False, loaded=0)))
    tile = ranked(LARGE)[0][0]
    assert tile.producers == 4 and replace(tile, packed=False) in set(tiles(LARGE.packed))
    assert LARGE.packed.k == 4104 and LARGE.packed.a_line == 128


def test_both_sides_of_a_swapped_product_are_packed_alike() -> None:
    one = replace(LARGE, pack_b=False, b_line=128)
    assert (one.swapped.pack_a, one.swapped.pack_b) == (False, True)
    expected = {t: e.seconds for t, e in ranked(LARGE) if t.packed}
    cheaper = {t: e.seconds for t, e in ranked(one) if t.packed and t in expected}
    assert cheaper and all(seconds < expected[t] for t, seconds in cheaper.items())
