"""Read the words, expressions and terms of the IR's text form (`argus/ir/text.lark`)."""

from __future__ import annotations

import json
import re
from typing import cast, get_args

from lark import Token, Tree

from argus.diagnostic import Diagnostic, SourceError
from argus.ir.expr import OPERATORS, Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, Thread
from argus.ir.nodes import DataValue, Once, SpecOp, SpecReduce, SpecSoftmax, SpecTerm, TagField, TagTerm
from argus.ir.print_terms import Names, inferred
from argus.ir.types import DTYPES, DType, boolean, float32, int32

Node = Tree[Token] | Token
Term = TagTerm | SpecTerm

_INFIX = {row.symbol: row.name for row in OPERATORS.values() if row.symbol and row.arity == 2}
_PREFIX = {row.symbol: row.name for row in OPERATORS.values() if row.symbol and row.arity == 1}
_EXPRESSIONS = get_args(Expr)
_COORD = re.compile(r"c\d+")


def tree_of(node: Node) -> Tree[Token]:
    assert isinstance(node, Tree), node
    return node


def int_of(node: Node) -> int:
    return int(cast(Token, node))


def name_of(node: Node) -> str:
    text = str(node if isinstance(node, Token) else node.children[0])
    return text.strip("`")


def dtype_of(node: Node) -> DType:
    dtype = DTYPES.get(str(node))
    if dtype is None:
        raise SourceError(Diagnostic("ir-syntax", f"`{node}` is not an element type"))
    return dtype


def shape_of(node: Node) -> tuple[int, ...]:
    return () if node == "()" else tuple(int(extent) for extent in str(node).split("x"))


def string_of(node: Node) -> str:
    return str(json.loads(str(node)))


def literal_of(node: Node) -> object:
    tree = tree_of(node)
    match str(tree.data):
        case "text":
            return string_of(tree.children[0])
        case "word":
            word = str(tree.children[0])
            words: dict[str, object] = {"true": True, "false": False, "none": None}
            return words[word] if word in words else dtype_of(tree.children[0])
        case "number":
            text = str(tree.children[0])
            return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
        case _:
            return tuple(literal_of(child) for child in tree.children)


# ---------------------------------------------------------------------------- expressions


def exprs_of(node: Node, scope: Names) -> tuple[Expr, ...]:
    return tuple(expr_of(child, scope) for child in tree_of(node).children if child is not None)


def expr_of(node: Node, scope: Names) -> Expr:
    term = term_of(node, scope)
    if not isinstance(term, _EXPRESSIONS):
        message = "a term of a specification or a tag stands where an expression belongs"
        help = "operations on terms of specifications are written `@add(x, y)`"
        raise SourceError(Diagnostic("ir-syntax", message, help=help))
    return cast(Expr, term)


def elem_of(tree: Tree[Token], scope: Names) -> Elem:
    obj = name_of(tree.children[0])
    return Elem(obj, exprs_of(tree.children[1], scope), scope.elements.get(obj, int32))


def term_of(node: Node, scope: Names, dtype: DType | None = None) -> Term:
    """Build an expression or term. `dtype` is the type written beside it, if any."""
    tree = tree_of(node)
    kids = cast("list[Node]", list(tree.children))
    match str(tree.data):
        case "ascribed":
            return term_of(kids[0], scope, dtype_of(kids[1]))
        case "paren":
            term = term_of(kids[0], scope)
            return term if dtype is None else Op(cast(Op, term).op, cast(Op, term).args, dtype)
        case "int":
            return Const(int_of(kids[0]), dtype or int32)
        case "float":
            return Const(float(str(kids[0])), dtype or float32)
        case "bare":
            return _bare(str(kids[0]), scope, dtype)
        case "param":
            name = name_of(kids[0])
            return Param(name, dtype or scope.params.get(name, int32))
        case "elem":
            elem = elem_of(tree, scope)
            return elem if dtype is None else Elem(elem.obj, elem.index, dtype)
        case "tag_field":
            field = int(str(kids[1])) if isinstance(kids[1], Token) else name_of(kids[1])
            return TagField(elem_of(tree_of(kids[0]), scope), field)
        case "unary":
            return _unary(kids, scope)
        case "binary":
            left, right = expr_of(kids[0], scope), expr_of(kids[2], scope)
            return _operation(_INFIX[str(kids[1])], (left, right), None)
        case "spec_op":
            return _spec_op(kids, scope, dtype)
        case "call":
            return _call(kids, scope, dtype)
        case _:
            raise AssertionError(tree)


def _bare(name: str, scope: Names, dtype: DType | None) -> Expr:
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


def _unary(kids: list[Node], scope: Names) -> Expr:
    operand = tree_of(kids[1])
    literal = tree_of(operand.children[0]) if operand.data == "ascribed" else operand
    value = expr_of(operand, scope)
    if isinstance(value, Const) and literal.data != "paren" and not isinstance(value.value, bool):
        return Const(-value.value, value.dtype)
    return _operation(_PREFIX[str(kids[0])], (value,), None)


def _operation(op: str, args: tuple[Expr, ...], dtype: DType | None) -> Op:
    given = dtype or inferred(op, tuple(a.dtype for a in args))
    assert given is not None
    return Op(op, args, given)


def _spec_op(kids: list[Node], scope: Names, dtype: DType | None) -> SpecTerm:
    name, args = str(kids[0]), tuple(cast(SpecTerm, term_of(k, scope)) for k in kids[1:])
    given = dtype or float32
    if name.startswith("reduce_"):
        axis, extent, body = args
        return SpecReduce(name.removeprefix("reduce_"), cast(Coord, axis).axis, cast(Expr, extent), body, given)
    if name == "softmax":
        axis, extent, at, score = args
        return SpecSoftmax(cast(Coord, axis).axis, cast(Expr, extent), cast(Expr, at), score, given)
    return SpecOp(name, args, given)


def _call(kids: list[Node], scope: Names, dtype: DType | None) -> Term:
    name, args = str(kids[0]), tuple(expr_of(k, scope) for k in kids[1:])
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
