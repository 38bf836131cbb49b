"""Values that a graph computes from numbers alone, such as positions and masks: they are computed once, when the graph
is compiled."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

MOST_ELEMENTS = 2**26
"""Number of elements up to which a value is computed before the graph runs."""

_SPACES = ("torch", "_operator", "builtins")
"""Modules of the functions that may be called while a graph is compiled."""


def computed(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.Tensor | None:
    """Return the value of a node in a graph that Dynamo traced, or None if it depends on an input, on random numbers or
    on an operator that writes."""
    needed = _needed(node)
    if needed is None or any(_writes(user) for each in needed for user in each.users):
        return None
    found: dict[Any, Any] = {}
    with unset_fake_temporarily(), torch.no_grad():
        for each in graph.nodes:
            if each in needed:
                try:
                    found[each] = _called(each, found)
                except Exception:  # Whatever cannot be computed now is computed by the graph.
                    return None
    made = found[node]
    return made if isinstance(made, torch.Tensor) else None


def _needed(node: torch.fx.Node) -> set[torch.fx.Node] | None:
    """Return a node and all nodes that it depends on, or None if one of them may not be computed now."""
    needed: set[torch.fx.Node] = set()
    waiting = [node]
    while waiting:
        at = waiting.pop()
        if at in needed:
            continue
        value = at.meta.get("example_value")
        if at.op not in ("call_function", "call_method") or _writes(at) or _is_random(at):
            return None
        if isinstance(value, torch.Tensor) and (value.numel() > MOST_ELEMENTS or not _is_plain(value)):
            return None
        needed.add(at)
        waiting += at.all_input_nodes
    return needed


def _is_plain(value: torch.Tensor) -> bool:
    """Return True for a tensor whose sizes are known."""
    return all(isinstance(size, int) for size in value.shape)


def _called(node: torch.fx.Node, found: dict[Any, Any]) -> Any:
    args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), lambda n: found[n])
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    assert callable(node.target)
    return node.target(*args, **kwargs)


def _writes(node: torch.fx.Node) -> bool:
    """Return True for a call that may write one of its arguments."""
    name = str(node.target) if node.op == "call_method" else str(getattr(node.target, "__name__", ""))
    if node.op in ("output", "placeholder", "get_attr"):
        return False
    if node.op == "call_module" or "out" in node.kwargs or node.target in (operator.setitem, operator.delitem):
        return True
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        return bool(schema.is_mutable)
    if getattr(node.target, "__module__", "") == "_operator":
        return node.target in _IN_PLACE
    return name.endswith("_") and not name.endswith("__")


_IN_PLACE = frozenset(
    getattr(operator, name)
    for name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "imatmul",
                 "ilshift", "irshift", "iconcat")
)  # fmt: skip


def _is_random(node: torch.fx.Node) -> bool:
    """Return True unless a call is known to give the same result each time."""
    target = node.target
    if node.op == "call_method":
        name = str(target)
    else:
        module = str(getattr(target, "__module__", None) or "torch")
        if module.partition(".")[0] not in _SPACES:
            return True
        name = str(getattr(target, "__name__", ""))
    return any(word in name for word in ("rand", "dropout", "bernoulli", "multinomial", "normal", "uniform", "poisson",
                                         "exponential", "cauchy", "geometric", "seed", "empty"))  # fmt: skip
