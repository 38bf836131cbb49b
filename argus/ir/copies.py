"""Copies: statements that move elements between memory objects, by threads or by the copy engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from argus.ir.expr import Const, Expr
from argus.ir.objects import Access
from argus.ir.ordering import Among
from argus.ir.statement import CONDITION, Statement
from argus.layout import FragmentLayout


@dataclass(frozen=True, slots=True)
class Signal:
    """Completion on mbarrier `barrier[index]`, which counts the bytes of a bulk copy (complete_tx)."""

    FORM: ClassVar[str] = "signal {barrier}[{index}]"
    barrier: str
    index: Expr


@dataclass(frozen=True, slots=True)
class Copy(Statement):
    """The assignment `dst[...] = src[...]` for every element of `shape` under `mask`, between any two spaces, with the
    same dtype.

    Where `mask` is false, a fragment or shared destination gets `other` (None: keeps its old value), and a global
    destination is left unchanged. `instr` is a row of the instruction table. The row says who moves the data
    (`Mechanism`), when the copy is complete (`Order`), and everything else that is particular to the instruction.

    Every copy is a `ThreadCopy` or a `BulkCopy`. This class has the fields that both share.
    """

    dst: Access
    src: Access
    shape: tuple[int, ...]
    mask: Expr | None = field(default=None, metadata=CONDITION)
    other: Const | None = None

    @property
    def layout(self) -> FragmentLayout | None:
        """The layout that gives each element its thread. None while it is open, and for copies that no thread carries
        out."""
        return None

    @property
    def vector(self) -> int:
        """The number of consecutive value digits that one access moves."""
        return 1

    @property
    def instr(self) -> str | None:
        """The instruction's name; None if it is still open."""
        return None

    @property
    def signal(self) -> Signal | None:
        """The mbarrier that counts the bytes of the copy."""
        return None


@dataclass(frozen=True, slots=True)
class ThreadCopy(Copy):
    """A copy in which each thread moves its own elements: by loads and stores, matrix moves, or asynchronous copies.

    `layout` spreads the elements over threads, and one access moves `vector` consecutive value digits. Only the primary
    holder of each element writes a destination in memory. In tile IR, `layout` and `instr` may be open.
    """

    FORM: ClassVar[str] = (
        "copy {dst} <- {src} shape {shape}(? if {mask})(? else {other})(? layout {layout})(? via {instr})"
        "(? vector {vector})"
    )
    layout: FragmentLayout | None = None
    instr: str | None = None
    vector: int = 1


@dataclass(frozen=True, slots=True)
class BulkCopy(Copy):
    """A copy of a box between a tensor and a shared tile. One thread of the executing role hands it to the copy engine.

    Every index of the tensor is its value at the origin plus the `Coord` of its dimension, or one place for the whole
    box. `mask` is exactly "inside the tensor".

    A load sets `signal`. Its `other` is 0 if there is a mask, as the copy engine fills elements beyond the edges with
    0, and all of the box's bytes are counted. A multicast delivers the box to this place in every block of the cluster,
    or of those `among` it, and its bytes count on the `signal` of each. `once` is a hint on loads, which changes no
    value and no order: nothing else reads the elements soon, so they are the first to leave the L2 cache.

    A store has no `signal` and no `other`. Thread 0 of the role issues it, and `BulkWait` says when it is complete.
    """

    FORM: ClassVar[str] = (
        "copy {dst} <~ {src} shape {shape}(? if {mask})(? else {other}) via {instr}(? {signal})(?once: once)(? {among})"
    )
    instr: str = ""
    signal: Signal | None = None
    once: bool = False
    among: Among | None = None


COPIES: tuple[type[Copy], ...] = (ThreadCopy, BulkCopy)
"""All kinds of copies."""
