"""clang behind one function, and what it reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus.backend.artifact import Resources
from argus.backend.hip import toolchain
from argus.diagnostic import ToolchainError
from tests.conftest import require

SOURCE = """
ARGUS_KERNEL(scale, 128)(float* ARGUS_RESTRICT a) {
    const int t = argus::thread_id();
    a[t] = a[t] * 2.0f;
}
"""
REMARKS = """\
kernel.hip:1:1: remark: Function Name: k [-Rpass-analysis=kernel-resource-usage]
kernel.hip:1:1: remark:     SGPRs: 24 [-Rpass-analysis=kernel-resource-usage]
kernel.hip:1:1: remark:     VGPRs: 96 [-Rpass-analysis=kernel-resource-usage]
kernel.hip:1:1: remark:     AGPRs: 64 [-Rpass-analysis=kernel-resource-usage]
kernel.hip:1:1: remark:     ScratchSize [bytes/lane]: 16 [-Rpass-analysis=kernel-resource-usage]
kernel.hip:1:1: remark:     Occupancy [waves/SIMD]: 3 [-Rpass-analysis=kernel-resource-usage]
kernel.hip:1:1: remark:     LDS Size [bytes/block]: 32768 [-Rpass-analysis=kernel-resource-usage]
"""


def test_resources_are_read_from_the_remarks() -> None:
    assert toolchain.parse_resources(REMARKS) == Resources(registers=160, shared_bytes=32768, spill_bytes=16)
    assert toolchain.parse_resources("") == Resources(None, 0, None)


def test_compile() -> None:
    require(toolchain.find_compiler(), "clang 17 or newer")
    code, resources = toolchain.compile(SOURCE, "gfx942")
    assert code[:4] == b"\x7fELF"
    assert resources.registers in range(1, 17)
    assert (resources.shared_bytes, resources.spill_bytes) == (0, 0)


def test_two_builds_are_equal() -> None:
    """Also in another temporary folder, after which clang would name a symbol."""
    require(toolchain.find_compiler(), "clang 17 or newer")
    first, again, other = (
        toolchain.compile(text, "gfx942")[0] for text in (SOURCE, SOURCE, SOURCE.replace("2.0f", "3.0f"))
    )
    assert first == again
    assert first != other


def test_a_refused_text_names_its_line() -> None:
    require(toolchain.find_compiler(), "clang 17 or newer")
    with pytest.raises(ToolchainError) as error:
        toolchain.compile(SOURCE.replace("2.0f", "two"), "gfx942")
    diagnostic = error.value.diagnostics[0]
    assert diagnostic.code == "compiler-failed"
    assert "kernel.hip:4:19: error: use of undeclared identifier 'two'" in diagnostic.notes[0].message


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ARGUS_CLANG", str(tmp_path / "absent"))
    with pytest.raises(ToolchainError) as error:
        toolchain.compile(SOURCE, "gfx942")
    assert error.value.diagnostics[0].code == "compiler-missing"
    assert "clang-19" in error.value.diagnostics[0].help
