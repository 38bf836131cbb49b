"""Experts' results for tokens that are routed already, summed up by the tokens' weights, and their gradients.

The host reads no number from the device. The device itself counts the rows of each expert, places them and cuts them
into tiles (`argus.kernels.dispatch`); grids depend only on sizes, and the products (`argus.kernels.experts`) load the
numbers that they need. A mixture is therefore a fixed list of launches, which a CUDA graph can record, and its results
have the same bits in each run. If gradients are needed, the rows before the activation are kept for
`argus.kernels.experts_backward`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.ir.types import DType
from argus.kernels import experts
from argus.kernels.expert_products import Products, rows_of
from argus.kernels.experts_backward import activated_rows
from argus.kernels.mixture_backward import gradients
from argus.kernels.rows import dtype_of, matrix, same_rank, same_shape
from argus.kernels.sorting import Order, order_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work
from argus.torch.gradient import attach

if TYPE_CHECKING:
    import torch

ACTIVATIONS = {"swiglu": experts.swiglu, "geglu": experts.geglu, "clamped_swiglu": experts.clamped_swiglu}
_HALVES = ("bfloat16", "float16")


def mixture(
    x: torch.Tensor,
    weights: torch.Tensor,
    chosen: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    *,
    activation: str = "swiglu",
    shared: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return, for each token, the sum over its choices of `weights` times what the `chosen` expert makes of it.

    `x` `[T, H]`, `w1` `[E, 2 I, H]` (an expert's gates and, behind these, what passes them) and `w2` `[E, H, I]` are of
    bfloat16 or float16, all the same; `weights`, float32, and `chosen`, int32, are `[T, k]`, as `router` gives them;
    numbers of experts that do not exist count as the nearest one. `activation` is "swiglu", "geglu" or
    "clamped_swiglu". `shared` `[T, H]`, what experts of all tokens gave, is added. The result is `[T, H]` in x's dtype,
    of float32 sums in one order for the same tokens. Raises LaunchError.
    """
    tensors = (x, weights, chosen, w1, w2) if shared is None else (x, weights, chosen, w1, w2, shared)
    result: torch.Tensor = _mixture(tensors, (), (activation,))
    return result


def _work(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...], activation: str) -> Work:
    dtype = _checked(tensors, activation)
    x, _, chosen, w1, w2 = _given(tensors)
    out = x.new_empty(x.shape)
    if not x.numel():
        return Work((), (out,))
    order = order_of(chosen, len(w1))
    products = Products(order, dtype)
    hidden = x.new_empty(order.pairs, w2.shape[2])
    products.add(x, order.token, w1, hidden, ACTIVATION=ACTIVATIONS[activation])
    _sum_up(products, tensors, order, hidden, out)
    return Work(tuple(products.calls), (out,))


def _work_and_more(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...], activation: str) -> Work:
    """Return the same work; further results are what the backward pass needs: the places of pairs, the tokens of
    places, where experts begin, and the rows before the activation."""
    dtype = _checked(tensors, activation)
    x, _, chosen, w1, w2 = _given(tensors)
    out, order = x.new_empty(x.shape), order_of(chosen, len(w1))
    both = x.new_empty(order.pairs, w1.shape[1])
    results = (out, order.place, order.token, order.offsets, both)
    if not x.numel():
        return Work((), tuple(t.zero_() for t in results))
    products = Products(order, dtype)
    hidden = x.new_empty(order.pairs, w2.shape[2])
    products.add(x, order.token, w1, both)
    way = {"DTYPE": dtype, "ACTIVATION": ACTIVATIONS[activation]}
    products.calls.append(Call(activated_rows, (both.view(order.pairs, 2, -1), hidden), way))
    _sum_up(products, tensors, order, hidden, out)
    return Work(tuple(products.calls), results)


def _sum_up(
    products: Products, tensors: tuple[torch.Tensor, ...], order: Order, hidden: torch.Tensor, out: torch.Tensor
) -> None:
    """Add the second product and the weighted sums."""
    _, weights, _, _, w2 = _given(tensors)
    parts = out.new_empty(order.pairs, out.shape[1])
    products.add(hidden, None, w2, parts)
    products.combine(parts, weights, matrix(tensors[5]) if len(tensors) > 5 else None, out)


def _given(tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Return tokens, their weights and choices, and the weights of experts, as kernels take them."""
    x, weights, chosen, w1, w2 = tensors[:5]
    return matrix(x), weights.contiguous(), chosen.contiguous(), rows_of(w1), rows_of(w2)


def _checked(tensors: tuple[torch.Tensor, ...], activation: str) -> DType:
    """Return the dtype. Raises LaunchError."""
    return checked(tensors[:5], tensors[5:], activation)


def checked(
    tensors: tuple[torch.Tensor, ...], shared: tuple[torch.Tensor, ...], activation: str, stored: str = ""
) -> DType:
    """Return the dtype of a mixture's tokens, of its `weights`, choices and experts. Raises LaunchError.

    `stored`: the dtype of the experts' weights, that of the tokens if it is "".
    """
    x, weights, chosen, w1, w2 = tensors
    for name, t, rank in (("x", x, 2), ("weights", weights, 2), ("w1", w1, 3), ("w2", w2, 3)):
        same_rank(name, t, rank)
    dtype = dtype_of("x", x, _HALVES)
    for name, t in (("w1", w1), ("w2", w2)):
        dtype_of(name, t, (stored or dtype.name,))
    dtype_of("weights", weights, ("float32",))
    dtype_of("chosen", chosen, ("int32",))
    count, wide, hidden = w1.shape
    same_shape("x", x, (len(weights), hidden))
    same_shape("chosen", chosen, tuple(weights.shape))
    same_shape("w2", w2, (count, hidden, wide // 2))
    if wide % 2 or not wide or not hidden or not count or not weights.shape[1]:
        what = f"`w1` has the shape {tuple(w1.shape)}, and its rows are gates and, behind these, as many others"
        raise LaunchError.of("shape-mismatch", what, "pass [experts, 2 * width, hidden]")
    if activation not in ACTIVATIONS:
        what = f'`activation` is "{activation}"'
        raise LaunchError.of("argument-type", what, f"use one of {', '.join(ACTIVATIONS)}")
    for t in shared:
        same_shape("shared", t, tuple(x.shape))
        dtype_of("shared", t, (dtype.name,))
    return dtype


def _fake(*given: Any) -> torch.Tensor:
    result: torch.Tensor = given[0].new_empty(given[0].shape)
    tensors, _, (activation,) = _split(*given)
    _checked(tensors, activation)
    return result


def _fake_and_more(*given: Any) -> tuple[torch.Tensor, ...]:
    x, _, chosen, w1 = given[:4]
    order = [chosen.new_empty(size) for size in (chosen.shape, (chosen.numel(),), (len(w1) + 1,))]
    return _fake(*given), *order, x.new_empty(chosen.numel(), w1.shape[1])


def _joined(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...], way: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*tensors[:5], tensors[5] if len(tensors) > 5 else None, *way)


def _split(*given: Any) -> tuple[tuple[Any, ...], tuple[Number, ...], tuple[Any, ...]]:
    return tuple(t for t in given[:6] if t is not None), (), given[6:]


_GIVEN = "Tensor x, Tensor weights, Tensor chosen, Tensor w1, Tensor w2, Tensor? shared=None, str activation='swiglu'"
_mixture = Function(_work, Operator(f"mixture({_GIVEN}) -> Tensor", _fake, join=_joined, split=_split))
_mixture_and_more = Function(
    _work_and_more,
    Operator(
        f"mixture_and_more({_GIVEN}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
        _fake_and_more,
        join=_joined,
        split=_split,
    ),
)


def _forward(*given: Any) -> Any:
    tensors, numbers, way = _split(*given)
    return _mixture_and_more(tensors, numbers, way)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    x, weights, _, w1, w2, _, ctx.activation = inputs
    ctx.save_for_backward(x, w1, w2, weights, *output[1:])


def _backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    of_x, of_weights, of_w1, of_w2 = gradients((gradient, *ctx.saved_tensors), ctx.activation)
    return of_x, of_weights, None, of_w1, of_w2, gradient if ctx.needs_input_grad[5] else None, None


attach(_mixture, _backward, _save, forward=_forward)
