"""Rows of elementwise operators: each a formula over the operands' elements, broadcast and in the computing dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import pi, sqrt
from typing import Any

import torch

from argus.graph.row import (
    COMPARISONS,
    POINTWISE,
    NotExpressible,
    Operand,
    Row,
    Site,
    add,
    apply,
    broadcast,
    constant,
    div,
    mul,
    scaled,
    shifted,
    square,
    sub,
)
from argus.graph.terms import Element, Index, Number, Term, cast, is_float, number, wide

Formula = Callable[..., Term]
"""`formula(x, y, ..., value, ...)` takes terms for tensors and for numbers in place of tensors, and Python values for
other arguments."""

ACCURACY = "the language has no function that keeps this operator's accuracy"


def _computed(formula: Formula) -> Callable[..., Element]:
    """Return an operator that converts its tensors to the dtype in which its result is computed."""

    def meaning(site: Site, *args: Any) -> Element:
        dtype = site.result.dtype
        within = wide(dtype) if is_float(dtype) else dtype

        def element(index: Index) -> Term:
            given = (cast(broadcast(a, index), within) if isinstance(a, Operand) else a for a in args)
            return cast(formula(*given), dtype)

        return element

    return meaning


def _compared(op: str) -> Callable[..., Element]:
    """Return a comparison of two tensors, or of a tensor and a number. Both are first rounded to the dtype to which
    PyTorch promotes them. Raises NotExpressible for an integer that this dtype cannot hold."""

    def meaning(site: Site, *args: Any) -> Element:
        common = _promoted(args)
        within = wide(common) if is_float(common) else common
        for a in args:
            if not isinstance(a, Operand):
                _rounded(a, common)

        def element(index: Index) -> Term:
            x, y = (
                cast(broadcast(a, index), common) if isinstance(a, Operand) else _rounded(a, common) for a in args
            )
            return apply(op, cast(x, within), cast(y, within))

        return element

    return meaning


def _rounded(value: float, dtype: str) -> Number:
    """Return a Python number as the nearest number of a dtype. Raises NotExpressible for integers out of its range."""
    if dtype == "bool":
        return Number(bool(value), dtype)
    if is_float(dtype):
        return Number(torch.tensor(value, dtype=getattr(torch, dtype)).item(), dtype)
    limits = torch.iinfo(getattr(torch, dtype))
    if not limits.min <= value <= limits.max:
        raise NotExpressible(f"a comparison of {dtype} with {value}, which it cannot hold")
    return Number(int(value), dtype)


def _promoted(args: Sequence[Any]) -> str:
    """Return the dtype that PyTorch promotes to: the widest one of the highest kind (truth value, integer, float).

    Within that kind, tensors with dimensions take precedence over tensors without, and these over numbers."""
    ranked = [(a.dtype, 0 if a.shape else 1) for a in args if isinstance(a, Operand)]
    ranked += [(_OF_NUMBERS[type(a)], 2) for a in args if not isinstance(a, Operand)]
    kind = max(map(_kind, (dtype for dtype, _ in ranked)))
    of_kind = [(dtype, rank) for dtype, rank in ranked if _kind(dtype) == kind]
    first = min(rank for _, rank in of_kind)
    dtypes = sorted({dtype for dtype, rank in of_kind if rank == first}, key=lambda d: int(d.strip("abflotinu") or 8))
    return "float32" if {"float16", "bfloat16"} == set(dtypes) else dtypes[-1]


_OF_NUMBERS = {bool: "bool", int: "int64", float: "float32"}


def _kind(dtype: str) -> int:
    return 2 if is_float(dtype) else 0 if dtype == "bool" else 1


def _bitwise(formula: Formula) -> Callable[..., Element]:
    """Return an operator on bits, for truth values alone."""

    def meaning(site: Site, *args: Any) -> Element:
        if site.result.dtype != "bool":
            raise NotExpressible("an operator on the bits of integers")
        return _logical(formula)(site, *args)

    return meaning


def _logical(formula: Formula) -> Callable[..., Element]:
    """Return an operator on truth values. A value other than 0 is true."""

    def meaning(site: Site, *args: Any) -> Element:
        def truth(operand: Operand, index: Index) -> Term:
            term = broadcast(operand, index)
            return (
                term if operand.dtype == "bool" else apply("ne", term, Number(number(0, operand.dtype), operand.dtype))
            )

        return lambda index: formula(*(truth(a, index) for a in args))

    return meaning


def _where(site: Site, condition: Operand, x: Operand, y: Operand) -> Element:
    dtype = site.result.dtype
    within = wide(dtype) if is_float(dtype) else dtype

    def element(index: Index) -> Term:
        chosen = apply("where", broadcast(condition, index), *(cast(broadcast(a, index), within) for a in (x, y)))
        return cast(chosen, dtype)

    return element


def _converted(site: Site, x: Operand, *_: Any) -> Element:
    return lambda index: cast(broadcast(x, index), site.result.dtype)


def _filled(value_at: int) -> Callable[..., Element]:
    """Return the constant that is the argument at a given position."""

    def meaning(site: Site, *args: Any) -> Element:
        value = args[value_at]
        if not isinstance(value, (int, float)):
            raise NotExpressible("filled with a value that is known only when it runs")
        return lambda index: Number(number(value, site.result.dtype), site.result.dtype)

    return meaning


def _relu(x: Term) -> Term:
    return apply("maximum", x, constant(0, x))


def _clamp(x: Term, low: Any = None, high: Any = None) -> Term:
    if low is not None:
        x = apply("maximum", x, low if not isinstance(low, (int, float)) else constant(low, x))
    if high is not None:
        x = apply("minimum", x, high if not isinstance(high, (int, float)) else constant(high, x))
    return x


def _gelu(x: Term, approximate: str = "none") -> Term:
    if approximate == "tanh":
        inner = scaled(add(x, scaled(mul(square(x), x), 0.044715)), sqrt(2 / pi))
        return mul(scaled(x, 0.5), shifted(apply("tanh", inner), 1.0))
    return mul(scaled(x, 0.5), shifted(apply("erf", scaled(x, sqrt(0.5))), 1.0))


def _gelu_backward(g: Term, x: Term, approximate: str = "none") -> Term:
    if approximate == "tanh":
        inner = scaled(add(x, scaled(mul(square(x), x), 0.044715)), sqrt(2 / pi))
        t = apply("tanh", inner)
        slope = scaled(shifted(scaled(square(x), 3 * 0.044715), 1.0), sqrt(2 / pi))
        bent = mul(mul(scaled(x, 0.5), sub(constant(1, x), square(t))), slope)
        return mul(g, add(scaled(shifted(t, 1.0), 0.5), bent))
    normal = scaled(shifted(apply("erf", scaled(x, sqrt(0.5))), 1.0), 0.5)
    density = scaled(apply("exp", scaled(square(x), -0.5)), 1 / sqrt(2 * pi))
    return mul(g, add(normal, mul(x, density)))


def _silu(x: Term) -> Term:
    return mul(x, apply("sigmoid", x))


def _silu_backward(g: Term, x: Term) -> Term:
    s = apply("sigmoid", x)
    return mul(mul(g, s), shifted(mul(x, sub(constant(1, x), s)), 1.0))


def _leaky(x: Term, slope: float = 0.01) -> Term:
    return apply("where", apply("gt", x, constant(0, x)), x, scaled(x, slope))


def _elu(x: Term, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Term:
    below = scaled(shifted(apply("exp", scaled(x, input_scale)), -1.0), alpha * scale)
    return apply("where", apply("gt", x, constant(0, x)), scaled(x, scale), below)


def _hardtanh(x: Term, low: float = -1.0, high: float = 1.0) -> Term:
    return _clamp(x, low, high)


def _hardsigmoid(x: Term) -> Term:
    return scaled(_clamp(shifted(x, 3.0), 0.0, 6.0), 1 / 6)


def _power(x: Term, exponent: Any) -> Term:
    if not isinstance(exponent, (int, float)):
        raise NotExpressible("a power whose exponent is no constant")
    known: dict[float, Formula] = {
        1: lambda x: x,
        2: square,
        3: lambda x: mul(square(x), x),
        4: lambda x: square(square(x)),
        0.5: lambda x: apply("sqrt", x),
        -0.5: lambda x: apply("rsqrt", x),
        -1: lambda x: div(constant(1, x), x),
        -2: lambda x: div(constant(1, x), square(x)),
    }
    if exponent not in known:
        raise NotExpressible(f"a power with the exponent {exponent}")
    return known[exponent](x)


def _both(x: Any, y: Any) -> tuple[Term, Term]:
    """Return two operands as terms. One of them may be a number."""
    if isinstance(x, (int, float)):
        return constant(x, y), y
    return x, constant(y, x) if isinstance(y, (int, float)) else y


def _scaled_add(sign: float) -> Formula:
    def formula(x: Any, y: Any, alpha: float = 1) -> Term:
        x, y = _both(x, y)
        return add(x, scaled(y, alpha)) if sign > 0 else sub(x, scaled(y, alpha))

    return formula


def _product(x: Any, y: Any) -> Term:
    return mul(*_both(x, y))


def _divided(x: Any, y: Any, rounding_mode: str | None = None) -> Term:
    if rounding_mode is None:
        return div(*_both(x, y))
    raise NotExpressible(f"a division that rounds ({rounding_mode})")


def _simple(op: str) -> Formula:
    return lambda x: apply(op, x)


def _row(formula: Formula, left: str = "") -> Row:
    return Row(POINTWISE, _computed(formula), left)


_UNARY = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid", "abs", "neg")

ROWS: dict[str, Row] = {
    **{f"{op}.default": _row(_simple(op)) for op in _UNARY},
    **{f"{op}.default": _row(_simple(op)) for op in ("floor", "ceil")},
    **{f"{op}.{kind}": Row(POINTWISE, _compared(op)) for op in sorted(COMPARISONS) for kind in ("Tensor", "Scalar")},
    "reciprocal.default": _row(lambda x: div(constant(1, x), x)),
    "square.default": _row(square),
    "relu.default": _row(_relu),
    "gelu.default": _row(_gelu),
    "gelu_backward.default": _row(_gelu_backward),
    "silu.default": _row(_silu),
    "silu_backward.default": _row(_silu_backward),
    "sigmoid_backward.default": _row(lambda g, y: mul(mul(g, y), sub(constant(1, y), y))),
    "tanh_backward.default": _row(lambda g, y: mul(g, sub(constant(1, y), square(y)))),
    "hardtanh.default": _row(_hardtanh),
    "hardsigmoid.default": _row(_hardsigmoid),
    "hardswish.default": _row(lambda x: mul(x, _hardsigmoid(x))),
    "leaky_relu.default": _row(_leaky),
    "elu.default": _row(_elu),
    "threshold_backward.default": _row(
        lambda g, x, t: apply("where", apply("le", x, constant(t, x)), constant(0, g), g)
    ),
    "log1p.default": _row(lambda x: apply("log1p", x)),
    "expm1.default": _row(lambda x: shifted(apply("exp", x), -1.0), ACCURACY),
    "clamp.default": _row(_clamp),
    "clamp.Tensor": _row(_clamp),
    "clamp_min.default": _row(lambda x, low: _clamp(x, low)),
    "clamp_max.default": _row(lambda x, high: _clamp(x, None, high)),
    "maximum.default": _row(lambda x, y: apply("maximum", x, y)),
    "minimum.default": _row(lambda x, y: apply("minimum", x, y)),
    "add.Tensor": _row(_scaled_add(1.0)),
    "add.Scalar": _row(_scaled_add(1.0)),
    "sub.Tensor": _row(_scaled_add(-1.0)),
    "sub.Scalar": _row(_scaled_add(-1.0)),
    "rsub.Scalar": _row(lambda x, y, alpha=1: sub(constant(y, x), scaled(x, alpha))),
    "mul.Tensor": _row(_product),
    "mul.Scalar": _row(_product),
    "div.Tensor": _row(_divided),
    "div.Scalar": _row(_divided),
    "div.Tensor_mode": _row(_divided),
    "pow.Tensor_Scalar": _row(_power),
    "addcmul.default": _row(lambda x, y, z, value=1: add(x, scaled(mul(y, z), value))),
    "addcdiv.default": _row(lambda x, y, z, value=1: add(x, scaled(div(y, z), value))),
    "lerp.Scalar": _row(lambda x, y, weight: add(x, scaled(sub(y, x), weight))),
    "isnan.default": Row(POINTWISE, lambda site, x: _compared("ne")(site, x, x)),
    "where.self": Row(POINTWISE, _where),
    "logical_not.default": Row(POINTWISE, _logical(lambda x: apply("not", x))),
    "bitwise_not.default": Row(POINTWISE, _bitwise(lambda x: apply("not", x))),
    "logical_and.default": Row(POINTWISE, _logical(lambda x, y: apply("and", x, y))),
    "bitwise_and.Tensor": Row(POINTWISE, _bitwise(lambda x, y: apply("and", x, y))),
    "logical_or.default": Row(POINTWISE, _logical(lambda x, y: apply("or", x, y))),
    "bitwise_or.Tensor": Row(POINTWISE, _bitwise(lambda x, y: apply("or", x, y))),
    "_to_copy.default": Row(POINTWISE, _converted),
    "clone.default": Row(POINTWISE, _converted),
    "copy.default": Row(POINTWISE, lambda site, x, source, *_: _converted(site, source)),
    "full.default": Row(POINTWISE, _filled(1)),
    "full_like.default": Row(POINTWISE, _filled(1)),
    "scalar_tensor.default": Row(POINTWISE, _filled(0)),
    "zeros_like.default": Row(POINTWISE, lambda site, *_: _filled(0)(site, 0)),
    "ones_like.default": Row(POINTWISE, lambda site, *_: _filled(0)(site, 1)),
}
"""The rows by the operator's name without "aten."."""
