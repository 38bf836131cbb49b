"""The texts of the search ahead that nobody compiled: how many there are of each kind, and a sample to look at."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from argus.agents.optimize.ahead import Node

Limit = Callable[[Node], float | None]
"""The time that the model would predict for a text of this kind that is as fast as the best one."""


def counts(nodes: Iterable[Node], limit: Limit) -> dict[str, int]:
    """Count the texts that a stage refused, that are expected to be slower than the best, and that are still open."""
    found = {"refused": 0, "slower": 0, "open": 0}
    for node in nodes:
        if node.trial is None:
            found["refused" if node.found.refused else "slower" if _slower(node, limit) else "open"] += 1
    return found


def sample(nodes: Iterable[Node], limit: Limit, count: int, seed: int) -> list[str]:
    """Draw some of the texts that are expected to be slower than the best."""
    texts = sorted(n.text for n in nodes if n.trial is None and not n.found.refused and _slower(n, limit))
    return random.Random(seed).sample(texts, min(count, len(texts)))


def _slower(node: Node, limit: Limit) -> bool:
    most, us = limit(node), node.found.predicted_us
    return most is not None and us is not None and us > most
