"""The command `argus show`."""

from __future__ import annotations

import argparse

from argus.cli.common import PROVED, bad_input
from argus.cli.jobs import jobs, program_jobs
from argus.ir.text import print_kernel


def run(options: argparse.Namespace) -> int:
    """Print the explicit form of one kernel, or a program with its memory planned."""
    programs = program_jobs(options.file, options) if "::" in options.file else []
    if programs:
        from argus.programs.text import print_program

        print(print_program(programs[0].program()), end="")
        return PROVED
    found = list(jobs(options.file, options))
    if len(found) > 1:
        help = f"name one of {', '.join(f'{options.file}::{job.name}' for job in found)}"
        raise bad_input("no-kernel", f"`{options.file}` has {len(found)} kernels, and one is shown at a time", help)
    print(print_kernel(found[0].explicit()), end="")
    return PROVED
