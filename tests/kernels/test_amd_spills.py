"""No kernel that ships keeps anything in memory that belongs into registers, on gfx942.

What the code objects say themselves is read: clang's notes of each kernel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from argus.backend.build import build
from argus.backend.hip.toolchain import find_compiler
from argus.compile import elaborate
from argus.frontend import Options
from argus.ir.types import DTYPES
from argus.passes import lower
from argus.source import SourceFile
from benchmarks.mutants import SUBJECTS
from tests.conftest import example_runs, require
from tests.machine.kernels import notes

BLOCKS: dict[str, Any] = {"ROWS": 64, "COLUMNS": 64, "STAGES": 2, "PRODUCERS": 0, "MULTIPLY": DTYPES["float16"]}

CONSTANTS: dict[str, dict[str, Any]] = {
    "gemm": {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "STAGES": 2, "PRODUCERS": 0},
    "attention_forward": {"BLOCK_M": 128, "BLOCK_N": 32, "STAGES": 2},
    "attention_packed": {"BLOCK_M": 64, "BLOCK_N": 32},
    "softmax_held_rows": {"COPY": None},
    "rmsnorm_held_rows": {"COPY": None},
    "layernorm_held_rows": {"COPY": None},
    "add_layernorm_held_rows": {"COPY": None, "BLOCK": 2048},
    "product_of_blocks": BLOCKS | {"SCHEDULE": "cooperative"},
    "expert_blocks": BLOCKS,
}
"""Of kernels whose defaults are for other machines. The tiles that products get are in test_amd_builds.py."""

OTHERS = {"reduce_odd_rows", "transpose_to_odd_rows"}
"""Kernels that are never called on gfx942: they cut vectors, for which it has no instruction."""

IN_LANES = {"place_pairs": 49, "examples/gemm.py": 24}
"""Kernels with more masks than scalar registers: so many of these are kept in lanes of a vector register, at most."""

KERNELS = sorted({(s.file, s.kernel, s.alignment) for s in SUBJECTS if s.kernel not in OTHERS})
QUICK = {"rmsnorm_rows", "layernorm_long_rows", "reduce_last", "topk_rows", "expert_rows", "place_pairs"}


def kernel(file: str, name: str, alignment: int) -> Any:
    marks = () if name in QUICK else (pytest.mark.nightly,)
    return pytest.param(file, name, alignment, marks=marks, id=f"{Path(file).stem}-{name}")


@pytest.mark.slow
@pytest.mark.parametrize(("file", "name", "alignment"), [kernel(*k) for k in KERNELS])
def test_nothing_spills(file: str, name: str, alignment: int) -> None:
    shipped = file.startswith("argus/kernels")
    if not shipped and not example_runs(name, "gfx942"):
        pytest.skip("names another vendor's instructions, or has tiles for its shared memory")
    require(find_compiler(), "clang 17 or newer")
    constants = CONSTANTS.get(name, {}) if shipped else {}
    source = SourceFile(file, Path(file).read_text(encoding="utf-8"))
    options = Options("gfx942", constexprs=constants, default_alignment=alignment)
    binary = build(lower(elaborate(source, name, options), "gfx942"), "gfx942").binary
    assert binary is not None
    found = notes(binary)
    assert (found["vgpr_spill_count"], found["private_segment_fixed_size"]) == (0, 0)
    assert found["sgpr_spill_count"] <= IN_LANES.get(name if shipped else file, 0)
