"""The IR of programs: buffers, launches, streams, events, loops and conditions over sizes.

Expressions are those of kernels (`argus.ir.expr`), over the program's sizes and scalars (`Param`) and the counters of
its loops (`LoopVar`). A program is executed by one host thread, statement by statement; launches and collectives are
queued on streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Union

from argus.ir.expr import Const, Expr, Op, Param, op
from argus.ir.nodes import Kernel, Precondition, Scalar, Spec, Tensor
from argus.ir.types import DType, int64
from argus.source import SourceFile, Span, span_field

MAIN = "main"
"""The caller's stream."""

POOL_ALIGNMENT = 256
"""Alignment in bytes of buffers in the pool."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Contiguous memory of the program, uninitialised at the beginning.

    `offset` is its place in the pool, in bytes, an expression over the sizes of buffers (`bytes_of`), or None before
    the memory is planned.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    offset: Expr | None = None
    span: Span = span_field()

    @property
    def bytes(self) -> Param:
        """The buffer's size in bytes, rounded up to `POOL_ALIGNMENT`, as a name in offsets."""
        return Param(f"{self.name}.bytes", int64)

    @property
    def strides(self) -> tuple[Expr, ...]:
        """Strides in elements, row by row."""
        strides: list[Expr] = [Const(1, int64)]
        for extent in reversed(self.shape[1:]):
            strides.insert(0, op("mul", strides[0], wide(extent)))
        return tuple(strides[: len(self.shape)])


def wide(expr: Expr) -> Expr:
    """Return an integer expression as int64."""
    if isinstance(expr, Const):
        return Const(expr.value, int64)
    return expr if expr.dtype is int64 else Op("cast", (expr,), int64)


@dataclass(frozen=True, slots=True)
class Part:
    """A box of a tensor or buffer: `extent` elements from `start` on, along each dimension.

    Dimensions that are not `kept` have one element, and the kernel does not see them.
    """

    obj: str
    start: tuple[Expr, ...]
    extent: tuple[Expr, ...]
    kept: tuple[bool, ...]

    @property
    def shape(self) -> tuple[Expr, ...]:
        """The extents of the dimensions that are kept."""
        return tuple(e for e, kept in zip(self.extent, self.kept, strict=True) if kept)


@dataclass(frozen=True, slots=True)
class Use:
    """A kernel with fixed constants, as the program launches it.

    `kernel` is its tile IR: parameters, preconditions, accesses and specifications. `alignment` is the alignment of its
    tensors' addresses and rows, in bytes by name. Every launch of the use is proved to keep it.
    """

    name: str
    source: SourceFile
    constexprs: tuple[tuple[str, object], ...]
    num_warps: int | None
    alignment: tuple[tuple[str, int], ...]
    kernel: Kernel


@dataclass(frozen=True, slots=True)
class Launch:
    """The launch of use number `use` on `stream`. Arguments are parts and numbers, by the kernel's parameters.

    `grid` is None if the kernel declares its grid.
    """

    use: int
    arguments: tuple[tuple[str, Part | Expr], ...]
    stream: str = MAIN
    grid: tuple[Expr, ...] | None = None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Collective:
    """A call that the program does not define, queued on `stream`. It reads and writes the named parts, and nothing
    else."""

    name: str
    reads: tuple[Part, ...]
    writes: tuple[Part, ...]
    stream: str = MAIN
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Record:
    """Makes `event` stand, from now on, for the completion of all work queued on `stream` so far."""

    event: str
    stream: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Wait:
    """Makes work that is queued on `stream` from now on wait for `event`."""

    stream: str
    event: str
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class For:
    """The loop `for var in range(start, stop, step)` with a positive constant step."""

    var: str
    start: Expr
    stop: Expr
    step: int
    body: tuple[Step, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class If:
    """A branch to `then` or `orelse`, by a condition on sizes, scalars and counters."""

    cond: Expr
    then: tuple[Step, ...]
    orelse: tuple[Step, ...] = ()
    span: Span = span_field()


Step = Union[Launch, Collective, Record, Wait, For, If]
Work = Union[Launch, Collective]
"""Work that is queued on a stream and accesses memory."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program with fixed constexpr parameters. `sizes` are as in `argus.ir.nodes.Kernel`.

    `pool` is the number of bytes of the pool, over the sizes of buffers, or None before the memory is planned.
    """

    name: str
    params: tuple[Tensor | Scalar, ...]
    sizes: tuple[str, ...]
    constexprs: tuple[tuple[str, object], ...]
    preconditions: tuple[Precondition, ...]
    streams: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    uses: tuple[Use, ...]
    body: tuple[Step, ...]
    specs: tuple[Spec, ...]
    target: str
    pool: Expr | None = None
    span: Span = span_field()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensor parameters, in order."""
        return tuple(p for p in self.params if isinstance(p, Tensor))

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The scalar parameters, in order."""
        return tuple(p for p in self.params if isinstance(p, Scalar))

    def object(self, name: str) -> Tensor | Buffer:
        """Return the tensor or buffer called `name`. Raises KeyError if there is none."""
        for candidate in self.objects:
            if candidate.name == name:
                return candidate
        raise KeyError(name)

    @property
    def objects(self) -> tuple[Tensor | Buffer, ...]:
        """The tensor parameters, then the buffers."""
        return (*self.tensors, *self.buffers)


def walk(body: tuple[Step, ...]) -> Iterator[Step]:
    """Yield all statements in the order of the text, outer ones first."""
    for step in body:
        yield step
        match step:
            case For(body=inner):
                yield from walk(inner)
            case If(then=then, orelse=orelse):
                yield from walk(then)
                yield from walk(orelse)
            case _:
                pass
