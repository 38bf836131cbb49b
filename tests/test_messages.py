"""The messages of the rejected examples, as a person reads them, word by word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from argus import compile
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.render import diagnostics_text
from argus.source import SourceFile
from tests.conftest import Golden, example_target

_ROUNDED = re.compile(r"\d+\.\d{2,}(e[-+]\d+)?|(?<=arrived) +")
"""Computed values, whose last digits are the machine's, and the room that their column takes."""

REJECTED = sorted((Path(__file__).parent.parent / "examples" / "rejected").glob("*.py"))


@pytest.mark.parametrize("path", REJECTED, ids=lambda path: path.stem)
def test_message(path: Path, golden: Golden) -> None:
    source = SourceFile(f"examples/rejected/{path.name}", path.read_text(encoding="utf-8"))
    (name,) = compile.kernels(source)
    report = compile.prove(source, name, Options(target=example_target(path.stem)))
    assert report.verdict is Verdict.REFUTED
    refuted = [d for d in report.diagnostics if d.verdict is Verdict.REFUTED]
    assert all(d.witness is not None and d.witness.replayed for d in refuted)
    text = _ROUNDED.sub("<number>", diagnostics_text(refuted).plain)
    golden(f"messages/{path.stem}.txt", text)
