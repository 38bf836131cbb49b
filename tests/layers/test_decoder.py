"""Decoder layers beside their twins in float64: prefill, a token at a time, training."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.layers import DecoderLayer, PagedCache, Shape, twin  # noqa: E402
from tests.kernels.common import random  # noqa: E402

LLAMA = Shape(hidden=64, inner=96, heads=2, shared_heads=1, features=64)
QWEN3 = Shape(hidden=64, inner=24, heads=2, shared_heads=2, features=64, experts=6, chosen=2, head_norm=True)
SHAPES = {"Llama": LLAMA, "Qwen3 MoE": QWEN3}
EPS = 2**-8  # of bfloat16


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def made(shape: Shape, tokens: int, device: str) -> tuple[Any, ...]:
    """A layer, tokens of two sequences, and the angles of their places."""
    layer = DecoderLayer(shape).bfloat16().to(device)
    angle = torch.arange(tokens)[:, None] * 0.7 ** torch.arange(shape.features // 2)
    x = random(2, tokens, shape.hidden, dtype="bfloat16", device=device)
    return layer, x, angle.cos().to(device), angle.sin().to(device)


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    assert found.shape == exact.shape
    return float((found.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("name", SHAPES)
def test_whole_sequences(device: str, name: str) -> None:
    layer, x, cos, sin = made(SHAPES[name], 9, device)
    with torch.no_grad():
        assert error(layer(x, cos, sin), twin(layer, x.double(), cos, sin)) < 3 * EPS


@pytest.mark.parametrize("name", SHAPES)
def test_a_token_at_a_time(device: str, name: str) -> None:
    """After a prefill, two steps give what whole sequences do; the cache counts its tokens."""
    shape = SHAPES[name]
    layer, x, cos, sin = made(shape, 7, device)
    cache = PagedCache(2, 20, shape.shared_heads, shape.features, page=16, device=device)
    with torch.no_grad():
        exact = twin(layer, x.double(), cos, sin)
        assert error(layer(x[:, :5], cos[:5], sin[:5], cache), exact[:, :5]) < 3 * EPS
        for place in (5, 6):
            angles = (t[place].expand(2, -1).contiguous() for t in (cos, sin))
            found = layer.step(x[:, place : place + 1], *angles, cache)
            assert error(found, exact[:, place : place + 1]) < 3 * EPS
    assert cache.lens.tolist() == [7, 7]


@pytest.mark.parametrize("name", SHAPES)
def test_training(device: str, name: str) -> None:
    layer, x, cos, sin = made(SHAPES[name], 9, device)
    parameters = list(layer.parameters())
    found = torch.autograd.grad((layer(x, cos, sin).float() ** 2).sum(), parameters)
    exact = torch.autograd.grad((twin(layer, x.double(), cos, sin) ** 2).sum(), parameters)
    for got, right in zip(found, exact, strict=True):
        assert error(got, right.double()) < 6 * EPS


@pytest.mark.gpu
@pytest.mark.parametrize("name", SHAPES)
def test_steps_in_a_graph(name: str) -> None:
    """One recorded step serves all lengths."""
    shape = SHAPES[name]
    layer, x, cos, sin = made(shape, 12, "cuda")
    cache = PagedCache(2, 20, shape.shared_heads, shape.features, page=16, device="cuda")
    token, c, s = x[:, :1].clone(), cos[0].expand(2, -1).clone(), sin[0].expand(2, -1).clone()
    with torch.no_grad():
        exact = twin(layer, x.double(), cos, sin)
        layer.step(token, c, s, cache)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = layer.step(token, c, s, cache)
        cache.lens.zero_()
        for place in range(12):
            token.copy_(x[:, place : place + 1])
            c.copy_(cos[place].expand(2, -1))
            s.copy_(sin[place].expand(2, -1))
            graph.replay()
            assert error(found, exact[:, place : place + 1]) < 3 * EPS
