"""The read-only part of a kernel: its contract with its callers. No candidate may change it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from argus.agents.bounds import bounded
from argus.ir.access import Mode, relations
from argus.ir.nodes import AssertTags, For, If, Kernel, Programs, Roles, Spec, Stmt, Tag
from argus.ir.visit import blocks, rewrite_body, walk
from argus.mutate import unspecified
from argus.mutate.mutation import SYNCHRONISATION


def broken(author: Kernel, candidate: Kernel, *, same_text: bool = False) -> str:
    """Name the part of the author's contract that `candidate` changes; "" if it changes nothing.

    The contract is: the name, parameters, declared shapes, constants, preconditions and promises; which tensors are
    written, where those with a specification may be added; every tag, assertion and specification, in order and inside
    the same loops and branches. If an output has no specification, nothing says what its values should be. Then
    candidates may only order events, and mask accesses by their bounds.

    `same_text`: no edit touched the text of a statement that states something. If every output has a specification, an
    assertion may then mean something else, because it names what was wrong, and the loop around it may have another
    range. It stays in as many loops and branches.
    """
    for field in ("name", "params", "sizes", "constexprs", "preconditions", "invariants", "covers", "target"):
        if getattr(author, field) != getattr(candidate, field):
            return field
    named = same_text and not unspecified(author)
    if _statements(author, named) != _statements(candidate, named):
        return "tags, assertions and specifications"
    before, after = written(author), written(candidate)
    specified = {s.output for s in walk(author.body) if isinstance(s, Spec)}
    if not before <= after <= before | specified:
        return "outputs"
    free = unspecified(author)
    if free and _values(author) != _values(candidate):
        return f"values of {', '.join(free)}, which have no specification"
    return ""


def _statements(kernel: Kernel, named: bool) -> list[tuple[tuple[object, ...], object]]:
    """Return the statements that are part of the contract, each with the statements around it.

    With `named`, an assertion counts by the number and kinds of statements around it. Its condition is not compared.
    """
    found = list(_inside(kernel.body, ()))
    return [(tuple(map(type, heads)), type(s)) if named and isinstance(s, AssertTags) else (heads, s)
            for heads, s in found]  # fmt: skip


def _inside(body: tuple[Stmt, ...], heads: tuple[object, ...]) -> Iterator[tuple[tuple[object, ...], Stmt]]:
    for stmt in body:
        if isinstance(stmt, Tag | AssertTags | Spec):
            yield heads, stmt
        for number, block in enumerate(blocks(stmt)):
            yield from _inside(block, (*heads, _head(stmt, number)))


def _head(stmt: Stmt, number: int) -> object:
    """Return what decides whether and how often block `number` of a statement runs."""
    match stmt:
        case For():
            return replace(stmt, body=(), counter=None)
        case If():
            return number, stmt.cond
        case Roles():
            return stmt.roles[number].name
        case Programs():
            return stmt.turn, stmt.turns
        case _:
            return number


def written(kernel: Kernel) -> set[str]:
    """Return the tensors that a kernel writes."""
    tensors = {t.name for t in kernel.tensors}
    return {a.obj for s in walk(kernel.body) for a in relations(s) if a.mode is not Mode.READ} & tensors


def _values(kernel: Kernel) -> tuple[object, ...]:
    """Return what a kernel computes, apart from the order of events and from accesses outside of tensors."""

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        return () if isinstance(stmt, SYNCHRONISATION) else (bounded(stmt, kernel),)

    return rewrite_body(kernel.body, change), kernel.grid
