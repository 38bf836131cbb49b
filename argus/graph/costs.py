"""Limit the functions that follow a product: slow functions do not pay on the few threads that a product leaves."""

from __future__ import annotations

from math import inf, prod
from typing import Any

from argus.graph import capture
from argus.graph.convolutions import by_matrices
from argus.graph.partition import Apart, Group

MOST_COST, TERMS, LARGE = 3, 1500, 2**22
"""The total cost of functions after a product is at most `MOST_COST`. If the result has at least `LARGE` elements, it
is at most 1 for each `TERMS` terms of a sum, because few terms are added before the functions are computed. Beyond
that, a separate kernel with many more threads is faster."""

_COSTS = {
    **dict.fromkeys(("exp", "exp2", "log", "log2", "sigmoid", "silu", "sin", "cos"), 1),
    **dict.fromkeys(("log1p", "tanh", "erf", "gelu", "elu", "gelu_backward", "silu_backward"), 2),
}


def cost(node: Any) -> int:
    """Return the cost of the elementwise functions that an operator computes."""
    return _COSTS.get(capture.name(node).partition(".")[0], 0)


def costly_part(group: Group) -> Apart | None:
    """Split the operators at the first costly one if too many functions follow a product. Return None if they need not
    be split."""
    if group.head is None or sum(map(cost, group.nodes)) <= _most(group):
        return None
    first = next(n for n, node in enumerate(group.nodes) if cost(node))
    return frozenset(group.nodes[:first]), frozenset(group.nodes[first:])


def _most(group: Group) -> float:
    """Return the largest total cost of functions that may follow a group's product in its kernel.

    Without matrix instructions there are threads enough for any."""
    if group.window is not None and not by_matrices(group):
        return inf
    over = set(group.space.atoms(group.contracted)) - set(group.space.atoms(group.places))
    terms, made = ([group.space.size(a) for a in atoms] for atoms in (over, _made(group)))
    if not all(isinstance(size, int) for size in (*terms, *made)) or prod(made) < LARGE:
        return MOST_COST
    return float(min(MOST_COST, prod(terms) / TERMS))


def _made(group: Group) -> list[int]:
    return [a for dim in group.space[(group.head, 0)] for a in dim]
