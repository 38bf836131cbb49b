"""Kernels that can be called: proved and built once, cached on disk, launched with their preconditions checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

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
def kernel(function: Callable[..., Any], /) -> JitKernel: ...
@overload
def kernel(*, num_warps: int = 4, accept: tuple[str, ...] = ()) -> Callable[[Callable[..., Any]], JitKernel]: ...
def kernel(
    function: Callable[..., Any] | None = None, /, *, num_warps: int = 4, accept: tuple[str, ...] = ()
) -> JitKernel | Callable[[Callable[..., Any]], JitKernel]:
    """Makes a kernel of a function's text, as `@argus.kernel` or `@argus.kernel(num_warps=8)`.

    `accept=("spec-unknown",)` builds a kernel of which it is unknown whether it computes its specification, after a
    test in the simulator; its verdict stays "unknown".

    The function is never called; its text is read when the kernel is first called. Raises SourceError where
    the text cannot be found.
    """

    def decorate(function: Callable[..., Any]) -> JitKernel:
        return jit(decorator.kernel(num_warps=num_warps, accept=accept)(function))

    return decorate if function is None else decorate(function)


def from_text(text: str, path: str = "<text>") -> dict[str, JitKernel]:
    """The kernels of a text, by name and in its order: for programs that write kernels.

    The text is what a file would hold, `import` lines included, and none of it runs as Python; messages call it `path`.
    Imports are resolved as files, beside `path` and on Python's path. What `@argus.autotune` says is left aside.
    Raises SourceError with every syntax error, or where there is no kernel.
    """
    from argus.compile import kernels  # with the parser

    file = linked(SourceFile(path, text))
    return {name: jit(KernelSource(name, file)) for name in kernels(file)}


def jit(text: KernelSource, cache: DiskCache | None = None) -> JitKernel:
    """The kernel of `text`, callable; builds are kept in `cache`, or in the user's cache directory."""
    whole = KernelSource(text.name, linked(text.file), text.doc)
    return JitKernel(text.name, CachedSource(whole, cache), text.doc)
