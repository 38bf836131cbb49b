"""Recurrent layers in one launch: results against the recurrence in float64, proofs, wrong twins."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.compile import prove  # noqa: E402
from argus.diagnostic import Verdict  # noqa: E402
from argus.frontend import Options  # noqa: E402
from argus.kernels.recurrent import gru_layer, lstm_layer  # noqa: E402
from argus.source import SourceFile  # noqa: E402
from tests.graph.test_recurrent import gru_by_steps, lstm_by_steps  # noqa: E402
from tests.kernels.common import assert_proved, random, source_of  # noqa: E402

SMALL = {"PART": 32, "CLUSTER": 2, "SHIFT": 4}


def operands(gates: int, device: str, steps: int = 3, batch: int = 3, directions: int = 2) -> list[torch.Tensor]:
    shapes = [(directions, steps, batch, gates * 128), (directions, gates * 128, 128)]
    shapes += [(directions, batch, 128)] * 2
    return [random(*shape, device=device, seed=i) * (0.1 if i == 1 else 1.0) for i, shape in enumerate(shapes)]


def assert_near(found: Any, exact: Any) -> None:
    """Products are of TF32."""
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=2e-3)


@pytest.mark.product
def test_lstm(device: str) -> None:
    given = operands(4, device)
    for found, exact in zip(lstm_layer(*given), lstm_by_steps(*(x.double() for x in given)), strict=True):
        assert_near(found, exact)


@pytest.mark.product
def test_gru(device: str) -> None:
    given, weights, _, state = operands(3, device)
    bias = random(2, 128, device=device)
    exact = gru_by_steps(*(x.double() for x in (given, weights, bias, state)))
    assert_near(gru_layer(given, weights, bias, state), exact)


@pytest.mark.parametrize("name", ["lstm_steps", "gru_steps"])
def test_proved(name: str) -> None:
    assert_proved("recurrent_steps", name, "sm_90a", **SMALL)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("lstm_steps", "sigmoid(f) * al.load(kept)", "sigmoid(i) * al.load(kept)"),
        ("gru_steps", "+ update * al.load(kept)", "+ update * new"),
    ],
)
def test_wrong_twins_are_not_proved(name: str, old: str, new: str) -> None:
    whole = source_of("recurrent_steps")
    assert old in whole.text
    twin = SourceFile(whole.path, whole.text.replace(old, new))
    assert prove(twin, name, Options("sm_90a", 4, SMALL)).verdict is not Verdict.PROVED
