"""NVRTC and nvcc behind one function, and what they report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from argus.backend import process
from argus.backend.artifact import Resources
from argus.backend.cuda import toolchain
from argus.diagnostic import ToolchainError
from tests.conftest import require

SOURCE = """
ARGUS_KERNEL(scale, 128)(float* ARGUS_RESTRICT a) {
    const int t = argus::thread_id();
    a[t] = a[t] * 2.0f;
}
"""
VERBOSE = """\
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
    144 bytes stack frame, 96 bytes spill stores, 200 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 144 bytes cumulative stack size, 49152 bytes smem
"""


def test_resources_are_read_from_the_log() -> None:
    expected = Resources(registers=168, shared_bytes=49152, spill_bytes=144)
    assert toolchain.parse_resources(VERBOSE) == expected
    assert toolchain.parse_resources("") == Resources(None, 0, None)


@pytest.fixture(params=["NVRTC", "nvcc"])
def one_compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this compiler is there. NVRTC comes with the test dependencies; nvcc needs a toolkit."""
    if request.param == "NVRTC":
        monkeypatch.setenv("ARGUS_NVRTC", str(require(toolchain.find_nvrtc(), "NVRTC")))
    elif (nvcc := toolchain.find_nvcc()) is not None:
        monkeypatch.setenv("ARGUS_NVCC", nvcc)
    else:
        pytest.skip("needs nvcc")


def test_both_compilers(one_compiler: None) -> None:
    cubin, resources = toolchain.compile(SOURCE, "sm_80")
    assert cubin[:4] == b"\x7fELF"
    assert resources.spill_bytes == 0
    assert resources.registers in range(4, 33)


def test_a_refused_text_names_its_line(one_compiler: None) -> None:
    with pytest.raises(ToolchainError) as error:
        toolchain.compile(SOURCE.replace("2.0f", "two"), "sm_80")
    diagnostic = error.value.diagnostics[0]
    assert diagnostic.code == "compiler-failed"
    assert 'kernel.cu(4): error: identifier "two" is undefined' in diagnostic.notes[0].message


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ARGUS_NVRTC", str(tmp_path / "absent.so"))
    assert toolchain.find_compiler() is None
    with pytest.raises(ToolchainError) as error:
        toolchain.compile(SOURCE, "sm_80")
    assert error.value.diagnostics[0].code == "compiler-missing"
    assert "pip install" in error.value.diagnostics[0].help


def test_a_compiler_on_standby_is_ended_with_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Used, unused, and after a failure."""
    require(toolchain.find_nvrtc(), "NVRTC")
    started: list[process.Running] = []

    def noted(*args: Any, **kwargs: Any) -> process.Running:
        started.append(start(*args, **kwargs))
        return started[-1]

    start = process.start
    monkeypatch.setattr(process, "start", noted)
    with toolchain.standby("sm_90a") as compiler:
        assert compiler(SOURCE, 60.0)[0][:4] == b"\x7fELF"
    with toolchain.standby("sm_90a"):
        pass
    with pytest.raises(ZeroDivisionError), toolchain.standby("sm_90a"):
        raise ZeroDivisionError
    assert [running.process.poll() for running in started] == [0, -9, -9]
