"""Rewrites of kernels in which each program has one row."""

from __future__ import annotations

from argus.frontend.surface import Assign, Call, Name, Subscript
from argus.knowledge.draft import Draft, bound, every, expressions, given, statements

_ROWS = 4
_REDUCTIONS = ("sum", "max", "min")
_STATING = ("spec", "tag", "assert_tags", "requires")


def several(draft: Draft) -> None:
    """Give each program ROWS rows instead of one: more loads are in flight, and several rows share each reduction."""
    row, extent = _row(draft)
    if not row:
        return
    draft.parameter("ROWS", _ROWS)
    for statement in statements(draft.function.body):
        for expr in expressions(statement):
            if draft.called(expr) in _STATING:
                continue
            for call in every(expr):
                if isinstance(call, Call):
                    _widened(draft, call, row, extent)


def _row(draft: Draft) -> tuple[str, str]:
    """Widen `row = al.grid(M)` to ROWS rows; return the names of the row and of the extent, or two empty texts."""
    for statement in draft.function.body:
        if isinstance(statement, Assign) and bound(statement) and draft.called(statement.value) == "grid":
            call = statement.value
            if isinstance(call, Call) and len(call.args) == 1 and not call.keywords and isinstance(call.args[0], Name):
                extent, al = call.args[0].id, draft.language
                draft.replace(call, f"{al}.grid({al}.cdiv({extent}, ROWS)) * ROWS + {al}.arange(ROWS)")
                return bound(statement), extent
    return "", ""


def _widened(draft: Draft, call: Call, row: str, extent: str) -> None:
    name = draft.called(call)
    if name in _REDUCTIONS:
        axis = given(call, "axis")
        if axis is not None:
            draft.replace(axis.value, "1")
            draft.keyword(call, "keep_dims", "True")
    elif name in ("load", "store") and isinstance(call.args[0], Subscript):
        items = [i for i in call.args[0].items if isinstance(i, Name) and i.id == row]
        for item in items:
            draft.replace(item, f"{row}[:, None]")
        if items:
            _masked(draft, call, f"({row} < {extent})[:, None]")


def _masked(draft: Draft, call: Call, inside: str) -> None:
    mask = given(call, "mask")
    if mask is None:
        draft.keyword(call, "mask", inside)
        return
    old = draft.read(mask.value)
    draft.replace(mask.value, f"{inside} & {old}" if isinstance(mask.value, Name) else f"{inside} & ({old})")
