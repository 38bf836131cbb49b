"""Recurrent layers of PyTorch become products and the library's recurrent kernels, before a graph is traced to ATen
operators.

    lstm(x, (h, c), parameters)  →  for each layer: given = linear(x, W_ih, b_ih + b_hh); lstm_layer(given, W_hh, h, c)

Layers of one direction are computed in waves: while a layer computes a piece of the steps, the layer before it computes
the next piece, in the same launch.

PyTorch traces `nn.LSTM` and `nn.GRU` only with `torch._dynamo.config.allow_rnn`. Tracing to ATen would unroll their
steps. So a graph with a layer that the library has no kernel for is left to PyTorch as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from argus.graph.calls import is_fast
from argus.kernels.recurrent import WIDTHS, gru_layer, lstm_layer

_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_MOST_ROWS = 512  # sequences of which clusters run at the same time
_LEAST_STEPS = 32  # of a piece


def take_recurrent(gm: torch.fx.GraphModule) -> str:
    """Replace recurrent layers in a graph that Dynamo traced. Return why one of them is left, or ""."""
    for part in gm.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        for node in list(part.graph.nodes):
            kind = next((k for k in _GATES if node.op == "call_function" and node.target == getattr(torch, k)), "")
            if kind and (why := _why_left(kind, node)):
                return why
            if kind:
                node.target = _lstm if kind == "lstm" else _gru
        part.recompile()
    return ""


def _why_left(kind: str, node: Any) -> str:
    """Return why the library has no kernel for a call of recurrent layers, or ""."""
    if kind not in ("lstm", "gru"):
        return f"{kind}: there is no kernel for this cell"
    if len(node.args) != 9 or not isinstance(node.args[2], (list, tuple)):
        return f"{kind}: packed sequences"
    x, _, parameters, biases, layers, dropout, training, both, batch_first = node.args
    values = [p.meta.get("example_value") for p in (x, *parameters)]
    if len(parameters) != layers * (1 + both) * (4 if biases else 2):
        return f"{kind}: projected hidden states"
    if not all(map(_multiplies, values)):
        return f"{kind}: kernels multiply float32 as TF32, on sm_90a"
    if torch.is_grad_enabled() and any(v.requires_grad for v in values):
        return f"{kind}: there is no kernel for gradients"
    if not torch.backends.cudnn.allow_tf32:
        return f"{kind}: kernels multiply in TF32, which PyTorch's flags do not allow"
    if dropout and training:
        return f"{kind}: dropout between layers"
    return _why_large(kind, values, 0 if batch_first else 1)


def _multiplies(x: Any) -> bool:
    """Return True for a tensor whose products the kernels compute in TF32. On a CPU, PyTorch has no flag for that."""
    return x is not None and x.dtype == torch.float32 and x.device.type != "cpu" and is_fast(str(x.device))


def _why_large(kind: str, values: list[Any], batch: int) -> str:
    x, width = values[0], values[2].shape[1]
    if width not in WIDTHS:
        return f"{kind}: weights of {width} features do not fit on chip"
    if x.ndim != 3 or not all(isinstance(size, int) and size for size in x.shape) or x.shape[batch] > _MOST_ROWS:
        return f"{kind}: no sequences, symbolic sizes, or more than {_MOST_ROWS} sequences"
    return ""


def _lstm(x: Any, states: Any, parameters: Any, biases: Any, layers: Any, _drop: Any, _train: Any, both: Any,
          batch_first: Any) -> Any:  # fmt: skip
    """Compute what `torch.lstm` does."""
    found = [_of_lstm(p) for p in _parameters(parameters, biases, layers * (1 + bool(both)))]
    return _computed(_lstm_steps, x, tuple(states), found, bool(both), batch_first)


def _gru(x: Any, state: Any, parameters: Any, biases: Any, layers: Any, _drop: Any, _train: Any, both: Any,
         batch_first: Any) -> Any:  # fmt: skip
    """Compute what `torch.gru` does."""
    found = [_of_gru(p) for p in _parameters(parameters, biases, layers * (1 + bool(both)))]
    return _computed(_gru_steps, x, (state,), found, bool(both), batch_first)


@dataclass(frozen=True)
class _Weights:
    """A layer in one direction: the weights and the bias beside the inputs, the weights of the hidden state, and the
    bias that the reset gate multiplies."""

    inputs: Any
    bias: Any
    hidden: Any
    reset: Any


def _parameters(parameters: Any, biases: Any, count: int) -> list[Any]:
    """Return the parameters of each layer and direction: the weights of the input and of the hidden state, biases."""
    each = 4 if biases else 2
    return [parameters[n * each : (n + 1) * each] for n in range(count)]


def _of_lstm(p: Any) -> _Weights:
    return _Weights(p[0], p[2] + p[3] if len(p) > 2 else p[1].new_zeros(p[1].shape[0]), p[1], None)


def _of_gru(p: Any) -> _Weights:
    """Biases of the hidden state belong to the inputs for the first two gates only."""
    width = p[1].shape[1]
    if len(p) == 2:
        return _Weights(p[0], p[1].new_zeros(3 * width), p[1], p[1].new_zeros(width))
    return _Weights(p[0], p[2] + functional.pad(p[3][: 2 * width], (0, width)), p[1], p[3][2 * width :])


def _lstm_steps(given: Any, weights: Any, _reset: Any, states: Any) -> Any:
    """Return the hidden states after each step, and the states after the last."""
    out, cell = lstm_layer(given, weights, *states)
    return out, (out[:, -1], cell[:, -1])


def _gru_steps(given: Any, weights: Any, reset: Any, states: Any) -> Any:
    """Return the hidden states after each step, and the state after the last."""
    out = gru_layer(given, weights, reset, *states)
    return out, (out[:, -1],)


def _computed(steps: Any, x: Any, states: Any, found: list[_Weights], both: bool, batch_first: bool) -> Any:
    x = x.transpose(0, 1) if batch_first else x
    pieces = _pieces(x.shape[0], len(found))
    if both or pieces == 1:
        out, after = _one_by_one(steps, x, states, found, 1 + both)
    else:
        out, after = _in_waves(steps, x, states, found, pieces)
    return (out.transpose(0, 1) if batch_first else out, *after)


def _one_by_one(steps: Any, x: Any, states: Any, found: list[_Weights], directions: int) -> Any:
    """Compute one layer after another; the directions of a layer side by side."""
    after = []
    for first in range(0, len(found), directions):
        own = found[first : first + directions]
        given = [functional.linear(x.flip(0) if d else x, w.inputs, w.bias) for d, w in enumerate(own)]
        held = [s[first : first + directions] for s in states]
        out, last = steps(_stacked(given), _stacked([w.hidden for w in own]), _resets(own), held)
        x = torch.cat([out[0], out[1].flip(0)], -1) if directions > 1 else out[0]
        after.append(last)
    return x, [torch.cat(each) for each in zip(*after, strict=True)]


def _in_waves(steps: Any, x: Any, states: Any, found: list[_Weights], pieces: int) -> Any:
    """Compute the layers side by side, each one piece of the steps behind the layer before it.

    In wave w, layer l computes piece w - l, from what layer l - 1 computed of it in the wave before."""
    first = functional.linear(x, found[0].inputs, found[0].bias).chunk(pieces)
    hidden, resets = _stacked([w.hidden for w in found]), _resets(found)
    inputs, biases = _stacked([w.inputs for w in found[1:]]), _stacked([w.bias for w in found[1:]])
    current = [[s[layer] for s in states] for layer in range(len(found))]
    out, before, ends = x, range(0), []
    for wave in range(pieces + len(found) - 1):
        active = range(max(0, wave - pieces + 1), min(wave + 1, len(found)))
        given = [first[wave][None]] if wave < pieces else []
        if fed := range(max(active.start, 1), active.stop):  # by the layers before them
            part = out[fed.start - 1 - before.start : fed.stop - 1 - before.start]
            own = slice(fed.start - 1, fed.stop - 1)
            given.append(_given_by(part, inputs[own], biases[own]))
        held = [_stacked([current[layer][n] for layer in active]) for n in range(len(states))]
        own = slice(active.start, active.stop)
        out, last = steps(torch.cat(given), hidden[own], None if resets is None else resets[own], held)
        before = active
        for place, layer in enumerate(active):
            current[layer] = [s[place] for s in last]
        if active.stop == len(found):
            ends.append(out[-1])
    return torch.cat(ends), [torch.stack([c[n] for c in current]) for n in range(len(states))]


def _given_by(before: Any, weights: Any, biases: Any) -> Any:
    """Return what layers add to their gates from the hidden states of the layers before them."""
    found = torch.bmm(before.flatten(1, 2), weights.transpose(1, 2)) + biases[:, None]
    return found.unflatten(1, before.shape[1:3])


def _resets(weights: list[_Weights]) -> Any:
    """Return the biases that reset gates multiply, or None if there are none."""
    return None if weights[0].reset is None else _stacked([w.reset for w in weights])


def _pieces(steps: int, layers: int) -> int:
    """Return into how many pieces of equal length steps are cut for waves: each costs launches."""
    most = min(2 * layers, steps // _LEAST_STEPS) if layers > 1 else 1
    return max((n for n in range(1, most + 1) if steps % n == 0), default=1)


def _stacked(each: list[Any]) -> Any:
    """Return the tensors of the directions, or of the layers of a wave, as one."""
    return torch.stack(each) if len(each) > 1 else each[0][None]
