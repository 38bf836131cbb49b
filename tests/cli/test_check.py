from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from argus.cli import main

FILL = """
import argus
import argus.language as al

@argus.kernel
def fill(x: al.Tensor[al.float32, "N"], BLOCK: al.constexpr = 128):
    pid = al.grid(al.cdiv(N, BLOCK))
    i = pid * BLOCK + al.arange(BLOCK)
    al.store(x[i], al.zeros((BLOCK,), al.float32), mask={mask})
"""
RIGHT = FILL.format(mask="i < N")
WRONG = FILL.format(mask="i <= N")
BROKEN = FILL.format(mask="i <")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "broken.py").write_text(BROKEN)
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "plain.py").write_text("def f(x):\n    return x\n")
    (tmp_path / "binary.py").write_bytes(bytes(range(256)) * 4)
    (tmp_path / "nul.py").write_bytes(b"x = 1\0\n")
    (tmp_path / "folder").mkdir()
    return tmp_path


def check_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    code = main(["check", "--json", *arguments])
    captured = capsys.readouterr()
    assert captured.err == ""
    result = json.loads(captured.out)
    assert isinstance(result, list)
    return code, result


def test_a_right_kernel(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, (outcome,) = check_json(capsys, "right.py")
    assert code == 0
    assert (outcome["kernel"], outcome["verdict"]) == ("fill", "proved")
    assert outcome["seconds"] > 0 and outcome["assumptions"] == []
    assert [d for d in outcome["diagnostics"] if d["severity"] == "error"] == []


def test_a_wrong_kernel_has_a_replayed_witness(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, (outcome,) = check_json(capsys, "wrong.py")
    assert code == 1 and outcome["verdict"] == "refuted"
    found = next(d for d in outcome["diagnostics"] if d["verdict"] == "refuted")
    assert found["code"] == "out-of-bounds" and found["property"] == "bounds" and found["message"]
    assert found["span"]["file"] == "wrong.py" and found["span"]["line"] == 9 and found["span"]["column"] > 1
    witness = found["witness"]
    assert set(witness) >= {"sizes", "block", "thread", "warp", "lane", "iteration", "element", "arrived", "expected",
                            "provenance", "replayed"}  # fmt: skip
    assert witness["replayed"] is True
    assert set(witness["element"]) >= {"logical", "physical"}
    assert witness["thread"] == witness["warp"] * 32 + witness["lane"]
    # The element is the one past the end, at the sizes shown.
    assert witness["element"]["logical"] == [witness["sizes"]["N"]]


UNUSABLE = {
    "broken.py": "broken.py",
    "empty.py": "no-kernel",
    "plain.py": "no-kernel",
    "binary.py": "unreadable-file",
    "nul.py": "unreadable-file",
    "folder": "unreadable-file",
    "missing.py": "unreadable-file",
    "right.py::other": "no-kernel",
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_unusable_input(name: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, (outcome,) = check_json(capsys, name)
    assert code == 2 and outcome["verdict"] == "error"
    first = outcome["diagnostics"][0]
    if name == "broken.py":
        assert first["span"]["line"] == 9
    else:
        assert first["code"] == UNUSABLE[name]


def test_no_traceback_for_people(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *UNUSABLE]) == 2
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err
    assert "error[unreadable-file]" in captured.out


def test_precedence(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_json(capsys, "right.py", "wrong.py")[0] == 1
    code, outcomes = check_json(capsys, "wrong.py", "missing.py", "right.py")
    assert code == 2 and len(outcomes) == 3


def test_out_of_time_is_unknown(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, (outcome,) = check_json(capsys, "--limit", "1e-9", "right.py")
    assert (code, outcome["verdict"]) == (3, "unknown")
    assert outcome["diagnostics"]


def test_one_kernel_of_a_file(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "two.py").write_text(RIGHT + WRONG.replace("def fill", "def spill"))
    assert [o["verdict"] for o in check_json(capsys, "two.py")[1]] == ["proved", "refuted"]
    assert check_json(capsys, "two.py::fill")[0] == 0


def test_constants(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_json(capsys, "-D", "BLOCK=256", "right.py")[0] == 0
    code, (outcome,) = check_json(capsys, "-D", "BLOC=256", "right.py")
    assert code == 2 and outcome["diagnostics"][0]["code"] == "unknown-constexpr"


ODD = """
import argus
import argus.language as al

@argus.kernel
def tail(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "M"], BLOCK: al.constexpr = 128):
    al.requires(M == N - 2)
    i = al.grid(al.cdiv(M, BLOCK)) * BLOCK + al.arange(BLOCK)
    al.store(y[i], al.load(x[i + 2], mask=i < M), mask=i < M)
"""


def test_alignment(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "odd.py").write_text(ODD)
    code, (outcome,) = check_json(capsys, "odd.py")
    assert code == 1 and "`argus check --alignment 4`" in outcome["diagnostics"][0]["help"]
    assert check_json(capsys, "--alignment", "4", "odd.py")[0] == 0
    main(["show", "right.py"])
    (files / "right.ir").write_text(capsys.readouterr().out)
    code, (outcome,) = check_json(capsys, "--alignment", "4", "right.ir")
    assert code == 2 and outcome["diagnostics"][0]["code"] == "bad-option"


@pytest.mark.parametrize("target", ["cpu", "sm_80", "sm_90a", "gfx942"])
def test_targets(target: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_json(capsys, "--target", target, "right.py")[0] == 0


def test_sarif(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--sarif", "wrong.py"]) == 1
    log = json.loads(capsys.readouterr().out)
    assert log["version"] == "2.1.0"
    result = next(r for r in log["runs"][0]["results"] if r["ruleId"] == "out-of-bounds")
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "wrong.py" and place["region"]["startLine"] == 9


@pytest.mark.parametrize(
    "arguments",
    [["check"], ["check", "--target", "sm_1", "a"], ["check", "--limit", "0", "a"], ["check", "--limit", "x", "a"],
     ["check", "-D", "B", "a"], ["check", "--json", "--sarif", "a"], ["frobnicate"], [], ["build", "a"]],
)  # fmt: skip
def test_bad_flags(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert "usage: argus" in capsys.readouterr().err


def test_what_is_shown_is_checked(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "right.py", "-D", "BLOCK=256"]) == 0
    shown = capsys.readouterr().out
    assert "shape 256" in shown
    for name, text in {"right": shown, "wrong": shown.replace("< N", "<= N"), "broken": shown[:-20]}.items():
        (files / f"{name}.ir").write_text(text)
    assert main(["check", "right.ir"]) == 0
    assert "proved fill" in capsys.readouterr().out
    assert main(["check", "wrong.ir"]) == 1
    assert "--> wrong.ir:" in capsys.readouterr().out
    code, (outcome,) = check_json(capsys, "broken.ir")
    assert code == 2 and outcome["diagnostics"][0]["code"] == "ir-syntax"
    code, (outcome,) = check_json(capsys, "right.ir", "-D", "BLOCK=128")
    assert code == 2 and outcome["diagnostics"][0]["code"] == "unknown-constexpr"
    assert main(["build", "right.ir", "--target", "gfx942"]) == 2
    assert "is a kernel of sm_80, not of gfx942" in capsys.readouterr().err


def test_one_kernel_is_shown_at_a_time(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "two.py").write_text(RIGHT + RIGHT.split("import argus.language as al")[1].replace("fill", "more"))
    assert main(["show", "two.py"]) == 2
    assert "two.py::more" in capsys.readouterr().err
    assert main(["show", "two.py::more"]) == 0
