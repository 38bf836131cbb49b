"""Gradients of the row kernels: against float64, through autograd, strides, special values, proofs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus import kernels  # noqa: E402
from argus.diagnostic import LaunchError  # noqa: E402
from argus.kernels.cross_entropy import losses_and_levels  # noqa: E402
from tests.kernels.common import TARGETS, assert_proved, random  # noqa: E402

F = torch.nn.functional


def close(got: torch.Tensor, exact: torch.Tensor) -> None:
    """`got` is the float64 result to within the rounding of its dtype, and float32's of a sum along its rows."""
    assert got.shape == exact.shape
    eps = torch.finfo(got.dtype).eps
    scale = float(exact.abs().max()) if exact.numel() else 0.0
    torch.testing.assert_close(got.double(), exact, rtol=max(eps, 4e-6), atol=4e-6 * max(1.0, scale), equal_nan=True)


def gradients(function: Callable[..., Any], tensors: tuple[torch.Tensor, ...], dy: torch.Tensor) -> tuple[Any, ...]:
    """Those of all tensors, given that of the result."""
    leaves = tuple(t.detach().requires_grad_() for t in tensors)
    return torch.autograd.grad(function(*leaves), leaves, dy)


def doubled(tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(t.double() for t in tensors)


def rmsnorm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


def layernorm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, weight.shape, weight, bias)


def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.silu(gate) * up


def softmax(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(-1)


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], str]] = {
    "rmsnorm": (kernels.rmsnorm, rmsnorm, "xw"),
    "layernorm": (kernels.layernorm, layernorm, "xww"),
    "silu_mul": (kernels.silu_mul, silu_mul, "xx"),
    "softmax": (kernels.softmax, softmax, "x"),
}
"""The function, PyTorch's, and which arguments are rows and which are weights."""


def inputs(kinds: str, shape: tuple[int, ...], dtype: str, device: str) -> tuple[torch.Tensor, ...]:
    return tuple(
        random(*(shape if kind == "x" else shape[-1:]), dtype=dtype, device=device, seed=seed)
        for seed, kind in enumerate(kinds)
    )


@pytest.mark.product
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(0, 5), (3, 7), (2, 3, 20), (2, 1030)])
@pytest.mark.parametrize("name", CASES)
def test_gradients(device: str, name: str, shape: tuple[int, ...], dtype: str) -> None:
    ours, exact, kinds = CASES[name]
    tensors, dy = inputs(kinds, shape, dtype, device), random(*shape, dtype=dtype, device=device, seed=9)
    if name == "softmax":  # is computed from the result, which is rounded
        y = kernels.softmax(*tensors)
        wanted = (y.double() * (dy.double() - (y.double() * dy.double()).sum(-1, keepdim=True)),)
    else:
        wanted = gradients(exact, doubled(tensors), dy.double())
    for got, right in zip(gradients(ours, tensors, dy), wanted, strict=True):
        assert got.dtype == dy.dtype
        close(got, right)


@pytest.mark.product
@pytest.mark.parametrize("columns", [9000, 17001])
@pytest.mark.parametrize("name", CASES)
def test_long_rows(device: str, name: str, columns: int) -> None:
    ours, exact, kinds = CASES[name]
    tensors, dy = inputs(kinds, (3, columns), "float32", device), random(3, columns, device=device, seed=9)
    for got, right in zip(gradients(ours, tensors, dy), gradients(exact, doubled(tensors), dy.double()), strict=True):
        close(got, right)


@pytest.mark.product
@pytest.mark.parametrize("name", ["rmsnorm", "layernorm"])
def test_more_rows_than_blocks_go_through_at_once(device: str, name: str) -> None:
    """Each block has rows of several rounds, and the last round is not full."""
    ours, exact, kinds = CASES[name]
    tensors, dy = inputs(kinds, (2700, 500), "float32", device), random(2700, 500, device=device, seed=9)
    for got, right in zip(gradients(ours, tensors, dy), gradients(exact, doubled(tensors), dy.double()), strict=True):
        close(got, right)


@pytest.mark.product
@pytest.mark.parametrize("name", CASES)
def test_rows_any_distance_apart_and_gradients_of_any_strides(device: str, name: str) -> None:
    ours, exact, kinds = CASES[name]
    tensors = tuple(t[..., 3:22] for t in inputs(kinds, (5, 40), "float32", device))
    one = torch.ones((), device=device).expand(5, 19)
    turned = random(19, 5, device=device).mT
    for dy in (one, turned):
        for got, right in zip(
            gradients(ours, tensors, dy), gradients(exact, doubled(tensors), dy.double()), strict=True
        ):
            close(got, right)


@pytest.mark.product
@pytest.mark.parametrize("name", CASES)
def test_gradcheck(device: str, name: str) -> None:
    """Directions, by differences of float64 references, beside what the kernels give in float32."""
    ours, exact, kinds = CASES[name]
    tensors = inputs(kinds, (3, 5), "float32", device)
    for place in range(len(tensors)):
        step = 1e-6 * random(*tensors[place].shape, device=device, seed=7).double()
        moved = [
            [t.double() + sign * step if i == place else t.double() for i, t in enumerate(tensors)] for sign in (1, -1)
        ]
        dy = random(3, 5, device=device, seed=9)
        difference = ((exact(*moved[0]) - exact(*moved[1])) * dy.double()).sum() / 2
        slope = (gradients(ours, tensors, dy)[place].double() * step).sum()
        torch.testing.assert_close(slope, difference, rtol=1e-5, atol=1e-11)


@pytest.mark.parametrize("columns", [16400, 17001])
def test_softmax_of_rows_in_shared_memory(device: str, columns: int) -> None:
    """Those that are aligned arrive by asynchronous copies, others through registers."""
    dy, y = (random(2, columns, dtype="bfloat16", device=device, seed=i) for i in range(2))
    wide, exact = dy.double(), y.double()
    close(kernels.softmax_backward(dy, y), exact * (wide - (wide * exact).sum(-1, keepdim=True)))


def test_log_softmax(device: str) -> None:
    for shape in ((3, 7), (2, 17000)):
        x, dy = random(*shape, device=device), random(*shape, device=device, seed=1)
        (wanted,) = gradients(lambda x: x.log_softmax(-1), (x.double(),), dy.double())
        close(kernels.log_softmax_backward(dy, x.log_softmax(-1)), wanted)


@pytest.mark.product
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("shape", [(0, 5), (4, 7), (3, 1030), (2, 6200)])
def test_cross_entropy(device: str, shape: tuple[int, int], index: torch.dtype) -> None:
    logits, dy = random(*shape, device=device), random(shape[0], device=device, seed=1)
    target = (torch.arange(shape[0], device=device) * 7919 % shape[1]).to(index)
    target[1:2] = -100
    got = gradients(lambda x: kernels.cross_entropy(x, target), (logits,), dy)
    wanted = gradients(lambda x: F.cross_entropy(x, target.long(), reduction="none"), (logits.double(),), dy.double())
    close(got[0], wanted[0])


def test_cross_entropy_with_a_gradient_of_the_levels(device: str) -> None:
    """As of a loss that keeps the levels small; where a target is no column, the gradient is NaN."""
    logits, target = random(4, 9, device=device), torch.tensor([8, -100, 0, 9], device=device)

    def ours(x: torch.Tensor) -> torch.Tensor:
        loss, level = losses_and_levels(x, target)
        return loss + level.square()

    def exact(x: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, target[:3], reduction="none") + x.logsumexp(-1).square()

    (got,) = gradients(ours, (logits,), torch.ones(4, device=device))
    (wanted,) = gradients(exact, (logits[:3].double(),), torch.ones(3, device=device))
    close(got[:3], wanted)
    assert bool(got[3].isnan().all())
    (alone,) = gradients(lambda x: losses_and_levels(x, target)[1], (logits,), torch.ones(4, device=device))
    close(alone[:3], logits[:3].double().softmax(-1))


def test_results_are_the_same_in_each_run(device: str) -> None:
    x, weight, dy = random(700, 96, device=device), random(96, device=device), random(700, 96, device=device, seed=1)
    first, again = kernels.rmsnorm_backward(dy, x, weight), kernels.rmsnorm_backward(dy, x, weight)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_wrong_arguments_are_refused() -> None:
    x = torch.zeros(3, 4)
    with pytest.raises(LaunchError, match="`dy` has the shape"):
        kernels.rmsnorm_backward(torch.zeros(3, 5), x, torch.zeros(4))
    with pytest.raises(LaunchError, match="`dy` is a tensor of float16"):
        kernels.layernorm_backward(x.half(), x, torch.zeros(4))
    with pytest.raises(LaunchError, match="`level` is a tensor of float16"):
        kernels.cross_entropy_backward(x[:, 0], x, torch.zeros(3, dtype=torch.int64), x[:, 0].half())


@pytest.mark.product
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["rmsnorm", "layernorm"])
def test_norms_are_proved(target: str, name: str) -> None:
    file = f"{name}_backward"
    assert_proved(file, f"{file}_rows", target)
    assert_proved(file, f"{file}_rows", target, DTYPE="float32", ROWS=1, BLOCK=4096, num_warps=8, alignment=4)
    assert_proved(file, f"{file}_long_rows", target, num_warps=8)
    assert_proved(file, f"{file}_columns", target)


@pytest.mark.parametrize("target", TARGETS)
def test_others_are_proved(target: str) -> None:
    assert_proved("shares", "add_shares", target, num_warps=8)
    for log in (False, True):
        assert_proved("softmax_backward", "softmax_backward_rows", target, LOG=log)
        assert_proved("softmax_backward", "softmax_backward_long_rows", target, LOG=log, num_warps=8)
        assert_proved("softmax_backward", "softmax_backward_held_rows", target, LOG=log, BLOCK=1024)
    if target == "sm_90a":
        assert_proved("softmax_backward", "softmax_backward_held_rows", target, CLUSTER=2, BLOCK=1024)
    assert_proved("cross_entropy_backward", "cross_entropy_backward_tiles", target, num_warps=8)
    assert_proved("cross_entropy_backward", "cross_entropy_backward_tiles", target, INDEX="int32", alignment=2)
