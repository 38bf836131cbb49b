"""Products of rows with the matrices of their groups, as in a mixture of experts, run the library's proved kernel.

    _grouped_mm(x, w, ends)  →  grouped_product(x, w, [0, ends])

This serves the forward pass and the gradient of the rows. The gradient of the matrices, which sums over the rows of
each group, is left to PyTorch.
"""

from __future__ import annotations

from typing import Any

import torch

from argus.graph import capture
from argus.graph.calls import is_fast
from argus.runtime.function import operator_of

aten = torch.ops.aten


def multiply_groups(gm: torch.fx.GraphModule) -> None:
    """Replace products of groups in a graph of ATen operators where the library has a kernel."""
    from argus.kernels.grouped import grouped_function

    offsets: dict[Any, Any] = {}
    for node in list(gm.graph.nodes):
        if capture.name(node) != "_grouped_mm.default" or not _suits(node):
            continue
        x, w, ends = node.args[:3]
        if ends not in offsets:
            with gm.graph.inserting_after(ends):
                offsets[ends] = gm.graph.call_function(aten.constant_pad_nd.default, (ends, [1, 0], 0))
            offsets[ends].meta["val"] = aten.constant_pad_nd.default(ends.meta["val"], [1, 0], 0)
        with gm.graph.inserting_before(node):
            made = gm.graph.call_function(operator_of(grouped_function), (x, w, offsets[ends]))
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        gm.graph.erase_node(node)


def _suits(node: Any) -> bool:
    """Return True for rows and matrices of groups, in float16 or bfloat16, whose rows or columns are contiguous."""
    if len(node.args) < 3 or any(argument is not None for argument in (*node.args[3:], *node.kwargs.values())):
        return False
    values: list[Any] = [a.meta.get("val") for a in (*node.args[:3], node) if isinstance(a, torch.fx.Node)]
    if len(values) < 4 or not all(isinstance(t, torch.Tensor) for t in values):
        return False
    x, w, ends, made = values
    if (x.ndim, w.ndim) != (2, 3):
        return False
    if not all(isinstance(n, int) for t in (x, w, made) for n in (*t.shape, *t.stride())) or not made.is_contiguous():
        return False
    plain = x.dtype == w.dtype and x.dtype in (torch.float16, torch.bfloat16) and ends.dtype == torch.int32
    contiguous = x.stride(1) == 1 and 1 in w.stride()[1:] and min(x.numel(), w.numel()) > 0
    return plain and contiguous and is_fast(str(x.device))
