"""Repairs of the author's text: every text that results from one small edit of a computing statement.

An edit replaces a name, a number, an operator or a function by another one of the same sort that the text contains or
the language offers; adds or removes an argument, a factor or a term; or moves a statement. The statements that say what
the kernel must compute (specifications, tags, assertions, preconditions) and the kernel's head are not edited.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from argus.agents.text_accesses import accesses
from argus.agents.text_derived import derived
from argus.agents.text_missing import missing
from argus.agents.text_places import places
from argus.agents.text_scope import Scope, Sort, TextEdit, computing
from argus.agents.text_specified import specified
from argus.frontend.surface import (
    Assign,
    Attribute,
    AugAssign,
    Binary,
    Call,
    Compare,
    Expression,
    ForStmt,
    IfStmt,
    Keyword,
    Literal,
    Name,
    Slice,
    Statement,
    Subscript,
    TupleExpr,
    Unary,
)
from argus.knowledge.draft import Draft, bound, every, expressions

_ARITHMETIC = ("+", "-", "*", "/", "//", "%")
_OPERATORS = {**dict.fromkeys(_ARITHMETIC, _ARITHMETIC), "&": "|", "|": "&"}
_COMPARED = ("<", "<=", ">", ">=", "==", "!=")
_FAMILIES = (
    ("sum", "max", "min"), ("maximum", "minimum"), ("load", "stage"), ("zeros", "full"), ("any", "all"),
    ("exp", "exp2", "rsqrt", "sqrt", "log", "log2", "cos", "sin", "tanh", "sigmoid", "abs", "erf"),
)  # fmt: skip
_CHECKS = ("(0,)", "(1,)", "(0, 1)", "(2,)", "(1, 2)")


def text_vocabulary(text: str, name: str) -> list[TextEdit]:
    """Return every edit of kernel `name`, in the order of the text. Raises `SourceError`.

    An edit comes once for each of its sorts, because a finding may suggest one of them and not the other.
    """
    draft = Draft.of(text, name)
    scope = Scope.of(draft)
    found: list[TextEdit] = []
    for statement in computing(draft):
        for expr in expressions(statement):
            for part in every(expr):
                found += _expression(draft, scope, statement, part)
        found += _statement(draft, scope, statement)
    found += _orders(draft, draft.function.body)
    found += [*derived(draft, scope), *accesses(draft, scope), *specified(draft, scope)]
    found += [*places(draft, scope), *missing(draft, scope)]
    return list({(e.apply(text), e.sort): e for e in reversed(found)}.values())[::-1]


def _expression(draft: Draft, scope: Scope, statement: Statement, part: Expression) -> Iterator[TextEdit]:
    line = statement.span.line

    def edit(title: str, sort: Sort, node: Expression, new: str) -> TextEdit:
        return TextEdit(title, sort, line, ((*draft.place(node.span), new),))

    match part:
        case Name(id=name):
            for other in scope.like(name):
                sort = Sort.DEAD if other in scope.dead else Sort.NAME
                yield edit(f"write `{other}` for `{name}`", sort, part, other)
            yield from _elsewhere(scope, line, draft.place(part.span), name)
            for other in scope.dead:
                if name in scope.local and name != other:
                    for op in "*+-/":
                        yield edit(f"`{name} {op} {other}` for `{name}`", Sort.DEAD, part, f"({name} {op} {other})")
                    for tail in ("[:, None]", "[None, :]"):
                        yield edit(f"scale `{name}` by `{other}`", Sort.DEAD, part, f"({name} * {other}{tail})")
        case Literal(value=int() | float() as value) if not isinstance(value, bool):
            now = draft.read(part)
            near = [str(value + 1), str(value - 1)] if isinstance(value, int) and value >= 0 else []
            for other in dict.fromkeys((*scope.numbers, *near)):
                if other != now and not other.startswith("-"):
                    yield edit(f"write {other} for {now}", Sort.NUMBER, part, other)
            for name in (*scope.fixed, *scope.dead, *scope.ids):
                sort = Sort.DEAD if name in scope.dead else Sort.OTHER
                yield edit(f"write `{name}` for {now}", sort, part, name)
        case Binary() | Compare():
            yield from _operators(draft, line, part)
        case Unary(operand=operand):
            yield edit("without the sign", Sort.OPERATOR, part, draft.read(operand))
        case Call():
            yield from _calls(draft, scope, line, part)
        case TupleExpr(items=items):
            for first, second in pairwise(items):
                here, there = draft.place(first.span), draft.place(second.span)
                changes = ((*here, draft.read(second)), (*there, draft.read(first)))
                yield TextEdit("exchange two values", Sort.EXCHANGE, line, changes)
        case _:
            pass
    if isinstance(part, Subscript):
        yield from _slices(draft, line, part)


def _elsewhere(scope: Scope, line: int, place: tuple[int, int], name: str) -> Iterator[TextEdit]:
    """Write names of another sort; those that nothing reads are likely, whatever their sort."""
    if name not in scope.fixed and name not in scope.local:
        return
    for other in dict.fromkeys((*scope.dead, *scope.ids, *scope.fixed, *scope.local)):
        if other != name and other not in scope.like(name):
            sort = Sort.DEAD if other in scope.dead else Sort.OTHER
            yield TextEdit(f"write `{other}` for `{name}`", sort, line, ((*place, other),))


def _operators(draft: Draft, line: int, part: Binary | Compare) -> Iterator[TextEdit]:
    left = part.left if isinstance(part, Binary) else part.first
    right = part.right if isinstance(part, Binary) else part.rest[0]
    if isinstance(part, Compare) and len(part.ops) != 1:
        return
    now = part.op if isinstance(part, Binary) else part.ops[0]
    a, b = draft.read(left), draft.read(right)
    between = (draft.place(left.span)[1], draft.place(right.span)[0])
    gap = draft.text[slice(*between)]
    whole = draft.place(part.span)
    for other in _OPERATORS.get(now, ()) if isinstance(part, Binary) else _COMPARED:
        if other != now:
            changes = ((*between, gap.replace(now, other, 1)),)
            yield TextEdit(f"write `{other}` for `{now}`", Sort.OPERATOR, line, changes)
    if now in ("-", "/", "//", "<", "<=", ">", ">="):
        yield TextEdit(f"exchange the sides of `{now}`", Sort.EXCHANGE, line, ((*whole, f"{b} {now} {a}"),))
    if now == "//" and isinstance(part, Binary):
        cdiv = f"{draft.language}.cdiv({a}, {b})"
        yield TextEdit("round up", Sort.FUNCTION, line, ((*whole, cdiv),))
    for kept in (a, b) if isinstance(part, Binary) else ():
        yield TextEdit(f"only `{kept}`", Sort.TERM, line, ((*whole, kept),))


def _calls(draft: Draft, scope: Scope, line: int, part: Call) -> Iterator[TextEdit]:
    name, place = draft.called(part), draft.place(part.span)
    if isinstance(part.function, Attribute) and name:
        for other in next((f for f in _FAMILIES if name in f), ()):
            if other != name:
                where = draft.place(part.function.span)
                new = f"{draft.language}.{other}"
                yield TextEdit(f"`{other}` for `{name}`", Sort.FUNCTION, line, ((*where, new),))
        if name == "cdiv" and len(part.args) == 2:
            down = f"{draft.read(part.args[0])} // {draft.read(part.args[1])}"
            yield TextEdit("round down", Sort.FUNCTION, line, ((*place, down),))
    if len(part.args) == 1 and name not in ("load", "store", "stage", "range", "arange", "grid"):
        yield TextEdit(f"without `{name or 'call'}`", Sort.TERM, line, ((*place, draft.read(part.args[0])),))
    for first, second in zip(part.args, part.args[1:], strict=False):
        changes = ((*draft.place(first.span), draft.read(second)), (*draft.place(second.span), draft.read(first)))
        yield TextEdit("exchange two arguments", Sort.EXCHANGE, line, changes)
    if name in ("load", "store", "stage"):
        yield from _checks(draft, scope, line, part)
    if name in ("range", "pipelined") and len(part.args) == 2:
        for extent in scope.extents:
            yield TextEdit(f"steps of `{extent}`", Sort.OPTION, line, (_inserted(draft, part.args[1], extent),))
    for keyword in part.keywords:
        yield TextEdit(f"without `{keyword.name}`", Sort.OPTION, line, (_without(draft, keyword),))
    if name in ("sum", "max", "min") and part.args:
        given = [draft.place(k.value.span) for k in part.keywords if k.name == "axis"]
        for axis in (0, 1, 2):
            change = (*given[0], str(axis)) if given else _added(draft, part, f"axis={axis}")
            yield TextEdit(f"along axis {axis}", Sort.OPTION, line, (change,))


def _checks(draft: Draft, scope: Scope, line: int, part: Call) -> Iterator[TextEdit]:
    given = {k.name: k for k in part.keywords}
    for check in _CHECKS:
        if "boundary_check" in given:
            place = draft.place(given["boundary_check"].value.span)
            yield TextEdit(f"check {check}", Sort.CHECK, line, ((*place, check),))
        else:
            yield TextEdit(f"check {check}", Sort.CHECK, line, (_added(draft, part, f"boundary_check={check}"),))
    if "mask" not in given and "boundary_check" not in given:
        for name in (n for n in scope.local if "mask" in n or "live" in n or "inside" in n or n in scope.dead):
            yield TextEdit(f"mask by `{name}`", Sort.CHECK, line, (_added(draft, part, f"mask={name}"),))
    if "other" not in given and given and draft.called(part) == "load":
        for value in ('-float("inf")', '-float("inf")', "0.0", "1.0"):
            yield TextEdit(f"pad with {value}", Sort.CHECK, line, (_added(draft, part, f"other={value}"),))
    elif "other" in given:
        for value in ('-float("inf")', 'float("inf")', "0.0", "1.0"):
            place = draft.place(given["other"].value.span)
            yield TextEdit(f"pad with {value}", Sort.CHECK, line, ((*place, value),))


def _added(draft: Draft, call: Call, argument: str) -> tuple[int, int, str]:
    end = draft.place(call.span)[1] - 1
    before = draft.text[:end].rstrip()
    return len(before), len(before), (" " if before.endswith(",") else "" if before.endswith("(") else ", ") + argument


def _inserted(draft: Draft, after: Expression, argument: str) -> tuple[int, int, str]:
    end = draft.place(after.span)[1]
    return end, end, f", {argument}"


def _without(draft: Draft, keyword: Keyword) -> tuple[int, int, str]:
    start, end = draft.place(keyword.span)
    comma = draft.text[:start].rstrip()
    return (len(comma) - 1, end, "") if comma.endswith(",") else (start, end, "")


def _slices(draft: Draft, line: int, part: Subscript) -> Iterator[TextEdit]:
    """Exchange two adjacent indices, or let a slice end where its tile ends."""
    for first, second in zip(part.items, part.items[1:], strict=False):
        one, other = draft.place(first.span), draft.place(second.span)
        changes = ((*one, draft.text[slice(*other)]), (*other, draft.text[slice(*one)]))
        yield TextEdit("exchange two indices", Sort.EXCHANGE, line, changes)
    for item in part.items:
        if isinstance(item, Slice) and item.lower is not None and isinstance(item.upper, Binary):
            lower, upper = draft.read(item.lower), item.upper
            if draft.read(upper.left) != lower:
                changes_ = ((*draft.place(upper.left.span), lower),)
                yield TextEdit(f"a slice that begins and ends by `{lower}`", Sort.NAME, line, changes_)
                begins = ((*draft.place(item.lower.span), draft.read(upper.left)),)
                yield TextEdit(f"a slice from `{draft.read(upper.left)}`", Sort.NAME, line, begins)


def _statement(draft: Draft, scope: Scope, statement: Statement) -> Iterator[TextEdit]:
    """Add a barrier, bind another name, add up instead of binding, keep a result, or leave the statement out."""
    line = statement.span.line
    start, end = draft.place(statement.span)
    indent = " " * (statement.span.column - 1)
    barrier = f"{draft.language}.barrier()\n{indent}"
    if isinstance(statement, Assign | AugAssign):
        target = statement.targets[0] if isinstance(statement, Assign) else statement.target
        if not isinstance(statement, Assign) or not statement.unpack:
            value = draft.read(statement.value)
            for other in ("=", "+=", "-=", "*="):
                new = f"{target.id} {other} {value}"
                yield TextEdit(f"write `{other}`", Sort.OPERATOR, line, ((start, end, new),))
            for name in scope.like(target.id):
                yield TextEdit(f"bind `{name}`", Sort.NAME, line, ((*draft.place(target.span), name),))
    if not isinstance(statement, ForStmt | IfStmt):
        yield TextEdit(f"a barrier before line {line}", Sort.ORDER, line, ((start, start, barrier),))
        yield TextEdit(f"without line {line}", Sort.ORDER, line, (_whole(draft, statement, ""),))
        for name in scope.dead:
            for old in (n for n in scope.local if n != name and n != bound(statement)):
                new = f"\n{indent}{old} = {name}"
                yield TextEdit(f"then `{old} = {name}`", Sort.DEAD, line, ((end, end, new),))


def _whole(draft: Draft, statement: Statement, new: str) -> tuple[int, int, str]:
    return draft.starts[statement.span.line - 1], draft.starts[statement.span.end_line], new


def _orders(draft: Draft, body: tuple[Statement, ...]) -> Iterator[TextEdit]:
    """Exchange adjacent statements, move the last statement before a loop into the loop, and the first statement of a
    loop before it."""
    for one, other in pairwise(body):
        if isinstance(one, IfStmt | ForStmt) or isinstance(other, IfStmt):
            continue
        if isinstance(other, ForStmt):
            text = draft.text[slice(*_whole(draft, one, "")[:2])]
            inside = draft.starts[other.span.end_line]
            deeper = (inside, inside, "    " + text.replace("\n    ", "\n        "))
            yield TextEdit("into the loop", Sort.ORDER, one.span.line, (_whole(draft, one, ""), deeper))
            continue
        a, b = _whole(draft, one, ""), _whole(draft, other, "")
        changes = ((a[0], a[1], draft.text[b[0] : b[1]]), (b[0], b[1], draft.text[a[0] : a[1]]))
        yield TextEdit("exchange with the next line", Sort.ORDER, one.span.line, changes)
    for statement in body:
        if isinstance(statement, ForStmt):
            first = statement.body[0]
            if not isinstance(first, ForStmt | IfStmt):
                text = draft.text[slice(*_whole(draft, first, "")[:2])]
                head = draft.starts[statement.span.line - 1]
                outside = text.replace("\n    ", "\n")[4:]
                yield TextEdit("before the loop", Sort.ORDER, first.span.line,
                               (_whole(draft, first, ""), (head, head, outside)))  # fmt: skip
            yield from _orders(draft, statement.body)
        elif isinstance(statement, IfStmt):
            yield from _orders(draft, statement.then)
