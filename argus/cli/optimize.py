"""The command `argus optimize`."""

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
    """Search for a faster kernel that is proved to compute the same, and write it to a file."""
    reference = _reference(options.file)
    if reference is not None:
        return _stitched(reference, options)
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


def _reference(file: str) -> Path | None:
    """Return the path of a PyTorch file with a model, as in KernelBench, or None for a file of kernels."""
    path = Path(file)
    if "::" in file or path.suffix != ".py" or not path.is_file():
        return None
    text = path.read_text(encoding="utf-8", errors="replace")
    return path if "class Model" in text and "def get_inputs" in text else None


def _stitched(path: Path, options: argparse.Namespace) -> int:
    """Tune the kernels to which a model is compiled, and write the choices."""
    from argus.agents.stitch import Limits as Bounds
    from argus.agents.stitch import stitch

    folder = Folder(options.out or Path(f"{path.stem}-optimized"))
    device = "cpu" if options.target == "cpu" else "cuda:0"
    try:
        found = stitch(path, device, folder, Bounds(minutes=options.minutes),
                       (lambda line: None) if options.json else _said)  # fmt: skip
    except OSError as error:
        raise unwritable(error.filename or folder.path, error) from error
    if options.json:
        print(json.dumps(found.as_json(), indent=2))
        return PROVED
    times = (
        f"{found.reference_us:.1f} us of PyTorch, {found.draft_us:.1f} us of the draft, {found.best_us:.1f} us after"
    )
    out().print(f"[bold green]{found.reference_us / found.best_us:.2f} times as fast[/]: {times}")
    out().print(str(folder.path / "choices.json"))
    return PROVED


def _said(line: str) -> None:
    err().print(line, markup=False)


def _model(options: argparse.Namespace, folder: Folder) -> Model | None:
    """Return the requested model, with a budget and a transcript. Raises `ArgusError` if there is none."""
    if not options.model:
        return None
    folder.path.mkdir(parents=True, exist_ok=True)
    try:
        return Careful(model_of(options.model), Budget(options.tokens), record=folder.path / "model.jsonl")
    except ModelError as error:
        raise bad_input("bad-option", str(error), "leave `--model` out to optimise without one") from None


def _progress(state: State, line: str) -> None:
    """Print one line for each candidate. A terminal shows only the latest line."""
    best = state.trials[state.best].us or 0.0
    said = f"{len(state.trials) - 1} candidates, best {best:.1f} us; {line}"
    if sys.stderr.isatty():
        print(f"\r\033[K{said[:150]}", end="", file=sys.stderr, flush=True)
    else:
        err().print(said, markup=False)
