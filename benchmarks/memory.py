"""Kernels whose limit is the memory: ours beside eager PyTorch and torch.compile, in one run.

Times are taken as `benchmarks.measure` says. A rate counts what has to be read and written, once. The error is the
largest difference from the result in float64, in units of that result's root mean square.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from benchmarks import measure
from benchmarks.measure import Batch, Row, batch
from benchmarks.memory_kernels import KERNELS, Kernel
from benchmarks.table import Results

OURS, EAGER, COMPILED = "argus", "eager", "compile"

_RATIO = "speed / best peer"
_COPIED = 2**30  # bytes

Side = Callable[..., Any]
"""One of the three ways to the result, of a set of operands."""


@dataclass(frozen=True)
class Case:
    """A kernel of `KERNELS` on a matrix of `rows` rows of `columns` elements of `dtype`."""

    kernel: str
    dtype: str
    rows: int
    columns: int

    def __str__(self) -> str:
        return f"{self.kernel} {self.dtype} {self.rows} {self.columns}"


def cases_of(text: str) -> tuple[Case, ...]:
    """One case a line: `softmax bfloat16 16384 4096`; empty lines, and what follows a #, do not count.

    ValueError for what is none.
    """
    found = []
    for kernel, dtype, rows, columns in measure.words_of(text):
        if kernel not in KERNELS:
            raise ValueError(f"`{kernel}` is none of {', '.join(KERNELS)}")
        found.append(Case(kernel, dtype, int(rows), int(columns)))
    return tuple(found)


def default_cases() -> tuple[Case, ...]:
    """Every kernel at the shapes that it lists."""
    return tuple(Case(name, *shape) for name, kernel in KERNELS.items() for shape in kernel.shapes)


def run(cases: Sequence[Case], batches: int) -> Results:
    """One row a case, and the geometric means. Needs a GPU."""
    import torch

    measure.needs_gpu("memory")
    copied = _copy_speed(torch, batches)
    print(f"copy of 1 GiB: {copied:.3f} TB/s", file=sys.stderr, flush=True)

    def rows_of(case: Case) -> tuple[list[Row], list[str]]:
        sides = {**own_sides(case), COMPILED: torch.compile(KERNELS[case.kernel].eager, dynamic=False)}
        row, problems = row_of("cuda", case, sides, batches, batch, copied)
        return [row], problems

    def told(row: Row) -> str:
        return f"{row['TB/s']} TB/s, {row['of copy']} of copy, {row[_RATIO]} of the best peer"

    rows, notes = measure.through(cases, rows_of, told)
    return Results(
        "kernels whose limit is the memory",
        rows,
        (
            measure.manner(batches),
            "TB/s: bytes that have to be read and written, over the time",
            "error: largest difference from the result in float64, over that result's root mean square",
            *notes,
        ),
        {
            "copy of 1 GiB, TB/s": copied,
            **measure.means(rows, "of copy"),
            **measure.means(rows, _RATIO),
            **measure.means(rows, _RATIO, "kernel"),
        },
    )


def own_sides(case: Case) -> dict[str, Side]:
    """Our kernel, and PyTorch's."""
    return {OURS: KERNELS[case.kernel].ours, EAGER: KERNELS[case.kernel].eager}


def row_of(
    device: str, case: Case, sides: Mapping[str, Side], batches: int, batch: Batch, copied: float
) -> tuple[Row, list[str]]:
    """The row of a case, and the reason of each side that cannot be run, whose figures are None.

    `copied` is the speed of a copy in TB/s.
    """
    kernel = KERNELS[case.kernel]
    sets = measure.rotating(lambda: _operands(device, case, kernel), device)
    errors, problems = {}, {}
    for name, side in sides.items():
        try:
            errors[name] = _error(kernel, side, sets[0])
            for operands in sets:
                side(*operands)
        except Exception as error:
            problems[name] = measure.reason(error)
    runs = {name: partial(batch, side, sets) for name, side in sides.items() if name not in problems}
    moved = kernel.moved(case.rows, case.columns, sets[0][0].element_size())
    row = _row(case, moved, measure.in_turns(runs, batches), errors, copied)
    return row, [f"{name} at {case}: {what}" for name, what in problems.items()]


def _row(case: Case, moved: int, seconds: Mapping[str, float], errors: Mapping[str, float], copied: float) -> Row:
    mine, peers = seconds.get(OURS), [seconds[name] for name in (EAGER, COMPILED) if name in seconds]

    def rate(name: str) -> float | None:
        return 1e-12 * moved / seconds[name] if name in seconds else None

    speed = rate(OURS)
    return {
        "kernel": case.kernel,
        "dtype": case.dtype,
        "rows": case.rows,
        "columns": case.columns,
        "us": None if mine is None else 1e6 * mine,
        "TB/s": speed,
        "of copy": None if speed is None else speed / copied,
        "eager TB/s": rate(EAGER),
        "compile TB/s": rate(COMPILED),
        _RATIO: min(peers) / mine if mine is not None and peers else None,
        "error": errors.get(OURS),
        "eager error": errors.get(EAGER),
        "compile error": errors.get(COMPILED),
    }


def _operands(device: str, case: Case, kernel: Kernel) -> Sequence[Any]:
    import torch

    return kernel.operands(device, case.rows, case.columns, getattr(torch, case.dtype))


def _copy_speed(torch: Any, batches: int) -> float:
    """TB/s, read and written, of PyTorch's copy of 1 GiB."""
    source = torch.empty(_COPIED, device="cuda", dtype=torch.uint8).random_()
    target = torch.empty_like(source)
    target.copy_(source)
    seconds = median(batch(target.copy_, [(source,)]) for _ in range(batches))
    return 2e-12 * _COPIED / seconds


def _error(kernel: Kernel, side: Side, operands: Sequence[Any]) -> float:
    """The largest error of one call over all results, each relative to its own root mean square."""
    found, exact = side(*operands), kernel.exact(*operands)
    return max(map(measure.relative_error, _results(found), _results(exact)))


def _results(value: Any) -> Sequence[Any]:
    return value if isinstance(value, tuple) else (value,)
