"""Experts' products of float8 with scales of blocks: proofs on gfx942, and wrong kernels that are not proved."""

from __future__ import annotations

import pytest

from argus.compile import prove
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.kernels.experts import swiglu
from argus.source import SourceFile

FILE = "argus/kernels/expert_blocks.py"
SMALL = {"ACTIVATION": swiglu, "ROWS": 64, "COLUMNS": 64, "DEPTH": 64}


def verdict(old: str = "", new: str = "", **constants: object) -> Verdict:
    with open(FILE, encoding="utf-8") as file:
        text = file.read()
    assert text.count(old) == 1 or not old
    options = Options("gfx942", 4, {**SMALL, **constants})
    return prove(SourceFile(FILE, text.replace(old, new)), "expert_block_rows", options).verdict


@pytest.mark.parametrize("constants", [{}, {"ACTIVATION": None}], ids=["gated", "plain"])
def test_proved(constants: dict[str, object]) -> None:
    assert verdict(**constants) is Verdict.PROVED


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("of_up = al.load(scale_w[e, 1, n0 // SIDE, g])", "of_up = al.load(scale_w[e, 0, n0 // SIDE, g])"),
        ("g = al.minimum((k0 + DEPTH) // SIDE, G - 1)", "g = al.minimum(k0 // SIDE, G - 1)"),
        ("up += more * (scale * of_up)[:, None]", "up += sums * (scale * of_up)[:, None]"),
    ],
    ids=["the gates' scale", "the scale of the step before", "the gates' products"],
)
@pytest.mark.slow
def test_wrong_kernels_are_refuted(old: str, new: str) -> None:
    assert verdict(old, new) is Verdict.REFUTED
