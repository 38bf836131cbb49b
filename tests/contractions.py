"""Random kernels of asynchronous products: warpgroups multiply what bulk copies bring, in groups."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from argus.ir.nodes import Kernel
from tests.asynchronous import Ring, Trips, kernel, launched, mistake, producer, role, slip, trips

ACCUMULATOR = "[64x8 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8]"
_A_BYTES, _B_BYTES = 64 * 64 * 2, 8 * 64 * 2


@dataclass(frozen=True)
class Work:
    """What a warpgroup does with one stage: `products` of the same operands.

    `together`: in one group. `late`: the last groups stay under way, and the stage before is free after them. Else
    all are waited for; with `promoted` each starts from zero and is then added to a sum.
    """

    products: int
    together: bool
    late: bool
    promoted: bool

    @property
    def sums(self) -> list[str]:
        return [f"d{n}" for n in range(self.products)]

    @property
    def accumulators(self) -> list[str]:
        return [f"p{n}" for n in range(self.products)] if self.promoted else self.sums

    def lines(self, a: str, b: str, wrong: str, extra: int) -> list[str]:
        """One iteration. `extra`: groups that the waits leave too many, if that is what is `wrong`."""
        extra = extra if wrong == "wait" else 0
        result = [_cleared(name) for name in self.accumulators] if self.promoted else []
        result.append("" if wrong == "fence" else "mma_fence")
        for n, name in enumerate(self.accumulators):
            result.append(f"mma {name}[c0, c1] += {a} * {b} shape 64x8x64 via wgmma_m64n8k16 warps 4x1")
            if not self.together or n == self.products - 1:
                result.append("" if wrong == "commit" and n == 0 else "mma_commit")
        groups = 1 if self.together else self.products
        if not self.promoted:
            return [*result, f"mma_wait {(groups if self.late else 0) + extra}"]
        for n, (total, name) in enumerate(zip(self.sums, self.accumulators, strict=True)):
            result.append(f"mma_wait {(0 if self.together else self.products - 1 - n) + extra}")
            value = f"{total}[c0, c1] + {name}[c0, c1]"
            result.append(f"map {total}[c0, c1] = {value} shape 64x8 layout {ACCUMULATOR} scope thread")
        return result


def _result(role_number: int, total: str) -> str:
    return f"out_{total}_of_{role_number}"


def _cleared(name: str) -> str:
    return f"map {name}[c0, c1] = 0.0 shape 64x8 layout {ACCUMULATOR} scope thread"


@st.composite
def contractions(draw: st.DrawFn, right: bool | None = None) -> Kernel:
    """One or two warpgroups multiply what a producer brings, one ring for both operands or one for each."""
    stages = [draw(st.integers(1, 4)) for _ in range(draw(st.sampled_from([1, 2])))]
    programs = draw(st.integers(0, 2)) == 0
    loop = trips(draw, right, 64, stages, programs=programs)
    rings = [Ring(name, n, loop.count) for name, n in zip(("", "z"), stages, strict=False)]
    consumers = draw(st.sampled_from([1, 1, 2]))
    kinds = ("fence", "commit", "wait", "wait", "release", "parity", "bytes", "overrun", "trips", "arrivals", "end")
    wrong = mistake(draw, right, *kinds)
    promoted = draw(st.integers(0, 3)) == 0
    late = not promoted and draw(st.booleans()) and (min(stages) > 1 or slip(draw, right, 6))
    work = Work(draw(st.sampled_from([1, 1, 2])), draw(st.booleans()), late, promoted)
    theirs = loop.shorter if wrong == "trips" else loop
    roles = [producer(4 * consumers, theirs, *_filling(rings, loop, wrong))]
    for number in range(consumers):
        roles.append(_multiplier(draw, number, work, loop, rings, wrong if number == consumers - 1 else ""))
    arrivals = 4 * consumers + (wrong == "arrivals")
    lines = [
        "tag x[64, N] = {m = c0, k = c1}",
        "tag y[8, N] = {n = c0, k = c1}",
        *["roles {", *[line for part in roles for line in part], "}"],
    ]
    head = _head(rings, loop, work, consumers, arrivals)
    return kernel("contractions", "sm_90a", 4 * consumers + 4, *launched(draw, programs, head, lines, common="y"))


def _filling(rings: list[Ring], loop: Trips, wrong: str) -> list[str]:
    """What the producer does in an iteration."""
    of_a, of_b = rings[0], rings[-1]
    via = f"if {loop.row} + c1 < N else 0.0:bfloat16 via tma.load"
    a = f"copy s[{of_a.slot}, c0, c1] <~ x[c0, {loop.row} + c1] shape 64x64 {via} {of_a.signal}"
    b = f"copy u[{of_b.slot}, c0, c1] <~ y[c0, {loop.row} + c1] shape 8x64 {via} {of_b.signal}"
    missing = 16 if wrong == "bytes" else 0
    last = "" if wrong == "overrun" else of_b.wait_empty()
    if of_a is of_b:
        return [last, of_a.expect(_A_BYTES + _B_BYTES - missing), a, b]
    return [of_a.wait_empty(), of_a.expect(_A_BYTES), a, last, of_b.expect(_B_BYTES - missing), b]


def _head(rings: list[Ring], loop: Trips, work: Work, consumers: int, arrivals: int) -> list[str]:
    a, b = rings[0].stages, rings[-1].stages
    end = _A_BYTES * a
    at = end + _B_BYTES * b
    names = dict.fromkeys([*work.sums, *work.accumulators])
    return [
        "size N",
        "tensor x: bfloat16[64, N] strides [x.stride0:int64, 1:int64] align 16",
        "tensor y: bfloat16[8, N] strides [y.stride0:int64, 1:int64] align 16",
        *[
            f"tensor {_result(c, d)}: float32[64, 8] strides [8:int64, 1:int64] align 8"
            for c in range(consumers)
            for d in work.sums
        ],
        "grid [1]",
        loop.requires,
        f"shared s: bfloat16 {a}x64x64 layout Sw<3,3,3> o 0 o ({a},64,64):(4096,64,1) at 0",
        f"shared u: bfloat16 {b}x8x64 layout Sw<3,3,3> o 0 o ({b},8,64):(512,64,1) at {end}",
        *[line for n, ring in enumerate(rings) for line in ring.barriers(1, arrivals, at + 80 * n)],
        *[f"fragment {name}r{c}: float32 64x8 layout {ACCUMULATOR}" for c in range(consumers) for name in names],
    ]


def _multiplier(draw: st.DrawFn, number: int, work: Work, loop: Trips, rings: list[Ring], wrong: str) -> list[str]:
    """A role of one warpgroup."""
    a, b = f"s[{rings[0].slot}, c0, c2]", f"u[{rings[-1].slot}, c1, c2]"
    steps = work.lines(a, b, wrong, draw(st.integers(1, 2)))
    waits = [ring.wait_filled(1 if wrong == "parity" and ring is rings[-1] else 0) for ring in rings]
    freed = [line for ring in rings for line in (ring.release_previous(loop) if work.late else [ring.release])]
    if work.late and loop.last:
        releases = [ring.release for ring in rings]
        freed += [f"if {loop.last} {{", "mma_wait 0" if wrong != "end" else "", *releases, "}"]
    body = [*waits, *steps, *freed]
    if wrong == "release":
        body = [*waits, *freed, *steps] if draw(st.booleans()) else [*waits, *steps]
    shown = "{0}[c0, c1] carries [c0, c1, once(0, N)]"
    lines = [
        *map(_cleared, work.sums),
        *[loop.head, *body, "}"],
        "mma_wait 0" if (work.late or draw(st.booleans())) and wrong != "end" else "",
        *[f"assert (i, j) in 64x8 {{{shown.format(d)}}}" for d in work.sums if not work.promoted],
        *[
            f"copy {_result(number, d)}[c0, c1] <- {d}[c0, c1] shape 64x8 layout {ACCUMULATOR} via st.global vector 2"
            for d in work.sums
        ],
    ]
    for name in dict.fromkeys([*work.sums, *work.accumulators]):
        lines = [line.replace(f"{name}[", f"{name}r{number}[") for line in lines]
    return role(f"r{number}", 4, 4 * number, *lines)
