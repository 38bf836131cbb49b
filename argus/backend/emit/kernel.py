"""Emit a whole kernel: signature, declarations, and body."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from argus.backend.abi import arguments, entry, shared_bytes
from argus.backend.device_api import cpp_type
from argus.backend.emit.address import pointer_type
from argus.backend.emit.asynchronous import prefetch_maps
from argus.backend.emit.body import digits, ending, statements
from argus.backend.emit.declarations import counts, opening
from argus.backend.emit.expression import ATOM, Printer
from argus.backend.emit.flight import start, used
from argus.backend.emit.names import identifiers
from argus.backend.emit.scope import Writer
from argus.backend.emit.sizes import least
from argus.ir import visit
from argus.ir.cluster import grid_of_clusters, group_of_clusters
from argus.ir.nodes import (
    Accumulate,
    AssertTags,
    Barrier,
    Copy,
    For,
    Kernel,
    MbarrierFence,
    MbarrierInit,
    Mma,
    Programs,
    Roles,
    Spec,
    Stmt,
    Tag,
)


def emit(kernel: Kernel) -> str:
    """Return the C++ text of an explicit kernel, for any target's header.

    The text depends only on what the kernel does. Tags, assertions, specifications and spans do not change it.
    Preconditions only remove bounds checks that they make unnecessary. Raises `ArgusError` if a statement has no C++:
    IR that is not explicit, register tiles indexed at run time, layouts that an instruction cannot handle.
    """
    kernel = replace(kernel, body=visit.rewrite_body(kernel.body, _without_claims))
    names, threads = identifiers(kernel), kernel.num_threads
    counters = {s.counter.name for s in visit.walk(kernel.body) if isinstance(s, For) and s.counter is not None}
    flight = start(kernel.body, (f.name for f in kernel.fragments))
    writer = Writer(kernel, names, counters | set(kernel.sizes), threads, flight, least(kernel))
    prepared, late = _preparing(kernel.body), _leaves_together(kernel)
    statements(kernel.body[:prepared], writer)
    if not late:
        writer.line(_LAUNCH_DEPENDENTS)
    writer.line("argus::begin();")
    end = _after_products(kernel) if writer.waves else len(kernel.body)
    statements(kernel.body[prepared:end], writer)
    ending(kernel.body[end:], writer)
    if late:
        writer.line(_LAUNCH_DEPENDENTS)
    if kernel.cluster > 1 and any(isinstance(s, Roles) for s in kernel.body):
        writer.line("argus::cluster_barrier();")
    body, writer.lines = writer.lines, []
    _head(kernel, writer)
    return "\n".join([*writer.lines, *body, "}"]) + "\n"


def _after_products(kernel: Kernel) -> int:
    """Return the number of statements up to the end of the last loop with products, or all if there is none."""
    ends = [
        n
        for n, s in enumerate(kernel.body, 1)
        if isinstance(s, For) and any(isinstance(t, Mma) for t in visit.walk(s.body))
    ]
    return max(ends, default=len(kernel.body))


def _without_claims(stmt: Stmt) -> tuple[Stmt, ...] | None:
    return () if isinstance(stmt, Tag | AssertTags | Spec) else None


def _head(kernel: Kernel, writer: Writer) -> None:
    """Emit everything before the first statement."""
    written = {s.dst.obj for s in visit.walk(kernel.body) if isinstance(s, Copy | Accumulate)}
    tensors = {t.name: t for t in kernel.tensors}
    parameters = []
    for a in arguments(kernel):
        match a.kind:
            case "pointer":
                ctype = pointer_type(tensors[a.name], a.name in written)
            case "tensormap":
                ctype = "ARGUS_GRID_CONSTANT argus::TensorMap"
            case _:
                ctype = cpp_type(a.dtype)
        parameters.append(f"{ctype} {writer.names[a.name]}")
    roles = tuple(s for s in kernel.body if isinstance(s, Roles))
    macro = "ARGUS_ROLES_KERNEL" if any(r.registers for s in roles for r in s.roles) else "ARGUS_KERNEL"
    extents = str(kernel.num_threads)
    if kernel.cluster > 1:
        macro, extents = "ARGUS_CLUSTER_KERNEL", f"{extents}, {kernel.cluster}"
    writer.lines = [f"{macro}({entry(kernel)}, {extents})(", *_comma(parameters), ") {"]
    if kernel.shared or kernel.barriers:
        writer.line(f"ARGUS_SHARED(smem, {shared_bytes(kernel)});")
        for s in kernel.shared:
            extents = "x".join(map(str, s.shape))
            writer.line(f"// smem + {s.offset}: {writer.names[s.name]}, {s.dtype} {extents}, {s.layout}")
        for b in kernel.barriers:
            writer.line(f"// smem + {b.offset}: {b.name}, mbarriers: {b.count}, arrivals: {b.arrivals}")
    if kernel.group > 1 and not kernel.persistent:
        rows, columns = (Printer(writer).text(extent) for extent in grid_of_clusters(kernel))
        order = str(kernel.group) if kernel.cluster == 1 else f"{group_of_clusters(kernel)}, {kernel.cluster}"
        writer.line(f"const auto [block0, block1] = argus::grouped_block_ids<{order}>({rows}, {columns});")
    if kernel.flat and not kernel.persistent:
        grid = [Printer(writer).text(extent, ATOM) for extent in kernel.grid or ()]
        digits("argus::block_id<0>()", [f"block{axis}" for axis in range(len(grid))], grid, writer)
    own = used(tuple(s for s in kernel.body if not isinstance(s, Roles)))
    fragments = tuple(f for f in kernel.fragments if not roles or f.name in own)
    if not all(isinstance(s, _ANYBODY) for s in kernel.body):
        opening(writer, "argus::thread_id()", fragments)
    if not roles:
        counts(kernel.body, writer)
    prefetch_maps(kernel, writer)


def _preparing(body: tuple[Stmt, ...]) -> int:
    """Return the number of statements at the start of `body` that prepare mbarriers.

    These statements need no results of the previous kernel.
    """
    count = next((n for n, s in enumerate(body) if not isinstance(s, _PREPARING)), len(body))
    return count if any(isinstance(s, MbarrierInit) for s in body[:count]) else 0


_PREPARING = MbarrierInit | MbarrierFence | Barrier


_LAUNCH_DEPENDENTS = "argus::launch_dependents();"
_MUCH = 8


def _leaves_together(kernel: Kernel) -> bool:
    """Return True if blocks read many times more than they write; the next launch's blocks then start at the end.

    Such kernels are reductions, mostly one round of blocks with equal shares. If blocks of the next launch could start
    early, they would take the place of the first blocks to end and be spread unevenly over the multiprocessors.
    """
    tensors, moved = {t.name for t in kernel.tensors}, list(visit.walk(kernel.body))
    if any(isinstance(s, Roles | Programs) for s in moved):
        return False
    copies = [s for s in moved if isinstance(s, Copy)]
    stores = [s for s in moved if isinstance(s, Copy | Accumulate) and s.dst.obj in tensors]
    read = max((prod(s.shape) for s in copies if s.src.obj in tensors), default=0)
    return read >= _MUCH * max((prod(s.shape) for s in stores), default=0)


_ANYBODY = Roles | _PREPARING
"""Statements that need no registers or addresses of the whole block."""


def _comma(items: list[str]) -> list[str]:
    return [f"    {item}{',' if i < len(items) - 1 else ''}" for i, item in enumerate(items)]
