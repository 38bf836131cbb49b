"""Sums, divisors and masks, against enumeration."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus.ir.expr import Const, Coord, Expr, LoopVar, Op, Param, op, rewrite
from argus.ir.nodes import For, Requires
from argus.passes.affine import Facts, facts, linear, uniform
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


def test_facts_of_a_kernel() -> None:
    kernel = kernels.gemm()
    assert facts(kernel).params == {"K": 8, "N": 8}
    assert facts(kernel).loops == {"k0": 32}
    divisible = op("eq", op("mod", K, Const(48)), Const(0))
    assert facts(replace(kernel, preconditions=(Requires(divisible),))).params["K"] == 48


def test_loops_of_one_name_share_their_divisor() -> None:
    loops = (For("j", Const(0), K, 32, ()), For("j", Const(8), K, 16, ()))
    assert facts(replace(kernels.gemm(), body=loops)).loops == {"j": 8}
