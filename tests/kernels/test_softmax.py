"""Softmax: results against float64, special values, strides and alignments, proofs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from argus.diagnostic import LaunchError  # noqa: E402
from argus.kernels import softmax  # noqa: E402
from tests.kernels.common import DTYPE_NAMES, SHAPES, TARGETS, assert_proved, close, random  # noqa: E402


@pytest.mark.product
@pytest.mark.parametrize("dtype", DTYPE_NAMES)
@pytest.mark.parametrize("shape", SHAPES)
def test_results(device: str, shape: tuple[int, ...], dtype: str) -> None:
    x = 3 * random(*shape, dtype=dtype, device=device)
    close(softmax(x), torch.softmax(x.double(), -1))


def test_long_rows(device: str) -> None:
    for columns in (33000, 40001):
        x = 3 * random(2, columns, device=device)
        close(softmax(x), torch.softmax(x.double(), -1))


@pytest.mark.parametrize("columns", [16400, 17001])
def test_rows_in_shared_memory(device: str, columns: int) -> None:
    """Those that are aligned arrive by asynchronous copies, others through registers."""
    inf = float("inf")
    x = 3 * random(6, columns, dtype="bfloat16", device=device)
    x[1, 5], x[2, -1], x[3], x[4, :-1] = float("nan"), inf, -inf, -inf
    close(softmax(x), torch.softmax(x.double(), -1))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_rows_of_odd_lengths(device: str, dtype: str) -> None:
    """Moved by the memory's vectors; those that begin at other places of them than the result's element by element."""
    inf = float("inf")
    wide = 3 * random(9, 2070, dtype=dtype, device=device)
    odd = wide.flatten()[: 9 * 2051].view(9, 2051)
    odd[1, 0], odd[2, -1], odd[3], odd[4, 1:] = float("nan"), inf, -inf, -inf
    for x in (odd, odd[1:], wide[:, :2051], odd[:, 1:]):
        close(softmax(x), torch.softmax(x.double(), -1))


def test_special_values(device: str) -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[0.0, nan, 1.0], [inf, 0.0, 1.0], [-inf, -inf, -inf], [-inf, 0.0, 3e38], [-3e38, 3e38, 0.0]])
    close(softmax(x.to(device)), torch.softmax(x.double(), -1).to(device))


def test_rows_any_distance_apart_and_misaligned(device: str) -> None:
    wide = random(4, 30, dtype="bfloat16", device=device)
    for x in (wide[:, 3:20], wide[::2, :8], wide.t(), wide[0], wide[:, :1].expand(4, 5)):
        close(softmax(x), torch.softmax(x.double(), -1))


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(LaunchError, match="float32, float16, bfloat16"):
        softmax(torch.zeros(3, 4, dtype=torch.float64))
    with pytest.raises(LaunchError, match="scalar"):
        softmax(torch.zeros(()))


@pytest.mark.parametrize("target", TARGETS)
def test_proved(target: str) -> None:
    assert_proved("softmax", "softmax_rows", target)
    assert_proved("softmax", "softmax_rows", target, DTYPE="float32", ROWS=1, BLOCK=5120, alignment=4)
    assert_proved("softmax", "softmax_rows", target, DTYPE="float16", ROWS=512, BLOCK=8)
    odd = {"ROWS": 1, "BLOCK": 4608, "FROM": 3840, "STEP": 7, "WIDTH": 8, "num_warps": 3}
    assert_proved("softmax", "softmax_rows", target, alignment=2, **odd)
    assert_proved("softmax", "softmax_held_rows", target, num_warps=8, COPY=None, BLOCK=2048, alignment=2)
    assert_proved("softmax", "softmax_long_rows", target)


def test_rows_that_blocks_share_are_proved() -> None:
    assert_proved("softmax", "softmax_held_rows", "sm_90a", num_warps=8, CLUSTER=1)
    assert_proved("softmax", "softmax_held_rows", "sm_90a", num_warps=4, CLUSTER=4, BLOCK=2048, BLOCKS=8)
