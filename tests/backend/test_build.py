"""From explicit IR to an artifact, for each kind of target."""

from __future__ import annotations

from dataclasses import replace

import pytest

from argus.backend.build import build
from argus.backend.cpu import toolchain as cpu
from argus.backend.cuda import toolchain as cuda
from argus.backend.emit import emit
from argus.backend.hip import toolchain as hip
from argus.ir.expr import Const, Param, op
from argus.ir.nodes import Assume, Requires
from argus.passes import lower
from tests.conftest import require
from tests.passes import kernels

COMPILERS = {"cpu": cpu.find_compiler, "sm_80": cuda.find_compiler, "sm_90a": cuda.find_compiler,
             "gfx942": hip.find_compiler}  # fmt: skip


@pytest.mark.parametrize("target", COMPILERS)
def test_build(target: str) -> None:
    require(COMPILERS[target](), f"a compiler for {target}")
    kernel = lower(kernels.gemm(warp_size=64 if target == "gfx942" else 32), target)
    artifact = build(kernel, target)
    assert artifact.source == emit(kernel)
    assert artifact.entry == "argus_gemm"
    assert artifact.binary is not None and artifact.binary[:4] == b"\x7fELF"
    assert artifact.entry.encode() in artifact.binary or target == "cpu"
    assert artifact.resources is not None
    assert artifact.resources.shared_bytes >= 16384
    if target != "cpu":
        assert artifact.resources.registers is not None and artifact.resources.registers > 32
        assert artifact.resources.spill_bytes == 0


def test_text_alone_needs_no_compiler() -> None:
    kernel = lower(kernels.add(), "sm_80")
    artifact = build(kernel, "sm_80", compile=False)
    assert artifact.binary is None and artifact.resources is None
    assert artifact.source == emit(kernel)


def test_assumptions_are_part_of_the_artifact() -> None:
    size = op("gt", Param("N"), Const(0))
    kernel = replace(lower(kernels.add(), "sm_80"), preconditions=(Requires(size), Assume(size, "the caller knows")))
    assert build(kernel, "sm_80", compile=False).assumptions == ("the caller knows",)
