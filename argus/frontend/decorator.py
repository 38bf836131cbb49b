"""`@argus.kernel` and `@argus.func`: they keep a function's text and never call the function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, NoReturn, overload

from argus.diagnostic import Diagnostic, SourceError
from argus.frontend.blocks import cut_out
from argus.source import SourceFile


@dataclass(frozen=True)
class KernelSource:
    """A kernel as text: the function `name` of `file`. Its decorator's options are read from the text."""

    name: str
    file: SourceFile
    doc: str | None = None


@dataclass(frozen=True)
class FuncSource:
    """A helper as text. It is found by name in the file of the kernel that calls it, or given as a constant."""

    name: str
    file: SourceFile
    doc: str | None = None

    def __repr__(self) -> str:
        return f"<argus func {self.name} of {self.digest}>"

    @property
    def digest(self) -> str:
        """What tells files apart: SHA-256 of the text that defines the helper."""
        return _digest(self.file.text)

    def __call__(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise SourceError(
            Diagnostic(
                "outside-kernel",
                f"the helper `{self.name}` was called from Python",
                help=f"call `{self.name}` inside a function under `@argus.kernel`",
            )
        )


@overload
def kernel(function: Callable[..., Any], /) -> KernelSource: ...
@overload
def kernel(*, num_warps: int = 4, accept: tuple[str, ...] = ()) -> Callable[[Callable[..., Any]], KernelSource]: ...
def kernel(
    function: Callable[..., Any] | None = None, /, *, num_warps: int = 4, accept: tuple[str, ...] = ()
) -> KernelSource | Callable[[Callable[..., Any]], KernelSource]:
    """Makes a kernel of a function's text, to be run by blocks of `num_warps` warps.

    Both options are read from the text, as everything is.

    Raises `SourceError` where the text cannot be found; mistakes in it are reported when it is first used.
    """

    def decorate(function: Callable[..., Any]) -> KernelSource:
        return KernelSource(function.__name__, file_of(function), function.__doc__)

    return decorate if function is None else decorate(function)


def func(function: Callable[..., Any], /) -> FuncSource:
    """Makes a helper, which kernels of the same file call and which is inlined there."""
    return FuncSource(function.__name__, file_of(function), function.__doc__)


@lru_cache(maxsize=256)
def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def file_of(function: Callable[..., Any]) -> SourceFile:
    """The file that defines a function; of a nested one, what it can see of the file. Raises `SourceError`."""
    try:
        everything, at = inspect.findsource(function)
        nested = "." in function.__qualname__ or everything[at][:1].isspace()  # in an `if` or `try` of the file
        nested |= sum(line.startswith(f"def {function.__name__}(") for line in everything) > 1  # or one of several
        lines, first = inspect.getsourcelines(function) if nested else ([], 0)  # takes a millisecond
        path = inspect.getsourcefile(function) or "<unknown>"
    except (OSError, TypeError):
        raise SourceError(
            Diagnostic(
                "no-source",
                f"the text of `{getattr(function, '__name__', 'this function')}` cannot be found",
                help="define kernels in a file or a notebook's cell; programs that make text: `argus.from_text(text)`",
            )
        ) from None
    source = SourceFile(path, "".join(everything))
    return cut_out(source, function.__name__, first, len(lines)) if nested else source
