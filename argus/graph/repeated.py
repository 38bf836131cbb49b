"""Images that are enlarged by repeating pixels are views of the image, and one copy.

    interpolate(x, scale_factor=2)     →     x[:, :, :, None, :, None] expanded to pairs, and written as one image

PyTorch would compute indices of pixels, and gather. The copy is part of a kernel with the operators around it, and so
is its gradient, a sum over the copies of each pixel.
"""

from __future__ import annotations

from typing import Any

import torch

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def repeat_pixels(gm: torch.fx.GraphModule) -> None:
    """Replace enlargements of a graph that Dynamo traced, if all factors are powers of two: with others, PyTorch's
    indices depend on rounding."""
    for node in gm.graph.find_nodes(op="call_function", target=torch.nn.functional.interpolate):
        image = node.args[0] if node.args else node.kwargs.get("input")
        if isinstance(image, torch.fx.Node) and _mode(node) == "nearest":
            _repeat(gm.graph, node, image)
    gm.recompile()


def _mode(node: torch.fx.Node) -> Any:
    return node.args[3] if len(node.args) > 3 else node.kwargs.get("mode", "nearest")


def _repeat(graph: torch.fx.Graph, node: torch.fx.Node, image: torch.fx.Node) -> None:
    x, made = image.meta.get("example_value"), node.meta.get("example_value")
    if not isinstance(x, torch.Tensor) or not isinstance(made, torch.Tensor):
        return
    if not all(isinstance(size, int) for size in (*x.shape, *made.shape)) or not x.numel():
        return
    sizes = [(a, b // a) for a, b in zip(x.shape[2:], made.shape[2:], strict=True)]
    if [a * f for a, f in sizes] != list(made.shape[2:]) or any(f & (f - 1) for _, f in sizes):
        return
    with graph.inserting_before(node):
        apart = graph.call_method("reshape", (image, [*x.shape[:2], *(n for a, _ in sizes for n in (a, 1))]))
        copies = graph.call_method("expand", (apart, [*x.shape[:2], *(n for pair in sizes for n in pair)]))
        found = graph.call_method("reshape", (copies, list(made.shape)))
        if not made.is_contiguous():
            found = graph.call_method("contiguous", (found,), {"memory_format": _FORMATS[made.ndim]})
    found.meta = dict(node.meta)
    node.replace_all_uses_with(found)
    graph.erase_node(node)
