"""Rewrites of arithmetic that keep its value over the real numbers; rounding may change."""

from __future__ import annotations

from argus.frontend.surface import Assign, AugAssign, Binary, Call, Expression, ForStmt, Literal, Name, Statement
from argus.knowledge.draft import Draft, bound, every, expressions, free_name, statements

LOG2E = "1.4426950408889634"
_OUTER = ("spec", "tag", "assert_tags", "requires", "assume")


def _computing(draft: Draft) -> list[tuple[Statement, Expression]]:
    """Return the expressions of the statements that compute, each with its statement."""
    return [(s, e) for s in statements(draft.function.body) for e in expressions(s) if draft.called(e) not in _OUTER]


def base_2(draft: Draft) -> None:
    """Turn `al.exp(x)` into `al.exp2(x * log2(e))`: the machine only has powers of two."""
    for _, expr in _computing(draft):
        for call in every(expr):
            if isinstance(call, Call) and draft.called(call) == "exp":
                draft.replace(call.function, f"{draft.language}.exp2")
                start, end = draft.place(call.args[0].span)
                simple = isinstance(call.args[0], Name | Call)
                draft.edits.append((start, start, "" if simple else "("))
                draft.edits.append((end, end, f" * {LOG2E}" if simple else f") * {LOG2E}"))


def divide_once(draft: Draft) -> None:
    """Turn the first `x / total` into `x * inverse`; the inverse is computed once, before the statement."""
    for statement, expr in _computing(draft):
        for quotient in every(expr):
            match quotient:
                case Binary(op="/", left=left, right=Name(id=total)) if not _number(left):
                    inverse = free_name(draft, "inverse")
                    draft.before(statement, f"{inverse} = 1.0 / {total}")
                    draft.replace(quotient, f"{draft.read(left)} * {inverse}")
                    return
                case _:
                    pass


def inverse_root(draft: Draft) -> None:
    """Turn `1.0 / al.sqrt(x)` into `al.rsqrt(x)`, which is one instruction."""
    for _, expr in _computing(draft):
        for quotient in every(expr):
            match quotient:
                case Binary(op="/", left=Literal(value=1 | 1.0), right=Call() as root) if draft.called(root) == "sqrt":
                    draft.replace(quotient, f"{draft.language}.rsqrt({draft.read(root.args[0])})")
                case _:
                    pass


def _number(expr: Expression) -> bool:
    return not isinstance(expr, Name | Call | Binary)


def fuse(draft: Draft) -> None:
    """Turn `(x - y) * c` into `al.fma(x, c, -y * c)`: if y is one number per row, one instruction replaces two."""
    for _, expr in _computing(draft):
        for product in every(expr):
            match product:
                case Binary(op="*", left=Binary(op="-", left=Name(id=x), right=y), right=Name(id=c)):
                    draft.replace(product, f"{draft.language}.fma({x}, {c}, -{draft.read(y)} * {c})")
                case _:
                    pass


def reduce_at_the_end(draft: Draft) -> None:
    """Turn `total += al.sum(e)` in a loop into `parts += e`, a tile of partial sums that is summed after the loop."""
    for loop in draft.loops():
        for statement in loop.body:
            found = _summed(draft, statement)
            if found is not None and _has_step(loop):
                _delay(draft, loop, statement, *found)
                return


def _summed(draft: Draft, statement: Statement) -> tuple[str, str] | None:
    """Return the name and the tile of `total += al.sum(tile)` or `total = total + al.sum(tile)`."""
    match statement:
        case AugAssign(target=target, op="+=" | "+", value=value):
            name = target.id
        case Assign(value=Binary(op="+", left=Name(id=left), right=value)) if left == bound(statement):
            name = left
        case _:
            return None
    if draft.called(value) != "sum" or not isinstance(value, Call):
        return None
    return name, draft.read(value.args[0])


def _has_step(loop: ForStmt) -> bool:
    return isinstance(loop.iterable, Call) and len(loop.iterable.args) == 3


def _delay(draft: Draft, loop: ForStmt, statement: Statement, name: str, tile: str) -> None:
    assert isinstance(loop.iterable, Call)
    step, parts = draft.read(loop.iterable.args[2]), free_name(draft, "parts")
    draft.before(loop, f"{parts} = {draft.language}.zeros(({step},), {draft.language}.float32)")
    draft.replace(statement, f"{parts} += {tile}")
    draft.after(loop, f"{name} = {name} + {draft.language}.sum({parts}, axis=0)")
