"""Sums, divisors and masks, against enumeration."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus.ir.affine import Facts, begins_runs, depends_on, facts, linear, on_runs, uniform
from argus.ir.expr import Const, Coord, Expr, LoopVar, Op, Param, op, rewrite
from argus.ir.nodes import For, Requires
from tests.passes import kernels

NOTHING = Facts({}, {})
K, J, C0, C1 = Param("K"), LoopVar("j"), Coord(0), Coord(1)
leaves = st.sampled_from([C0, C1, K, J]) | st.integers(-8, 8).map(Const)
exprs = st.recursive(
    leaves,
    lambda e: (
        st.builds(lambda n, a, b: op(n, a, b), st.sampled_from(["add", "sub"]), e, e)
        | st.builds(lambda a, n: op("mul", a, Const(n)), e, st.integers(-4, 4))
    ),
    max_leaves=6,
)


def value(expr: Expr, at: dict[Expr, int]) -> int:
    def change(e: Expr) -> Expr | None:
        if e in at:
            return Const(at[e])
        return op(e.op, *e.args) if isinstance(e, Op) else None

    result = rewrite(expr, change)
    assert isinstance(result, Const)
    return int(result.value)


@given(exprs, st.integers(-20, 20), st.integers(-20, 20), st.integers(0, 20), st.integers(0, 20))
def test_a_sum_has_the_value_of_the_expression(expr: Expr, k: int, j: int, c0: int, c1: int) -> None:
    at: dict[Expr, int] = {K: k, J: j, C0: c0, C1: c1}
    total = linear(expr)
    assert total.const + sum(c * value(e, at) for e, c in total.terms) == value(expr, at)


@given(exprs, st.integers(0, 5), st.integers(0, 5))
def test_divisors_divide(expr: Expr, k: int, j: int) -> None:
    known = Facts({"K": 8}, {"j": 16})
    divisor = known.divisor(expr)
    found = value(expr, {K: 8 * k, J: 16 * j, C0: 1, C1: 3})
    assert found == 0 if divisor == 0 else found % divisor == 0


@given(
    st.sampled_from(["lt", "le", "gt", "ge"]),
    st.booleans(),
    st.integers(-9, 9),
    st.integers(-2, 2),
    st.sampled_from([2, 4, 8]),
)
def test_uniform_masks_are_constant_on_aligned_runs(name: str, swap: bool, shift: int, k: int, width: int) -> None:
    left, right = op("add", C0, Const(shift)), op("add", K, J)
    mask = op(name, right, left) if swap else op(name, left, right)
    if uniform(mask, 0, width, Facts({"K": 8}, {"j": 4})):
        for start in range(0, 32, width):
            bits = {value(mask, {K: 8 * k, J: 4, C0: start + i}) for i in range(width)}
            assert len(bits) == 1


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (op("lt", op("add", C0, J), K), True),
        (op("lt", op("add", C0, op("add", J, Const(1))), K), False),
        (op("and", op("lt", C0, K), op("eq", C1, K)), True),
        (op("eq", C0, K), False),
    ],
)
def test_which_masks_are_uniform(mask: Expr, expected: bool) -> None:
    assert uniform(mask, 0, 4, Facts({"K": 4}, {"j": 4})) is expected
    assert uniform(mask, 0, 4, NOTHING) is False


places = st.builds(
    lambda scale, shift, periods: _digits(op("add", op("add", C0, op("mul", J, Const(scale))), Const(shift)), periods),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(0, 8),
    st.lists(st.tuples(st.sampled_from(["floordiv", "mod"]), st.integers(1, 12)), max_size=3),
)


def _digits(place: Expr, periods: list[tuple[str, int]]) -> Expr:
    for name, period in periods:
        place = op(name, place, Const(period))
    return place


@given(places, st.sampled_from([2, 4]), st.integers(0, 9))
def test_what_holds_on_runs_holds_on_every_run(place: Expr, width: int, j: int) -> None:
    """A rewritten place without the coordinate is constant on aligned runs; one that begins runs follows memory."""
    seen, known = on_runs(place, 0, width, NOTHING)
    for start in range(0, 48, width):
        found = [value(place, {J: j, C0: start + i}) for i in range(width)]
        if not depends_on(seen, 0):
            assert len(set(found)) == 1
        if begins_runs(linear(seen), 0, width, known):
            assert found[0] % width == 0 and found == [found[0] + i for i in range(width)]


@pytest.mark.parametrize(
    ("place", "follows"),
    [
        (op("mod", op("add", C0, op("mul", J, Const(8))), Const(260)), True),
        (op("mod", op("mod", C0, Const(24)), Const(12)), True),
        (op("mod", C0, Const(259)), False),
        (op("mod", op("add", C0, Const(2)), Const(260)), False),
        (op("mod", op("add", C0, J), Const(260)), False),
        (op("floordiv", C0, Const(260)), False),
    ],
)
def test_remainders_follow_memory_where_runs_lie_in_one_period(place: Expr, follows: bool) -> None:
    seen, known = on_runs(place, 0, 4, NOTHING)
    assert begins_runs(linear(seen), 0, 4, known) is follows


def test_masks_of_digits_are_uniform_where_runs_lie_in_one_period() -> None:
    column, row = op("mod", C0, Const(260)), op("floordiv", C0, Const(260))
    inside = op("and", op("lt", column, Const(256)), op("lt", row, Const(5)))
    assert uniform(inside, 0, 4, NOTHING) is True
    assert uniform(op("lt", column, Const(258)), 0, 4, NOTHING) is False
    assert uniform(op("lt", op("mod", C0, Const(258)), Const(256)), 0, 4, NOTHING) is False


def test_facts_of_a_kernel() -> None:
    kernel = kernels.gemm()
    assert facts(kernel).params == {"K": 8, "N": 8}
    assert facts(kernel).loops == {"k0": 32}
    divisible = op("eq", op("mod", K, Const(48)), Const(0))
    assert facts(replace(kernel, preconditions=(Requires(divisible),))).params["K"] == 48


def test_loops_of_one_name_share_their_divisor() -> None:
    loops = (For("j", Const(0), K, 32, ()), For("j", Const(8), K, 16, ()))
    assert facts(replace(kernels.gemm(), body=loops)).loops == {"j": 8}
