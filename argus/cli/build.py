"""The command `argus build`."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from argus import compile
from argus.backend.artifact import Artifact
from argus.cli.common import PROVED, bad_input, err, out, progress, unwritable, worst, write_file
from argus.cli.jobs import Job, ProgramJob, jobs, program_jobs, verify, with_kernels
from argus.diagnostic import Severity, ToolchainError
from argus.frontend.decorator import KernelSource
from argus.ir.target import TARGETS
from argus.render import diagnostic_json, diagnostics_text, outcome_text
from argus.verify import Report

_SUFFIXES = {"cpu": (".cpp", ".so"), "nvidia": (".cu", ".cubin"), "amd": (".hip", ".co")}
"""Suffixes of the source and the machine code, by vendor."""


def run(options: argparse.Namespace) -> int:
    """Prove kernels, and write the source, machine code and report of those that are proved."""
    if options.package is not None:
        return _package(options)
    codes: list[int] = []
    for job in list(jobs(options.file, options)):
        with progress(f"proving {job.name}"):
            verified = verify(job, options.limit, options.accept)
        out().print(outcome_text(verified.outcome), end="")
        codes.append(verified.code)
        if verified.explicit is None or verified.report is None or verified.code != PROVED:
            err().print(f"{job.name} is not proved: nothing is built")
            continue
        if verified.explicit.target != options.target:
            message = f"`{options.file}` is a kernel of {verified.explicit.target}, not of {options.target}"
            raise bad_input("no-kernel", message, f"--target {verified.explicit.target}")
        with progress(f"building {job.name}"):
            artifact = _build_artifact(verified.explicit, verified.report)
        err().print(diagnostics_text(artifact.remarks), end="")
        for path in _write(artifact, options.output):
            out().print(f"  wrote {path}")
    return worst(codes)


def _package(options: argparse.Namespace) -> int:
    """Write a package of the named kernels or programs."""
    from argus.packages import package
    from argus.packages.writer import Entry
    from argus.programs import jit as program
    from argus.runtime import jit as kernel

    jobs_of: list[Job | ProgramJob] = [*program_jobs(options.file, options)]
    if not jobs_of or with_kernels(options.file):
        jobs_of += jobs(options.file, options)
    entries: dict[str, Entry] = {}
    aligned: dict[str, dict[str, int]] = {}
    for job in jobs_of:
        if job.options is None:
            raise bad_input("no-kernel", f"`{options.file}` is an explicit kernel", "package its Python text")
        text = KernelSource(job.name, job.source)
        item = program(text) if isinstance(job, ProgramJob) else kernel(text)
        entries[job.name] = (item, job.options.constexprs)
        if options.alignment is not None:
            tensors = [n for n, kind in compile.declared(job.source, job.name) if kind in ("tensor", "optional")]
            aligned[job.name] = dict.fromkeys(tensors, options.alignment)
    with progress(f"proving and building {', '.join(entries)}"):
        manifest = package(options.package, entries, target=options.target, alignment=aligned)
    out().print(f"  wrote {manifest}")
    return PROVED


def _build_artifact(explicit: compile.ExplicitKernel, report: Report) -> Artifact:
    """Build an artifact, with machine code if a compiler is at hand."""
    try:
        return compile.build(explicit, report)
    except ToolchainError as error:
        if any(d.code != "compiler-missing" for d in error.diagnostics):
            raise
        err().print(diagnostics_text(replace(d, severity=Severity.WARNING) for d in error.diagnostics), end="")
        err().print("source only")
        return compile.build(explicit, report, machine_code=False)


def _write(artifact: Artifact, folder: Path) -> list[Path]:
    """Write the source, the machine code if there is any, and last the report. Each file is written whole or not at
    all. Machine code of an earlier build never stays beside a newer source."""
    stem = f"{artifact.kernel.name}.{artifact.target}"
    text, binary = _SUFFIXES[TARGETS[artifact.target].vendor]
    files = {f"{stem}{text}": _source(artifact).encode()}
    if artifact.binary is not None:
        files[f"{stem}{binary}"] = artifact.binary
    files[f"{stem}.json"] = (json.dumps(_resources(artifact, list(files)), indent=2) + "\n").encode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if artifact.binary is None:
            (folder / f"{stem}{binary}").unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error
    for name, content in files.items():
        write_file(folder / name, content)
    return [folder / name for name in files]


def _source(artifact: Artifact) -> str:
    """Return the emitted text below comments that list the assumptions and the accepted findings."""
    lines = [f"// assuming {a}\n" for a in artifact.assumptions]
    lines += [f"// tested, not proved: {code} was accepted\n" for code in artifact.accepted]
    return "".join(lines) + artifact.source


def _resources(artifact: Artifact, files: list[str]) -> dict[str, object]:
    found = artifact.resources
    return {
        "kernel": artifact.kernel.name,
        "target": artifact.target,
        "entry": artifact.entry,
        "threads": artifact.kernel.num_threads,
        "registers": found.registers if found is not None else None,
        "shared_bytes": found.shared_bytes if found is not None else None,
        "spill_bytes": found.spill_bytes if found is not None else None,
        "occupancy_blocks": found.occupancy_blocks if found is not None else None,
        "warnings": [diagnostic_json(remark) for remark in artifact.remarks],
        "assumptions": list(artifact.assumptions),
        "accepted": list(artifact.accepted),
        "constexprs": {name: value if isinstance(value, (int, float)) else str(value)
                       for name, value in artifact.kernel.constexprs},
        "files": files,
    }  # fmt: skip
