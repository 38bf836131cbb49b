from __future__ import annotations

import json
from pathlib import Path

import pytest

from argus.cli import main
from argus.ir.text import parse_kernel, print_kernel
from argus.ir.wellformed import check_explicit
from tests.cli.test_check import RIGHT, WRONG
from tests.test_watch import lowered as explicit_kernel

ASSUMED = RIGHT.replace("    pid =", '    al.assume(N % 128 == 0, "rows are padded")\n    pid =').replace(
    "mask=i < N", "mask=i <= N + 127"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.py").write_text(RIGHT + WRONG.replace("def fill", "def spill"))
    (tmp_path / "assumed.py").write_text(ASSUMED)
    return tmp_path


@pytest.mark.parametrize(
    ("target", "suffixes"), [("cpu", (".cpp", ".so")), ("sm_80", (".cu", ".cubin")), ("gfx942", (".hip", ".co"))]
)
def test_writes_source_machine_code_and_report(target: str, suffixes: tuple[str, str], folder: Path) -> None:
    assert main(["build", "k.py::fill", "--target", target, "-o", "out"]) == 0
    report = json.loads((folder / "out" / f"fill.{target}.json").read_text())
    assert set(report) >= {"kernel", "target", "registers", "shared_bytes", "spill_bytes", "assumptions"}
    assert (report["kernel"], report["target"], report["assumptions"]) == ("fill", target, [])
    source, binary = (folder / "out" / f"fill.{target}{suffix}" for suffix in suffixes)
    assert "fill" in source.read_text()
    if not binary.exists():
        pytest.skip(f"no compiler for {target} here")
    assert binary.stat().st_size > 0
    assert report["spill_bytes"] in (0, None)
    assert sorted(p.name for p in (folder / "out").iterdir()) == sorted([*report["files"], f"fill.{target}.json"])


def test_without_a_compiler_the_source_alone_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "fill.gfx942.co").write_bytes(b"of an earlier build")
    monkeypatch.setenv("ARGUS_CLANG", str(folder / "clang"))
    assert main(["build", "k.py::fill", "--target", "gfx942", "-o", "out"]) == 0
    said = capsys.readouterr().err
    assert "warning[compiler-missing]" in said and "source only" in said and "error[" not in said
    assert sorted(p.name for p in (folder / "out").iterdir()) == ["fill.gfx942.hip", "fill.gfx942.json"]


def test_refuses_what_is_not_proved(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "k.py::spill", "--target", "cpu", "-o", "out"]) == 1
    assert not (folder / "out").exists()
    assert "nothing is built" in capsys.readouterr().err


def test_every_kernel_of_the_file_without_a_name(folder: Path) -> None:
    assert main(["build", "k.py", "--target", "cpu", "-o", "out"]) == 1
    assert (folder / "out" / "fill.cpu.json").exists()
    assert not list((folder / "out").glob("spill*"))


def test_assumptions_are_printed_in_the_artefact(folder: Path) -> None:
    assert main(["build", "assumed.py", "--target", "cpu", "-o", "out"]) == 0
    report = json.loads((folder / "out" / "fill.cpu.json").read_text())
    assert len(report["assumptions"]) == 1 and "rows are padded" in report["assumptions"][0]
    assert (folder / "out" / "fill.cpu.cpp").read_text().startswith("// assuming ")


def test_a_reason_with_line_breaks_writes_no_line_of_the_source(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The source quotes the reason in a comment, and the report on a line."""
    (folder / "assumed.py").write_text(ASSUMED.replace("rows are padded", "yes\\nint main() { return 0; }"))
    assert main(["build", "assumed.py", "--target", "cpu", "-o", "out"]) == 2
    assert not (folder / "out").exists() and "one line of printable characters" in capsys.readouterr().out
    explicit = print_kernel(explicit_kernel(ASSUMED, "fill", "sm_80"))
    assert not check_explicit(parse_kernel(explicit))
    broken = explicit.replace("rows are padded", "yes\\nproved other")
    assert any("cannot be printed" in d.message for d in check_explicit(parse_kernel(broken)))


@pytest.mark.parametrize("where", ["missing.py", "k.py::nothing", "."])
def test_unusable_input(where: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", where, "--target", "cpu"]) == 2
    assert "error[" in capsys.readouterr().err


def test_unwritable_output(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "file").write_text("")
    assert main(["build", "k.py::fill", "--target", "cpu", "-o", "file"]) == 2
    assert "error[unwritable-output]" in capsys.readouterr().err
