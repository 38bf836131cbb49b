"""Rewrites of loops over tiles: staging, pipelines, producer warps, masks."""

from __future__ import annotations

from argus.frontend.surface import Assign, Call, Compare, Expression, ForStmt, IfStmt, Name, Statement, names
from argus.knowledge.draft import Draft, bound, every, expressions, given, statements

_STAGES, _PRODUCERS, _GATHERING = 3, 4, 8


def operands(draft: Draft) -> set[str]:
    """Return the names that matrix products read as operands and no other computation reads."""
    used: set[str] = set()
    elsewhere: set[str] = set()
    for statement in statements(draft.function.body):
        for expr in expressions(statement):
            if draft.called(expr) in ("assert_tags", "tag", "spec"):
                continue
            inside: list[str] = []
            for call in every(expr):
                if isinstance(call, Call) and draft.called(call) == "mma":
                    inside += [n for a in call.args[:2] for n in names(a)]
            used.update(inside)
            elsewhere.update(n for n in set(names(expr)) if list(names(expr)).count(n) > inside.count(n))
    return used - elsewhere


def stage_operands(draft: Draft) -> None:
    """Turn `x = al.load(...)` of a product's operand into `x = al.stage(...)`."""
    wanted = operands(draft)
    for statement in statements(draft.function.body):
        if not isinstance(statement, Assign) or bound(statement) not in wanted:
            continue
        call = statement.value
        if draft.called(call) == "load" and isinstance(call, Call) and _plain(call):
            draft.replace(call.function, f"{draft.language}.stage")


def _plain(call: Call) -> bool:
    return len(call.args) == 1 and all(k.name in ("boundary_check", "mask", "other") for k in call.keywords)


def staged_loop(draft: Draft) -> ForStmt | None:
    """Return the first loop, outer before inner, that stages tiles and multiplies."""
    for loop in draft.loops():
        if draft.calls("stage", within=loop.body) and draft.calls("mma", within=loop.body):
            return loop
    return None


def pipeline_loop(draft: Draft) -> None:
    """Turn `range(lo, hi, step)` around staged products into `al.pipelined(lo, hi, step, stages=STAGES)`."""
    loop = staged_loop(draft)
    if loop is None or draft.called(loop.iterable) != "range" or not isinstance(loop.iterable, Call):
        return
    args = [draft.read(a) for a in loop.iterable.args]
    if len(args) == 3:
        draft.replace(loop.iterable, f"{draft.language}.pipelined({', '.join(args)}, stages=STAGES)")
        draft.parameter("STAGES", _STAGES)


def producer_warps(draft: Draft) -> None:
    """Give the pipelined loop producer warps, which load its tiles."""
    _producers(draft, _PRODUCERS)


def gathering_producers(draft: Draft) -> None:
    """Give the pipelined loop twice as many producer warps, because threads gather the rows of a tile."""
    _producers(draft, _GATHERING)


def _producers(draft: Draft, warps: int) -> None:
    for loop in draft.loops():
        call = loop.iterable
        if isinstance(call, Call) and draft.called(call) == "pipelined" and given(call, "producer_warps") is None:
            draft.keyword(call, "producer_warps", str(warps))
            return


def read_once(draft: Draft) -> None:
    """Mark the last stage without `once`: nothing else reads its elements soon, so they leave the cache first."""
    calls = [c for c in draft.calls("stage") if given(c, "once") is None]
    if calls:
        draft.keyword(calls[-1], "once", "True")


def load_before(draft: Draft) -> None:
    """Move the first load of a loop that does not depend on the loop to before it."""
    for loop in draft.loops():
        inside = {t.id for s in statements(loop.body) for t in getattr(s, "targets", ())} | {loop.target.id}
        for statement in loop.body:
            if not isinstance(statement, Assign) or "load" not in {draft.called(e) for e in every(statement.value)}:
                continue
            written = sum(bound(s) == bound(statement) for s in statements(loop.body))
            if bound(statement) and written == 1 and not inside & set(names(statement.value)):
                draft.before(loop, draft.read(statement))
                draft.remove(statement)
                return


def mask_last_block(draft: Draft) -> None:
    """Apply a mask of a loop's elements, `x = al.where(place < end, x, c)`, in the last block only."""
    for loop in draft.loops():
        call = loop.iterable
        if not isinstance(call, Call) or len(call.args) < 3:
            continue
        end, step = draft.read(call.args[1]), draft.read(call.args[2])
        for statement in loop.body:
            if not isinstance(statement, IfStmt) and _masks(draft, statement, loop.target.id, end):
                indent = " " * (statement.span.column - 1)
                text = draft.read(statement).replace("\n", "\n    ")
                draft.replace(statement, f"if {end} < {loop.target.id} + {step}:\n{indent}    {text}")


def _masks(draft: Draft, statement: Statement, counter: str, end: str) -> bool:
    """Return True for `x = al.where(... counter ... < end, x, c)`."""
    if not isinstance(statement, Assign) or draft.called(statement.value) != "where":
        return False
    assert isinstance(statement.value, Call)
    if len(statement.value.args) != 3:
        return False
    mask, kept, _ = statement.value.args
    return _below(draft, mask, counter, end) and isinstance(kept, Name) and kept.id == bound(statement)


def _below(draft: Draft, mask: Expression, counter: str, end: str) -> bool:
    match mask:
        case Compare(first=first, ops=("<",), rest=(limit,)):
            return counter in names(first) and draft.read(limit) == end
        case _:
            return False
