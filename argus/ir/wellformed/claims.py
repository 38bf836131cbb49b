"""Rules of statements that only make claims: tags, assertions and specifications."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from typing_extensions import assert_never

from argus.ir.expr import REDUCTIONS
from argus.ir.nodes import (
    Access,
    AssertTags,
    DataValue,
    Fragment,
    Once,
    Shared,
    Spec,
    SpecOp,
    SpecReduce,
    SpecSoftmax,
    SpecTerm,
    Tag,
    TagCondition,
    TagEqual,
    TagField,
    TagTerm,
    TagTuple,
    Tensor,
)
from argus.ir.statement import Problem
from argus.ir.typing_rules import Scope
from argus.ir.wellformed.site import Site, access, expressions
from argus.source import Span

ANYTHING = (Tensor, Shared, Fragment)
"""All kinds of memory objects."""


def tag(stmt: Tag, site: Site) -> Iterator[Problem]:
    """Check that a tag has as many variables as its object has dimensions, and that its fields have distinct names."""
    target = site.scope.objects.get(stmt.obj)
    if target is None or len(target.shape) != len(stmt.shape):
        yield f"there is no memory object `{stmt.obj}` of {len(stmt.shape)} dimensions", stmt.span
    names = [name for name, _ in stmt.fields]
    if len(set(names)) != len(names):
        yield f"the tag of `{stmt.obj}` has two fields of one name", stmt.span


def assertion(stmt: AssertTags, site: Site) -> Iterator[Problem]:
    """Check that an assertion names each of its variables."""
    if len(stmt.names) != len(stmt.shape):
        yield f"{len(stmt.names)} names for {len(stmt.shape)} quantified variables", stmt.span


def specification(stmt: Spec, site: Site) -> Iterator[Problem]:
    """Check that a specification is about a tensor, in the tensor's dimensions or in the variables of the part that is
    written."""
    target = site.scope.objects.get(stmt.output)
    rank = None if not isinstance(target, Tensor) else site.scope.variables.get(stmt.output, len(target.shape))
    if rank != len(stmt.names):
        yield f"`{stmt.output}` is not a tensor of {len(stmt.names)} dimensions", stmt.span


def condition(found: TagCondition, scope: Scope, span: Span) -> Iterator[Problem]:
    """Yield the problems of a condition on tags."""
    match found:
        case TagEqual(left=left, right=right):
            yield from term(left, scope, span)
            yield from term(right, scope, span)
        case TagTuple(elem=elem, terms=terms):
            yield from expressions((elem,), scope, span)
            for each in terms:
                yield from term(each, scope, span)
        case _:
            assert_never(found)


def term(found: TagTerm, scope: Scope, span: Span) -> Iterator[Problem]:
    """Yield the problems of a term of a tag."""
    match found:
        case TagField(elem=elem):
            yield from expressions((elem,), scope, span)
        case Once(lo=lo, hi=hi):
            yield from expressions((lo, hi), scope, span)
        case DataValue(tensor=tensor, index=index):
            yield from access(Access(tensor, index), scope, (Tensor,), span)
        case _:
            yield from expressions((found,), scope, span)


def meaning(found: SpecTerm, scope: Scope, span: Span) -> Iterator[Problem]:
    """Yield the problems of a term of a specification."""
    match found:
        case SpecReduce(op=op, axis=axis, extent=extent, body=body):
            if op not in (*REDUCTIONS, "logaddexp"):
                yield f"`{op}` is not a reduction", span
            if axis in scope.axes:
                yield f"the bound variable c{axis} is bound already", span
            yield from expressions((extent,), scope, span)
            yield from meaning(body, replace(scope, axes=scope.axes | {axis}), span)
        case SpecSoftmax(axis=axis, extent=extent, at=at, score=score):
            if axis in scope.axes:
                yield f"the bound variable c{axis} is bound already", span
            yield from expressions((extent, at), scope, span)
            yield from meaning(score, replace(scope, axes=scope.axes | {axis}), span)
        case SpecOp(args=args):
            for arg in args:
                yield from meaning(arg, scope, span)
        case _:
            yield from expressions((found,), scope, span)
