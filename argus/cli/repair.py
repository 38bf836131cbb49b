"""The command `argus repair`."""

from __future__ import annotations

import argparse
import json

from rich.markup import escape

from argus.agents import Repair, Task, repair, repair_json
from argus.cli.common import PROVED, REFUTED, UNKNOWN, UNUSABLE, out, progress, worst
from argus.cli.jobs import jobs
from argus.diagnostic import Verdict
from argus.render import diagnostics_text
from argus.work import LIMIT_S


def run(options: argparse.Namespace) -> int:
    """Search, for each wrong kernel of a file, for one edit that corrects it, and print the edit as a diff."""
    limit = LIMIT_S if options.limit is None else options.limit
    found: list[Repair] = []
    for job in jobs(options.file, options):
        with progress(f"repairing {job.name}"):
            found.append(repair(Task(job.source, job.name, job.options), steps=options.steps, limit_s=limit))
        if not options.json:
            _show(found[-1])
    if options.json:
        print(json.dumps([repair_json(r) for r in found], indent=2))
    return worst(_code(r) for r in found)


def _code(found: Repair) -> int:
    """Return the exit code of `argus check` for the kernel, or for its repair if there is one."""
    if found.answer is not None or found.before.proved:
        return PROVED
    if found.before.verdict is None:
        return UNUSABLE
    return REFUTED if found.before.verdict is Verdict.REFUTED else UNKNOWN


def _show(found: Repair) -> None:
    console, kernel = out(), escape(found.kernel)
    if found.before.proved:
        console.print(f"[bold green]proved[/] {kernel}: nothing to repair")
        return
    console.print(diagnostics_text(found.before.diagnostics[:1]), end="")
    steps = f"{len(found.steps)} edit{'' if len(found.steps) == 1 else 's'} tried"
    if found.answer is None:
        console.print(f"\n[bold yellow]no repair[/] {kernel}: {steps}, none is proved")
        return
    console.print(f"\n[bold green]repair[/] {kernel}: {found.answer.title}; proved, {steps}")
    console.print(found.answer.diff, markup=False)
