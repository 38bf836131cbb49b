"""Repairs of places: where a program's tile begins, which elements it holds, how many programs there are, and masks.

These are the forms that kernels have: a tile begins at the program's number times its extent, its elements are those
from there on, a grid has as many programs as tiles cover a size, and a mask compares a place with the size that it runs
along. Which names these forms take, the kernel says: its program numbers, extents, sizes, and places of tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from argus.agents.text_scope import Scope, Sort, TextEdit, computing, names_bound
from argus.frontend.surface import Assign, Call, Expression, Literal, Name, Slice, Subscript, TupleExpr
from argus.knowledge.draft import Draft, every, expressions

Index = tuple[str, str]
"""A name or expression that indexes a dimension, and the size of the dimension."""


def places(draft: Draft, scope: Scope) -> Iterator[TextEdit]:
    """Yield the texts in which one place, grid or mask has one of its forms."""
    for statement in computing(draft):
        for value, names in bindings(statement):
            if any(name in scope.places for name in names):
                yield from _begins(draft, scope, statement.span.line, value)
        yield from _together(draft, scope, statement)
        for expr in expressions(statement):
            for part in every(expr):
                if draft.called(part) == "grid" and isinstance(part, Call):
                    yield from _grids(draft, scope, statement.span.line, part)
    yield from _masks(draft, scope)


def bindings(statement: object) -> Iterator[tuple[Expression, tuple[str, ...]]]:
    """Yield each value of an assignment with the names that it is bound to."""
    if not isinstance(statement, Assign):
        return
    names = tuple(names_bound(statement))
    if statement.unpack and isinstance(statement.value, TupleExpr):
        yield from ((item, (name,)) for item, name in zip(statement.value.items, names, strict=False))
    elif not statement.unpack:
        yield statement.value, names


def _begins(draft: Draft, scope: Scope, line: int, value: Expression) -> Iterator[TextEdit]:
    """Yield the beginnings of tiles, and their elements; brackets behind the elements stay."""
    inner = value.value if isinstance(value, Subscript) else value
    start, end = draft.place(inner.span)
    for number, extent in product(scope.ids, scope.extents):
        for new in (f"{number} * {extent} + {draft.language}.arange({extent})", f"{number} * {extent}"):
            text = f"({new})" if inner is not value else new
            yield TextEdit(f"`{new}`", Sort.PLACE, line, ((start, end, text),))


def _together(draft: Draft, scope: Scope, statement: object) -> Iterator[TextEdit]:
    """Yield the beginnings of tiles that one statement binds together, each along another axis of the grid."""
    if not isinstance(statement, Assign) or not isinstance(statement.value, TupleExpr):
        return
    items = statement.value.items
    if len(items) > 2 or not all(t.id in scope.places for t in statement.targets):
        return
    forms = [(number, f"{number} * {extent}") for number, extent in product(scope.ids, scope.extents)]
    for chosen in product(forms, repeat=len(items)):
        if len({number for number, _ in chosen}) == len(items):
            new = ", ".join(form for _, form in chosen)
            place = (draft.place(items[0].span)[0], draft.place(items[-1].span)[1])
            yield TextEdit(f"`{new}`", Sort.PLACE, statement.span.line, ((*place, new),))


def _grids(draft: Draft, scope: Scope, line: int, call: Call) -> Iterator[TextEdit]:
    for arg in call.args:
        for size, extent in product(scope.sizes, scope.extents):
            new = f"{draft.language}.cdiv({size}, {extent})"
            yield TextEdit(f"a grid of `{new}`", Sort.PLACE, line, ((*draft.place(arg.span), new),))


# ---------------------------------------------------------------------------- masks


def _masks(draft: Draft, scope: Scope) -> Iterator[TextEdit]:
    """Yield masks that compare the places of an access with the sizes of its dimensions."""
    named = {name: (s.span.line, v) for s in computing(draft) for v, names in bindings(s) for name in names}
    for statement in computing(draft):
        for expr in expressions(statement):
            for call in (c for c in every(expr) if isinstance(c, Call)):
                access = next((x for x in call.args[:1] if isinstance(x, Subscript)), None)
                mask = next((k.value for k in call.keywords if k.name == "mask"), None)
                if access is None or mask is None:
                    continue
                line, value = named.get(mask.id, (0, mask)) if isinstance(mask, Name) else (statement.span.line, mask)
                for new in _inside(draft, scope, access):
                    yield TextEdit(f"mask by `{new}`", Sort.PLACE, line, ((*draft.place(value.span), new),))


def _inside(draft: Draft, scope: Scope, access: Subscript) -> Iterator[str]:
    """Yield the conditions that one, and all, of an access' vectors of places are inside the tensor."""
    found = list(indices(draft, scope, access))
    yield from (f"{place} < {size}" for place, size in found)
    if len(found) == 2:
        (a, m), (b, n) = ((place.split("[")[0], size) for place, size in found)
        yield f"({a} < {m})[:, None] & ({b} < {n})[None, :]"
        yield f"({a} < {m}) & ({b} < {n})"


def indices(draft: Draft, scope: Scope, access: Subscript) -> Iterator[Index]:
    """Yield the names that index dimensions of a tensor, with the sizes of those."""
    shape = shape_of(draft, access.value)
    for item, size in zip(access.items, shape, strict=False):
        if not isinstance(item, Slice) and any(isinstance(e, Name) and e.id in scope.places for e in every(item)):
            name = item if isinstance(item, Name) else item.value if isinstance(item, Subscript) else None
            if isinstance(name, Name):
                yield name.id, size if size in scope.sizes else _read(draft, access.value, shape.index(size))


def _read(draft: Draft, tensor: Expression, dim: int) -> str:
    return f"{draft.read(tensor)}.shape[{dim}]"


def shape_of(draft: Draft, tensor: Expression) -> list[str]:
    """Return the names of a tensor's sizes, as its annotation has them; none for what is no parameter."""
    if not isinstance(tensor, Name):
        return []
    annotation = next((p.annotation for p in draft.function.params if p.name == tensor.id), None)
    if not isinstance(annotation, Subscript) or len(annotation.items) < 2:
        return []
    named = annotation.items[1]
    return named.value.split() if isinstance(named, Literal) and isinstance(named.value, str) else []
