"""Reading the text form of the IR (`argus/ir/text.lark`) back into nodes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import cast

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedInput

from argus.diagnostic import Diagnostic, SourceError
from argus.ir.expr import OPERATORS, Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, Thread
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
    DataValue,
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
    Once,
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
    SpecOp,
    SpecReduce,
    SpecSoftmax,
    SpecTerm,
    Stage,
    Stmt,
    Tag,
    TagCondition,
    TagEqual,
    TagField,
    TagTerm,
    TagTuple,
    Tensor,
    WaitCounts,
    WaitGroup,
    WaveBarrier,
    WavePriority,
)
from argus.ir.text_printer import EMPTY_SCOPE, Scope, inferred, scope_of
from argus.ir.types import DTYPES, DType, boolean, float32, int32
from argus.layout import AnyLayout, FragmentLayout, LayoutError, parse, parse_fragment
from argus.source import SourceFile, Span

Node = Tree[Token] | Token
Term = TagTerm | SpecTerm

_INFIX = {row.symbol: row.name for row in OPERATORS.values() if row.symbol and row.arity == 2}
_PREFIX = {row.symbol: row.name for row in OPERATORS.values() if row.symbol and row.arity == 1}
_CLAUSES = frozenset(
    {"mask", "other", "fragment_layout", "via", "vector", "signal", "scope", "warp_grid", "kind", "stages"}
    | {"producers", "where", "once"}
)
_COORD = re.compile(r"c\d+")
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
        name=_name(parts[0]),
        params=params,
        sizes=tuple(_name(c[0]) for c in children("size")),
        constexprs=tuple((_name(name), _literal(value)) for name, value in children("constexpr")),
        grid=None if grid is None else _exprs(grid, scope),
        num_warps=_int(warps[0]),
        warp_size=_int(warps[1]),
        preconditions=tuple(_precondition(p, scope) for p in parts if p.data in ("requires", "in_range", "assume")),
        shared=shared,
        fragments=fragments,
        body=_block(_tree(of["body_line"][0].children[0]), scope),
        target=_name(target[0][0]) if target else None,
        barriers=tuple(_mbarrier(c) for c in children("mbarrier")),
        group=1 if group is None else _int(group),
        persistent="persistent" in chosen,
        schedule=next((s for s in chosen if s not in ("flat", "persistent")), "cooperative"),
        flat="flat" in chosen,
        cluster=1 if cluster is None else _int(cluster),
    )


# ---------------------------------------------------------------------------- words


def _tree(node: Node) -> Tree[Token]:
    assert isinstance(node, Tree), node
    return node


def _int(node: Node) -> int:
    return int(cast(Token, node))


def _name(node: Node) -> str:
    text = str(node if isinstance(node, Token) else node.children[0])
    return text.strip("`")


def _dtype(node: Node) -> DType:
    dtype = DTYPES.get(str(node))
    if dtype is None:
        raise SourceError(Diagnostic("ir-syntax", f"`{node}` is not an element type"))
    return dtype


def _shape(node: Node) -> tuple[int, ...]:
    return () if node == "()" else tuple(int(extent) for extent in str(node).split("x"))


def _string(node: Node) -> str:
    return str(json.loads(str(node)))


def _literal(node: Node) -> object:
    tree = _tree(node)
    match str(tree.data):
        case "text":
            return _string(tree.children[0])
        case "word":
            word = str(tree.children[0])
            words: dict[str, object] = {"true": True, "false": False, "none": None}
            return words[word] if word in words else _dtype(tree.children[0])
        case "number":
            text = str(tree.children[0])
            return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
        case _:
            return tuple(_literal(child) for child in tree.children)


# ---------------------------------------------------------------------------- declarations


def _param(tree: Tree[Token]) -> Tensor | Scalar:
    match str(tree.data), list(tree.children):
        case "tensor", [name, dtype, shape, strides, alignment]:
            extents, steps = _exprs(shape, EMPTY_SCOPE), _exprs(strides, EMPTY_SCOPE)
            return Tensor(_name(name), _dtype(dtype), extents, steps, _int(alignment))
        case _, [name, dtype, *_]:
            return Scalar(_name(name), _dtype(dtype))
        case _:
            raise AssertionError(tree)


def _shared(children: list[Node]) -> Shared:
    name, dtype, shape, layout, offset = cast("list[Node | None]", children)
    assert name is not None and dtype is not None and shape is not None
    parsed: AnyLayout | None = None if layout is None else parse(str(layout))
    at = None if offset is None else _int(offset)
    return Shared(_name(name), _dtype(dtype), _shape(shape), parsed, at)


def _mbarrier(children: list[Node]) -> Mbarrier:
    name, count, arrivals, offset = cast("list[Node | None]", children)
    assert name is not None and count is not None and arrivals is not None
    return Mbarrier(_name(name), _int(count), _int(arrivals), None if offset is None else _int(offset))


def _fragment(children: list[Node]) -> Fragment:
    name, dtype, shape, layout = cast("list[Node | None]", children)
    assert name is not None and dtype is not None and shape is not None
    return Fragment(_name(name), _dtype(dtype), _shape(shape), _fragment_layout(layout))


def _fragment_layout(node: Node | None) -> FragmentLayout | None:
    return None if node is None else parse_fragment(str(node))


def _precondition(tree: Tree[Token], scope: Scope) -> Precondition:
    match str(tree.data), list(tree.children):
        case "requires", [cond]:
            return Requires(_expr(cond, scope))
        case "in_range", [tensor, lo, hi]:
            return InRange(_name(tensor), _expr(lo, scope), _expr(hi, scope))
        case "assume", [cond, reason]:
            return Assume(_expr(cond, scope), _string(reason))
        case _:
            raise AssertionError(tree)


# ---------------------------------------------------------------------------- statements


def _block(tree: Tree[Token], scope: Scope) -> tuple[Stmt, ...]:
    return tuple(_placed(_stmt(_tree(child), scope), _tree(child), scope) for child in tree.children)


def _placed(stmt: Stmt, tree: Tree[Token], scope: Scope) -> Stmt:
    """A statement with its place in the file: its first line."""
    if scope.source is None:
        return stmt
    line, column = tree.meta.line, tree.meta.column
    end = tree.meta.end_column if tree.meta.end_line == line else len(scope.source.line(line)) + 1
    return replace(stmt, span=Span(scope.source, line, column, line, end))


def _access(node: Node, scope: Scope) -> Access:
    name, index, block = _tree(node).children
    return Access(_name(name), _exprs(index, scope), None if block is None else _expr(block, scope))


def _stmt(tree: Tree[Token], scope: Scope) -> Stmt:
    kids = cast("list[Node]", list(tree.children))
    options = {str(k.data): k.children[0] for k in kids if isinstance(k, Tree) and k.data in _CLAUSES}

    def text(key: str) -> str | None:
        return _name(options[key]) if key in options else None

    mask = _expr(options["mask"], scope) if "mask" in options else None
    other = cast(Const, _expr(options["other"], scope)) if "other" in options else None
    layout = _fragment_layout(options.get("fragment_layout"))
    match str(tree.data):
        case "copy":
            dst, src, vector = _access(kids[0], scope), _access(kids[2], scope), options.get("vector")
            width = 1 if vector is None else _int(vector)
            signal = Signal(*_place(options["signal"], scope)) if "signal" in options else None
            among = next(iter(_groups(kids)), None)
            once = "once" in options
            return Copy(dst, src, _shape(kids[3]), mask, other, layout, text("via"), width, signal, once, among)
        case "map":
            dst, value = _access(kids[0], scope), _expr(kids[1], scope)
            return Map(dst, value, _shape(kids[2]), layout, text("scope"))
        case "accumulate":
            dst, value, shape = _access(kids[0], scope), _expr(kids[2], scope), _shape(kids[3])
            return Accumulate(dst, value, str(kids[1]), shape, mask, layout, text("scope"), text("via"))
        case "mma":
            d, a, b = (_access(k, scope) for k in kids if isinstance(k, Tree) and k.data == "access")
            m, n, k = _shape(next(k for k in kids if isinstance(k, Token) and k.type == "SHAPE_TEXT"))
            grid = _shape(options["warp_grid"]) if "warp_grid" in options else None
            return Mma(d, a, b, (m, n, k), text("via"), None if grid is None else (grid[0], grid[1]))
        case "stage":
            return Stage(_name(kids[0]), _access(kids[2], scope), _shape(kids[3]), mask, other, "once" in options)
        case "barrier":
            return Barrier(scope=text("scope") or "block")
        case "commit":
            return CommitGroup()
        case "wait":
            return WaitGroup(_int(kids[0]))
        case "mma_fence" | "mma_commit" | "mma_wait" | "proxy_fence":
            return _mma_order(str(tree.data), kids)
        case "barrier_sync":
            return BarrierSync(_int(kids[0]), _int(kids[1]))
        case "barrier_arrive":
            return BarrierArrive(_int(kids[0]), _int(kids[1]))
        case "mbarrier_init":
            return MbarrierInit(_name(kids[0]))
        case "mbarrier_fence":
            return MbarrierFence()
        case "mbarrier_expect" | "mbarrier_arrive" | "mbarrier_wait":
            return _mbarrier_step(str(tree.data), kids, text("scope"), scope)
        case "wait_counts" | "wave_barrier" | "wave_priority" | "sched_group":
            return _wave_step(str(tree.data), kids)
        case "bulk_commit" | "bulk_wait" | "bulk_wait_read":
            read = tree.data == "bulk_wait_read"
            return BulkCommit() if tree.data == "bulk_commit" else BulkWait(_int(kids[0]), read)
        case "programs":
            turn, turns = (0 if kids[0] is None else _int(kids[0])), (1 if kids[1] is None else _int(kids[1]))
            return Programs(_block(_tree(kids[2]), scope), turns, turn)
        case "roles":
            return Roles(tuple(_role(_tree(k), scope) for k in kids))
        case "for":
            return _for(kids, options, scope)
        case "if":
            orelse = kids[2] if len(kids) > 2 else None
            then = _block(_tree(kids[1]), scope)
            return If(_expr(kids[0], scope), then, () if orelse is None else _block(_tree(orelse), scope))
        case _:
            plain = [k for k in kids if not (isinstance(k, Tree) and k.data == "where")]
            where = _expr(options["where"], scope) if "where" in options else None
            return _annotation(tree, plain, where, scope)


def _for(kids: list[Node], options: dict[str, Node], scope: Scope) -> For:
    var, start, stop = _name(kids[0]), _expr(kids[1], scope), _expr(kids[2], scope)
    counting = next((k for k in kids if isinstance(k, Tree) and k.data == "counter"), None)
    counter = None if counting is None else Counter(_name(counting.children[0]), _int(counting.children[1]))
    body = _block(_tree(kids[-1]), scope.enter(var) if counter is None else scope.enter(var, counter.name))
    kind = _name(options["kind"]) if "kind" in options else "dynamic"
    stages = _int(options["stages"]) if "stages" in options else 1
    producers = _int(options["producers"]) if "producers" in options else 0
    return For(var, start, stop, _int(kids[3]), body, kind, stages, producers, counter)


def _mma_order(kind: str, kids: list[Node]) -> Stmt:
    """How asynchronous products are ordered."""
    match kind:
        case "mma_fence":
            return MmaFence()
        case "mma_commit":
            return MmaCommit()
        case "mma_wait":
            return MmaWait(_int(kids[0]))
        case _:
            return ProxyFence()


def _wave_step(kind: str, kids: list[Node]) -> Stmt:
    match kind:
        case "wait_counts":
            counts = {str(_tree(k).data): _int(_tree(k).children[0]) for k in kids if k is not None}
            return WaitCounts(counts.get("vm"), counts.get("lgkm"))
        case "wave_barrier":
            return WaveBarrier()
        case "wave_priority":
            return WavePriority(_int(kids[0]))
        case _:
            mask, size, sync = (_int(k) for k in kids)
            return SchedGroup(mask, size, sync)


def _groups(kids: list[Node]) -> tuple[Among, ...]:
    groups = (k.children for k in kids if isinstance(k, Tree) and k.data == "among")
    return tuple(Among(_int(count), _int(stride)) for count, stride in groups)


def _mbarrier_step(kind: str, kids: list[Node], where: str | None, scope: Scope) -> Stmt:
    barrier, index = _place(kids[0], scope)
    match kind:
        case "mbarrier_expect":
            return MbarrierExpect(barrier, index, _int(kids[1]))
        case "mbarrier_arrive":
            return MbarrierArrive(barrier, index, where or "block", _groups(kids))
        case _:
            return MbarrierWait(barrier, index, _expr(kids[1], scope))


def _place(node: Node, scope: Scope) -> tuple[str, Expr]:
    name, index = _tree(node).children
    return _name(name), _expr(index, scope)


def _role(tree: Tree[Token], scope: Scope) -> Role:
    name, warps, first, registers, body = cast("list[Node | None]", list(tree.children))
    assert name is not None and warps is not None and first is not None and body is not None
    budget = None if registers is None else _int(registers)
    return Role(_name(name), _int(first), _int(warps), budget, _block(_tree(body), scope))


def _annotation(tree: Tree[Token], kids: list[Node], where: Expr | None, scope: Scope) -> Stmt:
    """The statements that cost nothing."""
    match str(tree.data):
        case "tag":
            fields = tuple(_field(_tree(k), scope) for k in kids[2:] if k is not None)
            return Tag(_name(kids[0]), _exprs(kids[1], scope), fields)
        case "assert":
            at = next(i for i, k in enumerate(kids) if isinstance(k, Token) and k.type == "SHAPE_TEXT")
            names = tuple(_name(k) for k in kids[:at] if k is not None)
            conditions = tuple(_condition(_tree(k), scope) for k in kids[at + 1 :] if k is not None)
            return AssertTags(_shape(kids[at]), names, conditions, where)
        case "spec":
            names = tuple(_name(k) for k in kids[1:-1] if k is not None)
            return Spec(_name(kids[0]), names, cast(SpecTerm, _term(kids[-1], scope)))
        case _:
            raise AssertionError(tree)


def _field(tree: Tree[Token], scope: Scope) -> tuple[str, TagTerm]:
    name, term = tree.children
    return _name(name), cast(TagTerm, _term(term, scope))


def _condition(tree: Tree[Token], scope: Scope) -> TagCondition:
    match str(tree.data), list(tree.children):
        case "tag_equal", [left, _, right]:
            return TagEqual(cast(TagTerm, _term(left, scope)), cast(TagTerm, _term(right, scope)))
        case _, [elem, terms]:
            listed = tuple(cast(TagTerm, _term(t, scope)) for t in _tree(terms).children)
            return TagTuple(_elem(_tree(elem), scope), listed)
        case _:
            raise AssertionError(tree)


# ---------------------------------------------------------------------------- expressions


def _exprs(node: Node, scope: Scope) -> tuple[Expr, ...]:
    return tuple(_expr(child, scope) for child in _tree(node).children if child is not None)


def _expr(node: Node, scope: Scope) -> Expr:
    return cast(Expr, _term(node, scope))


def _elem(tree: Tree[Token], scope: Scope) -> Elem:
    obj = _name(tree.children[0])
    return Elem(obj, _exprs(tree.children[1], scope), scope.elements.get(obj, int32))


def _term(node: Node, scope: Scope, dtype: DType | None = None) -> Term:
    """An expression or term; `dtype` is the type written beside it, if any."""
    tree = _tree(node)
    kids = cast("list[Node]", list(tree.children))
    match str(tree.data):
        case "ascribed":
            return _term(kids[0], scope, _dtype(kids[1]))
        case "paren":
            term = _term(kids[0], scope)
            return term if dtype is None else Op(cast(Op, term).op, cast(Op, term).args, dtype)
        case "int":
            return Const(_int(kids[0]), dtype or int32)
        case "float":
            return Const(float(str(kids[0])), dtype or float32)
        case "bare":
            return _bare(str(kids[0]), scope, dtype)
        case "param":
            name = _name(kids[0])
            return Param(name, dtype or scope.params.get(name, int32))
        case "elem":
            elem = _elem(tree, scope)
            return elem if dtype is None else Elem(elem.obj, elem.index, dtype)
        case "tag_field":
            field = int(str(kids[1])) if isinstance(kids[1], Token) else _name(kids[1])
            return TagField(_elem(_tree(kids[0]), scope), field)
        case "unary":
            return _unary(kids, scope)
        case "binary":
            left, right = _expr(kids[0], scope), _expr(kids[2], scope)
            return _operation(_INFIX[str(kids[1])], (left, right), None)
        case "spec_op":
            return _spec_op(kids, scope, dtype)
        case "call":
            return _call(kids, scope, dtype)
        case _:
            raise AssertionError(tree)


def _bare(name: str, scope: Scope, dtype: DType | None) -> Expr:
    if name in ("true", "false"):
        return Const(name == "true", dtype or boolean)
    if name in ("inf", "nan"):
        return Const(float(name), dtype or float32)
    if name == "thread":
        return Thread(dtype or int32)
    if _COORD.fullmatch(name):
        return Coord(int(name[1:]), dtype or int32)
    if name in scope.loops:
        return LoopVar(name, dtype or int32)
    return Param(name, dtype or scope.params.get(name, int32))


def _unary(kids: list[Node], scope: Scope) -> Expr:
    operand = _tree(kids[1])
    literal = _tree(operand.children[0]) if operand.data == "ascribed" else operand
    value = _expr(operand, scope)
    if isinstance(value, Const) and literal.data != "paren" and not isinstance(value.value, bool):
        return Const(-value.value, value.dtype)
    return _operation(_PREFIX[str(kids[0])], (value,), None)


def _operation(op: str, args: tuple[Expr, ...], dtype: DType | None) -> Op:
    given = dtype or inferred(op, tuple(a.dtype for a in args))
    assert given is not None
    return Op(op, args, given)


def _spec_op(kids: list[Node], scope: Scope, dtype: DType | None) -> SpecTerm:
    name, args = str(kids[0]), tuple(cast(SpecTerm, _term(k, scope)) for k in kids[1:])
    given = dtype or float32
    if name.startswith("reduce_"):
        axis, extent, body = args
        return SpecReduce(name.removeprefix("reduce_"), cast(Coord, axis).axis, cast(Expr, extent), body, given)
    if name == "softmax":
        axis, extent, at, score = args
        return SpecSoftmax(cast(Coord, axis).axis, cast(Expr, extent), cast(Expr, at), score, given)
    return SpecOp(name, args, given)


def _call(kids: list[Node], scope: Scope, dtype: DType | None) -> Term:
    name, args = str(kids[0]), tuple(_expr(k, scope) for k in kids[1:])
    match name, args:
        case "program_id", (Const(value=axis),):
            return ProgramId(int(axis), dtype or int32)
        case "loop", (Param(name=var),):
            return LoopVar(var, dtype or int32)
        case "once", (lo, hi):
            return Once(lo, hi)
        case "data", (Elem(obj=tensor, index=index),):
            return DataValue(tensor, index)
        case _ if name in DTYPES:
            return Op("cast", args, DTYPES[name])
        case _ if name in OPERATORS:
            return _operation(name, args, dtype)
        case _:
            raise SourceError(Diagnostic("ir-syntax", f"`{name}` is not an operator of the IR"))
