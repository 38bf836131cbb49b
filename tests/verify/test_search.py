"""What no engine decides: plainly wrong kernels are refuted by a run, right ones stay unknown."""

from __future__ import annotations

from pathlib import Path

from argus import compile
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.source import SourceFile
from argus.verify import Report

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def edited(name: str, *edits: tuple[str, str]) -> Report:
    """The report on an example after edits of its text."""
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return compile.prove(SourceFile(f"{name}.py", text), name, Options())


def refuted(report: Report) -> set[str]:
    found = [d for d in report.diagnostics if d.verdict is Verdict.REFUTED]
    assert all(d.witness is not None and d.witness.replayed for d in found)
    return {d.code for d in found}


def test_another_function_of_the_same_elements_is_refuted() -> None:
    """The least score instead of the largest: the same in exact arithmetic, and infinite in that of floats."""
    report = edited("softmax", ("scores - al.max(scores, axis=0)", "scores - al.min(scores, axis=0)"))
    assert report.verdict is Verdict.REFUTED
    assert "spec-mismatch" in refuted(report)


def test_another_form_of_the_same_function_stays_unknown() -> None:
    """exp as a power of two, of scores that are multiplied first: rounds otherwise, by far more than a float32 can."""
    exp = ("al.exp(scores - al.max(scores, axis=0))", "al.exp2(1.4426950408889634 * (scores - al.max(scores, axis=0)))")
    report = edited("softmax", exp)
    assert report.verdict is Verdict.UNKNOWN
    assert not refuted(report)


def test_an_initial_value_that_is_not_the_identity_is_refuted() -> None:
    report = edited("rmsnorm", ("al.sum(values * values, axis=0)", "al.sum(values * values, axis=0) + 1.0"))
    assert report.verdict is Verdict.REFUTED
    assert refuted(report) == {"spec-mismatch"}


def test_an_output_that_nothing_writes_is_refuted() -> None:
    report = edited("vector_add", ("    al.store(out[offs], total, mask=mask)\n", "    twice = total + total\n"))
    assert refuted(report) == {"output-not-covered"}


def test_what_is_assumed_is_not_tried() -> None:
    """A row that is too long for the block: refuted, unless its length is assumed."""
    short = ("al.requires(N <= BLOCK)", 'al.assume(N <= BLOCK, "rows are short")')
    none = ("    al.requires(N <= BLOCK)\n", "")
    assert edited("softmax", short).verdict is Verdict.PROVED
    assert edited("softmax", none).verdict is Verdict.REFUTED
