"""Repairs by what the rest of a kernel says: its grid, the beginning of a tile or the head of a loop from their uses.

A slice `p : p + BLOCK` of a dimension of size N says how `p` must advance to reach all of N. If `p` belongs to a
program, the grid has `al.cdiv(N, BLOCK)` programs along that axis, and `p` is the program's number times BLOCK. If a
loop binds `p`, the loop runs from 0 to N in steps of BLOCK. A statement that repeats another one is suspected, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product

from argus.agents.text_places import bindings, shape_of
from argus.agents.text_scope import Scope, Sort, TextEdit, computing
from argus.frontend.surface import (
    Assign,
    Binary,
    Call,
    Expression,
    ForStmt,
    IfStmt,
    Name,
    Slice,
    Statement,
    Subscript,
    TupleExpr,
)
from argus.knowledge.draft import Draft, every, expressions

Use = tuple[str, str]
"""The size of a dimension that a name indexes, and the extent of the tile that begins there; "" for an index."""
_MOST = 8
"""The most forms of one statement that are tried."""


def derived(draft: Draft, scope: Scope) -> Iterator[TextEdit]:
    """Yield the texts in which one statement agrees with the rest of the kernel."""
    yield from _doubles(draft, draft.function.body)
    uses = uses_of(draft)
    for statement in computing(draft):
        if isinstance(statement, Assign):
            grid = next((e for e in every(statement.value) if draft.called(e) == "grid"), None)
            if isinstance(grid, Call):
                yield from islice(_grid(draft, scope, uses, statement, grid), _MOST)
            yield from islice(_places(draft, scope, uses, statement), _MOST)
        elif isinstance(statement, ForStmt):
            yield from _head(draft, uses_of(draft, fixed=True), statement)


# ---------------------------------------------------------------------------- uses


def uses_of(draft: Draft, *, fixed: bool = False) -> dict[str, list[Use]]:
    """Return, for each name that indexes a tensor, the dimensions that it indexes; `fixed`: also those whose size is a
    number."""
    found: dict[str, dict[Use, None]] = {}
    for statement in computing(draft):
        for part in (p for e in expressions(statement) for p in every(e) if isinstance(p, Subscript)):
            for item, size in zip(part.items, shape_of(draft, part.value), strict=False):
                name, extent = _indexed(item)
                if name and (size.isidentifier() or (fixed and size.isdecimal())):
                    found.setdefault(name, {})[size, extent] = None
    return {name: list(dims) for name, dims in found.items()}


def _indexed(item: Expression | Slice) -> Use:
    """Return the name that an index begins with, and the extent of its slice; "" for other forms."""
    match item:
        case Slice(lower=Name(id=low), upper=Binary(op="+", left=Name(id=same), right=Name(id=extent))) if low == same:
            return low, extent
        case Name(id=name) | Subscript(value=Name(id=name)):
            return name, ""
        case _:
            return "", ""


# ---------------------------------------------------------------------------- forms


def _grid(draft: Draft, scope: Scope, uses: dict[str, list[Use]], statement: Assign, call: Call) -> Iterator[TextEdit]:
    """Yield grids that cover what the places of each program number index."""
    if not call.args:
        return
    choices = [_programs(draft, scope, uses, t.id) for t in statement.targets]
    if len(choices) != len(call.args):
        return
    old = [[draft.read(a)] for a in call.args]
    start, end = draft.place(call.args[0].span)[0], draft.place(call.args[-1].span)[1]
    for chosen in product(*(new or same for new, same in zip(choices, old, strict=True))):
        new = ", ".join(chosen)
        yield TextEdit(f"a grid of `{new}`", Sort.DERIVED, statement.span.line, ((start, end, new),))


def _programs(draft: Draft, scope: Scope, uses: dict[str, list[Use]], number: str) -> list[str]:
    """Return the numbers of programs that cover the dimensions which a program number leads to."""
    found: dict[str, None] = {f"{draft.language}.cdiv({s}, {x})" if x else s: None for s, x in uses.get(number, ())}
    for statement in computing(draft):
        for value, names in bindings(statement):
            read = {e.id for e in every(value) if isinstance(e, Name)}
            for size, extent in (u for name in names if number in read for u in uses.get(name, ())):
                for x in [extent] if extent else [n for n in scope.extents if n in read]:
                    found[f"{draft.language}.cdiv({size}, {x})"] = None
    return list(found)


def _places(draft: Draft, scope: Scope, uses: dict[str, list[Use]], statement: Assign) -> Iterator[TextEdit]:
    """Yield the places that reach all of the dimensions which they index; all that a statement binds at once."""
    names, value = [t.id for t in statement.targets], statement.value
    if not all(name in uses for name in names):
        return
    items = value.items if isinstance(value, TupleExpr) else ()
    apart = statement.unpack and len(items) == len(names)
    inner = value.value if isinstance(value, Subscript) and not statement.unpack else value
    ids = [n for n in scope.ids if n not in names]
    for chosen in product(*(_reaching(draft, scope, ids, uses[name]) for name in names)):
        if len(set(chosen)) == len(chosen):
            new = ", ".join(chosen)
            start, end = draft.place(inner.span)
            if apart:
                start, end = draft.place(items[0].span)[0], draft.place(items[-1].span)[1]
            text = f"({new})" if inner is not value else new
            yield TextEdit(f"`{new}`", Sort.DERIVED, statement.span.line, ((start, end, text),))


def _reaching(draft: Draft, scope: Scope, ids: list[str], uses: list[Use]) -> list[str]:
    """Return the forms of a place that reaches all of a dimension: by the program's number, or by a grid of its own."""
    al, found = draft.language, dict[str, None]()
    for size, extent in uses:
        numbers = _covering(draft, ids, size, extent)
        for x in [extent] if extent else scope.extents:
            begins = [f"{n} * {x}" for n in numbers] or [f"{al}.grid({al}.cdiv({size}, {x})) * {x}"]
            found |= {b if extent else f"{b} + {al}.arange({x})": None for b in begins if numbers or extent}
        if not extent and not ids:
            found[f"{al}.grid({size})"] = None
    return list(found)


def _covering(draft: Draft, ids: list[str], size: str, extent: str) -> list[str]:
    """Return the program numbers whose axis of the grid names a size and an extent; all numbers if there are none."""
    found = []
    for statement in computing(draft):
        if isinstance(statement, Assign) and draft.called(statement.value) == "grid":
            assert isinstance(statement.value, Call)
            for target, arg in zip(statement.targets, statement.value.args, strict=False):
                named = {e.id for e in every(arg) if isinstance(e, Name)}
                if size in named and (not extent or extent in named):
                    found.append(target.id)
    return [n for n in found if n in ids] or ids


def _head(draft: Draft, uses: dict[str, list[Use]], loop: ForStmt) -> Iterator[TextEdit]:
    """Yield the heads of a loop that reach all of the dimensions which its variable indexes."""
    call = loop.iterable
    if draft.called(call) not in ("range", "static_range", "pipelined") or not isinstance(call, Call) or not call.args:
        return
    start, end = draft.place(call.args[0].span)[0], draft.place(call.args[-1].span)[1]
    for size, extent in uses.get(loop.target.id, ()):
        new = f"0, {size}, {extent}" if extent else f"0, {size}"
        yield TextEdit(f"a loop over `{new}`", Sort.DERIVED, loop.span.line, ((start, end, new),))


# ---------------------------------------------------------------------------- repetitions


def _doubles(draft: Draft, body: tuple[Statement, ...]) -> Iterator[TextEdit]:
    """Leave out a statement that repeats one of the same block."""
    seen: set[str] = set()
    for statement in body:
        if isinstance(statement, ForStmt):
            yield from _doubles(draft, statement.body)
        elif isinstance(statement, IfStmt):
            yield from _doubles(draft, statement.then)
            yield from _doubles(draft, statement.orelse)
        else:
            text = draft.read(statement)
            if text in seen and "barrier" not in text:
                whole = (draft.starts[statement.span.line - 1], draft.starts[statement.span.end_line], "")
                yield TextEdit(f"without the repeated line {statement.span.line}", Sort.DERIVED, statement.span.line,
                               (whole,))  # fmt: skip
            seen.add(text)
