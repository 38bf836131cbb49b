"""Mbarrier protocols: the hand-built GEMM is proved, and refuted, with a replayed witness, after every single edit."""

from __future__ import annotations

import pytest

from argus.diagnostic import Diagnostic, Severity, Verdict
from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel
from argus.verify import verify
from tests.verify.hopper import gemm
from tests.verify.hopper_mutants import MUTANTS

REFUTED = {
    "consumer does not wait": "data-race",
    "producer does not wait": "data-race",
    "wrong parity of full": "data-race",
    "wrong parity of empty": "deadlock",
    "wrong stage read": "data-race",
    "wrong stage filled": "data-race",
    "wrong slot released": "barrier-protocol",
    "too many bytes expected": "transaction-bytes",
    "too few bytes expected": "transaction-bytes",
    "bytes of one copy expected": "transaction-bytes",
    "a copy is missing": "transaction-bytes",
    "no expectation": "arrival-count",
    "no release": "arrival-count",
    "release before the product is complete": "data-race",
    "release of what was not taken": "barrier-protocol",
    "no fence": "missing-mma-fence",
    "no wait before the epilogue": "register-in-flight",
    "no wait in the loop": "data-race",
    "wait leaves one too many": "data-race",
    "no commit": "register-in-flight",
    "fewer buffers than the ring": "out-of-bounds",
    "fewer mbarriers than the ring": "out-of-bounds",
    "two buffers behind a ring of three": "data-race",
    "too many arrivals initialised": "arrival-count",
    "too few arrivals initialised": "arrival-count",
    "one arrival for four warps": "arrival-count",
    "two arrivals for one expectation": "arrival-count",
}
"""What is found for certain in each mutant, among other things."""


def errors(kernel: Kernel) -> tuple[Verdict, tuple[Diagnostic, ...]]:
    """The verdict, and all that is not a warning."""
    report = verify(kernel, 120.0)
    return report.verdict, tuple(d for d in report.diagnostics if d.severity is Severity.ERROR)


@pytest.mark.parametrize("stages", [2, 3, 5])
def test_accepted(stages: int) -> None:
    verdict, found = errors(gemm(stages))
    assert verdict is Verdict.PROVED and not found, found


@pytest.mark.parametrize("name", MUTANTS)
def test_rejected(name: str) -> None:
    verdict, found = errors(MUTANTS[name]())
    assert verdict is Verdict.REFUTED, found
    refuted = [d for d in found if d.verdict is Verdict.REFUTED]
    assert REFUTED[name] in {d.code for d in refuted}, refuted
    for diagnostic in refuted:
        assert diagnostic.witness is not None and diagnostic.witness.replayed, diagnostic


UNUSED = """
kernel unused
target sm_90a
warps 8 of 32
tensor x: float32[16, 32] strides [32:int64, 1:int64] align 16
tensor out: float32[16, 32] strides [32:int64, 1:int64] align 4
grid [1]
shared s: float32 8x32 layout Sw<3,2,3> o 0 o (8,32):(32,1) at 0
mbarrier full count 1 arrivals 1 at 1024
mbarrier empty count 1 arrivals 1 at 1032
fragment r: float32 8x32 layout [8x32 | t 32@1 | v 8@0]
body {
  mbarrier_init full
  mbarrier_init empty
  mbarrier_fence
  barrier
  roles {
    role producer warps 1 from 4 {
      for n in 0 .. TRIPS step 1 {
        mbarrier_wait empty[0] parity (n + 1) % 2
        mbarrier_expect full[0] bytes 1024
        copy s[c0, c1] <~ x[n * 8 + c0, c1] shape 8x32 via tma.load signal full[0]
      }
    }
    role reader warps 1 from 0 {
      for n in 0 .. TRIPS step 1 {
        mbarrier_wait full[0] parity n % 2
        copy r[c0, c1] <- s[c0, c1] shape 8x32 layout [8x32 | t 32@1 | v 8@0] via ld.shared
        copy out[n * 8 + c0, c1] <- r[c0, c1] shape 8x32 layout [8x32 | t 32@1 | v 8@0] via st.global
      }
    }
  }
}
"""


def test_a_barrier_at_which_nobody_arrives() -> None:
    """It serves waits that ask for no phase, and no others."""
    rows = UNUSED.replace("[16, 32]", "[8, 32]").replace("TRIPS", "1")
    assert errors(parse_kernel(rows))[0] is Verdict.PROVED
    verdict, found = errors(parse_kernel(UNUSED.replace("TRIPS", "2")))
    assert verdict is Verdict.REFUTED and "arrival-count" in {d.code for d in found}
