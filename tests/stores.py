"""Random kernels of bulk stores: results go through shared tiles to memory, groups of them under way."""

from __future__ import annotations

from hypothesis import strategies as st

from argus.ir.nodes import Kernel
from tests.asynchronous import ROWS, Trips, kernel, launched, mistake, role, trips


@st.composite
def stores(draw: st.DrawFn, right: bool | None = None) -> Kernel:
    """A role reads tiles, doubles them, and stores them through `buffers` tiles of its own, in one group each."""
    programs = draw(st.integers(0, 2)) == 0
    buffers, warps = draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 4]))
    loop = trips(draw, right, 8, [buffers], programs=programs)
    wrong = mistake(draw, right, "wait", "wait", "barrier", "fence", "commit", "slot", "late fence", "end")
    via = f"layout {ROWS[warps]}"
    column = draw(st.sampled_from(["c1", "c1 ^ 1", "31 - c1"]))
    inside = f"if {loop.row} + c0 < N"
    load = f"copy r[c0, c1] <- x[{loop.row} + c0, {column}] shape 8x32 {inside} else 0.0 {via} via ld.global"
    store = [
        f"copy out[{loop.row} + c0, c1] <~ t[{_slot(loop, buffers, wrong == 'slot')}, c0, c1] shape 8x32 {inside} "
        "via tma.store",
        "" if wrong == "commit" else "bulk_commit",
    ]
    pending = buffers - (wrong != "wait")
    read = draw(st.sampled_from(["_read", "_read", "_read", ""]))
    # Thread 0 alone waits: the others learn of it at the barrier.
    free = [f"bulk_wait{read} {pending}", "barrier"]
    if wrong == "barrier" and draw(st.booleans()):
        free.pop()
    fill = [
        f"map r[c0, c1] = r[c0, c1] + r[c0, c1] shape 8x32 {via} scope thread",
        f"copy t[{_slot(loop, buffers)}, c0, c1] <- r[c0, c1] shape 8x32 {via} via st.shared",
    ]
    fenced = ["proxy_fence", "barrier"] if draw(st.integers(0, 3)) else ["barrier", "proxy_fence"]
    if wrong == "fence":
        fenced = ["barrier"]
    if wrong == "barrier" and "barrier" in free:
        fenced = ["proxy_fence"]
    after = ["proxy_fence"] if wrong == "late fence" else []
    if after:
        fenced = ["barrier"]
    first = [*free, load] if draw(st.booleans()) else [load, *free]
    lines = [loop.head, *first, *fill, *fenced, *store, *after, "}", "" if wrong == "end" else "bulk_wait_read 0"]
    body = ["tag x[N, 32] = {row = c0, lane = c1}", "roles {", *role("storing", warps, 0, *lines), "}"]
    head = [
        "size N",
        "tensor x: float32[N, 32] strides [32:int64, 1:int64] align 4",
        "tensor out: float32[N, 32] strides [32:int64, 1:int64] align 16",
        "grid [1]",
        loop.requires,
        f"shared t: float32 {buffers}x8x32 layout Sw<3,2,3> o 0 o ({buffers},8,32):(256,32,1) at 0",
        f"fragment r: float32 8x32 layout {ROWS[warps]}",
    ]
    return kernel("stores", "sm_90a", 4, *launched(draw, programs, head, body))


def _slot(loop: Trips, buffers: int, next_one: bool = False) -> str:
    return f"({loop.count} + {int(next_one)}) % {buffers}" if next_one else f"({loop.count}) % {buffers}"
