"""RMSNorm: results against float64, special values, strides and alignments, proofs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from argus.diagnostic import LaunchError  # noqa: E402
from argus.kernels import rmsnorm  # noqa: E402
from tests.kernels.common import DTYPE_NAMES, SHAPES, TARGETS, assert_proved, close, random  # noqa: E402


def exact(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    x = x.double()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.double()


@pytest.mark.product
@pytest.mark.parametrize("dtype", DTYPE_NAMES)
@pytest.mark.parametrize("shape", SHAPES)
def test_results(device: str, shape: tuple[int, ...], dtype: str) -> None:
    x = random(*shape, dtype=dtype, device=device)
    weight = random(shape[-1], dtype=dtype, device=device, seed=1)
    close(rmsnorm(x, weight, 1e-5), exact(x, weight, 1e-5))


def test_long_rows(device: str) -> None:
    x, weight = random(2, 33000, device=device), random(33000, device=device, seed=1)
    close(rmsnorm(x, weight, 1e-5), exact(x, weight, 1e-5))


@pytest.mark.parametrize("columns", [16400, 17001])
def test_rows_in_shared_memory(device: str, columns: int) -> None:
    """Those that are aligned arrive by asynchronous copies, others through registers."""
    x, weight = random(3, columns, dtype="bfloat16", device=device), random(columns, dtype="bfloat16", device=device)
    close(rmsnorm(x, weight), exact(x, weight, 1e-6))


def test_rows_of_odd_lengths(device: str) -> None:
    """Moved by the memory's vectors; those that begin at other places of them than the result's element by element."""
    wide, weight = random(9, 2070, dtype="bfloat16", device=device), random(2051, dtype="bfloat16", device=device)
    odd = wide.flatten()[: 9 * 2051].view(9, 2051)
    for x in (odd, odd[1:], wide[:, :2051]):
        close(rmsnorm(x, weight, 1e-6), exact(x, weight, 1e-6))


def test_special_values(device: str) -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[0.0, nan, 1.0], [inf, 0.0, 1.0], [0.0, 0.0, 0.0], [1e-30, 0.0, 0.0]], device=device)
    weight = torch.tensor([1.0, 2.0, -1.0], device=device)
    close(rmsnorm(x, weight, 1e-6), exact(x, weight, 1e-6))


def test_rows_any_distance_apart_and_misaligned(device: str) -> None:
    wide = random(4, 30, dtype="bfloat16", device=device)
    scales = random(64, device=device)
    for x, weight in ((wide[:, 3:20], scales[::2][:17]), (wide[::2, :8], scales[1:9]), (wide[0], scales[:30])):
        close(rmsnorm(x, weight), exact(x, weight, 1e-6))


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(LaunchError, match="`weight` has the shape"):
        rmsnorm(torch.zeros(3, 4), torch.zeros(3))
    with pytest.raises(LaunchError, match="`weight` is a tensor of int32"):
        rmsnorm(torch.zeros(3, 4), torch.zeros(4, dtype=torch.int32))


@pytest.mark.parametrize("target", TARGETS)
def test_proved(target: str) -> None:
    assert_proved("rmsnorm", "rmsnorm_rows", target)
    assert_proved("rmsnorm", "rmsnorm_rows", target, DTYPE="float32", ROWS=1, BLOCK=5120, alignment=4)
    assert_proved("rmsnorm", "rmsnorm_rows", target, DTYPE="float16", ROWS=512, BLOCK=8)
    odd = {"ROWS": 1, "BLOCK": 5120, "FROM": 4095, "STEP": 7, "WIDTH": 8, "num_warps": 4}
    assert_proved("rmsnorm", "rmsnorm_rows", target, alignment=2, **odd)
    assert_proved("rmsnorm", "rmsnorm_held_rows", target, num_warps=8, COPY=None, BLOCK=2048, alignment=2)
    assert_proved("rmsnorm", "rmsnorm_long_rows", target)


def test_rows_that_blocks_share_are_proved() -> None:
    for blocks in (1, 2):
        assert_proved("rmsnorm", "rmsnorm_held_rows", "sm_90a", num_warps=8, CLUSTER=blocks)
