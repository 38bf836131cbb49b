"""Join borders of zeros: what gets a border, and then another one, gets both at once."""

from __future__ import annotations

from typing import Any

import torch

from argus.graph import capture

aten = torch.ops.aten


def join_borders(gm: torch.fx.GraphModule) -> None:
    """Rewrite borders of zeros around borders of zeros that nothing else reads."""
    for node in list(gm.graph.nodes):
        inner = node.args[0] if _is_border(node) else None
        if inner is None or not _is_border(inner) or len(inner.users) > 1:
            continue
        both, given = list(node.args[1]), list(inner.args[1])
        both += [0] * (len(given) - len(both))
        given += [0] * (len(both) - len(given))
        with gm.graph.inserting_before(node):
            pad = [a + b for a, b in zip(both, given, strict=True)]
            made = gm.graph.call_function(aten.constant_pad_nd.default, (inner.args[0], pad))
            made.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(made)
    gm.graph.eliminate_dead_code()


def _is_border(node: Any) -> bool:
    """Return True for a border of zeros, which cuts nothing off."""
    if not isinstance(node, torch.fx.Node) or capture.name(node) != "constant_pad_nd.default":
        return False
    pads, value = capture.given(node)[1:3]
    return value == 0 and all(isinstance(n, int) and n >= 0 for n in pads)
