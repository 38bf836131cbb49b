"""Laws of the comparison: what the laws of rings make of a term equals it, and equal terms have equal values."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from argus.compile import elaborate, lower
from argus.frontend.options import Options
from argus.ir.expr import Const, Coord, Elem, Expr, Op, Param, op
from argus.ir.nodes import SpecOp, SpecReduce, SpecTerm
from argus.ir.spec_terms import strip
from argus.ir.types import float32
from argus.source import SourceFile
from argus.verify.model.isl import UnionSet
from argus.verify.model.relations import Model
from argus.verify.values.compare import Comparison
from argus.verify.values.data_flow import DataFlow
from argus.verify.values.scope import Mismatch, Scope
from argus.verify.values.stated import Stated
from argus.verify.values.term_builder import TermBuilder

EXTENT = 3
TENSORS = {"x": [0.5, -1.25, 2.0], "w": [1.5, 0.75, -0.5]}
SCALARS = {"a": 1.75, "b": -0.625}


def binary(name: str, a: SpecTerm, b: SpecTerm) -> SpecTerm:
    return SpecOp(name, (a, b), float32)


def element(tensor: str, axis: int) -> SpecTerm:
    return Elem(tensor, (Coord(axis),), float32)


def leaves(depth: int) -> st.SearchStrategy[SpecTerm]:
    elements: list[SpecTerm] = [element(tensor, axis) for tensor in TENSORS for axis in range(depth + 1)]
    scalars: list[SpecTerm] = [Param(name, float32) for name in SCALARS]
    return st.sampled_from([*elements, *scalars, Const(2.0, float32), Const(-0.5, float32)])


@st.composite
def terms(draw: st.DrawFn, size: int = 3, depth: int = 0) -> SpecTerm:
    if size == 0:
        return draw(leaves(depth))
    kind = draw(st.sampled_from(["add", "sub", "mul", "neg", "half", "sum", "leaf"]))
    if kind == "leaf":
        return draw(leaves(depth))
    if kind == "sum" and depth < 2:
        body = draw(terms(size - 1, depth + 1))
        return SpecReduce("add", depth + 1, Const(EXTENT), body, float32)
    inner = draw(terms(size - 1, depth))
    if kind == "neg":
        return SpecOp("neg", (inner,), float32)
    if kind in ("half", "sum"):
        return binary("truediv", inner, Const(2.0, float32))
    return binary(kind, inner, draw(terms(size - 1, depth)))


def rewritten(spec: SpecTerm, draw: Callable[[st.SearchStrategy[bool]], bool]) -> SpecTerm:
    """The term by laws of rings: orders, groupings, signs and distribution."""
    match spec:
        case SpecReduce(axis=axis, extent=extent, body=SpecOp(op="add", args=(a, b))) if draw(st.booleans()):
            parts = (SpecReduce("add", axis, extent, rewritten(each, draw), float32) for each in (a, b))
            return binary("add", *parts)
        case SpecReduce(axis=axis, extent=extent, body=body):
            return SpecReduce("add", axis, extent, rewritten(body, draw), float32)
        case SpecOp(op="mul", args=(a, SpecOp(op="add", args=(b, c)))) if draw(st.booleans()):
            a = rewritten(a, draw)
            return binary("add", binary("mul", b, a), binary("mul", a, c))
        case SpecOp(op="add" | "mul" as name, args=(a, b)) if draw(st.booleans()):
            return binary(name, rewritten(b, draw), rewritten(a, draw))
        case SpecOp(op="sub", args=(a, b)) if draw(st.booleans()):
            return binary("add", SpecOp("neg", (rewritten(b, draw),), float32), rewritten(a, draw))
        case SpecOp(op="truediv", args=(a, Const(value=value))) if draw(st.booleans()):
            return binary("mul", Const(1.0 / float(value), float32), rewritten(a, draw))
        case SpecOp(op=name, args=args):
            return SpecOp(name, tuple(rewritten(each, draw) for each in args), float32)
        case _:
            return spec


def value(spec: SpecTerm, at: dict[int, int]) -> float:
    """The value of a term at some coordinates."""
    match strip(spec):
        case Const(value=number):
            return float(number)
        case Param(name=name):
            return SCALARS[name]
        case Elem(obj=obj, index=(Coord(axis=axis),)):
            return TENSORS[obj][at[axis]]
        case SpecReduce(axis=axis, body=body):
            return math.fsum(value(body, at | {axis: k}) for k in range(EXTENT))
        case SpecOp(op=name, args=args) | Op(op=name, args=args):
            a, *b = (value(each, at) for each in args)
            return {"add": lambda: a + b[0], "sub": lambda: a - b[0], "mul": lambda: a * b[0], "neg": lambda: -a,
                    "truediv": lambda: a / b[0]}[name]()  # fmt: skip
        case other:
            raise AssertionError(other)


KERNEL = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def kernel(x: al.Tensor[al.float32, "N"], w: al.Tensor[al.float32, "N"], a: al.float32, b: al.float32):
    al.grid(1)
    al.store(w[0], al.load(x[0]))
"""


@cache
def model() -> Model:
    options = Options(target="sm_80")
    return Model(lower(elaborate(SourceFile("kernel.py", KERNEL), "kernel", options), options.target))


def equal(one: SpecTerm, other: SpecTerm) -> bool:
    """Whether two specified terms are found to be equal at all places."""
    comparison = Comparison(TermBuilder(DataFlow(model())))
    stated, places = Stated(comparison.builder), UnionSet(f"{{ V0[i] : 0 <= i < {EXTENT} }}").identity()
    try:
        comparison.match(*(stated.of(term, 1, places) for term in (one, other)), Scope(places, places))
    except Mismatch:
        return False
    return True


@settings(max_examples=60, deadline=None)
@given(spec=terms(), data=st.data())
def test_rewriting_changes_nothing(spec: SpecTerm, data: st.DataObject) -> None:
    assert equal(rewritten(spec, data.draw), spec)


@settings(max_examples=60, deadline=None)
@given(one=terms(), other=terms())
def test_equal_terms_have_equal_values(one: SpecTerm, other: SpecTerm) -> None:
    alike = all(
        math.isclose(value(one, {0: i}), value(other, {0: i}), rel_tol=1e-5, abs_tol=1e-6) for i in range(EXTENT)
    )
    assert alike or not equal(one, other)


def test_bound_variables_have_no_names() -> None:
    """A product of two sums is the same with its factors exchanged."""
    j, k = (SpecReduce("add", 1, Const(EXTENT), element(tensor, 1), float32) for tensor in TENSORS)
    assert equal(binary("mul", j, k), binary("mul", k, j))
    assert not equal(binary("mul", j, k), binary("mul", k, k))


def test_what_may_be_no_number_does_not_vanish() -> None:
    """1/x - 1/x is no number where x is 0, so that it is not the same as 0."""
    x: Expr = Elem("x", (Coord(0),), float32)
    inverse = op("truediv", Const(1.0, float32), x)
    zero = Const(0.0, float32)
    assert equal(op("sub", x, x), zero)
    assert not equal(op("sub", inverse, inverse), zero)
