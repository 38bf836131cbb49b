"""The command `argus annotate`."""

from __future__ import annotations

import argparse
import difflib
import json

from argus.agents.invariants import Annotated, annotated, annotated_json
from argus.cli.common import PROVED, bad_input, out
from argus.cli.common import progress as working
from argus.cli.jobs import Job, jobs
from argus.render import Json
from argus.work import LIMIT_S


def run(options: argparse.Namespace) -> int:
    """Find, for each kernel of a file, the tags and assertions that hold, and print them as a diff."""
    limit = LIMIT_S if options.limit is None else options.limit
    found: list[Json] = []
    for job in jobs(options.file, options):
        if job.options is None:
            raise bad_input("bad-option", f"`{options.file}` holds an explicit kernel", "give the file of its text")
        with working(f"annotating {job.name}"):
            one = annotated(job.source, job.name, job.options, limit)
        found.append(annotated_json(job.name, job.options.target, one))
        if not options.json:
            _show(job, one)
    if options.json:
        print(json.dumps(found, indent=2))
    return PROVED


def _show(job: Job, found: Annotated) -> None:
    kept, dropped = len(found.invariants.assertions), found.invariants.dropped
    out().print(f"[bold green]annotated[/] {job.name}: {kept} assertions proved, {dropped} candidates dropped")
    if found.text is None:
        out().print("the text has no words for them; `--json` prints the explicit kernel that has them")
        return
    path, before, after = job.source.path, job.source.text.splitlines(), found.text.splitlines()
    out().print("\n".join(difflib.unified_diff(before, after, path, path, n=1, lineterm="")), markup=False)
