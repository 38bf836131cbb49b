"""Rotary embedding and short convolutions: results against float64, gradients, wrong arguments, proofs."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.compile import prove  # noqa: E402
from argus.diagnostic import LaunchError, Verdict  # noqa: E402
from argus.frontend import Options  # noqa: E402
from argus.kernels import causal_conv1d, rotary  # noqa: E402
from argus.kernels.gemm import silu  # noqa: E402
from argus.source import SourceFile  # noqa: E402
from tests.kernels.common import assert_proved, close, random, source_of  # noqa: E402


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """In float64, as complex numbers."""
    x, pairs = x.double(), cos.shape[1]
    some, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    both = some.unflatten(-1, (pairs, 2)) if interleaved else some.unflatten(-1, (2, pairs)).transpose(-1, -2)
    angle = torch.complex(cos.double(), sin.double())[:, None]
    found = torch.view_as_real(torch.view_as_complex(both.contiguous()) * angle)
    found = found if interleaved else found.transpose(-1, -2)
    return torch.cat([found.flatten(-2), rest], -1)


def angles(tokens: int, pairs: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    angle = torch.arange(tokens)[:, None] * 0.1 ** torch.arange(pairs)
    return angle.cos().to(device), angle.sin().to(device)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("shape", "pairs"), [((1, 1, 1, 2), 1), ((2, 5, 3, 20), 7), ((1, 3, 40, 64), 32)])
def test_rotary(device: str, shape: tuple[int, ...], pairs: int, interleaved: bool) -> None:
    x, (cos, sin) = random(*shape, device=device), angles(shape[1], pairs, device)
    close(rotary(x, cos, sin, interleaved=interleaved), turned(x, cos, sin, interleaved))


def test_rotary_of_heads_of_a_larger_tensor(device: str) -> None:
    """Queries beside keys and values, in 16 bits."""
    qkv, (cos, sin) = random(2, 6, 9, 16, dtype="bfloat16", device=device), angles(6, 8, device)
    close(rotary(qkv[:, :, 2:5], cos, sin), turned(qkv[:, :, 2:5], cos, sin, False))


@pytest.mark.parametrize("interleaved", [False, True])
def test_gradient_of_rotary(device: str, interleaved: bool) -> None:
    x, (cos, sin) = random(1, 3, 2, 10, device=device), angles(3, 4, device)
    found = []
    for call in (rotary, lambda x, *way, interleaved: turned(x, *way, interleaved).float()):
        leaf = x.clone().requires_grad_()
        result = call(leaf, cos, sin, interleaved=interleaved)
        found.append(torch.autograd.grad((result * result * result).sum(), leaf)[0])
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)
    with pytest.raises(LaunchError, match="with respect to its angles"):
        rotary(x, cos.requires_grad_(), sin).sum().backward()


def convolution(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, act: bool) -> torch.Tensor:
    """In float64, by PyTorch."""
    taps = weight.shape[1]
    padded = torch.nn.functional.pad(x.double().mT, (taps - 1, 0))
    found = torch.nn.functional.conv1d(
        padded, weight.double()[:, None], None if bias is None else bias.double(), groups=x.shape[2]
    ).mT
    return torch.nn.functional.silu(found) if act else found


@pytest.mark.parametrize(("shape", "taps"), [((1, 1, 1), 4), ((2, 37, 20), 4), ((1, 5, 300), 3), ((3, 2, 8), 8)])
def test_convolutions(device: str, shape: tuple[int, ...], taps: int) -> None:
    x, weight = random(*shape, device=device), random(shape[2], taps, device=device, seed=1)
    bias = random(shape[2], device=device, seed=2)
    close(causal_conv1d(x, weight, bias, activation="silu"), convolution(x, weight, bias, True))
    close(causal_conv1d(x, weight), convolution(x, weight, None, False))


def test_wrong_arguments_are_refused() -> None:
    x, (cos, sin) = random(1, 3, 2, 10), angles(3, 4, "cpu")
    wrong: list[tuple[Any, str]] = [
        (lambda: rotary(x, cos[:2], sin), "`cos` has the shape"),
        (lambda: rotary(x, cos, sin[:, :2]), "`sin` has the shape"),
        (lambda: rotary(x, *angles(3, 6, "cpu")), "angles of 6 pairs"),
        (lambda: rotary(x[0], cos, sin), "`x` has 3 dimensions"),
        (lambda: causal_conv1d(x[0], random(9, 4)), "`weight` has the shape"),
        (lambda: causal_conv1d(x[0], random(10, 9)), "`weight` has 9 taps"),
        (lambda: causal_conv1d(x[0], random(10, 4), random(9)), "`bias` has the shape"),
        (lambda: causal_conv1d(x[0], random(10, 4), activation="relu"), "`activation` is"),
    ]
    for call, message in wrong:
        with pytest.raises(LaunchError, match=message):
            call()


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx942"])
def test_proved(target: str) -> None:
    assert_proved("rotary", "rotated", target)
    assert_proved("rotary", "rotated", target, BESIDE=True, R=40)
    assert_proved("conv1d", "convolved", target, ACTIVATION=silu)
    assert_proved("conv1d", "convolved", target, bias=None, W=3, alignment=2)


@pytest.mark.parametrize(
    ("file", "kernel", "old", "new"),
    [
        ("rotary", "rotated", "(x1 * c + x0 * s)", "(x1 * c - x0 * s)"),
        ("rotary", "rotated", "rest = d0 + i", "rest = d0 + i + 1"),
        ("conv1d", "convolved", "x[b, t + w - (W - 1), d], mask=live", "x[b, t + w - W, d], mask=live & (t + w >= W)"),
    ],
)
def test_wrong_twins_are_refuted(file: str, kernel: str, old: str, new: str) -> None:
    """A wrong sign, features that are moved, a filter that is late by one."""
    whole = source_of(file)
    assert whole.text.count(old) == 1
    report = prove(SourceFile(whole.path, whole.text.replace(old, new)), kernel, Options("sm_90a", 4))
    assert report.verdict is Verdict.REFUTED
