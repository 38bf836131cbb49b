"""Time calls on a GPU and go through cases, in one way for all benchmarks.

All sides of a case take turns, batch by batch, in orders drawn at random. A batch runs over several sets of operands,
together larger than twice the L2 cache, behind a device-side pause that lets the host get ahead; CUDA events bracket
it. Results are kept until their operands are used again, so that they rotate as well.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import geometric_mean, median
from time import perf_counter
from typing import Any, TypeVar

from benchmarks.table import Cell

Call = Callable[..., Any]
Sets = Sequence[Sequence[Any]]
"""Sets of operands: one of them are the arguments of a call."""

Row = dict[str, Cell]
Batch = Callable[[Call, Sets], float]
"""The seconds that one call takes."""

_PAUSE_CYCLES, _PAUSE_CYCLES_A_CALL = 2_000_000, 120_000
"""Of the device: until the host is ahead, at least; and 60 us for each call, of which a batch has up to 64."""
_LEAST_LAUNCHES = 10
_MOST_SETS = 64

C = TypeVar("C")


def manner(batches: int) -> str:
    """Describe how the times of a table were measured."""
    return f"median of {batches} batches, in turns; operands rotate through more than twice the L2 cache"


def batch(call: Call, sets: Sets) -> float:
    """The seconds that one call takes on the device, from a run over all sets of operands."""
    import torch

    rounds = -(-_LEAST_LAUNCHES // len(sets))
    kept: list[Any] = [None] * len(sets)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    pause = max(_PAUSE_CYCLES, _PAUSE_CYCLES_A_CALL * rounds * len(sets))
    torch.cuda._sleep(pause)  # type: ignore[no-untyped-call]
    start.record()
    for _ in range(rounds):
        for place, operands in enumerate(sets):
            kept[place] = call(*operands)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3 / (rounds * len(sets))


def batch_by_host(finish: Callable[[Any], Any]) -> Batch:
    """Return the seconds of a call by the host's clock, for work that PyTorch's stream does not order; `finish` waits
    for a result."""

    def run(call: Call, sets: Sets) -> float:
        import torch

        rounds = -(-_LEAST_LAUNCHES // len(sets))
        torch.cuda.synchronize()
        start = perf_counter()
        results = [call(*operands) for _ in range(rounds) for operands in sets]
        finish(results[-1])
        return (perf_counter() - start) / len(results)

    return run


def in_turns(runs: Mapping[str, Callable[[], float]], batches: int) -> dict[str, float]:
    """The median of `batches` figures of each side. They take turns, in an order that is drawn anew each time: a card
    at its power limit is faster for what follows a lighter kernel, by up to a tenth."""
    figures: dict[str, list[float]] = {name: [] for name in runs}
    chance = Random(0)
    for _ in range(batches):
        for name in chance.sample(list(runs), len(runs)):
            figures[name].append(runs[name]())
    return {name: median(found) for name, found in figures.items()}


def rotating(make: Callable[[], Sequence[Any]], device: str) -> list[Sequence[Any]]:
    """Sets of operands, together more than twice the L2 cache, but no more than 64 sets."""
    import torch

    first = make()
    size = max(1, sum(t.numel() * t.element_size() for t in first if isinstance(t, torch.Tensor)))
    cache = torch.cuda.get_device_properties(0).L2_cache_size if device == "cuda" else 0
    count = min(_MOST_SETS, max(2, -(-2 * cache // size) + 1))
    return [first, *(make() for _ in range(count - 1))]


def relative_error(found: Any, exact: Any) -> float:
    """The largest difference from float64 `exact`, over the root mean square of that."""
    size = exact.square().mean().sqrt().clamp_min(1e-30)
    return float((found.double() - exact).abs().max() / size)


def through(
    cases: Sequence[C], rows_of: Callable[[C], tuple[list[Row], list[str]]], told: Callable[[Row], str]
) -> tuple[list[Row], list[str]]:
    """The rows of all cases, and the reasons of what cannot be run.

    `rows_of` gives both for one case; `told(row)` is a line for the terminal, as a long run shows what it does.
    """
    import torch

    rows: list[Row] = []
    notes: list[str] = []
    for case in cases:
        try:
            torch._dynamo.reset()  # or the shapes of earlier cases would count against a limit
            more, problems = rows_of(case)
        except Exception as error:  # what cannot be run must not stop the others
            more, problems = [], [f"{case}: {reason(error)}"]
        rows += more
        notes += problems
        for line in (*(f"{case}: {told(row)}" for row in more), *problems):
            print(line, file=sys.stderr, flush=True)
        torch.cuda.empty_cache()  # the next case's operands have other sizes
    return rows, notes


def means(rows: Sequence[Mapping[str, Cell]], column: str, group: str | None = None) -> dict[str, Cell]:
    """The geometric mean of what was measured in `column`, of all rows or of those of each `group`."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if isinstance(figure := row[column], float):
            found.setdefault(column if group is None else f"{row[group]}: {column}", []).append(figure)
    return {f"{what}, {len(f)} cases, geometric mean": geometric_mean(f) for what, f in found.items()}


def needs_gpu(benchmark: str) -> None:
    """SystemExit without an NVIDIA GPU."""
    import torch

    if not torch.cuda.is_available():
        raise SystemExit(f"benchmarks {benchmark}: needs an NVIDIA GPU")


def words_of(text: str) -> list[list[str]]:
    """The words of each line; empty lines, and what follows a #, do not count."""
    lines = (line.partition("#")[0].split() for line in text.splitlines())
    return [words for words in lines if words]


def text_of(file: str) -> str:
    """The text of a file of cases. ValueError for one that cannot be read."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(str(error)) from None


def reason(error: Exception) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"
