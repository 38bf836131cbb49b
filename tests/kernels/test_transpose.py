"""Transposition: results, strides and alignments, proofs."""

from __future__ import annotations

from importlib import import_module

import pytest

torch = pytest.importorskip("torch")

from argus.diagnostic import LaunchError  # noqa: E402
from argus.kernels import transpose  # noqa: E402
from tests.kernels.common import DTYPE_NAMES, TARGETS, assert_proved, random  # noqa: E402


@pytest.mark.product
@pytest.mark.parametrize("dtype", DTYPE_NAMES)
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (5, 3), (64, 72), (65, 130)])
def test_results(device: str, shape: tuple[int, int], dtype: str) -> None:
    x = random(*shape, dtype=dtype, device=device)
    got = transpose(x)
    assert got.is_contiguous() and torch.equal(got, x.t())


@pytest.mark.product
@pytest.mark.parametrize(("dtype", "columns"), [("bfloat16", 264), ("float32", 136)])
@pytest.mark.parametrize("rows", [999, 1000, 1025, 1039])
def test_results_of_odd_rows_are_written_by_sectors(
    device: str, rows: int, columns: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("argus.kernels.transpose"), "_FILLED", 1)
    x = random(rows, columns, dtype=dtype, device=device)
    assert torch.equal(transpose(x), x.t())


def test_rows_any_distance_apart_and_misaligned(device: str) -> None:
    wide = random(12, 40, dtype="bfloat16", device=device)
    for x in (wide[:, 3:20], wide[::2, :8], wide.t(), wide[:, :1]):
        assert torch.equal(transpose(x), x.t())


def test_what_is_contiguous_already_is_a_view(device: str) -> None:
    x = random(3, 40, dtype="bfloat16", device=device)
    for views, same in (((x[:1], x.t(), x[:, :1].contiguous()), True), ((x, x[:1, ::2], x[:, :1], x[:, 4:9]), False)):
        for view in views:
            got = transpose(view)
            assert got.is_contiguous() and torch.equal(got, view.t())
            assert (got.data_ptr() == view.data_ptr()) == same


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(LaunchError, match="`x` has 3 dimensions"):
        transpose(torch.zeros(2, 2, 2))
    with pytest.raises(LaunchError, match="tensor of int32"):
        transpose(torch.zeros(2, 2, dtype=torch.int32))


@pytest.mark.parametrize("target", TARGETS)
def test_proved(target: str) -> None:
    assert_proved("transpose", "transpose_tiles", target, num_warps=16)
    assert_proved("transpose", "transpose_to_odd_rows", target, alignment=2, num_warps=16)
    small = {"TILE": 64, "WIDTH": 4, "SECTOR": 8, "STEP": 7}
    assert_proved("transpose", "transpose_to_odd_rows", target, DTYPE="float32", alignment=4, num_warps=16, **small)
    assert_proved("transpose", "transpose_tiles", target, DTYPE="float32", VECTOR=2, WIDTH=3, num_warps=16)
    assert_proved("transpose", "transpose_tiles", target, DTYPE="float16", alignment=2, PAD=2, num_warps=8)
    assert_proved("transpose", "transpose_tiles", target, DTYPE="float32", alignment=4, WIDTH=3, PAD=1, num_warps=8)
