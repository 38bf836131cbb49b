"""The command `argus knowledge`."""

from __future__ import annotations

import argparse
import json
import os

from rich.markup import escape

from argus.cli.common import PROVED, UNUSABLE, bad_input, out, progress, report
from argus.cli.jobs import jobs
from argus.diagnostic import ArgusError
from argus.knowledge import Entry, Reason, entries, entry_json, facts_of, reasons, search


def run(options: argparse.Namespace) -> int:
    """List the entries that contain the words of a query, or those that apply to a kernel, with the reasons."""
    options.query = query = " ".join(options.query)
    if query and ("::" in query or query.endswith(".py") or os.path.exists(query)):
        return _of_kernels(options)
    found = search(query) if query else list(entries())
    if query and not found:
        error = bad_input("bad-option", f"no entry speaks of `{query}`", "`argus knowledge` lists all entries")
        return report(error.diagnostics)
    exact = [e for e in found if e.name == query]
    _show([(e, ()) for e in exact or found], options.json, bool(exact) or (bool(query) and len(found) < 3))
    return PROVED


def _of_kernels(options: argparse.Namespace) -> int:
    """Print, for each kernel of a file, the entries that apply and why."""
    code = PROVED
    for job in jobs(options.query, options):
        if job.options is None:
            raise bad_input(
                "bad-option", f"`{options.query}` is an explicit kernel", "pass the text that it was made of"
            )
        try:
            with progress(f"reading {job.name}"):
                facts = facts_of(job.source, job.name, job.options, dict(options.sizes) or None)
        except ArgusError as error:
            code = max(code, report(error.diagnostics))
            continue
        fits = [e for e in entries() if e.applies(facts)]
        if not options.json:
            out().print(f"[bold]{escape(job.name)}[/]: {len(fits)} of {len(entries())} entries apply")
        _show([(e, reasons(e, facts)) for e in sorted(fits, key=lambda e: -e.gain)], options.json, False)
    return UNUSABLE if code else PROVED


def _show(found: list[tuple[Entry, tuple[Reason, ...]]], as_json: bool, whole: bool) -> None:
    if as_json:
        print(json.dumps([entry_json(e, why) for e, why in found], indent=2))
        return
    console = out()
    for entry, why in found:
        console.print(f"[bold]{escape(entry.name)}[/] ({entry.layer}, ×{entry.gain:g}): {escape(entry.title)}")
        if why:
            console.print(f"  because {escape('; '.join(map(str, why)))}")
        if whole:
            console.print(f"  {entry.prose}\n  measured: {entry.measured} ({entry.source})\n  costs: {entry.cost}\n"
                          f"  kept honest by: {entry.invariant}\n  errors: {', '.join(entry.wrong)}\n{entry.change}",
                          markup=False)  # fmt: skip
