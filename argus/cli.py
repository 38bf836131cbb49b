"""The command line: check, show, build, mutate, explain, layout, demo.

Exit codes: 0 all proved (or done); 1 something refuted, or a mutant missed; 2 unusable input; 3 something unknown.
Where several hold: 2 before 1 before 3 before 0.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from argus import compile, environment, layout, mutate, pages
from argus.backend.artifact import Artifact
from argus.backend.launch.bind import ALIGNMENTS
from argus.demo import demo
from argus.diagnostic import ArgusError, Diagnostic, ToolchainError, Verdict
from argus.frontend import Options
from argus.ir.target import TARGETS
from argus.ir.text import print_kernel
from argus.ir.types import DTYPES
from argus.layout import LayoutError, picture
from argus.render import Outcome, diagnostics_text, outcome_json, outcome_text, sarif
from argus.source import SourceFile
from argus.verify import Report

PROVED, REFUTED, UNUSABLE, UNKNOWN = 0, 1, 2, 3
_PRECEDENCE = (UNUSABLE, REFUTED, UNKNOWN)
_CODES = {Verdict.PROVED: PROVED, Verdict.REFUTED: REFUTED, Verdict.UNKNOWN: UNKNOWN}
_LARGEST_FILE = 4 << 20
_EXPLICIT = ".ir"
"""Ends the names of files with one explicit kernel, which has its target and constants in it."""
_SUFFIXES = {"cpu": (".cpp", ".so"), "nvidia": (".cu", ".cubin"), "amd": (".hip", ".co")}
"""Names of source and machine code, by vendor."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; `arguments` default to those of the process. Returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except ArgusError as error:
        _err().print(diagnostics_text(error.diagnostics), end="")
        return UNUSABLE
    except BrokenPipeError:
        # The reader of our output has gone; there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNUSABLE
    except Exception as error:  # a mistake of ours is still no reason for a traceback
        _err().print(diagnostics_text([_internal(error)]), end="")
        return UNUSABLE


def _version() -> str:
    """The installed version; "0+uninstalled" for a folder of sources, which has no metadata."""
    try:
        return version("argus")
    except PackageNotFoundError:
        return "0+uninstalled"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="argus", description="Prove how data moves through GPU kernels.")
    parser.add_argument("--version", action="version", version=f"argus {_version()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: object, help: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help, description=help)
        sub.set_defaults(run=run)
        return sub

    check = command("check", _check, "prove every kernel of some files, or show why one is wrong")
    check.add_argument("files", nargs="+", metavar="FILE[::KERNEL]")
    check.add_argument("--target", choices=list(TARGETS), default="sm_80", help="default: sm_80")
    form = check.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON list with an object for each kernel")
    form.add_argument("--sarif", action="store_true", help="print a SARIF 2.1 log")
    show = command("show", _show, "print the explicit kernel that policies make: it can be changed, and checked again")
    show.add_argument("file", metavar="FILE[::KERNEL]")
    show.add_argument("--target", choices=list(TARGETS), default="sm_80", help="default: sm_80")
    build = command("build", _build, "prove kernels and write their source, machine code and resource report")
    build.add_argument("file", metavar="FILE[::KERNEL]")
    build.add_argument("--target", choices=list(TARGETS), required=True)
    build.add_argument("-o", "--output", metavar="DIR", type=Path, default=Path("."), help="default: here")
    mutant = command("mutate", _mutate, "make small edits of a kernel, and count those that the proof catches")
    mutant.add_argument("files", nargs="+", metavar="FILE[::KERNEL]")
    mutant.add_argument("--target", choices=list(TARGETS), default="sm_80", help="default: sm_80")
    mutant.add_argument("--seed", type=int, default=0, metavar="S", help="which mutants are drawn; default: 0")
    mutant.add_argument("--count", type=_positive, metavar="N", help="how many mutants are drawn of each kernel")
    mutant.add_argument("--json", action="store_true", help="print a JSON list with an object for each kernel")
    for sub in (check, build, mutant):
        sub.add_argument("--limit", type=_seconds, default=compile.LIMIT_S, metavar="S",
                         help="CPU seconds that a proof may take")  # fmt: skip
    for sub in (check, show, build, mutant):
        sub.add_argument("-D", dest="constants", action="append", type=_definition, default=[], metavar="NAME=VALUE",
                         help="the value of a constexpr parameter")  # fmt: skip
        sub.add_argument("--alignment", type=int, choices=ALIGNMENTS, metavar="BYTES",
                         help=f"of all tensors and their rows; default: {ALIGNMENTS[0]}")  # fmt: skip
    explain = command("explain", _explain, "explain an error code; without one, list all codes")
    explain.add_argument("code", nargs="?", metavar="CODE")
    forms = "'Sw<3,3,3> o 0 o (8,64):(64,1)' or '[16x8 | t 4@1*2 8@0 | v 2@1 2@0*8]'"
    draw = command("layout", _layout, f"draw a layout, such as {forms}")
    draw.add_argument("notation", metavar="NOTATION")
    draw.add_argument("--svg", metavar="FILE", type=Path, help="write a picture instead")
    draw.add_argument("--element-bytes", type=int, choices=(1, 2, 4, 8), help="colour by shared-memory bank")
    command("demo", _demo, "prove and run a kernel on this machine's CPU, then see a wrong one refuted")
    return parser


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a time above 0 s")
    return value


def _positive(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return value


def _definition(text: str) -> tuple[str, object]:
    """NAME=VALUE; a value is a Python literal, the name of an element type, or else a string."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    dtype = DTYPES.get(value.removeprefix("al."))
    if dtype is not None:
        return name, dtype
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return name, value


def _out() -> Console:
    return Console(soft_wrap=True, highlight=False)


def _err() -> Console:
    return Console(stderr=True, soft_wrap=True, highlight=False)


def _progress(message: str) -> AbstractContextManager[object]:
    """Shows on a terminal that work goes on; elsewhere nothing."""
    console = _err()
    return console.status(message) if console.is_terminal else nullcontext()


def _worst(codes: Iterable[int]) -> int:
    found = set(codes)
    return next((code for code in _PRECEDENCE if code in found), PROVED)


def _bad_input(code: str, message: str, help: str) -> ArgusError:
    return ArgusError(Diagnostic(code, message, property="input", help=help))


def _unwritable(path: Path, error: OSError) -> ArgusError:
    return _bad_input("unwritable-output", f"cannot write `{path}`: {error.strerror or error}", "choose another place")


def _internal(error: Exception) -> Diagnostic:
    if environment.debug_level() >= 1:
        traceback.print_exception(error)
    message = f"{type(error).__name__}: {error}"
    help = "this is a mistake in Argus, not in the input; ARGUS_DEBUG=1 shows where it happened"
    return Diagnostic("internal-error", message, property="internal", help=help)


# ---------------------------------------------------------------------------- kernels of a file


@dataclass(frozen=True, slots=True)
class _Job:
    """A kernel to verify: of a Python file, or, without `options`, what `argus show` printed."""

    source: SourceFile
    name: str
    options: Options | None

    def explicit(self) -> compile.ExplicitKernel:
        """The kernel with all policies carried out. Raises `ArgusError` where there is none."""
        if self.options is None:
            return compile.read(self.source)
        return compile.lower(compile.elaborate(self.source, self.name, self.options), self.options.target)


def _read(path: str) -> SourceFile:
    def unreadable(why: str, help: str) -> ArgusError:
        return _bad_input("unreadable-file", f"cannot read `{path}`: {why}", help)

    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise unreadable(why, "name a Python file with kernels in it") from error
    if len(content) > _LARGEST_FILE:
        raise unreadable(f"it has more than {_LARGEST_FILE >> 20} MiB", "put kernels into a file of their own")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise unreadable("it is not UTF-8 text", "kernel files are Python text in UTF-8") from error
    if "\0" in text:
        raise unreadable("it is not text", "kernel files are Python text in UTF-8")
    return SourceFile(path, text)


def _jobs(where: str, options: argparse.Namespace) -> Iterator[_Job]:
    """The kernels that FILE[::KERNEL] names. Raises `ArgusError` where there are none."""
    constants = dict[str, object](options.constants)
    path, separator, wanted = where.rpartition("::")
    if not separator or os.path.exists(where):
        path, wanted = where, ""
    source = _read(path)
    if path.endswith(_EXPLICIT):
        if constants:
            message = f"`{path}` is an explicit kernel: -D gives a value to a constexpr parameter, and it has none"
            raise _bad_input("unknown-constexpr", message, "its constants stand in its text")
        if options.alignment is not None:
            message = f"`{path}` is an explicit kernel, whose tensors have their alignment in its text"
            raise _bad_input("bad-option", message, "leave `--alignment` out, and change the text")
        yield _Job(source, Path(path).name.removesuffix(_EXPLICIT), None)
        return
    names = compile.kernels(source)
    if wanted and wanted not in names:
        raise _bad_input("no-kernel", f"`{path}` has no kernel `{wanted}`", f"its kernels are {', '.join(names)}")
    declared = {name: [parameter for parameter, _ in compile.declared(source, name)] for name in names}
    for constant in constants:
        if not any(constant in parameters for parameters in declared.values()):
            message = f"no kernel in `{path}` has a parameter `{constant}`"
            raise _bad_input("unknown-constexpr", message, "-D gives a value to a constexpr parameter")
    for name in [wanted] if wanted else names:
        mine = {key: value for key, value in constants.items() if key in declared[name]}
        aligned = {} if options.alignment is None else {"default_alignment": options.alignment}
        yield _Job(source, name, Options(target=options.target, constexprs=mine, **aligned))


def _unusable(name: str, start: float, diagnostics: tuple[Diagnostic, ...]) -> Outcome:
    return Outcome(name, Verdict.UNKNOWN, time.perf_counter() - start, (), diagnostics)


@dataclass(frozen=True, slots=True)
class _Verified:
    """What is known of a kernel, the exit code that says so, and the explicit kernel if it came that far."""

    outcome: Outcome
    code: int
    explicit: compile.ExplicitKernel | None = None
    report: Report | None = None


def _verify(job: _Job, limit_s: float) -> _Verified:
    start = time.perf_counter()
    try:
        explicit = job.explicit()
        report = compile.verify(explicit, limit_s)
    except ArgusError as error:
        return _Verified(_unusable(job.name, start, error.diagnostics), UNUSABLE)
    except Exception as error:  # one kernel that trips us does not hide what is known of the others
        return _Verified(_unusable(job.name, start, (_internal(error),)), UNUSABLE)
    seconds = time.perf_counter() - start
    outcome = Outcome(explicit.name, report.verdict, seconds, report.assumptions, report.diagnostics)
    return _Verified(outcome, _CODES[report.verdict], explicit, report)


# ---------------------------------------------------------------------------- check


def _check(options: argparse.Namespace) -> int:
    outcomes: list[Outcome] = []
    codes: list[int] = []
    for outcome, code in _checked(options):
        outcomes.append(outcome)
        codes.append(code)
        if not (options.json or options.sarif):
            _out().print(outcome_text(outcome), end="")
    if options.json:
        print(json.dumps([outcome_json(outcome) for outcome in outcomes], indent=2))
    if options.sarif:
        print(json.dumps(sarif(outcomes, _version()), indent=2))
    return _worst(codes)


def _checked(options: argparse.Namespace) -> Iterator[tuple[Outcome, int]]:
    for where in options.files:
        start = time.perf_counter()
        try:
            jobs = list(_jobs(where, options))
        except ArgusError as error:
            yield _unusable(where, start, error.diagnostics), UNUSABLE
            continue
        except Exception as error:
            yield _unusable(where, start, (_internal(error),)), UNUSABLE
            continue
        for job in jobs:
            with _progress(f"proving {job.name}"):
                verified = _verify(job, options.limit)
            yield verified.outcome, verified.code


# ---------------------------------------------------------------------------- show, build


def _show(options: argparse.Namespace) -> int:
    jobs = list(_jobs(options.file, options))
    if len(jobs) > 1:
        help = f"name one of {', '.join(f'{options.file}::{job.name}' for job in jobs)}"
        raise _bad_input("no-kernel", f"`{options.file}` has {len(jobs)} kernels, and one is shown at a time", help)
    print(print_kernel(jobs[0].explicit()), end="")
    return PROVED


def _build(options: argparse.Namespace) -> int:
    codes: list[int] = []
    for job in list(_jobs(options.file, options)):
        with _progress(f"proving {job.name}"):
            verified = _verify(job, options.limit)
        _out().print(outcome_text(verified.outcome), end="")
        codes.append(verified.code)
        if verified.explicit is None or verified.report is None or verified.code != PROVED:
            _err().print(f"{job.name} is not proved: nothing is built")
            continue
        if verified.explicit.target != options.target:
            message = f"`{options.file}` is a kernel of {verified.explicit.target}, not of {options.target}"
            raise _bad_input("no-kernel", message, f"--target {verified.explicit.target}")
        with _progress(f"building {job.name}"):
            artifact = _build_artifact(verified.explicit, verified.report)
        for path in _write(artifact, options.output):
            _out().print(f"  wrote {path}")
    return _worst(codes)


def _build_artifact(explicit: compile.ExplicitKernel, report: Report) -> Artifact:
    """With machine code where a compiler is at hand."""
    try:
        return compile.build(explicit, report)
    except ToolchainError as error:
        if any(d.code != "compiler-missing" for d in error.diagnostics):
            raise
        _err().print(diagnostics_text(error.diagnostics), end="")
        _err().print("source only")
        return compile.build(explicit, report, machine_code=False)


def _write(artifact: Artifact, folder: Path) -> list[Path]:
    """Source, machine code if any, and the report, which comes last; each file whole or not at all."""
    stem = f"{artifact.kernel.name}.{artifact.target}"
    text, binary = _SUFFIXES[TARGETS[artifact.target].vendor]
    files = {f"{stem}{text}": _source(artifact).encode()}
    if artifact.binary is not None:
        files[f"{stem}{binary}"] = artifact.binary
    files[f"{stem}.json"] = (json.dumps(_resources(artifact, list(files)), indent=2) + "\n").encode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            _replace(folder / name, content)
    except OSError as error:
        raise _unwritable(folder, error) from error
    return [folder / name for name in files]


def _replace(path: Path, content: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=".argus-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _source(artifact: Artifact) -> str:
    """The emitted text, under the assumptions that it is proved under."""
    return "".join(f"// assuming {a}\n" for a in artifact.assumptions) + artifact.source


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
        "assumptions": list(artifact.assumptions),
        "constexprs": {name: value if isinstance(value, (int, float)) else str(value)
                       for name, value in artifact.kernel.constexprs},
        "files": files,
    }  # fmt: skip


# ---------------------------------------------------------------------------- mutate


def _mutate(options: argparse.Namespace) -> int:
    trials: list[mutate.Trial] = []
    jobs = [job for where in options.files for job in _jobs(where, options)]
    for job in jobs:
        with _steps(f"mutants of {job.name}") as progress:
            trials.append(mutate.trial(job.explicit(), options.seed, options.count, options.limit, progress))
        if not options.json:
            _out().print(mutate.trial_table(trials[-1]))
    if len(trials) > 1 and not options.json:
        _out().print(mutate.summary_table(trials))
    if options.json:
        print(json.dumps([mutate.trial_json(t) for t in trials], indent=2))
    return REFUTED if any(t.number(mutate.Outcome.MISSED) for t in trials) else PROVED


@contextmanager
def _steps(message: str) -> Iterator[Callable[[int, int], None]]:
    """A function that shows on a terminal how far work has come; elsewhere it shows nothing."""
    console = _err()
    if not console.is_terminal:
        yield lambda done, of: None
        return
    with console.status(message) as status:
        yield lambda done, of: status.update(f"{message}: {done} of {of}")


# ---------------------------------------------------------------------------- explain, layout, demo


def _explain(options: argparse.Namespace) -> int:
    if options.code is None:
        print("\n".join(pages.codes()))
        return PROVED
    text = pages.explanation(options.code)
    if sys.stdout.isatty():
        Console().print(Markdown(text))
    else:
        print(text, end="")
    return PROVED


def _layout(options: argparse.Namespace) -> int:
    try:
        read = layout.parse_fragment if options.notation.strip().startswith("[") else layout.parse
        drawn = read(options.notation)
        if options.svg is None:
            color = sys.stdout.isatty()
            _out().print(picture.text(drawn, color, options.element_bytes), markup=color)
            return PROVED
        image = picture.svg(drawn, options.element_bytes)
    except LayoutError as error:
        raise _bad_input("bad-layout", str(error), "`argus layout --help` shows the notation") from error
    try:
        _replace(options.svg, image.encode())
    except OSError as error:
        raise _unwritable(options.svg, error) from error
    return PROVED


def _demo(options: argparse.Namespace) -> int:
    return demo(_out(), _err())
