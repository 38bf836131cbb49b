"""Compute a logarithm of softmax only where it is read, as in cross entropy.

    gather(log_softmax(x, 1), 1, i)  →  gather(x, 1, i) - max(x, 1) - log(sum(exp(x - max(x, 1)), 1))

The values are the same, and the rows of the softmax are not written to memory.
"""

from __future__ import annotations

from typing import Any

import torch

from argus.graph import capture
from argus.graph.capture import meta_of
from argus.graph.row import normal

aten = torch.ops.aten


def pick_before_softmax(gm: torch.fx.GraphModule) -> None:
    """Rewrite logarithms of a float32 softmax if only gathered elements of it are used."""
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and capture.name(node) == "_log_softmax.default" and _is_picked(node):
            _rewrite(gm.graph, node)
    gm.graph.eliminate_dead_code()


def _is_picked(node: Any) -> bool:
    """Return True if all users gather elements along the dimension of the softmax, from each row."""
    x = meta_of((node.args[0], 0))
    if x is None or x.dtype != "float32" or not node.users:
        return False
    along = normal(node.args[1], len(x.shape))
    return all(_picks(user, node, along, x.shape) for user in node.users)


def _picks(user: Any, node: Any, along: int, shape: tuple[Any, ...]) -> bool:
    if user.op != "call_function" or capture.name(user) != "gather.default" or user.args[0] is not node:
        return False
    places = meta_of((user.args[2], 0))
    sizes = enumerate(zip(places.shape if places is not None else (), shape, strict=places is not None))
    rows = places is not None and all(a == b for d, (a, b) in sizes if d != along)
    return bool(rows and normal(user.args[1], len(shape)) == along)


def _rewrite(graph: Any, node: Any) -> None:
    x, dim = node.args[:2]

    def add(op: Any, *arguments: Any) -> Any:
        made = graph.call_function(op, arguments)
        made.meta["val"] = op(*(a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in arguments))
        return made

    with graph.inserting_before(node):
        top = add(aten.amax.default, x, [dim], True)
        powers = add(aten.exp.default, add(aten.sub.Tensor, x, top))
        logarithm = add(aten.log.default, add(aten.sum.dim_IntList, powers, [dim], True))
    for user in list(node.users):
        with graph.inserting_before(user):
            picked = add(aten.gather.default, x, dim, user.args[2])
            value = add(aten.sub.Tensor, add(aten.sub.Tensor, picked, top), logarithm)
        user.replace_all_uses_with(value)
