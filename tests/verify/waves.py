"""Kernels of AMD's waves as text: rows through a ring of buffers in LDS; and how such kernels are judged."""

from __future__ import annotations

import numpy as np

from argus.diagnostic import Diagnostic, SourceError, Verdict
from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel
from argus.mutate import mutations
from argus.simulate import simulate
from argus.verify import verify

LIMIT_S = 120.0
FULL = "[256 | t 128@0 | v 2@0*128]"
HALF = "[128 | t 128@0 | v]"


def kernel(body: list[str], buffers: int = 3, elements: str = "256:1", fragment: str = FULL) -> Kernel:
    """Two waves, N rows of 256 float32 from `x` to `y` through `buffers` rows of `s` and registers `r`."""
    inner = elements.split(":")
    head = [
        "kernel rows", "target gfx942", "warps 2 of 64", "size N",
        "tensor x: float32[N, 256] strides [256:int64, 1:int64] align 16",
        "tensor y: float32[N, 256] strides [256:int64, 1:int64] align 16",
        "grid [1]",
        f"shared s: float32 {buffers}x256 layout ({buffers},{inner[0]}):(256,{inner[1]}) at 0",
        f"fragment r: float32 256 layout {fragment}",
        "body {", "tag x[N, 256] = {row = c0, lane = c1}",
    ]  # fmt: skip
    return parse_kernel("\n".join([*head, *body, "}"]) + "\n")


def fetch(row: str, slot: str, layout: str = FULL) -> str:
    """One statement: a whole row, two loads a wave."""
    return f"copy s[{slot}, c0] <- x[{row}, c0] shape 256 if {row} < N else 0.0 layout {layout} via global_load_lds"


def halves(row: str, slot: str) -> list[str]:
    """Two statements, one load a wave each."""
    return [
        f"copy s[{slot}, {at}] <- x[{row}, {at}] shape 128 if {row} < N else 0.0 layout {HALF} via global_load_lds"
        for at in ("c0", "128 + c0")
    ]


def use(row: str, slot: str) -> list[str]:
    """What every thread reads was loaded by the other wave."""
    return [
        f"copy r[c0] <- s[{slot}, 255 - c0] shape 256 layout {FULL} via ds_read",
        "assert (l) in 256 {r[c0] carries [" + f"{row}, 255 - c0]" + "}",
        f"copy y[{row}, c0] <- r[c0] shape 256 layout {FULL} via buffer_store",
    ]


def ring(wait: str = "s_waitcnt vmcnt 2", barrier: str = "barrier", ahead: int = 2) -> Kernel:
    """Rows are loaded `ahead` iterations early; the steady state of what `al.pipelined(stages=ahead + 1)` becomes."""
    slots = ahead + 1
    return kernel(
        [
            *(fetch(str(p), str(p)) for p in range(ahead)),
            "for i in 0 .. N step 1 {",
            wait, barrier,
            fetch(f"i + {ahead}", f"(i + {ahead}) % {slots}"),
            *use("i", f"i % {slots}"),
            "}",
            "s_waitcnt vmcnt 0",
        ],
        slots,
    )  # fmt: skip


def proved(k: Kernel) -> bool:
    """True if a kernel is proved."""
    return verify(k, LIMIT_S).verdict is Verdict.PROVED


def refuted(k: Kernel) -> Diagnostic:
    """The first finding of a kernel that is refuted, with its witness replayed."""
    report = verify(k, LIMIT_S)
    assert report.verdict is Verdict.REFUTED, report.diagnostics
    found = next(d for d in report.diagnostics if d.verdict is Verdict.REFUTED)
    assert found.witness is not None and found.witness.replayed
    return found


def judged(k: Kernel, words: tuple[str, ...]) -> dict[Verdict, int]:
    """How often each verdict is given on the mutants with one of some words in their names. What is proved breaks
    nothing in the simulator."""
    seen = dict.fromkeys(Verdict, 0)
    x = np.arange(4 * 256, dtype=np.float32).reshape(4, 256)
    for mutation in mutations(k):
        if not any(word in mutation.name for word in words):
            continue
        try:
            report = verify(mutation.kernel, LIMIT_S)
        except SourceError:
            continue
        seen[report.verdict] += 1
        if report.verdict is Verdict.PROVED:
            for rows in (0, 1, 3, 4):
                outcome = simulate(mutation.kernel, {"x": x[:rows], "y": np.zeros_like(x[:rows])})
                assert not outcome.violations, mutation.name
    return seen
