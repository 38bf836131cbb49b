"""A table of figures: for a terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.machine import machine, sources

Cell = str | int | float | None

_WIDEST = 1000
"""Columns of a table that goes to a file, where no terminal limits them."""


@dataclass(frozen=True)
class Results:
    """Rows share their keys; a key is a column's heading, with the unit in it. `notes` say how it was measured.

    `summary` holds figures of the table as a whole, by what they are.
    """

    title: str
    rows: Sequence[Mapping[str, Cell]]
    notes: Sequence[str] = field(default=())
    summary: Mapping[str, Cell] = field(default_factory=dict)


def show(results: Results, file: Path | None) -> None:
    """Prints `results` with the machine's description; writes them to `file` as JSON as well, if there is one."""
    facts, state = machine(), sources()
    console = Console()
    table = Table(title=results.title)
    headings = list(results.rows[0]) if results.rows else []
    for heading in headings:
        numbers = all(not isinstance(row[heading], str) for row in results.rows)
        table.add_column(heading, justify="right" if numbers else "left")
    for row in results.rows:
        table.add_row(*(Text(_text(row[heading])) for heading in headings))
    if not console.is_terminal:
        unlimited = console.options.update(max_width=_WIDEST)
        console.width = max(console.width, console.measure(table, options=unlimited).maximum)
    console.print(table)
    for what, cell in results.summary.items():
        console.print(f"  {what}: {_text(cell)}", highlight=False, markup=False)
    for note in results.notes:
        console.print(f"  {note}", highlight=False, markup=False)
    known = "; ".join(f"{name}: {value}" for name, value in (facts | state).items())
    console.print(f"  {known}", style="dim", highlight=False, markup=False)
    if file is not None:
        content = {
            "title": results.title,
            "machine": facts,
            "argus": state,
            "notes": list(results.notes),
            "rows": list(results.rows),
            "summary": dict(results.summary),
        }
        file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _text(cell: Cell) -> str:
    match cell:
        case None:
            return "–"
        case float() if cell != 0 and (abs(cell) < 0.01 or abs(cell) >= 1e5):
            return f"{cell:.2e}"
        case float():
            return f"{cell:.3g}" if abs(cell) < 100 else f"{cell:.1f}"
        case _:
            return str(cell)
