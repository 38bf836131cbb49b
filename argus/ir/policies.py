"""Policy statements, which passes replace: copies into shared memory, and scans."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from argus.ir.expr import Const, Expr
from argus.ir.objects import IN_GLOBAL, IN_REGISTERS, Access
from argus.ir.statement import CONDITION, Statement
from argus.layout import FragmentLayout


@dataclass(frozen=True, slots=True)
class Scanned:
    """One tile of a scan: `result[c] = combine`, computed from the results at the preceding element and from the
    operands.

    In `combine`, an `Elem` of a result stands for its element before c, and an `Elem` of an operand for its element at
    c.
    """

    FORM: ClassVar[str] = "of {operand} to {result} = {combine}"
    operand: Access = field(metadata=IN_REGISTERS)
    result: Access = field(metadata=IN_REGISTERS)
    combine: Expr


@dataclass(frozen=True, slots=True)
class Scan(Statement):
    """Policy: a scan of all these register tiles together along `axis`. The first element of a result is the operand's.

    With `reverse`, the scan runs from the last element to the first. The combination is associative, so parts may be
    combined first: a pass spreads the work over registers, lanes and warps (`argus.passes.scan`).
    """

    FORM: ClassVar[str] = "scan axis {axis}(?reverse: reverse) shape {shape}(? layout {layout})(? {tiles})"
    axis: int
    shape: tuple[int, ...]
    reverse: bool = False
    layout: FragmentLayout | None = None
    tiles: tuple[Scanned, ...] = ()


@dataclass(frozen=True, slots=True)
class Stage(Statement):
    """Policy: copy a part of a global tensor into the shared tile `dst` and make it visible to the whole block.

    `once` is a hint that the copy engine uses: nothing else reads these elements soon.
    """

    FORM: ClassVar[str] = "stage {dst} <- {src} shape {shape}(? if {mask})(? else {other})(?once: once)"
    dst: str
    src: Access = field(metadata=IN_GLOBAL)
    shape: tuple[int, ...]
    mask: Expr | None = field(default=None, metadata=CONDITION)
    other: Const | None = None
    once: bool = False


@dataclass(frozen=True, slots=True)
class Share(Statement):
    """Policy: copy a register tile into the shared tile `dst` and make it visible to the whole block, or role."""

    FORM: ClassVar[str] = "share {dst} <- {src} shape {shape}"
    dst: str
    src: Access = field(metadata=IN_REGISTERS)
    shape: tuple[int, ...]
