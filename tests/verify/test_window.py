"""Persistent kernels whose programs take different steps: proved on a few programs in a row."""

from __future__ import annotations

import pytest

from argus.diagnostic import Verdict
from argus.ir.text import parse_kernel
from argus.verify import verify
from argus.verify.model.relations import Model
from argus.verify.reductions.window import Window
from tests.verify.test_persistent import GEMM

pytestmark = pytest.mark.slow

STOP = "maximum(minimum(K, program_id(0) * 64 + 64), 1)"
SPEC = next(line for line in GEMM.splitlines() if line.lstrip().startswith("spec")) + "\n"


def uneven(stop: str, depth: str) -> str:
    """The product of `test_persistent`, of which each row of tiles has a depth of its own."""
    text = GEMM.replace(SPEC, "").replace("0 .. K step", f"0 .. {stop} step")
    return text.replace("k0 + 64 >= K", f"k0 + 64 >= {stop}").replace("once(0, K)", f"once(0, {depth})")


TEXT = uneven(STOP, "minimum(K, program_id(0) * 64 + 64)")
LAST = f"if k0 + 64 >= {STOP} {{\n            mma_wait 0\n            mbarrier_arrive empty[turn % 2]\n          }}"
PREVIOUS = "if k0 >= 64 {\n            mbarrier_arrive empty[(turn + 1) % 2]\n          }"
EDITS = {
    "the last buffer of a program is kept": (LAST, LAST.replace("mbarrier_arrive empty[turn % 2]\n", "")),
    "the last buffer is handed back too early": ("mma_wait 0\n            mbarrier_arrive", "mbarrier_arrive"),
    "the last buffer is handed back by programs of two turns": (LAST, LAST.replace("k0 + 64 >=", "k0 >=")),
    "a buffer is handed back twice": ("if k0 >= 64 {", "if k0 >= 0 {"),
    "each program begins with the first buffer": ("mbarrier_wait full[turn % 2] parity turn // 2 % 2",
                                                  "mbarrier_wait full[k0 // 64 % 2] parity k0 // 128 % 2"),
    "roles disagree on the turns": (f"0 .. {STOP} step", "0 .. maximum(K, 1) step"),
    "the producer does not wait": ("mbarrier_wait empty[turn % 2] parity (turn // 2 + 1) % 2\n", ""),
    "the products do not wait": ("mbarrier_wait full[turn % 2] parity turn // 2 % 2\n", ""),
    "buffers are handed back before they are read": ("mma_wait 1\n", ""),
    "the store's source is overwritten": ("bulk_wait_read 0\n        ", ""),
    "no proxy fence": ("proxy_fence\n        ", ""),
}  # fmt: skip


def test_accepted() -> None:
    assert Model(parse_kernel(TEXT)).uneven
    assert not Model(parse_kernel(GEMM)).uneven
    assert verify(parse_kernel(TEXT), 240.0).verdict is Verdict.PROVED


@pytest.mark.parametrize("name", EDITS)
def test_edits(name: str) -> None:
    old, new = EDITS[name]
    assert TEXT.count(old) >= 1
    assert verify(parse_kernel(TEXT.replace(old, new, 1)), 240.0).verdict is not Verdict.PROVED


def test_a_program_without_turns_is_refused() -> None:
    stop = "minimum(K, program_id(0) * 64)"
    report = verify(parse_kernel(uneven(stop, stop)), 240.0)
    assert report.verdict is Verdict.UNKNOWN
    assert any("may take no turn" in d.message for d in report.diagnostics)


def test_each_program_has_a_length_of_its_own() -> None:
    even = Model(parse_kernel(TEXT))
    several = Window(even)
    loop = next(s for s in several.sites if s.role is not None and s.iterators[-1:] == ("k0",))
    assert several.programs == 3
    lengths = [p for p in several.translator.parameters if p.startswith("p_of_")]
    instances = several.domain(loop)[0]
    assert not instances.is_empty() and len(lengths) >= 3
