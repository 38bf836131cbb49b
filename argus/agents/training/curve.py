"""Learning curves of policies as a picture: steps on held-out sizes by episodes, and the bandit's as a line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import cycle
from typing import Any

_WIDTH, _HEIGHT, _LEFT, _TOP = 640, 300, 56, 20
_COLOURS = ("#0a7", "#46c", "#c64")
_RIGHT, _BOTTOM = _WIDTH - 16, _HEIGHT - 44


def drawn(*runs: Mapping[str, Any]) -> str:
    """Draw what `recipe.compare` returns, once or for several seeds (SVG)."""
    bandit = sum(runs[0]["bandit"]) / max(1, len(runs[0]["bandit"]))
    most = max((e for run in runs for e in run["curve"]["episodes"]), default=1)
    high = max([bandit, *(s for run in runs for s in run["curve"]["steps"])]) * 1.1

    def place(episode: float, step: float) -> tuple[float, float]:
        return _LEFT + episode / most * (_RIGHT - _LEFT), _BOTTOM - step / high * (_BOTTOM - _TOP)

    level, goal = place(0, bandit)[1], place(0, 0.8 * bandit)[1]
    parts = [
        f'<line x1="{_LEFT}" x2="{_RIGHT}" y1="{level:.1f}" y2="{level:.1f}" stroke="#888"/>',
        f'<line x1="{_LEFT}" x2="{_RIGHT}" y1="{goal:.1f}" y2="{goal:.1f}" stroke="#888" stroke-dasharray="4 4"/>',
        *(_line(place, run["curve"], colour) for run, colour in zip(runs, cycle(_COLOURS))),
        _text(_RIGHT - 150, level - 6, f"the bandit: {bandit:.1f}"), _text(_RIGHT - 150, goal - 6, "0.8 of the bandit"),
        _text(_LEFT, _BOTTOM + 30, "episodes of training"), _text(_RIGHT - 30, _BOTTOM + 16, str(most)),
        _text(_LEFT, _TOP - 6, "steps of the kept policy to 95 % of the best, held-out sizes"), _text(8, _BOTTOM, "0"),
        _text(8, _TOP + 10, f"{high:.0f}"),
    ]  # fmt: skip
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}">'
    return "\n".join([head, f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>', *parts, "</svg>", ""])


def _line(place: Callable[[float, float], tuple[float, float]], curve: Mapping[str, Any], colour: str) -> str:
    """Draw one curve, with a point for each measurement."""
    found = [(e, s, *place(e, s)) for e, s in zip(curve["episodes"], curve["steps"], strict=True)]
    line = " ".join(f"{x:.1f},{y:.1f}" for _, _, x, y in found)
    return "\n".join([
        f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"><title>{e} episodes: {s:.1f} steps</title></circle>'
          for e, s, x, y in found),
    ])  # fmt: skip


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="12" font-family="sans-serif" fill="#444">{text}</text>'
