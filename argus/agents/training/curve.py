"""The learning curve of a policy as a picture: steps on held-out sizes by episodes, and the bandit's as a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WIDTH, _HEIGHT, _LEFT, _TOP = 640, 300, 56, 20
_RIGHT, _BOTTOM = _WIDTH - 16, _HEIGHT - 44


def drawn(found: Mapping[str, Any]) -> str:
    """Draw what `recipe.compare` returns (SVG)."""
    episodes, steps = found["curve"]["episodes"], found["curve"]["steps"]
    bandit = sum(found["bandit"]) / max(1, len(found["bandit"]))
    most, high = max(episodes, default=1), max([bandit, *steps]) * 1.1

    def place(episode: float, step: float) -> tuple[float, float]:
        return _LEFT + episode / most * (_RIGHT - _LEFT), _BOTTOM - step / high * (_BOTTOM - _TOP)

    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(e, s) for e, s in zip(episodes, steps, strict=True)))
    level, goal = place(0, bandit)[1], place(0, 0.8 * bandit)[1]
    parts = [
        f'<line x1="{_LEFT}" x2="{_RIGHT}" y1="{level:.1f}" y2="{level:.1f}" stroke="#888"/>',
        f'<line x1="{_LEFT}" x2="{_RIGHT}" y1="{goal:.1f}" y2="{goal:.1f}" stroke="#888" stroke-dasharray="4 4"/>',
        f'<polyline points="{line}" fill="none" stroke="#0a7" stroke-width="2"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#0a7"><title>{e} episodes: {s:.1f} steps</title></circle>'
          for e, s in zip(episodes, steps, strict=True) for x, y in [place(e, s)]),
        _text(_RIGHT - 150, level - 6, f"the bandit: {bandit:.1f}"), _text(_RIGHT - 150, goal - 6, "0.8 of the bandit"),
        _text(_LEFT, _BOTTOM + 30, "episodes of training"), _text(_RIGHT - 30, _BOTTOM + 16, str(most)),
        _text(_LEFT, _TOP - 6, "steps to 95 % of the best, held-out sizes"), _text(8, _BOTTOM, "0"),
        _text(8, _TOP + 10, f"{high:.0f}"),
    ]  # fmt: skip
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}">'
    return "\n".join([head, f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>', *parts, "</svg>", ""])


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="12" font-family="sans-serif" fill="#444">{text}</text>'
