from __future__ import annotations

import importlib.metadata
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from argus import pages
from argus.cli import main


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "out-of-bounds"]) == 0
    assert capsys.readouterr().out == pages.explanation("out-of-bounds")
    assert main(["explain"]) == 0
    assert "out-of-bounds" in capsys.readouterr().out.split()
    assert main(["explain", "out-of-bound"]) == 2
    assert "did you mean out-of-bounds" in capsys.readouterr().err


def test_layout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layout", "(2,4):(4,1)"]) == 0
    assert "(2,4):(4,1)" in capsys.readouterr().out
    assert main(["layout", "[16x8 | t 4@1*2 8@0 | v 2@1 2@0*8]".replace(" 2@0*8", "").replace("16x8", "8x8")]) == 0
    assert "T0:V0" in capsys.readouterr().out
    picture = tmp_path / "l.svg"
    assert main(["layout", "(2,4):(4,1)", "--svg", str(picture)]) == 0
    assert picture.read_text().startswith("<svg")
    for wrong in ("(2,4):(4", "", "(2,4", "[2 | t", "(999999,999999)"):
        assert main(["layout", wrong]) == 2
        assert "error[bad-layout]" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith("argus 0")


def test_sources_that_are_not_installed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder of sources on the path has no version that could be read, and works all the same."""
    monkeypatch.setattr(importlib.metadata.Distribution, "discover", lambda **_: iter(()))
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == "argus 0+uninstalled\n"
    assert main(["layout", "(2,4):(4,1)"]) == 0


def test_ctrl_c_is_clean(tmp_path: Path) -> None:
    """Interrupted while it waits for its input: a pipe that nobody writes to."""
    pipe = tmp_path / "kernels.py"
    os.mkfifo(pipe)
    process = subprocess.Popen(
        [sys.executable, "-m", "argus", "check", str(pipe)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored below shells' background jobs
    )
    writer = os.open(pipe, os.O_WRONLY)  # waits for the reader
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    os.close(writer)
    assert process.returncode == 130
    assert (out, err) == ("", "interrupted\n")


def test_a_closed_pipe_is_no_error() -> None:
    process = subprocess.Popen([sys.executable, "-m", "argus", "explain"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.wait(timeout=20)


def test_the_version_needs_nothing_heavy() -> None:
    """The command starts quickly because it imports a module when it is used. Counting modules depends on no clock."""
    program = "import runpy, sys; sys.argv = ['argus', '--version']; runpy.run_module('argus', run_name='__main__')"
    program = f"import atexit, sys; atexit.register(lambda: print(*sorted(sys.modules))); {program}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[1].split())
    assert loaded.isdisjoint({"numpy", "lark", "rich", "islpy", "z3", "torch", "argus.compile", "argus.frontend"})


@pytest.mark.parametrize("thing", ["fifo", "link", "folder"])
def test_a_picture_replaces_regular_files_only(thing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture, elsewhere = tmp_path / "picture.svg", tmp_path / "elsewhere.svg"
    elsewhere.write_text("mine")
    match thing:
        case "fifo":
            os.mkfifo(picture)
        case "link":
            picture.symlink_to(elsewhere)
        case _:
            picture.mkdir()
    before = picture.lstat()
    assert main(["layout", "4:1", "--svg", str(picture)]) == 2
    assert "error[unwritable-output]" in capsys.readouterr().err
    assert picture.lstat().st_ino == before.st_ino and elsewhere.read_text() == "mine"
    assert main(["layout", "4:1", "--svg", str(elsewhere)]) == 0
    assert elsewhere.read_text().startswith("<svg")


@pytest.mark.parametrize("arguments", [["explain"], ["layout", "4:1"]])
def test_closed_standard_output_is_one_message(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "argus", *arguments]
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *command], capture_output=True, text=True)
    assert done.returncode == 2
    assert "error[unwritable-output]: cannot write `standard output`: it is closed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_message() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "argus", "explain"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.count("error[unwritable-output]") == 1 and "Traceback" not in done.stderr
