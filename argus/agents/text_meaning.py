"""The meaning of a kernel's names, in the terms of its specification.

A term forgets where an element lies: `al.load(x[row, cols])` and the specification's `x[i, j]` are both an element of
x, and a sum over an axis is the specification's sum over a variable. It forgets what is left out of a sum, too. Equal
terms are a reason to suspect that two expressions are meant to be the same, never a proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from argus.agents.text_places import bindings
from argus.agents.text_scope import Scope
from argus.frontend.surface import (
    Attribute,
    AugAssign,
    Binary,
    Call,
    Compare,
    Expression,
    ExprStmt,
    ForStmt,
    IfStmt,
    Lambda,
    Literal,
    Name,
    Slice,
    Statement,
    Subscript,
    Unary,
)
from argus.knowledge.draft import Draft, every

Term = tuple[Any, ...]
"""A head and its parts: an operator, a function, "at" (an element, with its constant indices), "name", or "num"."""

REDUCTIONS = ("sum", "max", "min")
MANY = ("+", "*", "&", "|")
"""Operators whose parts have no order and no brackets."""
_PASSING = ("load", "stage", "trans", "to", "reshape", "broadcast_to")
_TURNED = {">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Meanings:
    """Terms of the expressions of a kernel. `env` holds what its names stand for, in the order of the text."""

    draft: Draft
    tensors: tuple[str, ...]
    env: Mapping[str, Term]

    @classmethod
    def of(cls, draft: Draft, scope: Scope, given: Mapping[str, Term] = MappingProxyType({})) -> Meanings:
        """Read what every name of a kernel stands for, or would stand for if some stood for the `given` terms.

        Places and sizes stand for themselves.
        """
        env: dict[str, Term] = {}
        found = cls(draft, scope.tensors, env)
        apart = {*scope.places, *scope.ids, *scope.sizes}
        for statement, loops in _with_loops(draft.function.body, ()):
            if isinstance(statement, AugAssign) and statement.op == "+" and statement.target.id in env:
                env[statement.target.id] = found.added(env[statement.target.id], statement, loops)
            for value, names in bindings(statement):
                if len(names) == 1 and names[0] not in apart and not found.places(value):
                    env[names[0]] = given.get(names[0]) or found.term(value)
            stored = found.stored(statement)
            if stored is not None and stored[0] not in scope.tensors:
                env[stored[0]] = found.term(stored[2])
        return found

    def term(self, expr: Expression) -> Term:
        """Return what an expression stands for."""
        match expr:
            case Name(id=name):
                return self.env.get(name, ("name", name))
            case Literal(value=value):
                return ("num", str(value))
            case Unary(op=op, operand=operand):
                return (f"{op} ", self.term(operand))
            case Binary(op=op, left=left, right=right):
                return combined(op, self.term(left), self.term(right))
            case Compare(first=first, ops=(op,), rest=(second,)):
                a, b = self.term(first), self.term(second)
                return (_TURNED[op], b, a) if op in _TURNED else (op, a, b)
            case Subscript(value=Name(id=name), items=items) if name in self.tensors:
                return ("at", name, tuple(_constant(item) for item in items))
            case Subscript(value=value) if not isinstance(value, Attribute):
                return self.term(value)
            case Call():
                return self._call(expr)
            case _:
                return ("name", self.draft.read(expr))

    def _call(self, call: Call) -> Term:
        name, args = self.draft.called(call), [a for a in call.args if not isinstance(a, Lambda)]
        if isinstance(call.function, Attribute) and not name:
            return self.term(call.function.value)
        if name in REDUCTIONS and call.args:
            inner = call.args[0].body if isinstance(call.args[0], Lambda) else call.args[0]
            return (name, self.term(inner))
        if name in _PASSING and args:
            return self.term(args[0])
        if name == "mma" and len(args) > 1:
            return ("sum", combined("*", self.term(args[0]), self.term(args[1])))
        if name == "zeros":
            return ("num", "0")
        if name == "full" and len(args) > 1:
            return self.term(args[1])
        terms = [self.term(a) for a in args]
        return _chosen(terms) if name == "where" and len(terms) == 3 else (name, *terms)

    def added(self, before: Term, statement: AugAssign, loops: tuple[ForStmt, ...]) -> Term:
        """Return what a name stands for after `name += value` inside `loops`. `before` is what it stood for earlier."""
        term = self.term(statement.value)
        for loop in loops:
            if self.draft.called(loop.iterable) == "static_range" or term[0] != "sum":
                term = ("sum", term)
        return term if before == ("num", "0") else combined("+", before, term)

    def places(self, value: Expression) -> bool:
        """Return True if an expression gives places or sizes."""
        return any(self.draft.called(e) in ("grid", "arange", "program_id", "shared")
                   or (isinstance(e, Attribute) and e.name == "shape") for e in every(value))  # fmt: skip

    def stored(self, statement: Statement) -> tuple[str, Expression, Expression] | None:
        """Return the name that a statement stores to, the place, and the value; None for another statement."""
        if not isinstance(statement, ExprStmt) or not isinstance(statement.value, Call):
            return None
        call = statement.value
        if self.draft.called(call) not in ("store", "atomic_add") or len(call.args) < 2:
            return None
        target = call.args[0].value if isinstance(call.args[0], Subscript) else call.args[0]
        return (target.id, call.args[0], call.args[1]) if isinstance(target, Name) else None

    def specified(self) -> dict[str, Lambda]:
        """Return what the specifications of the kernel say about each output."""
        found = self.draft.calls("spec", within=self.draft.function.body)
        return {c.args[0].id: c.args[1] for c in found
                if len(c.args) > 1 and isinstance(c.args[0], Name) and isinstance(c.args[1], Lambda)}  # fmt: skip

    def conditions(self, spec: Lambda) -> list[Term]:
        """Return the conditions of the choices in a specification."""
        found = [e for e in every(spec) if isinstance(e, Call) and self.draft.called(e) == "where"]
        return [Meanings(self.draft, self.tensors, {}).term(c.args[0]) for c in found if len(c.args) == 3]

    def wanted(self, spec: Lambda, at: tuple[Expression | Slice, ...]) -> Term:
        """Return what a specification says about the element at these indices of the output."""
        env: dict[str, Term] = {}
        for name, item in zip(spec.params, at, strict=False):
            if isinstance(item, Name):
                env[name] = ("name", item.id)
            elif isinstance(item, Literal):
                env[name] = ("num", str(item.value))
        return Meanings(self.draft, self.tensors, env).term(spec.body)


def _constant(item: Expression | Slice) -> object:
    return item.value if isinstance(item, Literal) else None


def _chosen(terms: list[Term]) -> Term:
    """Return what a choice stands for: one of its parts if its condition compares two numbers, or leaves a part out."""
    match terms:
        case [("==", ("num", a), ("num", b)), then, other]:
            return then if a == b else other
        case [_, then, ("num", "0" | "0.0")]:
            return then
        case _:
            return ("where", *terms)


def combined(op: str, left: Term, right: Term) -> Term:
    """Return the term of an operator, without brackets and order where it needs none."""
    if op not in MANY:
        return (op, left, right)
    parts = [p for t in (left, right) for p in (t[1:] if t[0] == op else (t,))]
    return (op, *sorted(parts, key=repr))


def within(term: Term) -> Iterator[Term]:
    """Yield a term and all terms in it."""
    yield term
    if term[0] not in ("at", "name", "num"):
        for part in term[1:]:
            yield from within(part)


_Loops = tuple[ForStmt, ...]


def _with_loops(body: tuple[Statement, ...], loops: _Loops) -> Iterator[tuple[Statement, _Loops]]:
    """Yield the statements of a body in order, each with the loops around it."""
    for statement in body:
        yield statement, loops
        if isinstance(statement, ForStmt):
            yield from _with_loops(statement.body, (*loops, statement))
        elif isinstance(statement, IfStmt):
            yield from _with_loops((*statement.then, *statement.orelse), loops)
