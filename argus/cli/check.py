"""The command `argus check`."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator

from argus.cli.common import UNUSABLE, internal, out, progress, worst
from argus.cli.jobs import jobs, program_jobs, unusable, verify, verify_program, with_kernels
from argus.cli.version import installed_version
from argus.diagnostic import ArgusError
from argus.render import Outcome, outcome_json, outcome_text, sarif


def run(options: argparse.Namespace) -> int:
    """Prove every kernel of the files, and print the findings on each."""
    outcomes: list[Outcome] = []
    codes: list[int] = []
    for outcome, code in _checked(options):
        outcomes.append(outcome)
        codes.append(code)
        if not (options.json or options.sarif):
            out().print(outcome_text(outcome), end="")
    if options.json:
        print(json.dumps([outcome_json(outcome) for outcome in outcomes], indent=2))
    if options.sarif:
        print(json.dumps(sarif(outcomes, installed_version()), indent=2))
    return worst(codes)


def _checked(options: argparse.Namespace) -> Iterator[tuple[Outcome, int]]:
    for where in options.files:
        start = time.perf_counter()
        try:
            programs = program_jobs(where, options)
            found = [] if programs and not with_kernels(where) else list(jobs(where, options))
        except ArgusError as error:
            yield unusable(where, start, error.diagnostics), UNUSABLE
            continue
        except Exception as error:
            yield unusable(where, start, (internal(error),)), UNUSABLE
            continue
        for job in found:
            with progress(f"proving {job.name}"):
                verified = verify(job, options.limit, options.accept, options.exact, options.second_opinion)
            yield verified.outcome, verified.code
        for program in programs:
            with progress(f"proving {program.name}"):
                yield verify_program(program, options.limit)
