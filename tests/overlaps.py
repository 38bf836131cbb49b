"""Random kernels in which elements of one statement share cells, in every memory."""

from __future__ import annotations

from hypothesis import strategies as st

from argus.ir.nodes import Kernel
from tests.asynchronous import kernel

SPREADS = ("[128 | t 32@0*4 | v 4@0]", "[128 | t 32@0 | v 4@0*32]", "[128 | t 32@0*4 | v 2@0*2 2@0]")
"""How 128 elements are spread over a warp; the last one visits a thread's elements out of order."""
_CELLS = (
    "c0",
    "c0 ^ 1",
    "127 - c0",
    "c0 // 4",
    "c0 % 64",
    "c0 // 2 * 2",
    "c0 - c0 % 4 // 3",
    "c0 // 64 * 64 + c0 % 32",
)
_SOURCES = ("c0", "c0 // 4 * 4", "c0 // 2 * 2", "c0 % 64", "c0 % 32", "7")
_MASKS = ("", "", "c0 % 4 == 1", "c0 % 2 == 0", "c0 < 64", "c0 % 4 <= 1", "c0 % 64 < 32")


def _head(spread: str, *shared: str) -> list[str]:
    tensors = [f"tensor {name}: float32[128] strides [1:int64] align 16" for name in ("x", "out")]
    return [*tensors, "grid [1]", *shared, *(f"fragment {name}: float32 128 layout {spread}" for name in ("a", "b"))]


@st.composite
def overlaps(draw: st.DrawFn) -> Kernel:
    """A tile in shared memory, or a tensor, is written by one statement, whose elements may share cells."""
    spread, cell = draw(st.sampled_from(SPREADS)), draw(st.sampled_from(_CELLS))
    mask = draw(st.sampled_from(_MASKS))
    guard, at = f"if {mask}" if mask else "", f"layout {spread} via"
    source = draw(st.sampled_from(_SOURCES))
    way = draw(st.sampled_from(["shared", "asynchronous", "tensor", "atomic"]))
    fill = f"copy s[c0] <- b[c0] shape 128 {at} st.shared"
    load = f"copy a[c0] <- x[{source}] shape 128 {at} ld.global"
    finish = [f"copy b[c0] <- s[c0] shape 128 {at} ld.shared", f"copy out[c0] <- b[c0] shape 128 {at} st.global"]
    start = [f"map b[c0] = 0.0 shape 128 layout {spread} scope thread", fill, "barrier"]
    if way == "shared":
        write = [load, f"copy s[{cell}] <- a[c0] shape 128 {guard} {at} st.shared", "barrier"]
    elif way == "asynchronous":
        padded = f"{guard} else 0.0" if guard else ""
        copy = f"copy s[{cell}] <- x[{source}] shape 128 {padded} {at} cp.async"
        write = [copy, "commit_group", "wait_group 0", "barrier"]
    elif way == "tensor":
        start, write, finish = [], [load, f"copy out[{cell}] <- a[c0] shape 128 {guard} {at} st.global"], []
    else:
        add = f"accumulate out[{cell}] add a[c0] shape 128 layout {spread} scope thread via red.global"
        start, write, finish = [], [load, add], []
    head = _head(spread, "shared s: float32 128 layout 128:1 at 0")
    return kernel("overlaps", "sm_80", 1, head, [*start, *write, *finish])


@st.composite
def own_overlaps(draw: st.DrawFn) -> Kernel:
    """Registers are written by one statement, whose elements may share cells of their thread."""
    spread = SPREADS[0]
    cell = draw(st.sampled_from(["c0", "c0 ^ 1", "c0 // 2 * 2", "c0 - c0 % 4 // 3", "c0 // 4 * 4 + 3 - c0 % 4"]))
    value = draw(st.sampled_from(["a[c0]", "a[c0 // 4 * 4]", "1.0", "a[c0] * 2.0", "b[c0] + a[c0]", "a[c0 // 2 * 2]"]))
    source = draw(st.sampled_from(_SOURCES))
    way = draw(st.sampled_from(["map", "copy", "sum"]))
    write = {
        "map": f"map b[{cell}] = {value} shape 128 layout {spread} scope thread",
        "copy": f"copy b[{cell}] <- x[{source}] shape 128 layout {spread} via ld.global",
        "sum": f"accumulate b[{cell}] add a[c0] shape 128 layout {spread} scope thread",
    }[way]
    body = [
        f"copy a[c0] <- x[c0] shape 128 layout {spread} via ld.global",
        f"map b[c0] = 0.0 shape 128 layout {spread} scope thread",
        write,
        f"copy out[c0] <- b[c0] shape 128 layout {spread} via st.global",
    ]
    return kernel("own_overlaps", "sm_80", 1, _head(spread), body)


FAMILIES = (overlaps, own_overlaps)
"""The families that `tests.strategies` draws from."""
