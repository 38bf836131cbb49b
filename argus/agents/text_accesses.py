"""Repairs of accesses by the other accesses of a kernel: each index of a dimension, and the mask that follows from it.

Most accesses of one kernel index the dimensions of one size alike. An access that does not is suspected, and so is its
mask. A tensor that nobody loads, beside a tile that nobody writes, tells of a lost copy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice, product

from argus.agents.text_places import shape_of
from argus.agents.text_scope import Scope, Sort, TextEdit, computing, names_bound
from argus.frontend.surface import Assign, Call, Name, Statement, Subscript
from argus.knowledge.draft import Draft, every, expressions

_MOST = 4
"""The most copies that are tried for one tile."""

Change = tuple[int, int, str]


def accesses(draft: Draft, scope: Scope) -> Iterator[TextEdit]:
    """Yield the texts in which the accesses of one statement agree with the others, and those with a lost copy."""
    usual = {size: max(count, key=lambda text: (count[text], text.isidentifier()))
             for size, count in _counted(draft).items()}  # fmt: skip
    for statement in computing(draft):
        found = [_agreeing(draft, scope, usual, call) for call in _moves(draft, statement)]
        if any(indices for indices, _ in found):
            title = f"index line {statement.span.line} as the others are"
            changes = tuple(change for indices, masks in found for change in (*indices, *masks))
            yield TextEdit(title, Sort.DERIVED, statement.span.line, changes)
    yield from _copies(draft, usual)


def _moves(draft: Draft, statement: Statement) -> Iterator[Call]:
    """Yield the calls of a statement that access a tensor with indices."""
    for expr in expressions(statement):
        for part in every(expr):
            moves = draft.called(part) in ("load", "store", "stage", "atomic_add")
            if moves and isinstance(part, Call) and part.args and isinstance(part.args[0], Subscript):
                yield part


def _counted(draft: Draft) -> dict[str, Counter[str]]:
    """Count, for each size, the texts that index a dimension of that size."""
    found: dict[str, Counter[str]] = {}
    for call in (c for s in computing(draft) for c in _moves(draft, s)):
        access = call.args[0]
        assert isinstance(access, Subscript)
        for item, size in zip(access.items, shape_of(draft, access.value), strict=False):
            if size.isidentifier():
                found.setdefault(size, Counter())[draft.text[slice(*draft.place(item.span))]] += 1
    return found


def _agreeing(draft: Draft, scope: Scope, usual: dict[str, str], call: Call) -> tuple[list[Change], list[Change]]:
    """Return the changes of the indices of an access, and those of its mask, with which it agrees with the others."""
    access = call.args[0]
    assert isinstance(access, Subscript)
    shape = shape_of(draft, access.value)
    old = [draft.text[slice(*draft.place(item.span))] for item in access.items]
    if len(shape) != len(old):
        return [], []
    new = [usual.get(size, text) for size, text in zip(shape, old, strict=True)]
    indices = [(*draft.place(item.span), text) for item, text, same in zip(access.items, new, old, strict=True)
               if text != same]  # fmt: skip
    mask = next((k.value for k in call.keywords if k.name == "mask"), None)
    within = [f"{i} < {size}" for i, size in zip(new, shape, strict=True) if i in scope.places and i not in scope.ids]
    if mask is None or isinstance(mask, Name) or not within:
        return indices, []
    text = within[0] if len(within) == 1 else " & ".join(f"({w})" for w in within)
    return indices, [(*draft.place(mask.span), text)] if draft.read(mask) != text else []


def _copies(draft: Draft, usual: dict[str, str]) -> Iterator[TextEdit]:
    """Yield copies of a tensor that nobody accesses to a tile of shared memory that nobody writes."""
    al = draft.language
    calls = [c for s in computing(draft) for e in expressions(s) for c in every(e) if isinstance(c, Call)]
    seen = {e.id for c in calls for x in c.args for e in every(x) if isinstance(e, Name)}
    stored = {c.args[0].id for c in calls if draft.called(c) == "store" and c.args and isinstance(c.args[0], Name)}
    tiles = [n for s in computing(draft) if isinstance(s, Assign) and draft.called(s.value) == "shared"
             for n in names_bound(s) if n not in stored]  # fmt: skip
    tensors = [p.name for p in draft.function.params if p.name not in seen and shape_of(draft, Name(p.name))]
    for tile, tensor in islice(product(tiles, tensors), _MOST):
        items = [usual.get(size, "") for size in shape_of(draft, Name(tensor))]
        checks = "".join(f"{place}, " for place, item in enumerate(items) if ":" in item)
        checked = f", boundary_check=({checks.strip()})" if checks else ""
        new = f"{al}.store({tile}, {al}.load({tensor}[{', '.join(items)}]{checked}))"
        yield from _behind(draft, new)


def _behind(draft: Draft, new: str) -> Iterator[TextEdit]:
    """Yield the text with a statement behind the last one that binds a name of it."""
    named = set(re.findall(r"\w+", new))
    bindings = [s for s in computing(draft) if isinstance(s, Assign) and named.intersection(names_bound(s))]
    if bindings:
        last = max(bindings, key=lambda s: s.span.end_line)
        end, indent = draft.starts[last.span.end_line], " " * (last.span.column - 1)
        yield TextEdit(f"add `{new}`", Sort.DERIVED, last.span.line, ((end, end, f"{indent}{new}\n"),))
