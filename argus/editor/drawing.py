"""Drawings of timelines and of counterexamples, as SVG."""

from __future__ import annotations

from html import escape

from argus.diagnostic import Witness
from argus.editor.timeline import Event, Timeline

_WIDTH, _HEIGHT, _GAP = 132, 42, 14
_LEFT, _TOP, _ROW = 110, 26, 104
_COLORS = {
    "copy": "#cfe3ff", "product": "#d9f2d6", "commit": "#eeeeee", "signal": "#fff0c7", "wait": "#ffd9d2",
    "barrier": "#e3d8f5",
}  # fmt: skip


def pipeline_svg(drawn: Timeline) -> str:
    """Return a timeline: one row per role, and arrows to each wait from the events that it covers."""
    columns = max(event.column for event in drawn.events) + 1
    width = _LEFT + columns * (_WIDTH + _GAP) + 20
    height = _TOP + len(drawn.lanes) * _ROW + 34
    parts = [_open(width, height)]
    at = {e.number: (_LEFT + e.column * (_WIDTH + _GAP), _TOP + drawn.lanes.index(e.lane) * _ROW) for e in drawn.events}
    for row, lane in enumerate(drawn.lanes):
        parts.append(_text(8, _TOP + row * _ROW + 26, lane, 13, "bold"))
    for event in drawn.events:
        parts += [_arrow(at[number], at[event.number]) for number in event.covers]
    parts += [_box(event, *at[event.number]) for event in drawn.events]
    x = 8
    for kind, color in _COLORS.items():
        parts.append(f'<rect x="{x}" y="{height - 22}" width="14" height="14" fill="{color}" stroke="#999"/>')
        parts.append(_text(x + 20, height - 11, kind, 12))
        x += 90
    return "\n".join([*parts, "</svg>"])


def _box(event: Event, x: int, y: int) -> str:
    dash = ' stroke-dasharray="4 3"' if event.conditional else ""
    covered = f"covers {len(event.covers)}" if event.covers else event.trip
    if event.kind == "wait" and not event.covers:
        covered = f"{event.trip}: nothing to do" if event.trip else "nothing to do"
    title = f"{event.text}\n{event.trip}" + (f"\nline {event.line}" if event.line else "")
    return (
        f'<g><title>{escape(title)}</title><rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4" '
        f'fill="{_COLORS[event.kind]}" stroke="#888"{dash}/>'
        f"{_text(x + 6, y + 17, _short(event.label, 20), 12)}{_text(x + 6, y + 34, _short(covered, 23), 10.5)}</g>"
    )


def _arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    (x0, y0), (x1, y1) = (start[0] + _WIDTH, start[1] + _HEIGHT), (end[0], end[1] + _HEIGHT // 2)
    if start[1] == end[1]:  # The arrow is drawn below the boxes of the row.
        y1 = end[1] + _HEIGHT
        depth = y0 + 12 + min(36, (x1 - x0) // 24)
        path = f"M{x0 - _WIDTH // 2},{y0} C{x0 - _WIDTH // 2},{depth + 10} {x1 + 20},{depth + 10} {x1 + 20},{y1}"
    else:
        y0 = start[1] + _HEIGHT // 2
        path = f"M{x0},{y0} C{x0 + 30},{y0} {x1 - 30},{y1} {x1},{y1}"
    return f'<path d="{path}" fill="none" stroke="#b3261e" stroke-opacity="0.55" marker-end="url(#head)"/>'


def trace_svg(witness: Witness) -> str:
    """Return the steps of a counterexample: a row for each role, a column for each step, and the missing order."""
    roles = list(dict.fromkeys(event.role or "..." for event in witness.trace))
    width = _LEFT + 60 + len(witness.trace) * (_WIDTH + 60) + 20
    height = _TOP + len(roles) * 66 + (30 if witness.missing else 0)
    parts = [_open(width, height)]
    parts += [_text(8, _TOP + row * 66 + 26, _short(role, 24), 12, "bold") for row, role in enumerate(roles)]
    for step, event in enumerate(witness.trace):
        x, y = _LEFT + 60 + step * (_WIDTH + 60), _TOP + roles.index(event.role or "...") * 66
        where = ", ".join(f"{name} = {value}" for name, value in event.iteration.items())
        line = f"line {event.span.line}" if event.span.known else ""
        last = "#b3261e" if step >= len(witness.trace) - 1 else "#888"
        title = f"{event.role} {event.message}\n{where}\n{line}"
        parts.append(
            f'<g><title>{escape(title)}</title><rect x="{x}" y="{y}" width="{_WIDTH + 46}" height="{_HEIGHT}" rx="4" '
            f'fill="#f6f7f9" stroke="{last}"/>{_text(x + 6, y + 17, f"{step + 1}. {_short(event.message, 24)}", 11.5)}'
            f"{_text(x + 6, y + 34, ' · '.join(p for p in (where, line) if p), 10.5)}</g>"
        )
    if witness.missing:
        parts.append(_text(8, height - 10, f"missing: {witness.missing}", 12, "bold"))
    return "\n".join([*parts, "</svg>"])


def _open(width: int, height: int) -> str:
    head = '<path d="M0,0 L7,3.5 L0,7 z" fill="#b3261e"/>'
    marker = f'<marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="3.5" orient="auto">{head}</marker>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="system-ui, sans-serif"><defs>{marker}</defs>'
    )


def _text(x: float, y: float, content: str, size: float, weight: str = "normal") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" font-weight="{weight}" fill="#222">{escape(content)}</text>'


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
