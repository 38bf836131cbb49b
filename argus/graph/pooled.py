"""Replace pooling over large windows of images by pooling over their rows, and then over their columns.

    max_pool2d(x, [r, s])  →  max_pool2d(max_pool2d(x, [r, 1]), [1, s])

An element of the result then takes r + s loads instead of r * s, and what the first kernel loads is contiguous.
"""

from __future__ import annotations

from operator import getitem
from typing import Any

import torch

from argus.graph import capture
from argus.graph.capture import meta_of
from argus.graph.windows import each

_LARGE = 16
"""Elements of a window from which on a second kernel costs less than it saves."""

_KINDS = {"max_pool2d_with_indices.default": "max", "avg_pool2d.default": "average"}


def pool_by_rows(gm: torch.fx.GraphModule) -> None:
    """Pool images by rows and then by columns, if their windows are large."""
    for node in list(gm.graph.nodes):
        kind = _KINDS.get(capture.name(node)) if node.op == "call_function" else None
        if kind is not None and _is_large(node) and (_gives_maxima(node) if kind == "max" else _is_plain(node)):
            _split(gm.graph, node)
    gm.graph.eliminate_dead_code()


def _given(node: Any) -> list[Any]:
    """Return the arguments after the image: sizes, strides, borders, and what follows them."""
    sizes, stride, padding, *rest = capture.given(node)[1:]
    sizes = each(sizes, 2)
    return [sizes, each(stride or sizes, 2), each(padding or [0], 2), *rest]


def _is_large(node: Any) -> bool:
    """Return True for windows of constant size over two dimensions that are worth two kernels."""
    sizes, image = _given(node)[0], meta_of((node.args[0], 0))
    return image is not None and not image.symbolic and min(sizes) > 1 and sizes[0] * sizes[1] >= _LARGE


def _gives_maxima(node: Any) -> bool:
    """Return True if only the values of a maximum pooling are used, and not their places."""
    return all(user.target is getitem and user.args[1] == 0 for user in node.users)


def _is_plain(node: Any) -> bool:
    """Return True for averages of the same number of elements everywhere."""
    _, _, padding, ceil, padded, divisor = _given(node)
    return not ceil and divisor is None and (padded or not any(padding))


def _split(graph: Any, node: Any) -> None:
    """Replace a pooling by two."""
    image, (sizes, stride, padding, *rest) = node.args[0], _given(node)
    for d in range(2):
        steps = [_alone(sizes, d, 1), _alone(stride, d, 1), _alone(padding, d, 0)]
        further = [_alone(each(rest[0], 2), d, 1), *rest[1:]] if _gives_places(node) else rest
        with graph.inserting_before(node):
            image = _added(graph, node.target, (image, *steps, *further))
            if _gives_places(node) and d == 0:
                image = _added(graph, getitem, (image, 0))
    node.replace_all_uses_with(image)


def _alone(values: list[int], d: int, other: int) -> list[int]:
    """Return the value of one dimension, and `other` for the other dimension."""
    return [value if place == d else other for place, value in enumerate(values)]


def _gives_places(node: Any) -> bool:
    return _KINDS[capture.name(node)] == "max"


def _added(graph: Any, target: Any, arguments: tuple[Any, ...]) -> Any:
    """Add a call, and what is known of its result."""
    made = graph.call_function(target, arguments)
    made.meta["val"] = target(arguments[0].meta["val"], *arguments[1:])
    return made
