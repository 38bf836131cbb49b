"""The command `argus report`."""

from __future__ import annotations

import argparse

from argus.cli.common import out, progress, worst, write_file
from argus.cli.jobs import jobs, verify
from argus.editor.page import page, section


def run(options: argparse.Namespace) -> int:
    """Prove the kernels of a file, and write one page about them."""
    sections, codes = [], []
    for job in jobs(options.file, options):
        with progress(f"proving {job.name}"):
            verified = verify(job, options.limit)
        sections.append(section(job.source, verified.outcome, verified.explicit, verified.report))
        codes.append(verified.code)
    write_file(options.output, page(f"{options.file} for {options.target}", sections).encode())
    out().print(f"wrote {options.output}")
    return worst(codes)
