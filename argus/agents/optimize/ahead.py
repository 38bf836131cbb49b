"""The search ahead: texts several steps away from the measured ones, ranked by the performance model.

Most steps pay only together with others: a larger tile, for example, needs more warps and its own number of stages. The
search therefore continues from texts that are not proved, built or timed yet. It lowers each text once, and asks the
model for its time. Texts that the machine cannot run, or runs more slowly, are rejected there.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from argus.agents.optimize.examine import Examined
from argus.agents.optimize.folder import Trial
from argus.agents.optimize.moves import TUNE, Move
from argus.agents.optimize.planner import Planner, context_of, kind_of
from argus.agents.optimize.service import Answer, Worker, WorkerLost

_AGAIN = 0.05
"""The logarithm by which each further text of a context seems slower, so that no context takes the whole search."""
_SAME = 0.01
"""Difference of logarithms of times below which the model does not distinguish two texts. The gain that an entry
promises then decides."""

Ask = Callable[[Worker, Answer], Answer]


@dataclass(slots=True)
class Node:
    """A text, the move that made it from its parent, and the known facts about it. `trial` is its number if it was
    tried."""

    text: str
    found: Examined
    move: Move | None = None
    parent: Node | None = None
    trial: int | None = None
    us: float | None = None
    expanded: bool = False

    def way(self) -> list[Node]:
        """Return the nodes after the nearest timed ancestor, this one included, in order."""
        found: list[Node] = []
        node: Node | None = self
        while node is not None and node.us is None:
            found.append(node)
            node = node.parent
        return found[::-1]

    @property
    def root(self) -> Node:
        """Return the nearest node that was timed, this one included."""
        node = self
        while node.us is None and node.parent is not None:
            node = node.parent
        return node


class Ahead:
    """The nodes of a search. `ask` sends a request to a process that examines texts."""

    def __init__(self, workers: list[Worker], ask: Ask) -> None:
        self._workers, self._ask = workers, ask
        self.nodes: dict[str, Node] = {}
        self._expanded: dict[str, int] = {}

    def start(self, text: str, found: Examined, trial: int, us: float | None) -> Node:
        """Add a text that was tried, or mark a known text as tried. Its facts may have changed."""
        node = self.nodes.setdefault(digest(text), Node(text, found))
        news = set(found.facts.items()) - set(node.found.facts.items())
        node.trial, node.us = trial, us
        node.found = replace(node.found, facts=node.found.facts | found.facts) if found.facts else node.found
        node.expanded = node.expanded and not any(isinstance(v, int) and v > 0 for _, v in news)
        return node

    def look(self, expansions: int, planner: Planner, trials: Iterable[Trial]) -> None:
        """Expand the most promising texts, several at a time. Without a model, expand only texts that were timed."""
        calibration = calibrated(trials)
        batch = max(1, len(self._workers) // 8)
        done = 0
        while done < expansions:
            open_ = [n for n in self.nodes.values() if not n.expanded and not n.found.refused and self._may(n)]
            ranked = sorted(open_, key=lambda n: self._order(n, planner, calibration))[:batch]
            if not ranked:
                return
            self._expand(ranked)
            done += len(ranked)

    def _may(self, node: Node) -> bool:
        return node.us is not None or (node.trial is None and node.found.predicted_us is not None)

    def _order(self, node: Node, planner: Planner, calibration: dict[str, float]) -> float:
        again = self._expanded.get(context_of(node.found.facts), 0)
        return _AGAIN * again - score(node, planner, calibration)

    def _expand(self, nodes: list[Node]) -> None:
        """Make and examine all moves from some nodes; the processes share them."""
        of = max(1, len(self._workers) // len(nodes))
        jobs = [(node, part) for node in nodes for part in range(of)]
        with ThreadPoolExecutor(len(self._workers)) as pool:
            work = [(self._workers[i % len(self._workers)], jobs[i :: len(self._workers)])
                    for i in range(min(len(self._workers), len(jobs)))]  # fmt: skip
            for answers in pool.map(lambda pair: [self._asked(pair[0], job[0], job[1], of) for job in pair[1]], work):
                for node, moved in answers:
                    for move, found in moved:
                        self.nodes.setdefault(digest(move.text), Node(move.text, found, move, node))
        for node in nodes:
            node.expanded = True
            context = context_of(node.found.facts)
            self._expanded[context] = self._expanded.get(context, 0) + 1

    def _asked(self, worker: Worker, node: Node, part: int, of: int) -> tuple[Node, list[tuple[Move, Examined]]]:
        request: Answer = {"expand": node.text, "facts": node.found.facts, "part": part, "of": of}
        try:
            answer = self._ask(worker, request)
        except WorkerLost:
            answer = {}
        return node, [(Move(**move), Examined(**found)) for move, found in answer.get("moves", ())]

    def untried(self) -> Iterator[Node]:
        """Yield the texts that may be proved next."""
        yield from (n for n in self.nodes.values() if n.trial is None and not n.found.refused)


def score(node: Node, planner: Planner, calibration: dict[str, float]) -> float:
    """Return minus the logarithm of the expected time of a text, as an optimist estimates it."""
    way = node.way()
    if not way:
        return -math.log(node.us or 1.0)
    start = node.root
    learned, unsure, promised = 0.0, 0.0, 0.0
    for step in way:
        assert step.move is not None and step.parent is not None
        context = context_of(step.parent.found.facts)
        mean, doubt = planner.residual(step.move.name, context)
        learned, unsure = learned + mean, unsure + doubt
        promised += 0.0 if seen(step) else math.log(step.move.gain)
    if node.found.predicted_us is None:
        return -math.log(start.us or 1.0) + promised + learned + unsure / len(way)
    factor = calibration.get(kind_of(node.found.facts), 1.0)
    return -math.log(node.found.predicted_us * factor) + promised + learned + unsure / len(way)


def seen(node: Node) -> bool:
    """Return True if the model tells a text apart from the one that it was made of."""
    before = node.parent.found.predicted_us if node.parent is not None else None
    if before is None or node.found.predicted_us is None:
        return False
    return node.move is None or node.move.name == TUNE or abs(math.log(before / node.found.predicted_us)) > _SAME


def promise(node: Node) -> float:
    """Return the gain of a step, as a logarithm, that the model foresees, or else the gain that the entry promises."""
    before = node.parent.found.predicted_us if node.parent is not None else None
    if node.move is None or not seen(node) or before is None or node.found.predicted_us is None:
        return 0.0 if node.move is None else math.log(node.move.gain)
    return math.log(before / node.found.predicted_us)


def calibrated(trials: Iterable[Trial]) -> dict[str, float]:
    """Return, for each kind of kernel, the median of measured times divided by predicted times."""
    found: dict[str, list[float]] = {}
    for trial in trials:
        if trial.us is not None and trial.predicted_us:
            found.setdefault(kind_of(trial.facts), []).append(trial.us / trial.predicted_us)
    return {kind: sorted(values)[len(values) // 2] for kind, values in found.items()}


def digest(text: str) -> str:
    """Return a digest that identifies a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
