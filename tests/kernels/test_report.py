"""The report of someone with a GPU that nobody has tried: it goes on after a failure, and is written as it grows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from argus.backend.cpu.toolchain import find_compiler
from tests.conftest import require
from tests.gpu import report, shipped


def test_outcomes_of_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require(find_compiler(), "a C++ compiler")
    first = next(call for call in shipped.calls() if call[0].startswith("softmax odd"))
    wrong = ("a wrong call", first[1], lambda *operands: first[2](*operands) + 1.0, first[3])
    broken = ("a broken call", first[1], first[2], (first[3][0].to("meta"), *first[3][1:]))
    monkeypatch.setattr(report, "calls", lambda: iter((wrong, broken, first)))
    path = tmp_path / "report.json"
    found = report.made("cpu", path)
    assert json.loads(path.read_text()) == found
    outcomes = [one["outcome"] for one in found["calls"].values()]
    assert outcomes[0].startswith("AssertionError: ")
    assert outcomes[1] != "right"
    assert outcomes[2] == "right"
    assert set(report.made("cpu", None, ("a wrong",))["calls"]) == {"a wrong call"}
