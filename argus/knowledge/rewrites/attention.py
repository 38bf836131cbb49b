"""Rewrites of loops with two products, as in attention: products of different iterations run side by side."""

from __future__ import annotations

import re

from argus.frontend.surface import (
    Assign,
    Attribute,
    Binary,
    Call,
    ForStmt,
    Name,
    Slice,
    Statement,
    Subscript,
)
from argus.knowledge.draft import Draft, bound, every, free_name

_WORD = re.compile(r"\w+")


def rotate(draft: Draft) -> None:
    """Delay the loop's last product by one iteration, so that it runs beside the work between the two products.

    `p` is kept from one iteration to the next, the second operand's tile belongs to the iteration before, and the very
    last product follows the loop.
    """
    for loop in draft.loops():
        products = [s for s in loop.body if isinstance(s, Assign) and draft.called(s.value) == "mma"]
        if len(products) == 2 and isinstance(loop.iterable, Call) and len(loop.iterable.args) == 3:
            _rotate(draft, loop, products[0], products[1])
            return


def _rotate(draft: Draft, loop: ForStmt, first: Assign, last: Assign) -> None:
    weights, tile = _weights(draft, loop, last), _tile(draft, loop, last)
    shape = _shape(draft, first)
    if weights is None or tile is None or shape is None or draft.read(loop.iterable.args[0]) != "0":  # type: ignore[union-attr]
        return
    assert isinstance(loop.iterable, Call)
    counter, (end, step) = loop.target.id, (draft.read(a) for a in loop.iterable.args[1:])
    al, place = draft.language, free_name(draft, "last")
    name, dtype = weights
    statement, part = tile
    here = f"{counter} : {counter} + {step}"
    text = draft.read(statement)
    if text.count(here) != 1:
        return
    product = draft.read(last)
    draft.before(loop, f"{name} = {al}.zeros({shape}, {dtype})")
    draft.replace(statement, text.replace(here, f"{counter} - {step} : {counter}"))
    draft.after(first, f"if {counter} > 0:", f"    {product}")
    draft.remove(last)
    behind = draft.read(part).replace(here, f"{place} : {place} + {step}")
    draft.after(loop, f"{place} = ({al}.cdiv({end}, {step}) - 1) * {step}",
                f"{bound(statement)} = {text[len(bound(statement)) + 3 :].replace(draft.read(part), behind)}",
                product)  # fmt: skip


def _weights(draft: Draft, loop: ForStmt, last: Assign) -> tuple[str, str] | None:
    """Return name and dtype of the last product's left operand, which the loop computes as `p = w.to(dtype)`."""
    assert isinstance(last.value, Call)
    name = draft.read(last.value.args[0])
    for statement in loop.body:
        if isinstance(statement, Assign) and bound(statement) == name and isinstance(statement.value, Call):
            function = statement.value.function
            if isinstance(function, Attribute) and function.name == "to":
                return name, draft.read(statement.value.args[0])
    return None


def _tile(draft: Draft, loop: ForStmt, last: Assign) -> tuple[Assign, Subscript] | None:
    """Return the statement that stages or loads the right operand of the last product, and the view in it."""
    assert isinstance(last.value, Call)
    wanted = draft.read(last.value.args[1])
    for statement in loop.body:
        if isinstance(statement, Assign) and draft.called(statement.value) in ("stage", "load"):
            assert isinstance(statement.value, Call)
            name, view = bound(statement), statement.value.args[0]
            sliced = isinstance(view, Subscript) and any(isinstance(i, Slice) for i in view.items)
            if name and name in wanted and sliced and isinstance(view, Subscript):
                return statement, view
    return None


def _shape(draft: Draft, first: Assign) -> str | None:
    """Return the shape of the accumulator that the first product makes."""
    for call in every(first.value):
        if isinstance(call, Call) and draft.called(call) == "zeros":
            return draft.read(call.args[0])
    return None


def scale_early(draft: Draft) -> None:
    """Move `acc = acc * shrink[...]` in a loop up to where `shrink` is computed, if nothing between reads `acc`.

    What follows then finds the registers of the product before free.
    """
    for loop in draft.loops():
        for place, statement in enumerate(loop.body):
            factor = _factor(draft, statement)
            first = next((n for n, s in enumerate(loop.body[:place]) if factor and bound(s) == factor), place)
            between = loop.body[first + 1 : place]
            if between and not any(bound(statement) in _names(draft, s) for s in between):
                draft.after(loop.body[first], draft.read(statement))
                draft.remove(statement)
                return


def _factor(draft: Draft, statement: Statement) -> str:
    """Return the name y of a statement `x = x * y[...]`; "" for any other statement."""
    match statement:
        case Assign(value=Binary(op="*", left=Name(id=left), right=Subscript(value=Name(id=factor)))):
            return factor if left == bound(statement) else ""
        case _:
            return ""


def _names(draft: Draft, statement: Statement) -> set[str]:
    return set(_WORD.findall(draft.read(statement)))
