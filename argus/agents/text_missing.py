"""Repairs that write what is missing: a store of an output that nobody writes, and what a loop adds up.

A value that is computed and not used tells what is missing, and what a kernel does beside it tells the form.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from argus.agents.text_places import shape_of
from argus.agents.text_scope import Scope, Sort, TextEdit, computing, names_bound
from argus.frontend.surface import Assign, AugAssign, Binary, Call, ForStmt, Literal, Name, Slice, Subscript
from argus.knowledge.draft import Draft, every, expressions, statements

_MOST = 24
"""The most stores that are tried."""


def missing(draft: Draft, scope: Scope) -> Iterator[TextEdit]:
    """Yield the texts with one statement more: a store at the end, or a sum at the end of a loop."""
    yield from _stores(draft, scope)
    yield from _values(draft, scope)
    for loop in (s for s in statements(draft.function.body) if isinstance(s, ForStmt)):
        yield from _sums(draft, scope, loop)
    yield from _loads(draft, scope)


def _loads(draft: Draft, scope: Scope) -> Iterator[TextEdit]:
    """Use a tensor that nothing loads: loaded as another one of its shape is, in place of an operand."""
    used = {
        e.value.id
        for s in computing(draft)
        for x in expressions(s)
        for e in every(x)
        if isinstance(e, Subscript) and isinstance(e.value, Name)
    }
    unused = [n for n in scope.tensors if n not in used]
    loads = [c for c in _calls(draft, "load", "stage") if c.args and isinstance(c.args[0], Subscript)]
    for name, load in product(unused, loads):
        access = load.args[0]
        assert isinstance(access, Subscript)
        if shape_of(draft, access.value) != shape_of(draft, Name(name)):
            continue
        at, start = draft.place(load.span)[0], draft.place(access.value.span)
        new = draft.text[at : start[0]] + name + draft.text[start[1] : draft.place(load.span)[1]]
        for statement in computing(draft):
            for part in (p for x in expressions(statement) for p in every(x) if isinstance(p, Binary)):
                for side in (part.left, part.right):
                    change = (*draft.place(side.span), new)
                    yield TextEdit(f"`{new}` for `{draft.read(side)}`", Sort.MISSING, statement.span.line, (change,))


def _calls(draft: Draft, *names: str) -> list[Call]:
    return draft.calls(*names, within=draft.function.body)


def _stores(draft: Draft, scope: Scope) -> Iterator[TextEdit]:
    """Store what is computed and not used where the places of the output's dimensions are."""
    written = {c.args[0].value.id for c in _calls(draft, "store", "atomic_add")
               if c.args and isinstance(c.args[0], Subscript) and isinstance(c.args[0].value, Name)}  # fmt: skip
    specified = [c.args[0].id for c in _calls(draft, "spec") if c.args and isinstance(c.args[0], Name)]
    for name in (n for n in specified if n not in written):
        last = computing(draft)[-1]
        indent = " " * 4
        for new in [*_written(draft, scope, name)][:_MOST]:
            end = draft.starts[last.span.end_line]
            yield TextEdit(f"add `{new}`", Sort.MISSING, last.span.line, ((end, end, f"{indent}{new}\n"),))


def _written(draft: Draft, scope: Scope, output: str) -> Iterator[str]:
    items = [items_of(draft, size) for size in shape_of(draft, Name(output))]
    if not items or not all(items):
        return
    dtype = dtype_of(draft, output)
    values = [n for n in (*scope.dead, *reversed(scope.local)) if n not in scope.ids and n not in scope.places]
    for value, index in product(dict.fromkeys(values), product(*items)):
        if any(item[0] == f"{value}" for item in index):
            continue
        where = f"{output}[{', '.join(item for item, _ in index)}]"
        checks = [number for number, (item, _) in enumerate(index) if ":" in item]
        masks = [mask for _, mask in index if mask]
        options = (f", boundary_check=({', '.join(map(str, checks))},)" if checks else "") + (
            f", mask={masks[0]}" if len(masks) == 1 and not checks else ""
        )
        for form in _forms(draft, value, dtype):
            yield f"{draft.language}.store({where}, {form}{options})"
        yield f"{draft.language}.atomic_add({where}, {value}{options})"


def _forms(draft: Draft, value: str, dtype: str) -> tuple[str, ...]:
    """Return the forms in which a name may be stored."""
    al = draft.language
    return value, f"{value}.to({dtype})", f"{al}.load({value})", f"{al}.load({al}.trans({value}))"


def _values(draft: Draft, scope: Scope) -> Iterator[TextEdit]:
    """Store something computed where what is stored depends on no statement of the kernel."""
    computed = [n for n in reversed(scope.local) if n not in scope.ids and n not in scope.places]
    for call in _calls(draft, "store"):
        access = call.args[0] if len(call.args) > 1 else None
        if isinstance(access, Subscript) and isinstance(access.value, Name) and not _computed(draft, scope, call):
            dtype = dtype_of(draft, access.value.id)
            for new in (form for name in computed for form in _forms(draft, name, dtype)):
                change = (*draft.place(call.args[1].span), new)
                yield TextEdit(f"store `{new}`", Sort.DERIVED, call.span.line, (change,))


def _computed(draft: Draft, scope: Scope, store: Call) -> bool:
    """Return True if what is stored reads something that a statement computes or loads."""
    return any((isinstance(e, Name) and e.id in scope.local) or draft.called(e) == "load" for e in every(store.args[1]))


def items_of(draft: Draft, size: str) -> list[tuple[str, str]]:
    """Return the indices of a dimension of this size anywhere in the kernel, each with the mask of its access.

    Names and slices come before other expressions.
    """
    found: dict[tuple[str, str], None] = {}
    for call in _calls(draft, "load", "store", "stage", "atomic_add"):
        access = call.args[0] if call.args else None
        if not isinstance(access, Subscript):
            continue
        mask = next((draft.read(k.value) for k in call.keywords if k.name == "mask"), "")
        for item, extent in zip(access.items, shape_of(draft, access.value), strict=False):
            if extent == size:
                text = draft.text[slice(*draft.place(item.span))]
                found[text, "" if isinstance(item, Slice) else mask] = None
    return sorted(found, key=lambda pair: not pair[0].isidentifier() and ":" not in pair[0])


def dtype_of(draft: Draft, tensor: str) -> str:
    """Return the type of a tensor's elements, as its annotation has it."""
    annotation = next(p for p in draft.function.params if p.name == tensor).annotation
    if isinstance(annotation, Subscript) and annotation.items and not isinstance(annotation.items[0], Slice | Literal):
        return draft.read(annotation.items[0])
    return f"{draft.language}.float32"


def _sums(draft: Draft, scope: Scope, loop: ForStmt) -> Iterator[TextEdit]:
    """Yield edits that add what a loop computes to sums that are zero before the loop and that nothing changes."""
    inside = [s for s in statements(loop.body) if s in computing(draft)]
    if not inside:
        return
    changed = {s.target.id for s in inside if isinstance(s, AugAssign)}
    changed |= {n for s in inside if isinstance(s, Assign) for n in names_bound(s)}
    zero = [n for s in computing(draft) if isinstance(s, Assign) and draft.called(s.value) in ("zeros", "full")
            for n in names_bound(s) if n not in changed]  # fmt: skip
    tiles = [n for s in inside if isinstance(s, Assign) for n in names_bound(s)
             if any(isinstance(e, Call) for x in expressions(s) for e in every(x))]  # fmt: skip
    first = [n for n in tiles if n in scope.dead] or tiles
    last = inside[-1]
    end, indent = draft.starts[last.span.end_line], " " * (last.span.column - 1)
    al = draft.language
    for name in zero:
        products = [f"{name} = {al}.mma({a}, {b}, {name})" for a, b in product(first, tiles) if a != b]
        products += [f"{name} = {al}.mma({a}, {al}.trans({b}), {name})" for a, b in product(first, tiles) if a != b]
        sums = [f"{name} += {t}" for t in tiles]
        sums += [f"{name} += {al}.sum({t}, axis={axis})" for t in tiles for axis in (0, 1)]
        # Two tiles that nothing reads, in a loop that changes no sum: the product of both was lost.
        likely = Sort.DERIVED if len(set(first) & set(scope.dead)) == 2 else Sort.MISSING
        for new, sort in [*((p, likely) for p in products), *((s, Sort.MISSING) for s in sums)]:
            yield TextEdit(f"add `{new}`", sort, loop.span.line, ((end, end, f"{indent}{new}\n"),))
