"""Join what hyperbolic tangents of softplus consist of, as in Mish, to one operator (`argus.graph.smooth`)."""

from __future__ import annotations

from typing import Any

import torch

from argus.graph import capture
from argus.graph.capture import meta_of
from argus.graph.smooth import EXACT, tanh_softplus


def shorten_softplus(gm: torch.fx.GraphModule) -> None:
    """Join what float32 hyperbolic tangents of softplus consist of. From a threshold on, softplus is the number itself.
    """
    for node in list(gm.graph.nodes):
        x = _argument(node)
        if x is None:
            continue
        with gm.graph.inserting_before(node):
            kept = tanh_softplus(x.meta["val"])  # makes the operator known
            made = gm.graph.call_function(torch.ops.argus_graph.tanh_softplus.default, (x,))
            made.meta["val"] = kept
        node.replace_all_uses_with(made)
    gm.graph.eliminate_dead_code()


def _argument(node: Any) -> Any:
    """Return x for `tanh(softplus(x))`, or None."""
    softplus = _operand(node, "tanh.default", 0)
    condition, x = _operand(softplus, "where.self", 0), _operand(softplus, "where.self", 1)
    exponential = _operand(_operand(softplus, "where.self", 2), "log1p.default", 0)
    if x is None or _operand(exponential, "exp.default", 0) is not x or _operand(condition, "gt.Scalar", 0) is not x:
        return None
    meta = meta_of((x, 0))
    return x if meta is not None and meta.dtype == "float32" and condition.args[1] >= EXACT else None


def _operand(node: Any, name: str, place: int) -> Any:
    """Return what an operator called `name` reads, or None for other operators."""
    if not isinstance(node, torch.fx.Node) or node.op != "call_function" or capture.name(node) != name:
        return None
    return node.args[place]
