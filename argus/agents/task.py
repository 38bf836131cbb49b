"""The task of an optimisation: what a faster kernel must have in common with the author's kernel.

A repair keeps nearly everything (`contract`). An optimisation may rewrite all of a kernel but its task: its interface,
its results, and its demands on callers.
"""

from __future__ import annotations

from collections import Counter

from argus.agents.contract import written
from argus.ir.expr import Const, Expr, rewrite
from argus.ir.nodes import AssertTags, DevicePrint, Kernel, Requires, Spec, Stmt, Tag
from argus.ir.visit import walk
from argus.mutate import unspecified


def missing_task(author: Kernel) -> tuple[str, ...]:
    """Name the outputs that have no specification. Nothing says what a rewrite must compute there."""
    return unspecified(author)


def changed_task(author: Kernel, candidate: Kernel) -> str:
    """Name the part of the author's task that `candidate` changes; "" if it changes nothing.

    The task is: name, parameters, declared shapes, promises and target; which tensors are written; every specification,
    as the compiler understands it; the tags of parameters; at least as many assertions; nothing printed that the author
    does not print; and the preconditions, whose numbers alone may differ (see `specialised`).
    """
    for field in ("name", "params", "sizes", "invariants", "covers", "target"):
        if getattr(author, field) != getattr(candidate, field):
            return field
    for kind, title in ((Spec, "specifications"), (Tag, "tags of parameters")):
        if _stated(author, kind) != _stated(candidate, kind):
            return title
    if len(_all(candidate, AssertTags)) < len(_all(author, AssertTags)):
        return "assertions"
    if _printed(candidate) - _printed(author):
        return "prints"
    if written(author) != written(candidate):
        return "outputs"
    if len(author.preconditions) != len(candidate.preconditions):
        return "preconditions"
    pairs = zip(author.preconditions, candidate.preconditions, strict=True)
    return "" if all(a == c or _same_form(a, c) for a, c in pairs) else "preconditions"


def specialised(author: Kernel, candidate: Kernel) -> bool:
    """Return True if the preconditions differ from the author's; the candidate may then admit fewer sizes."""
    return author.preconditions != candidate.preconditions


def _same_form(author: object, candidate: object) -> bool:
    if not isinstance(author, Requires) or not isinstance(candidate, Requires):
        return False
    return _form(author.cond) == _form(candidate.cond)


def _form(expr: Expr) -> Expr:
    return rewrite(expr, lambda e: Const(0, e.dtype) if isinstance(e, Const) else None)


def _all(kernel: Kernel, kind: type[Stmt]) -> list[Stmt]:
    return [s for s in walk(kernel.body) if isinstance(s, kind)]


def _printed(kernel: Kernel) -> Counter[str]:
    return Counter(s.text for s in walk(kernel.body) if isinstance(s, DevicePrint))


def _stated(kernel: Kernel, kind: type[Stmt]) -> list[str]:
    """Return the statements of a kind about parameters, as the compiler understands them, in any order."""
    names = {t.name for t in kernel.tensors}
    return sorted(repr(s) for s in _all(kernel, kind) if getattr(s, "output", getattr(s, "obj", "")) in names)
