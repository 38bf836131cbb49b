"""`@argus.kernel` and `@argus.func`: they keep a function's text and never call the function."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any, NoReturn, overload

from argus.diagnostic import Diagnostic, SourceError
from argus.frontend.blocks import cut_out
from argus.frontend.linking import NOT_READ, imported_names
from argus.ir.types import DType
from argus.numbered import number
from argus.source import Elsewhere, Outer, SourceFile, Unusable, Value


@dataclass(frozen=True)
class KernelSource:
    """A kernel or program as text: the function `name` of `file`. The options of its decorator are read from the text.
    """

    name: str
    file: SourceFile
    doc: str | None = None


@dataclass(frozen=True)
class FuncSource:
    """A helper as text. Kernels find it by name in their own file, through an import, or as a constant."""

    name: str
    file: SourceFile
    doc: str | None = None
    number: int = field(init=False, repr=False, compare=False)
    """The number by which code that Dynamo traces passes the helper (`argus.numbered`)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "number", number(self))

    def __reduce__(self) -> tuple[object, ...]:
        return FuncSource, (self.name, self.file, self.doc)  # A copy gets its own number.

    def __repr__(self) -> str:
        return f"<argus func {self.name} of {self.digest}>"

    @property
    def digest(self) -> str:
        """The SHA-256 of the text that defines the helper and of the texts that it imports."""
        return self.file.digest

    def __call__(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise SourceError(
            Diagnostic(
                "outside-kernel",
                f"the helper `{self.name}` was called from Python",
                help=f"call `{self.name}` inside a function under `@argus.kernel`",
            )
        )


@overload
def kernel(function: Callable[..., object], /) -> KernelSource: ...
@overload
def kernel(*, num_warps: int = 4, accept: tuple[str, ...] = ()) -> Callable[[Callable[..., object]], KernelSource]: ...
def kernel(
    function: Callable[..., object] | None = None, /, *, num_warps: int = 4, accept: tuple[str, ...] = ()
) -> KernelSource | Callable[[Callable[..., object]], KernelSource]:
    """Make a kernel from a function's text. Blocks of `num_warps` warps run it.

    Both options are read from the text, like everything else. Raises `SourceError` if the text cannot be found.
    Mistakes in the text are reported when the kernel is first used.
    """

    def decorate(function: Callable[..., object]) -> KernelSource:
        return KernelSource(function.__name__, file_of(function), function.__doc__)

    return decorate if function is None else decorate(function)


def program(function: Callable[..., object], /) -> KernelSource:
    """Make a program from a function's text. Raises `SourceError` if the text cannot be found."""
    return KernelSource(function.__name__, file_of(function), function.__doc__)


def func(function: Callable[..., object], /) -> FuncSource:
    """Make a helper that kernels and other helpers of this file, or of files that import it, can call. Calls are
    inlined."""
    return FuncSource(function.__name__, file_of(function), function.__doc__)


def file_of(function: Callable[..., object]) -> SourceFile:
    """Return the file that defines a function; for a nested function, the part of the file that it can see. Raises
    `SourceError`.

    Names from elsewhere have their current meaning in Python: imports of the file, constants of enclosing functions,
    and, for a notebook cell, helpers and constants of other cells.
    """
    try:
        everything, at = inspect.findsource(function)
        # The function stands in an `if` or `try` of the file.
        nested = "." in function.__qualname__ or everything[at][:1].isspace()
        # The file has several functions of this name.
        nested |= sum(line.startswith(f"def {function.__name__}(") for line in everything) > 1
        lines, first = inspect.getsourcelines(function) if nested else ([], 0)  # This call takes about a millisecond.
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
    if nested:
        source = cut_out(source, function.__name__, first, len(lines))
    around = (*_closest(function, "".join(lines)), *_imported(function, source), *_of_other_cells(function, source))
    return replace(source, around=around)


# ---------------------------------------------------------------------------- names from elsewhere


def _closest(function: Callable[..., object], text: str) -> Iterator[Outer]:
    """Yield the names of enclosing functions that a nested function uses in its body or its annotations."""
    code = function.__code__
    found = dict[str, object]()
    if "<locals>" in function.__qualname__:
        own = {*code.co_varnames, *code.co_cellvars, function.__name__}
        found = {n: v for n, v in _locals_around(code).items() if n not in own and n in _words(text)}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # The variable may not be bound yet.
            found[name] = cell.cell_contents
    for name, value in found.items():
        if isinstance(value, ModuleType):
            yield from (replace(outer, closest=True) for outer in _members(name, value, text))
            continue
        what = f"`{name}` of the function around is a {type(value).__name__}, which a kernel cannot use"
        remedy = "pass it as a parameter: kernels see numbers, strings, dtypes, None, tuples of these, and helpers"
        yield Outer(name, _meaning(value) or Unusable("unknown-name", what, remedy), closest=True)


def _locals_around(code: CodeType) -> dict[str, Any]:
    """Return the local names of the running function that makes a function of `code`."""
    frame = sys._getframe(1)
    while frame is not None and code not in frame.f_code.co_consts:
        frame = frame.f_back  # type: ignore[assignment]
    return {} if frame is None else dict(frame.f_locals)


def _imported(function: Callable[..., object], source: SourceFile) -> Iterator[Outer]:
    """Yield the helpers and constants that a function's file imports."""
    for name in imported_names(source.text):
        value = function.__globals__.get(name)
        if isinstance(value, ModuleType):
            yield from _members(name, value, source.text)
        elif name in function.__globals__ and (meaning := _meaning(value)) is not None:
            yield Outer(name, meaning)


def _members(name: str, module: ModuleType, text: str) -> Iterator[Outer]:
    """Yield the helpers and constants that a text reads as attributes of a module."""
    if module.__name__.partition(".")[0] in NOT_READ:
        return
    for chain in sorted(set(re.findall(rf"\b{name}((?:\.\w+)+)", text))):
        value: object = module
        parts = chain[1:].split(".")
        for at, part in enumerate(parts):
            if not isinstance(value, ModuleType) or part not in vars(value):
                break
            value = vars(value)[part]
            meaning = None if isinstance(value, ModuleType) else _meaning(value)
            if meaning is not None:
                yield Outer(".".join((name, *parts[: at + 1])), meaning)


def _of_other_cells(function: Callable[..., object], source: SourceFile) -> Iterator[Outer]:
    """Yield the helpers and constants that a text without a file, such as a notebook cell, uses but does not bind."""
    if os.path.exists(source.path):
        return
    bound = {name for pair in _BINDING.findall(source.text) for name in pair}
    for name in sorted(_words(source.text) - bound - set(imported_names(source.text))):
        value = function.__globals__.get(name)
        if name in function.__globals__ and (meaning := _meaning(value)) is not None:
            yield Outer(name, meaning)


_BINDING = re.compile(r"^(?:def|class)[ ]+(\w+)|^(\w+)[ ]*(?::[^=\n]*)?=(?!=)", re.MULTILINE)


@lru_cache(maxsize=256)
def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W\d]\w*", text))


def _meaning(value: object) -> Elsewhere | Value | None:
    """Return the meaning of a Python value in a kernel, or None if a kernel cannot use it."""
    if isinstance(value, FuncSource):
        return Elsewhere(value.file, value.name)
    # Objects of other packages may answer to any attribute name.
    ours = type(value).__module__.partition(".")[0] == "argus"
    # a kernel, which programs may name
    if ours and isinstance(text := getattr(value, "argus_text", None), KernelSource):
        return Elsewhere(text.file, text.name)
    return Value.of(value) if _is_constant(value) else None


def _is_constant(value: object) -> bool:
    if isinstance(value, tuple):
        return all(_is_constant(item) for item in value)
    return value is None or type(value) in (bool, int, float, str, DType)
