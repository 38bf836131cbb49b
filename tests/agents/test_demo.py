"""The demo's last act."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from argus.agents import demo
from argus.agents.optimize import run as running


def test_the_act_repairs_and_makes_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None)  # by the model: no clock decides
    monkeypatch.setattr(running, "place_of_timing", lambda target: "model")
    out = Console(file=io.StringIO(), width=200)
    assert demo.act(out, steps=1)
    said = out.file.getvalue()  # type: ignore[attr-defined]
    assert "add a barrier before line" in said and "times as fast" in said
