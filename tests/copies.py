"""Random kernels of asynchronous copies by threads: groups of cp.async through a few buffers."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from argus.ir.nodes import Kernel
from tests.asynchronous import kernel, mistake

_LAYOUT = "[32 | t 32@0 | v]"


@dataclass(frozen=True)
class Fetch:
    """How a row of 32 comes: in one or two copies, each `split` in a group of its own or all in one."""

    halves: int
    split: bool

    @property
    def groups(self) -> int:
        return self.halves if self.split else 1

    def copies(self, row: str, slot: str) -> list[str]:
        extent = 32 // self.halves
        part = f"[{extent} | t {extent}@0 {self.halves}@_ | v]"
        columns = [f"{extent * h} + c0" if h else "c0" for h in range(self.halves)]
        live = f"if {row} < T else 0.0"
        return [
            f"copy s[{slot}, {at}] <- x[{row}, {at}] shape {extent} {live} layout {part} via cp.async" for at in columns
        ]

    def lines(self, row: str, slot: str) -> list[str]:
        lines = [line for copy in self.copies(row, slot) for line in (copy, "commit_group" if self.split else "")]
        return lines if self.split else [*lines, "commit_group"]

    def guarded(self, row: str, slot: str, wrong: bool) -> list[str]:
        """Under a branch that leaves out rows beyond the end, but not their groups, or else the wait counts wrong."""
        inside = [*self.copies(row, slot), *(["commit_group"] * self.groups if wrong else [])]
        return [f"if {row} < T {{", *inside, "}", *([] if wrong else ["commit_group"] * self.groups)]


@st.composite
def copies(draw: st.DrawFn, right: bool | None = None) -> Kernel:
    """Rows through `stages` buffers, fetched `ahead` iterations early, in one or two groups a row."""
    stages = draw(st.integers(1, 4))
    ahead = draw(st.integers(0, stages - 1))
    halves = draw(st.sampled_from([1, 1, 2]))
    fetch = Fetch(halves, halves > 1 and draw(st.booleans()))
    wrong = mistake(draw, right, "wait", "wait", "commit", "barrier", "reuse", "guard", "slot")
    row, slot = f"i + {ahead}", f"(i + {ahead + (wrong == 'slot')}) % {stages}"
    loaded = fetch.lines(row, slot)
    if wrong == "commit":
        loaded = loaded[:-1]
    if wrong == "guard" or (not fetch.split and draw(st.integers(0, 4)) == 0):
        loaded = fetch.guarded(row, slot, wrong == "guard")
    lane = draw(st.sampled_from(["c0", "c0 ^ 1", "31 - c0"]))
    use = [
        f"copy r[c0] <- s[i % {stages}, {lane}] shape 32 layout {_LAYOUT} via ld.shared",
        f"assert (l) in 32 {{r[c0] carries [i, {lane}]}}",
        f"copy out[i, c0] <- r[c0] shape 32 layout {_LAYOUT} via st.global",
    ]
    head = [
        "size T",
        "tensor x: float32[T, 32] strides [32:int64, 1:int64] align 4",
        "tensor out: float32[T, 32] strides [32:int64, 1:int64] align 4",
        "grid [1]",
        f"shared s: float32 {stages}x32 layout ({stages},32):(32,1) at 0",
        f"fragment r: float32 32 layout {_LAYOUT}",
    ]
    prologue = [line for p in range(ahead) for line in fetch.lines(str(p), str(p))]
    loop = _loop(draw, ahead, stages, fetch.groups, (loaded, use), wrong)
    tag = "tag x[T, 32] = {row = c0, lane = c1}"
    return kernel("copies", "sm_80", 1, head, [tag, *prologue, "for i in 0 .. T step 1 {", *loop, "}"])


def _loop(
    draw: st.DrawFn, ahead: int, stages: int, groups: int, parts: tuple[list[str], list[str]], wrong: str
) -> list[str]:
    """One iteration: the next row is fetched first, between the wait and the use, or last."""
    loaded, use = parts
    order = draw(st.sampled_from(["first", "between", "last"])) if ahead else draw(st.sampled_from(["first", "fenced"]))
    pending = (ahead if order in ("first", "fenced") else ahead - 1) * groups
    if wrong == "wait":
        pending = draw(st.sampled_from([pending + 1, max(0, pending - 1), 0]))
    barrier = [] if wrong == "barrier" else ["barrier"]
    # A barrier after the use is needed where the buffer that was read is filled before the next wait.
    tight = order == "first" or (order == "last" and ahead == stages - 1)
    after = ["barrier"] if (tight or draw(st.booleans())) and wrong != "reuse" else []
    match order:
        case "first":
            return [*loaded, f"wait_group {pending}", *barrier, *use, *after]
        case "between":
            return [f"wait_group {pending}", *barrier, *loaded, *use]
        case "fenced":
            return ["" if wrong == "reuse" else "barrier", *loaded, f"wait_group {pending}", *barrier, *use]
        case _:
            return [f"wait_group {pending}", *barrier, *use, *after, *loaded]
