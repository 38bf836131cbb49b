"""Give every fragment and statement its register layout, and move data where two layouts disagree (`tile_moves`).

    map y[c0, c1] = f(x[c0, c1])            ->  sx[...] = x[...]  (layout of x); barrier
       (x is spread differently)                x1[...] = sx[...] (layout of y)
                                                map y[c0, c1] = f(x1[c0, c1])

A tile that is written once is moved once, right after the write (and after the tag that follows it). Other tiles are
moved before each use. A tile that is computed from coordinates and from numbers that all threads hold is computed again
instead, and one that is loaded at such a place from a tensor that the kernel only reads is loaded again. Inside loops a
second barrier keeps the scratch tile from being overwritten early.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from argus.ir.expr import Elem, coords
from argus.ir.instruction import WGMMA
from argus.ir.nodes import Access, Accumulate, Fragment, Kernel, Map, Mma, Scan, Stmt, Tag, ThreadCopy, Watch
from argus.ir.visit import map_accesses, numbered
from argus.layout import FragmentLayout
from argus.passes.context import Enclosing, rewrite_in_context
from argus.passes.fresh import Fresh, identity
from argus.passes.infer import Layouts, Work, accumulator, infer, operands, register_reads
from argus.passes.layouts import fills, holds, project, warp_holds
from argus.passes.moves import by_engine
from argus.passes.report import LoweringError, problem
from argus.passes.staged_stores import stage_store
from argus.passes.tile_moves import TileMoves, elsewhere


def assign_layouts(kernel: Kernel) -> Kernel:
    """Fill in `layout` of fragments, copies, maps and accumulations, and `scope` of maps."""
    state = infer(kernel)
    kernel = numbered(kernel)
    kernel = replace(
        kernel, fragments=tuple(replace(f, layout=f.layout or state.fragments[f.name]) for f in kernel.fragments)
    )
    state.kernel = kernel
    moves = TileMoves(state, Fresh(kernel))
    body = rewrite_in_context(kernel.body, _Filling(state, moves).change)
    if moves.problems:
        raise LoweringError(*moves.problems)

    def follow(stmt: Stmt, context: Enclosing) -> tuple[Stmt, ...] | None:
        extra = moves.after.get(stmt.id)
        return None if extra is None else (stmt, *extra)

    return moves.fresh.finish(rewrite_in_context(body, follow))


@dataclass
class _Filling:
    """One walk over the kernel that gives statements their layouts and has `moves` bring what they lack."""

    state: Layouts
    moves: TileMoves

    def change(self, stmt: Stmt, context: Enclosing) -> tuple[Stmt, ...] | None:
        before: list[Stmt] = []
        match stmt:
            case Accumulate() if by_engine(stmt):
                return None
            case ThreadCopy() | Map() | Accumulate():
                result = self._work(stmt, context, before)
            case Scan():
                result = self._scan(stmt, context, before)
            case Mma():
                result = (self._product(stmt, context, before),)
            case Watch(src=src):
                result = (replace(stmt, layout=self._layout(src.obj)),)
            case Tag():
                self.moves.note_tag(stmt)
                return None
            case _:
                return None
        result = self.moves.note_written(result, context)
        return (*before, *result)

    # ---------------------------------------------------------------- statements

    def _work(self, stmt: ThreadCopy | Map | Accumulate, context: Enclosing, before: list[Stmt]) -> tuple[Stmt, ...]:
        domain = self.state.domains[stmt.id]
        if isinstance(stmt, ThreadCopy):
            staged = stage_store(self.moves, stmt, domain, context, before)
            if staged is not None:
                return (staged,)
        scope = "thread"
        renamed: dict[Access, str] = {}
        for access in register_reads(stmt):
            fragment = self.state.fragment(access.obj)
            if fragment is None or holds(self._layout(fragment.name), domain, access.index):
                continue
            if self._shuffles(stmt, fragment, domain):
                scope = "warp"
                continue
            layout = project(domain, access.index, fragment.shape)
            if layout is None and isinstance(stmt, Map) and isinstance(stmt.value, Elem) and stmt.scope is None:
                stmt = self.moves.fetched(stmt, fragment, stmt.value, domain, context, before)
                continue
            new = self.moves.moved_copy(fragment, layout, stmt.span, context, before)
            if new is not None:
                renamed[access] = new
        if renamed:
            stmt = _reading(stmt, renamed)
        match stmt:
            case ThreadCopy() | Accumulate():
                stmt = replace(stmt, layout=domain)
            case Map():
                stmt = replace(stmt, layout=domain, scope=scope)
        return self._write(stmt, domain, context)

    def _shuffles(self, stmt: Work, fragment: Fragment, domain: FragmentLayout) -> bool:
        """Return True if `stmt` exchanges values between lanes of a warp: it reads one element at another coordinate.
        """
        if not isinstance(stmt, Map) or not isinstance(stmt.value, Elem):
            return False
        if project(domain, stmt.value.index, fragment.shape) is not None:
            return False
        return warp_holds(self._layout(fragment.name), domain, stmt.value.index, self.state.kernel.warp_size)

    def _scan(self, stmt: Scan, context: Enclosing, before: list[Stmt]) -> tuple[Stmt, ...]:
        """Return a scan of tiles that the threads of its domain hold and write. Other tiles are moved before and after
        the scan."""
        domain = self.state.domains[stmt.id]
        renamed: dict[str, str] = {}
        behind: list[Stmt] = []
        for operand in {t.operand.obj: t.operand for t in stmt.tiles}.values():
            fragment = self.state.fragment(operand.obj)
            if fragment is not None and not holds(self._layout(fragment.name), domain, operand.index):
                new = self.moves.moved_copy(fragment, domain, stmt.span, context, before)
                renamed[operand.obj] = new or operand.obj
        for result in (t.result for t in stmt.tiles):
            fragment = self.state.fragment(result.obj)
            if fragment is not None and not fills(self._layout(fragment.name), domain, result.index):
                made = self.moves.fresh.fragment(f"{fragment.name}_out", fragment.dtype, fragment.shape, domain)
                renamed[result.obj] = made
                behind += self.moves.through_shared(made, result.obj, self._layout(result.obj), stmt.span, context)
        done = map_accesses(stmt, lambda a: Access(renamed.get(a.obj, a.obj), a.index))
        assert isinstance(done, Scan)
        return (replace(done, layout=domain), *behind)

    def _write(
        self, stmt: ThreadCopy | Map | Accumulate, domain: FragmentLayout, context: Enclosing
    ) -> tuple[Stmt, ...]:
        """Return `stmt`, followed by a move if its destination has another layout."""
        fragment = self.state.fragment(stmt.dst.obj)
        if fragment is None or fills(self._layout(fragment.name), domain, stmt.dst.index):
            return (stmt,)
        layout = project(domain, stmt.dst.index, fragment.shape)
        if layout is None:
            self.moves.problems.append(elsewhere(fragment.name, stmt.span))
            return (stmt,)
        name = self.moves.fresh.fragment(f"{fragment.name}_out", fragment.dtype, fragment.shape, layout)
        index = coords(len(fragment.shape))
        result: list[Stmt] = []
        if isinstance(stmt, Accumulate):
            zero = identity(stmt.op, fragment.dtype)
            result.append(Map(Access(name, index), zero, fragment.shape, layout, "thread", span=stmt.span))
        elif isinstance(stmt, ThreadCopy) and stmt.mask is not None and stmt.other is None:
            self.moves.problems.append(elsewhere(fragment.name, stmt.span))
        result.append(replace(stmt, dst=Access(name, stmt.dst.index)))
        target = self._layout(fragment.name)
        if not isinstance(stmt, Accumulate):
            return (*result, *self.moves.through_shared(name, fragment.name, target, stmt.span, context))
        back = self.moves.fresh.fragment(f"{fragment.name}_back", fragment.dtype, fragment.shape, target)
        result += self.moves.through_shared(name, back, target, stmt.span, context)
        value = Elem(back, index, fragment.dtype)
        result.append(
            Accumulate(Access(fragment.name, index), value, stmt.op, fragment.shape, None, target, span=stmt.span)
        )
        return tuple(result)

    def _product(self, stmt: Mma, context: Enclosing, before: list[Stmt]) -> Mma:
        needed = accumulator(stmt)
        if self._layout(stmt.d.obj).simplify() != needed.simplify():
            has = f"accumulator {stmt.d.obj} has the layout {self._layout(stmt.d.obj)}"
            what = f"{has}, but {stmt.instr} needs {needed}"
            help_text = "leave its layout open, or take it from tiled_mma"
            self.moves.problems.append(problem("matrix-layout", what, stmt.span, help_text))
        names: list[Access] = []
        if stmt.instr in WGMMA:
            return stmt
        for access, domain, index in operands(stmt):
            fragment = self.state.fragment(access.obj)
            if fragment is not None and not holds(self._layout(fragment.name), domain, index):
                layout = project(domain, index, fragment.shape)
                new = self.moves.moved_copy(fragment, layout, stmt.span, context, before)
                access = replace(access, obj=new or access.obj)
            names.append(access)
        return replace(stmt, a=names[0], b=names[1])

    def _layout(self, name: str) -> FragmentLayout:
        return self.state.fragments[name]


def _reading(stmt: ThreadCopy | Map | Accumulate, renamed: dict[Access, str]) -> ThreadCopy | Map | Accumulate:
    """Return `stmt` with some of its register reads directed to other tiles. The written tile stays the same."""
    result = map_accesses(stmt, lambda a: Access(renamed[a], a.index) if a in renamed else a)
    assert isinstance(result, ThreadCopy | Map | Accumulate)
    return replace(result, dst=Access(stmt.dst.obj, result.dst.index))
