"""Random kernels of AMD's waves: rows through a few buffers by loads to LDS, of which waits leave some on the way."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel
from tests.asynchronous import mistake

_ROW = 128
"""Elements of a row: two loads of a wave."""


@dataclass(frozen=True)
class Rows:
    """How rows come: `parts` says how many loads each statement of a row makes; how waves meet."""

    waves: int
    parts: tuple[int, ...]
    bare: bool

    @property
    def width(self) -> int:
        return _ROW * self.waves

    @property
    def threads(self) -> int:
        return 64 * self.waves

    def spread(self, loads: int) -> str:
        each = f" {loads}@0*{self.threads}" if loads > 1 else ""
        return f"[{loads * self.threads} | t {self.threads}@0 | v{each}]"

    def fetch(self, row: str, slot: str) -> list[str]:
        lines, start = [], 0
        for loads in self.parts:
            at = f"{start} + c0" if start else "c0"
            extent = loads * self.threads
            lines.append(
                f"copy s[{slot}, {at}] <- x[{row}, {at}] shape {extent} if {row} < T else 0.0 "
                f"layout {self.spread(loads)} via global_load_lds"
            )
            start += extent
        return lines

    def meet(self, left: int, wrong: str) -> list[str]:
        """A wait that leaves `left` loads open, and a barrier."""
        lgkm = " lgkmcnt 0" if self.bare and wrong != "lgkm" else ""
        wait = [] if wrong == "no wait" else [f"s_waitcnt vmcnt {left}{lgkm}"]
        return [*wait, *self.barrier(wrong == "barrier")]

    def barrier(self, without: bool) -> list[str]:
        return [] if without else ["s_barrier"] if self.bare else ["barrier"]

    def release(self) -> list[str]:
        """What ends the reads of a buffer."""
        return ["s_waitcnt lgkmcnt 0", "s_barrier"] if self.bare else ["barrier"]


@st.composite
def loads(draw: st.DrawFn, right: bool | None = None) -> Kernel:
    """Rows through `stages` buffers, loaded `ahead` iterations early, by statements of one or two loads."""
    stages = draw(st.integers(1, 4))
    ahead = draw(st.integers(0, stages - 1))
    rows = Rows(draw(st.integers(1, 2)), draw(st.sampled_from([(2,), (1, 1)])), draw(st.booleans()))
    wrong = mistake(draw, right, "wait", "wait", "no wait", "barrier", "lgkm", "reuse", "guard", "slot")
    row, slot = f"i + {ahead}", f"(i + {ahead + (wrong == 'slot')}) % {stages}"
    loaded = rows.fetch(row, slot)
    if wrong == "guard":
        loaded = [f"if {row} < T {{", *loaded, "}"]
    lane = draw(st.sampled_from(["c0", "c0 ^ 1", f"{rows.width - 1} - c0"]))
    whole = rows.spread(2)
    use = [
        f"copy r[c0] <- s[i % {stages}, {lane}] shape {rows.width} layout {whole} via ds_read",
        f"assert (l) in {rows.width} {{r[c0] carries [i, {lane}]}}",
        f"copy out[i, c0] <- r[c0] shape {rows.width} layout {whole} via buffer_store",
    ]
    head = [
        "kernel loads", "target gfx942", f"warps {rows.waves} of 64", "size T",
        f"tensor x: float32[T, {rows.width}] strides [{rows.width}:int64, 1:int64] align 4",
        f"tensor out: float32[T, {rows.width}] strides [{rows.width}:int64, 1:int64] align 4",
        "grid [1]",
        f"shared s: float32 {stages}x{rows.width} layout ({stages},{rows.width}):({rows.width},1) at 0",
        f"fragment r: float32 {rows.width} layout {whole}",
        f"body {{\ntag x[T, {rows.width}] = {{row = c0, lane = c1}}",
    ]  # fmt: skip
    prologue = [line for p in range(ahead) for line in rows.fetch(str(p), str(p))]
    loop = _loop(draw, ahead, stages, rows, (loaded, use), wrong)
    lines = [*head, *prologue, "for i in 0 .. T step 1 {", *loop, "}", "}"]
    return parse_kernel("\n".join(lines) + "\n")


def _loop(
    draw: st.DrawFn, ahead: int, stages: int, rows: Rows, parts: tuple[list[str], list[str]], wrong: str
) -> list[str]:
    """One iteration: the next row is loaded first, between the wait and the use, or last."""
    loaded, use = parts
    order = draw(st.sampled_from(["first", "between", "last"])) if ahead else draw(st.sampled_from(["first", "fenced"]))
    left = (ahead if order in ("first", "fenced") else ahead - 1) * 2
    if wrong == "wait":
        left = draw(st.sampled_from([left + 1, left + 2, max(0, left - 1), 0]))
    tight = order == "first" or (order == "last" and ahead == stages - 1)
    after = rows.release() if (tight or draw(st.booleans())) and wrong != "reuse" else []
    before = [] if wrong == "reuse" else rows.release()
    match order:
        case "first":
            return [*loaded, *rows.meet(left, wrong), *use, *after]
        case "between":
            return [*rows.meet(left, wrong), *loaded, *use]
        case "fenced":
            return [*before, *loaded, *rows.meet(left, wrong), *use]
        case _:
            return [*rows.meet(left, wrong), *use, *after, *loaded]
