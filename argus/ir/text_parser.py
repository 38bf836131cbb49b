"""Reading the text form of the IR (`argus/ir/text.lark`) back into nodes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import cast

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedInput

from argus.diagnostic import Diagnostic, SourceError
from argus.ir.expr import Const, Expr
from argus.ir.nodes import (
    Access,
    Accumulate,
    Among,
    AssertTags,
    Assume,
    Barrier,
    BarrierArrive,
    BarrierSync,
    BulkCommit,
    BulkWait,
    CommitGroup,
    Copy,
    Counter,
    For,
    Fragment,
    If,
    InRange,
    Kernel,
    Map,
    Mbarrier,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierFence,
    MbarrierInit,
    MbarrierWait,
    Mma,
    MmaCommit,
    MmaFence,
    MmaWait,
    Precondition,
    Programs,
    ProxyFence,
    Requires,
    Role,
    Roles,
    Scalar,
    SchedGroup,
    Shared,
    Signal,
    Spec,
    SpecTerm,
    Stage,
    Stmt,
    Tag,
    TagCondition,
    TagEqual,
    TagTerm,
    TagTuple,
    Tensor,
    WaitCounts,
    WaitGroup,
    WaveBarrier,
    WavePriority,
)
from argus.ir.text_printer import EMPTY_SCOPE, Scope, scope_of
from argus.ir.text_terms import (
    Node,
    dtype_of,
    elem_of,
    expr_of,
    exprs_of,
    int_of,
    literal_of,
    name_of,
    shape_of,
    string_of,
    term_of,
    tree_of,
)
from argus.layout import AnyLayout, FragmentLayout, LayoutError, parse, parse_fragment
from argus.source import SourceFile, Span

_CLAUSES = frozenset(
    {"mask", "other", "fragment_layout", "via", "vector", "signal", "scope", "warp_grid", "kind", "stages"}
    | {"producers", "where", "once"}
)
_DEEPEST = 200


@cache
def _grammar() -> Lark:
    text = files("argus.ir").joinpath("text.lark").read_text(encoding="utf-8")
    return Lark(text, parser="lalr", lexer="contextual", maybe_placeholders=True, propagate_positions=True)


def parse_kernel(text: str) -> Kernel:
    """The kernel that `text` describes. Raises `SourceError` (code `ir-syntax`) where it is none."""
    return _read(SourceFile("<ir>", text), None)


def read_kernel(source: SourceFile) -> Kernel:
    """The same of a file, where statements stand for errors to point at."""
    return _read(source, source)


def _read(source: SourceFile, shown: SourceFile | None) -> Kernel:
    text = source.text
    try:
        tree = _grammar().parse(text)
        _insist_on_shallow(tree, source)
        return _kernel(tree, shown)
    except UnexpectedInput as error:
        line, column = max(error.line, 1), max(error.column, 1)
        span = Span(source, line, column, line, column + 1)
        message = f"this is not the text of a kernel: unexpected {text[error.pos_in_stream or 0 :][:20]!r}"
        help = "`argus show` prints kernels in this form; one statement a line"
        raise SourceError(Diagnostic("ir-syntax", message, span, help=help)) from error
    except LayoutError as error:
        message = f"this is not the text of a kernel: {error}"
        raise SourceError(Diagnostic("ir-syntax", message, Span(source, 1, 1, 1, 2))) from error


def _insist_on_shallow(tree: Tree[Token], source: SourceFile) -> None:
    """What is nested deeper than any kernel would end in Python's own limit."""
    level: list[Tree[Token]] = [tree]
    for _ in range(_DEEPEST):
        level = [child for node in level for child in node.children if isinstance(child, Tree)]
        if not level:
            return
    line, column = level[0].meta.line, level[0].meta.column
    text = f"expressions or blocks are nested more than {_DEEPEST} deep"
    help = "compute parts of it in statements of their own"
    raise SourceError(Diagnostic("nesting-too-deep", text, Span(source, line, column, line, column + 1), help=help))


def _kernel(tree: Tree[Token], source: SourceFile | None) -> Kernel:
    parts = [child for child in tree.children if isinstance(child, Tree)]
    of = {kind: [p for p in parts if p.data == kind] for kind in {str(p.data) for p in parts}}

    def children(kind: str) -> list[list[Node]]:
        return [list(p.children) for p in of.get(kind, [])]

    params = tuple(_param(p) for p in parts if p.data in ("tensor", "scalar"))
    shared = tuple(_shared(c) for c in children("shared"))
    fragments = tuple(_fragment(c) for c in children("fragment"))
    scope = replace(scope_of(params, (*shared, *fragments)), source=source)
    declared = cast("list[Node | None]", children("grid")[0]) if "grid" in of else [None, None, None]
    grid, group, cluster, *policies = declared
    chosen = [str(p.data) for p in policies if isinstance(p, Tree)]
    target = children("target")
    warps = children("warps")[0]
    return Kernel(
        name=name_of(parts[0]),
        params=params,
        sizes=tuple(name_of(c[0]) for c in children("size")),
        constexprs=tuple((name_of(name), literal_of(value)) for name, value in children("constexpr")),
        grid=None if grid is None else exprs_of(grid, scope),
        num_warps=int_of(warps[0]),
        warp_size=int_of(warps[1]),
        preconditions=tuple(_precondition(p, scope) for p in parts if p.data in ("requires", "in_range", "assume")),
        shared=shared,
        fragments=fragments,
        body=_block(tree_of(of["body_line"][0].children[0]), scope),
        target=name_of(target[0][0]) if target else None,
        barriers=tuple(_mbarrier(c) for c in children("mbarrier")),
        group=1 if group is None else int_of(group),
        persistent="persistent" in chosen,
        schedule=next((s for s in chosen if s not in ("flat", "persistent")), "cooperative"),
        flat="flat" in chosen,
        cluster=1 if cluster is None else int_of(cluster),
    )


# ---------------------------------------------------------------------------- declarations


def _param(tree: Tree[Token]) -> Tensor | Scalar:
    match str(tree.data), list(tree.children):
        case "tensor", [name, dtype, shape, strides, alignment]:
            extents, steps = exprs_of(shape, EMPTY_SCOPE), exprs_of(strides, EMPTY_SCOPE)
            return Tensor(name_of(name), dtype_of(dtype), extents, steps, int_of(alignment))
        case _, [name, dtype, *_]:
            return Scalar(name_of(name), dtype_of(dtype))
        case _:
            raise AssertionError(tree)


def _shared(children: list[Node]) -> Shared:
    name, dtype, shape, layout, offset = cast("list[Node | None]", children)
    assert name is not None and dtype is not None and shape is not None
    parsed: AnyLayout | None = None if layout is None else parse(str(layout))
    at = None if offset is None else int_of(offset)
    return Shared(name_of(name), dtype_of(dtype), shape_of(shape), parsed, at)


def _mbarrier(children: list[Node]) -> Mbarrier:
    name, count, arrivals, offset = cast("list[Node | None]", children)
    assert name is not None and count is not None and arrivals is not None
    return Mbarrier(name_of(name), int_of(count), int_of(arrivals), None if offset is None else int_of(offset))


def _fragment(children: list[Node]) -> Fragment:
    name, dtype, shape, layout = cast("list[Node | None]", children)
    assert name is not None and dtype is not None and shape is not None
    return Fragment(name_of(name), dtype_of(dtype), shape_of(shape), _fragment_layout(layout))


def _fragment_layout(node: Node | None) -> FragmentLayout | None:
    return None if node is None else parse_fragment(str(node))


def _precondition(tree: Tree[Token], scope: Scope) -> Precondition:
    match str(tree.data), list(tree.children):
        case "requires", [cond]:
            return Requires(expr_of(cond, scope))
        case "in_range", [tensor, lo, hi]:
            return InRange(name_of(tensor), expr_of(lo, scope), expr_of(hi, scope))
        case "assume", [cond, reason]:
            return Assume(expr_of(cond, scope), string_of(reason))
        case _:
            raise AssertionError(tree)


# ---------------------------------------------------------------------------- statements


def _block(tree: Tree[Token], scope: Scope) -> tuple[Stmt, ...]:
    return tuple(_placed(_stmt(tree_of(child), scope), tree_of(child), scope) for child in tree.children)


def _placed(stmt: Stmt, tree: Tree[Token], scope: Scope) -> Stmt:
    """A statement with its place in the file: its first line."""
    if scope.source is None:
        return stmt
    line, column = tree.meta.line, tree.meta.column
    end = tree.meta.end_column if tree.meta.end_line == line else len(scope.source.line(line)) + 1
    return replace(stmt, span=Span(scope.source, line, column, line, end))


def _access(node: Node, scope: Scope) -> Access:
    name, index, block = tree_of(node).children
    return Access(name_of(name), exprs_of(index, scope), None if block is None else expr_of(block, scope))


def _stmt(tree: Tree[Token], scope: Scope) -> Stmt:
    kids = cast("list[Node]", list(tree.children))
    options = {str(k.data): k.children[0] for k in kids if isinstance(k, Tree) and k.data in _CLAUSES}

    def text(key: str) -> str | None:
        return name_of(options[key]) if key in options else None

    mask = expr_of(options["mask"], scope) if "mask" in options else None
    other = cast(Const, expr_of(options["other"], scope)) if "other" in options else None
    layout = _fragment_layout(options.get("fragment_layout"))
    match str(tree.data):
        case "copy":
            dst, src, vector = _access(kids[0], scope), _access(kids[2], scope), options.get("vector")
            width = 1 if vector is None else int_of(vector)
            signal = Signal(*_place(options["signal"], scope)) if "signal" in options else None
            among = next(iter(_groups(kids)), None)
            once = "once" in options
            return Copy(dst, src, shape_of(kids[3]), mask, other, layout, text("via"), width, signal, once, among)
        case "map":
            dst, value = _access(kids[0], scope), expr_of(kids[1], scope)
            return Map(dst, value, shape_of(kids[2]), layout, text("scope"))
        case "accumulate":
            dst, value, shape = _access(kids[0], scope), expr_of(kids[2], scope), shape_of(kids[3])
            return Accumulate(dst, value, str(kids[1]), shape, mask, layout, text("scope"), text("via"))
        case "mma":
            d, a, b = (_access(k, scope) for k in kids if isinstance(k, Tree) and k.data == "access")
            m, n, k = shape_of(next(k for k in kids if isinstance(k, Token) and k.type == "SHAPE_TEXT"))
            grid = shape_of(options["warp_grid"]) if "warp_grid" in options else None
            return Mma(d, a, b, (m, n, k), text("via"), None if grid is None else (grid[0], grid[1]))
        case "stage":
            return Stage(name_of(kids[0]), _access(kids[2], scope), shape_of(kids[3]), mask, other, "once" in options)
        case "barrier":
            return Barrier(scope=text("scope") or "block")
        case "commit":
            return CommitGroup()
        case "wait":
            return WaitGroup(int_of(kids[0]))
        case "mma_fence" | "mma_commit" | "mma_wait" | "proxy_fence":
            return _mma_order(str(tree.data), kids)
        case "barrier_sync":
            return BarrierSync(int_of(kids[0]), int_of(kids[1]))
        case "barrier_arrive":
            return BarrierArrive(int_of(kids[0]), int_of(kids[1]))
        case "mbarrier_init":
            return MbarrierInit(name_of(kids[0]))
        case "mbarrier_fence":
            return MbarrierFence()
        case "mbarrier_expect" | "mbarrier_arrive" | "mbarrier_wait":
            return _mbarrier_step(str(tree.data), kids, text("scope"), scope)
        case "wait_counts" | "wave_barrier" | "wave_priority" | "sched_group":
            return _wave_step(str(tree.data), kids)
        case "bulk_commit" | "bulk_wait" | "bulk_wait_read":
            read = tree.data == "bulk_wait_read"
            return BulkCommit() if tree.data == "bulk_commit" else BulkWait(int_of(kids[0]), read)
        case "programs":
            turn, turns = (0 if kids[0] is None else int_of(kids[0])), (1 if kids[1] is None else int_of(kids[1]))
            return Programs(_block(tree_of(kids[2]), scope), turns, turn)
        case "roles":
            return Roles(tuple(_role(tree_of(k), scope) for k in kids))
        case "for":
            return _for(kids, options, scope)
        case "if":
            orelse = kids[2] if len(kids) > 2 else None
            then = _block(tree_of(kids[1]), scope)
            return If(expr_of(kids[0], scope), then, () if orelse is None else _block(tree_of(orelse), scope))
        case _:
            plain = [k for k in kids if not (isinstance(k, Tree) and k.data == "where")]
            where = expr_of(options["where"], scope) if "where" in options else None
            return _annotation(tree, plain, where, scope)


def _for(kids: list[Node], options: dict[str, Node], scope: Scope) -> For:
    var, start, stop = name_of(kids[0]), expr_of(kids[1], scope), expr_of(kids[2], scope)
    counting = next((k for k in kids if isinstance(k, Tree) and k.data == "counter"), None)
    counter = None if counting is None else Counter(name_of(counting.children[0]), int_of(counting.children[1]))
    body = _block(tree_of(kids[-1]), scope.enter(var) if counter is None else scope.enter(var, counter.name))
    kind = name_of(options["kind"]) if "kind" in options else "dynamic"
    stages = int_of(options["stages"]) if "stages" in options else 1
    producers = int_of(options["producers"]) if "producers" in options else 0
    return For(var, start, stop, int_of(kids[3]), body, kind, stages, producers, counter)


def _mma_order(kind: str, kids: list[Node]) -> Stmt:
    """How asynchronous products are ordered."""
    match kind:
        case "mma_fence":
            return MmaFence()
        case "mma_commit":
            return MmaCommit()
        case "mma_wait":
            return MmaWait(int_of(kids[0]))
        case _:
            return ProxyFence()


def _wave_step(kind: str, kids: list[Node]) -> Stmt:
    match kind:
        case "wait_counts":
            counts = {str(tree_of(k).data): int_of(tree_of(k).children[0]) for k in kids if k is not None}
            return WaitCounts(counts.get("vm"), counts.get("lgkm"))
        case "wave_barrier":
            return WaveBarrier()
        case "wave_priority":
            return WavePriority(int_of(kids[0]))
        case _:
            mask, size, sync = (int_of(k) for k in kids)
            return SchedGroup(mask, size, sync)


def _groups(kids: list[Node]) -> tuple[Among, ...]:
    groups = (k.children for k in kids if isinstance(k, Tree) and k.data == "among")
    return tuple(Among(int_of(count), int_of(stride)) for count, stride in groups)


def _mbarrier_step(kind: str, kids: list[Node], where: str | None, scope: Scope) -> Stmt:
    barrier, index = _place(kids[0], scope)
    match kind:
        case "mbarrier_expect":
            return MbarrierExpect(barrier, index, int_of(kids[1]))
        case "mbarrier_arrive":
            return MbarrierArrive(barrier, index, where or "block", _groups(kids))
        case _:
            return MbarrierWait(barrier, index, expr_of(kids[1], scope))


def _place(node: Node, scope: Scope) -> tuple[str, Expr]:
    name, index = tree_of(node).children
    return name_of(name), expr_of(index, scope)


def _role(tree: Tree[Token], scope: Scope) -> Role:
    name, warps, first, registers, body = cast("list[Node | None]", list(tree.children))
    assert name is not None and warps is not None and first is not None and body is not None
    budget = None if registers is None else int_of(registers)
    return Role(name_of(name), int_of(first), int_of(warps), budget, _block(tree_of(body), scope))


def _annotation(tree: Tree[Token], kids: list[Node], where: Expr | None, scope: Scope) -> Stmt:
    """The statements that cost nothing."""
    match str(tree.data):
        case "tag":
            fields = tuple(_field(tree_of(k), scope) for k in kids[2:] if k is not None)
            return Tag(name_of(kids[0]), exprs_of(kids[1], scope), fields)
        case "assert":
            at = next(i for i, k in enumerate(kids) if isinstance(k, Token) and k.type == "SHAPE_TEXT")
            names = tuple(name_of(k) for k in kids[:at] if k is not None)
            conditions = tuple(_condition(tree_of(k), scope) for k in kids[at + 1 :] if k is not None)
            return AssertTags(shape_of(kids[at]), names, conditions, where)
        case "spec":
            names = tuple(name_of(k) for k in kids[1:-1] if k is not None)
            return Spec(name_of(kids[0]), names, cast(SpecTerm, term_of(kids[-1], scope)))
        case _:
            raise AssertionError(tree)


def _field(tree: Tree[Token], scope: Scope) -> tuple[str, TagTerm]:
    name, term = tree.children
    return name_of(name), cast(TagTerm, term_of(term, scope))


def _condition(tree: Tree[Token], scope: Scope) -> TagCondition:
    match str(tree.data), list(tree.children):
        case "tag_equal", [left, _, right]:
            return TagEqual(cast(TagTerm, term_of(left, scope)), cast(TagTerm, term_of(right, scope)))
        case _, [elem, terms]:
            listed = tuple(cast(TagTerm, term_of(t, scope)) for t in tree_of(terms).children)
            return TagTuple(elem_of(tree_of(elem), scope), listed)
        case _:
            raise AssertionError(tree)
