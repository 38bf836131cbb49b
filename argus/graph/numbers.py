"""Tensors of one number that a model's code contains as constants, as in `torch.min(x, torch.tensor(0.5))`."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from argus.graph import capture

_COPIES = ("lift_fresh_copy.default", "clone.default", "_to_copy.default")
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def fold_numbers(gm: torch.fx.GraphModule) -> None:
    """Replace each float constant of one number by `full`, so that kernels contain the number, whatever its device."""
    for node in reversed(list(gm.graph.nodes)):  # copies first: then nothing uses the attribute
        held = _held(gm, node)
        if held is None or held.dim() or held.dtype not in _FLOATS or not node.users:
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
    """Return the tensor that a node takes from the module's code; None for other nodes and tensors without contents.

    Some versions of PyTorch use the attribute itself, others a copy of it."""
    source: object = node
    if node.op == "call_function" and capture.name(node) in _COPIES:
        source = node.args[0]
    if not isinstance(source, torch.fx.Node) or source.op != "get_attr" or "_tensor_constant" not in str(source.target):
        return None
    held = getattr(gm, str(source.target), None)
    return held if type(held) is torch.Tensor else None
