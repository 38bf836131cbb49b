"""The partition of a graph into groups, each of which becomes one kernel, and nodes that are left to PyTorch.

    softmax(x @ w + b) * m   →   [mm, add] [_softmax, mul]

Operators join the groups of their inputs, in the order of the graph, as long as one kernel can do it: all values have
the same parallel axes, all reductions of a group reduce the same axes, and no path leads out of a group and back.
Views between them are regroupings of atoms (`argus.graph.space`), not operators.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from argus.graph import capture
from argus.graph.capture import Value, inputs, is_view, row, value_of
from argus.graph.group import Group
from argus.graph.joining import base, join
from argus.graph.row import POINTWISE, REDUCTION
from argus.graph.space import Mismatch, Space
from argus.graph.widened import is_for_readers

if TYPE_CHECKING:
    from torch.fx import Graph, Node

MOST_OPERATORS = 40
"""Largest number of operators in a group. A larger kernel is hard to read, and its specification takes long to
prove."""

@dataclass(frozen=True)
class Partition:
    """Groups in the order of their first nodes. `left` gives, for every other operator, the reason why it is left to
    PyTorch."""

    groups: tuple[Group, ...]
    left: dict[Any, str]


Apart = tuple[frozenset[Any], frozenset[Any]]
"""Two sets of nodes. No kernel contains nodes of both."""


def narrowest(group: Group) -> int:
    """Return at which of a group's operators to cut it in two: the fewest values go from one part to the other, and
    among equals the parts are the most alike."""

    def crossing(cut: int) -> int:
        first = set(group.nodes[:cut])
        return len({b for node in group.nodes[cut:] for v in inputs(node) if (b := base(v))[0] in first})

    places = range(1, len(group.nodes))
    return min(places, key=lambda cut: (crossing(cut), abs(2 * cut - len(group.nodes))))


def partition(graph: Graph, refused: dict[Any, str] | None = None, apart: Iterable[Apart] = ()) -> Partition:
    """Partition a graph. `refused` maps nodes that are left to PyTorch to the reasons."""
    return _Partitioner(graph, refused or {}, tuple(apart)).run()


def _compares(node: Node, source: Any) -> bool:
    """Return True if an operator must read the other's result from memory: positions are found in the stored result."""
    return any(found is not None and found.places for found in (row(node), row(source)))


class _Partitioner:
    def __init__(self, graph: Graph, refused: dict[Any, str], apart: tuple[Apart, ...]) -> None:
        self.graph, self.refused, self.apart = graph, refused, apart
        self.group_of: dict[Any, Group] = {}
        self.left: dict[Any, str] = {}
        self.closed: set[int] = set()  # An operator that writes closes all earlier groups.
        self.read: dict[Any, list[Any]] = {}
        self.order = {node: place for place, node in enumerate(graph.nodes)}

    def run(self) -> Partition:
        for node in capture.operators(self.graph):
            if is_view(node) or capture.is_constant(node) or not any(capture.results(node)):
                continue
            why = self.refused.get(node) or capture.refusal(node)
            if not why:
                try:
                    self.place(node)
                    continue
                except Mismatch as mismatch:
                    why = f"{capture.name(node)}: {mismatch}"
            self.left[node] = why
            if capture.writes(node):
                self.closed = set(map(id, self.group_of.values()))
        groups = sorted({id(g): g for g in self.group_of.values()}.values(), key=lambda g: self.order[g.nodes[0]])
        self.find_outputs(groups)
        return Partition(tuple(g for g in groups if g.outputs), self.left)

    def place(self, node: Node) -> None:
        """Put an operator into the groups of its inputs, all of them or one, or into a group of its own."""
        found = {
            id(g): g
            for v in inputs(node)
            if (g := self.group_of.get(base(v)[0])) is not None
            and id(g) not in self.closed
            and not self.belongs_to_a_reduction(node, g)
            and not is_for_readers(node)
        }
        producers = sorted(found.values(), key=lambda g: self.order[g.nodes[-1]], reverse=True)
        tries: list[list[Group]] = [producers] if len(producers) > 1 else []
        tries += [[h for h in producers if h is not g] for g in producers] if len(producers) > 2 else []
        tries += [[g] for g in producers]
        for attempt in tries:
            merged = self.merged(attempt, node)
            if merged is not None:
                for member in merged.nodes:
                    self.group_of[member] = merged
                return
        alone = Group([], Space())
        join(alone, node)
        self.group_of[node] = alone

    def belongs_to_a_reduction(self, node: Node, group: Group) -> bool:
        """Return True for an elementwise operator that should be computed with the reduction that reads its result,
        instead of after a product.

        This is so if only reductions read its result, and the product's own result is written anyway, as for `x * x` in
        a sum of squares when other operators read x.
        """
        found = row(node)
        if group.head is None or found is None or found.kind != POINTWISE:
            return False
        users = self.readers((node, 0))
        reduced = bool(users) and all((r := row(u)) is not None and r.kind == REDUCTION for u in users)
        own = [base(v) for v in inputs(node) if self.group_of.get(base(v)[0]) is group]
        return reduced and all(any(u is not node for u in self.readers(v)) for v in own)

    def readers(self, value: Value) -> list[Any]:
        """Return the operators that read a value or a view of it."""
        found: list[Any] = []
        for user in value[0].users:
            if user.op == "call_function" and (is_view(user) or value_of(user)[0] is value[0]):
                if is_view(user) or value_of(user) == value:
                    found += self.readers((user, 0))
            else:
                found.append(user)
        return found

    def merged(self, groups: list[Group], node: Node) -> Group | None:
        """Return the union of the groups and the node if one kernel can compute the union, else None."""
        if sum(len(g.nodes) for g in groups) >= MOST_OPERATORS or not self.convex(groups, node):
            return None
        if sum(g.head is not None for g in groups) > 1:
            return None
        together = {n for g in groups for n in g.nodes} | {node}
        if any(together & first and together & second for first, second in self.apart):
            return None
        if any(base(v)[0] in together and _compares(n, base(v)[0]) for n in together for v in inputs(n)):
            return None
        trial = groups[0].copy()
        try:
            for other in groups[1:]:
                shift = len(trial.space)
                trial.space.absorb(other.space)
                trial.reduced += tuple(a + shift for a in other.reduced)
                trial.contracted += tuple(a + shift for a in other.contracted)
                trial.places += tuple(a + shift for a in other.places)
                trial.fixed += tuple(a + shift for a in other.fixed)
                trial.product = trial.product or other.product
                trial.window = trial.window or other.window
                trial.widened = trial.widened or other.widened
                trial.scatter = trial.scatter or other.scatter
                trial.reads |= other.reads
                trial.nodes = sorted({*trial.nodes, *other.nodes}, key=lambda n: self.order[n])
            self.internal(trial)
            join(trial, node)
        except Mismatch:
            return None
        return trial

    def internal(self, group: Group) -> None:
        """Unify the dimensions of a use with those of the value, for values that a merged group computes itself."""
        for use, value in list(group.reads.items()):
            if value in group.space:
                for a, b in zip(group.space[use], group.space[value], strict=True):
                    group.space.unify(b, a)
                del group.reads[use]

    def convex(self, groups: list[Group], node: Node) -> bool:
        """Return True if no path leads from the groups over another node to one of them or to `node`."""
        members = {n for g in groups for n in g.nodes}
        first = min(self.order[n] for n in members)
        seen: set[Any] = set()
        stack = [s for n in (*members, node) for s in self.sources(n) if s not in members]
        while stack:
            at = stack.pop()
            group = self.group_of.get(at)
            together = group.nodes if group is not None else [at]
            if at in seen or max(self.order[n] for n in together) < first:
                continue
            seen.update(together)
            for near in together:
                for source in self.sources(near):
                    if source in members:
                        return False
                    stack.append(source)
        return True

    def sources(self, node: Node) -> list[Any]:
        """Return the nodes whose results an operator reads."""
        if node not in self.read:
            own = inputs(node) if node.op == "call_function" else ()
            self.read[node] = [base(value)[0] for value in own]
        return self.read[node]

    def find_outputs(self, groups: Iterable[Group]) -> None:
        """Set the outputs of each group: the values that others need."""
        needed: set[Value] = set()

        def need(value: Value) -> None:
            if value in needed:
                return
            needed.add(value)
            if value[0].op == "call_function" and is_view(value[0]):
                for source in inputs(value[0]):
                    need(source)

        for group in groups:
            for value in group.reads.values():
                need(value)
        for node in self.graph.nodes:
            if node.op == "output" or node in self.left:
                for source in node.all_input_nodes:
                    need(value_of(source))
        for group in groups:
            group.outputs = tuple(
                (node, place)
                for node in group.nodes
                for place in range(len(capture.results(node)))
                if (node, place) in needed
            )
