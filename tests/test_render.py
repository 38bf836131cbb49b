from __future__ import annotations

import json
import pickle

import pytest

from argus.diagnostic import Diagnostic, Event, Note, Severity, Verdict, VerificationError, Witness
from argus.render import Outcome, diagnostics_text, outcome_json, outcome_text, sarif
from argus.source import SourceFile, Span
from tests.conftest import Golden

FILE = SourceFile("kernels/gemm.py", "at = stage(a)\n\tbt = stage(b)\nacc = al.mma(\n    at, bt, acc)\n", first_line=9)
MMA = Span(FILE, 11, 7, 12, 17)
STAGE = Span(FILE, 10, 7, 10, 15, call=Span(FILE, 11, 1, 11, 4, call=Span(FILE, 9, 1, 9, 3)))

REFUTED = Diagnostic(
    "tag-mismatch",
    "the operands of this product differ in k",
    MMA,
    property="tags",
    verdict=Verdict.REFUTED,
    label="k of `at` meets another k of `bt`",
    notes=(Note("`bt` was staged here", STAGE), Note("two lines\nof explanation")),
    help="take both tiles at `k0`",
    witness=Witness(
        sizes={"M": 1, "K": 33},
        block=(0, 1),
        thread=37,
        warp=1,
        lane=5,
        iteration={"k0": 32},
        object="bt",
        logical=(0, 1),
        physical="shared+0x80",
        arrived="n = 0\nk = 1",
        expected="k = 33",
        provenance=(Note("loaded from b[0, 1]", STAGE), Note("shared+0x80 to register r3")),
        other={"thread": 3, "block": (0, 0), "iteration": {"k0": 0}},
        failing="k0 >= 32",
        unique=True,
        replayed=True,
        trace=(
            Event("compute", "read", "reads stage 0 of bt", (0, 1), {"k0": 0}, span=MMA),
            Event("", "skipped", "3 further steps"),
            Event("copy engine", "complete", "has filled bt", (0, 1), {"k0": 32}, "full[0]", 2, STAGE),
        ),
        missing="nothing orders compute's read before the copy",
    ),
)
UNKNOWN = Diagnostic("out-of-time", "no answer within 30 s", property="races", verdict=Verdict.UNKNOWN, label="why")
WARNING = Diagnostic("bank-conflicts", "4 ways", Span(FILE, 9, 1, 9, 3), severity=Severity.WARNING)
OUTCOME = Outcome("gemm", Verdict.REFUTED, 0.1234, ("M < N: always so here",), (REFUTED, UNKNOWN, WARNING))


def test_text(golden: Golden) -> None:
    golden("outcome.txt", outcome_text(OUTCOME).plain)


def test_a_span_past_the_end_of_the_file_still_prints() -> None:
    text = diagnostics_text([Diagnostic("x", "m", Span(FILE, 99, 4, 99, 6)), Diagnostic("y", "n")]).plain
    assert text == "error[x]: m\n  --> kernels/gemm.py:99:4\n\nerror[y]: n\n"


def test_an_error_that_nobody_catches_says_all() -> None:
    assert str(VerificationError(REFUTED, UNKNOWN)) == diagnostics_text([REFUTED, UNKNOWN]).plain.rstrip("\n")
    assert pickle.loads(pickle.dumps(VerificationError(UNKNOWN))).diagnostics == (UNKNOWN,)


@pytest.mark.parametrize(
    ("line", "column", "end", "drawn"),
    [
        ("y = ('\u6f22\u5b57', w)", 12, 13, "y = ('\u6f22\u5b57', w)\n  |              ^"),
        ("y = '\u2028' + w", 11, 12, "y = '\ufffd' + w\n  |           ^"),
        ("\ty\f= \0w", 7, 8, "    y\u240c= \u2400w\n  |          ^"),
        ("(" * 300 + "w" + ")" * 300, 301, 302, f"\u2026{'(' * 50}w{')' * 149}\u2026\n  | {' ' * 51}^"),
        ("9" * 300, 1, 301, f"{'9' * 200}\u2026\n  | {'^' * 200}"),
    ],
    ids=["wide", "separator", "control", "long", "long-word"],
)
def test_carets_stand_below_what_they_mean(line: str, column: int, end: int, drawn: str) -> None:
    span = Span(SourceFile("f.py", f"x = 1\n{line}\r\n"), 2, column, 2, end)
    text = diagnostics_text([Diagnostic("x", "m", span)]).plain
    assert text == f"error[x]: m\n --> f.py:2:{column}\n  |\n2 | {drawn}\n"


def test_json(golden: Golden) -> None:
    golden("outcome.json", json.dumps(outcome_json(OUTCOME), indent=2) + "\n")


def test_sarif(golden: Golden) -> None:
    log = sarif([OUTCOME], "1.2.3")
    assert [r["level"] for r in log["runs"][0]["results"]] == ["error", "error", "warning"]
    golden("outcome.sarif", json.dumps(log, indent=2) + "\n")


def test_what_could_not_be_tried_is_no_verdict_for_people() -> None:
    broken = Outcome("k.py", Verdict.UNKNOWN, 0.0, (), (Diagnostic("syntax-error", "m"),))
    assert outcome_text(broken).plain.splitlines()[-1].startswith("error k.py")
    assert outcome_json(broken)["verdict"] == "error"
