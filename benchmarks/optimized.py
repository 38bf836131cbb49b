"""`argus optimize` from naive kernels, without a language model, beside the kernels that ship."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from argus import from_text
from argus.agents.optimize import Folder, Limits, Problem, Run, as_json, problem_of, write
from argus.agents.optimize.timer import arguments
from argus.knowledge.entry import FOLDER
from argus.source import SourceFile
from benchmarks.measure import batch, in_turns, manner, needs_gpu, rotating
from benchmarks.table import Cell, Results

_BATCHES = 15
Shipped = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A naive kernel, the sizes, and the call of the kernel that ships, on the same arguments."""

    name: str
    sizes: Mapping[str, int]
    shipped: Callable[[Any], Shipped]


def _product(kernels: Any) -> Shipped:
    return lambda a, b, c: kernels.matmul(a, b.T, out=c)


def _attention(kernels: Any) -> Shipped:
    return lambda q, k, v, o, scale: kernels.attention(q, k, v, scale=scale / 1.4426950408889634)


def _experts(kernels: Any) -> Shipped:
    """The rows are gathered first, because each is read for many columns: the layer's choice at these sizes."""
    import torch

    from argus.kernels import experts
    from argus.kernels.expert_products import tile_of

    def call(x: Any, token: Any, first: Any, owner: Any, w: Any, out: Any) -> None:
        rows = torch.empty(len(token), x.shape[1], dtype=x.dtype, device=x.device)
        experts.gather_rows(x, token, None, rows, BLOCK=2048)
        constants = tile_of("sm_90a", len(token), len(w), x.shape[1], True, True)
        experts.expert_rows(rows, None, first, owner, w, out, ACTIVATION=experts.swiglu, **constants)

    return call


def _rmsnorm(kernels: Any) -> Shipped:
    return lambda x, weight, out, eps: kernels.rmsnorm(x, weight, eps)


def _softmax(kernels: Any) -> Shipped:
    return lambda x, out: kernels.softmax(x)


CASES = (
    Case("product", {"M": 4096, "N": 4096, "K": 4096}, _product),
    Case("attention", {"B": 2, "H": 32, "M": 4096, "N": 4096}, _attention),
    Case("experts", {"T": 4096, "P": 8192, "L1": 76, "E": 8, "N": 4096, "K": 2048, "C": 2048}, _experts),
    Case("rmsnorm", {"M": 16384, "N": 4096}, _rmsnorm),
    Case("softmax", {"M": 16384, "N": 4096}, _softmax),
)


def run(names: Sequence[str], minutes: float, folder: Path | None, audit: int = 0, prepare: bool = False) -> Results:
    """Optimise each naive kernel for some minutes, and time the best text in turns with the kernel that ships.

    `audit`: the number of texts that are timed of those that the model rejected. `prepare`: without a GPU, only prove
    and build, for the cache, what the search tries where the performance model tells times.
    """
    if not prepare:
        needs_gpu("optimized")
    rows: list[dict[str, Cell]] = []
    with tempfile.TemporaryDirectory(prefix="argus-optimized-") as temporary:
        for case in CASES:
            if not names or case.name in names:
                where = (folder or Path(temporary)) / case.name
                rows.append(_prepared(case, minutes, where) if prepare else _row(case, minutes, where, audit))
                print(rows[-1], flush=True)
    shares = [float(row["share"]) for row in rows if isinstance(row["share"], float)]
    early, useless = (sum(int(row[key] or 0) for row in rows) for key in ("rejected early", "wrong or slower"))
    summary: dict[str, Cell] = {
        "share of the shipped kernels' speed, geometric mean": geometric_mean(shares) if shares else None,
        "wrong or slower candidates that no compiler saw": early / useless if useless else None,
    }
    note = f"{minutes} minutes each, no language model; {manner(_BATCHES)}"
    return Results("Naive kernels made faster", rows, (note,), summary)


_COLUMNS = ("kernel", "naive us", "best us", "shipped us", "share", "candidates", "looked at", "wrong or slower",
            "rejected early", "of these tried", "rightly rejected")  # fmt: skip


def _prepared(case: Case, minutes: float, where: Path) -> dict[str, Cell]:
    one = Run(_problem(case), Folder(where), Limits(minutes, built=True), _told)
    return {**dict.fromkeys(_COLUMNS), "kernel": case.name, "candidates": len(one.go().trials) - 1}


def _told(_: object, line: str) -> None:
    print(f"  {line[:240]}", flush=True)


def _problem(case: Case) -> Problem:
    text = (FOLDER / "kernels" / f"{case.name}.py").read_text(encoding="utf-8")
    return problem_of(SourceFile(f"{case.name}.py", text), case.name, "sm_90a", case.sizes)


def _row(case: Case, minutes: float, where: Path, audit: int) -> dict[str, Cell]:
    problem, folder = _problem(case), Folder(where)
    one = Run(problem, folder, Limits(minutes), _told)
    state = one.go()
    write(folder, problem, state)
    said: Any = as_json(folder, problem, state)
    best, shipped = _times(case, problem, folder.text(state.best))
    audited, rightly = one.audit(audit) if audit else (0, 0)
    cells = (case.name, state.trials[0].us, best * 1e6, shipped * 1e6, shipped / best, len(state.trials) - 1,
             sum(state.looked.values()), said["wrong_or_slower"], said["rejected_before_compilation"], audited,
             rightly)  # fmt: skip
    return dict(zip(_COLUMNS, cells, strict=True))


def _times(case: Case, problem: Problem, text: str) -> tuple[float, float]:
    """Return the seconds of the best text and of the kernel that ships, in turns."""
    import torch

    from argus import kernels

    ours = from_text(text, problem.path)[case.name]
    make = partial(arguments, torch, problem.kernel(), problem, "cuda:0", 1, 1.0)
    sets = rotating(make, "cuda")
    theirs = case.shipped(kernels)
    for call in (ours, theirs):
        call(*sets[0])
    torch.cuda.synchronize()
    found = in_turns({"ours": lambda: batch(ours, sets), "theirs": lambda: batch(theirs, sets)}, _BATCHES)
    return found["ours"], found["theirs"]
