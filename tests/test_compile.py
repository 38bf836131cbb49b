"""The shipped examples through the pipeline: every stage is well-formed, and its text reads back exactly."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import argus.verify as proofs
from argus import compile
from argus.backend import process
from argus.diagnostic import Verdict, VerificationError
from argus.frontend import Options
from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel, print_kernel
from argus.ir.wellformed import check_explicit, check_tile
from argus.source import SourceFile
from tests.conftest import example_runs

EXAMPLES = Path(__file__).parent.parent / "examples"
FILES = sorted(EXAMPLES.glob("*.py")) + sorted(EXAMPLES.glob("rejected/*.py"))


def read(path: Path) -> SourceFile:
    return SourceFile(path.name, path.read_text(encoding="utf-8"))


def stages(path: Path, target: str) -> Iterator[tuple[Kernel, Kernel]]:
    """(tile, explicit) of every kernel of a file."""
    source = read(path)
    for name in compile.kernels(source):
        tile = compile.elaborate(source, name, Options(target=target))
        yield tile, compile.lower(tile, target)


@pytest.mark.product
@pytest.mark.parametrize("target", ["cpu", "sm_80", "sm_90a", "gfx942"])
@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_every_stage_is_well_formed_and_reads_back(path: Path, target: str) -> None:
    if not example_runs(path.stem, target):
        pytest.skip("names another vendor's instructions, or has tiles for its shared memory")
    for tile, explicit in stages(path, target):
        assert check_tile(tile) == ()
        assert check_explicit(explicit) == ()
        assert explicit.target == target
        assert parse_kernel(print_kernel(tile)) == tile
        assert parse_kernel(print_kernel(explicit)) == explicit


def test_a_proved_kernel_compiles_and_a_refuted_one_does_not() -> None:
    options = Options(target="cpu")
    artifact = compile.compile(read(EXAMPLES / "vector_add.py"), "vector_add", options).artifact
    assert artifact.entry in artifact.source and artifact.binary
    wrong = read(EXAMPLES / "rejected" / "vector_add.py")
    with pytest.raises(VerificationError) as refusal:
        compile.compile(wrong, "vector_add_rejected", options)
    assert refusal.value.diagnostics[0].verdict is Verdict.REFUTED


def test_the_compiler_works_while_the_proof_does(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, build = Event(), compile.backend.build

    def noted(*args: Any, **kwargs: Any) -> Any:
        begun.set()
        return build(*args, **kwargs)

    def late(*args: Any, **kwargs: Any) -> Any:
        assert begun.wait(10)
        return verify(*args, **kwargs)

    verify = proofs.verify
    monkeypatch.setattr(compile.backend, "build", noted)
    monkeypatch.setattr(proofs, "verify", late)
    compile.compile(read(EXAMPLES / "vector_add.py"), "vector_add", Options(target="cpu"))


def test_what_is_refuted_does_not_wait_for_its_compiler() -> None:
    """A compiler that would take a minute is ended, and with it the thread that waits for it."""
    running = process.start("NVRTC", [sys.executable, "-c", "import sys, time; sys.stdin.read(); time.sleep(60)"])

    def slow(source: str, timeout_s: float) -> Any:
        return running.finish(source, timeout_s=timeout_s)

    wrong, options = read(EXAMPLES / "rejected" / "vector_add.py"), Options(target="sm_90a")
    before = set(threading.enumerate())
    with pytest.raises(VerificationError):
        compile.compile(wrong, "vector_add_rejected", options, compiler=slow)
    assert running.process.poll() is None
    running.end()
    for thread in set(threading.enumerate()) - before:
        thread.join(20)
        assert not thread.is_alive()


def test_debug_levels_show_more_and_more(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[str] = []
    for level in ("0", "1", "2", "3", "4"):
        monkeypatch.setenv("ARGUS_DEBUG", level)
        compile.compile(read(EXAMPLES / "vector_add.py"), "vector_add", Options(target="cpu"))
        shown.append(capsys.readouterr().err)
    assert shown[0] == ""
    assert "verify:" in shown[1] and "kernel vector_add" not in shown[1]
    assert "kernel vector_add" in shown[2] and "obligations" not in shown[2]
    assert "obligations" in shown[3] and "ARGUS_" not in shown[3]
    assert "source of vector_add" in shown[4]
