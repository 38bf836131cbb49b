"""The compiled graph: launches of proved kernels among the operators that PyTorch runs."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from argus.graph.capture import Value, is_view, value_of, writes
from argus.graph.group import Group

if TYPE_CHECKING:
    from torch.fx import Node


def subgraph(nodes: Sequence[Any], read: Sequence[Value], outputs: Sequence[Value]) -> torch.fx.GraphModule:
    """Return some nodes of a graph as a function of the values that they read. Views in between are included."""
    graph = torch.fx.Graph()
    known: dict[Value, Any] = {}
    for place, value in enumerate(read):
        if value not in known:
            known[value] = graph.placeholder(f"x{place}")
            known[value].meta["val"] = _val(value)
        else:
            graph.placeholder(f"x{place}").meta["val"] = _val(value)
    copied: dict[Any, Any] = {}

    def copy(value: Value) -> Any:
        if value in known:
            return known[value]
        node, place = value
        if node not in copied:
            copied[node] = graph.node_copy(node, lambda n: copy(value_of(n)))
        multiple = isinstance(node.meta.get("val"), (tuple, list))
        known[value] = graph.call_function(operator.getitem, (copied[node], place)) if multiple else copied[node]
        known[value].meta["val"] = _val(value)
        return known[value]

    for node in nodes:
        if not isinstance(node.meta.get("val"), (tuple, list)):
            copy((node, 0))
    graph.output(tuple(copy(value) for value in outputs))
    graph.eliminate_dead_code()
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def _val(value: Value) -> Any:
    node, place = value
    found = node.meta.get("val")
    return found[place] if isinstance(found, (tuple, list)) else found


class Step:
    """The nodes of a graph that one call computes. `call` takes the values `read` and returns the values `made`."""

    def __init__(self, nodes: Sequence[Any], read: Sequence[Value], made: Sequence[Value], call: torch.nn.Module):
        self.nodes, self.read, self.made, self.call = tuple(nodes), tuple(read), tuple(made), call


def step_of(group: Group, call: torch.nn.Module, read: Sequence[Value]) -> Step:
    """Return the step that launches a group's kernel."""
    return Step(group.nodes, read, group.outputs, call)


def assemble(gm: torch.fx.GraphModule, steps: Sequence[Step]) -> torch.fx.GraphModule:
    """Return the graph in which each step replaces its nodes. All other nodes keep their order, and views move to their
    uses."""
    graph = torch.fx.Graph()
    step_of = {node: step for step in steps for node in step.nodes}
    order = {node: place for place, node in enumerate(gm.graph.nodes)}
    last = {id(step): max(step.nodes, key=lambda node: order[node]) for step in steps}
    modules: dict[str, torch.nn.Module] = {f"step{n}": step.call for n, step in enumerate(steps)}
    names = {id(step): f"step{n}" for n, step in enumerate(steps)}
    whole: dict[Any, Any] = {}
    known: dict[Value, Any] = {}
    placed: set[int] = set()

    def of(value: Value) -> Any:
        if value not in known:
            node, place = value
            step = step_of.get(node)
            if step is not None:
                place_step(step)
            elif isinstance(node.meta.get("val"), (tuple, list)) and node.op == "call_function":
                known[value] = graph.call_function(operator.getitem, (copied(node), place))
            else:
                known[value] = copied(node)
        return known[value]

    def place_step(step: Step) -> None:
        if id(step) in placed:
            return
        placed.add(id(step))
        call = graph.call_module(names[id(step)], tuple(of(value) for value in step.read))
        for place, value in enumerate(step.made):
            known[value] = graph.call_function(operator.getitem, (call, place))

    def copied(node: Node) -> Any:
        if node not in whole:
            whole[node] = graph.node_copy(node, lambda n: of(value_of(n)))
        return whole[node]

    for node in gm.graph.nodes:
        step = step_of.get(node)
        if step is not None:
            if node is last[id(step)]:
                place_step(step)
        elif node.op == "output":
            graph.output(torch.fx.map_arg(node.args[0], lambda n: of(value_of(n))))
        elif node.target is not operator.getitem and not (node.op == "call_function" and is_view(node)):
            copied(node)
    root = torch.nn.Module()
    for name, module in modules.items():
        root.add_module(name, module)
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            _attribute(root, str(node.target), gm)
    graph.eliminate_dead_code(is_impure_node=_impure)
    return torch.fx.GraphModule(root, graph)


def _impure(node: Any) -> bool:
    """Return True for a node that has to stay although nobody uses its result."""
    if node.op in ("placeholder", "output"):
        return True
    return node.op == "call_function" and writes(node)


def _attribute(root: torch.nn.Module, name: str, gm: torch.nn.Module) -> None:
    """Give `root` an attribute of `gm`, by its dotted name."""
    *path, leaf = name.split(".")
    target: Any = root
    source: Any = gm
    for part in path:
        if not hasattr(target, part):
            target.add_module(part, torch.nn.Module())
        target, source = getattr(target, part), getattr(source, part)
    setattr(target, leaf, getattr(source, leaf))
