"""The whole pipeline on one screen: text, tile IR, explicit IR, verdict, machine code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from argus.backend.artifact import Artifact
from argus.backend.build import build
from argus.diagnostic import Verdict, VerificationError
from argus.frontend import Options, check, parse
from argus.frontend.surface import Attribute, Expression, Name, Subscript
from argus.ir.nodes import Kernel
from argus.passes import lower
from argus.source import SourceFile
from argus.verify import Report, verify


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel that was proved, and then built."""

    artifact: Artifact
    report: Report


def declared(source: SourceFile, name: str) -> tuple[tuple[str, str], ...]:
    """Name and kind ("tensor", "scalar", "constexpr") of each parameter of kernel `name`. Raises SourceError."""
    module = parse(source)
    function = module.function(name)
    aliases = dict(module.aliases)
    return tuple((p.name, _kind(p.annotation, aliases)) for p in function.params) if function is not None else ()


def _kind(annotation: Expression | None, aliases: Mapping[str, str]) -> str:
    match annotation:
        case Subscript():
            return "tensor"
        case Attribute(name="constexpr"):
            return "constexpr"
        case Name(id=name) if aliases.get(name, "").endswith(".constexpr"):
            return "constexpr"
        case _:
            return "scalar"


def elaborate(source: SourceFile, name: str, options: Options) -> Kernel:
    """The tile IR of kernel `name`, constants fixed. Raises SourceError with every mistake in the text."""
    return check(parse(source), name, options)


def prove(source: SourceFile, name: str, options: Options, *, limit_s: float = 30.0) -> tuple[Kernel, Report]:
    """The explicit IR for `options.target`, and what is known of it. Raises SourceError."""
    explicit = lower(elaborate(source, name, options), options.target)
    return explicit, verify(explicit, limit_s)


def compile(source: SourceFile, name: str, options: Options, *, limit_s: float = 30.0) -> Compiled:
    """Proves kernel `name` and builds it.

    Raises SourceError, VerificationError unless every property is proved, ToolchainError.
    """
    explicit, report = prove(source, name, options, limit_s=limit_s)
    if report.verdict is not Verdict.PROVED:
        raise VerificationError(*report.diagnostics)
    return Compiled(build(explicit, options.target), report)
