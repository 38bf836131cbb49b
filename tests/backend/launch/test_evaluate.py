"""Launch-time expressions against Python's own arithmetic."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus.backend.launch.evaluate import _FUNCTIONS, evaluate, from_json, names, show, to_json
from argus.ir.expr import OPERATORS, Const, Coord, Expr, Op, Param, op
from argus.ir.types import boolean, float32, int32, int64

M, N = Param("M"), Param("N")


def test_every_operator_has_a_value() -> None:
    """Casts are evaluated apart; no launch computes the order of floats or products of uint32."""
    assert set(OPERATORS) - set(_FUNCTIONS) == {"cast", "sortable", "umulhi"}


def test_constants_are_the_kernels() -> None:
    """0.1 as a float32 is greater than 0.1, and not greater than itself."""
    greater = op("gt", Param("x", float32), Const(0.1, float32))
    assert not evaluate(greater, {"x": float.fromhex("0x1.99999ap-4")})
    assert evaluate(greater, {"x": float.fromhex("0x1.99999cp-4")})


LEAVES = st.sampled_from([M, N]) | st.integers(-100, 100).map(Const)
INTEGERS = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        lambda name, a, b: Op(name, (a, b), int32),
        st.sampled_from(["add", "sub", "mul", "floordiv", "mod", "minimum", "maximum", "and", "or", "xor"]),
        inner,
        inner,
    ),
    max_leaves=12,
)


@given(INTEGERS, st.integers(-50, 50), st.integers(-50, 50))
def test_what_is_shown_is_what_is_computed(expr: Expr, m: int, n: int) -> None:
    python = {"M": m, "N": n, "minimum": min, "maximum": max}
    try:
        expected = eval(show(expr), {"__builtins__": {}}, python)
    except ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            evaluate(expr, {"M": m, "N": n})
        return
    assert evaluate(expr, {"M": m, "N": n}) == expected


@given(INTEGERS)
def test_json_keeps_an_expression(expr: Expr) -> None:
    assert from_json(json.loads(json.dumps(to_json(expr)))) == expr


@pytest.mark.parametrize(
    "expr",
    [
        Const(float("-inf"), float32),
        Const(True, boolean),
        Op("cast", (M,), int64),
        op("and", op("lt", M, N), op("gt", Param("x", float32), Const(0.1, float32))),
    ],
)
def test_json_keeps_types(expr: Expr) -> None:
    back = from_json(json.loads(json.dumps(to_json(expr))))
    assert back == expr
    assert repr(back) == repr(expr)


def test_not_is_logical_on_bool_and_bitwise_on_integers() -> None:
    assert evaluate(op("not", op("lt", M, N)), {"M": 1, "N": 2}) is False
    assert evaluate(Op("not", (M,), int32), {"M": 5}) == -6


def test_casts_and_choice() -> None:
    assert evaluate(Op("cast", (Const(2.7, float32),), int32), {}) == 2
    assert evaluate(Op("cast", (M,), boolean), {"M": 3}) is True
    assert evaluate(Op("where", (op("lt", M, N), M, N), int32), {"M": 3, "N": 2}) == 2


def test_integers_do_not_wrap() -> None:
    assert evaluate(op("mul", M, M), {"M": 2**31}) == 2**62


def test_names_are_the_parameters() -> None:
    assert names(op("add", M, op("mul", N, N))) == {"M", "N"}


def test_a_coordinate_has_no_value_at_launch() -> None:
    for function in (show, to_json, lambda e: evaluate(e, {})):
        with pytest.raises(TypeError, match="Coord"):
            function(Coord(0))
