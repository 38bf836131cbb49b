"""Kernels that are released with an unknown specification: tested, labelled, and never for what concerns safety."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from argus.cli.main import main
from argus.compile import compile, elaborate, lower, release, verify
from argus.diagnostic import SourceError, Verdict, VerificationError
from argus.frontend import Options
from argus.source import SourceFile

TEXT = """
import argus
import argus.language as al

@argus.kernel{decorator}
def sine(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"], BLOCK: al.constexpr = 128):
    N = x.shape[0]
    {requires}
    al.spec(y, lambda n: al.sin(2.0 * x[n]))
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    v = al.load(x[i]{mask})
    al.store(y[i], {value}, mask=i < N)
"""
ACCEPT = '(accept=("spec-unknown",))'
RIGHT, WRONG = "2.0 * al.sin(v) * al.cos(v)", "2.0 * al.sin(v)"


def source(
    decorator: str = ACCEPT, value: str = RIGHT, mask: str = ", mask=i < N", requires: str = "al.requires(N > 0)"
) -> SourceFile:
    text = TEXT.replace("{decorator}", decorator).replace("{value}", value)
    return SourceFile("k.py", text.replace("{mask}", mask).replace("{requires}", requires))


def refusal(file: SourceFile) -> list[str]:
    with pytest.raises((VerificationError, SourceError)) as caught:
        compile(file, "sine", Options("cpu"))
    return [d.code for d in caught.value.diagnostics]


def test_what_is_unknown_of_values_is_built_if_it_is_accepted(require_tool: object) -> None:
    require_tool("g++", "clang++", "c++")  # type: ignore[operator]
    built = compile(source(), "sine", Options("cpu"))
    assert built.report.verdict is Verdict.UNKNOWN and built.report.runs > 0
    assert built.artifact.accepted == built.report.accepted == ("spec-unknown",)
    assert refusal(source("")) == ["spec-unknown"]


def test_what_is_proved_accepts_nothing(require_tool: object) -> None:
    require_tool("g++", "clang++", "c++")  # type: ignore[operator]
    built = compile(source(value="al.sin(2.0 * v)"), "sine", Options("cpu"))
    assert built.report.verdict is Verdict.PROVED and built.artifact.accepted == ()


def test_a_wrong_value_is_refuted_all_the_same() -> None:
    assert refusal(source(value=WRONG))[0] == "spec-mismatch"


def test_safety_is_proved_all_the_same() -> None:
    assert "out-of-bounds" in refusal(source(mask=""))


def test_what_no_run_tests_is_not_released() -> None:
    assert refusal(source(requires="al.requires(N > 2**29)"))[0] == "not-tested"


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ('("out-of-bounds",)', "`out-of-bounds` cannot be accepted: safety is always proved"),
        ('("spec-mismatch",)', "`spec-mismatch` cannot be accepted"),
        ('"spec-unknown"', "`accept` is a tuple of error codes"),
        ("(3,)", "`accept` is a tuple of error codes"),
    ],
)
def test_other_codes_are_refused(option: str, words: str) -> None:
    with pytest.raises(SourceError) as caught:
        compile(source(f"(accept={option})"), "sine", Options("cpu"))
    (found,) = caught.value.diagnostics
    assert found.code == "bad-decorator" and words in found.message and found.span.line == 5


def test_the_command_line_accepts_and_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "k.py"
    file.write_text(source("").text)
    assert main(["check", str(file)]) == 3
    assert main(["check", str(file), "--accept", "spec-unknown"]) == 0
    assert "accepted spec-unknown, tested in" in capsys.readouterr().out
    assert main(["check", str(file), "--accept", "spec-unknown", "--json"]) == 0
    (outcome,) = json.loads(capsys.readouterr().out)
    assert outcome["verdict"] == "unknown" and outcome["accepted"] == ["spec-unknown"]
    with pytest.raises(SystemExit):
        main(["check", str(file), "--accept", "data-race"])
    assert "`data-race` cannot be accepted: safety is always proved" in capsys.readouterr().err
    file.write_text(source("", WRONG).text)
    assert main(["check", str(file), "--accept", "spec-unknown"]) == 1


def test_a_build_says_what_was_accepted(tmp_path: Path) -> None:
    file = tmp_path / "k.py"
    file.write_text(source().text)
    assert main(["build", str(file), "--target", "sm_80", "-o", str(tmp_path)]) == 0
    assert "// tested, not proved: spec-unknown was accepted" in (tmp_path / "sine.sm_80.cu").read_text()
    assert json.loads((tmp_path / "sine.sm_80.json").read_text())["accepted"] == ["spec-unknown"]


@pytest.mark.parametrize("code", ["races-unknown", "bounds-unknown"])
def test_safety_is_not_released_by_name(code: str) -> None:
    explicit = lower(elaborate(source(), "sine", Options("cpu")), "cpu")
    report = verify(explicit)
    (found,) = report.diagnostics
    assert release(explicit, report, ("spec-unknown", code)).accepted == ("spec-unknown",)
    unsafe = replace(report, diagnostics=(found, replace(found, code=code)))
    with pytest.raises(VerificationError) as caught:
        release(explicit, unsafe, ("spec-unknown", code))
    assert code in {d.code for d in caught.value.diagnostics}


def test_a_package_says_what_was_accepted(tmp_path: Path, require_tool: object) -> None:
    require_tool("g++", "clang++", "c++")  # type: ignore[operator]
    file = tmp_path / "k.py"
    for value, verdict, accepted in ((RIGHT, "unknown", ["spec-unknown"]), ("al.sin(2.0 * v)", "proved", [])):
        file.write_text(source(value=value).text)
        assert main(["build", f"{file}::sine", "--target", "cpu", "--package", str(tmp_path / verdict)]) == 0
        (binary,) = json.loads((tmp_path / verdict / "manifest.json").read_text())["binaries"]
        assert (binary["verdict"], binary["accepted"]) == (verdict, accepted)


PROGRAM = """
@argus.program
def twice(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"]):
    al.requires(x.shape[0] > 0)
    al.spec(y, lambda n: al.sin(2.0 * x[n]))
    sine(x, y)
"""


@pytest.mark.parametrize(("value", "code"), [(RIGHT, 3), ("al.sin(2.0 * v)", 0)])
def test_a_program_of_an_accepted_kernel_stays_unknown(tmp_path: Path, value: str, code: int) -> None:
    file = tmp_path / "k.py"
    file.write_text(source(value=value).text + PROGRAM)
    assert main(["check", f"{file}::twice"]) == code
