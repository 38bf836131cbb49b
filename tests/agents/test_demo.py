"""The demo's last act."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from argus.agents import demo
from argus.agents.optimize import run as running


def test_the_act_repairs_and_makes_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (demo, running):
        monkeypatch.setattr(module, "place_of_timing", lambda target: "model")  # no clock decides
    out = Console(file=io.StringIO(), width=200)
    assert demo.act(out, steps=1)
    said = out.file.getvalue()  # type: ignore[attr-defined]
    assert "add a barrier before line" in said
    faster = re.search(r"([\d.]+) times as fast", said)
    assert faster is not None and float(faster[1]) > 1.5
