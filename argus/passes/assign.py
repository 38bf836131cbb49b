"""Give every fragment and statement its register layout, and move data where two layouts disagree.

    map y[c0, c1] = f(x[c0, c1])            ->  sx[...] = x[...]  (layout of x); barrier
       (x is spread differently)                x1[...] = sx[...] (layout of y)
                                                map y[c0, c1] = f(x1[c0, c1])

A tile that is written once is moved once, right after the write (and after the tag that follows it). Other tiles are
moved before each use. A tile that is computed from coordinates and from numbers that all threads hold is computed again
instead, and one that is loaded at such a place from a tensor that the kernel only reads is loaded again. Inside loops a
second barrier keeps the scratch tile from being overwritten early.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from math import prod

from argus.diagnostic import Diagnostic
from argus.ir.expr import Elem, Expr, coords, elements, rewrite, substitute_coords
from argus.ir.instruction import WGMMA
from argus.ir.nodes import (
    Access,
    Accumulate,
    Barrier,
    Copy,
    Fragment,
    Kernel,
    Map,
    Mma,
    Scan,
    Stmt,
    Tag,
    Tensor,
    ThreadCopy,
    Watch,
)
from argus.ir.statement import UNNUMBERED
from argus.ir.visit import map_accesses, map_exprs, numbered, rewrite_blocks, walk
from argus.layout import FragmentLayout
from argus.passes.allocate import tile_bytes, tile_lives
from argus.passes.context import Enclosing, rewrite_in_context
from argus.passes.fresh import Fresh, identity
from argus.passes.infer import Layouts, Work, accumulator, infer, memory_domain, operands, register_reads
from argus.passes.layouts import fills, holds, lift, project, warp_holds
from argus.passes.moves import by_engine, contiguous_axis, target_of
from argus.passes.report import LoweringError, problem
from argus.passes.scratch import scratch_layout
from argus.source import Span


def assign_layouts(kernel: Kernel) -> Kernel:
    """Fill in `layout` of fragments, copies, maps and accumulations, and `scope` of maps."""
    state = infer(kernel)
    kernel = numbered(kernel)
    kernel = replace(
        kernel, fragments=tuple(replace(f, layout=f.layout or state.fragments[f.name]) for f in kernel.fragments)
    )
    state.kernel = kernel
    filling = _Filling(state, Fresh(kernel))
    body = rewrite_in_context(kernel.body, filling.change)
    if filling.problems:
        raise LoweringError(*filling.problems)

    def follow(stmt: Stmt, context: Enclosing) -> tuple[Stmt, ...] | None:
        extra = filling.after.get(stmt.id)
        return None if extra is None else (stmt, *extra)

    return filling.fresh.finish(rewrite_in_context(body, follow))


@dataclass
class _Filling:
    """The state of one walk over the kernel. `after` holds, by `id`, the moves that follow a statement."""

    state: Layouts
    fresh: Fresh
    problems: list[Diagnostic] = field(default_factory=list)
    moved: dict[tuple[str, FragmentLayout], str] = field(default_factory=dict)
    writers: dict[str, list[tuple[Stmt, Enclosing]]] = field(default_factory=dict)
    after: dict[int, list[Stmt]] = field(default_factory=dict)
    tagged: dict[str, Tag] = field(default_factory=dict)
    """For each tile: the tag that directly follows a write of the tile, once the walk has passed it."""

    def __post_init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.made = count(1 + max((s.id for s in walk(self.state.kernel.body)), default=0))
        for stmt in walk(self.state.kernel.body):
            for name in _written(stmt):
                self.counts[name] = self.counts.get(name, 0) + 1
        self.following = _following(self.state.kernel.body)
        self.ahead: dict[str, tuple[Stmt, Enclosing]] = {}
        rewrite_in_context(self.state.kernel.body, self._note)

    def _note(self, stmt: Stmt, context: Enclosing) -> None:
        """Note who writes a tile, for uses in inner blocks: the walk comes to these first."""
        if isinstance(stmt, ThreadCopy | Map) and stmt.id in self.state.domains:
            for name in _written(stmt):
                self.ahead[name] = (replace(stmt, layout=self.state.domains[stmt.id]), context)

    def _writer(self, source: Fragment) -> tuple[Stmt, Enclosing] | None:
        """Return the only statement that writes a tile, with its layout, if that writes the tile itself; or None."""
        writers = self.writers.get(source.name, [])
        if self.counts.get(source.name) != 1 or len(writers) > 1:
            return None
        if writers:
            return writers[0]
        stmt, context = self.ahead.get(source.name, (None, None))
        if context is None or not isinstance(stmt, ThreadCopy | Map) or stmt.layout is None:
            return None
        return (stmt, context) if fills(self._layout(source.name), stmt.layout, stmt.dst.index) else None

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
            case Tag(obj=name) if stmt.id in self.following and not any(moved == name for moved, _ in self.moved):
                self.tagged[name] = stmt
                return None
            case _:
                return None
        result = tuple(replace(s, id=next(self.made)) if s.id == UNNUMBERED else s for s in result)
        for done in result:
            for name in _written(done):
                self.writers.setdefault(name, []).append((done, context))
        return (*before, *result)

    # ---------------------------------------------------------------- statements

    def _work(self, stmt: ThreadCopy | Map | Accumulate, context: Enclosing, before: list[Stmt]) -> tuple[Stmt, ...]:
        domain = self.state.domains[stmt.id]
        if isinstance(stmt, ThreadCopy):
            staged = self._stage_store(stmt, domain, context, before)
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
                stmt = self._fetched(stmt, fragment, stmt.value, domain, context, before)
                continue
            new = self._moved(fragment, layout, stmt.span, context, before)
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

    def _fetched(
        self, stmt: Map, source: Fragment, value: Elem, domain: FragmentLayout, context: Enclosing, before: list[Stmt]
    ) -> ThreadCopy:
        """Return a map that reads elements of other warps as a copy from shared memory."""
        self._insist_on_all_threads(source.name, stmt.span, context)
        assert source.layout is not None
        span, whole = stmt.span, coords(len(source.shape))
        target = target_of(self.state.kernel)
        place = scratch_layout(source.shape, source.dtype.bytes, source.layout, source.layout, target)
        scratch = self.fresh.tile(f"{source.name}_scratch", source.dtype, source.shape, place)
        to, own = Access(scratch, whole), Access(source.name, whole)
        before += () if context.meets else (Barrier(span=span),)
        before += (ThreadCopy(to, own, source.shape, layout=source.layout, span=span), Barrier(span=span))
        return ThreadCopy(stmt.dst, Access(scratch, value.index), stmt.shape, layout=domain, span=span, id=stmt.id)

    def _insist_on_all_threads(self, name: str, span: Span, context: Enclosing) -> None:
        if not context.divergent:
            return
        what = f"tile {name} must change its layout here, which needs all threads of the block"
        help = "use it before the branch, or give it a layout"
        self.problems.append(problem("barrier-in-divergent-branch", what, span, help))

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
                renamed[operand.obj] = self._moved(fragment, domain, stmt.span, context, before) or operand.obj
        for result in (t.result for t in stmt.tiles):
            fragment = self.state.fragment(result.obj)
            if fragment is not None and not fills(self._layout(fragment.name), domain, result.index):
                made = self.fresh.fragment(f"{fragment.name}_out", fragment.dtype, fragment.shape, domain)
                renamed[result.obj] = made
                behind += self._through_shared(made, result.obj, self._layout(result.obj), stmt.span, context)
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
            self.problems.append(_elsewhere(fragment.name, stmt.span))
            return (stmt,)
        name = self.fresh.fragment(f"{fragment.name}_out", fragment.dtype, fragment.shape, layout)
        index = coords(len(fragment.shape))
        result: list[Stmt] = []
        if isinstance(stmt, Accumulate):
            zero = identity(stmt.op, fragment.dtype)
            result.append(Map(Access(name, index), zero, fragment.shape, layout, "thread", span=stmt.span))
        elif isinstance(stmt, ThreadCopy) and stmt.mask is not None and stmt.other is None:
            self.problems.append(_elsewhere(fragment.name, stmt.span))
        result.append(replace(stmt, dst=Access(name, stmt.dst.index)))
        target = self._layout(fragment.name)
        if not isinstance(stmt, Accumulate):
            return (*result, *self._through_shared(name, fragment.name, target, stmt.span, context))
        back = self.fresh.fragment(f"{fragment.name}_back", fragment.dtype, fragment.shape, target)
        result += self._through_shared(name, back, target, stmt.span, context)
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
            self.problems.append(problem("matrix-layout", what, stmt.span, help_text))
        names: list[Access] = []
        if stmt.instr in WGMMA:
            return stmt
        for access, domain, index in operands(stmt):
            fragment = self.state.fragment(access.obj)
            if fragment is not None and not holds(self._layout(fragment.name), domain, index):
                new = self._moved(fragment, project(domain, index, fragment.shape), stmt.span, context, before)
                access = replace(access, obj=new or access.obj)
            names.append(access)
        return replace(stmt, a=names[0], b=names[1])

    def _layout(self, name: str) -> FragmentLayout:
        return self.state.fragments[name]

    # ---------------------------------------------------------------- moves

    def _moved(
        self, source: Fragment, layout: FragmentLayout | None, span: Span, context: Enclosing, before: list[Stmt]
    ) -> str | None:
        """Return a copy of `source` in `layout`, made after its only write or before this use."""
        if layout is None:
            self.problems.append(_elsewhere(source.name, span))
            return None
        once = self._writer(source)
        if once is not None and (source.name, layout) in self.moved:
            return self.moved[source.name, layout]
        name = self.fresh.fragment(f"{source.name}_moved", source.dtype, source.shape, layout)
        self.state.fragments[name] = layout
        if once is None:
            before += self._through_shared(source.name, name, layout, span, context)
            return name
        self.moved[source.name, layout] = name
        writer, where = once
        again = self._again(writer, name, layout)
        tag = self.tagged.get(source.name)
        same = () if tag is None else (replace(tag, obj=name),)
        moves_it = (again, *same) if again is not None else self._through_shared(source.name, name, layout, span, where)
        self.after.setdefault((writer if tag is None else tag).id, []).extend(moves_it)
        return name

    def _again(self, writer: Stmt, name: str, layout: FragmentLayout) -> Map | ThreadCopy | None:
        """Return the statement that made a tile, rewritten to make another tile of `layout`, if threads can do so from
        what they hold; else None."""
        if not (isinstance(writer, Map) or (isinstance(writer, ThreadCopy) and self._reads_alone(writer))):
            return None
        domain = lift(layout, writer.dst.index, writer.shape)
        again = map_exprs(writer, lambda e: self._spelled(e) if isinstance(e, Elem) else None)
        assert isinstance(again, Map | ThreadCopy)
        loaded = again.src.obj if isinstance(again, ThreadCopy) else None
        read = [access for access in register_reads(again) if access.obj != loaded]
        if domain is None or not all(self._held(access, domain) for access in read):
            return None
        return replace(again, dst=Access(name, writer.dst.index), layout=domain, id=next(self.made))

    def _reads_alone(self, stmt: ThreadCopy) -> bool:
        """Return True if the policy chooses the load, of a tensor that the kernel does not write."""
        source = self.state.kernel.object(stmt.src.obj)
        return isinstance(source, Tensor) and stmt.instr is None and stmt.src.obj not in self.counts

    def _held(self, access: Access, domain: FragmentLayout) -> bool:
        fragment = self.state.fragment(access.obj)
        once = fragment is not None and self.counts.get(access.obj) == 1
        return once and holds(self._layout(access.obj), domain, access.index)

    def _spelled(self, elem: Elem) -> Expr | None:
        """Return the integer or condition that a register holds, if one map alone computes its tile; else None."""
        stmt, _ = self.ahead.get(elem.obj, (None, None))
        if not isinstance(stmt, Map) or self.counts.get(elem.obj) != 1 or elem.dtype.is_float:
            return None
        if stmt.dst.index != coords(len(stmt.shape)) or not stmt.shape:
            return None
        value = rewrite(stmt.value, lambda e: self._spelled(e) if isinstance(e, Elem) else None)
        return substitute_coords(value, elem.index)

    def _through_shared(
        self, source: str, target: str, layout: FragmentLayout, span: Span, context: Enclosing
    ) -> tuple[Stmt, ...]:
        fragment = next(f for f in (*self.state.kernel.fragments, *self.fresh.fragments) if f.name == source)
        assert fragment.layout is not None
        self._insist_on_all_threads(source, span, context)
        target_machine = target_of(self.state.kernel)
        place = scratch_layout(fragment.shape, fragment.dtype.bytes, fragment.layout, layout, target_machine)
        scratch = self.fresh.tile(f"{source}_scratch", fragment.dtype, fragment.shape, place)
        index, shape = coords(len(fragment.shape)), fragment.shape
        again = () if context.meets else (Barrier(span=span),)
        return (
            *again,
            ThreadCopy(Access(scratch, index), Access(source, index), shape, layout=fragment.layout, span=span),
            Barrier(span=span),
            ThreadCopy(Access(target, index), Access(scratch, index), shape, layout=layout, span=span),
        )

    def _stage_store(
        self, stmt: ThreadCopy, domain: FragmentLayout, context: Enclosing, before: list[Stmt]
    ) -> ThreadCopy | None:
        """Return a store to global memory that passes through shared memory, if this makes its accesses wide and
        consecutive."""
        fragment, tensor = self.state.fragment(stmt.src.obj), self.state.kernel.object(stmt.dst.obj)
        if fragment is None or not isinstance(tensor, Tensor) or stmt.instr is not None or context.divergent:
            return None
        if len(stmt.shape) < 2 or any(True for e in (*stmt.dst.index, *_mask(stmt)) for _ in elements(e)):
            return None
        if lift(self._layout(fragment.name), stmt.src.index, stmt.shape) is None:
            return None
        wanted = memory_domain(self.state, stmt)
        axis = contiguous_axis(tensor, stmt.dst.index)
        enough = min(stmt.shape[axis] if axis is not None else 0, _SEGMENT // tensor.dtype.bytes)
        if axis is None or _run(domain, axis) >= min(enough, _run(wanted, axis)):
            return None
        scratch = prod(fragment.shape) * fragment.dtype.bytes
        kernel = self.state.kernel
        # If bulk copies fill tiles, narrow stores cost more than a buffer. A remark advises the author to give up a
        # buffer.
        if not kernel.barriers and self._shared_bytes(stmt) + scratch > target_of(kernel).shared_bytes:
            return None
        layout = project(wanted, stmt.src.index, fragment.shape)
        if layout is None:
            return None
        name = self.fresh.fragment(f"{fragment.name}_rows", fragment.dtype, fragment.shape, layout)
        self.state.fragments[name] = layout
        before += self._through_shared(fragment.name, name, layout, stmt.span, context)
        return replace(stmt, src=Access(name, stmt.src.index), layout=wanted)

    def _shared_bytes(self, stmt: ThreadCopy) -> int:
        """Return the bytes of the tiles with which a scratch tile for `stmt` cannot share memory."""
        kernel = self.state.kernel
        here = next(i for i, top in enumerate(kernel.body) if any(s.id == stmt.id for s in walk((top,))))
        lives = tile_lives(kernel)
        living = [s for s in kernel.shared if lives[s.name][0] <= here <= lives[s.name][1]]
        return sum(tile_bytes(s) for s in (*living, *self.fresh.shared))


_SEGMENT = 64  # in bytes: a store whose warps access fewer consecutive bytes is worth rearranging


def _run(layout: FragmentLayout, axis: int) -> int:
    """Return the number of consecutive elements along `axis` that adjacent threads access together."""
    run = layout.vector_width(axis)
    for mode in layout.threads:
        if mode.dim != axis or mode.stride != run:
            break
        run *= mode.extent
    return run


def _mask(stmt: ThreadCopy) -> tuple[Expr, ...]:
    return () if stmt.mask is None else (stmt.mask,)


def _written(stmt: Stmt) -> tuple[str, ...]:
    match stmt:
        case Copy(dst=dst) | Map(dst=dst) | Accumulate(dst=dst) | Mma(d=dst):
            return (dst.obj,)
        case Scan(tiles=tiles):
            return tuple(tile.result.obj for tile in tiles)
        case _:
            return ()


def _reading(stmt: ThreadCopy | Map | Accumulate, renamed: dict[Access, str]) -> ThreadCopy | Map | Accumulate:
    """Return `stmt` with some of its register reads directed to other tiles. The written tile stays the same."""
    result = map_accesses(stmt, lambda a: Access(renamed[a], a.index) if a in renamed else a)
    assert isinstance(result, ThreadCopy | Map | Accumulate)
    return replace(result, dst=Access(stmt.dst.obj, result.dst.index))


def _following(body: tuple[Stmt, ...]) -> set[int]:
    """Return, by `id`, the tags that directly follow a write of the tagged tile."""
    found: set[int] = set()

    def note(block: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        for before, stmt in pairwise(block):
            if isinstance(stmt, Tag) and stmt.obj in _written(before):
                found.add(stmt.id)
        return block

    rewrite_blocks(body, note)
    return found


def _elsewhere(name: str, span: Span) -> Diagnostic:
    return problem(
        "register-elsewhere",
        f"elements of tile {name} are needed by threads that do not hold them, at computed coordinates",
        span,
        "store the tile to shared memory and load it from there, or give it a layout that keeps the exchange in a warp",
    )
