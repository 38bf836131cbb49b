"""silu(gate) * up: results against float64, special values, strides and alignments, proofs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from argus.diagnostic import LaunchError  # noqa: E402
from argus.kernels import silu_mul  # noqa: E402
from tests.kernels.common import DTYPE_NAMES, SHAPES, TARGETS, assert_proved, close, random  # noqa: E402


def exact(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(gate.double()) * up.double()


@pytest.mark.product
@pytest.mark.parametrize("dtype", DTYPE_NAMES)
@pytest.mark.parametrize("shape", [*SHAPES, (2, 2049)])
def test_results(device: str, shape: tuple[int, ...], dtype: str) -> None:
    gate, up = (4 * random(*shape, dtype=dtype, device=device, seed=s) for s in (0, 1))
    close(silu_mul(gate, up), exact(gate, up))


def test_special_values(device: str) -> None:
    gate = torch.tensor([float("nan"), float("inf"), -float("inf"), -80.0, -300.0, 0.0, 300.0], device=device)
    close(silu_mul(gate, torch.ones_like(gate)), exact(gate, torch.ones_like(gate)))


def test_halves_of_one_tensor_and_misaligned_rows(device: str) -> None:
    both = random(5, 48, dtype="bfloat16", device=device)
    for gate, up in (both.chunk(2, -1), (both[:, 1:20], both[:, 2:21]), (both[::2], both[1::2][:, :].repeat(2, 1)[:3])):
        close(silu_mul(gate, up), exact(gate, up))


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(LaunchError, match="`up` has the shape"):
        silu_mul(torch.zeros(3, 4), torch.zeros(4, 3))
    with pytest.raises(LaunchError, match="`up` is a tensor of float16"):
        silu_mul(torch.zeros(3), torch.zeros(3).half())


@pytest.mark.parametrize("target", TARGETS)
def test_proved(target: str) -> None:
    assert_proved("silu_mul", "silu_mul_tiles", target)
    assert_proved("silu_mul", "silu_mul_tiles", target, DTYPE="float32", ROWS=16, BLOCK=128, alignment=4)
    assert_proved("silu_mul", "silu_mul_tiles", target, DTYPE="float16", ROWS=256, BLOCK=8)
