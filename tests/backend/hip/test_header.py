"""The HIP header: every function compiles for gfx942 without ROCm, to the instructions that it promises."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from argus.backend.device_api import functions, mma_function
from argus.backend.hip import toolchain
from argus.ir.instruction import MMA
from argus.ir.target import TARGETS
from tests.backend import every_function
from tests.conftest import require

SOURCE = every_function.source("hip", TARGETS["gfx942"].architectures)


@pytest.fixture(scope="module")
def compiled() -> bytes:
    require(toolchain.find_compiler(), "clang 17 or newer")
    code, resources = toolchain.compile(SOURCE, "gfx942")
    assert resources.registers is not None
    assert resources.shared_bytes == 4096
    assert resources.spill_bytes == 0
    return code


def opcodes(text: str) -> Counter[str]:
    """How often each instruction stands in a disassembly."""
    return Counter(re.findall(r"^\s+([a-z]\w+)\s.*//", text, re.MULTILINE))


def test_every_function_of_the_library_is_compiled() -> None:
    assert not {f.name for f in functions("hip") if not re.search(rf"argus::{f.name}\b", SOURCE)}


def test_machine_code(compiled: bytes) -> None:
    require(toolchain.find_disassembler(), "llvm-objdump")
    found = opcodes(toolchain.disassemble(compiled))
    for row in MMA.values():
        if "gfx942" not in row.architectures or "fp8" in row.name:
            continue
        name = mma_function(row).name
        suffixes = ["_i8"] if name.startswith("mfma_i32") else ["_bf16", "_f16"]
        # Each also with its operands exchanged.
        assert all(found[f"v_{name.removesuffix('_t')}{suffix}"] == 2 for suffix in suffixes), name
    for shape in ("32x32x16", "16x16x32"):
        pairs = [f"{a}_{b}" for a in ("fp8", "bf8") for b in ("fp8", "bf8")]
        assert all(found[f"v_mfma_f32_{shape}_{pair}"] == 2 for pair in pairs)
    for name in ("global_load_dwordx4", "global_store_dwordx4", "ds_read_b128", "ds_write_b128", "s_barrier"):
        assert found[name] > 0, name
    for name in ("s_setprio", "global_load_lds_dword", "buffer_load_dwordx4", "buffer_load_dword"):
        assert found[name] > 0, name
    assert found["global_atomic_add_f32"] == 1
    assert found["global_atomic_cmpswap"] == 2, "only the extrema of floats loop"
    assert found["v_mov_b32_dpp"] > 0, "exchanges within 16 lanes stay in registers"
    wrong = [name for name in found if name.startswith(("flat_", "scratch_", "buffer_store", "s_swappc"))]
    assert not wrong, "an address space was lost, a fragment went to memory, or a function was not inlined"
