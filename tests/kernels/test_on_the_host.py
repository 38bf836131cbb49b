"""Every kernel that ships is specified, and proved for the host with tiles of the size that runs there.

Tests of results rely on these proofs (`tests/results.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from argus.compile import elaborate, lower, prove, verify
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.ir.types import float16
from argus.mutate import unspecified
from argus.source import SourceFile
from benchmarks.mutants import SUBJECTS, Subject
from tests.results import SHIPPED, grant

TEXT = """
import argus
import argus.language as al


@argus.kernel
def copied(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "N"], BLOCK: al.constexpr = 256):
    i = al.grid(al.cdiv(x.shape[0], BLOCK)) * BLOCK + al.arange(BLOCK)
    al.store(out[i], al.load(x[i], mask=i < x.shape[0], other=0.0), mask=i < x.shape[0])
"""

_PRODUCT = {"ROWS": 32, "COLUMNS": 32, "DEPTH": 32, "STAGES": 1, "PRODUCERS": 0, "num_warps": 4}
_BLOCKS = {"ROWS": 32, "COLUMNS": 32, "STAGES": 1, "PRODUCERS": 0, "num_warps": 4, "MULTIPLY": float16}
_ATTENTION = {"BLOCK_M": 64, "BLOCK_N": 32, "num_warps": 4}

TILES: Mapping[str, Mapping[str, Any]] = {
    "attention_added": {**_ATTENTION, "STAGES": 2, "CAUSAL": True},
    "attention_backward_blocks": {"BLOCK": 64, "STEP": 16, "STAGES": 2, "num_warps": 4},
    "attention_backward_keys": {"BLOCK": 64, "STEP": 16, "STAGES": 2, "num_warps": 4},
    "attention_backward_queries": {"BLOCK": 64, "STEP": 16, "STAGES": 2, "num_warps": 4},
    "attention_eight_bits": {**_ATTENTION, "MULTIPLY": float16},
    "attention_forward": _ATTENTION,
    "attention_packed": _ATTENTION,
    "attention_packed_keys": {"BLOCK": 64, "STEP": 16, "STAGES": 2, "num_warps": 4},
    "attention_packed_queries": {"BLOCK": 64, "STEP": 16, "STAGES": 2, "num_warps": 4},
    "chunk_inverses": {"CHUNK": 32, "E": 32},
    "chunk_outputs": {"CHUNK": 32},
    "chunk_states": {"CHUNK": 32},
    "chunk_terms": {"CHUNK": 32, "D": 32, "E": 32},
    "chunk_updates": {"CHUNK": 32, "E": 32, "STAGES": 1},
    "expert_blocks": _BLOCKS,
    "expert_rows": _PRODUCT,
    "gemm": {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "STAGES": 2, "PRODUCERS": 0, "num_warps": 1},
    "product_of_blocks": _BLOCKS,
    "product_of_packed": {"ROWS": 32, "TOKENS": 16, "STAGES": 1, "num_warps": 2},
    "states_before": {"CHUNK": 32, "ROWS": 32, "COLUMNS": 32, "DEPTH": 32},
}
"""Constants of the host's tiles, for kernels whose default tiles are those of a GPU."""

KERNELS = {s.kernel: s for s in reversed(SUBJECTS) if Path(s.file).parts[0] == "argus" and s.target != "gfx942"}
"""The first variant of each kernel. One kernel is AMD's alone: the host has no products of its 8-bit floats."""


def options(subject: Subject) -> Options:
    """Return the options of the host's version."""
    constants = dict(TILES.get(subject.kernel, subject.constants))
    warps = constants.pop("num_warps", subject.num_warps)
    return Options("cpu", warps, constants, default_alignment=subject.alignment)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_specified_and_proved(name: str) -> None:
    subject = KERNELS[name]
    source = SourceFile(subject.file, Path(subject.file).read_text(encoding="utf-8"))
    kernel = lower(elaborate(source, name, options(subject)), "cpu")
    assert unspecified(kernel) == ()
    report = verify(kernel)
    assert report.verdict is Verdict.PROVED, [d.message for d in report.diagnostics]


def test_the_verdict_is_granted_to_kernels_that_ship_and_to_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same wrong text is refuted for a GPU, and in another folder."""
    grant(monkeypatch)
    text = TEXT.replace("x[i]", "x[i + 1]")
    for path, target in ((SHIPPED / "mine.py", "sm_90a"), (Path("mine.py"), "cpu")):
        report = prove(SourceFile(str(path), text), "copied", Options(target))
        assert report.verdict is Verdict.REFUTED
    report = prove(SourceFile(str(SHIPPED / "mine.py"), text), "copied", Options("cpu"))
    assert report.verdict is Verdict.PROVED and not report.timings
