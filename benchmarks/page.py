"""The tables of `PAGES`, from the files in `benchmarks/results`: written by `python -m benchmarks plot`.

A table follows the comment `<!-- table NAME -->`, NAME that of the results file, and after `_by_` which of its rows;
with `_in_classes` it is one of their means; `shown` is the README's. It ends with its last line of cells, or with the
line that says what was measured.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import classes

RESULTS = Path("benchmarks/results")
PAGES = tuple(
    map(
        Path,
        (
            "README.md",
            "docs/performance.md",
            "docs/performance-drawn.md",
            "docs/mutate.md",
            "docs/performance/mi300x.md",
            "docs/performance/sm_90a.md",
        ),
    )
)

Row = Mapping[str, Any]
Columns = Mapping[str, Callable[[Row], str]]
_TABLE = re.compile(r"(<!-- table (\w+) -->\n)((?:\|[^\n]*\n)*(?:\nMeasured with [^\n]*\n)?)")


def _figure(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _speed(value: float | None) -> str:
    """TFLOP/s: products of few rows have few of them."""
    return _figure(value, 0 if value is None or value > 20 else 1)


def _column(name: str, digits: int | None = None) -> Callable[[Row], str]:
    return lambda row: str(row[name]) if digits is None else _figure(row[name], digits)


def _bold(name: str) -> Callable[[Row], str]:
    return lambda row: f"**{_figure(row[name], 2)}**"


_OUTCOMES: Columns = {name: _column(name) for name in ("killed", "equivalent", "missed", "unknown")}

TABLES: dict[str, Columns] = {
    "gemm": {
        "M × N × K": lambda r: f"{r['M']} × {r['N']} × {r['K']}",
        "dtype": _column("dtype"),
        "layout": _column("layout"),
        "library TFLOP/s": lambda r: _speed(r["library TFLOP/s"]),
        "matmul TFLOP/s": lambda r: _speed(r["TFLOP/s"]),
        "GB/s": _column("GB/s", 0),
        "of the library": _bold("speed / library"),
        "error ours / library": lambda r: f"{_figure(r['error'], 3)} / {_figure(r['library error'], 3)}",
    },
    "attention": {
        "dtype": _column("dtype"),
        "B, H, heads of k": lambda r: f"{r['B']}, {r['H']}, {r['H of k']}",
        "M × N": lambda r: f"{r['M']} × {r['N']}",
        "D": _column("D"),
        "mask": _column("mask"),
        "cuDNN": _column("cuDNN TFLOP/s", 0),
        "FlashAttention-2": _column("flash TFLOP/s", 0),
        "FlexAttention": _column("flex TFLOP/s", 0),
        "argus TFLOP/s": _column("TFLOP/s", 0),
        "of cuDNN": _bold("speed / cuDNN"),
        "error ours / cuDNN": lambda r: f"{_figure(r['error'], 3)} / {_figure(r['cuDNN error'], 3)}",
    },
    "memory": {
        "kernel": _column("kernel"),
        "dtype": _column("dtype"),
        "rows × columns": lambda r: f"{r['rows']} × {r['columns']}",
        "eager TB/s": _column("eager TB/s", 2),
        "compile TB/s": _column("compile TB/s", 2),
        "argus TB/s": _column("TB/s", 2),
        "of the copy": _column("of copy", 2),
        "of the better peer": _bold("speed / best peer"),
    },
    "cold": {"step": _column("step"), "ms": _column("ms", 0), "CPU ms of the process": _column("cpu ms", 0)},
    "launch": {"what": lambda r: f"`{r['what']}`", "µs": _column("median us", 1)},
    "ways": {
        "operation": _column("operation"),
        "way": _column("way"),
        **{f"{side}, µs": _column(f"{side} us", 1) for side in ("argus", "PyTorch", "Triton")},
        "dispatcher, µs": _column("dispatcher us", 1),
    },
    "first": {
        "operation": _column("operation"),
        "side": _column("side"),
        "built before, ms": _column("warm ms", 0),
        "its own part": _column("own warm ms", 0),
        "nothing built, ms": _column("cold ms", 0),
        "its own part, nothing built": _column("own cold ms", 0),
    },
    "tiles": {
        "M × N × K": lambda r: f"{r['M']} × {r['N']} × {r['K']}",
        "dtype": _column("dtype"),
        "tiles": _column("tiles"),
        "library, µs": _column("library us", 1),
        "with the table, µs": _column("with us", 1),
        "without, µs": _column("without us", 1),
        "with, of the library": _bold("with / library"),
        "without": _bold("without / library"),
    },
    "conflicts": {
        "kernel": _column("kernel"),
        "access": _column("access"),
        "conflicts, verifier": _column("conflicts"),
        "conflicts, hardware": _column("measured conflicts"),
        "wavefronts, verifier": _column("wavefronts"),
        "wavefronts, hardware": _column("measured wavefronts"),
    },
    "mutants_by_kernel": {
        "kernel": _column("what"),
        "target": _column("target"),
        "mutants": lambda r: f"{r['mutants']} of {r['possible']}",
        **_OUTCOMES,
    },
    "amd": {
        "loop": _column("loop"),
        "of": _column("side"),
        "vector / matrix cycles": _column("vector / matrix", 2),
        "LDS bytes / flop": _column("LDS bytes / flop", 3),
        "share in MFMA": _column("share in MFMA", 2),
        "share of a unit": _column("share of a unit", 2),
        "TFLOP/s, predicted": _column("TFLOP/s"),
        "waits": _column("waits"),
        "barriers": _column("barriers"),
        "registers": _column("registers"),
        "spilled bytes": _column("spilled bytes"),
    },
    "amd_built": {
        "kernel": _column("kernel"),
        "verdict": _column("verdict"),
        "proof, CPU s": _column("proof s", 1),
        "registers": _column("registers"),
        "LDS bytes": _column("LDS bytes"),
        "spilled bytes": _column("spilled bytes"),
        "scalars in lanes": _column("scalars in lanes"),
    },
    "nvidia_built": {
        "kernel": _column("kernel"),
        "registers": _column("registers"),
        "spilled bytes": _column("spilled bytes"),
        "products wait": _column("products wait"),
    },
    "mutants_by_class": {"class of edits": _column("what"), "mutants": _column("mutants"), **_OUTCOMES},
}
TABLES |= {f"{area}_drawn": TABLES[area] for area in ("gemm", "attention", "memory")}
TABLES |= {
    f"{area}_in_classes": {
        "class": _column("class"),
        "cases": _column("cases"),
        **({"of the copy": _column(of.also, 3)} if of.also else {}),
        "geometric mean": lambda r: f"**{_figure(r['mean'], 3)}**",
        "median": _column("median", 2),
        "worst": _column("worst", 3),
        "behind": _column("behind"),
    }
    for area, of in classes.AREAS.items()
}
TABLES["shown"] = {name: _column(name) for name in ("kernel", "beside", "speed")}


_ANYWHERE = ("mutants", "amd", "amd_built", "nvidia_built")
"""Results that are the same on all machines."""


def table(columns: Columns, rows: list[Row]) -> str:
    """A table in Markdown."""
    lines = [list(columns), ["---"] * len(columns), *([cell(row) for cell in columns.values()] for row in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines).replace("| --- ", "|---").replace("--- |", "---|")


def _state(argus: Mapping[str, str]) -> str:
    """Return a paragraph that names the measured sources; "" if the results do not."""
    said = ", ".join(f"{name} `{value}`" for name, value in argus.items())
    return f"\nMeasured with {said}.\n" if said else ""


def _results(name: str) -> Mapping[str, Any] | None:
    """Return the stored results of a benchmark, or None."""
    source = RESULTS / f"{name}{'' if name in _ANYWHERE else '-h200'}.json"
    return json.loads(source.read_text(encoding="utf-8")) if source.exists() else None


def _content(name: str) -> str | None:
    """The table of this name; None where there are no results."""
    if name == "shown":
        kept = {area: _results(area) for area in {one.area for one in classes.SHOWN}}
        rows = {area: found["rows"] for area, found in kept.items() if found is not None}
        return table(TABLES[name], list(classes.shown(rows))) if len(rows) == len(kept) else None
    of, _, by = name.partition("_by_")
    area = of.removesuffix("_in_classes")
    found = _results(area)
    if found is None:
        return None
    if area != of:
        return table(TABLES[name], classes.means(classes.AREAS[area], found["rows"]))
    return table(TABLES[name], [row for row in found["rows"] if row.get("by", "") == by]) + _state(
        found.get("argus", {})
    )


def with_tables(page: str) -> str:
    """The page with the tables that the results give."""

    def one(found: re.Match[str]) -> str:
        made = _content(found[2]) if found[2] in TABLES else None
        return found[0] if made is None else found[1] + made

    return _TABLE.sub(one, page)


def write() -> None:
    """Brings the pages' tables up to date."""
    for page in PAGES:
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
