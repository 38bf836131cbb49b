"""The compiler's pipeline.

    text -elaborate-> TileKernel -lower-> ExplicitKernel -verify-> Report -build-> Artifact

Each step takes the result of the previous step. An explicit kernel can be printed, changed by hand, and `read` again.
`ARGUS_DEBUG=1` to `5` prints stages with their times, IR, obligations, emitted source, and machine code; each level
includes the lower ones.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NewType, TypeVar

from argus import environment, passes
from argus.backend import build as backend
from argus.backend.artifact import Artifact
from argus.backend.emit import emit
from argus.diagnostic import ArgusError, Diagnostic, SourceError
from argus.frontend import Options, check, decorated, functions, parse
from argus.frontend.options import ACCEPTABLE
from argus.frontend.surface import Attribute, Binary, Expression, Name, Subscript
from argus.garbage import seldom
from argus.ir.nodes import Kernel
from argus.ir.text import print_kernel, read_kernel
from argus.ir.wellformed import check_explicit, check_tile
from argus.source import SourceFile
from argus.work import LIMIT_S

if TYPE_CHECKING:
    from argus.backend.cuda.toolchain import Compiler
    from argus.verify import Report

TileKernel = NewType("TileKernel", Kernel)
"""A kernel whose names, shapes, types and constants are fixed. Its policies are still open."""

ExplicitKernel = NewType("ExplicitKernel", Kernel)
"""A kernel in which every buffer, layout, instruction and wait is written out. This form is proved, and this form
runs."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel that was proved and then built."""

    artifact: Artifact
    report: Report


def kernels(source: SourceFile) -> tuple[str, ...]:
    """Return the names of a file's kernels, in order. Raises `SourceError` for syntax errors, or if there is no kernel.
    """
    names = _timed("parse", lambda: parse(source)).kernels
    if not names:
        help = "a kernel is a function at the top level of the file, under `@argus.kernel`"
        if "@triton.jit" in source.text:
            help += "; a kernel of Triton is written anew, see docs/guide/from-triton.md"
        message = f"there is no kernel in `{source.path}`"
        raise SourceError(Diagnostic("no-kernel", message, property="input", help=help))
    return names


def named_kernels(source: SourceFile) -> tuple[str, ...]:
    """Return the names of a file's kernels without reading their bodies. Mistakes in the bodies are not reported."""
    return tuple(dict.fromkeys(name for name, kind in functions(source) if kind == "kernel"))


def programs(source: SourceFile) -> tuple[str, ...]:
    """Return the names of a file's programs, in order, without reading their bodies."""
    return tuple(dict.fromkeys(name for name, kind in functions(source) if kind == "program"))


def declared(source: SourceFile, name: str) -> tuple[tuple[str, str], ...]:
    """Return the name and kind ("tensor", "optional", "scalar" or "constexpr") of each parameter. Raises `SourceError`.
    """
    module = parse(source, name)
    function = module.function(name)
    aliases = dict(module.aliases)
    return tuple((p.name, _kind(p.annotation, aliases)) for p in function.params) if function is not None else ()


def _kind(annotation: Expression | None, aliases: Mapping[str, str]) -> str:
    match annotation:
        case Subscript():
            return "tensor"
        case Binary(op="|"):
            return "optional"
        case Attribute(name="constexpr"):
            return "constexpr"
        case Name(id=name) if aliases.get(name, "").endswith(".constexpr"):
            return "constexpr"
        case _:
            return "scalar"


def elaborate(source: SourceFile, name: str, options: Options) -> TileKernel:
    """Return kernel `name` in tile IR.

    Raises `SourceError` with every error of syntax, names, shapes, types and constants.
    """
    kernel = _timed("check", lambda: check(parse(source, name), name, options))
    _show(2, f"tile IR of {name}", lambda: print_kernel(kernel))
    _insist(check_tile(kernel))
    return TileKernel(kernel)


def lower(tile: TileKernel, target: str) -> ExplicitKernel:
    """Return the explicit kernel for `target`.

    Raises `ArgusError` if a policy or an instruction cannot be carried out on the target.
    """
    kernel = _timed("lower", lambda: passes.lower(tile, target))
    _show(2, f"explicit IR of {kernel.name}", lambda: print_kernel(kernel))
    _insist(check_explicit(kernel))
    return ExplicitKernel(kernel)


def read(source: SourceFile) -> ExplicitKernel:
    """Return the explicit kernel in a text that `print_kernel` wrote. Raises `ArgusError` for any other text."""
    kernel = read_kernel(source)
    _insist(check_explicit(kernel))
    return ExplicitKernel(kernel)


def verify(
    explicit: ExplicitKernel, limit_s: float = LIMIT_S, *, exact: bool = False, second_opinion: bool = False
) -> Report:
    """Prove the kernel's properties and report what fails. A wrong kernel raises no error: the report says so.

    With `exact`, nothing is proved on a simplified form of the kernel. With `second_opinion`, each engine is also asked
    the questions that the other engine answered.
    """
    from argus import verify as verifier  # imported late: the solvers take a third of a second to import

    asked = partial(verifier.verify, explicit, limit_s, exact=exact, second_opinion=second_opinion)
    with seldom():
        report = _timed("verify", asked)
    _show(3, f"obligations of {explicit.name}", lambda: _obligations(report))
    return report


def accepted(source: SourceFile, name: str) -> tuple[str, ...]:
    """Return the codes of unknown findings about values that kernel `name` accepts in its decorator."""
    function = parse(source, name).function(name)
    return () if function is None else decorated.accepted(function)


def release(explicit: ExplicitKernel, report: Report, accept: Sequence[str], limit_s: float = LIMIT_S) -> Report:
    """Return the report of a kernel that may be built: proved, or with unknown findings that are accepted and tested.

    Findings about safety are never accepted, whatever `accept` names. Raises `VerificationError` with every finding
    that forbids the build.
    """
    from argus.verify.release import released

    about_values = [code for code in accept if code in ACCEPTABLE]
    return _timed("release", lambda: released(explicit, report, about_values, limit_s))


def emitted(explicit: ExplicitKernel) -> str:
    """Return the text that the target's compiler would get. Raises `ArgusError` if there is none."""
    return _timed("emit", lambda: emit(explicit))


def build(explicit: ExplicitKernel, report: Report, *, machine_code: bool = True) -> Artifact:
    """Build a verified kernel.

    Raises `VerificationError` unless everything is proved or was accepted in `release`, and `ToolchainError` if a
    compiler is missing or fails.
    """
    if not report.accepted:
        report = release(explicit, report, ())
    return _presented(_built(explicit, machine_code), report)


def _built(
    explicit: ExplicitKernel, machine_code: bool, text: str | None = None, compiler: Compiler | None = None
) -> Artifact:
    target = explicit.target or ""
    return _timed("build", lambda: backend.build(explicit, target, text, compile=machine_code, compiler=compiler))


def _presented(artifact: Artifact, report: Report) -> Artifact:
    explicit = artifact.kernel
    _show(4, f"source of {explicit.name}", lambda: artifact.source)
    _show(5, f"machine code of {explicit.name}", lambda: backend.disassemble(artifact))
    return replace(artifact, assumptions=report.assumptions, accepted=report.accepted)


def prove(source: SourceFile, name: str, options: Options, *, limit_s: float = LIMIT_S) -> Report:
    """Verify kernel `name` and return the report. Raises `ArgusError` for text that is no kernel of the language."""
    return verify(lower(elaborate(source, name, options), options.target), limit_s)


def compile(
    source: SourceFile, name: str, options: Options, *, limit_s: float = LIMIT_S, compiler: Compiler | None = None
) -> Compiled:
    """Prove and build kernel `name` for `options.target`. `compiler` is a compiler on standby for this target, if any.

    Raises `ArgusError` if the kernel cannot be proved or built.
    """
    explicit = lower(elaborate(source, name, options), options.target)
    beside = ThreadPoolExecutor(1)
    try:
        building = _building(beside, explicit, compiler)
        report = release(explicit, verify(explicit, limit_s), accepted(source, name), limit_s)
        return Compiled(_presented(building.result(), report), report)
    finally:
        beside.shutdown(wait=False)


def _building(beside: ThreadPoolExecutor, explicit: ExplicitKernel, compiler: Compiler | None) -> Future[Artifact]:
    """Start the build and return its future.

    Compilers are separate programs, which run during the proof. If the kernel is not proved, its build is discarded.
    The text is emitted before the proof starts, because a thread that emits it during the proof would rarely get
    processor time.
    """
    try:
        text = emitted(explicit)
    except ArgusError as error:  # raised after the findings of the proof, which are more important
        failed: Future[Artifact] = Future()
        failed.set_exception(error)
        return failed
    return beside.submit(_built, explicit, True, text, compiler)


def _insist(problems: tuple[Diagnostic, ...]) -> None:
    if problems:
        raise ArgusError(*problems)


_T = TypeVar("_T")


def _timed(stage: str, work: Callable[[], _T]) -> _T:
    start = time.perf_counter()
    result = work()
    _show(1, f"{stage}: {(time.perf_counter() - start) * 1e3:.1f} ms", str)
    return result


def _show(level: int, title: str, text: Callable[[], str]) -> None:
    if environment.debug_level() >= level:
        print(f"argus: {title}", *text().splitlines(), sep="\n  ", file=sys.stderr)


def _obligations(report: Report) -> str:
    lines = [f"{t.property:<16} {t.engine:<10} {t.seconds * 1e3:9.1f} ms" for t in report.timings]
    return "\n".join([f"verdict: {report.verdict.value}", *lines])
