"""What ptxas remarks on becomes a warning: of the command line, in the report, and of a call that builds a kernel."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from argus.backend import build as backend
from argus.backend.artifact import SERIALISED, SPILLED, Resources
from argus.backend.cache import DiskCache
from argus.backend.cuda import toolchain
from argus.backend.remarks import _CAUSES, remarks
from argus.cli import main
from argus.compile import elaborate, lower
from argus.diagnostic import Severity
from argus.frontend import Options
from argus.frontend.decorator import KernelSource
from argus.runtime.executable import CachedSource, SpeedWarning
from argus.source import SourceFile
from tests.cli.test_check import RIGHT

PTXAS = "Potential Performance Loss: wgmma.mma_async instructions are serialized due to"
LOG = f"""\
ptxas info    : (C7510) {PTXAS} insufficient register resources for the wgmma pipeline in the function 'k'
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers
"""
REASONS = (
    "the presence of Extern calls in the function 'k'",
    "wgmma pipeline crossing function boundary at a function call in the function 'k'",
    "insufficient register resources for the wgmma pipeline in the function 'k'",
    "insufficient register resources for the function 'k'",
    "non wgmma instructions defining input registers of a wgmma between start and end of the pipeline stage",
    "non wgmma instructions reading accumulator registers of  a wgmma between start and end of the pipeline stage",
    "non wgmma instructions defining accumulator registers of a wgmma between start and end of the pipeline stage",
    "ill formed pipeline stage in the function 'k'",
    "program dependence on compiler-inserted WG.DP in divergent path in the function 'k'",
    "program dependence on compiler-inserted WG.AR in divergent path in the function 'k'",
)
"""All reasons that ptxas 13.0 can give, from its own strings."""

KERNEL = lower(elaborate(SourceFile("k.py", RIGHT), "fill", Options("cpu")), "cpu")


def test_a_log_becomes_warnings() -> None:
    found = remarks(KERNEL, toolchain.parse_resources(LOG))
    assert [(d.code, d.severity, d.verdict) for d in found] == [
        (SERIALISED, Severity.WARNING, None), (SPILLED, Severity.WARNING, None)
    ]  # fmt: skip
    assert "too few registers" in found[0].message
    assert "insufficient register resources" in found[0].notes[0].message
    assert "8 bytes" in found[1].message


def test_each_reason_has_its_own_cause_and_remedy() -> None:
    found = [remarks(KERNEL, Resources(168, 0, 0, warnings=(f"{PTXAS} {reason}",)))[0] for reason in REASONS]
    assert {d.code for d in found} == {SERIALISED}
    assert {d.help for d in found} == {remedy for _, _, remedy in _CAUSES}


def test_another_remark_is_quoted() -> None:
    other = "Potential Performance Loss: 'setmaxnreg' ignored to maintain minimum register requirements."
    (found,) = remarks(KERNEL, Resources(168, 0, 0, warnings=(other,)))
    assert found.code == "slower-code" and other in found.message


def test_code_without_remarks_has_no_warning() -> None:
    assert remarks(KERNEL, Resources(168, 49152, 0)) == remarks(KERNEL, Resources(None, 0, None)) == ()


@pytest.mark.parametrize("cured", [True, False])
def test_code_whose_products_wait_is_compiled_a_second_time(cured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second result is taken if it is better."""
    slow, fast = (Resources(168, 0, 0, warnings=texts) for texts in ((f"{PTXAS} {REASONS[5]}",), ()))
    texts: list[str] = []

    def compiled(text: str, arch: str) -> tuple[bytes, Resources]:
        texts.append(text)
        return b"second", fast if cured else slow

    monkeypatch.setattr(toolchain, "compile", compiled)
    assert backend._unserialised("text", "sm_90a", (b"first", fast)) == (b"first", fast)
    assert not texts
    binary, _ = backend._unserialised("text", "sm_90a", (b"first", slow))
    assert texts == [toolchain.WAITS_APART + "text"]
    assert binary == (b"second" if cured else b"first")


@pytest.fixture
def remarked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every build is as one that ptxas remarks on."""
    compiled = backend._compile

    def slow(*args: Any) -> tuple[bytes, Resources]:
        binary, resources = compiled(*args)
        return binary, replace(resources, warnings=(f"{PTXAS} {REASONS[2]}",))

    monkeypatch.setattr(backend, "_compile", slow)


@pytest.mark.usefixtures("remarked")
def test_the_command_line_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.py").write_text(RIGHT)
    assert main(["build", "k.py", "--target", "cpu", "-o", "out"]) == 0
    assert f"warning[{SERIALISED}]: each product of `fill` waits" in capsys.readouterr().err
    (warning,) = json.loads((tmp_path / "out" / "fill.cpu.json").read_text())["warnings"]
    assert (warning["code"], warning["severity"]) == (SERIALISED, "warning")


@pytest.mark.usefixtures("remarked")
def test_a_call_that_builds_warns_once(tmp_path: Path) -> None:
    source = CachedSource(KernelSource("fill", SourceFile("k.py", RIGHT)), DiskCache(tmp_path))
    with pytest.warns(SpeedWarning, match="waits for the product before it"):
        built = source.executable(Options("cpu"))
    assert [d["code"] for d in built.report["diagnostics"]] == [SERIALISED]
    assert source.executable(Options("cpu")).report == built.report  # from the cache, without a warning


@pytest.mark.parametrize(("spilled", "warned"), [(64, 1), (60, 0)])
def test_a_call_that_builds_warns_of_many_spilled_bytes(
    spilled: int, warned: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_compile", lambda *_: (b"", Resources(32, 0, spilled)))
    source = CachedSource(KernelSource("fill", SourceFile("k.py", RIGHT)), DiskCache(tmp_path))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        built = source.executable(Options("cpu"))
    assert [d["code"] for d in built.report["diagnostics"]] == [SPILLED]
    assert [w.category for w in caught] == [SpeedWarning] * warned
    assert all(f"{spilled} bytes of each thread of `fill`" in str(w.message) for w in caught)
