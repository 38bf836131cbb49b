"""`argus optimize`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from argus.agents.models.chat import Budget, Careful, Model, ModelError
from argus.agents.models.hosted import model_of
from argus.agents.optimize import Folder, Limits, Run, State, as_json, problem_of, write
from argus.cli.common import PROVED, bad_input, err, out, unwritable
from argus.cli.jobs import jobs


def run(options: argparse.Namespace) -> int:
    """Look for a faster kernel that is proved to compute the same, and leave it as a file."""
    found = list(jobs(options.file, options))
    if len(found) != 1 or found[0].options is None:
        names = ", ".join(job.name for job in found)
        raise bad_input("bad-option", f"`{options.file}` names {len(found)} kernels: {names}", "write FILE::KERNEL")
    job = found[0]
    problem = problem_of(job.source, job.name, options.target, dict(options.sizes), dict(options.numbers))
    folder = Folder(options.out or Path(f"{job.name}-optimized"))
    limits = Limits(options.minutes, options.steps, *([options.workers] if options.workers else []))
    try:
        model = _model(options, folder)
        state = Run(problem, folder, limits, None if options.json else _progress, model).go()
        write(folder, problem, state)
    except OSError as error:
        raise unwritable(error.filename or folder.path, error) from error
    if options.json:
        print(json.dumps(as_json(folder, problem, state), indent=2))
    else:
        start, best = state.trials[0].us or 0.0, state.trials[state.best].us or 0.0
        where = {"gpu": "on this GPU", "cpu": "on this processor", "model": "by the performance model"}[state.timed_on]
        out().print(f"[bold green]{start / best:.2f} times as fast[/] {problem.name}: {start:.1f} us before, "
                    f"{best:.1f} us after, {where}; {len(state.trials) - 1} candidates")  # fmt: skip
        out().print(str(folder.path / "best.py"))
    return PROVED


def _model(options: argparse.Namespace, folder: Folder) -> Model | None:
    """Return the model that was asked for, with a budget and a transcript. Raises `ArgusError` if there is none."""
    if not options.model:
        return None
    folder.path.mkdir(parents=True, exist_ok=True)
    try:
        return Careful(model_of(options.model), Budget(options.tokens), record=folder.path / "model.jsonl")
    except ModelError as error:
        raise bad_input("bad-option", str(error), "leave `--model` out to optimise without one") from None


def _progress(state: State, line: str) -> None:
    """One line for each candidate: on a terminal the last one only."""
    best = state.trials[state.best].us or 0.0
    said = f"{len(state.trials) - 1} candidates, best {best:.1f} us; {line}"
    if sys.stderr.isatty():
        print(f"\r\033[K{said[:150]}", end="", file=sys.stderr, flush=True)
    else:
        err().print(said, markup=False)
