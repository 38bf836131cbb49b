"""Kernels whose limit is the memory: ours beside eager PyTorch and torch.compile, in one run.

All take turns, batch by batch. A batch runs over several sets of operands, together larger than twice the L2 cache,
behind a device-side pause that lets the host get ahead; CUDA events bracket it. Results are kept until their
operands are used again, so that they rotate as well. A rate counts what has to be read and written, once. The error
is the largest difference from the result in float64, in units of that result's root mean square.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from benchmarks.memory_kernels import KERNELS, Kernel
from benchmarks.table import Cell, Results

OURS, EAGER, COMPILED = "argus", "eager", "compile"

_PAUSE_CYCLES = 2_000_000
_LEAST_LAUNCHES = 10
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
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if words:
            kernel, dtype, rows, columns = words
            if kernel not in KERNELS:
                raise ValueError(f"`{kernel}` is none of {', '.join(KERNELS)}")
            found.append(Case(kernel, dtype, int(rows), int(columns)))
    return tuple(found)


def cases_in(file: str) -> tuple[Case, ...]:
    """The cases of a file. ValueError for a file that cannot be read, and for what is no case."""
    try:
        return cases_of(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(str(error)) from None


def default_cases() -> tuple[Case, ...]:
    """Every kernel at the shapes that it lists."""
    return tuple(Case(name, *shape) for name, kernel in KERNELS.items() for shape in kernel.shapes)


def run(cases: Sequence[Case], batches: int) -> Results:
    """One row a case, and the geometric means. Needs a GPU."""
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("benchmarks memory: needs an NVIDIA GPU")
    copied = _copy_speed(torch, batches)
    print(f"copy of 1 GiB: {copied:.3f} TB/s", file=sys.stderr, flush=True)
    rows, notes = [], []
    for case in cases:
        try:
            torch._dynamo.reset()  # or the shapes of earlier cases would count against a limit
            sides = {**own_sides(case), COMPILED: torch.compile(KERNELS[case.kernel].eager, dynamic=False)}
            row, problems = row_of(torch, "cuda", case, sides, batches, _batch, copied)
        except Exception as error:  # what cannot be run must not stop the others
            notes.append(f"{case}: {type(error).__name__}: {_first_line(error)}")
            print(notes[-1], file=sys.stderr, flush=True)
            continue
        rows.append(row)
        notes += problems
        line = f"{case}: {row['TB/s']} TB/s, {row['of copy']} of copy, {row['speed / best peer']} of the best peer"
        print("\n".join((line, *problems)), file=sys.stderr, flush=True)  # a long run shows what it does
        torch.cuda.empty_cache()
    return Results(
        "kernels whose limit is the memory",
        rows,
        (
            f"median of {batches} batches, in turns; operands rotate through more than twice the L2 cache",
            "TB/s: bytes that have to be read and written, over the time",
            "error: largest difference from the result in float64, over that result's root mean square",
            *notes,
        ),
        {"copy of 1 GiB, TB/s": copied, **means(rows)},
    )


def own_sides(case: Case) -> dict[str, Side]:
    """Our kernel, and PyTorch's."""
    return {OURS: KERNELS[case.kernel].ours, EAGER: KERNELS[case.kernel].eager}


def means(rows: Sequence[Mapping[str, Cell]]) -> dict[str, Cell]:
    """The geometric mean of each kernel's speed, relative to the better of its peers."""
    found: dict[str, list[float]] = {}
    for row in rows:
        speed = row["speed / best peer"]
        if isinstance(speed, float):
            found.setdefault(str(row["kernel"]), []).append(speed)
    return {f"{name}, {len(s)} shapes, geometric mean / best peer": geometric_mean(s) for name, s in found.items()}


def row_of(
    torch: Any,
    device: str,
    case: Case,
    sides: Mapping[str, Side],
    batches: int,
    batch: Callable[[Any, Side, Sequence[Any]], float],
    copied: float,
) -> tuple[dict[str, Cell], list[str]]:
    """The row of a case, and the reason of each side that cannot be run, whose figures are None.

    `batch(torch, side, sets)` gives the seconds that one call takes, `copied` the speed of a copy in TB/s.
    """
    kernel = KERNELS[case.kernel]
    sets = _operands(torch, device, case, kernel)
    errors, problems = {}, {}
    for name, side in sides.items():
        try:
            errors[name] = _error(torch, kernel, side, sets[0])
            for operands in sets:
                side(*operands)
        except Exception as error:
            problems[name] = f"{type(error).__name__}: {_first_line(error)}"
    times: dict[str, list[float]] = {name: [] for name in sides if name not in problems}
    for _ in range(batches):
        for name, seconds in times.items():
            seconds.append(batch(torch, sides[name], sets))
    medians = {name: median(seconds) for name, seconds in times.items()}
    moved = kernel.moved(case.rows, case.columns, sets[0][0].element_size())
    row = _row(case, moved, medians, errors, copied)
    return row, [f"{name} at {case}: {reason}" for name, reason in problems.items()]


def _row(
    case: Case, moved: int, seconds: Mapping[str, float], errors: Mapping[str, float], copied: float
) -> dict[str, Cell]:
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
        "speed / best peer": min(peers) / mine if mine is not None and peers else None,
        "error": errors.get(OURS),
        "eager error": errors.get(EAGER),
        "compile error": errors.get(COMPILED),
    }


def _operands(torch: Any, device: str, case: Case, kernel: Kernel) -> list[Any]:
    dtype = getattr(torch, case.dtype)
    first = kernel.operands(device, case.rows, case.columns, dtype)
    one = max(1, sum(t.numel() * t.element_size() for t in first if isinstance(t, torch.Tensor)))
    cache = torch.cuda.get_device_properties(0).L2_cache_size if device == "cuda" else 0
    count = min(64, max(2, -(-2 * cache // one) + 1))
    more = [kernel.operands(device, case.rows, case.columns, dtype) for _ in range(count - 1)]
    return [first, *more]


def _batch(torch: Any, side: Side, sets: Sequence[Any]) -> float:
    """Seconds of one call, from a run over all sets of operands."""
    rounds = -(-_LEAST_LAUNCHES // len(sets))
    kept: list[Any] = [None] * len(sets)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(_PAUSE_CYCLES)
    start.record()
    for _ in range(rounds):
        for place, operands in enumerate(sets):
            kept[place] = side(*operands)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3 / (rounds * len(sets))


def _copy_speed(torch: Any, batches: int) -> float:
    """TB/s, read and written, of PyTorch's copy of 1 GiB."""
    source = torch.empty(_COPIED, device="cuda", dtype=torch.uint8).random_()
    target = torch.empty_like(source)
    target.copy_(source)
    seconds = median(_batch(torch, lambda: target.copy_(source), [()]) for _ in range(batches))
    return 2e-12 * _COPIED / seconds


def _error(torch: Any, kernel: Kernel, side: Side, operands: Sequence[Any]) -> float:
    """The largest error of one call over all results, each relative to its own root mean square."""
    found = side(*operands)
    exact = kernel.exact(*operands)
    worst = 0.0
    for got, wanted in zip(_results(found), _results(exact), strict=True):
        size = wanted.square().mean().sqrt().clamp_min(1e-30)
        worst = max(worst, float((got.double() - wanted).abs().max() / size))
    return worst


def _results(value: Any) -> Sequence[Any]:
    return value if isinstance(value, tuple) else (value,)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "")
