"""The command `argus mutate`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from argus import mutate
from argus.cli.common import PROVED, REFUTED, err, out
from argus.cli.jobs import Job, ProgramJob, jobs, program_jobs
from argus.work import LIMIT_S


def run(options: argparse.Namespace) -> int:
    """Make small edits of kernels, and count those that the proof catches."""
    limit = LIMIT_S if options.limit is None else options.limit
    trials: list[mutate.Trial] = []
    for where in options.files:
        programs = program_jobs(where, options) if "::" in where else []
        for job in programs or jobs(where, options):
            with _steps(f"mutants of {job.name}") as progress:
                trials.append(_trial(job, options, limit, progress))
            if not options.json:
                out().print(mutate.trial_table(trials[-1]))
    if len(trials) > 1 and not options.json:
        out().print(mutate.summary_table(trials))
    if options.json:
        print(json.dumps([mutate.trial_json(t) for t in trials], indent=2))
    return REFUTED if any(t.number(mutate.Outcome.MISSED) for t in trials) else PROVED


def _trial(
    job: Job | ProgramJob, options: argparse.Namespace, limit: float, progress: Callable[[int, int], None]
) -> mutate.Trial:
    if isinstance(job, Job):
        return mutate.trial(job.explicit(), options.seed, options.count, limit, progress)
    from argus.programs.mutate import trial

    return trial(job.program(), options.seed, options.count, limit, progress)


@contextmanager
def _steps(message: str) -> Iterator[Callable[[int, int], None]]:
    """Return a function that shows progress: in place on a terminal, otherwise one line for each tenth."""
    console = err()
    if not console.is_terminal:
        yield lambda done, of: console.print(f"{message}: {done} of {of}") if _milestone(done, of) else None
        return
    with console.status(message) as status:
        yield lambda done, of: status.update(f"{message}: {done} of {of}")


def _milestone(done: int, of: int) -> bool:
    """Return True before the first mutant, and whenever another tenth of the mutants is complete."""
    return done == 0 or (done * 10) // of > ((done - 1) * 10) // of
