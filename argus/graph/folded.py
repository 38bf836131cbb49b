"""Values that a graph computes from numbers alone become constants: positions, masks, and what is made of them.

    arange(512) → add → unsqueeze → ge          one constant, computed when the graph is compiled

A tensor that is filled with one number stays, because kernels contain the number. Results of the graph are not folded,
because the caller may write them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from argus.graph import capture

_MOST_ELEMENTS = 2**24
"""Number of elements up to which a value becomes a constant."""


def fold_constants(gm: torch.fx.GraphModule) -> None:
    """Replace the values that depend on no input, and that other operators read, by constants."""
    nodes = list(gm.graph.nodes)
    if any(capture.writes(n) for n in nodes if n.op == "call_function"):
        return
    known: dict[Any, bool] = {}  # the values that depend on no input: whether they are more than one number
    for node in nodes:
        if _depends_on_nothing(node, known):
            known[node] = not capture.is_constant(node) and _is_more(node, known)
    wanted = [n for n, more in known.items() if more and any(u not in known for u in n.users) and not _is_returned(n)]
    values: dict[Any, Any] = {}
    for number, node in enumerate(wanted):
        value = _value(node, values)
        if value is None:
            continue
        name = f"_argus_constant{number}"
        gm.register_buffer(name, value, persistent=False)
        with gm.graph.inserting_before(node):
            held = gm.graph.get_attr(name)
        held.meta = {"val": node.meta["val"]}
        node.replace_all_uses_with(held, delete_user_cb=lambda user: user not in known)
    gm.graph.eliminate_dead_code()


def _depends_on_nothing(node: Any, known: dict[Any, bool]) -> bool:
    target, made = node.target, node.meta.get("val")
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return False
    if torch.Tag.nondeterministic_seeded in target.tags or "empty" in str(target):
        return False
    if not isinstance(made, torch.Tensor) or not all(isinstance(n, int) for n in (*made.shape, *made.stride())):
        return False
    return made.numel() <= _MOST_ELEMENTS and all(source in known for source in node.all_input_nodes)


def _is_more(node: Any, known: dict[Any, bool]) -> bool:
    """Return True for a value whose elements may differ. Views of a number have equal elements."""
    return not capture.is_view(node) or any(known[source] for source in node.all_input_nodes)


def _is_returned(node: Any) -> bool:
    """Return True for a value that the graph returns, by itself or seen through views."""
    return any(user.op == "output" or (capture.is_view(user) and _is_returned(user)) for user in node.users)


def _value(node: Any, values: dict[Any, Any]) -> torch.Tensor | None:
    """Return the value of a node, or None if PyTorch cannot compute it now."""
    with unset_fake_temporarily(), torch.no_grad():
        try:
            found: torch.Tensor = _computed(node, values)
        except (RuntimeError, NotImplementedError):  # as for a device that this machine lacks
            return None
        return found


def _computed(node: Any, values: dict[Any, Any]) -> Any:
    if node not in values:
        args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), lambda n: _computed(n, values))
        values[node] = node.target(*args, **kwargs)
    return values[node]
