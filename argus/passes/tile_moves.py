"""Move the elements of a register tile to the threads that need them: through shared memory, or by making them again.

map y[c0, c1] = f(x[c0, c1])            ->  sx[...] = x[...]  (layout of x); barrier
   (x is spread differently)                x1[...] = sx[...] (layout of y)
                                            map y[c0, c1] = f(x1[c0, c1])
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count, pairwise

from argus.diagnostic import Diagnostic
from argus.ir.expr import Elem, Expr, coords, rewrite, substitute_coords
from argus.ir.nodes import Access, Accumulate, Barrier, Copy, Fragment, Map, Mma, Scan, Stmt, Tag, Tensor, ThreadCopy
from argus.ir.statement import UNNUMBERED
from argus.ir.visit import map_exprs, rewrite_blocks, walk
from argus.layout import FragmentLayout
from argus.passes.context import Enclosing, rewrite_in_context
from argus.passes.fresh import Fresh
from argus.passes.infer import Layouts, register_reads
from argus.passes.layouts import fills, holds, lift
from argus.passes.moves import target_of
from argus.passes.report import problem
from argus.passes.scratch import scratch_layout
from argus.source import Span


@dataclass
class TileMoves:
    """The moves of one walk over a kernel. `after` holds, by `id`, the moves that follow a statement."""

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
            for name in written_tiles(stmt):
                self.counts[name] = self.counts.get(name, 0) + 1
        self.following = _following(self.state.kernel.body)
        self.ahead: dict[str, tuple[Stmt, Enclosing]] = {}
        rewrite_in_context(self.state.kernel.body, self._note)

    def _note(self, stmt: Stmt, context: Enclosing) -> None:
        """Note who writes a tile, for uses in inner blocks: the walk comes to these first."""
        if isinstance(stmt, ThreadCopy | Map) and stmt.id in self.state.domains:
            for name in written_tiles(stmt):
                self.ahead[name] = (replace(stmt, layout=self.state.domains[stmt.id]), context)

    def note_tag(self, tag: Tag) -> None:
        """Note a tag that directly follows a write of a tile that has not been moved yet: moves follow the tag."""
        if tag.id in self.following and not any(moved == tag.obj for moved, _ in self.moved):
            self.tagged[tag.obj] = tag

    def note_written(self, stmts: tuple[Stmt, ...], context: Enclosing) -> tuple[Stmt, ...]:
        """Return `stmts`, numbered, after noting which tiles they write."""
        stmts = tuple(replace(s, id=next(self.made)) if s.id == UNNUMBERED else s for s in stmts)
        for stmt in stmts:
            for name in written_tiles(stmt):
                self.writers.setdefault(name, []).append((stmt, context))
        return stmts

    def layout(self, name: str) -> FragmentLayout:
        return self.state.fragments[name]

    def moved_copy(
        self, source: Fragment, layout: FragmentLayout | None, span: Span, context: Enclosing, before: list[Stmt]
    ) -> str | None:
        """Return a copy of `source` in `layout`, made after its only write or before this use."""
        if layout is None:
            self.problems.append(elsewhere(source.name, span))
            return None
        once = self._writer(source)
        if once is not None and (source.name, layout) in self.moved:
            return self.moved[source.name, layout]
        name = self.fresh.fragment(f"{source.name}_moved", source.dtype, source.shape, layout)
        self.state.fragments[name] = layout
        if once is None:
            before += self.through_shared(source.name, name, layout, span, context)
            return name
        self.moved[source.name, layout] = name
        writer, where = once
        again = self._again(writer, name, layout)
        tag = self.tagged.get(source.name)
        same = () if tag is None else (replace(tag, obj=name),)
        moves_it = (again, *same) if again is not None else self.through_shared(source.name, name, layout, span, where)
        self.after.setdefault((writer if tag is None else tag).id, []).extend(moves_it)
        return name

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
        return (stmt, context) if fills(self.layout(source.name), stmt.layout, stmt.dst.index) else None

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
        return once and holds(self.layout(access.obj), domain, access.index)

    def _spelled(self, elem: Elem) -> Expr | None:
        """Return the integer or condition that a register holds, if one map alone computes its tile; else None."""
        stmt, _ = self.ahead.get(elem.obj, (None, None))
        if not isinstance(stmt, Map) or self.counts.get(elem.obj) != 1 or elem.dtype.is_float:
            return None
        if stmt.dst.index != coords(len(stmt.shape)) or not stmt.shape:
            return None
        value = rewrite(stmt.value, lambda e: self._spelled(e) if isinstance(e, Elem) else None)
        return substitute_coords(value, elem.index)

    def through_shared(
        self, source: str, target: str, layout: FragmentLayout, span: Span, context: Enclosing
    ) -> tuple[Stmt, ...]:
        """Return the statements that move tile `source` to tile `target`, which has `layout`, through shared memory."""
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

    def fetched(
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


def written_tiles(stmt: Stmt) -> tuple[str, ...]:
    """Return the names of the objects that `stmt` writes."""
    match stmt:
        case Copy(dst=dst) | Map(dst=dst) | Accumulate(dst=dst) | Mma(d=dst):
            return (dst.obj,)
        case Scan(tiles=tiles):
            return tuple(tile.result.obj for tile in tiles)
        case _:
            return ()


def _following(body: tuple[Stmt, ...]) -> set[int]:
    """Return, by `id`, the tags that directly follow a write of the tagged tile."""
    found: set[int] = set()

    def note(block: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        for before, stmt in pairwise(block):
            if isinstance(stmt, Tag) and stmt.obj in written_tiles(before):
                found.add(stmt.id)
        return block

    rewrite_blocks(body, note)
    return found


def elsewhere(name: str, span: Span) -> Diagnostic:
    """Return the finding that no move can give a statement at `span` the elements of tile `name` that it needs."""
    return problem(
        "register-elsewhere",
        f"elements of tile {name} are needed by threads that do not hold them, at computed coordinates",
        span,
        "store the tile to shared memory and load it from there, or give it a layout that keeps the exchange in a warp",
    )
