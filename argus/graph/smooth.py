"""The hyperbolic tangent of softplus, as in Mish, as one operator: an exponential and a division.

    tanh(log(1 + exp(x)))  =  ((1 + e)² - 1) / ((1 + e)² + 1)  =  n / (n + 2)    where e = exp(x) and n = e * (e + 2)

No digits cancel. From x = 20 on, both sides are 1 in float32.
"""

from __future__ import annotations

from typing import Any

import torch

from argus.graph.own import operator
from argus.graph.row import POINTWISE, Operand, Row, Site, add, apply, constant, div, mul, real
from argus.graph.terms import Element, Index, Term, cast

EXACT = 20.0
"""A number from which on the tangent is 1 in float32."""


def tanh_softplus(x: Any) -> Any:
    """Apply the operator."""
    return operator("tanh_softplus(Tensor x) -> Tensor", _computed, torch.empty_like)(x)


def _computed(x: Any) -> Any:
    return torch.nn.functional.softplus(x).tanh()


def _meaning(site: Site, x: Operand, *_: Any) -> Element:
    def element(index: Index) -> Term:
        value = real(x, index)
        e = apply("exp", apply("minimum", value, constant(EXACT, value)))
        n = mul(e, add(e, constant(2.0, e)))
        return cast(div(n, add(n, constant(2.0, n))), site.result.dtype)

    return element


ROWS: dict[str, Row] = {"tanh_softplus.default": Row(POINTWISE, _meaning)}
"""By the operator's name without its namespace."""
