"""Random kernels whose addresses, bounds or masks come from index tensors: rows by number, segments, pages, lengths."""

from __future__ import annotations

from hypothesis import strategies as st

from argus.ir.nodes import Kernel
from tests.asynchronous import kernel, mistake

_ALL = "layout [() | t 32@_ | v]"
_ROW = "layout [32 | t 32@0 | v]"
_LIVE = "program_id(0) * 8 + c0 < T"


def _head(*lines: str) -> list[str]:
    return ["size N", "size T", *lines, *(f"fragment {name}: float32 32 {_ROW}" for name in ("r", "q"))]


def _rows(name: str, extent: str = "N") -> str:
    return f"tensor {name}: float32[{extent}, 32] strides [32:int64, 1:int64] align 4"


@st.composite
def numbered_rows(draw: st.DrawFn, right: bool | None = None) -> Kernel:
    """One row a block, changed in place where the row's number is loaded: right if no number occurs twice."""
    wrong = mistake(draw, right, "fact", "place", "range", "grid")
    fact = {"fact": ""}.get(wrong, draw(st.sampled_from(["distinct index", "permutation index"])))
    place = {"place": draw(st.sampled_from(["program_id(0) // 2", "0"]))}.get(wrong, "program_id(0)")
    high = "N + 1" if wrong == "range" else "N"
    column = draw(st.sampled_from(["c0", "31 - c0"]))
    body = [
        f"copy at[] <- index[{place}] shape () {_ALL} via ld.global",
        f"copy r[c0] <- x[at[], {column}] shape 32 {_ROW} via ld.global",
        f"map q[c0] = r[c0] + r[c0] shape 32 {_ROW} scope thread",
        f"copy x[at[], {column}] <- q[c0] shape 32 {_ROW} via st.global",
    ]
    head = _head(
        _rows("x"),
        "tensor index: int32[T] strides [1:int64] align 4",
        f"grid [{'T + 1' if wrong == 'grid' else 'T'}]",
        fact,
        "requires T == N" if fact == "permutation index" else f"in_range index from 0 to {high}",
        f"fragment at: int32 () {_ALL}",
    )
    return kernel("numbered_rows", "sm_80", 1, head, body)


@st.composite
def scattered_tiles(draw: st.DrawFn, right: bool | None = None) -> Kernel:
    """A tile of rows goes to the rows that an index tensor names, straight or through shared memory."""
    wrong = mistake(draw, right, "fact", "mask", "range", "barrier", "row")
    spread, few = "layout [8x16 | t 8@1 4@0 | v 2@1*8 2@0*4]", "layout [8 | t 8@_ 4@0 | v 2@0*4]"
    mask = "" if wrong == "mask" else f"if {_LIVE}"
    low = "-1" if wrong == "range" else "0"
    through = [
        f"copy s[c0, c1] <- r[c0, c1] shape 8x16 {spread} via st.shared",
        "" if wrong == "barrier" else "barrier",
        f"copy r[c0, c1] <- s[c0, 15 - c1] shape 8x16 {spread} via ld.shared",
    ]
    row = "at[c0 // 2 * 2]" if wrong == "row" else "at[c0]"
    shared = wrong == "barrier" or draw(st.booleans())
    body = [
        f"copy at[c0] <- index[program_id(0) * 8 + c0] shape 8 if {_LIVE} else 0 {few} via ld.global",
        f"copy r[c0, c1] <- x[program_id(0) * 8 + c0, c1] shape 8x16 if {_LIVE} else 0.0 {spread} via ld.global",
        *(through if shared else ()),
        f"copy out[{row}, c1] <- r[c0, c1] shape 8x16 {mask} {spread} via st.global",
    ]
    head = [
        "size N",
        "size T",
        "tensor x: float32[T, 16] strides [16:int64, 1:int64] align 4",
        "tensor index: int32[T] strides [1:int64] align 4",
        "tensor out: float32[N, 16] strides [16:int64, 1:int64] align 4",
        "grid [(T + 7) // 8]",
        "" if wrong == "fact" else draw(st.sampled_from(["distinct index", "permutation index"])),
        "requires T == N",
        f"in_range index from {low} to N",
        "shared s: float32 8x16 layout (8,16):(16,1) at 0",
        f"fragment at: int32 8 {few}",
        f"fragment r: float32 8x16 {spread}",
    ]
    return kernel("scattered_tiles", "sm_80", 1, head, body)


@st.composite
def segments(draw: st.DrawFn, right: bool | None = None) -> Kernel:
    """Each block has the rows between two offsets: it changes them in place, or adds them up."""
    wrong = mistake(draw, right, "fact", "long", "early", "total", "shared")
    fact = {"fact": "in_range cuts from 0 to N + 1", "total": "offsets cuts to N + 1"}.get(wrong, "offsets cuts to N")
    first, last = draw(st.sampled_from([("lo[]", "hi[]"), ("lo[] + 0", "hi[]")]))
    last = "hi[] + 1" if wrong == "long" else last
    first = "lo[] - 1" if wrong == "early" else first
    if draw(st.booleans()):
        work = [f"map q[c0] = r[c0] + r[c0] shape 32 {_ROW} scope thread"]
        store, after = [f"copy x[r0, c0] <- q[c0] shape 32 {_ROW} via st.global"], []
    else:
        work, store = [f"accumulate q[c0] add r[c0] shape 32 {_ROW} scope thread"], []
        target = "0" if wrong == "shared" else "program_id(0)"
        after = [f"copy out[{target}, c0] <- q[c0] shape 32 {_ROW} via st.global"]
    body = [
        f"copy lo[] <- cuts[program_id(0)] shape () {_ALL} via ld.global",
        f"copy hi[] <- cuts[program_id(0) + 1] shape () {_ALL} via ld.global",
        f"map q[c0] = 0.0 shape 32 {_ROW} scope thread",
        f"for r0 in {first} .. {last} step 1 {{",
        f"copy r[c0] <- x[r0, c0] shape 32 {_ROW} via ld.global",
        *work,
        *store,
        "}",
        *after,
    ]
    head = _head(
        *(["size S", _rows("out", "S")] if after else []),
        _rows("x"),
        "tensor cuts: int32[T] strides [1:int64] align 4",
        "grid [S]" if after else "grid [T - 1]",
        fact,
        f"requires ({'T == S + 1' if after else 'T > 0'}) & (N < 1073741824)",
        *(f"fragment {name}: int32 () {_ALL}" for name in ("lo", "hi")),
    )
    return kernel("segments", "sm_80", 1, head, body)


@st.composite
def pages(draw: st.DrawFn, right: bool | None = None) -> Kernel:
    """Rows of a paged store are added up for each program: their pages and their number are loaded."""
    size, wrong = draw(st.sampled_from([2, 8])), mistake(draw, right, "lengths", "pages", "page", "row", "tail")
    longest = {"lengths": f"P * {size} + 2"}.get(wrong, f"P * {size} + 1")
    high = "N + 1" if wrong == "pages" else "N"
    page = f"j // {size // 2 if wrong == 'page' else size}"
    row = f"j % {size} + 1" if wrong == "row" else draw(st.sampled_from([f"j % {size}", f"{size - 1} - j % {size}"]))
    body = [
        f"copy n[] <- lens[program_id(0)] shape () {_ALL} via ld.global",
        f"map q[c0] = 0.0 shape 32 {_ROW} scope thread",
        f"for j in 0 .. {'n[] + 1' if wrong == 'tail' else 'n[]'} step 1 {{",
        f"copy p[] <- table[program_id(0), {page}] shape () {_ALL} via ld.global",
        f"copy r[c0] <- x[p[], {row}, c0] shape 32 {_ROW} via ld.global",
        f"accumulate q[c0] add r[c0] shape 32 {_ROW} scope thread",
        "}",
        f"copy out[program_id(0), c0] <- q[c0] shape 32 {_ROW} via st.global",
    ]
    head = _head(
        "size P",
        f"tensor x: float32[N, {size}, 32] strides [{size * 32}:int64, 32:int64, 1:int64] align 4",
        "tensor table: int32[T, P] strides [table.stride0:int64, 1:int64] align 4",
        "tensor lens: int32[T] strides [1:int64] align 4",
        _rows("out", "T"),
        "grid [T]",
        f"in_range table from 0 to {high}",
        f"in_range lens from 0 to {longest}",
        *(f"fragment {name}: int32 () {_ALL}" for name in ("n", "p")),
    )
    return kernel("pages", "sm_80", 1, head, body)


@st.composite
def lengths(draw: st.DrawFn, right: bool | None = None) -> Kernel:
    """Rows are as long as a tensor says; what is behind a row's end is filled, and pairs of lanes change places."""
    wrong = mistake(draw, right, "range", "mask", "barrier", "place")
    inside = {"mask": "c0 <= n[]"}.get(wrong, "c0 < n[]")
    lane = draw(st.sampled_from(["31 - c0", "c0 ^ 1"]))
    body = [
        f"copy n[] <- lens[program_id(0)] shape () {_ALL} via ld.global",
        f"copy r[c0] <- x[program_id(0), c0] shape 32 if {inside} else 0.0 {_ROW} via ld.global",
        f"if n[] {draw(st.sampled_from(['> 0', '>= 0', '> 40']))} {{",
        f"copy s[c0] <- r[c0] shape 32 {_ROW} via st.shared",
        "" if wrong == "barrier" else "barrier",
        f"copy r[c0] <- s[{lane}] shape 32 {_ROW} via ld.shared",
        "}",
        f"copy out[program_id(0), {'n[] - c0' if wrong == 'place' else 'c0'}] <- r[c0] shape 32 {_ROW} via st.global",
    ]
    head = [
        "size T",
        _rows("x", "T"),
        _rows("out", "T"),
        "tensor lens: int32[T] strides [1:int64] align 4",
        "grid [T]",
        f"in_range lens from 0 to {'T' if wrong == 'range' else 33}",
        "shared s: float32 32 layout 32:1 at 0",
        f"fragment n: int32 () {_ALL}",
        f"fragment r: float32 32 {_ROW}",
    ]
    return kernel("lengths", "sm_80", 1, head, body)


@st.composite
def fetched_rows(draw: st.DrawFn, right: bool | None = None) -> Kernel:
    """Rows that are named one by one come by asynchronous copies, `stages` buffers of them."""
    stages, wrong = draw(st.sampled_from([2, 3])), mistake(draw, right, "wait", "barrier", "range", "slot", "ahead")
    ahead, via = stages - 1, f"{_ROW} via cp.async"

    def fetch(number: str, slot: str, row: str) -> list[str]:
        known = f"if {number} < T"
        return [
            f"copy {row}[] <- index[{number}] shape () {known} else 0 {_ALL} via ld.global",
            f"copy s[{slot}, c0] <- x[{row}[], c0] shape 32 {known} else 0.0 {via}",
            "commit_group",
        ]

    late = ahead - 1 if wrong == "ahead" else ahead
    lane = draw(st.sampled_from(["c0 ^ 1", "31 - c0"]))
    body = [
        *(line for p in range(ahead) for line in fetch(str(p), str(p), f"at{p}")),
        "for i in 0 .. T step 1 {",
        f"wait_group {stages - 1 if wrong == 'wait' else stages - 2}",
        "" if wrong == "barrier" else "barrier",
        *fetch(f"i + {late}", f"(i + {late + (wrong == 'slot')}) % {stages}", "at"),
        f"copy r[c0] <- s[i % {stages}, {lane}] shape 32 {_ROW} via ld.shared",
        f"copy out[i, c0] <- r[c0] shape 32 {_ROW} via st.global",
        "}",
    ]
    head = _head(
        _rows("x"),
        _rows("out", "T"),
        "tensor index: int32[T] strides [1:int64] align 4",
        "grid [1]",
        f"in_range index from 0 to {'N + 1' if wrong == 'range' else 'N'}",
        "requires N > 0",
        f"shared s: float32 {stages}x32 layout ({stages},32):(32,1) at 0",
        *(f"fragment {name}: int32 () {_ALL}" for name in ("at", *(f"at{p}" for p in range(ahead)))),
    )
    return kernel("fetched_rows", "sm_80", 1, head, body)


@st.composite
def counted_rows(draw: st.DrawFn, right: bool | None = None) -> Kernel:
    """Rows are added up atomically where an index tensor says, so no fact about it is needed but its range."""
    wrong = mistake(draw, right, "range", "plain", "grid")
    high = {"range": "N + 1"}.get(wrong, "N")
    add = f"accumulate out[at[], c0] add r[c0] shape 32 {_ROW} scope thread via red.global"
    body = [
        f"copy at[] <- index[program_id(0)] shape () {_ALL} via ld.global",
        f"copy r[c0] <- x[program_id(0), c0] shape 32 {_ROW} via ld.global",
        f"copy out[at[], c0] <- r[c0] shape 32 {_ROW} via st.global" if wrong == "plain" else add,
    ]
    head = _head(
        _rows("x", "T"),
        _rows("out"),
        "tensor index: int32[T] strides [1:int64] align 4",
        f"grid [{'T + 1' if wrong == 'grid' else 'T'}]",
        f"in_range index from 0 to {high}",
        f"fragment at: int32 () {_ALL}",
    )
    return kernel("counted_rows", "sm_80", 1, head, body)


FAMILIES = (numbered_rows, scattered_tiles, segments, pages, lengths, fetched_rows, counted_rows)
"""The families that `tests.strategies` draws from."""
