"""Join convolutions with the operator that puts their phases in turns, so that one kernel stores them in place."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch

from argus.graph import capture
from argus.graph.capture import is_view, meta_of
from argus.graph.turned import convolution_in_turns
from argus.graph.turns import ordered


def store_in_turns(gm: torch.fx.GraphModule, is_read_by_boxes: Callable[[Any], bool]) -> None:
    """Join convolutions with what puts their phases in turns.

    `is_read_by_boxes(node)` tells if the kernel of a convolution reads its image by boxes."""
    for node in list(gm.graph.nodes):
        if node.op != "call_function" or capture.name(node) != "in_turns.default":
            continue
        phases, begin, common, first, size = capture.given(node)
        source = _convolution(phases)
        if source is None or {*common} != {1} or any(first) or not is_read_by_boxes(source):
            continue
        shape = meta_of((phases, 0)).shape  # type: ignore[union-attr]
        steps = [shape[1 + ordered(len(size)).index(d)] for d in range(len(size))]
        with gm.graph.inserting_before(node):
            known = source.args[0].meta["val"], source.args[1].meta["val"]
            kept = convolution_in_turns(*known, steps, begin, size)  # makes the operator known
            target = torch.ops.argus_graph.convolution_in_turns.default
            made = gm.graph.call_function(target, (*source.args[:2], steps, list(begin), list(size)))
            made.meta["val"] = kept
        node.replace_all_uses_with(made)
    gm.graph.eliminate_dead_code()


def _convolution(phases: Any) -> Any:
    """Return the convolution whose filters are the phases, or None. Nothing else reads its result."""
    node, shape = phases, meta_of((phases, 0))
    while capture.name(node) == "clone.default" or (node.op == "call_function" and is_view(node)):
        if len(node.users) > 1 or not _keeps_order(node):
            return None
        node = node.args[0]
    if node.op != "call_function" or capture.name(node) != "convolution.default" or len(node.users) > 1:
        return None
    stride, padding, dilation, transposed, _, groups = capture.given(node)[3:9]
    plain = {*stride} == {1} and not any(padding) and {*dilation} == {1} and not transposed and groups == 1
    made, dims = meta_of((node, 0)), len(stride)
    if not plain or node.args[2] is not None or made is None or shape is None or made.symbolic:
        return None
    whole = made.shape == (shape.shape[0], prod(shape.shape[1 : 2 + dims]), *shape.shape[2 + dims :])
    return node if whole else None


def _keeps_order(node: Any) -> bool:
    """Return True for a copy, or for a view that keeps the order of elements."""
    return capture.name(node).partition(".")[0] in ("clone", "view", "_unsafe_view", "reshape", "alias")
