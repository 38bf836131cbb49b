"""Recognise attention on 16-bit floats that a graph computes in float32, as PyTorch's own decomposition does.

    (float(q) * s) @ (float(k) * s).T  →  (float(q) @ float(k).T) * (s * s)
    weights @ float(v)                 →  float(half(weights)) @ float(v)

Products of 16-bit floats are exact in float32, so kernels multiply the 16-bit floats themselves (`capture.widened`).
Weights are rounded to 16 bits before the second product, as PyTorch's fused attention does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from argus.graph import capture
from argus.graph.capture import SHORT, inputs, is_view, meta_of, value_of

aten = torch.ops.aten

_PRODUCTS = ("mm.default", "bmm.default")
_SCALES = ("mul.Scalar", "mul.Tensor")


def narrow_attention(gm: torch.fx.GraphModule) -> None:
    """Rewrite the products of attention so that their factors are 16-bit floats."""
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and capture.name(node) in _PRODUCTS:
            hoisted = _with_scale_behind(gm.graph, node)
            if not capture.widened(hoisted) and _dtype(hoisted) == "float32":
                _round_weights(gm.graph, hoisted)
    gm.graph.eliminate_dead_code()


def _with_scale_behind(graph: torch.fx.Graph, node: Any) -> Any:
    """Multiply by numbers after a product instead of before it, if its factors are then 16-bit floats. Return the
    product."""
    found = [_unscaled(graph, node, factor) for factor in node.args]
    factors, scales = [factor for factor, _ in found], [scale for _, scale in found]
    if scales == [1.0, 1.0]:
        return node
    with graph.inserting_before(node):
        product = graph.call_function(node.target, tuple(factors))
        product.meta = dict(node.meta)
        if not capture.widened(product):
            graph.erase_node(product)
            return node
        scaled = graph.call_function(aten.mul.Scalar, (product, scales[0] * scales[1]))
        scaled.meta = dict(node.meta)
    node.replace_all_uses_with(scaled)
    return product


def _unscaled(graph: torch.fx.Graph, before: torch.fx.Node, factor: Any) -> tuple[Any, float]:
    """Return a factor without the number by which it is multiplied, behind views and copies, and that number, or 1."""
    views, node = [], factor
    while node.op == "call_function" and (is_view(node) or capture.name(node) == "clone.default"):
        views.append(node)
        node = node.args[0]
    if capture.name(node) not in _SCALES or not isinstance(node.args[1], (int, float)):
        return factor, 1.0
    made, scale = node.args[0], float(node.args[1])
    for view in reversed(views):
        with graph.inserting_before(before):
            copied = graph.call_function(view.target, (made, *view.args[1:]), view.kwargs)
        try:
            copied.meta["val"] = view.target(made.meta["val"], *view.args[1:], **view.kwargs)
        except (RuntimeError, ValueError):  # The strides differ, so there is no such view.
            return factor, 1.0
        made = copied
    return made, scale


def _round_weights(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Round the weights of attention to the dtype of the values that they weight, if the product is rounded to that
    dtype anyway."""
    weights, weighed = node.args
    short = _narrow(weighed)
    softmax = any(capture.name(source) == "_softmax.default" for source in _behind(weights))
    if not short or not softmax or {_rounded(user) for user in node.users} != {short}:
        return
    with graph.inserting_before(node):
        half = _copied(graph, weights, getattr(torch, short))
        node.args = (_copied(graph, half, torch.float32), weighed)


def _copied(graph: torch.fx.Graph, node: Any, dtype: torch.dtype) -> torch.fx.Node:
    made = graph.call_function(aten._to_copy.default, (node,), {"dtype": dtype})
    made.meta["val"] = aten._to_copy.default(node.meta["val"], dtype=dtype)
    return made


def _narrow(node: Any) -> str:
    """Return the dtype of 16-bit floats that can represent all values of a factor, or ""."""
    while node.op == "call_function" and capture.passes(node):
        node = node.args[0]
    found = _dtype(node)
    return found if found in SHORT else ""


def _rounded(node: Any) -> str:
    """Return the dtype to which a product's user rounds it, behind views, or ""."""
    while node.op == "call_function" and is_view(node) and len(node.users) == 1:
        (node,) = node.users
    return _dtype(node) if capture.name(node) == "_to_copy.default" else ""


def _behind(node: Any) -> Iterator[Any]:
    """Yield the operators that compute a value, through views and through choices between the value and constants."""
    while node.op == "call_function":
        yield node
        if capture.passes(node):
            node = value_of(node.args[0])[0]
        elif capture.name(node) == "where.self":
            read = [value[0] for value in inputs(node)[1:] if not capture.name(value[0]).startswith("full")]
            if len(read) != 1:
                return
            node = read[0]
        else:
            return


def _dtype(node: Any) -> str:
    meta = meta_of((node, 0))
    return meta.dtype if meta is not None else ""
