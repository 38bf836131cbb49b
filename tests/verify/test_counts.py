"""Running counts: places and parities of a ring that are told by a count are those that the loop's variable tells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from argus.diagnostic import Verdict
from argus.ir.nodes import Counter, For, Kernel
from argus.ir.text import parse_kernel, print_kernel
from argus.ir.visit import rewrite_body
from argus.passes import lower
from argus.verify import verify
from tests.passes.test_specialise import gemm


def counted(text: str = "", replacement: str = "", wrap: int = 6) -> Kernel:
    """The policy product as roles that count, with an edit of its text."""
    kernel = lower(gemm(), "sm_90a")

    def change(stmt: object) -> tuple[For] | None:
        counts = isinstance(stmt, For) and stmt.counter is not None
        return (replace(stmt, counter=Counter("turn", wrap)),) if counts else None  # type: ignore[type-var]

    before = print_kernel(replace(kernel, body=rewrite_body(kernel.body, change)))  # type: ignore[arg-type]
    assert text in before
    return parse_kernel(before.replace(text, replacement) if text else before)


@pytest.mark.parametrize("wrap", [6, 12])
def test_a_ring_by_its_count(wrap: int) -> None:
    assert verify(counted(wrap=wrap)).verdict is Verdict.PROVED


def test_a_count_that_wraps_inside_of_a_round() -> None:
    assert verify(counted(wrap=5)).verdict is not Verdict.PROVED


def test_a_parity_of_another_ring() -> None:
    report = verify(counted("parity turn // 3 % 2", "parity turn // 2 % 2"))
    assert report.verdict is Verdict.REFUTED
    assert "wrong-parity" in {d.code for d in report.diagnostics}
