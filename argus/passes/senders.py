"""Give the results that a loop stores or adds to a warp of their own, which hands them to the copy engine.

    role compute:                                      role compute:
        for k ...:                                         for k ...:
            wait until bulk stores have read; barrier          wait free
            panels <- ct                                       panels <- ct
            proxy fence; barrier                      ->       proxy fence; arrive ready
            sums[.., k ..] += panels;  commit              role sender:
                                                               for k ...:
                                                                   wait ready
                                                                   sums[.., k ..] += panels;  commit
                                                                   wait until bulk stores have read; arrive free

So the computing warps wait for the engine, and not for one another. The sender is an idle warp beside the producer. It
exists only if it needs no registers of the computing warps: addresses depend on programs, loops and sizes alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import takewhile

from argus.ir.beginning import initialisation
from argus.ir.expr import Const, Elem, Thread
from argus.ir.instruction import REDUCES
from argus.ir.machine import WARPGROUP
from argus.ir.nodes import (
    Accumulate,
    Barrier,
    BulkCommit,
    BulkCopy,
    BulkWait,
    For,
    Kernel,
    Mbarrier,
    MbarrierArrive,
    MbarrierFence,
    MbarrierInit,
    MbarrierWait,
    Programs,
    ProxyFence,
    Role,
    Roles,
    Stmt,
    ThreadCopy,
)
from argus.ir.visit import map_exprs
from argus.ir.visit import walk as statements
from argus.passes.fresh import Fresh
from argus.passes.specialise.rings import Ring


def send_apart(kernel: Kernel) -> Kernel:
    """Return the kernel in which a warp of its own sends the results of loops, if there is an idle warp for it."""
    roles = next((s.roles for s in kernel.body if isinstance(s, Roles)), ())
    storing = [r for r in roles if any(isinstance(s, BulkCommit) for s in statements(r.body))]
    if len(storing) != 1 or not _idle_behind(roles[0], kernel, roles):
        return kernel
    sending = _Sending(Fresh(kernel), storing[0].num_warps)
    compute, sent = sending.split(storing[0].body, None)
    if not sending.barriers:
        return kernel
    first, span = roles[0], sending.barriers[0].span
    sender = replace(first, name="sender", first_warp=first.first_warp + 1, body=(*sent, BulkWait(0, span=span)))
    others = (replace(r, body=compute) if r is storing[0] else r for r in roles[1:])
    return _with(kernel, (first, sender, *others), sending.barriers)


def _idle_behind(role: Role, kernel: Kernel, roles: tuple[Role, ...]) -> bool:
    """Return True if the warp behind the producer, a role of one warp, is idle."""
    place = role.first_warp + 1
    taken = any(r.first_warp <= place < r.first_warp + r.num_warps for r in roles)
    return role.num_warps == 1 and place < kernel.num_warps and place % WARPGROUP > 0 and not taken


def _with(kernel: Kernel, roles: tuple[Role, ...], barriers: list[Mbarrier]) -> Kernel:
    """Return the kernel with these roles, and with more mbarriers, which are initialised beside the others."""
    new = tuple(s for s in initialisation(barriers, barriers[0].span) if isinstance(s, MbarrierInit))
    body: list[Stmt] = []
    for stmt in kernel.body:
        body += new if isinstance(stmt, MbarrierFence) else ()
        body.append(replace(stmt, roles=roles) if isinstance(stmt, Roles) else stmt)
    return replace(kernel, barriers=(*kernel.barriers, *barriers), body=tuple(body))


@dataclass
class _Sending:
    """Splits the program of a role of `warps` warps into its own and the sender's, and lists the new mbarriers."""

    fresh: Fresh
    warps: int
    barriers: list[Mbarrier] = field(default_factory=list)

    def split(self, body: tuple[Stmt, ...], turn: str | None) -> tuple[tuple[Stmt, ...], tuple[Stmt, ...]]:
        """Return the two programs. `turn` counts the iterations of the loop whose body this is, if it repeats."""
        own: list[Stmt] = []
        sent: list[Stmt] = []
        results = _results(body) if turn else []
        for place, stmt in enumerate(body):
            result = next((r for r in results if r.place <= place < r.end), None)
            if result is not None:
                mine, inner = self._handed(result, turn or "") if place == result.place else ((), ())
                own += mine
                sent += inner
            elif isinstance(stmt, Programs | For) and not _of_threads(stmt):
                mine, inner = self.split(stmt.body, _count(stmt))
                own.append(replace(stmt, body=mine))
                sent += (replace(stmt, body=inner),) if inner else ()
            else:
                own.append(stmt)
        return tuple(own), tuple(sent)

    def _handed(self, result: _Result, turn: str) -> tuple[tuple[Stmt, ...], tuple[Stmt, ...]]:
        """Return what each of the two roles does with a result, of which there is one set of panels."""
        span = result.panels[0].span
        ring = Ring((), 1, self.fresh.name("ready"), self.fresh.name("free"), turn, True, span)
        free = ring.empty or ""
        self.barriers += [Mbarrier(ring.full, 1, self.warps, span=span), Mbarrier(free, 1, 1, span=span)]
        written = (
            MbarrierWait(free, ring.place, ring.parity(1), span=span),
            *result.panels,
            ProxyFence(span=span),
            MbarrierArrive(ring.full, ring.place, span=span),
        )
        sent = (
            MbarrierWait(ring.full, ring.place, ring.parity(0), span=span),
            *result.stores,
            BulkCommit(span=span),
            BulkWait(0, read=True, span=span),
            MbarrierArrive(free, ring.place, span=span),
        )
        return written, sent


@dataclass(frozen=True, slots=True)
class _Result:
    """Statements of a body from `place` on: a wait, a barrier, panels, a fence, a barrier, stores, a commit."""

    place: int
    panels: tuple[Stmt, ...]
    stores: tuple[Stmt, ...]

    @property
    def end(self) -> int:
        return self.place + len(self.panels) + len(self.stores) + 5


def _results(body: tuple[Stmt, ...]) -> list[_Result]:
    """Return the results that a sender can take, or none unless it can take all: those whose panels are all written
    together, at addresses without registers."""
    found = [r for place in range(len(body) - 6) if (r := _result(body, place)) is not None]
    commits = sum(isinstance(s, BulkCommit) for s in statements(body))
    return found if len(found) == commits else []


def _result(body: tuple[Stmt, ...], place: int) -> _Result | None:
    """Return the result that begins at `place`, if one does."""
    panels = _run(body, place + 2, lambda s: isinstance(s, ThreadCopy))
    middle = place + 2 + len(panels)
    stores = _run(body, middle + 2, lambda s: isinstance(s, BulkCopy) or _is_update(s))
    shape = (BulkWait, Barrier, ProxyFence, Barrier, BulkCommit)
    around = (*body[place : place + 2], *body[middle : middle + 2], *body[middle + 2 + len(stores) :][:1])
    fits = len(around) == len(shape) and all(map(isinstance, around, shape))
    sent = frozenset(s.dst.obj for s in panels if isinstance(s, ThreadCopy))
    return _Result(place, panels, stores) if fits and panels and not any(_of_threads(s, sent) for s in stores) else None


def _run(body: tuple[Stmt, ...], place: int, fits: Callable[[Stmt], bool]) -> tuple[Stmt, ...]:
    return tuple(takewhile(fits, body[place:]))


def _is_update(stmt: Stmt) -> bool:
    return isinstance(stmt, Accumulate) and stmt.instr in REDUCES


def _count(stmt: Programs | For) -> str | None:
    """Return the counter of a loop that repeats in a program."""
    if isinstance(stmt, Programs) or (stmt.start, stmt.stop) == (Const(0), Const(1)):
        return None
    return None if stmt.counter is None else stmt.counter.name


def _of_threads(stmt: Stmt, sent: frozenset[str] = frozenset()) -> bool:
    """Return True if the statement's own expressions depend on the thread, or on elements of other tiles than `sent`.
    """
    found: list[bool] = []
    map_exprs(stmt, lambda e: found.append(isinstance(e, Thread) or (isinstance(e, Elem) and e.obj not in sent)))
    return any(found)
