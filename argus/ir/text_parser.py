"""Read the text form of the IR (`argus/ir/text.lark`) back into nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, cast

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedInput
from typing_extensions import assert_never

from argus.diagnostic import Diagnostic, SourceError
from argus.ir.descriptor import STATEMENTS, Descriptor, Field, Flag, Hole, Kind, Option, Piece, Text, describe, parts
from argus.ir.nodes import (
    Access,
    Arranged,
    Assume,
    Covers,
    For,
    Fragment,
    InRange,
    Invariant,
    Kernel,
    Mbarrier,
    Precondition,
    Requires,
    Scalar,
    Shared,
    Stmt,
    TagCondition,
    TagEqual,
    TagTerm,
    TagTuple,
    Tensor,
)
from argus.ir.print_terms import EMPTY_SCOPE, Names, scope_of
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

_DEEPEST = 200
MAX_WORDS = 150_000
"""Largest number of words in a kernel's text. `argus show` writes some hundred words for a kernel of one page."""

_WORD = re.compile(r"\w+|[^\w\s]")
_LONG_NUMBER = re.compile(r"[0-9a-fA-F_.]{41,}")


@cache
def _grammar() -> Lark:
    text = files("argus.ir").joinpath("text.lark").read_text(encoding="utf-8") + statement_rules()
    return Lark(text, parser="lalr", lexer="contextual", maybe_placeholders=True, propagate_positions=True)


@cache
def _rules() -> Mapping[str, Descriptor]:
    """Return the nodes that have grammar rules of their own: statements, and the nodes inside them."""
    nodes = {node for statement in STATEMENTS for node in (statement, *parts(statement))}
    return {d.name: d for d in sorted(map(describe, nodes), key=lambda d: d.name)}


_SYMBOLS: Mapping[Kind, str] = {
    Kind.ACCESS: "access", Kind.EXPRESSION: "expr", Kind.MEANING: "expr", Kind.CONSTANT: "expr", Kind.NUMBER: "INT",
    Kind.NAME: "name", Kind.QUOTED: "STRING", Kind.NAMES: "names", Kind.SHAPE: "SHAPE_TEXT", Kind.EXTENTS: "list",
    Kind.LAYOUT: "FRAGMENT_TEXT", Kind.FIELDS: "fields", Kind.CONDITIONS: "conditions", Kind.BLOCK: "block",
}  # fmt: skip
"""The grammar's names for the kinds of fields. Parts of statements have rules of their own."""


def statement_rules() -> str:
    """Return the grammar's rules of statements and of their parts, from the forms of the nodes."""
    lines = [f"?stmt: ({' | '.join(describe(s).name for s in STATEMENTS)}) _NL"]
    flags: dict[str, str] = {}  # the grammar's terminals, by their texts
    several: set[str] = set()

    def symbol(piece: Piece) -> str:
        match piece:
            case Text(text=text):
                return " ".join(f'"{word}"' for word in text.split())
            case Flag(text=text):
                return f"[{flags.setdefault(text.strip(), f'FLAG{len(flags)}')}]"
            case Option(fields=fields) if fields[0].kind is Kind.PARTS:
                return f"{describe(cast(type, fields[0].part)).name}*"
            case Option(pieces=pieces):
                return f"[{' '.join(map(symbol, pieces))}]"
            case Hole(field=field) if field.kind is Kind.BLOCKS:
                part = describe(cast(type, field.part)).name
                several.add(part)
                return f"{part}_lines"
            case Hole(field=field):
                return describe(field.part).name if field.part is not None else _SYMBOLS[field.kind]
            case _:
                assert_never(piece)

    lines += [f"{name}: {' '.join(map(symbol, d.form))}" for name, d in _rules().items()]
    lines += [f'{name}: "{text}"' for text, name in flags.items()]
    lines += [f'{part}_lines: "{{" _NL ({part} _NL)* "}}"' for part in sorted(several)]
    return "\n" + "\n".join(lines) + "\n"


def parse_kernel(text: str) -> Kernel:
    """Return the kernel that `text` describes. Raises `SourceError` (code `ir-syntax`) if `text` describes none."""
    return _read(SourceFile("<ir>", text), None)


def read_kernel(source: SourceFile) -> Kernel:
    """Return the kernel that a file describes. Each statement keeps its place in the file, so that errors can point at
    it."""
    return _read(source, source)


def _read(source: SourceFile, shown: SourceFile | None) -> Kernel:
    text = source.text
    _insist_on_short(text, source)
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


def _insist_on_short(text: str, source: SourceFile) -> None:
    """Reject a text that would take long to read, or that contains numbers too large for any kernel."""
    long = _LONG_NUMBER.search(text)
    words = 0 if long else sum(1 for _ in _WORD.finditer(text))
    if long is None and words <= MAX_WORDS:
        return
    line = text.count("\n", 0, long.start()) + 1 if long else 1
    what = "a number of more than 40 digits" if long else f"{words} words, and a kernel has at most {MAX_WORDS}"
    help = "use a smaller number" if long else "write loops instead of repeated statements"
    raise SourceError(Diagnostic("ir-syntax", f"this text has {what}", Span(source, line, 1, line, 2), help=help))


def _insist_on_shallow(tree: Tree[Token], source: SourceFile) -> None:
    """Reject a text that is nested deeper than any kernel, because it would exceed Python's recursion limit."""
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
        covers=tuple(_covers(c, scope) for c in children("covers")),
        preconditions=tuple(_precondition(p, scope) for p in parts if p.data in _PRECONDITIONS),
        invariants=tuple(_invariant(c) for c in children("invariant")),
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


def _covers(kids: list[Node], scope: Names) -> Covers:
    output, names, shape, at, where = cast("list[Node | None]", kids)
    assert output is not None and names is not None and shape is not None and at is not None
    condition = None if where is None else expr_of(where, scope)
    variables = tuple(name_of(n) for n in tree_of(names).children)
    return Covers(name_of(output), variables, exprs_of(shape, scope), exprs_of(at, scope), condition)


_PRECONDITIONS = ("requires", "in_range", "arranged", "offsets", "assume")


def _precondition(tree: Tree[Token], scope: Names) -> Precondition:
    match str(tree.data), list(tree.children):
        case "requires", [cond]:
            return Requires(expr_of(cond, scope))
        case "in_range", [tensor, lo, hi]:
            return InRange(name_of(tensor), expr_of(lo, scope), expr_of(hi, scope))
        case "arranged", [how, tensor]:
            return Arranged(name_of(tensor), str(how))
        case "offsets", [tensor, total, longest]:
            most = None if longest is None else expr_of(longest, scope)
            return Arranged(name_of(tensor), "offsets", expr_of(total, scope), most)
        case "assume", [cond, reason]:
            return Assume(expr_of(cond, scope), string_of(reason))
        case _:
            raise AssertionError(tree)


def _invariant(children: list[Node]) -> Invariant:
    tensor, *sizes = children
    return Invariant(name_of(tensor), tuple(name_of(size) for size in sizes))


# ---------------------------------------------------------------------------- statements


def _block(tree: Tree[Token], scope: Names) -> tuple[Stmt, ...]:
    return tuple(_placed(cast(Stmt, _node(tree_of(child), scope)), tree_of(child), scope) for child in tree.children)


def _placed(stmt: Stmt, tree: Tree[Token], scope: Names) -> Stmt:
    """Return a statement with its place in the file, which is its first line."""
    if scope.source is None:
        return stmt
    line, column = tree.meta.line, tree.meta.column
    end = tree.meta.end_column if tree.meta.end_line == line else len(scope.source.line(line)) + 1
    return replace(stmt, span=Span(scope.source, line, column, line, end))


def _access(node: Node, scope: Names) -> Access:
    name, index, block = tree_of(node).children
    return Access(name_of(name), exprs_of(index, scope), None if block is None else expr_of(block, scope))


def _node(tree: Tree[Token], scope: Names) -> object:
    """Build a statement, or a part of one, from its descriptor."""
    descriptor = _rules()[str(tree.data)]
    children = iter(tree.children)
    found: dict[str, Any] = {}
    blocks: dict[str, Tree[Token]] = {}
    for field in _fields(descriptor.form):
        if field.kind is Kind.PARTS:
            found[field.name] = tuple(_node(tree_of(child), scope) for child in children)
            continue
        child = next(children)
        if child is None:
            found[field.name] = field.absent
        elif field.kind is Kind.BLOCK:
            found[field.name], blocks[field.name] = (), tree_of(child)
        else:
            found[field.name] = _value(child, field.kind, scope)
    node = descriptor.node(**found)
    inner = scope.enter(*node.counters) if isinstance(node, For) else scope
    return replace(node, **{name: _block(block, inner) for name, block in blocks.items()}) if blocks else node


def _fields(form: tuple[Piece, ...]) -> Iterator[Field]:
    """Yield the fields of a form in the order of the text."""
    for piece in form:
        match piece:
            case Hole(field=field) | Flag(field=field):
                yield field
            case Option(fields=fields):
                yield from fields
            case Text():
                pass


def _value(node: Node, kind: Kind, scope: Names) -> object:
    match kind:
        case Kind.ACCESS:
            return _access(node, scope)
        case Kind.EXPRESSION | Kind.MEANING | Kind.CONSTANT:
            return term_of(node, scope)
        case Kind.NUMBER:
            return int_of(node)
        case Kind.FLAG:
            return True
        case Kind.NAME:
            return name_of(node)
        case Kind.QUOTED:
            return string_of(node)
        case Kind.NAMES:
            return tuple(name_of(child) for child in tree_of(node).children)
        case Kind.SHAPE:
            return shape_of(node)
        case Kind.EXTENTS:
            return exprs_of(node, scope)
        case Kind.LAYOUT:
            return parse_fragment(str(node))
        case Kind.FIELDS:
            return tuple(_field(tree_of(child), scope) for child in tree_of(node).children)
        case Kind.CONDITIONS:
            return tuple(_condition(tree_of(child), scope) for child in tree_of(node).children)
        case Kind.PART:
            return _node(tree_of(node), scope)
        case Kind.BLOCKS:
            return tuple(_node(tree_of(child), scope) for child in tree_of(node).children)
        case Kind.BLOCK | Kind.PARTS:
            raise TypeError(f"a {kind.name} is read where its node is")
        case _:
            assert_never(kind)


def _field(tree: Tree[Token], scope: Names) -> tuple[str, TagTerm]:
    name, term = tree.children
    return name_of(name), cast(TagTerm, term_of(term, scope))


def _condition(tree: Tree[Token], scope: Names) -> TagCondition:
    match str(tree.data), list(tree.children):
        case "tag_equal", [left, _, right]:
            return TagEqual(cast(TagTerm, term_of(left, scope)), cast(TagTerm, term_of(right, scope)))
        case _, [elem, terms]:
            listed = tuple(cast(TagTerm, term_of(t, scope)) for t in tree_of(terms).children)
            return TagTuple(elem_of(tree_of(elem), scope), listed)
        case _:
            raise AssertionError(tree)
