"""Tag functions, assertions, specifications and preconditions, as IR."""

import pytest

from argus.diagnostic import SourceError
from argus.frontend import Options, check, parse
from argus.ir.expr import Const
from argus.ir.nodes import InRange, Requires, SpecReduce
from argus.ir.text import print_expr
from argus.source import SourceFile
from tests.frontend.kernels import elaborate, statements

TILE = "t = al.load(x[n : n + 64])\nu = al.load(out[0:32, 0:64])\n"


def test_tag_functions_name_their_fields():
    assert statements("al.tag(x, lambda i: (i,))") == ["tag x[N] = {i = c0}"]
    assert statements("a = al.tag(a, lambda m, k: dict(row=m + n, col=k))") == [
        "tag a[M, K] = {row = c0 + n, col = c1}"
    ]


def test_tag_terms():
    kernel = elaborate(TILE + "al.tag(t, lambda i: dict(m=t[i].i, w=idx[i + n], z=t[i][0]))")
    fields = dict(kernel.body[-1].fields)
    assert type(fields["m"]).__name__ == "TagField" and fields["m"].name == "i"
    assert type(fields["w"]).__name__ == "DataValue" and fields["w"].tensor == "idx"
    assert fields["z"].name == 0


def test_assertions_range_over_what_their_parameters_index():
    (stmt,) = elaborate(TILE + "al.assert_tags(lambda i, j: t[j].i == u[i, j].n and u[i, j] == (i, n + j))").body[2:]
    assert stmt.shape == (32, 64) and stmt.names == ("i", "j")
    assert [type(c).__name__ for c in stmt.conditions] == ["TagEqual", "TagTuple"]


def test_the_least_extent_counts_and_a_guard_narrows_it():
    (stmt,) = elaborate(
        TILE + "al.assert_tags(lambda i: t[i].i == u[i, i + 1].n, where=lambda i: n + i < x.shape[0])"
    ).body[2:]
    assert stmt.shape == (32,)
    assert print_expr(stmt.where) == "n + c0 < N"


def test_index_tiles_may_be_used_by_element():
    (stmt,) = elaborate(TILE + "offs = n + al.arange(64)\nal.assert_tags(lambda i: t[i].i == offs[i])").body[2:]
    assert print_expr(stmt.conditions[0].right) == "n + c0"


def test_contribution_sets():
    (stmt,) = elaborate(TILE + "al.assert_tags(lambda i: u[i, 0] == (i, al.once(0, x.shape[0])))").body[2:]
    once = stmt.conditions[0].terms[1]
    assert (print_expr(once.lo), print_expr(once.hi)) == ("0", "N")


def test_parts_of_shared_tiles_carry_tags():
    (stmt,) = elaborate(
        "s = al.shared((2, 8, 8), al.float32)\nv = s[1, :, :]\nal.assert_tags(lambda i, j: v[i, j].m == i)"
    ).body
    assert print_expr(stmt.conditions[0].left.elem) == "s[1, c0, c1]:float32"


def test_a_tensor_may_be_tagged_by_its_dimensions_in_another_order():
    (here,) = elaborate("al.tag(a, lambda m, k: dict(m=m, k=k))").body
    (there,) = elaborate("al.tag(al.trans(a), lambda p, q: dict(m=q, k=p))").body
    assert (here.obj, here.shape, here.fields) == (there.obj, there.shape, there.fields)


def test_specifications_reduce_over_the_dimension_that_they_index():
    (stmt,) = elaborate("al.spec(out, lambda m, k: al.sum(lambda j: a[m, j].to(al.float32) * b[k, j]) * eps + 1)").body
    total = stmt.value.args[0].args[0]
    assert isinstance(total, SpecReduce)
    assert (total.op, total.axis, print_expr(total.extent)) == ("add", 2, "K")


def test_specifications_nest_and_mix_dtypes():
    body = "al.spec(out, lambda m, k: al.exp(out[m, k] - al.max(lambda q: a[m, q])) / al.sum(lambda q: a[m, q]))"
    (stmt,) = elaborate(body).body
    assert stmt.value.op == "truediv" and stmt.value.dtype.name == "float32"


CHAIN = """
import argus
import argus.language as al

@argus.func
def under(x, i, K):
    last = 7
    for _ in al.static_range(K):
        last = al.max(lambda k: al.where(x[i, k] < last, x[i, k], 0))
    return last

@argus.kernel
def kernel(x: al.Tensor[al.int32, "M N"], out: al.Tensor[al.int32, "M"]):
    al.spec(out, lambda i: under(x, i, {rounds}))
"""


def specified(text: str):
    return check(parse(SourceFile("kernel.py", text)), "kernel", Options())


def test_names_of_terms_are_used_under_further_lambdas_and_loops_are_unrolled():
    (stmt,) = specified(CHAIN.format(rounds=3)).body
    axes, term = [], stmt.value
    while isinstance(term, SpecReduce):
        axes.append(term.axis)
        term = term.body.args[0].args[1]
    assert axes == [1, 2, 3] and term == Const(7)


def test_loops_of_specifications_are_unrolled_over_constants_only():
    with pytest.raises(SourceError, match="a loop in a specification is unrolled"):
        specified(CHAIN.format(rounds=3).replace("al.static_range", "range"))


def test_specifications_gather():
    assert statements("al.spec(x, lambda i: y[idx[i]])") == ["spec x(i) = y[idx[c0]]"]


def test_preconditions():
    body = "al.requires(n % 8 == 0)\nal.requires(BLOCK == 64)\nal.requires(al.in_range(idx, 0, n))\n"
    body += 'al.assume(n > 0, "why")'
    first, second, third = elaborate(body).preconditions
    assert isinstance(first, Requires) and print_expr(first.cond) == "n % 8 == 0"
    assert isinstance(second, InRange) and second.tensor == "idx"
    assert third.reason == "why"
