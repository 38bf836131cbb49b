"""Rewrite scans for kernels that read and write whole rows in their order.

    cumsum(x[:, :n], 1)              →  cumsum(x, 1)[:, :n]
    flip(cumsum(flip(x, 1), 1), 1)   →  a sum of all elements from each one on

Whole rows begin and end at multiples of a vector more often than parts of them do.
"""

from __future__ import annotations

from typing import Any

import torch

from argus.graph import capture
from argus.graph.capture import meta_of
from argus.graph.own import operator
from argus.graph.reduced import SCANS
from argus.graph.row import normal

_MOST_MORE = 1.25
"""The largest ratio of the row's length to that of the scanned part."""


def scan_whole_rows(gm: torch.fx.GraphModule) -> None:
    """Scan whole rows instead of their first elements, if these are most of the row."""
    for node in list(gm.graph.nodes):
        if node.op != "call_function" or capture.name(node) not in SCANS or not _is_prefix(node):
            continue
        part = node.args[0]
        with gm.graph.inserting_before(node):
            scanned = gm.graph.call_function(node.target, (part.args[0], *node.args[1:]), node.kwargs)
            scanned.meta["val"] = node.target(part.args[0].meta["val"], *node.args[1:], **node.kwargs)
            prefix = gm.graph.call_function(part.target, (scanned, *part.args[1:]), part.kwargs)
            prefix.meta["val"] = part.target(scanned.meta["val"], *part.args[1:], **part.kwargs)
        node.replace_all_uses_with(prefix)
        gm.graph.erase_node(node)
    gm.graph.eliminate_dead_code()


def cumsum_backwards(x: Any, dim: int) -> Any:
    """Return the sums of all elements from each one on along a dimension."""
    return operator("cumsum_backwards(Tensor x, int dim) -> Tensor", _from_each_on, _like)(x, dim)


def _from_each_on(x: Any, dim: int) -> Any:
    return x.flip([dim]).cumsum(dim).flip([dim])


def _like(x: Any, dim: int) -> Any:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def scan_from_the_end(gm: torch.fx.GraphModule) -> None:
    """Scan from the last element on, instead of turning a row around before and after a scan."""
    for node in list(gm.graph.nodes):
        scan = _turned(node)
        if getattr(scan, "op", "") != "call_function" or capture.name(scan) != "cumsum.default" or len(scan.users) > 1:
            continue
        first = _turned(scan.args[0])
        if first is None or not first.meta["val"].is_floating_point() or scan.kwargs.get("dtype"):
            continue
        rank = first.meta["val"].dim()
        along = normal(scan.args[1], rank)
        if {normal(d, rank) for n in (node, scan.args[0]) for d in n.args[1]} != {along}:
            continue
        known = cumsum_backwards(first.meta["val"], along)  # makes the operator known
        with gm.graph.inserting_before(node):
            made = gm.graph.call_function(torch.ops.argus_graph.cumsum_backwards.default, (first, along))
            made.meta["val"] = known
        node.replace_all_uses_with(made)
    gm.graph.eliminate_dead_code()


def _turned(node: Any) -> Any:
    """Return what a node turns around, or None if it is something else."""
    return node.args[0] if getattr(node, "op", "") == "call_function" and capture.name(node) == "flip.default" else None


def _is_prefix(node: Any) -> bool:
    """Return True for a scan along a dimension in which its argument is most of another tensor, from the front.

    A scan that the graph returns is left unchanged, because its strides would be those of whole rows.
    """
    part = node.args[0]
    if part.op != "call_function" or capture.name(part) != "slice.Tensor":
        return False
    whole, made = meta_of((part.args[0], 0)), meta_of((part, 0))
    _, dim, start, _, step = (*capture.given(part), None, None, None, None)[:5]
    if whole is None or made is None or whole.symbolic or start not in (None, 0) or step not in (None, 1):
        return False
    along = normal(dim or 0, len(whole.shape))
    returned = any(user.op == "output" for user in node.users)
    same = along == normal(node.args[1], len(whole.shape)) and not node.kwargs.get("dtype")
    return bool(same and not returned and whole.shape[along] <= _MOST_MORE * made.shape[along])
