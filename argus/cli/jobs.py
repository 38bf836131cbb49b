"""The kernels that the command line names, and their verdicts."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from argus import compile
from argus.cli.common import DISAGREED, PROVED, REFUTED, UNKNOWN, UNUSABLE, bad_input, internal
from argus.cli.importable import insist_on_python
from argus.diagnostic import ArgusError, Diagnostic, Verdict, VerificationError
from argus.frontend import Options
from argus.frontend.linking import Unreadable, linked, read_text
from argus.render import Outcome
from argus.source import SourceFile
from argus.verify import Report
from argus.verify.equality import equalities
from argus.verify.report import verdict_of
from argus.work import LIMIT_S

if TYPE_CHECKING:
    from argus.programs.ir import Program

_CODES = {Verdict.PROVED: PROVED, Verdict.REFUTED: REFUTED, Verdict.UNKNOWN: UNKNOWN}
_EXPLICIT = ".ir"
"""The suffix of files that hold one explicit kernel, with its target and constants."""


@dataclass(frozen=True, slots=True)
class Job:
    """A kernel to verify: a kernel of a Python file or, without `options`, a text that `argus show` printed."""

    source: SourceFile
    name: str
    options: Options | None

    def explicit(self) -> compile.ExplicitKernel:
        """Return the kernel in explicit form. Raises `ArgusError` if it has none."""
        if self.options is None:
            return compile.read(self.source)
        return compile.lower(compile.elaborate(self.source, self.name, self.options), self.options.target)


@dataclass(frozen=True, slots=True)
class ProgramJob:
    """A program to prove, with the kernels that it launches."""

    source: SourceFile
    name: str
    options: Options

    def program(self) -> Program:
        """Return the program with its memory planned. Raises `ArgusError`."""
        from argus.programs.pipeline import lower

        return lower(self.source, self.name, self.options)


def program_jobs(where: str, options: argparse.Namespace) -> list[ProgramJob]:
    """Return the programs that FILE[::NAME] names, or none if NAME is a kernel. Raises `ArgusError` for an unreadable
    file."""
    path, wanted = _parted(where)
    if path.endswith(_EXPLICIT):
        return []
    source = _read(path)
    aligned = {} if options.alignment is None else {"default_alignment": options.alignment}
    constants = dict[str, object](options.constants)
    found = []
    names = compile.programs(source)
    if names and not wanted:
        insist_on_python(source)
    for name in names:
        declared = {parameter for parameter, _ in compile.declared(source, name)}
        mine = {key: value for key, value in constants.items() if key in declared}
        if wanted in ("", name):
            found.append(ProgramJob(source, name, Options(target=options.target, constexprs=mine, **aligned)))
    return found


def with_kernels(where: str) -> bool:
    """Return True if FILE[::NAME] names a whole file that has kernels."""
    path, wanted = _parted(where)
    return not wanted and bool(compile.named_kernels(_read(path)))


def verify_program(job: ProgramJob, limit_s: float | None) -> tuple[Outcome, int]:
    """Prove a program and every kernel that it launches. An error is returned as an outcome."""
    from argus.programs.prove.prove import prove
    from argus.programs.settle import options_of

    start = time.perf_counter()
    try:
        program = job.program()
        limit = LIMIT_S if limit_s is None else limit_s
        reports = [prove(program, limit)]
        for use in program.uses:
            reports.append(compile.prove(use.source, use.name, options_of(use, program.target), limit_s=limit))
    except ArgusError as error:
        return unusable(job.name, start, error.diagnostics), UNUSABLE
    except Exception as error:  # An internal error on one program does not hide the results of the others.
        return unusable(job.name, start, (internal(error),)), UNUSABLE
    found = tuple(d for r in reports for d in r.diagnostics)
    verdict = verdict_of(found)
    assumed = tuple(dict.fromkeys(a for r in reports for a in r.assumptions))
    aligned = {t.name: t.alignment for t in program.tensors} if verdict is Verdict.PROVED else {}
    equality = {s.output: "over the reals" for s in program.specs}
    seconds = time.perf_counter() - start
    return Outcome(job.name, verdict, seconds, assumed, found, aligned, equality=equality), _CODES[verdict]


def _parted(where: str) -> tuple[str, str]:
    """Split FILE[::NAME] into the file and the name."""
    path, separator, wanted = where.rpartition("::")
    return (where, "") if not separator or os.path.exists(where) else (path, wanted)


def _read(path: str) -> SourceFile:
    try:
        source = SourceFile(path, read_text(path))
    except Unreadable as error:
        raise bad_input("unreadable-file", f"cannot read `{path}`: {error}", error.remedy) from error
    return source if path.endswith(_EXPLICIT) else linked(source)


_LISTED = 20


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_LISTED]) or "none"
    return f"its kernels are {shown}{f' and {len(names) - _LISTED} others' if len(names) > _LISTED else ''}"


def jobs(where: str, options: argparse.Namespace) -> Iterator[Job]:
    """Yield the kernels that FILE[::KERNEL] names. Raises `ArgusError` if there are none."""
    constants = dict[str, object](options.constants)
    path, wanted = _parted(where)
    source = _read(path)
    if path.endswith(_EXPLICIT):
        if constants:
            message = f"`{path}` is an explicit kernel: -D gives a value to a constexpr parameter, and it has none"
            raise bad_input("unknown-constexpr", message, "its constants stand in its text")
        if options.alignment is not None:
            message = f"`{path}` is an explicit kernel, whose tensors have their alignment in its text"
            raise bad_input("bad-option", message, "leave `--alignment` out, and change the text")
        yield Job(source, Path(path).name.removesuffix(_EXPLICIT), None)
        return
    names = compile.named_kernels(source) if wanted else compile.kernels(source)
    if wanted and wanted not in names:
        raise bad_input("no-kernel", f"`{path}` has no kernel `{wanted}`", _listed(names))
    chosen = [wanted] if wanted else list(names)
    if not wanted:
        insist_on_python(source)
    declared = {name: [parameter for parameter, _ in compile.declared(source, name)] for name in chosen}
    for constant in constants:
        if not any(constant in parameters for parameters in declared.values()):
            which = f"`{wanted}`" if wanted else f"no kernel in `{path}`"
            message = f"{which} has {'no' if wanted else 'a'} parameter `{constant}`"
            raise bad_input("unknown-constexpr", message, "-D gives a value to a constexpr parameter")
    for name in chosen:
        mine = {key: value for key, value in constants.items() if key in declared[name]}
        aligned = {} if options.alignment is None else {"default_alignment": options.alignment}
        yield Job(source, name, Options(target=options.target, constexprs=mine, **aligned))


def unusable(name: str, start: float, diagnostics: tuple[Diagnostic, ...]) -> Outcome:
    """Return the outcome of an input that was not proved because of errors in it."""
    return Outcome(name, Verdict.UNKNOWN, time.perf_counter() - start, (), diagnostics)


@dataclass(frozen=True, slots=True)
class Verified:
    """The outcome of verifying a kernel, its exit code, and the explicit kernel if lowering succeeded."""

    outcome: Outcome
    code: int
    explicit: compile.ExplicitKernel | None = None
    report: Report | None = None


def verify(
    job: Job, limit_s: float | None, accept: Sequence[str] = (), exact: bool = False, second_opinion: bool = False
) -> Verified:
    """Prove one kernel with `limit_s` seconds of work, or release it as accepted. An error is returned as an outcome.
    """
    start = time.perf_counter()
    try:
        explicit = job.explicit()
        limit_s = LIMIT_S if limit_s is None else limit_s
        report = compile.verify(explicit, limit_s, exact=exact, second_opinion=second_opinion)
        report = _released(job, explicit, report, accept)
    except ArgusError as error:
        return Verified(unusable(job.name, start, error.diagnostics), UNUSABLE)
    except Exception as error:  # An internal error on one kernel does not hide the results of the others.
        return Verified(unusable(job.name, start, (internal(error),)), UNUSABLE)
    seconds = time.perf_counter() - start
    aligned = {t.name: t.alignment for t in explicit.tensors} if report.verdict is Verdict.PROVED else {}
    outcome = Outcome(
        explicit.name,
        report.verdict,
        seconds,
        report.assumptions,
        report.diagnostics,
        aligned,
        report.accepted,
        report.runs,
        equalities(explicit),
        report.opinions,
    )
    if any(opinion.disagreed for opinion in report.opinions):
        return Verified(outcome, DISAGREED, explicit, report)
    return Verified(outcome, PROVED if report.accepted else _CODES[report.verdict], explicit, report)


def _released(job: Job, explicit: compile.ExplicitKernel, report: Report, accept: Sequence[str]) -> Report:
    """Return the report with the findings that the command line and the kernel accept, and with those that forbid a
    release."""
    accepted = (*accept, *(() if job.options is None else compile.accepted(job.source, job.name)))
    if not accepted or report.verdict is not Verdict.UNKNOWN:
        return report
    try:
        return compile.release(explicit, report, accepted)
    except VerificationError as error:
        new = tuple(d for d in error.diagnostics if d not in report.diagnostics)
        refuted = any(d.verdict is Verdict.REFUTED for d in new)
        verdict = Verdict.REFUTED if refuted else report.verdict
        return replace(report, verdict=verdict, diagnostics=(*new, *report.diagnostics))
