"""Tensors of one number that a model's code contains as constants, as in `torch.min(x, torch.tensor(0.5))`."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from argus.graph import capture

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def fold_numbers(gm: torch.fx.GraphModule) -> None:
    """Replace each float constant of one number by `full`, so that kernels contain the number, whatever its device."""
    for node in list(gm.graph.nodes):
        held = _held(gm, node)
        if held is None or held.dim() or held.dtype not in _FLOATS:
            continue
        with unset_fake_temporarily():
            value = held.item()
        with gm.graph.inserting_before(node):
            written = {"dtype": held.dtype, "device": node.meta["val"].device}
            number = gm.graph.call_function(torch.ops.aten.full.default, ([], value), written)
        number.meta = dict(node.meta)
        node.replace_all_uses_with(number)
        gm.graph.erase_node(node)


def _held(gm: torch.fx.GraphModule, node: torch.fx.Node) -> torch.Tensor | None:
    """Return the tensor that a node reads from the module's code, or None for other nodes and for tensors without
    contents."""
    if node.op != "call_function" or capture.name(node) != "lift_fresh_copy.default":
        return None
    (source, *_) = node.args
    if not isinstance(source, torch.fx.Node) or source.op != "get_attr":
        return None
    held = getattr(gm, str(source.target), None)
    return held if type(held) is torch.Tensor else None
