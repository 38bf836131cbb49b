"""Check the register budget: the registers per thread of tiles that live at the same time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from argus.diagnostic import Note
from argus.ir.expr import Expr, coords, elements
from argus.ir.nodes import Access, Copy, For, If, Kernel, Map, Programs, Roles, Stmt
from argus.passes.fresh import touches
from argus.passes.moves import target_of
from argus.passes.report import LoweringError, problem
from argus.source import Span

_REGISTER = 4  # bytes of a register


def check_registers(kernel: Kernel) -> Kernel:
    """Return the kernel unchanged. Raises `LoweringError` if its register tiles cannot fit into the registers of a
    thread.

    A tile lives from the write of the whole tile until just before its last read. A result may therefore take the
    registers of an operand that is read for the last time.
    """
    for stmt in kernel.body:
        if isinstance(stmt, Roles):
            for role in stmt.roles:
                _check(replace(kernel, body=role.body), role.registers, f"role {role.name}")
            return kernel
    _check(kernel, None, None)
    return kernel


def _check(kernel: Kernel, budget: int | None, role: str | None) -> None:
    target = target_of(kernel)
    most = min(target.registers, budget or target.registers)
    sizes = {f.name: f.layout.num_values * f.dtype.bytes for f in kernel.fragments if f.layout is not None}
    pressure = _Pressure(sizes, {f.name: f.shape for f in kernel.fragments})
    pressure.block(kernel.body, frozenset())
    holding = pressure.worst
    worst = sum(sizes[n] for n in holding)
    if worst > most * _REGISTER:
        largest = sorted(holding, key=lambda n: -sizes[n])[:4]
        raise LoweringError(
            problem(
                "register-budget",
                f"tiles that live together take {-(-worst // _REGISTER)} registers a thread, "
                f"and {role or target.name} has {most}",
                kernel.span,
                "use smaller tiles, or more warps to share them; threads share extents that are powers of two best",
                tuple(Note(f"{n}: {-(-sizes[n] // _REGISTER)} registers", _span(kernel, n)) for n in largest),
            )
        )


class _Pressure:
    """Goes backwards through a program. `worst` holds the tiles that live at the point where live tiles take the most
    bytes."""

    def __init__(self, sizes: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.sizes, self.shapes = sizes, shapes
        self.worst: frozenset[str] = frozenset()

    def block(self, body: tuple[Stmt, ...], after: frozenset[str]) -> frozenset[str]:
        """Return the tiles whose values are needed before `body`, given the tiles whose values are needed after it."""
        for stmt in reversed(body):
            after = self._note(self._before(stmt, self._note(after)))
        return after

    def _before(self, stmt: Stmt, after: frozenset[str]) -> frozenset[str]:
        match stmt:
            case For(body=inner) | Programs(body=inner):
                while (more := after | self.block(inner, after)) != after:
                    after = more
                return after
            case If(then=then, orelse=orelse):
                return self.block(then, after) | self.block(orelse, after)
            case Map(dst=dst, shape=shape) if self._fills(dst, shape) and dst.obj not in _read(stmt):
                return (after - {dst.obj}) | self._known(_read(stmt))
            case Copy(dst=dst, shape=shape, mask=mask, other=other) if self._fills(dst, shape) and (
                mask is None or other is not None
            ):
                return (after - {dst.obj}) | self._known(_read(stmt))
            case _:
                return after | self._known(touches(stmt))

    def _fills(self, dst: Access, shape: tuple[int, ...]) -> bool:
        """Return True if a write replaces all that a tile held before."""
        return self.shapes.get(dst.obj) == shape and dst.index == coords(len(shape))

    def _known(self, found: set[str]) -> frozenset[str]:
        return frozenset(found & self.sizes.keys())

    def _note(self, living: frozenset[str]) -> frozenset[str]:
        if self._bytes(living) > self._bytes(self.worst):
            self.worst = living
        return living

    def _bytes(self, living: frozenset[str]) -> int:
        return sum(self.sizes[n] for n in living)


def _read(stmt: Map | Copy) -> set[str]:
    """Return the tiles that a statement reads."""
    exprs: list[Expr] = [*stmt.dst.index]
    if isinstance(stmt, Map):
        return {e.obj for x in (*exprs, stmt.value) for e in elements(x)}
    exprs += [*stmt.src.index, *([] if stmt.mask is None else [stmt.mask])]
    return {stmt.src.obj} | {e.obj for x in exprs for e in elements(x)}


def _span(kernel: Kernel, name: str) -> Span:
    return next(f.span for f in kernel.fragments if f.name == name)
