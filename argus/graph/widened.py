"""Copies of 16-bit floats in float32 that several kernels read: each kernel makes its own.

    [mm, add, to_copy] [pow, mean, …]     →     [mm, add] [to_copy, pow, mean, …]

A kernel would otherwise store float32, often beside the 16-bit floats, and others would read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from argus.graph.capture import SHORT, inputs, is_view, meta_of, name, results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.fx import Graph, Node

    from argus.graph.group import Group

_FOR_READERS = "argus_widened"
"""The key of a node's metadata that is True for a copy that only its readers' groups take, and False for one that
they cannot take. Copies without the key are as PyTorch traced them."""


def is_for_readers(node: Node) -> bool:
    """Return True for a copy that joins no group of what it reads."""
    return bool(node.meta.get(_FOR_READERS))


def widen_where_read(graph: Graph, groups: Sequence[Group]) -> bool:
    """Give every kernel that reads another kernel's float32 copy of 16-bit floats a copy of its own. Return True if the
    graph is to be partitioned again.

    Each copy of the traced graph is looked at once. A copy that no reader's kernel takes goes back to what it reads."""
    lonely = [g.nodes[0] for g in groups if len(g.nodes) == 1 and is_for_readers(g.nodes[0])]
    for node in lonely:
        node.meta[_FOR_READERS] = False
    shared = [node for group in groups for node in _shared(group, groups)]
    for node in shared:
        for members in _members(node, groups):
            _own(graph, node, members).meta[_FOR_READERS] = True
        if not node.users:
            graph.erase_node(node)
    return bool(lonely or shared)


def _shared(group: Group, groups: Sequence[Group]) -> list[Any]:
    """Return a group's copies that operators of other groups read, and nothing but groups."""
    taken = {node: g for g in groups for node in g.nodes}
    found = []
    for node, _ in group.outputs:
        if _FOR_READERS in node.meta or len(group.nodes) == 1 or not _widens(node):
            continue
        readers = _readers(node)
        if all(r in taken and r is not taken[r].head for r in readers) and any(taken[r] is not group for r in readers):
            found.append(node)
    return found


def _members(node: Node, groups: Sequence[Group]) -> list[set[Any]]:
    """Return the operators of each other group that reads a node's result."""
    readers = set(_readers(node))
    return [set(g.nodes) for g in groups if node not in g.nodes and not readers.isdisjoint(g.nodes)]


def _widens(node: Node) -> bool:
    """Return True for a copy of 16-bit floats in float32 on the same device."""
    if name(node) != "_to_copy.default":
        return False
    (read,), (made,) = map(meta_of, inputs(node)), results(node)
    if read is None or made is None or read.device != made.device:
        return False
    return read.dtype in SHORT and made.dtype == "float32"


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
        elif _shows(user) and not members.isdisjoint(_readers(user)):
            _own(graph, user, members).replace_input_with(node, own)
            if not user.users:
                graph.erase_node(user)
    return own
