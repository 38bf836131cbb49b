"""Operators that are left to PyTorch. Inductor compiles adjacent ones together if it has a compiler for the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from argus.graph import capture
from argus.graph.assemble import Step, subgraph
from argus.graph.capture import inputs, is_view
from argus.graph.partition import Partition
from argus.graph.views import A_VIEW

if TYPE_CHECKING:
    from torch.fx import Graph

LIBRARY = frozenset(
    ("mm.default", "bmm.default", "addmm.default", "baddbmm.default", "convolution.default",
     "convolution_backward.default")
)  # fmt: skip
"""Operators for which Inductor calls the same library as PyTorch."""


def steps(graph: Graph, found: Partition, who: str) -> tuple[list[Step], set[Any]]:
    """Return the steps that Inductor runs, and the nodes that these steps contain. The other nodes stay unchanged."""
    if who == "eager" or not _available(found):
        return [], set()
    taken: list[Step] = []
    nodes: set[Any] = set()
    for run in _runs(graph, found):
        if all(_runs_as_it_is(n) for n in run):
            continue
        members = set(run)
        whole = _with_views(graph, members)
        read = list(dict.fromkeys(v for n in whole for v in inputs(n) if v[0] not in whole))
        made = [(n, 0) for n in run if _used_outside(n, members)]
        if not made or not all(isinstance(n.meta.get("val"), torch.Tensor) for n in whole):
            continue
        taken.append(Step(run, read, made, Inductor(subgraph(list(whole), read, made))))
        nodes |= members
    return taken, nodes


def _runs_as_it_is(node: Any) -> bool:
    """Return True for an operator that Inductor would run as PyTorch does: one of the library, or a view."""
    row = capture.row(node)
    return capture.name(node) in LIBRARY or is_view(node) or (row is not None and row.left == A_VIEW)


class Inductor(torch.nn.Module):
    """A piece of the graph that Inductor compiles. If Inductor fails, PyTorch runs the operators one by one."""

    def __init__(self, gm: torch.fx.GraphModule) -> None:
        super().__init__()
        self.gm = gm
        self.compiled: Callable[[list[Any]], Any] | None = _compiled(gm)

    def forward(self, *tensors: Any) -> Any:
        return self.gm(*tensors) if self.compiled is None else self.compiled(list(tensors))


def _compiled(gm: torch.fx.GraphModule) -> Callable[[list[Any]], Any] | None:
    from torch._guards import TracingContext
    from torch._inductor.compile_fx import compile_fx_inner

    example = [n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder"]
    context = TracingContext.try_get()
    strides = getattr(context, "output_strides", None)
    try:
        if context is not None:  # Inductor would tell the strides of this piece as those of the whole graph.
            context.output_strides = None
        return compile_fx_inner(gm, example)
    except Exception:  # Whatever Inductor raises, the operators still run.
        return None
    finally:
        if context is not None:
            context.output_strides = strides


def _available(found: Partition) -> bool:
    """Return True if Inductor has a compiler for what is left."""
    devices = {m.device.partition(":")[0] for n in found.left for m in capture.results(n) if m is not None}
    if not devices:
        return False
    if "cuda" in devices:
        from torch.utils._triton import has_triton

        return bool(has_triton())
    from argus.environment import find_tool

    return find_tool(("g++", "clang++"), "CXX") is not None


def _runs(graph: Graph, found: Partition) -> list[list[Any]]:
    """Return the runs of consecutive operators that are left to PyTorch, without a kernel between them."""
    runs: list[list[Any]] = [[]]
    kernels = {n for g in found.groups for n in g.nodes}
    for node in graph.nodes:
        if node in found.left and _may(node):
            runs[-1].append(node)
        elif node in kernels or node in found.left:
            runs.append([])
    return [run for run in runs if run]


def _may(node: Any) -> bool:
    """Return False for operators that write, for random numbers, which Inductor computes differently from PyTorch, and
    for the library's own operators."""
    target = node.target
    if capture.is_library(node):
        return False
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    return torch.Tag.nondeterministic_seeded not in target.tags


def _with_views(graph: Graph, members: set[Any]) -> dict[Any, None]:
    """Return the members and the views of their results in the graph's order, because a member may read the view of
    another member's result."""
    found: dict[Any, None] = {}
    for node in graph.nodes:
        of_members = node.op == "call_function" and is_view(node) and any(v[0] in found for v in inputs(node))
        if node in members or of_members:
            found[node] = None
    return found


def _used_outside(node: Any, members: set[Any]) -> bool:
    """Return True if the result of a node is used outside of `members`, directly or through a view."""
    views = (user for user in node.users if user.op == "call_function" and is_view(user))
    others = (user for user in node.users if not (user.op == "call_function" and is_view(user)))
    return any(user not in members for user in others) or any(_used_outside(view, members) for view in views)
