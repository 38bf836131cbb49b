"""Compilers are run with limits, and their failures are diagnostics."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from argus.backend import process
from argus.backend.process import missing, run, start, trimmed
from argus.diagnostic import ToolchainError


def code(error: pytest.ExceptionInfo[ToolchainError]) -> str:
    return error.value.diagnostics[0].code


def test_success_gives_both_streams() -> None:
    done = run("python", [sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr)"])
    assert (done.stdout, done.stderr) == ("out\n", "err\n")


def test_a_failing_program_is_reported_with_its_log() -> None:
    program = "import sys; print('k.cu(3): error: bad', file=sys.stderr); sys.exit(2)"
    with pytest.raises(ToolchainError) as error:
        run("python", [sys.executable, "-c", program])
    assert code(error) == "compiler-failed"
    diagnostic = error.value.diagnostics[0]
    assert "status 2" in diagnostic.message
    assert diagnostic.notes[0].message == "k.cu(3): error: bad"


def test_a_crash_is_reported_as_one() -> None:
    with pytest.raises(ToolchainError) as error:
        run("python", [sys.executable, "-c", "import os; os.abort()"])
    assert code(error) == "compiler-failed"
    assert "signal 6" in error.value.diagnostics[0].message


def test_a_missing_program_is_reported() -> None:
    with pytest.raises(ToolchainError) as error:
        run("clang", ["/no/such/program"])
    assert code(error) == "compiler-missing"


@pytest.mark.parametrize(
    ("says", "helper"),
    [
        ("collect2: fatal error: cannot find ‘ld’\ncompilation terminated.", "ld"),
        ("g++: fatal error: cannot execute ‘as’: execvp: No such file or directory", "as"),
        ('error: unable to execute command: Executable "ld.lld" doesn\'t exist!', "ld.lld"),
        ("clang: error: invalid linker name in argument '-fuse-ld=lld'", "lld"),
        ("sh: 1: cicc: not found", "cicc"),
        ("nvcc fatal   : Failed to preprocess host compiler properties.", "host compiler"),
        ("k.cpp:3: error: 'x' was not declared", None),
    ],
)
def test_a_compiler_without_its_own_programs_is_told_from_one_that_refuses(
    says: str, helper: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/elsewhere")
    with pytest.raises(ToolchainError) as error:
        run("python", [sys.executable, "-c", f"import sys; print({says!r}, file=sys.stderr); sys.exit(1)"])
    help = error.value.diagnostics[0].help
    assert code(error) == "compiler-failed"
    if helper is None:
        assert help == ""
    else:
        assert f"its {helper!r}" in help and "'/elsewhere'" in help


def test_an_empty_path_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "PATH" in missing("C++ compiler", "install one").diagnostics[0].message
    monkeypatch.setenv("PATH", "/elsewhere")
    assert missing("C++ compiler", "install one").diagnostics[0].message == "no C++ compiler was found"


def test_a_slow_program_and_its_children_are_ended() -> None:
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    start = time.monotonic()
    with pytest.raises(ToolchainError) as error:
        run("python", [sys.executable, "-c", child], timeout_s=0.5)
    assert time.monotonic() - start < 20
    assert code(error) == "compiler-failed"
    assert "0.5 s" in error.value.diagnostics[0].message


def test_a_program_may_wait_for_its_text() -> None:
    running = start("python", [sys.executable, "-c", "import sys; print(sys.stdin.read().upper())"])
    assert running.finish("text \N{MULTIPLICATION SIGN} 2").stdout == "TEXT \N{MULTIPLICATION SIGN} 2\n"
    running.end()


def test_a_program_that_is_not_needed_is_ended() -> None:
    running = start("python", [sys.executable, "-c", "import time; time.sleep(60)"])
    begun = time.monotonic()
    running.end()
    assert running.process.returncode == -9 and time.monotonic() - begun < 20


def test_long_logs_start_at_the_first_error() -> None:
    log = "\n".join([*(f"warning {i}" for i in range(50)), *(f"error {i}" for i in range(100))])
    short = trimmed(log, lines=10).splitlines()
    assert short[0] == "error 0"
    assert short[9] == "error 9"
    assert short[10] == "... 90 more lines"


@pytest.mark.parametrize("content", [None, b""])
def test_a_compiler_that_writes_nothing_failed(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "kernel.so").write_bytes(content)
    with pytest.raises(ToolchainError, match="reported success and wrote no machine code"):
        process.output("C++ compiler", tmp_path / "kernel.so")
    (tmp_path / "kernel.so").write_bytes(b"code")
    assert process.output("C++ compiler", tmp_path / "kernel.so") == b"code"
