"""Replace several similar roles by one role with a number; a proof about that role holds for each of them.

    role compute  { wait full[i];  mma acc  += qt[..]  * kt[i, ..];  arrive empty[i];  store o[m0 + c0] }
    role compute1 { wait full[i];  mma acc1 += qt1[..] * kt[i, ..];  arrive empty[i];  store o[m0 + 64 + c0] }
      ->   role compute { ...;  store o[m0 + c0 + 64 * `number of the role`] },   0 <= `number of the role` < 2

Let K be a kernel with roles R(0) ... R(n - 1). Let K(i) be the kernel with R(i) alone of these roles: without the
objects that only the others use, and without the arrivals and bytes that the others contribute to shared objects.
`alone` makes one kernel that equals each K(i) except for names, with the number i as a parameter. It does so only if:

1. The roles have the same statements. They differ in names of register tiles, shared tiles and mbarriers, which
   correspond one to one and have equal declarations. They also differ in integers that grow linearly with the number,
   in places of tensors, masks, values and tags. Loops, branches, barriers and places in tiles are the same.
2. An object whose name differs between the roles is a role's own. The roles write no other tile, and an own tile shares
   its bytes with no tile. Outside the roles an own object is named only by initialisations of mbarriers and by waits,
   expectations, arrivals and bulk copies that fill it. These form adjacent groups, one for each role in order, which
   correspond in the same way; in a group waits come first. Adjacent copies count as standing in that order, because the
   copy engine executes them in any order.
3. Shared tiles and mbarriers are only read, waited for, and arrived at with all warps of each role. The bytes of a
   shared mbarrier are announced in one place. No tensor that the roles write is read.

Then the answers of `questions` about K(i), for all i, hold for K (docs/soundness.md says why). This covers data-flow,
order, progress and tags, but not conflicts of two of the roles in one tensor, which are checked on K. A refutation of
K(i) does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cached_property, partial
from itertools import groupby
from math import prod
from typing import Any

from argus.ir.access import Mode, relations
from argus.ir.cluster import rank_of
from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, Thread, linear, op
from argus.ir.nodes import (
    Access,
    Accumulate,
    AssertTags,
    Barrier,
    BarrierArrive,
    BulkCommit,
    BulkCopy,
    BulkWait,
    Copy,
    DataValue,
    For,
    If,
    Kernel,
    Map,
    Mbarrier,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierInit,
    MbarrierWait,
    Mma,
    MmaCommit,
    MmaFence,
    MmaWait,
    Once,
    Programs,
    ProxyFence,
    Requires,
    Role,
    Roles,
    Stmt,
    Tag,
    TagEqual,
    TagTuple,
    ThreadCopy,
)
from argus.ir.visit import rewrite_body, walk
from argus.verify.model.program import NUMBER
from argus.verify.model.relations import byte_span
from argus.verify.reductions.renaming import Body, Object, Unlike, names_in, other_names, placed, renamed
from argus.verify.reductions.turns import without_turns

_IN_ROLES = (
    Copy, Map, Accumulate, Mma, Barrier, MmaFence, MmaCommit, MmaWait, BulkCommit, BulkWait, ProxyFence,
    MbarrierArrive, MbarrierWait, For, If, Programs, Tag, AssertTags,
)  # fmt: skip
_FOR_ROLES = (MbarrierInit, MbarrierExpect, MbarrierArrive, Copy)
"""Statements outside the roles that may serve one of them after a wait: none of them blocks, or closes a group."""


def alone(kernel: Kernel) -> Kernel:
    """Return an explicit kernel (a cluster as one block) with one role for each set of similar roles."""
    for names in _candidates(kernel):
        try:
            kernel = _Alike(without_turns(kernel, names), names).kernel()
        except Unlike:
            continue
    return kernel


def _candidates(kernel: Kernel) -> list[tuple[str, ...]]:
    """Return the names of roles of one block that have equal numbers of warps and, apart from turns, equal kinds of
    statements."""
    kinds: dict[object, list[str]] = {}
    for role in _roles(kernel):
        steps = tuple(type(s) for s in walk(role.body) if not isinstance(s, BarrierArrive))
        kind = (role.num_warps, rank_of(role.name), steps)
        kinds.setdefault(kind, []).append(role.name)
    return [tuple(names) for names in kinds.values() if len(names) > 1]


def _roles(kernel: Kernel) -> tuple[Role, ...]:
    return tuple(role for stmt in kernel.body if isinstance(stmt, Roles) for role in stmt.roles)


class _Alike:
    """A comparison of some roles of a kernel. Raises `Unlike` if they do not meet the conditions."""

    def __init__(self, kernel: Kernel, names: tuple[str, ...]) -> None:
        self._kernel = kernel
        self._alike = tuple(role for role in _roles(kernel) if role.name in names)
        self._count = len(names)
        self._tensors = {t.name for t in kernel.tensors}
        self._number = f"{NUMBER}{names[0]}"
        self._numbered = False
        self._called = [other_names(self._alike[0].body, role.body) for role in self._alike]
        self._owner = self._owners()
        self._dropped: Counter[str] = Counter()  # bytes that the other roles' own copies bring, by shared mbarrier

    def kernel(self) -> Kernel:
        """Return the kernel in which the first of the roles stands for all of them."""
        kernel = self._kernel
        for role in self._alike:
            self._check(role)
        role = replace(self._alike[0], body=self._merged([r.body for r in self._alike]))
        body = rewrite_body(self._without_others(kernel.body, role), self._announced)
        number = Param(self._number)
        bounds = (Requires(op("ge", number, Const(0))), Requires(op("lt", number, Const(self._count))))
        return replace(
            kernel,
            body=body,
            shared=tuple(s for s in kernel.shared if not self._owner.get(s.name)),
            fragments=tuple(f for f in kernel.fragments if not self._owner.get(f.name)),
            barriers=tuple(self._fewer(b) for b in kernel.barriers if not self._owner.get(b.name)),
            preconditions=(*kernel.preconditions, *bounds) if self._numbered else kernel.preconditions,
        )

    # ------------------------------------------------------------------ what is whose

    def _owners(self) -> dict[str, int]:
        """Map the name of each object that is a role's own to the number of that role."""
        own = [name for name, same in self._called[-1].items() if name != same]
        owner: dict[str, int] = {}
        for number, called in enumerate(self._called):
            for first in own:
                owner[called[first]] = number
            if number and any((called[name] != name) != (name in own) for name in called):
                raise Unlike
        common = {name for name, same in self._called[-1].items() if name == same}
        if len(owner) != self._count * len(own) or (self._tensors | common) & set(owner):
            raise Unlike
        kernel = self._kernel
        declared: tuple[Object, ...] = (*kernel.shared, *kernel.fragments, *kernel.barriers)
        objects = {each.name: each for each in declared}
        for first in own:
            for called in self._called[1:]:
                mine, theirs = objects[first], objects[called[first]]
                if placed(mine, first) != placed(theirs, first) or rank_of(mine.name) != rank_of(theirs.name):
                    raise Unlike
        spans = {tile.name: byte_span(tile) for tile in self._kernel.shared}
        for name, (low, high) in spans.items():
            if name in owner and any(a < high and low < b for other, (a, b) in spans.items() if other != name):
                raise Unlike
        return owner

    def _check(self, role: Role) -> None:
        """Check that a role's accesses to shared objects and tensors do not affect the other roles."""
        for stmt in walk(role.body):
            if not isinstance(stmt, _IN_ROLES) or (isinstance(stmt, Copy) and stmt.signal is not None):
                raise Unlike
            if isinstance(stmt, Programs) and stmt.turns > 1:
                raise Unlike
            for access in relations(stmt):
                if access.mode is Mode.READ or access.obj in self._owner:
                    continue
                if access.mode is Mode.ACCUMULATE or self._is_read(access.obj):
                    raise Unlike

    def _is_read(self, name: str) -> bool:
        """Return True if an object that a role writes may be read; a tile that is not the role's own always may."""
        return name not in self._tensors or name in self._read

    @cached_property
    def _read(self) -> frozenset[str]:
        accesses = (access for stmt in walk(self._kernel.body) for access in relations(stmt))
        return frozenset(a.obj for a in accesses if a.mode is Mode.READ)

    # ------------------------------------------------------------------ what others do for them

    def _without_others(self, body: Body, only: Role) -> Body:
        """Merge the groups of statements that serve one role each, in a body outside the roles, into one group."""
        runs = [(owner, tuple(stmts)) for owner, stmts in groupby(self._side_by_side(body), self._owner_of)]
        result: list[Stmt] = []
        while runs:
            owner, stmts = runs.pop(0)
            if owner is None:
                result += (self._inside(stmt, only) for stmt in stmts)
                continue
            following, runs = runs[: self._count - 1], runs[self._count - 1 :]
            if [owner, *(o for o, _ in following)] != list(range(self._count)):
                raise Unlike
            result += self._group([stmts, *(s for _, s in following)])
        return tuple(result)

    def _side_by_side(self, body: Body) -> Body:
        """Sort adjacent copies that signal an mbarrier by the role they serve; the copy engine keeps no order."""
        together = groupby(body, lambda stmt: isinstance(stmt, Copy) and stmt.signal is not None)
        return tuple(s for copies, stmts in together for s in (sorted(stmts, key=self._place) if copies else stmts))

    def _place(self, copy: Stmt) -> int:
        owner = self._owner_of(copy)
        return self._count if owner is None else owner

    def _owner_of(self, stmt: Stmt) -> int | None:
        """Return the number of the role whose own objects a statement names, or None if it names none."""
        owners = {self._owner[name] for name in names_in(stmt) if name in self._owner}
        if len(owners) > 1:
            raise Unlike
        return next(iter(owners), None)

    def _inside(self, stmt: Stmt, only: Role) -> Stmt:
        match stmt:
            case For(body=body) | Programs(body=body):
                return replace(stmt, body=self._without_others(body, only))
            case If(then=then, orelse=orelse):
                parts = (self._without_others(body, only) for body in (then, orelse))
                return replace(stmt, then=next(parts), orelse=next(parts))
            case Roles(roles=roles):
                rest = tuple(r for r in roles if r not in self._alike[1:])
                return replace(stmt, roles=tuple(only if r is self._alike[0] else self._other(r, only) for r in rest))
            case _:
                return stmt

    def _other(self, role: Role, only: Role) -> Role:
        return replace(role, body=self._without_others(role.body, only))

    def _group(self, groups: list[Body]) -> Body:
        """Merge groups of statements that serve one role each: waits first, then statements that do not block."""
        first = groups[0]
        waits = next((n for n, stmt in enumerate(first) if not isinstance(stmt, MbarrierWait)), len(first))
        for stmt in first[waits:]:
            if not isinstance(stmt, _FOR_ROLES):
                raise Unlike
            if isinstance(stmt, Copy) and (stmt.signal is None or stmt.dst.obj not in self._owner):
                raise Unlike
            if isinstance(stmt, Copy) and stmt.signal is not None and stmt.signal.barrier not in self._owner:
                brought = prod(stmt.shape) * self._kernel.object(stmt.dst.obj).dtype.bytes
                self._dropped[stmt.signal.barrier] += (self._count - 1) * brought
        return self._merged(groups)

    def _announced(self, stmt: Stmt) -> tuple[Stmt, ...]:
        """Subtract from an expectation the bytes that copies for the other roles bring."""
        if not isinstance(stmt, MbarrierExpect) or stmt.barrier not in self._dropped:
            return (stmt,)
        alike = [s for s in walk(self._kernel.body) if isinstance(s, MbarrierExpect) and s.barrier == stmt.barrier]
        left = stmt.bytes - self._dropped[stmt.barrier]
        if len(alike) > 1 or left <= 0:
            raise Unlike
        return (replace(stmt, bytes=left),)

    def _fewer(self, barrier: Mbarrier) -> Mbarrier:
        """Subtract the other roles' arrivals from a shared mbarrier; return other mbarriers unchanged."""
        first = self._alike[0]
        arrives = any(isinstance(s, MbarrierArrive) and s.barrier == barrier.name for s in walk(first.body))
        if not arrives or barrier.name in self._owner:
            return barrier
        return replace(barrier, arrivals=barrier.arrivals - (self._count - 1) * first.num_warps)

    # ------------------------------------------------------------------ the same statements

    def _merged(self, bodies: Sequence[Body]) -> Body:
        """Merge the corresponding statements of all roles into statements of the first role with a number."""
        same = [
            rewrite_body(body, partial(renamed, names={theirs: mine for mine, theirs in called.items()}))
            for body, called in zip(bodies, self._called, strict=True)
        ]
        return self._blocks(same)

    def _blocks(self, bodies: Sequence[Body]) -> Body:
        if len({len(body) for body in bodies}) > 1:
            raise Unlike
        return tuple(self._statement(stmts) for stmts in zip(*bodies, strict=True))

    def _statement(self, stmts: tuple[Stmt, ...]) -> Stmt:
        first = stmts[0]
        if all(s == first for s in stmts):
            return first
        match first:
            case For() | Programs():
                merged: dict[str, Any] = {"body": self._blocks([getattr(s, "body", ()) for s in stmts])}
            case If():
                merged = {part: self._blocks([getattr(s, part, ()) for s in stmts]) for part in ("then", "orelse")}
            case _:
                parts = _NUMBERED.get(type(first), ())
                merged = {part: self._values([getattr(s, part, None) for s in stmts]) for part in parts}
        one = replace(first, **merged)
        if any(type(s) is not type(first) or replace(s, **merged) != one for s in stmts):
            raise Unlike
        return one

    def _values(self, values: Sequence[Any]) -> Any:
        """Merge corresponding expressions, tag terms or places of tensors into one with the role's number."""
        first = values[0]
        if all(v == first for v in values):
            return first
        if any(type(v) is not type(first) for v in values) and not all(isinstance(v, _EXPRESSIONS) for v in values):
            raise Unlike
        match first:
            case tuple():
                if len({len(v) for v in values}) > 1:
                    raise Unlike
                return tuple(self._values(each) for each in zip(*values, strict=True))
            case Access(obj=obj) if obj in self._tensors:
                index = self._values([v.index for v in values])
                if any(replace(v, index=index) != replace(first, index=index) for v in values):
                    raise Unlike
                return replace(first, index=index)
            case TagEqual() | TagTuple() | Once() | DataValue():
                parts = {f.name: self._values([getattr(v, f.name) for v in values]) for f in fields(first)}
                return replace(first, **parts)
            case Const() | ProgramId() | Coord() | LoopVar() | Param() | Op():
                return self._expression(values)
            case _:
                raise Unlike

    def _expression(self, exprs: Sequence[Expr]) -> Expr:
        """Merge e, e + 64, e + 128 into e + 64 * number."""
        first = exprs[0]
        if first.dtype.is_int and all(e.dtype == first.dtype for e in exprs):
            sums = [linear(e) for e in exprs]
            step = sums[1][1] - sums[0][1]
            if all(terms == sums[0][0] and start == sums[0][1] + i * step for i, (terms, start) in enumerate(sums)):
                self._numbered = True
                number = Param(self._number, first.dtype)
                return op("add", first, op("mul", number, Const(step, first.dtype)))
        args = [e.args for e in exprs if isinstance(e, Op)]
        if not isinstance(first, Op) or len(args) < len(exprs):
            raise Unlike
        merged = self._values(args)
        if any(replace(e, args=merged) != replace(first, args=merged) for e in exprs if isinstance(e, Op)):
            raise Unlike
        return replace(first, args=merged)


_NUMBERED: dict[type, tuple[str, ...]] = {
    ThreadCopy: ("dst", "src", "mask"),
    BulkCopy: ("dst", "src", "mask"),
    Map: ("value",),
    Accumulate: ("value", "mask"),
    Tag: ("fields",),
    AssertTags: ("conditions", "where"),
}
"""The fields that may depend on the number of a role, by kind of statement."""


_EXPRESSIONS = (Const, Param, ProgramId, LoopVar, Coord, Thread, Elem, Op)
