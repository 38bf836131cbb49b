"""Rewrites of the grid: the order of programs, the schedule of warps, and clusters."""

from __future__ import annotations

from argus.frontend.surface import Assign, Call
from argus.knowledge.draft import Draft, expressions, given, statements

_GROUP = 8


def _grid(draft: Draft, *without: str) -> Call | None:
    """Return the only call of `al.grid` if it has none of these options, else None."""
    calls = draft.calls("grid")
    if len(calls) != 1 or any(given(calls[0], name) is not None for name in without):
        return None
    return calls[0]


def persistent(draft: Draft) -> None:
    """Share the programs among as many blocks as run at once."""
    call = _grid(draft, "persistent")
    if call is not None:
        draft.keyword(call, "persistent", "True")


def group(draft: Draft) -> None:
    """Go through the tiles in groups of rows, column by column in each group."""
    call = _grid(draft, "group")
    if call is not None and len(call.args) > 1:
        draft.keyword(call, "group", "GROUP")
        draft.parameter("GROUP", _GROUP)


def rows_apart(draft: Draft) -> None:
    """Give each computing warpgroup its own rows of the tile."""
    _schedule(draft, "rows")


def turns(draft: Draft) -> None:
    """Let warpgroups with their own rows multiply one after the other."""
    _schedule(draft, "turns")


def pingpong(draft: Draft) -> None:
    """Let two groups of warps work on whole programs in turn."""
    _schedule(draft, "pingpong")


def _schedule(draft: Draft, name: str) -> None:
    call = _grid(draft)
    if call is None:
        return
    now = given(call, "schedule")
    if now is None or draft.read(now.value) != f'"{name}"':
        draft.keyword(call, "schedule", f'"{name}"')


def cluster(draft: Draft) -> None:
    """Run programs in clusters of two. Each loads part of the tiles that both read."""
    call = _grid(draft, "cluster")
    if call is not None and len(call.args) > 1:
        draft.keyword(call, "cluster", "2")


def exchange_axes(draft: Draft) -> None:
    """Let the second of two axes of the grid count fastest."""
    call = _grid(draft, "group", "cluster")
    for statement in statements(draft.function.body):
        if call is None or not isinstance(statement, Assign) or call not in expressions(statement):
            continue
        if len(statement.targets) == len(call.args) == 2 and statement.unpack:
            first, second = call.args
            one, other = statement.targets
            draft.replace(first, draft.read(second))
            draft.replace(second, draft.read(first))
            draft.replace(one, other.id)
            draft.replace(other, one.id)


def last_first(draft: Draft) -> None:
    """Run the last programs along the first axis of the grid first."""
    call = _grid(draft)
    for statement in statements(draft.function.body):
        if call is not None and isinstance(statement, Assign) and call in expressions(statement) and statement.unpack:
            name, al = statement.targets[0].id, draft.language
            if f"{al}.num_programs(0)" not in draft.text:
                draft.after(statement, f"{name} = {al}.num_programs(0) - 1 - {name}")
