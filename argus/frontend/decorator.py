"""`@argus.kernel` and `@argus.func`: they keep a function's text and never call the function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, overload

from argus.diagnostic import Diagnostic, SourceError
from argus.frontend.surface import Module
from argus.source import SourceFile


@dataclass(frozen=True)
class KernelSource:
    """A kernel as text. `source` is the file that defines it, or the text that was given.

    `nested` is the text of the function alone where it stands inside another function or a class, and the file
    around it does not show it at top level. `num_warps` is the decorator's; `Options` may override it.
    """

    name: str
    source: SourceFile
    num_warps: int = 4
    nested: SourceFile | None = None
    doc: str | None = None

    def module(self) -> Module:
        """The surface tree that the kernel and its helpers are found in. Raises `SourceError`."""
        return read_module(self.source, self.nested)


@dataclass(frozen=True)
class FuncSource:
    """A helper as text. It is found by name in the file of the kernel that calls it."""

    name: str
    source: SourceFile
    doc: str | None = None

    def __call__(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise SourceError(
            Diagnostic(
                "outside-kernel",
                f"the helper `{self.name}` was called from Python",
                help=f"call `{self.name}` inside a function under `@argus.kernel`",
            )
        )


def read_module(source: SourceFile, nested: SourceFile | None = None) -> Module:
    """The module of a file, or of a function inside of one function of that file. Raises `SourceError`."""
    from argus.frontend.parse import parse  # lark is imported when the first kernel is read

    module = parse(source)
    return module if nested is None else parse(nested).within(module)


@overload
def kernel(function: Callable[..., Any], /) -> KernelSource: ...
@overload
def kernel(*, num_warps: int = 4) -> Callable[[Callable[..., Any]], KernelSource]: ...
def kernel(
    function: Callable[..., Any] | None = None, /, *, num_warps: int = 4
) -> KernelSource | Callable[[Callable[..., Any]], KernelSource]:
    """Makes a kernel of a function's text. Raises `SourceError` where the text cannot be found."""

    def decorate(function: Callable[..., Any]) -> KernelSource:
        source, nested = source_of(function)
        return KernelSource(function.__name__, source, num_warps, nested, function.__doc__)

    return decorate if function is None else decorate(function)


def func(function: Callable[..., Any], /) -> FuncSource:
    """Makes a helper, which kernels of the same file call and which is inlined there."""
    source, nested = source_of(function)
    return FuncSource(function.__name__, nested or source, function.__doc__)


def source_of(function: Callable[..., Any]) -> tuple[SourceFile, SourceFile | None]:
    """The file that defines a function and, where it is not at the file's top level, the function's own lines."""
    try:
        lines, first = inspect.getsourcelines(function)
        path = inspect.getsourcefile(function) or "<unknown>"
        found = inspect.findsource(function)[0]
    except (OSError, TypeError):
        raise SourceError(
            Diagnostic(
                "no-source",
                f"the text of `{getattr(function, '__name__', 'this function')}` cannot be found",
                help="define kernels in a file, or give their text to the compiler as a string",
            )
        ) from None
    text = "".join(found)
    source = SourceFile(str(Path(path)) if not path.startswith("<") else path, text)
    if "<locals>" in function.__qualname__ or "." in function.__qualname__:
        return source, SourceFile(source.path, "".join(lines), first)
    return source, None
