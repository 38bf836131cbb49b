"""Callable kernels: proved and built once, cached on disk, and launched with their preconditions checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import overload

from argus.backend.cache import DiskCache
from argus.frontend import decorator
from argus.frontend.decorator import KernelSource
from argus.frontend.linking import linked
from argus.runtime.executable import CachedSource, Executable
from argus.runtime.function import Function, Operator
from argus.runtime.jit_kernel import JitKernel
from argus.runtime.work import Call, Work
from argus.source import SourceFile

__all__ = ["Call", "Executable", "Function", "JitKernel", "Operator", "Work", "from_text", "jit", "kernel"]


@overload
def kernel(function: Callable[..., object], /) -> JitKernel: ...
@overload
def kernel(*, num_warps: int = 4, accept: tuple[str, ...] = ()) -> Callable[[Callable[..., object]], JitKernel]: ...
def kernel(
    function: Callable[..., object] | None = None, /, *, num_warps: int = 4, accept: tuple[str, ...] = ()
) -> JitKernel | Callable[[Callable[..., object]], JitKernel]:
    """Make a kernel from a function's text, as `@argus.kernel` or `@argus.kernel(num_warps=8)`.

    With `accept=("spec-unknown",)` a kernel is built even if it could not be decided whether it computes its
    specification. It is tested in the simulator first, and its verdict stays "unknown".

    The function itself is never called. Its text is read now and checked when the kernel is first used. Raises
    SourceError if the text cannot be found.
    """

    def decorate(function: Callable[..., object]) -> JitKernel:
        return jit(decorator.kernel(num_warps=num_warps, accept=accept)(function))

    return decorate if function is None else decorate(function)


def from_text(text: str, path: str = "<text>") -> dict[str, JitKernel]:
    """Return the kernels of a text by name, in the text's order, for programs that generate kernels.

    The text is the contents of a file, with its `import` lines. None of it runs as Python. Messages call it `path`.
    Imports are resolved as files, beside `path` and on Python's path. `@argus.autotune` is ignored. Raises SourceError
    with every syntax error, or if there is no kernel.
    """
    from argus.compile import kernels  # imported late, because it loads the parser

    file = linked(SourceFile(path, text))
    return {name: jit(KernelSource(name, file)) for name in kernels(file)}


def jit(text: KernelSource, cache: DiskCache | None = None) -> JitKernel:
    """Return the callable kernel of `text`; builds are stored in `cache`, or in the user's cache directory."""
    whole = KernelSource(text.name, linked(text.file), text.doc)
    return JitKernel(text.name, CachedSource(whole, cache), text.doc)
