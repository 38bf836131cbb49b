"""The host's compiler: found, missing, failing."""

from __future__ import annotations

import pytest

from argus.backend.cpu import toolchain
from argus.diagnostic import ToolchainError
from tests.conftest import require


def test_a_missing_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ToolchainError) as caught:
        toolchain.compile("", "k", 32)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "compiler-missing"
    assert "g++" in diagnostic.help and "CXX" in diagnostic.help


def test_a_failing_compiler_is_quoted() -> None:
    require(toolchain.find_compiler(), "a C++ compiler")
    with pytest.raises(ToolchainError) as caught:
        toolchain.compile("ARGUS_KERNEL(k, 32)(int n) {\n    n = argus::no_such_function(n);\n}", "k", 32)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "compiler-failed"
    assert "kernel.cpp:2" in diagnostic.notes[0].message
    assert "no_such_function" in diagnostic.notes[0].message


def test_the_compiler_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    other = require(toolchain.find_tool(["clang++", "clang++-19"]), "clang++")
    monkeypatch.setenv("CXX", other)
    assert toolchain.find_compiler() == other
    binary, resources = toolchain.compile("ARGUS_KERNEL(k, 64)(int n) {}", "k", 64)
    assert binary[:4] == b"\x7fELF"
    assert resources.registers is None and resources.spill_bytes is None
