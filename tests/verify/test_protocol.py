"""Mbarrier protocols: the hand-built GEMM is proved, and refuted, with a replayed witness, after every single edit."""

from __future__ import annotations

import pytest

from argus.diagnostic import Diagnostic, Severity, Verdict
from argus.ir.nodes import Kernel
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
