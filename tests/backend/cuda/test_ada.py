"""sm_89: what it has beyond sm_80, products of 8-bit floats, proved and compiled to machine code."""

from __future__ import annotations

import pytest

from argus.backend.cuda import toolchain
from argus.backend.emit import emit
from argus.compile import elaborate, lower, verify
from argus.diagnostic import ArgusError, Verdict
from argus.frontend import Options
from argus.ir.nodes import Kernel
from argus.ir.types import float8_e4m3fn
from tests.conftest import require
from tests.kernels.common import source_of

CONSTANTS = {
    "IN": float8_e4m3fn, "MULTIPLY": float8_e4m3fn, "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "PRODUCERS": 0,
    "SCALED": True, "SCALE_A": "M", "SCALE_B": "N",
}  # fmt: skip


def gemm(target: str) -> Kernel:
    return lower(elaborate(source_of("gemm"), "gemm", Options(target, 4, CONSTANTS)), target)


def test_a_product_of_8_bit_floats_is_proved() -> None:
    assert verify(gemm("sm_89")).verdict is Verdict.PROVED


def test_sm_80_has_none() -> None:
    with pytest.raises(ArgusError) as caught:
        gemm("sm_80")
    assert [d.code for d in caught.value.diagnostics] == ["no-matrix-instruction"]


def test_its_machine_code_multiplies_8_bit_floats() -> None:
    require(toolchain.find_compiler(), "NVRTC or nvcc")
    require(toolchain.find_disassembler(), "nvdisasm")
    cubin, resources = toolchain.compile(emit(gemm("sm_89")), "sm_89")
    assert resources.spill_bytes == 0
    code = toolchain.disassemble(cubin)
    assert "QMMA.16832.F32.E4M3.E4M3" in code and "HMMA" not in code
