"""Copies of 16-bit floats in float32 that several kernels read: each kernel makes its own.

    [mm, add, to_copy] [pow, mean, …]     →     [mm, add] [to_copy, pow, mean, …]

A kernel would otherwise store float32, often beside the 16-bit floats, and others would read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from argus.graph.capture import SHORT, inputs, is_view, meta_of, name, results
from argus.graph.partition import Apart, Partition

if TYPE_CHECKING:
    from torch.fx import Graph, Node


def widen_where_read(graph: Graph, found: Partition) -> list[Apart]:
    """Give every kernel that reads another kernel's float32 copy of 16-bit floats a copy of its own, and return which
    nodes must stay apart from which. Return an empty list if there is nothing to do."""
    group_of = {node: group for group in found.groups for node in group.nodes}
    apart: list[Apart] = []
    for group in found.groups:
        for node, _ in group.outputs:
            readers = _readers(node) if _widens(node) else []
            others = {id(g): g for r in readers if (g := group_of.get(r)) is not None and g is not group}
            if not others or any(r not in group_of or r is group_of[r].head for r in readers):
                continue
            apart += [(frozenset(group.nodes), frozenset((_own(graph, node, set(g.nodes)),))) for g in others.values()]
            if not node.users:
                graph.erase_node(node)
    return apart


def _widens(node: Node) -> bool:
    """Return True for a copy of 16-bit floats in float32 on the same device."""
    if name(node) != "_to_copy.default":
        return False
    (read,), (made,) = map(meta_of, inputs(node)), results(node)
    return read is not None and made is not None and read.dtype in SHORT and made.dtype == "float32" and (
        read.device == made.device
    )  # fmt: skip


def _readers(node: Node) -> list[Any]:
    """Return the operators that read a node's result or a view of it."""
    return [r for user in node.users for r in (_readers(user) if _shows(user) else [user])]


def _shows(node: Node) -> bool:
    return node.op == "call_function" and is_view(node)


def _own(graph: Graph, node: Node, members: set[Any]) -> Node:
    """Return a copy of a node whose result only `members` read, through views of their own."""
    with graph.inserting_after(node):
        own = graph.node_copy(node)
    for user in list(node.users):
        if user in members:
            user.replace_input_with(node, own)
        elif user is not own and _shows(user) and not members.isdisjoint(_readers(user)):
            _own(graph, user, members).replace_input_with(node, own)
            if not user.users:
                graph.erase_node(user)
    return own
