"""Row-wise float8: scales and values against float64, special values, strides and alignments, proofs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from argus.kernels import quantize  # noqa: E402
from tests.kernels.common import DTYPE_NAMES, SHAPES, TARGETS, assert_proved, random  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.mark.product
@pytest.mark.parametrize("dtype", DTYPE_NAMES)
@pytest.mark.parametrize("shape", [*SHAPES, (2, 33000)])
def test_results(device: str, shape: tuple[int, ...], dtype: str) -> None:
    x = random(*shape, dtype=dtype, device=device)
    values, scale = quantize(x)
    assert values.dtype is torch.float8_e4m3fn and values.shape == x.shape
    assert scale.dtype is torch.float32 and scale.shape == (*shape[:-1], 1)
    if not shape[-1]:
        assert bool((scale == 1e-12 / 448).all())
        return
    wanted = x.double().abs().amax(-1, keepdim=True).clamp_min(1e-12) / 448
    torch.testing.assert_close(scale.double(), wanted, rtol=3e-7, atol=0)
    # float8_e4m3fn has 3 mantissa bits, and no steps finer than 2^-9
    torch.testing.assert_close(values.double(), x.double() / wanted, rtol=2**-4 + 1e-6, atol=2**-10)
    assert bool((values.float().abs().amax(-1) == 448).all())


def test_special_values(device: str) -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[0.0, 0.0], [1e-30, -1e-30], [nan, 1.0], [inf, 1.0], [3e38, -3e38]], device=device)
    values, scale = quantize(x)
    assert values[:2].float().tolist() == [[0, 0], [0, 0]] and bool((scale[:2] == 1e-12 / 448).all())
    assert bool(values[2].float().isnan().all()) and bool(scale[2].isnan())
    assert bool(values[3, 0].float().isnan()) and float(values[3, 1]) == 0 and bool(scale[3].isinf())
    assert values[4].float().tolist() == [448, -448]


def test_rows_any_distance_apart_and_misaligned(device: str) -> None:
    wide = random(4, 30, dtype="bfloat16", device=device)
    for x in (wide[:, 3:20], wide[::2, :8], wide.t(), wide[0]):
        values, scale = quantize(x)
        expected, expected_scale = quantize(x.contiguous())
        assert torch.equal(values.float(), expected.float()) and torch.equal(scale, expected_scale)


def test_rows_of_odd_lengths(device: str) -> None:
    """By the memory's own vectors of 16 bytes, whose first and last the mask cuts; rows of other distances are not."""
    wide = random(9, 2010, dtype="bfloat16", device=device)
    for x in (random(9, 2001, dtype="bfloat16", device=device), wide[:, :2003], wide[:, 1:2004], wide[1:, :2004]):
        values, scale = quantize(x)
        expected, expected_scale = quantize(x.float())
        assert torch.equal(values.float(), expected.float()) and torch.equal(scale, expected_scale)


@pytest.mark.parametrize("target", TARGETS)
def test_proved(target: str) -> None:
    assert_proved("quantize", "quantize_rows", target)
    assert_proved("quantize", "quantize_rows", target, DTYPE="float32", ROWS=1, BLOCK=5120, alignment=4)
    assert_proved("quantize", "quantize_rows", target, DTYPE="float16", ROWS=512, BLOCK=8)
    odd = {"ROWS": 1, "BLOCK": 4608, "FROM": 3840, "STEP": 7, "WIDTH": 8, "num_warps": 3}
    assert_proved("quantize", "quantize_rows", target, alignment=2, **odd)
    assert_proved("quantize", "quantize_long_rows", target)
