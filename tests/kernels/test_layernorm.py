"""LayerNorm, with and without a residual: results against float64, special values, strides, proofs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from argus.diagnostic import LaunchError  # noqa: E402
from argus.kernels import add_layernorm, layernorm  # noqa: E402
from argus.runtime.device import target_of  # noqa: E402
from tests.kernels.common import DTYPE_NAMES, SHAPES, TARGETS, assert_proved, close, random  # noqa: E402

pytestmark = pytest.mark.slow


def exact(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    x = x.double()
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return centred * torch.rsqrt(variance + eps) * weight.double() + bias.double()


@pytest.mark.product
@pytest.mark.parametrize("dtype", DTYPE_NAMES)
@pytest.mark.parametrize("shape", SHAPES)
def test_results(device: str, shape: tuple[int, ...], dtype: str) -> None:
    x, residual = (random(*shape, dtype=dtype, device=device, seed=s) for s in (0, 1))
    weight, bias = (random(shape[-1], dtype=dtype, device=device, seed=s) for s in (2, 3))
    close(layernorm(x, weight, bias, 1e-3), exact(x, weight, bias, 1e-3))
    normal, total = add_layernorm(x, residual, weight, bias, 1e-3)
    close(total, x.double() + residual.double())
    close(normal, exact(x.double() + residual.double(), weight, bias, 1e-3))


def test_a_large_mean_does_not_cancel(device: str) -> None:
    x = 1000 + random(3, 200, device=device)
    one, zero = torch.ones(200, device=device), torch.zeros(200, device=device)
    torch.testing.assert_close(layernorm(x, one, zero).double(), exact(x, one, zero, 1e-5), rtol=1e-4, atol=1e-4)


def test_long_rows(device: str) -> None:
    for columns in (9000, 25000):
        x, weight = random(2, columns, device=device), random(columns, device=device, seed=1)
        close(layernorm(x, weight, weight), exact(x, weight, weight, 1e-5))
        if target_of(device) == "sm_90a":  # the blocks of a cluster share rows
            close(add_layernorm(x, x, weight, weight)[0], exact(2 * x.double(), weight, weight, 1e-5))
    with pytest.raises(LaunchError, match="at most 24576"):
        add_layernorm(*(t.cpu() for t in (x, x, weight, weight)))


@pytest.mark.product
@pytest.mark.parametrize("columns", [6200, 9001])
def test_rows_in_shared_memory(device: str, columns: int) -> None:
    """Those that are aligned arrive by asynchronous copies, others through registers."""
    x, residual = (random(3, columns, dtype="bfloat16", device=device, seed=s) for s in (0, 1))
    weight = random(columns, dtype="bfloat16", device=device, seed=2)
    close(layernorm(x, weight, weight), exact(x, weight, weight, 1e-5))
    got, total = add_layernorm(x, residual, weight, weight)
    close(got, exact(x.double() + residual.double(), weight, weight, 1e-5))
    assert torch.equal(total, x + residual)


def test_special_values(device: str) -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[0.0, nan, 1.0], [inf, 0.0, 1.0], [0.0, 0.0, 0.0], [5.0, 5.0, 5.0]], device=device)
    weight = torch.tensor([1.0, 2.0, -1.0], device=device)
    close(layernorm(x, weight, weight), exact(x, weight, weight, 1e-5))


def test_rows_any_distance_apart_and_misaligned(device: str) -> None:
    wide = random(4, 30, dtype="bfloat16", device=device)
    scales = random(64, device=device)
    for x, w in ((wide[:, 3:20], scales[::2][:17]), (wide[::2, :8], scales[1:9]), (wide[0], scales[:30])):
        close(layernorm(x, w, w), exact(x, w, w, 1e-5))
        close(add_layernorm(x, x, w, w)[0], exact(2 * x.double(), w, w, 1e-5))


def test_wrong_arguments_are_refused() -> None:
    x, four = torch.zeros(3, 4), torch.zeros(4)
    with pytest.raises(LaunchError, match="`bias` has the shape"):
        layernorm(x, four, torch.zeros(3))
    with pytest.raises(LaunchError, match="`bias` is a tensor of float16"):
        layernorm(x, four, four.half())
    with pytest.raises(LaunchError, match="`residual` has the shape"):
        add_layernorm(x, four, four, four)
    with pytest.raises(LaunchError, match="`residual` is a tensor of float16"):
        add_layernorm(x, x.half(), four, four)


def test_long_rows_are_proved() -> None:
    assert_proved("layernorm", "layernorm_long_rows", "sm_90a")
    for kernel in ("layernorm_held_rows", "add_layernorm_held_rows"):
        assert_proved("layernorm", kernel, "sm_90a", num_warps=16)
        assert_proved("layernorm", kernel, "sm_90a", num_warps=8, CLUSTER=2, DTYPE="float32")
        assert_proved("layernorm", kernel, "sm_80", num_warps=8, BLOCK=2048, COPY=None, alignment=2)


@pytest.mark.parametrize("kernel", ["layernorm_rows", "add_layernorm_rows"])
@pytest.mark.parametrize("target", TARGETS)
def test_proved(target: str, kernel: str) -> None:
    assert_proved("layernorm", kernel, target)
    assert_proved("layernorm", kernel, target, DTYPE="float32", ROWS=1, BLOCK=5120, alignment=4)
    assert_proved("layernorm", kernel, target, DTYPE="float16", ROWS=512, BLOCK=8)
