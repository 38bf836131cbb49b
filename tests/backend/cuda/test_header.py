"""The CUDA header: every function compiles for every architecture, to the instructions that it promises."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from argus.backend.cuda import toolchain
from argus.backend.device_api import functions
from argus.ir.instruction import WGMMA
from argus.ir.target import TARGETS
from tests.backend import every_function
from tests.conftest import require

pytestmark = pytest.mark.slow

ARCHITECTURES = ("sm_80", "sm_90a")
HOPPER_ONLY = {
    "stmatrix_x1", "stmatrix_x2", "stmatrix_x4", "mma_m16n8k32_fp8", "mbarrier_init", "mbarrier_init_fence",
    "mbarrier_arrive", "mbarrier_expect", "mbarrier_wait", "async_fence", "tma_prefetch", "tma_load", "tma_load_im2col",
    "narrow_descriptor", "uniform",
    "raise_registers", "lower_registers", "role_barrier", "role_barrier_arrive", "matrix_descriptor", "descriptor_at",
    "wgmma_fence", "wgmma_commit", "wgmma_wait", "wgmma_hold", "wgmma_forget", "tma_store", "bulk_commit", "bulk_wait",
    "bulk_wait_read", "next_program", "anew", "mbarrier_arrive_cluster", "tma_load_multicast", "cluster_barrier",
    "blocks_among",
    "tma_reduce_add", "tma_reduce_minimum", "tma_reduce_maximum", "wgmma_beside",
    "load_peer", "store_peer",
    *WGMMA,
}  # fmt: skip


@pytest.fixture(scope="module", params=ARCHITECTURES)
def compiled(request: pytest.FixtureRequest) -> tuple[str, bytes]:
    require(toolchain.find_compiler(), "NVRTC or nvcc")
    arch = str(request.param)
    text = every_function.source("cuda", TARGETS[arch].architectures, prints=False)
    cubin, resources = toolchain.compile(text, arch)
    assert resources.registers is not None
    assert resources.spill_bytes == 0
    return arch, cubin


def opcodes(sass: str) -> Counter[str]:
    """How often each instruction stands in a disassembly."""
    return Counter(re.findall(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", sass, re.MULTILINE))


def test_every_function_of_the_library_is_compiled() -> None:
    for arch in ARCHITECTURES:
        text = every_function.source("cuda", TARGETS[arch].architectures)
        unused = {f.name for f in functions("cuda") if not re.search(rf"argus::{f.name}\b", text)}
        variants = {f.name for f in functions("cuda") if f.like in HOPPER_ONLY}
        assert unused == (HOPPER_ONLY | variants if arch == "sm_80" else set())


def test_compiled_code_is_a_cubin(compiled: tuple[str, bytes]) -> None:
    assert compiled[1][:4] == b"\x7fELF"


def test_machine_code(compiled: tuple[str, bytes]) -> None:
    require(toolchain.find_disassembler(), "nvdisasm")
    arch, cubin = compiled
    found = opcodes(toolchain.disassemble(cubin))
    expected = {
        "HMMA.16816.F32.BF16": 1,
        "HMMA.16816.F32": 1 if arch == "sm_80" else 9,  # sm_90 makes each float8 product of two of float16
        "HMMA.1688.F32.TF32": 1,
        "IMMA.16832.S8.S8": 1,
        "LDSM.16.M88": 1,
        "LDSM.16.M88.2": 1,
        "LDSM.16.M88.4": 1,
        "LDSM.16.MT88": 1,
        "LDSM.16.MT88.2": 1,
        "LDSM.16.MT88.4": 1,
    }
    if arch == "sm_90a":
        expected |= {"STSM.16.M88": 1, "STSM.16.M88.2": 1, "STSM.16.M88.4": 1}
        expected |= {f"{name}.{rank}D": n for rank in range(2, 6) for name, n in (("UTMALDG", 2), ("UTMASTG", 1))}
        # HGMMA of 16-bit floats is named after the accumulator alone when that type is float16.
        expected |= {f"HGMMA.64x{n}x16.F32{t}": 1 for n in range(8, 257, 8) for t in ("", ".BF16")}
    assert {name: found[name] for name in expected} == expected
    # Copies of 16 bytes bypass L1; both forms, each of 4, 8 and 16 bytes.
    assert sum(n for name, n in found.items() if name.startswith("LDGSTS.E.BYPASS") and "128" in name) == 2
    assert sum(n for name, n in found.items() if name.startswith("LDGSTS")) == 6
    assert found["LDGDEPBAR"] == 1
    assert found["BAR.SYNC.DEFER_BLOCKING"] > 0
    assert found["SHFL.BFLY"] > 0
    # Red of float32, int32, int64; the two extrema of the integers.
    assert sum(n for name, n in found.items() if name.startswith("RED")) >= 7
    assert not any("STL" in name or "LDL" in name for name in found), "a fragment went to local memory"
