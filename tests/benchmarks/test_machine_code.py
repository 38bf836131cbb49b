"""What is counted of a loop's machine code: of small programs, assembled and disassembled."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from argus.backend.hip import toolchain
from argus.environment import find_tool
from benchmarks.machine_code import Instruction, count, hot_loop, instructions
from tests.conftest import require

PRODUCT = "v_mfma_f32_32x32x8_bf16 v[0:15], v[16:17], v[18:19], v[0:15]"


def disassembled(text: str, folder: Path) -> list[Instruction]:
    tool = require(find_tool(["llvm-mc-19", "llvm-mc"]), "llvm-mc")
    require(toolchain.find_disassembler(), "llvm-objdump")
    made = folder / "made.o"
    command = [tool, "-triple=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-filetype=obj", "-o", str(made), "-"]
    subprocess.run(command, input=text, text=True, check=True)
    return instructions(toolchain.disassemble(made.read_bytes()))


def loop_of(body: str, folder: Path) -> list[Instruction]:
    return hot_loop(disassembled(f"kernel:\ns_nop 0\ntop:\n{body}\ns_cbranch_scc0 top\ns_endpgm\n", folder))


@pytest.mark.parametrize(
    "line, matrix, vector, lds",
    [
        (PRODUCT, 32, 0, 0),
        ("v_mfma_f32_16x16x16_bf16 v[0:3], v[16:17], v[18:19], v[0:3]", 16, 0, 0),
        ("v_mfma_f32_32x32x16_fp8_fp8 v[0:15], v[16:17], v[18:19], v[0:15]", 32, 0, 0),
        ("v_mfma_f32_32x32x2_f32 v[0:15], v16, v18, v[0:15]", 64, 0, 0),
        ("v_add_f32 v0, v1, v2", 0, 4, 0),
        ("v_pk_mul_f32 v[0:1], v[2:3], v[4:5]", 0, 4, 0),
        ("v_exp_f32 v0, v1", 0, 16, 0),
        ("v_accvgpr_write_b32 a0, v1", 0, 4, 0),
        ("ds_read_b64 v[0:1], v2", 0, 0, 512),
        ("ds_read2st64_b64 v[0:3], v4 offset1:8", 0, 0, 1024),
        ("ds_read_u16_d16 v0, v1", 0, 0, 128),
        ("ds_write_b128 v0, v[4:7]", 0, 0, 1024),
        ("ds_bpermute_b32 v0, v1, v2", 0, 0, 256),
        ("ds_swizzle_b32 v0, v1 offset:swizzle(SWAP,16)", 0, 0, 0),
        ("global_load_lds_dword v[0:1], off", 0, 0, 256),
        ("buffer_load_dword v1, s[4:7], s9 offen lds", 0, 0, 256),
        ("buffer_load_dwordx4 v[0:3], v1, s[4:7], s9 offen", 0, 0, 0),
    ],
)
def test_costs(line: str, matrix: float, vector: int, lds: int, tmp_path: Path) -> None:
    counts = count(loop_of(f"{PRODUCT}\n{line}", tmp_path))
    assert (counts.matrix_cycles - 32, counts.vector_cycles, counts.lds_bytes) == (matrix, vector, lds)


def test_an_iteration_in_the_middle_of_a_long_loop(tmp_path: Path) -> None:
    """Counted: the next tile's load, under the execution mask as well, and not the mask of the last block."""
    body = f"""
        s_barrier
        s_cbranch_scc1 last
        s_cbranch_execz none
        global_load_dwordx4 v[20:23], v[24:25], off
        none:
        last:
        s_waitcnt lgkmcnt(0)
        {PRODUCT}
        s_cbranch_vccz whole
        v_cndmask_b32 v0, v1, v2, vcc
        whole:
        {PRODUCT}
    """
    counts = count(loop_of(body, tmp_path))
    assert (counts.flops, counts.vector_cycles, counts.waits, counts.barriers) == (2 * 16384, 0, 1, 1)
    assert counts.vector_share == 0
    names = [i.name for i in loop_of(body, tmp_path)]
    assert "global_load_dwordx4" in names and "v_cndmask_b32_e32" not in names


def test_the_innermost_loop_with_products(tmp_path: Path) -> None:
    text = f"""
        outer:
        {PRODUCT}
        inner:
        {PRODUCT}
        v_add_f32 v30, v31, v32
        s_cbranch_scc1 inner
        idle:
        v_exp_f32 v0, v1
        s_cbranch_vccz idle
        s_cbranch_scc0 outer
        s_endpgm
    """
    counts = count(hot_loop(disassembled(text, tmp_path)))
    assert (counts.matrix_cycles, counts.vector_cycles) == (32, 4)
    assert hot_loop(disassembled("v_exp_f32 v0, v1\ns_endpgm\n", tmp_path)) == []


def test_llvm_mca_sees_a_matrix_unit_that_is_busy_all_the_time(tmp_path: Path) -> None:
    from benchmarks import amd

    require(find_tool(["llvm-mca-19", "llvm-mca"]), "llvm-mca")
    products = [re.sub(r"v\[0:15\]", f"v[{40 + 16 * n}:{55 + 16 * n}]", PRODUCT) for n in range(4)]
    busy = amd.share(loop_of("\n".join(products), tmp_path))
    alone = amd.share(loop_of("\n".join([*products, *(f"v_exp_f32 v{n}, v{n}" for n in range(16))]), tmp_path))
    waited = amd.share(
        loop_of("buffer_load_dwordx4 v[16:19], v1, s[4:7], 0 offen\ns_waitcnt vmcnt(0)\n" + PRODUCT, tmp_path)
    )
    assert busy is not None and alone is not None and waited is not None
    assert busy > 0.95 > alone > 0.5 > waited


def test_llvm_mca_lets_waits_for_lds_wait_for_lds_alone(tmp_path: Path) -> None:
    from benchmarks import amd

    require(find_tool(["llvm-mca-19", "llvm-mca"]), "llvm-mca")

    def waiting(load: str, counter: str) -> float:
        found = amd.share(loop_of(f"{load}\ns_waitcnt {counter}(0)\n{PRODUCT}", tmp_path))
        assert found is not None
        return found

    for load in ("global_load_dwordx4 v[20:23], v[16:17], off", "global_load_dword v20, v16, s[4:5]"):
        assert waiting(load, "lgkmcnt") > 2 * waiting(load, "vmcnt")
    read = "ds_read_b64 v[20:21], v16"
    assert waiting(read, "vmcnt") > waiting(read, "lgkmcnt")
