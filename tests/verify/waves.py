"""Kernels of AMD's waves as text: rows through a ring of buffers in LDS."""

from __future__ import annotations

from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel

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
