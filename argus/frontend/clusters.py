"""Clusters of blocks: a block's number in its cluster, tiles of other blocks, and the barrier of all blocks."""

from __future__ import annotations

from dataclasses import replace

from argus.frontend import arguments
from argus.frontend.context import CallSite, Handler
from argus.frontend.values import Nothing, Tile, Value, describe
from argus.ir.cluster import peer as number_of_peer
from argus.ir.cluster import rank_in_cluster
from argus.ir.expr import Const
from argus.ir.nodes import Barrier, Shared
from argus.ir.types import int32


def cluster_rank(call: CallSite) -> Value:
    """Return the block's number in its cluster, or 0 for a kernel without clusters."""
    cluster = call.context.cluster
    return Tile((), int32, Const(0) if cluster == 1 else rank_in_cluster(cluster))


def peer(call: CallSite) -> Value:
    """Return the same part of the shared tile in another block of the cluster."""
    context, view = call.context, arguments.view(call, "view")
    if not isinstance(view.obj, Shared) or view.block is not None:
        context.fail(
            "bad-peer",
            f"{describe(view)} is not a shared tile of this block",
            call.spans["view"],
            "give a tile of `al.shared(...)`, or part of one: every block of the cluster has it",
        )
    _require_cluster(call, "a peer's tile")
    rank = arguments.tile(call, "rank", int32)
    numbers = [number_of_peer(rank.expr, own, context.cluster) for own in range(context.cluster)]
    if rank.shape or any(number is None for number in numbers):
        context.fail(
            "bad-peer",
            "which block this is depends on more than `al.cluster_rank()` and constants",
            call.spans["rank"],
            "go through the peers with `al.static_range`, or count on from `al.cluster_rank()`",
        )
    wrong = next((number for number in numbers if number not in range(context.cluster)), None)
    if wrong is not None:
        context.fail(
            "bad-peer",
            f"there is no block {wrong} in a cluster of {context.cluster}",
            call.spans["rank"],
            f"use 0 to {context.cluster - 1}: `(al.cluster_rank() + 1) % {context.cluster}` is the next one",
        )
    return replace(view, block=rank.expr)


def barrier(call: CallSite) -> Value:
    """Emit a barrier at which all threads of the block, or of all blocks of the cluster, wait."""
    scope = arguments.text(call, "scope")
    if scope not in ("block", "cluster"):
        help = 'use "block" or "cluster"'
        call.context.fail("bad-scope", f"there is no barrier of scope {scope!r}", call.spans["scope"], help)
    if scope == "cluster":
        _require_cluster(call, "a barrier of the cluster")
    call.context.emit(Barrier(scope=scope), call.span)
    return Nothing()


def _require_cluster(call: CallSite, what: str) -> None:
    context = call.context
    # The CPU target runs them as one block.
    if "sm_90a" not in context.target.architectures and context.target.vendor != "cpu":
        help = "compile for sm_90a, or let one block do the work"
        context.fail("no-cluster", f"{what}: {context.target.name} has no clusters", call.span, help)
    if context.in_role:
        help = "let the whole block do it, without roles"
        context.fail("bad-role", f"{what}: a role reaches no other block", call.span, help)
    if context.cluster == 1:
        help = "declare it before: `al.grid(..., cluster=2)`"
        context.fail("no-cluster", f"{what}: this kernel has no clusters", call.span, help)


HANDLERS: dict[str, Handler] = {"cluster_rank": cluster_rank, "peer": peer, "barrier": barrier}
