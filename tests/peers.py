"""Random kernels in clusters without roles, whose blocks read, or write, each other's shared tiles, turn by turn."""

from __future__ import annotations

from hypothesis import strategies as st

from argus.ir.nodes import Kernel
from tests.asynchronous import kernel, mistake

LANES = "[32 | t 32@0 | v]"
MEET = "barrier scope cluster"


@st.composite
def peers(draw: st.DrawFn, right: bool | None = None) -> Kernel:
    """Each block hands its part of a row to another one, or takes that one's; with one buffer or two."""
    cluster, stages = draw(st.sampled_from([2, 2, 3])), draw(st.sampled_from([1, 2]))
    writes, distance = draw(st.booleans()), draw(st.integers(1, cluster - 1))
    wrong = mistake(draw, right, "before", "between", "turn", "end", "block", "peer", "buffer", "lane")
    rank, group = f"program_id(0) % {cluster}", f"program_id(0) // {cluster}"
    near, far = f"({rank} + {distance}) % {cluster}", f"({rank} + {cluster - distance}) % {cluster}"
    other = "0" if wrong == "peer" else near
    at, lane = f"i % {stages}", draw(st.sampled_from(["c0", "c0 ^ 1", "31 - c0"]))
    read = "0" if wrong == "buffer" else at
    own = "barrier" if wrong == "block" else MEET
    source = far if writes else near
    shown = f"{group}, i, {source}, {'c0' if wrong == 'lane' else lane}"
    stored, loaded = (f" block {other}", "") if writes else ("", f" block {other}")
    via = [".cluster" if peer else "" for peer in (stored, loaded)]
    again = MEET if stages == 1 or draw(st.booleans()) else ""
    body = [
        f"tag x[2, T, {cluster}, 32] = {{g = c0, t = c1, r = c2, l = c3}}",
        MEET if writes and wrong != "before" else "",
        "for i in 0 .. T step 1 {",
        f"copy a[c0] <- x[{group}, i, {rank}, c0] shape 32 layout {LANES} via ld.global",
        f"copy s[{at}, 0, c0]{stored} <- a[c0] shape 32 layout {LANES} via st.shared{via[0]}",
        "" if wrong == "between" else own,
        f"copy b[c0] <- s[{read}, 0, {lane}]{loaded} shape 32 layout {LANES} via ld.shared{via[1]}",
        f"assert (l) in 32 {{b[c0] carries [{shown}]}}",
        f"copy out[{group}, i, {rank}, c0] <- b[c0] shape 32 layout {LANES} via st.global",
        "" if wrong == "turn" else again,
        "}",
        "" if wrong == "end" else MEET,
    ]
    head = [
        "size T",
        *(
            f"tensor {name}: float32[2, T, {cluster}, 32] strides [{name}.a:int64, {32 * cluster}:int64, 32:int64,"
            " 1:int64] align 4"
            for name in ("x", "out")
        ),
        f"grid [{2 * cluster}] cluster {cluster}",
        "requires T < 40",
        f"shared s: float32 {stages}x1x32 layout ({stages},1,32):(32,32,1) at 0",
        f"fragment a: float32 32 layout {LANES}",
        f"fragment b: float32 32 layout {LANES}",
    ]
    return kernel("peers", "sm_90a", 1, head, body)
