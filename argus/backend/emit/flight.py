"""Which register tiles asynchronous products may be using, statement by statement.

The compiler of the emitted text knows nothing of asynchrony: where products are fenced or waited for, the text holds
the tiles that ordinary code wrote before, or reads afterwards, and no others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import zip_longest

from argus.ir import visit
from argus.ir.instruction import WGMMA
from argus.ir.nodes import Accumulate, Copy, For, If, Map, Mma, MmaCommit, MmaFence, MmaWait, Programs, Stmt

_GROUPS = 8
"""Groups that are told apart; older ones are one."""

Names = frozenset[str]
_NONE: Names = frozenset()


@dataclass(frozen=True, slots=True)
class Flight:
    """Tiles that may be in use: by products of no group yet, of the latest groups (newest first), of older ones; and
    tiles that ordinary code may have `written` since the last fence. `tiles` are all that products use at all."""

    tiles: Names
    open: Names = _NONE
    groups: tuple[Names, ...] = ()
    older: Names = _NONE
    written: Names = _NONE

    def finished(self, pending: int) -> Names:
        """The tiles that a wait for all but `pending` groups gives back."""
        still = self.open.union(*self.groups[:pending])
        return self.older.union(*self.groups[pending:]) - still

    def after(self, stmt: Stmt) -> Flight:
        """Behind a statement."""
        match stmt:
            case Mma(instr=instr) if instr in WGMMA:
                return replace(self, open=self.open | ({stmt.d.obj, stmt.a.obj} & self.tiles))
            case Copy(dst=dst) | Map(dst=dst) | Accumulate(dst=dst) | Mma(d=dst):
                return replace(self, written=self.written | ({dst.obj} & self.tiles))
            case MmaFence():
                return replace(self, written=_NONE)
            case MmaCommit():
                groups = (self.open, *self.groups)
                return replace(self, open=_NONE, groups=groups[:_GROUPS], older=self.older.union(*groups[_GROUPS:]))
            case MmaWait(pending=pending):
                return replace(self, groups=self.groups[:pending], older=_NONE)
            case If(then=then, orelse=orelse):
                return self.through(then).joined(self.through(orelse))
            case For() | Programs():
                return self.around(stmt.body)
            case _:
                return self

    def through(self, body: tuple[Stmt, ...]) -> Flight:
        """Behind all of `body`."""
        state = self
        for stmt in body:
            state = state.after(stmt)
        return state

    def around(self, body: tuple[Stmt, ...]) -> Flight:
        """In front of any run of `body` in a loop, and behind the last one."""
        state = self
        while (further := state.joined(state.through(body))) != state:
            state = further
        return state

    def joined(self, other: Flight) -> Flight:
        """Where two ways meet."""
        groups = zip_longest(self.groups, other.groups, fillvalue=_NONE)
        return Flight(
            self.tiles, self.open | other.open, tuple(a | b for a, b in groups), self.older | other.older,
            self.written | other.written,
        )  # fmt: skip


def start(body: tuple[Stmt, ...], fragments: Iterable[str]) -> Flight:
    """In front of `body`; `fragments` are the register tiles of the kernel."""
    products = [s for s in visit.walk(body) if isinstance(s, Mma) and s.instr in WGMMA]
    return Flight(frozenset(a.obj for s in products for a in (s.d, s.a)) & frozenset(fragments))
