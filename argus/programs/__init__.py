"""Programs: buffers, launches and streams in the restricted language, proved before they run."""

from __future__ import annotations

from collections.abc import Callable

from argus.frontend import decorator
from argus.frontend.decorator import KernelSource
from argus.frontend.linking import linked
from argus.programs.ready import Ready
from argus.programs.run import Graph, JitProgram
from argus.source import SourceFile

__all__ = ["Graph", "JitProgram", "Ready", "from_text", "program"]


def program(function: Callable[..., object], /) -> JitProgram:
    """Make a program from a function's text, as `@argus.program`.

    The function itself is never called. Its text is read now and checked when the program is first used. Raises
    SourceError if the text cannot be found.
    """
    return jit(decorator.program(function))


def from_text(text: str, path: str = "<text>") -> dict[str, JitProgram]:
    """Return the programs of a text by name. None of it runs as Python; imports are resolved as files."""
    from argus.compile import programs

    file = linked(SourceFile(path, text))
    return {name: jit(KernelSource(name, file)) for name in programs(file)}


def jit(text: KernelSource) -> JitProgram:
    """Return the callable program of `text`."""
    return JitProgram(KernelSource(text.name, linked(text.file), text.doc))
