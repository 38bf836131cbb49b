"""The machine code of a matrix product on gfx942: its inner loop is matrix instructions, and nothing spills."""

from __future__ import annotations

import re
from collections import Counter

from argus.backend.emit import emit
from argus.backend.hip import toolchain
from argus.passes import lower
from tests.conftest import require
from tests.passes import kernels


def test_inner_loop() -> None:
    """Accumulators stay in the accumulation registers; between barriers each wave runs 16 products. The compiler waits
    for no load to LDS: the kernel's own wait leaves those of one later iteration open, 8 for each tile."""
    require(toolchain.find_compiler(), "clang 17 or newer")
    require(toolchain.find_disassembler(), "llvm-objdump")
    kernel = lower(kernels.gemm((128, 128, 32), 3, warp_size=64), "gfx942")
    code, resources = toolchain.compile(emit(kernel), "gfx942")
    assert resources.spill_bytes == 0
    assert resources.shared_bytes == max(s.offset + s.layout.cosize() * 2 for s in kernel.shared)
    text = toolchain.disassemble(code)
    instructions = re.findall(r"^\s+([a-z]\w+)\s.*//", text, re.MULTILINE)
    start = instructions.index("s_barrier")
    products = [i for i, name in enumerate(instructions) if name == "v_mfma_f32_32x32x8_bf16"]
    loop = Counter(instructions[start : products[-1] + 1])
    assert loop["v_mfma_f32_32x32x8_bf16"] == 16
    assert sum(loop[name] for name in ("ds_read2st64_b64", "ds_read_b64", "ds_read2_b64")) <= 16
    assert loop["global_load_lds_dword"] == 16
    assert not any("saveexec" in name for name in loop), "a wave that skips a load counts otherwise than the others"
    assert re.findall(r"s_waitcnt vmcnt\(\d+\)", text[text.index("s_barrier") - 200 : text.rindex("v_mfma")]) == [
        "s_waitcnt vmcnt(16)"
    ]
    assert not any("accvgpr" in name or name.startswith(("scratch", "flat", "buffer")) for name in loop)
