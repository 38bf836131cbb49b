"""The machine code of a matrix product: its inner loop is matrix instructions, and nothing spills."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

from argus.backend.cuda import toolchain
from argus.backend.emit import emit
from argus.ir.nodes import Copy, For, Kernel, Stage, Stmt
from argus.passes import lower
from tests.conftest import require
from tests.passes import kernels


def without_masks(kernel: Kernel) -> Kernel:
    """The kernel for sizes that the tiles divide."""

    def change(stmt: Stmt) -> Stmt:
        match stmt:
            case Copy() | Stage():
                return replace(stmt, mask=None, other=None)
            case For(body=body):
                return replace(stmt, body=tuple(change(s) for s in body))
            case _:
                return stmt

    return replace(kernel, body=tuple(change(s) for s in kernel.body))


def inner_loop(sass: str) -> Counter[str]:
    """How often each instruction stands in the smallest loop that has matrix instructions."""
    code: list[str] = []
    labels: dict[str, int] = {}
    loops: list[Counter[str]] = []
    for line in sass.splitlines():
        if label := re.match(r"(\.L_\w+):", line.strip()):
            labels[label[1]] = len(code)
        elif instruction := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([\w.]+)(.*);", line):
            code.append(instruction[1])
            target = re.search(r"\((\.L_\w+)\)", instruction[2]) if instruction[1].startswith("BRA") else None
            if target and target[1] in labels:
                loops.append(Counter(code[labels[target[1]] :]))
    return min((loop for loop in loops if any("MMA" in name for name in loop)), key=Counter.total)


@pytest.mark.product
@pytest.mark.parametrize("masked", [False, True], ids=["whole tiles", "guarded edges"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("tile", "warps", "loads"), [((128, 128, 32), 4, 8), ((128, 256, 32), 8, 6)])
def test_inner_loop(arch: str, tile: tuple[int, int, int], warps: int, loads: int, masked: bool) -> None:
    """Of each warp 64 products, the 16 ldmatrix that feed them, a tile's share of copies, and little else."""
    require(toolchain.find_compiler(), "NVRTC or nvcc")
    require(toolchain.find_disassembler(), "nvdisasm")
    kernel = kernels.gemm(tile, 3, num_warps=warps)
    cubin, resources = toolchain.compile(emit(lower(kernel if masked else without_masks(kernel), arch)), arch)
    assert resources.spill_bytes == 0
    loop = inner_loop(toolchain.disassemble(cubin))
    assert loop["HMMA.16816.F32.BF16"] == 64
    assert loop["LDSM.16.M88.4"] == 16
    assert loop["LDGSTS.E.BYPASS.LTC128B.128"] == loads
    assert loop.total() <= (165 if masked else 150)
