"""Limit the slow functions that are fused with a product, because the kernel of a product has few threads for them."""

from __future__ import annotations

from math import inf, prod
from typing import Any

from argus.graph import capture
from argus.graph.capture import Value
from argus.graph.group import Group
from argus.graph.partition import Apart
from argus.graph.window import most_filter_axes

MOST_COST, TERMS, LARGE = 3, 550, 2**22
"""The total cost of functions after a product is at most `MOST_COST`. If the result has at least `LARGE` elements, it
is at most 1 for each `TERMS` terms of a sum, because few terms are added before the functions are computed. Beyond
that, a separate kernel with many more threads is faster."""

_COSTS = {
    **dict.fromkeys(("exp", "exp2", "log", "log2", "sigmoid", "silu", "sin", "cos", "tanh"), 1.0),
    **dict.fromkeys(("log1p", "elu", "silu_backward", "tanh_softplus"), 2.0),
    **dict.fromkeys(("erf", "gelu", "gelu_backward"), 2.5),
}


def cost(node: Any) -> float:
    """Return the cost of the elementwise functions that an operator computes."""
    return _COSTS.get(capture.name(node).partition(".")[0], 0.0)


def costly_part(group: Group) -> Apart | None:
    """Split the operators at the first costly one if too many functions follow a product. Return None if they need not
    be split.

    The first part is the product and what is made of it before the costly one. Operators before it that do not read the
    product may go with either part."""
    if group.head is None or sum(map(cost, group.nodes)) <= _most(group):
        return None
    first = next(n for n, node in enumerate(group.nodes) if cost(node))
    made = {group.head}
    for node in group.nodes[:first]:
        if made & {value[0] for value in map(_base, capture.inputs(node))}:
            made.add(node)
    return frozenset(made), frozenset(group.nodes[first:]) - made


def _base(value: Value) -> Value:
    """Return the value that a chain of views starts from."""
    while value[0].op == "call_function" and capture.is_view(value[0]):
        value = capture.value_of(value[0].args[0])
    return value


def _most(group: Group) -> float:
    """Return the largest total cost of functions that may follow a group's product in its kernel.

    Pooling leaves each thread few results, so any functions may follow it."""
    if group.window is not None and not most_filter_axes(group.window):
        return inf
    over = set(group.space.atoms(group.contracted)) - set(group.space.atoms(group.places))
    terms, made = ([group.space.size(a) for a in atoms] for atoms in (over, _made(group)))
    if not all(isinstance(size, int) for size in (*terms, *made)) or prod(made) < LARGE:
        return MOST_COST
    return float(min(MOST_COST, prod(terms) / TERMS))


def _made(group: Group) -> list[int]:
    return [a for dim in group.space[(group.head, 0)] for a in dim]
