"""Specifications of what blocks add up together: every term once, over all blocks."""

from __future__ import annotations

import numpy as np
import pytest

from argus import compile
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.ir.nodes import Accumulate
from argus.ir.visit import walk
from argus.simulate import simulate
from argus.source import SourceFile
from tests.verify.test_search import EXAMPLES, edited, refuted

pytestmark = pytest.mark.slow

MAXIMUM = """
import argus
import argus.language as al

@argus.kernel
def column_max(x: al.Tensor[al.int32, "M N"], top: al.Tensor[al.int32, "N"], ROWS: al.constexpr = 4):
    M, N = x.shape
    al.spec(top, lambda n: al.max(lambda m: x[m, n]))
    pid_m, pid_n = al.grid(al.cdiv(M, ROWS), al.cdiv(N, 32))
    rows = pid_m * ROWS + al.arange(2 * ROWS)
    cols = pid_n * 32 + al.arange(32)
    found = al.load(x[rows[:, None], cols], mask=(rows < M)[:, None] & (cols < N), other=-2147483648)
    al.atomic_max(top[cols], al.max(found, axis=0), mask=cols < N)
"""
"""Rows overlap, which does not matter to a maximum."""


@pytest.mark.parametrize("name", ["column_sum", "split_k"])
def test_every_term_once(name: str) -> None:
    report = edited(name)
    assert report.verdict is Verdict.PROVED, report.diagnostics


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("al.cdiv(M, ROWS)", "M // ROWS"),
        ("al.cdiv(N, COLUMNS)", "N // COLUMNS"),
        ("part, mask=cols < N)", "part, mask=cols + 1 < N)"),
        ("al.atomic_add(total[cols], part,", "al.atomic_add(total[cols], part + part,"),
        ("mask=(rows < M)[:, None] & (cols < N))", "mask=(rows < M)[:, None] & (cols < N), other=1.0)"),
    ],
)
def test_terms_that_are_missing_or_too_many(old: str, new: str) -> None:
    report = edited("column_sum", (old, new))
    assert report.verdict is Verdict.REFUTED, report.diagnostics
    assert refuted(report) & {"spec-mismatch", "tag-mismatch"}


def test_parts_that_overlap() -> None:
    """The author's own assertion about one block holds: only the specification looks at all of them."""
    report = edited("split_k", ("split * DEPTH, al.min", "al.maximum(split * DEPTH - BLOCK_K, 0), al.min"))
    assert report.verdict is Verdict.REFUTED, report.diagnostics
    assert refuted(report) == {"spec-mismatch"}


def test_equal_shares() -> None:
    """Stream-K: steps of all tiles in one line, cut anywhere; for sm_90a by updates of the copy engine, in a loop."""
    source = SourceFile("stream_k_atomic.py", (EXAMPLES / "stream_k_atomic.py").read_text(encoding="utf-8"))
    engine: tuple[dict[str, object], ...] = ({"BLOCK_K": 64}, {"BLOCK_K": 64, "SHARE": 3})
    for options in (Options(target="cpu"), *(Options(target="sm_90a", constexprs=c) for c in engine)):
        kernel = compile.lower(compile.elaborate(source, "stream_k_atomic", options), options.target)
        by_engine = options.target == "sm_90a"
        assert any(isinstance(s, Accumulate) and s.instr == "tma.reduce.add" for s in walk(kernel.body)) == by_engine
        report = compile.verify(kernel, 120.0)
        assert report.verdict is Verdict.PROVED, report.diagnostics


def test_a_tile_that_is_not_handed_over_at_its_end() -> None:
    """What has come together of it goes to the next tile, with what comes of that."""
    text = (EXAMPLES / "stream_k_atomic.py").read_text(encoding="utf-8")
    old = "(step % steps == steps - 1) | "
    assert text.count(old) == 1
    source = SourceFile("stream_k_atomic.py", text.replace(old, ""))
    report = compile.prove(source, "stream_k_atomic", Options(), limit_s=240.0)
    assert report.verdict is Verdict.REFUTED, report.diagnostics
    assert refuted(report) == {"spec-mismatch"}


def test_a_maximum_takes_terms_twice_and_a_sum_does_not() -> None:
    top = compile.prove(SourceFile("column_max.py", MAXIMUM), "column_max", Options())
    assert top.verdict is Verdict.PROVED, top.diagnostics
    text = MAXIMUM.replace("al.max(", "al.sum(").replace("atomic_max", "atomic_add").replace(", other=-2147483648", "")
    total = compile.prove(SourceFile("column_max.py", text), "column_max", Options())
    assert total.verdict is Verdict.REFUTED, total.diagnostics


def test_the_simulator_adds_to_what_was_there() -> None:
    source = SourceFile("column_sum.py", (EXAMPLES / "column_sum.py").read_text(encoding="utf-8"))
    kernel = compile.lower(compile.elaborate(source, "column_sum", Options()), "sm_80")
    x = np.arange(33 * 132, dtype=np.float32).reshape(33, 132)
    outcome = simulate(kernel, {"x": x, "total": np.full(132, 5.0, np.float32)}, tags=True)
    assert outcome.ok and (outcome.tensors["total"] == 5 + x.sum(0)).all()
