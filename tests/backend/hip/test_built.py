"""Kernels that are proved for gfx942 are built for it: groups of copies that it lacks, rows held in LDS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import argus.kernels
from argus.backend.build import build
from argus.backend.hip.toolchain import find_compiler
from argus.compile import elaborate, prove
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.passes import lower
from argus.source import SourceFile
from tests.conftest import require

THROUGH_LDS = """
import argus
import argus.language as al

@argus.kernel(num_warps=4)
def move(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"]):
    N = x.shape[0]
    places = al.grid(al.cdiv(N, 256)) * 256 + al.arange(256)
    held = al.shared((256,), al.float32)
    al.copy(held, x[places], mask=places < N, other=0.0, instruction=COPY)
    al.cp_async_commit()
    WAIT
    al.barrier()
    al.store(y[places], al.load(held[255 - al.arange(256)]), mask=places < N)
"""

HELD = (
    ("rmsnorm", "rmsnorm_held_rows", {}),
    ("layernorm", "layernorm_held_rows", {}),
    ("layernorm", "add_layernorm_held_rows", {"BLOCK": 2048}),  # two tensors' rows in the 64 KiB of LDS
    ("softmax", "softmax_held_rows", {}),
)


def through_lds(copy: str, wait: str = "al.cp_async_wait(0)") -> SourceFile:
    return SourceFile("move.py", THROUGH_LDS.replace("COPY", copy).replace("WAIT", wait))


def proved_and_built(source: SourceFile, name: str, options: Options) -> None:
    report = prove(source, name, options)
    assert report.verdict is Verdict.PROVED, report.diagnostics
    require(find_compiler(), "clang 17 or newer")
    artifact = build(lower(elaborate(source, name, options), "gfx942"), "gfx942")
    assert artifact.binary is not None and artifact.binary[:4] == b"\x7fELF"
    assert artifact.resources is not None and artifact.resources.spill_bytes == 0


def test_groups_of_copies_that_the_target_lacks() -> None:
    proved_and_built(through_lds("None"), "move", Options("gfx942", 4))


def test_a_group_waits_for_no_load_to_lds() -> None:
    options = Options("gfx942", 4)
    report = prove(through_lds('"global_load_lds"'), "move", options)
    assert report.verdict is Verdict.REFUTED
    assert [d.code for d in report.diagnostics if d.verdict is Verdict.REFUTED] == ["data-race"]
    proved_and_built(through_lds('"global_load_lds"', "al.s_waitcnt(vmcnt=0)"), "move", options)


@pytest.mark.parametrize(("file", "name", "constants"), HELD, ids=[name for _, name, _ in HELD])
def test_rows_that_wait_in_lds(file: str, name: str, constants: dict[str, Any]) -> None:
    path = Path(argus.kernels.__file__).parent / f"{file}.py"
    source = SourceFile(str(path), path.read_text(encoding="utf-8"))
    proved_and_built(source, name, Options("gfx942", 8, {"COPY": None, **constants}))
