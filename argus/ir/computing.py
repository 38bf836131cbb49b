"""Statements that compute: elementwise values, reductions into an object, and matrix products."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from argus.ir.expr import Expr
from argus.ir.objects import IN_REGISTERS, IN_REGISTERS_OR_GLOBAL, IN_REGISTERS_OR_SHARED, Access
from argus.ir.statement import CONDITION, Statement
from argus.layout import FragmentLayout


@dataclass(frozen=True, slots=True)
class Map(Statement):
    """The assignment `dst[...] = value` of each element of a fragment. `value` is over `Coord`s, scalars and fragment
    `Elem`s.

    All reads of one element precede its write. With `scope` "thread", every register read is the thread's own. With
    "warp", registers of other lanes of the warp are read (a shuffle), and `value` is a single `Elem`.
    """

    FORM: ClassVar[str] = "map {dst} = {value} shape {shape}(? layout {layout})(? scope {scope})"
    dst: Access = field(metadata=IN_REGISTERS)
    value: Expr
    shape: tuple[int, ...]
    layout: FragmentLayout | None = None
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class Accumulate(Statement):
    """The accumulation `dst[...] = dst[...] op value` over the domain. Many elements may fall into one cell (a
    reduction).

    `op` is a key of `REDUCTIONS`. Into a fragment: with `scope` "thread" each thread adds its own registers; with
    "warp" the lanes that hold the domain add together, and every lane that holds the cell gets the total; None (tile
    IR) leaves this open. Into global memory: the update is atomic and relaxed, at device scope, one for each primary
    holder (`instr` "red.global"). Where `mask` is false, the element contributes nothing.

    With "tma.reduce.add" and similar instructions, the copy engine accumulates a whole box: `value` is a single element
    of a shared tile, `mask` is exactly "inside the tensor", and there is no `layout`. The statement is issued and
    completes like a "tma.store".
    """

    FORM: ClassVar[str] = (
        "accumulate {dst} {op} {value} shape {shape}(? if {mask})(? layout {layout})(? scope {scope})(? via {instr})"
    )
    dst: Access = field(metadata=IN_REGISTERS_OR_GLOBAL)
    value: Expr
    op: str
    shape: tuple[int, ...]
    mask: Expr | None = field(default=None, metadata=CONDITION)
    layout: FragmentLayout | None = None
    scope: str | None = None
    instr: str | None = None


@dataclass(frozen=True, slots=True)
class Mma(Statement):
    """The product `d[m, n] += sum over k of a[m, k] * b[n, k]`, with domain `shape` = (M, N, K) and Coords (m, n, k).

    `d` is a fragment. `a` and `b` are fragments in explicit IR, and may be shared tiles in tile IR. `instr` is a row of
    the instruction table; `warps` = (along M, along N) says how warps share the tile.

    A row of warpgroup scope (wgmma) reads `b` from a shared tile and `a` from a shared tile or registers. It runs
    asynchronously, and is complete at the first `MmaWait` that covers its `MmaCommit` group. `warps` counts warps, four
    to a warpgroup. A shared operand is K-major or, if its index has the depth before the rows, MN-major.
    """

    FORM: ClassVar[str] = "mma {d} += {a} * {b} shape {shape}(? via {instr})(? warps {warps})"
    d: Access = field(metadata=IN_REGISTERS)
    a: Access = field(metadata=IN_REGISTERS_OR_SHARED)
    b: Access = field(metadata=IN_REGISTERS_OR_SHARED)
    shape: tuple[int, int, int]
    instr: str | None = None
    warps: tuple[int, int] | None = None
