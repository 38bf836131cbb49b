"""The problem of a run: one kernel of one file, a target, and the sizes at which it is timed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from argus import compile
from argus.agents.task import missing_task
from argus.diagnostic import ArgusError, Diagnostic
from argus.frontend import Options
from argus.frontend.linking import linked
from argus.ir.nodes import Kernel, Scalar
from argus.simulate.sizes import admissible, integer_parameters
from argus.source import SourceFile

FLOAT = 0.125
"""The default value of a float argument."""
SIZE = {"cpu": 256}
_LARGE = 4096
"""The default of every size: 256 on the CPU, and `_LARGE` elsewhere."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Kernel `name` of `text`, found at `path`. `sizes` holds every size and number that a launch takes.

    `fixed`: the caller gave sizes, so a kernel may be specialised for them. `files`: texts may import from files.
    """

    path: str
    text: str
    name: str
    target: str
    sizes: Mapping[str, int]
    numbers: Mapping[str, float] = field(default_factory=dict)
    fixed: bool = False
    files: bool = True

    def source(self, text: str | None = None) -> SourceFile:
        """Return the author's text, or another one in its place, together with the files that it imports."""
        return linked(SourceFile(self.path, self.text if text is None else text), files=self.files)

    @property
    def options(self) -> Options:
        """Return the options with which every candidate is compiled."""
        return Options(target=self.target)

    def kernel(self, text: str | None = None) -> compile.TileKernel:
        """Return the kernel of the author's text, or of another one. Raises `SourceError`."""
        return compile.elaborate(self.source(text), self.name, self.options)

    @property
    def digest(self) -> str:
        """Return a digest that identifies the problem."""
        parts = (self.source().digest, self.name, self.target, sorted(self.sizes.items()), sorted(self.numbers.items()),
                 self.fixed)  # fmt: skip
        return hashlib.sha256(repr(parts).encode()).hexdigest()


def problem_of(
    source: SourceFile, name: str, target: str, sizes: Mapping[str, int], numbers: Mapping[str, float] | None = None,
    *, files: bool = True,
) -> Problem:  # fmt: skip
    """Fill in the missing sizes and check the problem.

    Raises `ArgusError` for a text that is not a kernel, an output without a specification, and sizes that the kernel
    does not admit.
    """
    kernel = compile.elaborate(linked(source, files=files), name, Options(target=target))
    missing = missing_task(kernel)
    if missing:
        message = f"`{missing[0]}` has no specification, so nothing says what a faster kernel must compute"
        raise _unusable(message, f"add `al.spec({missing[0]}, ...)` to `{name}`")
    wanted = integer_parameters(kernel)
    unknown = sorted({*sizes} - {*wanted})
    if unknown:
        raise _unusable(f"`{unknown[0]}` is no size of `{name}`", f"its sizes are {', '.join(wanted) or 'none'}")
    every = {size: sizes.get(size, SIZE.get(target, _LARGE)) for size in wanted}
    if not admissible(kernel, every):
        shown = ", ".join(f"{key}={value}" for key, value in every.items())
        raise _unusable(f"`{name}` does not admit the sizes {shown}", "give others with `--size NAME=VALUE`")
    floats = {p.name: FLOAT for p in kernel.params if isinstance(p, Scalar) and p.dtype.is_float}
    return Problem(source.path, source.text, name, target, every, {**floats, **(numbers or {})}, bool(sizes),
                   files)  # fmt: skip


def admits(kernel: Kernel, problem: Problem) -> bool:
    """Return True if a candidate may be called with the problem's sizes."""
    return admissible(kernel, dict(problem.sizes))


def _unusable(message: str, help: str) -> ArgusError:
    return ArgusError(Diagnostic("bad-option", message, property="input", help=help))
