"""Random asynchronous kernels: roles that pass tiles on through rings of mbarriers, or at named barriers.

Each family draws its number of stages, the way its trip count is written, who releases a buffer and when; about one
kernel in four has one mistake. Tiles are as small as the instructions allow: a bulk copy brings rows of 128 bytes, 8
at a time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import lcm

from hypothesis import strategies as st

from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel

ROWS = {1: "[8x32 | t 32@1 | v 8@0]", 2: "[8x32 | t 32@1 2@0*4 | v 4@0]", 4: "[8x32 | t 32@1 4@0*2 | v 2@0]"}
"""Layouts of a float32 tile of 8 rows of 128 bytes, by warps."""
BOX_BYTES = 1024


def kernel(family: str, target: str, warps: int, head: list[str], body: list[str]) -> Kernel:
    """The kernel of these lines, its mbarriers initialised before its roles; empty lines count for nothing."""
    first = [f"kernel {family}", f"target {target}", f"warps {warps} of 32"]
    made = [f"mbarrier_init {line.split()[1]}" for line in head if line.startswith("mbarrier ")]
    start = [*made, "mbarrier_fence", "barrier"] if made else []
    begun = [part for line in body for part in ((*start, line) if line == "roles {" else (line,))]
    lines = [*first, *head, "body {", *begun, "}"]
    return parse_kernel("\n".join(line for line in lines if line) + "\n")


def mistake(draw: st.DrawFn, right: bool | None, *kinds: str) -> str:
    """The one thing that is wrong: "" if the kernel shall be `right`, and three times out of four if that is None."""
    right = draw(st.integers(0, 3)) != 0 if right is None else right
    return "" if right else draw(st.sampled_from(kinds))


def slip(draw: st.DrawFn, right: bool | None, chance: int) -> bool:
    """Whether something more is wrong: once in `chance` times, and never if the kernel shall be `right`."""
    return not right and draw(st.integers(0, chance - 1)) == 0


# ---------------------------------------------------------------------------- rings and trip counts


@dataclass(frozen=True)
class Ring:
    """`stages` buffers, gone through by iteration `count`: barriers `f<name>` (filled) and `e<name>` (empty)."""

    name: str
    stages: int
    count: str

    @property
    def slot(self) -> str:
        return f"({self.count}) % {self.stages}"

    def wait_filled(self, parity: int = 0) -> str:
        return f"mbarrier_wait f{self.name}[{self.slot}] parity (({self.count}) // {self.stages} + {parity}) % 2"

    def wait_empty(self, parity: int = 1) -> str:
        return f"mbarrier_wait e{self.name}[{self.slot}] parity (({self.count}) // {self.stages} + {parity}) % 2"

    def expect(self, count: int) -> str:
        return f"mbarrier_expect f{self.name}[{self.slot}] bytes {count}"

    @property
    def signal(self) -> str:
        return f"signal f{self.name}[{self.slot}]"

    @property
    def filled(self) -> str:
        return f"mbarrier_arrive f{self.name}[{self.slot}]"

    @property
    def release(self) -> str:
        return f"mbarrier_arrive e{self.name}[{self.slot}]"

    def release_previous(self, loop: Trips) -> list[str]:
        before = f"mbarrier_arrive e{self.name}[({self.count} + {self.stages - 1}) % {self.stages}]"
        return [f"if {loop.later(1)} {{", before, "}"]

    def release_last(self, loop: Trips, fence: str = "") -> list[str]:
        """With the end of the loop its last buffer is free as well, where others come after it."""
        return [f"if {loop.last} {{", fence, self.release, "}"] if loop.last else []

    def barriers(self, filled: int, empty: int, at: int) -> list[str]:
        """Declarations at byte `at`: arrivals that fill a stage, and arrivals that free one."""
        return [
            f"mbarrier f{self.name} count {self.stages} arrivals {filled} at {at}",
            f"mbarrier e{self.name} count {self.stages} arrivals {empty} at {at + 8 * self.stages}",
        ]


@dataclass(frozen=True)
class Trips:
    """A loop over tiles of `tile` rows of N: its head, the number of the iteration, the first row of its tile.

    `time`: the number of the iteration, however long the loop runs; `count` may be known modulo twice the stages only.
    `last`: whether this is the last iteration, where all buffers have to be free at the end.
    """

    head: str
    count: str
    row: str
    requires: str = ""
    time: str = ""
    last: str = ""

    def later(self, iterations: int) -> str:
        """Whether so many iterations came before."""
        return f"{self.time or self.count} >= {iterations}"

    @property
    def whole(self) -> bool:
        """Whether it covers N."""
        return "steps" not in self.head and ".. T" not in self.head

    @property
    def shorter(self) -> Trips:
        """The loop of a role that does not agree with the others."""
        start, stop = self.head.split(" .. ", 1)
        return replace(self, head=f"{start} .. {stop.replace(' step', ' - 1 step', 1)}")


def trips(
    draw: st.DrawFn, right: bool | None, tile: int, stages: list[int], data: bool = False, programs: bool = False
) -> Trips:
    """A loop over N, in one of the ways to write it. `data`: it may also run as long as a tensor or argument says.

    In one of several `programs` of a block the rings go on where they are: only a running count knows that.
    """
    kinds = ["step", "step", "tiles", "shifted", "constant", "counted", *(["data", "argument"] if data else [])]
    kind = draw(st.sampled_from(kinds))
    if programs:
        kind = "counted" if not slip(draw, right, 5) else draw(st.sampled_from(["step", "constant"]))
    match kind:
        case "step":
            return Trips(f"for n in 0 .. N step {tile} {{", f"n // {tile}", "n")
        case "tiles":
            return Trips(f"for n in 0 .. (N + {tile - 1}) // {tile} step 1 {{", "n", f"n * {tile}")
        case "shifted":
            return Trips(f"for n in {tile} .. N + {tile} step {tile} {{", f"(n - {tile}) // {tile}", f"n - {tile}")
        case "counted":
            wrap = 2 * lcm(*stages) * draw(st.integers(1, 2)) + slip(draw, right, 40)
            last = f"n + {tile} >= N" if programs and not slip(draw, right, 8) else ""
            time = f"n // {tile}"  # the count alone forgets its rounds
            return Trips(f"for n in 0 .. N step {tile} counter i wrap {wrap} {{", "i", "n", time=time, last=last)
        case "constant":
            most = draw(st.sampled_from([1, 2, 3, 5] if right else [0, 1, 2, 3, 5]))
            return Trips(f"for n in 0 .. {most} step 1 {{", "n", f"n * {tile}", f"requires N <= {most * tile}")
        case "data":
            return Trips("for n in 0 .. steps[] step 1 {", "n", f"n * {tile}")
        case _:
            return Trips("for n in 0 .. T step 1 {", "n", f"n * {tile}", "requires T <= 40")


def launched(
    draw: st.DrawFn, programs: bool, head: list[str], body: list[str], common: str = ""
) -> tuple[list[str], list[str]]:
    """The same for each of up to five programs, which have tensors of their own; else for the one of a grid [1].

    `programs`: one block may run several of them, one after the other, as a persistent kernel or in a loop of its own.
    `common`: a tensor whose tags do not say of which program it is.
    """
    if not programs and draw(st.integers(0, 3)):
        return head, body
    persistent = draw(st.booleans())
    around, number = ("programs {", "program_id(0)") if persistent else ("for o in 0 .. P step 1 {", "o")
    number = number if programs else "program_id(0)"
    tensor = re.compile(r"tensor (x|y|out\w*): (\w+)\[(.*?)\] strides \[(.*?)\]")
    grid = f"grid [{'1' if number == 'o' else 'P'}]{' persistent' if programs and persistent else ''}"
    changes = {"size N": "size N\nsize P", "grid [1]": f"{grid}\nrequires P <= 5"}
    first = [tensor.sub(r"tensor \1: \2[P, \3] strides [\1.outer:int64, \4]", changes.get(h, h)) for h in head]
    result = []
    depth, begins = 0, False
    for line in body:
        if begins and not line.startswith("barrier_arrive "):  # what comes once stands before the programs
            result.append(around)
            begins = False
        if line.startswith("tag "):
            shifted = line.replace("c1", "c2").replace("c0", "c1").replace("[", "[P, ", 1)
            result.append(shifted if line.startswith(f"tag {common}[") else shifted.replace("{", "{p = c0, ", 1))
            continue
        depth += line.endswith("{") - (line == "}")
        if programs and line == "}" and depth == 1:
            result.append("}")
        line = re.sub(r"\b(x|y|out\w*)\[", rf"\1[{number}, ", line)
        result.append(line.replace("carries [", f"carries [{number}, "))
        begins = begins or (programs and line.startswith("role "))
    return first, result


def role(name: str, warps: int, first: int, *lines: str) -> list[str]:
    """A role; `steps` is its own copy of the number of tiles that a tensor tells."""
    own = [line.replace("steps[]", f"steps_{name}[]") for line in lines]
    load = f"copy steps_{name}[] <- long[0] shape () layout {_everyone(warps)} via ld.global"
    return [f"role {name} warps {warps} from {first} {{", *([load] if own != [*lines] else []), *own, "}"]


def _everyone(warps: int) -> str:
    """The layout of one number that all threads hold."""
    return f"[() | t 32@_{f' {warps}@_' if warps > 1 else ''} | v]"


# ---------------------------------------------------------------------------- bulk copies, ordinary reads


@dataclass(frozen=True)
class Reader:
    """A role that reads tiles of 8 x 32 from a ring and brings them, or their sum, to tensor `out`.

    `fence`: what orders its reads with the bulk copies to come, if that is its duty.
    """

    name: str
    warps: int
    first: int
    out: str
    sums: bool
    release: str
    column: str
    fence: str = ""

    @property
    def layout(self) -> str:
        return ROWS[self.warps]

    def declared(self) -> list[str]:
        shape = "8, 32" if self.sums else "N, 32"
        return [f"tensor {self.out}: float32[{shape}] strides [32:int64, 1:int64] align 4"]

    def fragments(self) -> list[str]:
        tiles = ("r", "t") if self.sums else ("r",)
        return [f"fragment {tile}{self.name}: float32 8x32 layout {self.layout}" for tile in tiles]

    def lines(self, loop: Trips, ring: Ring, tile: str, wrong: str = "") -> list[str]:
        r, t, via = f"r{self.name}", f"t{self.name}", f"layout {self.layout}"
        read = f"copy {r}[c0, c1] <- {tile}[{ring.slot}, c0, {self.column}] shape 8x32 {via} via ld.shared"
        shown = f"assert (i, j) in 8x32 {{{r}[c0, c1] carries [{loop.row} + c0, {self.column}]}}"
        checked = f"{shown} where {loop.row} + c0 < N"
        if self.sums:
            used = f"map {t}[c0, c1] = {t}[c0, c1] + {r}[c0, c1] shape 8x32 {via} scope thread"
        else:
            masked = f"shape 8x32 if {loop.row} + c0 < N {via} via st.global"
            used = f"copy {self.out}[{loop.row} + c0, c1] <- {r}[c0, c1] {masked}"
        waits = [] if wrong == "no wait" else [ring.wait_filled(1 if wrong == "parity" else 0)]
        body = {
            "early": [*waits, read, self.fence, ring.release, checked, used],
            "end": [*waits, read, checked, used, self.fence, ring.release],
            "late": [*waits, *ring.release_previous(loop), read, self.fence, checked, used, *ring.release_last(loop)],
            "before": [*waits, self.fence, ring.release, read, checked, used],
            "never": [*waits, read, checked, used],
            "twice": [*waits, read, self.fence, ring.release, checked, used, ring.release],
        }[self.release]
        start = [f"map {t}[c0, c1] = 0.0 shape 8x32 {via} scope thread"] if self.sums else []
        end = [f"copy {self.out}[c0, c1] <- {t}[c0, c1] shape 8x32 {via} via st.global"] if self.sums else []
        return role(self.name, self.warps, self.first, *start, loop.head, *body, "}", *end)


def bring(ring: Ring, tile: str, source: str, loop: Trips) -> str:
    return (
        f"copy {tile}[{ring.slot}, c0, c1] <~ {source}[{loop.row} + c0, c1] shape 8x32 "
        f"if {loop.row} + c0 < N else 0.0 via tma.load {ring.signal}"
    )


def producer(first: int, loop: Trips, *lines: str) -> list[str]:
    return role("producer", 1, first, loop.head, *lines, "}")


def _stream_head(loop: Trips, readers: list[Reader], tiles: int) -> list[str]:
    return [
        "size N",
        *(["scalar T: int32"] if ".. T" in loop.head else []),
        *[f"tensor {x}: float32[N, 32] strides [32:int64, 1:int64] align 16" for x in ("x", "y")[:tiles]],
        *([] if "steps" not in loop.head else ["tensor long: int32[1] strides [1:int64] align 4"]),
        *[line for reader in readers for line in reader.declared()],
        "grid [1]",
        loop.requires,
        *([] if "steps" not in loop.head else ["in_range long from 0 to 6"]),
    ]


def _tags(tiles: int) -> list[str]:
    return [f"tag {x}[N, 32] = {{row = c0, lane = c1}}" for x in ("x", "y")[:tiles]]


def _steps(loop: Trips, readers: list[Reader]) -> list[str]:
    roles = [("producer", 1), *((reader.name, reader.warps) for reader in readers)] if "steps" in loop.head else []
    return [f"fragment steps_{name}: int32 () layout {_everyone(warps)}" for name, warps in roles]


def _tile(name: str, stages: int, at: int) -> str:
    return f"shared {name}: float32 {stages}x8x32 layout Sw<3,2,3> o 0 o ({stages},8,32):(256,32,1) at {at}"


def fences(draw: st.DrawFn, wrong: str) -> tuple[str, str]:
    """Lines for the readers and for the producer: one of them orders ordinary reads with the next bulk copy."""
    if wrong == "fence":
        return "", ""
    return draw(st.sampled_from([("proxy_fence", ""), ("proxy_fence", ""), ("", "proxy_fence")]))


RELEASES = st.sampled_from(["early", "early", "end", "end", "late"])
COLUMNS = st.sampled_from(["c1", "c1", "c1 ^ 1", "31 - c1"])


@st.composite
def streams(draw: st.DrawFn, right: bool | None = None) -> Kernel:
    """A producing warp and one to four readers' warps; one or two tiles a stage."""
    stages = draw(st.sampled_from([1, 2, 2, 3, 4]))
    sums, programs = draw(st.booleans()), draw(st.integers(0, 2)) == 0
    loop = trips(draw, right, 8, [stages], sums, programs)
    ring = Ring("", stages, loop.count)
    wrong = mistake(draw, right, "release", "no wait", "parity", "bytes", "overrun", "trips", "arrivals", "fence")
    release = draw(RELEASES) if wrong != "release" else draw(st.sampled_from(["before", "never", "twice"]))
    if stages == 1 and release == "late" and not slip(draw, right, 4):
        release = "end"
    theirs_to_fence, ours_to_fence = fences(draw, wrong)
    reader = Reader("reader", draw(st.sampled_from([1, 2, 4])), 0, "out", sums, release, draw(COLUMNS), theirs_to_fence)
    tiles = draw(st.sampled_from([1, 1, 2]))
    names = ("s", "u")[:tiles]
    theirs = loop.shorter if wrong == "trips" else loop
    wait = ring.wait_empty()
    waits = ["" if wrong == "overrun" else wait]
    if not (right and programs) and draw(st.integers(0, 3)) == 0:  # the first round finds all buffers empty
        waits = [f"if {loop.later(stages)} {{", *waits, "}"]
    fill = [bring(ring, tile, source, loop) for tile, source in zip(names, ("x", "y"), strict=False)]
    announce = ring.expect(BOX_BYTES * tiles - (16 if wrong == "bytes" else 0))
    filling = [ours_to_fence, *([announce, *fill] if draw(st.integers(0, 4)) else [*fill, announce])]
    body = reader.lines(loop, ring, draw(st.sampled_from(names)), wrong)
    roles = [producer(4, theirs, *waits, *filling), body]
    if draw(st.booleans()):
        roles.reverse()
    size = BOX_BYTES * stages
    head = [
        *_stream_head(loop, [reader], tiles),
        *[_tile(name, stages, size * number) for number, name in enumerate(names)],
        *ring.barriers(1, reader.warps + (wrong == "arrivals"), size * tiles),
        *reader.fragments(),
        *_steps(loop, [reader]),
    ]
    lines = [*_tags(tiles), "roles {", *roles[0], *roles[1], "}"]
    return kernel("streams", "sm_90a", 8, *launched(draw, programs, head, lines))


@st.composite
def shares(draw: st.DrawFn, right: bool | None = None) -> Kernel:
    """Two roles read what one produces, from one ring that both free, or from a ring each with its own stages."""
    sums, apart, programs = draw(st.booleans()), draw(st.booleans()), draw(st.integers(0, 2)) == 0
    stages = [draw(st.integers(1, 4)) for _ in range(2 if apart else 1)]
    loop = trips(draw, right, 8, stages, sums, programs)
    rings = [Ring(name, n, loop.count) for name, n in zip(("", "z"), stages, strict=False)]
    wrong = mistake(draw, right, "release", "no wait", "parity", "trips", "arrivals", "overrun", "fence")
    release = [draw(RELEASES), draw(RELEASES)]
    for number in range(2):
        if rings[number % len(rings)].stages == 1:
            release[number] = "end"
    if wrong == "release":
        release[draw(st.integers(0, 1))] = draw(st.sampled_from(["before", "never", "twice"]))
    warps = [draw(st.sampled_from([1, 2, 4])) for _ in range(2)]
    theirs_to_fence, ours_to_fence = fences(draw, wrong)
    readers = [
        Reader(name, warps[n], 4 * n, f"out{n}", sums, release[n], draw(COLUMNS), theirs_to_fence)
        for n, name in enumerate(("left", "right"))
    ]
    names = ("s", "u")[: len(rings)]
    fill = []
    for number, (ring, tile, source) in enumerate(zip(rings, names, ("x", "y"), strict=False)):
        skip = wrong == "overrun" and number == len(rings) - 1
        wait = "" if skip else ring.wait_empty()
        fill += [wait, ours_to_fence, ring.expect(BOX_BYTES), bring(ring, tile, source, loop)]
    offsets = [0, BOX_BYTES * rings[0].stages]
    at = BOX_BYTES * sum(stages)
    more = int(wrong == "arrivals")
    freed = [(warps[0], 0), (warps[1], 80)] if apart else [(sum(warps), 0)]
    head = [
        *_stream_head(loop, readers, len(rings)),
        *[_tile(name, ring.stages, offset) for name, ring, offset in zip(names, rings, offsets, strict=False)],
        *[
            line
            for ring, (count, past) in zip(rings, freed, strict=True)
            for line in ring.barriers(1, count + more, at + past)
        ],
        *[line for reader in readers for line in reader.fragments()],
        *_steps(loop, readers),
    ]
    theirs = [loop, loop.shorter if wrong == "trips" else loop]
    bodies = [
        reader.lines(theirs[n], rings[n % len(rings)], names[n % len(names)], wrong if n else "")
        for n, reader in enumerate(readers)
    ]
    roles = [producer(8, loop, *fill), *bodies]
    lines = [*_tags(len(rings)), "roles {", *[line for part in roles for line in part], "}"]
    return kernel("shares", "sm_90a", 12, *launched(draw, programs, head, lines))


# ---------------------------------------------------------------------------- results passed on from role to role


@st.composite
def relays(draw: st.DrawFn, right: bool | None = None) -> Kernel:
    """A role doubles what it loads, or what bulk copies bring it, and passes it on to another one through `t`."""
    bulk, programs = draw(st.booleans()), draw(st.integers(0, 2)) == 0
    stages, passed = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    loop = trips(draw, right, 8, [stages, passed], programs=programs)
    ring, onward = Ring("", stages, loop.count), Ring("t", passed, loop.count)
    wrong = mistake(draw, right, "release", "no wait", "parity", "trips", "arrivals", "early", "overrun", "fence")
    theirs_to_fence, ours_to_fence = fences(draw, wrong)
    warps = [draw(st.sampled_from([1, 2, 4])) for _ in range(2)]
    via = f"layout {ROWS[warps[0]]}"
    release = draw(st.sampled_from(["before", "never", "twice"])) if wrong == "release" else draw(RELEASES)
    release = "end" if passed == 1 and release == "late" else release
    reader = Reader("last", warps[1], 4, "out", False, release, draw(COLUMNS))
    load = f"copy v[c0, c1] <- x[{loop.row} + c0, c1] shape 8x32 if {loop.row} + c0 < N else 0.0 {via} via ld.global"
    fetch = [load]
    if bulk:
        fetch = [
            ring.wait_filled(),
            f"copy v[c0, c1] <- s[{ring.slot}, c0, c1] shape 8x32 {via} via ld.shared",
            theirs_to_fence,
            ring.release,
        ]
    double = f"map v[c0, c1] = v[c0, c1] + v[c0, c1] shape 8x32 {via} scope thread"
    store = f"copy t[{onward.slot}, c0, c1] <- v[c0, c1] shape 8x32 {via} via st.shared"
    hand = [store, onward.filled] if wrong != "early" else [onward.filled, store]
    free = ["" if wrong == "overrun" else onward.wait_empty()]
    first = [*free, *fetch, double, *hand] if draw(st.booleans()) else [*fetch, double, *free, *hand]
    roles = [
        role("middle", warps[0], 0, loop.head, *first, "}"),
        reader.lines(loop.shorter if wrong == "trips" else loop, onward, "t", wrong),
    ]
    if bulk:
        filling = [ring.wait_empty(), ours_to_fence, ring.expect(BOX_BYTES), bring(ring, "s", "x", loop)]
        roles.insert(0, producer(8, loop, *filling))
    elif draw(st.booleans()):
        roles.reverse()
    at = BOX_BYTES * (stages + passed)
    row = draw(st.sampled_from(["(256,32,1)", "(272,33,1)"]))
    head = [
        *_stream_head(loop, [reader], 1),
        *([_tile("s", stages, 0)] if bulk else []),
        f"shared t: float32 {passed}x8x32 layout ({passed},8,32):{row} at {BOX_BYTES * stages}",
        *(ring.barriers(1, warps[0], at + 512) if bulk else []),
        *onward.barriers(warps[0], warps[1] + (wrong == "arrivals"), at + 600),
        *reader.fragments(),
        f"fragment v: float32 8x32 layout {ROWS[warps[0]]}",
    ]
    lines = [*_tags(1), "roles {", *[line for part in roles for line in part], "}"]
    return kernel("relays", "sm_90a", 12, *launched(draw, programs, head, lines))


@st.composite
def handovers(draw: st.DrawFn, right: bool | None = None) -> Kernel:
    """A role passes tiles on to another one through `t`: one barrier says that it is full, another that it is free."""
    programs = draw(st.integers(0, 2)) == 0
    loop = trips(draw, right, 8, [1], programs=programs)
    warps = [draw(st.sampled_from([1, 2, 4])) for _ in range(2)]
    count = 32 * sum(warps)
    kinds = ("unread", "unfree", "not given", "not taken", "early", "count", "first", "twice", "trips", "exchanged")
    wrong = mistake(draw, right, *kinds, "waits", "before")
    full, free = (4, 3) if wrong == "exchanged" else (3, 4)
    reader = Reader("last", warps[1], 4, "out", False, "end", draw(COLUMNS))
    via, back = f"layout {ROWS[warps[0]]}", f"layout {reader.layout}"
    load = f"copy v[c0, c1] <- x[{loop.row} + c0, c1] shape 8x32 if {loop.row} + c0 < N else 0.0 {via} via ld.global"
    store = f"copy t[c0, c1] <- v[c0, c1] shape 8x32 {via} via st.shared"
    arrives = f"barrier_arrive {free} count {count}"
    waits = {"unfree": "", "waits": arrives}.get(wrong, f"barrier_sync 4 count {count}")
    gives = "" if wrong == "not given" else f"barrier_arrive 3 count {count - 32 * (wrong == 'count')}"
    if wrong != "count" and draw(st.integers(0, 7)) == 0:
        gives = gives.replace("arrive", "sync")  # the writer waits for the reader, though it need not
    fill = [gives, store] if wrong == "before" else [store, gives]
    first = [waits, load, *fill] if draw(st.booleans()) else [load, waits, *fill]
    read = f"copy rlast[c0, c1] <- t[c0, {reader.column}] shape 8x32 {back} via ld.shared"
    shown = f"assert (i, j) in 8x32 {{rlast[c0, c1] carries [{loop.row} + c0, {reader.column}]}}"
    used = f"copy out[{loop.row} + c0, c1] <- rlast[c0, c1] shape 8x32 if {loop.row} + c0 < N {back} via st.global"
    checked = [f"{shown} where {loop.row} + c0 < N", used]
    taken = "" if wrong == "not taken" else arrives
    awaited = "" if wrong == "unread" else f"barrier_sync {full} count {count}"
    body = [awaited, taken, read, *checked] if wrong == "early" else [awaited, read, taken, *checked]
    body = body if draw(st.booleans()) or wrong == "early" else [awaited, read, *checked, taken]
    start = {"first": [], "twice": [arrives, arrives]}.get(wrong, [arrives])
    theirs = loop.shorter if wrong == "trips" else loop
    roles = [
        role("first", warps[0], 0, loop.head, *first, "}"),
        role("last", warps[1], 4, *start, theirs.head, *body, "}"),
    ]
    if draw(st.booleans()):
        roles.reverse()
    head = [
        *_stream_head(loop, [reader], 1),
        f"shared t: float32 8x32 layout (8,32):{draw(st.sampled_from(['(32,1)', '(33,1)']))} at 0",
        *reader.fragments(),
        f"fragment v: float32 8x32 layout {ROWS[warps[0]]}",
    ]
    lines = [*_tags(1), "roles {", *[line for part in roles for line in part], "}"]
    return kernel("handovers", "sm_90a", 8, *launched(draw, programs, head, lines))


@st.composite
def exchanges(draw: st.DrawFn, right: bool | None = None) -> Kernel:
    """Two roles write a tile each, meet, read the other's, and meet again before they write the next."""
    programs = draw(st.integers(0, 2)) == 0
    loop = trips(draw, right, 8, [1], programs=programs)
    warps = [draw(st.sampled_from([1, 2, 4])) for _ in range(2)]
    count = 32 * sum(warps)
    wrong = mistake(
        draw, right, "no first", "no second", "arrive first", "arrive second", "exchanged", "count", "trips", "early"
    )
    readers = [
        Reader(n, warps[i], 4 * i, f"out{i}", False, "end", draw(COLUMNS)) for i, n in enumerate(("left", "right"))
    ]
    bodies = []
    for i, reader in enumerate(readers):
        own, other, via = "su"[i], "us"[i], f"layout {reader.layout}"
        source, inside = "xy"[i], f"{loop.row} + c0 < N"
        load = f"copy v{i}[c0, c1] <- {source}[{loop.row} + c0, c1] shape 8x32 if {inside} else 0.0 {via} via ld.global"
        store = f"copy {own}[c0, c1] <- v{i}[c0, c1] shape 8x32 {via} via st.shared"
        read = f"copy r{reader.name}[c0, c1] <- {other}[c0, {reader.column}] shape 8x32 {via} via ld.shared"
        carried = f"{{r{reader.name}[c0, c1] carries [{loop.row} + c0, {reader.column}]}}"
        shown = f"assert (i, j) in 8x32 {carried} where {inside}"
        used = f"copy out{i}[{loop.row} + c0, c1] <- r{reader.name}[c0, c1] shape 8x32 if {inside} {via} via st.global"
        meets = [f"barrier_sync {n} count {count}" for n in (3, 4)]
        if i:
            place = 0 if wrong.endswith("first") else 1
            changed = {"no": "", "ar": meets[place].replace("sync", "arrive")}.get(wrong[:2], meets[place])
            meets[place] = changed if wrong != "count" else meets[place].replace(str(count), str(32 * warps[0]))
            meets = meets[::-1] if wrong == "exchanged" else meets
        inner = [load, store, meets[0], read, meets[1], shown, used]
        if wrong == "early" and i:
            inner = [load, meets[0], store, read, meets[1], shown, used]
        head = loop.shorter.head if wrong == "trips" and i else loop.head
        bodies.append(role(reader.name, warps[i], 4 * i, head, *inner, "}"))
    head = [
        *_stream_head(loop, readers, 2),
        *[f"shared {name}: float32 8x32 layout (8,32):(33,1) at {1056 * i}" for i, name in enumerate("su")],
        *[line for reader in readers for line in reader.fragments()],
        *[f"fragment v{i}: float32 8x32 layout {reader.layout}" for i, reader in enumerate(readers)],
    ]
    lines = [*_tags(2), "roles {", *[line for body in bodies for line in body], "}"]
    return kernel("exchanges", "sm_90a", 8, *launched(draw, programs, head, lines))
