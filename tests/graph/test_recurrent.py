"""Recurrent layers as products and the library's kernels: the same as PyTorch's, and which are left to it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.diagnostic import LaunchError  # noqa: E402
from argus.graph import recurrent  # noqa: E402
from argus.kernels.recurrent import gru_layer, lstm_layer  # noqa: E402


def lstm_by_steps(given: Any, weights: Any, hidden: Any, cell: Any) -> Any:
    """The layer's definition, a step at a time."""
    states, cells = [], []
    for t in range(given.shape[1]):
        i, f, n, o = (given[:, t] + hidden @ weights.transpose(1, 2)).chunk(4, -1)
        cell = f.sigmoid() * cell + i.sigmoid() * n.tanh()
        hidden = o.sigmoid() * cell.tanh()
        states.append(hidden)
        cells.append(cell)
    return torch.stack(states, 1), torch.stack(cells, 1)


def gru_by_steps(given: Any, weights: Any, bias: Any, hidden: Any) -> Any:
    """The layer's definition, a step at a time."""
    states = []
    for t in range(given.shape[1]):
        r, z, n = (hidden @ weights.transpose(1, 2)).chunk(3, -1)
        of_r, of_z, of_n = given[:, t].chunk(3, -1)
        update = (of_z + z).sigmoid()
        new = (of_n + (of_r + r).sigmoid() * (n + bias[:, None])).tanh()
        hidden = (1 - update) * new + update * hidden
        states.append(hidden)
    return torch.stack(states, 1)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize(
    ("both", "bias", "batch_first"),
    [(False, True, False), (False, False, True), (True, True, True), (True, False, False)],
)
def test_layers_are_those_of_pytorch(
    kind: str, both: bool, bias: bool, batch_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recurrent, "lstm_layer", lstm_by_steps)
    monkeypatch.setattr(recurrent, "gru_layer", gru_by_steps)
    torch.manual_seed(0)
    model = getattr(torch.nn, kind)(3, 5, 2, bias=bias, batch_first=batch_first, bidirectional=both).eval()
    x, states = torch.rand(4, 2, 3), [torch.rand(2 * (1 + both), 4 if batch_first else 2, 5) for _ in range(2)]
    given = tuple(states) if kind == "LSTM" else states[0]
    monkeypatch.setattr(recurrent, "_LEAST_STEPS", 1)  # one direction is computed in waves
    call = recurrent._lstm if kind == "LSTM" else recurrent._gru
    with torch.no_grad():
        out, after = model(x, given)
        found = call(x, given, model._flat_weights, bias, 2, 0.0, False, both, batch_first)
    for a, b in zip((out, *after) if kind == "LSTM" else (out, after), found, strict=True):
        torch.testing.assert_close(a, b)


def test_steps_are_cut_into_equal_pieces() -> None:
    assert [recurrent._pieces(*each) for each in ((512, 6), (512, 1), (500, 3), (31, 4), (97, 9))] == [8, 1, 5, 1, 1]


def call_of(kind: str = "lstm", width: int = 128, **changed: Any) -> Any:
    """A graph's call of two layers, as Dynamo traces it."""
    gates = {"lstm": 4, "gru": 3}.get(kind, 1)
    shapes = [(gates * width, 8), (gates * width, width), (gates * width,), (gates * width,)] * 2
    known = {"device": torch.device(changed.pop("device", "cuda")), "requires_grad": changed.pop("recorded", False)}
    known["dtype"] = changed.pop("dtype", torch.float32)
    shapes = [changed.pop("shape", (7, 2, 8)), *shapes]
    x, *values = [SimpleNamespace(shape=shape, ndim=len(shape), **known) for shape in shapes]
    nodes = [SimpleNamespace(meta={"example_value": v}) for v in (x, *values)]
    named = {"biases": True, "layers": 2, "dropout": 0.0, "training": False, "both": False, "batch_first": False}
    named |= {k: v for k, v in changed.items() if k in named}
    return SimpleNamespace(args=(nodes[0], (None, None), nodes[1:], *named.values()))


@pytest.fixture
def tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    monkeypatch.setattr(recurrent, "is_fast", lambda device: True)


@pytest.mark.usefixtures("tf32")
def test_what_is_taken() -> None:
    assert recurrent._why_left("lstm", call_of()) == ""
    assert recurrent._why_left("gru", call_of("gru", 256, dropout=0.5)) == ""
    with torch.no_grad():
        assert recurrent._why_left("lstm", call_of(recorded=True)) == ""


@pytest.mark.usefixtures("tf32")
@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"kind": "rnn_tanh"}, "no kernel for this cell"),
        ({"width": 96}, "do not fit on chip"),
        ({"recorded": True}, "gradients"),
        ({"dropout": 0.5, "training": True}, "dropout"),
        ({"both": True}, "projected"),
        ({"dtype": torch.float16}, "float32"),
        ({"device": "cpu"}, "sm_90a"),
        ({"shape": (7, 513, 8)}, "512 sequences"),
        ({"shape": (7, 8)}, "sequences"),
    ],
)
def test_what_is_left(changed: dict[str, Any], why: str) -> None:
    assert why in recurrent._why_left(changed.get("kind", "lstm"), call_of(**changed))


@pytest.mark.usefixtures("tf32")
def test_packed_sequences_and_exact_numbers_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    call = call_of()
    assert "packed" in recurrent._why_left("lstm", SimpleNamespace(args=(*call.args[:2], call.args[0], *call.args[3:])))
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert "flags do not allow" in recurrent._why_left("lstm", call)


def test_a_graph_with_another_cell_is_left_as_a_whole() -> None:
    graph = torch.fx.Graph()
    graph.output(graph.call_function(torch.rnn_relu, (graph.placeholder("x"),)))
    assert "no kernel for this cell" in recurrent.take_recurrent(torch.fx.GraphModule(torch.nn.Module(), graph))


def test_wrong_tensors_are_refused() -> None:
    given, weights, first = torch.zeros(1, 2, 3, 512), torch.zeros(1, 512, 128), torch.zeros(1, 3, 128)
    with pytest.raises(LaunchError, match="96 features"):
        lstm_layer(torch.zeros(1, 2, 3, 384), weights, first, first)
    with pytest.raises(LaunchError):
        lstm_layer(given, weights[:, :384], first, first)
    with pytest.raises(LaunchError):
        gru_layer(given[..., :384], weights[:, :384], first[0, :2], first)
    assert lstm_layer(given[:, :0], weights, first, first)[0].shape == (1, 0, 3, 128)
