"""The limit on functions behind a product: slow ones do not pay on the few threads that a product leaves."""

from __future__ import annotations

from math import inf, prod
from typing import Any

from argus.graph import capture
from argus.graph.partition import Apart, Group

MOST_COST, TERMS = 3, 1500
"""Of the functions behind a product: at most 3, and 1 for this many terms of a sum, as a product of few terms is done
before its functions are. Beyond that a kernel of their own, with many more threads, pays."""

_COSTS = {
    **dict.fromkeys(("exp", "exp2", "log", "log2", "sigmoid", "silu", "sin", "cos"), 1),
    **dict.fromkeys(("log1p", "tanh", "erf", "gelu", "elu", "gelu_backward", "silu_backward"), 2),
}


def cost(node: Any) -> int:
    """The cost of an operator's functions."""
    return _COSTS.get(capture.name(node).partition(".")[0], 0)


def costly_part(group: Group) -> Apart | None:
    """Split the operators at the first costly one if too many functions follow a product; None if not."""
    if group.head is None or sum(map(cost, group.nodes)) <= min(MOST_COST, _terms(group) / TERMS):
        return None
    first = next(n for n, node in enumerate(group.nodes) if cost(node))
    return frozenset(group.nodes[:first]), frozenset(group.nodes[first:])


def _terms(group: Group) -> float:
    """How many products each element of a product adds up; many for sizes that are known only when it runs."""
    over = set(group.space.atoms(group.contracted)) - set(group.space.atoms(group.places))
    sizes = [group.space.size(a) for a in over]
    return float(prod(sizes)) if all(isinstance(size, int) for size in sizes) else inf
