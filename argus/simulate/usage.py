"""The uses that a kernel makes of its tensors, derived from the access relations."""

from __future__ import annotations

from dataclasses import dataclass

from argus.ir.access import Mode, relations
from argus.ir.expr import Elem, Expr, elements
from argus.ir.instruction import WGMMA, Order
from argus.ir.nodes import (
    Accumulate,
    AssertTags,
    BarrierArrive,
    BarrierSync,
    Copy,
    Kernel,
    Map,
    Mma,
    Role,
    Roles,
    Stmt,
    Tag,
    TagEqual,
    TagField,
    TagTuple,
)
from argus.ir.visit import walk

_FETCHES = (Order.ASYNC_GROUP, Order.VMCNT)


@dataclass(frozen=True, slots=True)
class Usage:
    """Names of tensors by their use in the kernel. `written` includes `accumulated`. `fetched`: asynchronous copies of
    threads read them. `asserted`: tag assertions name them."""

    read: frozenset[str]
    stored: frozenset[str]
    accumulated: frozenset[str]
    fetched: frozenset[str]
    asserted: frozenset[str]

    @property
    def written(self) -> frozenset[str]:
        """Tensors that the kernel changes."""
        return self.stored | self.accumulated


def usage(kernel: Kernel) -> Usage:
    """Return how the kernel uses each tensor."""
    tensors = {t.name for t in kernel.tensors}
    found = [r for stmt in walk(kernel.body) for r in relations(stmt)]
    asserted = {e.obj for stmt in walk(kernel.body) if isinstance(stmt, AssertTags) for e in _compared(stmt)}

    def names(mode: Mode) -> frozenset[str]:
        return frozenset(r.obj for r in found if r.mode is mode) & tensors

    return Usage(
        names(Mode.READ),
        names(Mode.WRITE),
        names(Mode.ACCUMULATE),
        frozenset(r.obj for r in found if r.mode is Mode.READ and r.order in _FETCHES) & tensors,
        frozenset(asserted & tensors),
    )


def handed_on(kernel: Kernel) -> bool:
    """Return True if a program may read what another one wrote, or adds to it."""
    used = usage(kernel)
    return bool(used.accumulated or used.read & used.stored)


def kernel_roles(kernel: Kernel) -> tuple[Role, ...]:
    """Return the roles of a kernel, in order."""
    return tuple(role for stmt in kernel.body if isinstance(stmt, Roles) for role in stmt.roles)


def named_barriers(kernel: Kernel) -> dict[str, int]:
    """Return the named barriers that a kernel uses, and the number of threads that the first use of each counts."""
    result: dict[str, int] = {}
    for stmt in walk(kernel.body):
        if isinstance(stmt, BarrierSync | BarrierArrive):
            result.setdefault(stmt.barrier, stmt.count)
    return result


def first_threads(kernel: Kernel) -> dict[str, int]:
    """Return, for the objects that roles access, the first thread of the object's role as a number in the block."""
    return {
        relation.obj: role.first_warp * kernel.warp_size
        for role in kernel_roles(kernel)
        for stmt in walk(role.body)
        for relation in relations(stmt)
    }


def asynchronous_registers(kernel: Kernel) -> dict[str, bool]:
    """Return the fragments that asynchronous products use, each with True if products only read it."""
    products = [s for s in walk(kernel.body) if isinstance(s, Mma) and s.instr in WGMMA]
    fragments = {f.name for f in kernel.fragments}
    operands = {s.a.obj: True for s in products if s.a.obj in fragments}
    return operands | {s.d.obj: False for s in products}


def _compared(stmt: AssertTags) -> list[Elem]:
    sides = []
    for condition in stmt.conditions:
        match condition:
            case TagTuple(elem=elem, terms=terms):
                sides += [elem, *(t.elem for t in terms if isinstance(t, TagField))]
            case TagEqual(left=left, right=right):
                sides += [t.elem for t in (left, right) if isinstance(t, TagField)]
    return sides


def taggable(kernel: Kernel) -> frozenset[str]:
    """Return the objects whose elements may carry a tag: those with a `Tag`, and all objects that their data reaches.
    """
    found = {stmt.obj for stmt in walk(kernel.body) if isinstance(stmt, Tag)}
    flows = [flow for stmt in walk(kernel.body) for flow in _flows(stmt)]
    before = -1
    while len(found) != before:
        before = len(found)
        found |= {target for source, target, partner in flows if source in found and partner in found}
    return frozenset(found)


def _flows(stmt: Stmt) -> list[tuple[str, str, str]]:
    """Return (source, target, partner): tags reach the target if source and partner carry them (a product needs
    two)."""

    def reads(expr: Expr) -> list[str]:
        return [e.obj for e in elements(expr)]

    match stmt:
        case Copy(dst=dst, src=src):
            return [(src.obj, dst.obj, src.obj)]
        case Map(dst=dst, value=value) | Accumulate(dst=dst, value=value):
            return [(source, dst.obj, source) for source in reads(value)]
        case Mma(d=d, a=a, b=b):
            return [(a.obj, d.obj, b.obj)]
        case _:
            return []
