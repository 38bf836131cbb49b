"""Proofs and builds of everything that ships, for gfx942: what each kernel takes of a lane, and if anything spills."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from argus.backend.build import build
from argus.compile import elaborate
from argus.diagnostic import ArgusError
from argus.frontend import Options
from argus.ir.nodes import Kernel
from argus.ir.types import DTYPES
from argus.passes import lower
from argus.source import SourceFile
from argus.verify import verify
from benchmarks.amd import notes
from benchmarks.mutants import SUBJECTS
from benchmarks.table import Cell, Results

_TARGET = "gfx942"
_BLOCKS: dict[str, object] = {
    "ROWS": 64, "COLUMNS": 64, "STAGES": 2, "PRODUCERS": 0, "MULTIPLY": DTYPES["float16"],
}  # fmt: skip
_GRADIENTS: dict[str, object] = {"BLOCK": 64, "STEP": 16, "STAGES": 1}

CONSTANTS: dict[str, dict[str, object]] = {
    "chunk_updates": {"STAGES": 1},
    "gemm": {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "STAGES": 2, "PRODUCERS": 0},
    "attention_forward": {"BLOCK_M": 128, "BLOCK_N": 32, "STAGES": 2},
    "attention_added": {"BLOCK_M": 64, "BLOCK_N": 32, "STAGES": 2},
    "attention_backward_keys": _GRADIENTS,
    "attention_backward_queries": _GRADIENTS,
    "attention_decode_rows": {"BLOCK": 32},
    "attention_eight_bits": {"BLOCK_M": 64, "BLOCK_N": 32, "MULTIPLY": DTYPES["float16"]},
    "attention_packed": {"BLOCK_M": 64, "BLOCK_N": 32},
    "attention_packed_keys": _GRADIENTS,
    "attention_packed_queries": _GRADIENTS,
    "softmax_held_rows": {"COPY": None},
    "rmsnorm_held_rows": {"COPY": None},
    "layernorm_held_rows": {"COPY": None},
    "add_layernorm_held_rows": {"COPY": None, "BLOCK": 2048},
    "product_of_blocks": _BLOCKS | {"SCHEDULE": "cooperative"},
    "expert_blocks": _BLOCKS,
}
"""Of kernels whose defaults are for other machines."""

OTHERS = {"reduce_odd_rows", "transpose_to_odd_rows", "attention_backward_blocks", "attention_backward_scaled"}
"""Kernels that are never called on gfx942: they cut vectors, for which it has no instruction, or add by the copy
engine, which it has not."""

WARPS = dict.fromkeys(
    ("attention_added", "attention_eight_bits", "attention_backward_keys", "attention_backward_queries",
     "attention_packed_keys", "attention_packed_queries"), 4,
) | {"attention_decode_rows": 2}  # fmt: skip
"""Of these, the kernels that the library calls with another number of warps than is their default."""

ELSEWHERE = {"gemm_explicit", "gemm_hopper", "gemm_pingpong", "cluster_softmax"}
"""Examples that name another vendor's instructions, or have tiles for its shared memory or its clusters."""

KERNELS = sorted({(s.file, s.kernel, s.alignment) for s in SUBJECTS if s.kernel not in OTHERS | ELSEWHERE})


def lowered(file: str, name: str, alignment: int) -> Kernel:
    """Return the explicit form of a kernel that ships, in tiles that fit gfx942."""
    shipped = file.startswith("argus/kernels")
    constants, warps = (CONSTANTS.get(name, {}), WARPS.get(name)) if shipped else ({}, None)
    source = SourceFile(file, Path(file).read_text(encoding="utf-8"))
    options = Options(_TARGET, warps, constants, default_alignment=alignment)
    return lower(elaborate(source, name, options), _TARGET)


def run() -> Results:
    """Make the table: a row for each kernel."""
    rows = [row for file, name, alignment in KERNELS for row in _rows(file, name, alignment)]
    return Results("Everything that ships, proved and built for gfx942", rows)


def _rows(file: str, name: str, alignment: int) -> Iterator[dict[str, Cell]]:
    shown = "" if alignment == 16 else f", aligned to {alignment}"
    place: dict[str, Cell] = {"kernel": f"{Path(file).stem}: {name}{shown}"}
    try:
        kernel = lowered(file, name, alignment)
        begin = time.process_time()
        verdict = verify(kernel).verdict.name.lower()
        seconds = round(time.process_time() - begin, 2)
        binary = build(kernel, _TARGET).binary
    except ArgusError as error:
        yield place | dict.fromkeys(_FIGURES) | {"verdict": error.diagnostics[0].message}
        return
    assert binary is not None
    found = notes(binary)
    figures = (verdict, seconds, found["vgpr_count"], found["group_segment_fixed_size"],
               found["private_segment_fixed_size"], found["sgpr_spill_count"])  # fmt: skip
    yield place | dict(zip(_FIGURES, figures, strict=True))


_FIGURES = ("verdict", "proof s", "registers", "LDS bytes", "spilled bytes", "scalars in lanes")
