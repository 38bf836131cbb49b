"""Rewrites of tiles: swapped operands, transposes through shared memory, and layouts there."""

from __future__ import annotations

from argus.frontend.surface import Assign, Call, Keyword, Literal, Name, TupleExpr
from argus.knowledge.draft import Draft, bound, every, expressions, given, statements


def swap_operands(draft: Draft) -> None:
    """Compute the transpose of the result, so that few rows become the columns of a tile."""
    products = draft.calls("mma")
    stores = draft.calls("store")
    accumulators = {c.args[2].id for c in products if len(c.args) == 3 and isinstance(c.args[2], Name)}
    if len(stores) != 1 or not products or len(accumulators) != len(products):
        return
    for call in products:
        first, second = draft.read(call.args[0]), draft.read(call.args[1])
        draft.replace(call.args[0], second)
        draft.replace(call.args[1], first)
    for statement in statements(draft.function.body):
        if not isinstance(statement, Assign) or bound(statement) not in accumulators:
            continue
        if isinstance(statement.value, Call) and draft.called(statement.value) == "zeros":
            shape = statement.value.args[0]
            if isinstance(shape, TupleExpr) and len(shape.items) == 2:
                draft.replace(shape, f"({draft.read(shape.items[1])}, {draft.read(shape.items[0])})")
    _transposed_store(draft, stores[0])


def _transposed_store(draft: Draft, store: Call) -> None:
    draft.replace(store.args[0], f"{draft.language}.trans({draft.read(store.args[0])})")
    mask, check = given(store, "mask"), given(store, "boundary_check")
    if mask is not None:
        turned = {"[:, None]": "[None, :]", "[None, :]": "[:, None]"}
        text = draft.read(mask.value)
        end = next((e for e in turned if text.endswith(e)), None)
        if end is not None:
            draft.replace(mask.value, text.removesuffix(end) + turned[end])
    if check is not None:
        _turned_check(draft, check)


def _turned_check(draft: Draft, check: Keyword) -> None:
    """Swap the dimension of a check of one dimension; a check of both stays as it is."""
    if isinstance(check.value, TupleExpr):
        dims = [1 - int(i.value) for i in check.value.items if isinstance(i, Literal) and isinstance(i.value, int)]
        if len(dims) == 1:
            draft.replace(check.value, f"({dims[0]},)")


def stage_transpose(draft: Draft) -> None:
    """Transpose a tile through shared memory, so that both its loads and its stores are contiguous."""
    for statement in statements(draft.function.body):
        for expr in expressions(statement):
            for call in every(expr):
                if not isinstance(call, Call) or draft.called(call) != "trans":
                    continue
                inner = call.args[0]
                if isinstance(inner, Call) and draft.called(inner) == "load":
                    al = draft.language
                    staged = f"{al}.stage({draft.read(inner).split('(', 1)[1]}"
                    draft.replace(call, f"{al}.load({al}.trans({staged}))")
                    return


def swizzle(draft: Draft) -> None:
    """Swizzle the shared tiles that have no layout, so that the threads of a warp use different banks."""
    for call in draft.calls("shared"):
        if given(call, "layout") is None and len(call.args) == 2:
            draft.keyword(call, "layout", f"{draft.language}.swizzle(3, 3, 3)")
