"""Random kernels in which threads or roles may disagree: replicas of a number, masks through vectors, turns."""

from __future__ import annotations

from hypothesis import strategies as st

from argus.ir.nodes import Kernel
from tests.asynchronous import ROWS, kernel, mistake


@st.composite
def replicas(draw: st.DrawFn, right: bool | None = None) -> Kernel:
    """A branch, or a loop, on a number that every thread holds; what stands in it needs all threads."""
    line, every = "[64 | t 64@0 | v]", "layout [() | t 64@_ | v]"
    wrong = mistake(draw, right, "own", "some", "added")
    place = {"own": "thread % 4"}.get(wrong, draw(st.sampled_from(["0", "3", "program_id(0)"])))
    load = f"copy m[] <- long[{place}] shape () {every} via ld.global"
    other = f"accumulate m[] add 1 shape () {every} scope thread" if wrong == "added" else load
    zero, few = f"map m[] = 0 shape () {every} scope thread", f"thread < {draw(st.sampled_from([8, 32, 40]))}"
    filled = [zero, f"if {few} {{", other, "}"] if wrong in ("some", "added") else [load]
    head = draw(st.sampled_from(["if m[] > 0 {", "for i in 0 .. m[] step 1 {"]))
    body = [
        f"copy r[c0] <- x[program_id(0), c0] shape 64 layout {line} via ld.global",
        *filled,
        head,
        draw(st.sampled_from(["barrier", f"map r[c0] = r[c0 ^ 1] shape 64 layout {line} scope warp"])),
        "}",
        f"copy out[program_id(0), c0] <- r[c0] shape 64 layout {line} via st.global",
    ]
    declared = [
        *(f"tensor {name}: float32[4, 64] strides [64:int64, 1:int64] align 4" for name in ("x", "out")),
        "tensor long: int32[4] strides [1:int64] align 4",
        "grid [4]",
        "in_range long from 0 to 3",
        f"fragment r: float32 64 layout {line}",
        f"fragment m: int32 () {every}",
    ]
    return kernel("replicas", "sm_80", 2, declared, body)


@st.composite
def vectors(draw: st.DrawFn, right: bool | None = None) -> Kernel:
    """A part of a row in shared memory is written anew, by vectors."""
    vector, wrong = draw(st.sampled_from([2, 4])), mistake(draw, right, "cut", "overlap")
    stride = vector // 2 if wrong == "overlap" else vector
    count = 31 * stride + vector
    room, via = -(-count // 4) * 4, f"layout [{count} | t 32@0*{stride} | v {vector}@0] via"
    part = vector * draw(st.integers(1, 15)) + (wrong == "cut")
    body = [
        f"tag x[{room}] = {{i = c0, new = 0}}",
        f"tag y[{room}] = {{i = c0, new = 1}}",
        f"copy r[c0] <- x[c0] shape {count} {via} ld.global vector {vector}",
        f"copy q[c0] <- y[c0] shape {count} {via} ld.global vector {vector}",
        f"copy s[c0] <- r[c0] shape {count} {via} st.shared",
        "barrier",
        f"copy s[c0] <- q[c0] shape {count} if c0 < {part} {via} st.shared vector {vector}",
        "barrier",
        f"copy r[c0] <- s[c0] shape {count} {via} ld.shared",
        f"assert (i) in {count} {{r[c0] carries [c0, 0]}} where c0 >= {part}",
    ]
    head = [
        *(f"tensor {name}: float32[{room}] strides [1:int64] align 16" for name in ("x", "y")),
        "grid [1]",
        f"shared s: float32 {count} layout {count}:1 at 0",
        *(f"fragment {name}: float32 {count} {via.removesuffix(' via')}" for name in ("r", "q")),
    ]
    return kernel("vectors", "sm_80", 1, head, body)


@st.composite
def turning(draw: st.DrawFn, right: bool | None = None) -> Kernel:
    """Two roles read each tile that a third brings, one after the other: each waits for its turn at a named barrier."""
    stages, wrong = draw(st.integers(1, 3)), mistake(draw, right, "meeting", "first", "twice", "passed", "early")
    slot, turn = f"n % {stages}", f"n // {stages}"
    meeting = [f"mbarrier_arrive met[{slot}]", f"mbarrier_wait met[{slot}] parity {turn} % 2"]
    behind = meeting if wrong != "meeting" and draw(st.booleans()) else []
    roles = [
        "role producer warps 1 from 8 {",
        "for n in 0 .. N step 1 {",
        f"mbarrier_wait empty[{slot}] parity ({turn} + 1) % 2",
        f"mbarrier_expect full[{slot}] bytes 1024",
        f"copy s[{slot}, c0, c1] <~ x[n, c0, c1] shape 8x32 via tma.load signal full[{slot}]",
        *["}"] * 2,
    ]
    for number, (own, other) in enumerate(((5, 6), (6, 5))):
        starts = number if wrong not in ("first", "twice") else 2 * number * (wrong == "twice")
        passed = f"barrier_arrive {own if wrong == 'passed' and number else other} count 64"
        free = f"mbarrier_arrive empty[{slot}]"
        read = f"copy r{number}[c0, c1] <- s[{slot}, c0, c1] shape 8x32 layout {ROWS[1]} via ld.shared"
        roles += [
            f"role reader{number} warps 1 from {4 * number} {{",
            *[f"barrier_arrive {other} count 64"] * starts,
            "for n in 0 .. N step 1 {",
            f"barrier_sync {own} count 64",
            f"mbarrier_wait full[{slot}] parity {turn} % 2",
            *(meeting if wrong == "meeting" else []),
            *([free, passed, read, "proxy_fence"] if wrong == "early" else [read, passed, "proxy_fence", free]),
            *behind,
            f"copy out[{number}, n, c0, c1] <- r{number}[c0, c1] shape 8x32 layout {ROWS[1]} via st.global",
            *["}"] * 2,
        ]
    head = [
        "size N",
        "tensor x: float32[N, 8, 32] strides [256:int64, 32:int64, 1:int64] align 16",
        "tensor out: float32[2, N, 8, 32] strides [out.a:int64, 256:int64, 32:int64, 1:int64] align 4",
        "grid [1]",
        "requires N < 20",
        f"shared s: float32 {stages}x8x32 layout Sw<3,2,3> o 0 o ({stages},8,32):(256,32,1) at 0",
        *(
            f"mbarrier {name} count {stages} arrivals {count} at {4096 + 32 * place}"
            for place, (name, count) in enumerate(
                [("full", 1), ("empty", 2), *([("met", 2)] if behind or wrong == "meeting" else [])]
            )
        ),
        *(f"fragment r{number}: float32 8x32 layout {ROWS[1]}" for number in range(2)),
    ]
    return kernel("turning", "sm_90a", 12, head, ["roles {", *roles, "}"])
