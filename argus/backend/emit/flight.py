"""Track the register tiles that asynchronous products may be using, statement by statement.

The compiler of the emitted text does not know that products are asynchronous. The text therefore *holds* tiles, so
that ordinary code does not move across a hold. Tiles that ordinary code wrote are held before a fence. Tiles that
ordinary code uses after a wait are held after that wait. Tiles in flight are never held: if anything else touches
their registers, ptxas makes products wait for one another. Tiles that ordinary code wrote *beside* products are held
before the wait for these products; otherwise ptxas would wait first and compute afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import zip_longest

from argus.ir import visit
from argus.ir.instruction import WGMMA
from argus.ir.nodes import (
    Access,
    Accumulate,
    AssertTags,
    Copy,
    For,
    If,
    Map,
    Mma,
    MmaCommit,
    MmaFence,
    MmaWait,
    Programs,
    Spec,
    Stmt,
    Tag,
)

_GROUPS = 8
"""Number of the latest groups that are tracked separately. Older groups are treated as one."""

Names = frozenset[str]
_NONE: Names = frozenset()


def used(body: tuple[Stmt, ...]) -> Names:
    """Return the names of all memory objects that the statements access."""
    names: set[str] = set()

    def see(access: Access) -> Access:
        names.add(access.obj)
        return access

    for stmt in visit.walk(body):
        visit.map_accesses(stmt, see)
    return frozenset(names)


def is_product(stmt: Stmt) -> bool:
    """Return True if a statement is an asynchronous product."""
    return isinstance(stmt, Mma) and stmt.instr in WGMMA


def _by_products(body: tuple[Stmt, ...]) -> Names:
    return used(tuple(s for s in visit.walk(body) if is_product(s)))


def _by_others(body: tuple[Stmt, ...]) -> Names:
    simple = (s for s in visit.walk(body) if isinstance(s, Copy | Map | Accumulate | Mma) and not is_product(s))
    return used(tuple(simple))


@dataclass(frozen=True, slots=True)
class Flight:
    """The state of register tiles at one point of the text.

    `tiles` are all tiles that products use. Tiles that may be in use now: `open` by products that are in no group yet,
    `groups` by the latest groups, newest first, `older` by older groups. Ordinary code may have `written` tiles since
    the last fence. Tiles in `waited` were waited for and not held since. Tiles in `beside` were written by ordinary
    code while products were in flight, since the latest group or wait.
    """

    tiles: Names
    open: Names = _NONE
    groups: tuple[Names, ...] = ()
    older: Names = _NONE
    written: Names = _NONE
    waited: Names = _NONE
    beside: Names = _NONE

    def held(self, stmt: Stmt) -> Names:
        """Return the tiles to hold before a statement."""
        match stmt:
            case MmaFence():
                return self.written
            case For() | Programs():
                return (self.written & _by_products(stmt.body)) | (self.waited & _by_others(stmt.body))
            case If() | Tag() | AssertTags() | Spec():
                return _NONE
            case _ if is_product(stmt):
                return _NONE
            case _:
                return self.waited & used((stmt,))

    def after(self, stmt: Stmt) -> Flight:
        """Return the state after a statement; its tiles were held before it."""
        held = self.held(stmt)
        state = replace(self, written=self.written - held, waited=self.waited - held)
        match stmt:
            case Mma() if is_product(stmt):
                uses = {stmt.d.obj, stmt.a.obj} & self.tiles
                return replace(state, open=state.open | uses, waited=state.waited - uses)
            case Copy(dst=dst) | Map(dst=dst) | Accumulate(dst=dst) | Mma(d=dst):
                beside = {dst.obj} if state.open.union(state.older, *state.groups) else _NONE
                return replace(
                    state, written=state.written | ({dst.obj} & self.tiles), beside=state.beside | beside
                )  # fmt: skip
            case MmaCommit():
                groups = (state.open, *state.groups)
                return replace(
                    state, open=_NONE, groups=groups[:_GROUPS], older=state.older.union(*groups[_GROUPS:]), beside=_NONE
                )  # fmt: skip
            case MmaWait(pending=pending):
                still = state.open.union(*state.groups[:pending])
                finished = state.older.union(*state.groups[pending:]) - still
                waited = state.waited | finished
                return replace(state, groups=state.groups[:pending], older=_NONE, waited=waited, beside=_NONE)
            case If(then=then, orelse=orelse):
                return state.through(then).joined(state.through(orelse))
            case For() | Programs():
                return state.around(stmt.body)
            case _:
                return state

    def forgetting(self, tile: str) -> Flight:
        """Return the state without `tile` among the tiles to hold, after a statement whose value of it is not used."""
        return replace(self, written=self.written - {tile}, waited=self.waited - {tile})

    def through(self, body: tuple[Stmt, ...]) -> Flight:
        """Return the state after all of `body`."""
        state = self
        for stmt in body:
            state = state.after(stmt)
        return state

    def around(self, body: tuple[Stmt, ...]) -> Flight:
        """Return a state that covers the start of every iteration of `body` and the end of the loop."""
        state = self
        while (further := state.joined(state.through(body))) != state:
            state = further
        return state

    def joined(self, other: Flight) -> Flight:
        """Return the state where two paths meet: everything that may hold on either."""
        groups = zip_longest(self.groups, other.groups, fillvalue=_NONE)
        return Flight(
            self.tiles, self.open | other.open, tuple(a | b for a, b in groups), self.older | other.older,
            self.written | other.written, self.waited | other.waited, self.beside | other.beside,
        )  # fmt: skip


def start(body: tuple[Stmt, ...], fragments: Iterable[str]) -> Flight:
    """Return the state before `body`; `fragments` are the register tiles of the kernel."""
    return Flight(_by_products(body) & frozenset(fragments))
