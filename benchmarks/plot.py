"""`python -m benchmarks plot`: one picture an area, from the files in `benchmarks/results`, into `docs/performance`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

RESULTS = Path("benchmarks/results")
PICTURES = Path("docs/performance")


@dataclass(frozen=True)
class Area:
    """A results file, what names a row of it, and the ratio that is drawn."""

    name: str
    title: str
    labels: tuple[str, ...]
    ratio: str
    peer: str


AREAS = (
    Area("gemm", "matrix products", ("M", "N", "K", "dtype", "layout"), "speed / library", "cuBLAS, cuBLASLt"),
    Area("attention", "attention, forward", ("B", "H", "H of k", "M", "N", "D", "mask"), "speed / cuDNN", "cuDNN"),
    Area("memory", "kernels whose limit is the memory", ("kernel", "dtype", "rows", "columns"), "speed / best peer",
         "the better of eager PyTorch and torch.compile"),
)  # fmt: skip

_WIDTH, _LABEL, _ROW, _TOP = 860, 330, 20, 46
_AHEAD, _BEHIND, _INK, _GRID = "#2f7d5b", "#b5532f", "#222222", "#cccccc"


def draw() -> list[Path]:
    """The pictures of all areas that have results."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    written = []
    for area, name in ((area, f"{area.name}{drawn}") for area in AREAS for drawn in ("", "_drawn")):
        source = RESULTS / f"{name}-h200.json"
        if source.exists():
            target = PICTURES / f"{name}.svg"
            target.write_text(picture(area, json.loads(source.read_text(encoding="utf-8"))), encoding="utf-8")
            written.append(target)
    return written


def picture(area: Area, results: Mapping[str, Any]) -> str:
    """An SVG: a bar a row, as long as our speed over the peer's, and a line where the two are equal."""
    rows = [(_label(area, row), float(row[area.ratio])) for row in results["rows"] if row.get(area.ratio) is not None]
    scale = (_WIDTH - _LABEL - 60) / max(1.5, *(ratio for _, ratio in rows)) if rows else 1.0
    height = _TOP + _ROW * len(rows) + 34
    title = f"{area.title}: speed over that of {area.peer}, {results['machine'].get('gpu', '')}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif" '
        f'font-size="12" fill="{_INK}">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="22" font-size="14">{escape(title)}</text>',
    ]
    parts += [line for number, row in enumerate(rows) for line in _bar(row, _TOP + _ROW * number, scale)]
    bottom, one = _TOP + _ROW * len(rows), _LABEL + scale
    parts.append(f'<line x1="{one:.1f}" y1="{_TOP - 8}" x2="{one:.1f}" y2="{bottom}" stroke="{_INK}"/>')
    parts.append(f'<text x="{one:.1f}" y="{bottom + 16}" text-anchor="middle">1.0</text>')
    return "\n".join([*parts, "</svg>", ""])


def _label(area: Area, row: Mapping[str, Any]) -> str:
    return " ".join(str(row[name]) for name in area.labels if name in row)


def _bar(row: tuple[str, float], top: int, scale: float) -> Sequence[str]:
    label, ratio = row
    end, color = _LABEL + ratio * scale, _AHEAD if ratio >= 1 else _BEHIND
    return (
        f'<line x1="{_LABEL}" y1="{top + _ROW - 2}" x2="{_WIDTH - 20}" y2="{top + _ROW - 2}" stroke="{_GRID}"/>',
        f'<text x="{_LABEL - 8}" y="{top + 13}" text-anchor="end">{escape(label)}</text>',
        f'<rect x="{_LABEL}" y="{top + 2}" width="{ratio * scale:.1f}" height="{_ROW - 6}" fill="{color}"/>',
        f'<text x="{end + 5:.1f}" y="{top + 13}">{ratio:.2f}</text>',
    )
