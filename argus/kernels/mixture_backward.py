"""The gradients of a mixture of experts: the launches of `argus.kernels.experts_backward` and of the products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from argus.backend.launch.evaluate import Number
from argus.ir.types import DType
from argus.kernels import experts
from argus.kernels import experts_backward as backward
from argus.kernels.expert_products import Products, rows_of
from argus.kernels.rows import dtype_of, matrix
from argus.kernels.sorting import Order
from argus.runtime.device import target_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch


def gradients(tensors: tuple[torch.Tensor, ...], activation: str) -> tuple[torch.Tensor, ...]:
    """Return the gradients of tokens, their weights and both weights of experts.

    `tensors` are the gradient of the result, `x`, `w1`, `w2` and `weights` as `mixture` takes them, and what it kept.
    """
    found: tuple[torch.Tensor, ...] = _gradients(tensors, (), (activation,))
    return found


def _work_of_gradients(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...], activation: str) -> Work:
    """Return the launches that give the gradients of tokens, their weights, and both weights of experts."""
    gradient, x, w1, w2, weights, place, token, offsets, both = tensors
    gradient, x, w1, w2 = matrix(gradient), matrix(x), rows_of(w1), rows_of(w2)
    weights = weights.contiguous()
    results = x.new_empty(x.shape), weights.new_empty(weights.shape), *(w.new_empty(w.shape) for w in (w1, w2))
    if not x.numel():
        return Work((), tuple(t.zero_() for t in results))
    dtype, order = dtype_of("x", x), Order(place, token, offsets)
    products = Products(order, dtype)
    pulled, hidden = (x.new_empty(order.pairs, w2.shape[2]) for _ in range(2))
    rows, pulls, of_rows = (x.new_empty(order.pairs, x.shape[1]) for _ in range(3))
    of_both, factor = x.new_empty(both.shape), weights.new_empty(order.pairs)
    products.gather(gradient, token, None, pulls)
    products.add(pulls, None, w2, pulled, WEIGHTS="E K N")
    halves = [t.view(order.pairs, 2, -1) for t in (both, of_both)]
    flat = (place.view(-1), weights.view(-1), halves[1], hidden, results[1].view(-1), factor)
    products.calls.append(
        Call(backward.activation_gradients, (halves[0], pulled, *flat), _derivatives(activation, dtype))
    )
    products.add(of_both, None, w1, of_rows, WEIGHTS="E K N")
    products.combine(of_rows, weights, None, results[0])
    products.gather(x, token, factor, rows)
    for left, right, out in ((of_both, rows, results[2]), (pulls, hidden, results[3])):
        way = {"DTYPE": dtype, **_tile_of_weights(target_of(str(x.device)))}
        products.calls.append(Call(backward.weight_gradients, (left, right, offsets, out), way))
    return Work(tuple(products.calls), results)


def _derivatives(activation: str, dtype: DType) -> dict[str, Any]:
    """Return the constants of `activation_gradients`."""
    of_gate, of_up = (getattr(backward, f"{name}_of_{activation}") for name in ("gate", "up"))
    return {"DTYPE": dtype, "ACTIVATION": getattr(experts, activation), "OF_GATE": of_gate, "OF_UP": of_up}


def _tile_of_weights(target: str) -> dict[str, int]:
    """Return the constants of a product that gives the gradients of weights."""
    if target == "cpu":
        return {"ROWS": 32, "COLUMNS": 32, "DEPTH": 32, "STAGES": 1, "PRODUCERS": 0, "num_warps": 4}
    if target == "sm_90a":
        return {"ROWS": 128, "COLUMNS": 128, "DEPTH": 64, "STAGES": 4, "PRODUCERS": 8, "num_warps": 8}
    return {"ROWS": 64, "COLUMNS": 64, "DEPTH": 32, "STAGES": 2, "PRODUCERS": 0, "num_warps": 4}


def _fake_gradients(*given: Any) -> tuple[torch.Tensor, ...]:
    _, x, w1, w2, weights = given[:5]
    return tuple(t.new_empty(t.shape) for t in (x, weights, w1, w2))


_gradients = Function(
    _work_of_gradients,
    Operator(
        "mixture_gradients(Tensor gradient, Tensor x, Tensor w1, Tensor w2, Tensor weights, Tensor place, "
        "Tensor token, Tensor offsets, Tensor both, str activation) -> (Tensor, Tensor, Tensor, Tensor)",
        _fake_gradients,
        join=lambda tensors, _numbers, way: (*tensors, *way),
        split=lambda *given: (given[:9], (), given[9:]),
    ),
)
