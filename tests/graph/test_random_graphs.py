"""Graphs drawn at random from elementwise operators and reductions, beside eager, on several distributions."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.graph.compiled import compiled  # noqa: E402

UNARY = (torch.tanh, torch.sigmoid, torch.relu, torch.abs, torch.neg, torch.sin, torch.erf, torch.nn.functional.silu)
BINARY = (torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum)
REDUCTIONS = ("sum", "mean", "amax", "amin", "softmax", "var")
DISTRIBUTIONS = (1.0, 3.0, 0.01, -1.0)


class Drawn:
    """A function of tensors, drawn at random: a few steps, each on what came before. Calling it runs it."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        self.shape = tuple(random.choice((2, 3, 5, 8)) for _ in range(random.randint(2, 3)))
        self.steps: list[tuple[Any, ...]] = []
        for place in range(random.randint(3, 7)):
            at = [random.randrange(place + 2) for _ in range(2)]
            kind = random.choice(("unary", "binary", "binary", "reduction", "view"))
            match kind:
                case "unary":
                    self.steps.append((kind, random.choice(UNARY), at[0]))
                case "binary":
                    self.steps.append((kind, random.choice(BINARY), *at))
                case "reduction":
                    self.steps.append((kind, random.choice(REDUCTIONS), at[0], random.choice((-1, -1, 0))))
                case _:
                    self.steps.append((kind, random.random() * 2 - 1, at[0]))

    def __call__(self, x: Any, y: Any) -> Any:
        values = [x, y]
        for step in self.steps:
            match step:
                case ("unary", function, at):
                    values.append(function(values[at]))
                case ("binary", function, a, b):
                    values.append(function(values[a], values[b]))
                case ("reduction", "softmax", at, dim):
                    values.append(torch.softmax(values[at], dim))
                case ("reduction", "var", at, dim):
                    values.append(values[at] - values[at].var(dim, keepdim=True))
                case ("reduction", name, at, dim):
                    values.append(values[at] + getattr(values[at], name)(dim, keepdim=True))
                case (_, number, at):
                    values.append(values[at].reshape(-1, self.shape[-1]).mul(number).reshape(self.shape))
        return values[-1], values[-2]


@pytest.mark.parametrize("seed", range(8))
def test_drawn_graphs_are_those_of_eager(seed: int) -> None:
    model = Drawn(seed)
    call, backend = compiled(model, dynamic=False)
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(model.shape, generator=generator) for _ in range(2))
    with torch.no_grad():
        for scale in DISTRIBUTIONS:
            for found, wanted in zip(call(x * scale, y * scale), model(x * scale, y * scale), strict=True):
                torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    for graph in backend.graphs:
        assert all(e.verdict == "proved" for e in graph.entries), [(e.operators, e.reason) for e in graph.entries]


def test_the_draws_differ() -> None:
    kinds = {tuple(step[:2]) for seed in range(8) for step in Drawn(seed).steps}
    assert len(kinds) > 15
