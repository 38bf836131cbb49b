"""Recurrent layers on PyTorch tensors: all steps of one layer in one launch of `argus.kernels.recurrent_steps`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.kernels.recurrent_steps import gru_steps, lstm_steps
from argus.kernels.rows import dtype_of, same_rank, same_shape
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch

WIDTHS = (128, 256)
"""Numbers of features whose weights a cluster keeps on chip."""

_PART, _ROWS = 64, 16  # features and sequences of a block


def lstm_layer(
    given: torch.Tensor, weights: torch.Tensor, first: torch.Tensor, memory: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the hidden states and the cells of an LSTM after each step, both `[D, T, B, H]`.

    `given` is `[D, T, B, 4 H]`: the part of the gates that the inputs give, biases included, in PyTorch's order. The
    `weights` of the hidden state are `[D, 4 H, H]`, the `first` hidden state and `memory` are `[D, B, H]`, all float32.
    Products are of TF32. H is one of `WIDTHS`. No gradient. Raises LaunchError.
    """
    hidden, cell = _lstm((given, weights, first, memory))
    return hidden, cell


def gru_layer(given: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    """Return the hidden states of a GRU after each step, `[D, T, B, H]`.

    `given` is `[D, T, B, 3 H]`: the part of the gates that the inputs give, in PyTorch's order, with the biases of the
    hidden state for the first two. `bias`, `[D, H]`, is the bias of the hidden state in the last gate. The `weights`
    of the hidden state are `[D, 3 H, H]`, the `first` hidden state is `[D, B, H]`, all float32. Products are of TF32. H
    is one of `WIDTHS`. No gradient. Raises LaunchError.
    """
    result: torch.Tensor = _gru((given, weights, bias, first))
    return result


def _lstm_work(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...]) -> Work:
    given, weights, first, memory = (x.contiguous() for x in tensors)
    shape = _checked(4, given, weights, first)
    same_shape("memory", memory, tuple(first.shape))
    hidden, cell, gates = given.new_empty(shape), given.new_empty(shape), given.new_empty(given.shape)
    call = Call(lstm_steps, (given, weights, first, memory, gates, cell, hidden), _constants(shape[3]))
    return Work((call,) if hidden.numel() else (), (hidden, cell))


def _gru_work(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...]) -> Work:
    given, weights, bias, first = (x.contiguous() for x in tensors)
    shape = _checked(3, given, weights, first)
    same_shape("bias", bias, (shape[0], shape[3]))
    hidden, gates = given.new_empty(shape), given.new_empty(given.shape)
    call = Call(gru_steps, (given, weights, bias, first, gates, hidden), _constants(shape[3]))
    return Work((call,) if hidden.numel() else (), (hidden,))


def _constants(width: int) -> dict[str, int]:
    return {"PART": _PART, "CLUSTER": width // _PART, "ROWS": _ROWS, "SHIFT": width.bit_length() - 3}


def _checked(gates: int, given: torch.Tensor, weights: torch.Tensor, first: torch.Tensor) -> tuple[int, int, int, int]:
    """Return the shape of the hidden states. Raises LaunchError."""
    same_rank("given", given, 4)
    for name, x in (("given", given), ("weights", weights), ("first", first)):
        dtype_of(name, x, ("float32",))
    directions, steps, batch, width = given.shape
    features = width // gates
    if features not in WIDTHS:
        what = f"a layer has {features} features"
        raise LaunchError.of("shape-mismatch", what, f"this kernel takes one of {WIDTHS}")
    same_shape("weights", weights, (directions, gates * features, features))
    same_shape("first", first, (directions, batch, features))
    return directions, steps, batch, features


def _lstm_fake(
    given: torch.Tensor, weights: torch.Tensor, first: torch.Tensor, memory: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    shape = _checked(4, given, weights, first)
    same_shape("memory", memory, tuple(first.shape))
    return given.new_empty(shape), given.new_empty(shape)


def _gru_fake(given: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    shape = _checked(3, given, weights, first)
    same_shape("bias", bias, (shape[0], shape[3]))
    return given.new_empty(shape)


_lstm = Function(
    _lstm_work,
    Operator("lstm_layer(Tensor given, Tensor weights, Tensor first, Tensor memory) -> (Tensor, Tensor)", _lstm_fake),
)
_gru = Function(
    _gru_work, Operator("gru_layer(Tensor given, Tensor weights, Tensor bias, Tensor first) -> Tensor", _gru_fake)
)
