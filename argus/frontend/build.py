"""Build the surface tree from the parser's tree, with spans in the file's coordinates and literals as values."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Union

from lark import Token, Tree

from argus.diagnostic import Diagnostic
from argus.frontend import surface as s
from argus.frontend.constants import MAX_BITS
from argus.source import SourceFile, Span

Node = Union["Tree[Token]", Token]

_BINARY = {"bit_or": "|", "bit_xor": "^", "bit_and": "&", "power": "**"}
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "none": None}


@dataclass
class Builder:
    """Builds the surface nodes of one function. `line` is the file's number of the text's first line, and `shift` the
    number of columns by which each line was moved left. Errors are collected."""

    source: SourceFile
    line: int
    shift: int
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def error(self, message: str, span: Span, remedy: str, code: str = "syntax-error") -> None:
        """Note an error and continue building."""
        self.diagnostics.append(Diagnostic(code, message, span, help=remedy))

    def span(self, first: Node, last: Node | None = None) -> Span:
        """Return the span from the start of `first` to the end of `last` (default: the end of `first`)."""
        a, b = _position(first), _position(first if last is None else last)
        return Span(
            self.source,
            a.line + self.line - 1,
            a.column + self.shift,
            b.end_line + self.line - 1,
            b.end_column + self.shift,
        )

    # ------------------------------------------------------------------ functions

    def function(self, tree: Tree[Token], kind: str) -> s.Function:
        """Build the surface tree of a decorated function."""
        decorator, name, parameters, *_returns, suite = tree.children
        assert isinstance(decorator, Tree) and isinstance(name, Token) and isinstance(suite, Tree)
        args, keywords = self.arguments(decorator.children[1])
        for arg in args:
            self.error(
                f"`@argus.{kind}` takes its options by keyword", arg.span, "write `num_warps=4`", "bad-decorator"
            )
        params = self.parameters(parameters) if isinstance(parameters, Tree) else ()
        return s.Function(str(name), kind, keywords, params, self.suite(suite), self.span(name))

    def parameters(self, tree: Tree[Token]) -> tuple[s.Parameter, ...]:
        params: list[s.Parameter] = []
        for child in _trees(tree):
            name, annotation, default = child.children
            assert isinstance(name, Token)
            if any(p.name == name for p in params):
                self.error(f"there are two parameters `{name}`", self.span(name), "rename one of them")
            params.append(s.Parameter(str(name), self.maybe(annotation), self.maybe(default), self.span(child)))
        return tuple(params)

    # ------------------------------------------------------------------ statements

    def suite(self, tree: Tree[Token]) -> tuple[s.Statement, ...]:
        return tuple(statement for child in _trees(tree) for statement in self.statement(child))

    def statement(self, tree: Tree[Token]) -> Iterator[s.Statement]:
        """Yield the statement, or nothing if an error was noted."""
        span, children = self.span(tree), tree.children
        match tree.data:
            case "assign":
                target, value = children
                yield from self.assign(target, value, span)
            case "aug_assign":
                target, operator, value = children
                found = self.target(target)
                if found is not None:
                    yield s.AugAssign(found, str(operator)[:-1], self.expression(value), span)
            case "expression":
                yield s.ExprStmt(self.expression(children[0]), span)
            case "assert":
                yield s.AssertStmt(self.expression(children[0]), self.maybe(children[1]), span)
            case "pass":
                yield s.PassStmt(span)
            case "return":
                yield s.ReturnStmt(self.maybe(children[0]), span)
            case "for":
                name, iterable, body = children
                assert isinstance(body, Tree)
                header = self.span(tree, iterable)
                target_ = s.Target(str(name), self.span(name))
                yield s.ForStmt(target_, self.expression(iterable), self.suite(body), self._from(header, tree))
            case "if" | "elif":
                cond, then, orelse = children
                assert isinstance(then, Tree)
                header = self._from(self.span(tree, cond), tree)
                yield s.IfStmt(self.expression(cond), self.suite(then), self.orelse(orelse), header)
            case _:
                raise AssertionError(f"the grammar has no statement {tree.data}")

    def _from(self, header: Span, tree: Tree[Token]) -> Span:
        start = self.span(tree)
        return Span(self.source, start.line, start.column, header.end_line, header.end_column)

    def orelse(self, tree: Node | None) -> tuple[s.Statement, ...]:
        if not isinstance(tree, Tree):
            return ()
        if tree.data == "else":
            suite = tree.children[0]
            assert isinstance(suite, Tree)
            return self.suite(suite)
        return tuple(self.statement(tree))

    def assign(self, target: Node, value: Node, span: Span) -> Iterator[s.Statement]:
        if isinstance(target, Tree) and target.data == "tuple":
            found = [self.target(item) for item in _nodes(target)]
            targets = [t for t in found if t is not None]
            if len(targets) == len(found):
                yield s.Assign(tuple(targets), True, self.expression(value), span)
            return
        single = self.target(target)
        if single is not None:
            yield s.Assign((single,), False, self.expression(value), span)

    def target(self, node: Node) -> s.Target | None:
        if isinstance(node, Tree) and node.data == "name":
            return s.Target(str(node.children[0]), self.span(node))
        what = node.data if isinstance(node, Tree) else ""
        remedy = {
            "subscript": "store to memory with `al.store(view, tile)`; a register tile changes as a whole",
            "attribute": "attributes are fixed; bind the value to a name",
            "tuple": "unpack nested tuples in a statement of their own",
            "group": "leave the parentheses out",
        }.get(what, "only names can stand left of `=`")
        self.error("this cannot be assigned to", self.span(node), remedy, "not-assignable")
        return None

    # ------------------------------------------------------------------ expressions

    def maybe(self, node: Node | None) -> s.Expression | None:
        return None if node is None else self.expression(node)

    def expression(self, node: Node) -> s.Expression:
        assert isinstance(node, Tree)
        span, children = self.span(node), node.children
        match node.data:
            case "name":
                return s.Name(str(children[0]), span)
            case "number":
                return s.Literal(self.number(str(children[0]), span), span)
            case "string":
                return s.Literal("".join(self.string(str(c), span) for c in children), span)
            case "true" | "false" | "none":
                return s.Literal(_WORDS[node.data], span)
            case "empty":
                return s.TupleExpr((), span)
            case "group":
                return self.expression(_some(children[0]))
            case "tuple":
                return s.TupleExpr(tuple(self.expression(c) for c in _nodes(node)), span)
            case "conditional":
                then, cond, orelse = (self.expression(c) for c in _nodes(node))
                return s.Conditional(cond, then, orelse, span)
            case "or" | "and":
                left, right = _nodes(node)
                return s.Logic(node.data, self.expression(left), self.expression(right), span)
            case "not":
                return s.Unary("not", self.expression(_nodes(node)[-1]), span)
            case "compare":
                return self.compare(node, span)
            case "bit_or" | "bit_xor" | "bit_and" | "power":
                left, right = _trees(node)
                return s.Binary(_BINARY[node.data], self.expression(left), self.expression(right), span)
            case "binary":
                left, operator, right = _nodes(node)
                return s.Binary(str(operator), self.expression(left), self.expression(right), span)
            case "unary":
                operator, operand = _nodes(node)
                return s.Unary(str(operator), self.expression(operand), span)
            case "attribute":
                return s.Attribute(self.expression(_some(children[0])), str(children[1]), span)
            case "call":
                args, keywords = self.arguments(children[1])
                return s.Call(self.expression(_some(children[0])), args, keywords, span)
            case "subscript":
                return self.subscript(node, span)
            case "lambda":
                return self.lambda_(node, span)
            case _:
                raise AssertionError(f"the grammar has no expression {node.data}")

    def compare(self, node: Tree[Token], span: Span) -> s.Compare:
        operands: list[s.Expression] = []
        ops: list[str] = []
        after_operand = False
        for child in _nodes(node):
            if isinstance(child, Tree):
                operands.append(self.expression(child))
                after_operand = True
            elif after_operand:
                ops.append(str(child))
                after_operand = False
            else:
                ops[-1] += f" {child}"
        return s.Compare(operands[0], tuple(ops), tuple(operands[1:]), span)

    def arguments(self, node: Node | None) -> tuple[tuple[s.Expression, ...], tuple[s.Keyword, ...]]:
        args: list[s.Expression] = []
        keywords: list[s.Keyword] = []
        for child in _trees(node) if isinstance(node, Tree) else ():
            if child.data != "keyword":
                args.append(self.expression(child))
                if keywords:
                    self.error(
                        "a positional argument follows a keyword", self.span(child), "move it before the keywords"
                    )
                continue
            name, value = child.children
            if any(k.name == name for k in keywords):
                self.error(f"the keyword `{name}` is given twice", self.span(child), "remove one of them")
            keywords.append(s.Keyword(str(name), self.expression(_some(value)), self.span(child)))
        return tuple(args), tuple(keywords)

    def subscript(self, node: Tree[Token], span: Span) -> s.Subscript:
        value, subscripts = node.children
        assert isinstance(subscripts, Tree)
        items: list[s.Expression | s.Slice] = []
        for child in _trees(subscripts):
            items.append(self.slice(child) if child.data == "slice" else self.expression(child))
        only = items[0] if len(items) == 1 else None
        if isinstance(only, s.TupleExpr):
            items = list(only.items)
        return s.Subscript(self.expression(_some(value)), tuple(items), span)

    def slice(self, tree: Tree[Token]) -> s.Slice:
        parts: list[s.Expression | None] = []
        colons = 0
        for child in tree.children:
            if isinstance(child, Token):
                colons += 1
            elif len(parts) <= colons:
                parts.extend([None] * (colons - len(parts)))
                parts.append(self.maybe(child))
        parts.extend([None] * (3 - len(parts)))
        return s.Slice(parts[0], parts[1], parts[2], self.span(tree))

    def lambda_(self, node: Tree[Token], span: Span) -> s.Lambda:
        parameters, body = node.children
        names = [str(c) for c in parameters.children] if isinstance(parameters, Tree) else []
        if len(set(names)) != len(names):
            self.error("two parameters of this lambda have the same name", span, "rename one of them")
        return s.Lambda(tuple(names), self.expression(_some(body)), span)

    def number(self, text: str, span: Span) -> int | float:
        try:
            value: object = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError):
            value = None
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            self.error(f"this number has more than {MAX_BITS} bits", span, "use a smaller number")
            return 0
        if isinstance(value, (int, float)):
            return value
        self.error(f"`{_short(text)}` is not a number", span, "write it as in Python: `1024`, `0x400`, `1e-6`")
        return 0

    def string(self, text: str, span: Span) -> str:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value: object = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = None
        if isinstance(value, str) and any(0xD800 <= ord(c) <= 0xDFFF for c in value):
            self.error("this string holds half of a character (a surrogate)", span, "write the whole character")
            return ""
        if isinstance(value, str):
            return value
        self.error("this string has a broken escape", span, "double the backslash")
        return ""


@dataclass(frozen=True)
class _Position:
    line: int
    column: int
    end_line: int
    end_column: int


def _position(node: Node) -> _Position:
    at = node if isinstance(node, Token) else node.meta
    return _Position(at.line or 1, at.column or 1, at.end_line or 1, at.end_column or 1)


def _nodes(tree: Tree[Token]) -> list[Node]:
    return [child for child in tree.children if child is not None]


def _trees(tree: Tree[Token]) -> list[Tree[Token]]:
    return [child for child in tree.children if isinstance(child, Tree)]


def _some(node: Node | None) -> Node:
    assert node is not None
    return node


def _short(text: str) -> str:
    return text if len(text) <= 20 else f"{text[:17]}..."
