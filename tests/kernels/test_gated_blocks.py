"""Experts' products of float8 with scales of blocks: proofs on gfx942. Wrong sums are refuted in
tests/verify/test_gated_sums.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus.compile import prove
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.kernels.experts import swiglu
from argus.source import SourceFile

FILE = "argus/kernels/gated_blocks.py"
SMALL = {"ACTIVATION": swiglu, "ROWS": 64, "COLUMNS": 64, "DEPTH": 64}


@pytest.mark.parametrize("constants", [{}, {"ACTIVATION": None}], ids=["gated", "plain"])
def test_proved(constants: dict[str, object]) -> None:
    source = SourceFile(FILE, Path(FILE).read_text(encoding="utf-8"))
    report = prove(source, "gated_block_rows", Options("gfx942", 4, {**SMALL, **constants}))
    assert report.verdict is Verdict.PROVED
