"""Rows of reductions, norms, softmax and products: terms with bound variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from argus.graph.row import (
    PRODUCT,
    REDUCTION,
    NotExpressible,
    Operand,
    Row,
    Site,
    add,
    apply,
    constant,
    div,
    mul,
    normal,
    real,
    real_at,
    scaled,
    shifted,
    square,
    sub,
)
from argus.graph.terms import (
    ZERO,
    Apply,
    Count,
    Element,
    Flat,
    Index,
    Number,
    Reduce,
    Softmax,
    Term,
    Var,
    cast,
    dtype_of,
    is_float,
)

IDENTITY = {"sum": 0.0, "prod": 1.0}
"""The neutral elements of a sum and a product."""


def _dims(x: Operand, dims: int | Sequence[int] | None) -> tuple[int, ...]:
    """Return the dimensions to reduce as non-negative numbers. None and an empty list mean all dimensions."""
    rank = len(x.shape)
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return tuple(range(rank))
    given = (dims,) if isinstance(dims, int) else dims
    return tuple(sorted(normal(d, rank) for d in given)) if rank else ()


class Over:
    """New variables over some dimensions of an operand, and the operand's element for these variables and a result's
    index."""

    def __init__(self, site: Site, x: Operand, dims: Sequence[int]) -> None:
        self.x, self.dims = x, tuple(dims)
        self.bound = {d: site.fresh(x, d) for d in self.dims}
        self.vars: tuple[Var, ...] = tuple(v for d in self.dims for v in self.bound[d].digits)

    def at(self, index: Index) -> Term:
        """Return the operand's element. `index` has an entry for reduced dimensions too, which is ignored."""
        return real_at(self.x, tuple(self.bound.get(d, i) for d, i in enumerate(index)))

    def padded(self, index: Index, keep: bool) -> Index:
        """Return an index of the result, extended to one entry for each dimension of the operand."""
        if keep:
            return index
        rest = iter(index)
        return tuple(ZERO if d in self.dims else next(rest) for d in range(len(self.x.shape)))

    def sum(self, body: Term) -> Term:
        return Reduce("sum", self.vars, body, dtype_of(body))

    def mean(self, body: Term) -> Term:
        return div(self.sum(body), Count(self.vars, dtype_of(body)))


def _reduced(op: str) -> Callable[..., Element]:
    """Return a sum, mean, product or extremum over some dimensions: (x, dims, keepdim)."""

    def meaning(site: Site, x: Operand, dims: Any = None, keep: bool = False, *_: Any) -> Element:
        over = Over(site, x, _dims(x, dims))

        def element(index: Index) -> Term:
            body = over.at(over.padded(index, bool(keep)))
            value = over.mean(body) if op == "mean" else Reduce(op, over.vars, body, dtype_of(body))
            return cast(value, site.result.dtype)

        return element

    return meaning


def _of_all(op: str) -> Callable[..., Element]:
    return lambda site, x, *_: _reduced(op)(site, x, None, False)


def _product(site: Site, x: Operand, dim: int, keep: bool = False, *_: Any) -> Element:
    return _reduced("prod")(site, x, dim, keep)


def _moments(site: Site, x: Operand, dims: Any, correction: Any, keep: bool) -> tuple[Element, Element]:
    """Return the variance and mean over some dimensions, in the dtype in which PyTorch computes them."""
    first, second = (Over(site, x, _dims(x, dims)) for _ in range(2))

    def mean(index: Index) -> Term:
        return first.mean(first.at(first.padded(index, keep)))

    def variance(index: Index) -> Term:
        where = second.padded(index, keep)
        total = second.sum(square(sub(second.at(where), first.mean(first.at(where)))))
        count: Term = Count(second.vars, dtype_of(total))
        if not correction:
            return div(total, count)
        left = sub(count, constant(correction, count))  # at least 0: without freedom, PyTorch divides by 0
        return div(total, apply("maximum", left, constant(0, left)) if correction > 1 else left)

    return variance, mean


def _variance(site: Site, x: Operand, dims: Any = None, correction: Any = None, keep: bool = False) -> Element:
    variance, _ = _moments(site, x, dims, 1 if correction is None else correction, keep)
    return lambda index: cast(variance(index), site.result.dtype)


def _variance_and_mean(
    site: Site, x: Operand, dims: Any = None, correction: Any = None, keep: bool = False
) -> tuple[Element, Element]:
    variance, mean = _moments(site, x, dims, 1 if correction is None else correction, keep)
    return (lambda i: cast(variance(i), site.results[0].dtype)), (lambda i: cast(mean(i), site.results[1].dtype))


def _norm(site: Site, x: Operand, order: float = 2, dims: Any = None, keep: bool = False, *_: Any) -> Element:
    over = Over(site, x, _dims(x, dims))

    def element(index: Index) -> Term:
        body = over.at(over.padded(index, keep))
        match order:
            case 2:
                value = apply("sqrt", over.sum(square(body)))
            case 1:
                value = over.sum(apply("abs", body))
            case _ if order == float("inf"):
                value = Reduce("max", over.vars, apply("abs", body), dtype_of(body))
            case _:
                raise NotExpressible(f"a vector norm of order {order}")
        return cast(value, site.result.dtype)

    return element


def _layer_norm(
    site: Site, x: Operand, shape: Sequence[Any], weight: Operand | None, bias: Operand | None, eps: float
) -> tuple[Element, Element, Element]:
    inner = range(len(x.shape) - len(shape), len(x.shape))
    variance, mean = _moments(site, x, tuple(inner), 0, True)

    def inverse(index: Index) -> Term:
        found = variance(index)
        return apply("rsqrt", shifted(cast(found, "float32") if dtype_of(found) != "float64" else found, eps))

    def element(index: Index) -> Term:
        value = real_at(x, index)
        value = mul(sub(value, cast(mean(index), dtype_of(value))), inverse(index))
        own = index[len(index) - len(shape) :]
        if weight is not None:
            value = mul(value, real_at(weight, own))
        if bias is not None:
            value = add(value, real_at(bias, own))
        return cast(value, site.result.dtype)

    return (
        element,
        (lambda i: cast(mean(i), site.results[1].dtype)),
        (lambda i: cast(inverse(i), site.results[2].dtype)),
    )


LAST_PLACE = 2**31 - 1
"""An index larger than all others."""


def _place(least: bool) -> Callable[..., Element]:
    """Return the first index of the largest or smallest element along a dimension: (x, dim, keepdim). NaN counts as
    more extreme than every number.

    Numbers are compared as integers of the same order.
    """

    def meaning(site: Site, x: Operand, dim: int | None = None, keep: bool = False, *_: Any) -> Element:
        if dim is None and len(x.shape) != 1:
            raise NotExpressible("the place of an extremum of all elements")
        first, second = (Over(site, x, (normal(dim or 0, len(x.shape)),)) for _ in range(2))

        def key(over: Over, where: Index) -> Term:
            value = over.at(where)
            return Apply("sortable", (apply("neg", value) if least else value,), "int32")

        def element(index: Index) -> Term:
            where = first.padded(index, bool(keep))
            top = Reduce("max", first.vars, key(first, where), "int32")
            (place,) = second.bound.values()
            chosen = Apply("where", (apply("eq", key(second, where), top), place, Number(LAST_PLACE, "int64")), "int64")
            return cast(Reduce("min", second.vars, chosen, "int64"), site.result.dtype)

        return element

    return meaning


def _cumulative(op: str, backwards: bool = False) -> Callable[..., Element]:
    """Return the sum or product of all elements up to each position along a dimension, or from it on: (x, dim)."""

    def meaning(site: Site, x: Operand, dim: int, *_: Any) -> Element:
        at = normal(dim, len(x.shape))
        over = Over(site, x, (at,) if x.shape else ())

        def element(index: Index) -> Term:
            body = over.at(index)
            if x.shape and x.shape[at] != 1:
                ends = (index[at], over.bound[at]) if backwards else (over.bound[at], index[at])
                body = apply("where", apply("le", *ends), body, constant(IDENTITY[op], body))
            return cast(Reduce(op, over.vars, body, dtype_of(body)), site.result.dtype)

        return element

    return meaning


def _softmax(site: Site, x: Operand, dim: int, *_: Any) -> Element:
    at = normal(dim, len(x.shape))
    over = Over(site, x, (at,) if x.shape else ())

    def element(index: Index) -> Term:
        body = over.at(index)
        place = index[at] if index else ZERO
        if not isinstance(place, Flat) or len(place.digits) != len(over.vars):
            raise NotExpressible("a softmax at a computed place")
        return cast(Softmax(over.vars, place.digits, body, dtype_of(body)), site.result.dtype)

    return element


def _log_softmax(site: Site, x: Operand, dim: int, *_: Any) -> Element:
    at = normal(dim, len(x.shape))
    top, over = (Over(site, x, (at,) if x.shape else ()) for _ in range(2))

    def element(index: Index) -> Term:
        body = top.at(index)
        highest = Reduce("max", top.vars, body, dtype_of(body))
        total = over.sum(apply("exp", sub(over.at(index), highest)))
        return cast(sub(sub(real_at(x, index), highest), apply("log", total)), site.result.dtype)

    return element


def _softmax_backward(site: Site, g: Operand, y: Operand, dim: int, *_: Any) -> Element:
    at = normal(dim, len(y.shape))
    over = Over(site, y, (at,) if y.shape else ())

    def element(index: Index) -> Term:
        inner = tuple(over.bound.get(d, i) for d, i in enumerate(index))
        total = over.sum(mul(real_at(g, inner), real_at(y, inner)))
        value = mul(real_at(y, index), sub(real_at(g, index), total))
        return cast(value, site.result.dtype)

    return element


def _log_softmax_backward(site: Site, g: Operand, y: Operand, dim: int, *_: Any) -> Element:
    at = normal(dim, len(y.shape))
    over = Over(site, g, (at,) if y.shape else ())

    def element(index: Index) -> Term:
        total = over.sum(over.at(index))
        value = sub(real_at(g, index), mul(apply("exp", real_at(y, index)), total))
        return cast(value, site.result.dtype)

    return element


def _contraction(site: Site, a: Operand, b: Operand) -> Element:
    """Return a matrix product, batched if there is a batch dimension."""
    k = site.fresh(a, len(a.shape) - 1)

    def element(index: Index) -> Term:
        *batch, m, n = index
        body = mul(real_at(a, (*batch, m, k)), real_at(b, (*batch, k, n)))
        return cast(Reduce("sum", k.digits, body, dtype_of(body)), site.result.dtype)

    return element


def _added_contraction(site: Site, c: Operand, a: Operand, b: Operand, beta: float = 1, alpha: float = 1) -> Element:
    k = site.fresh(a, len(a.shape) - 1)
    if not is_float(site.result.dtype):  # PyTorch converts the factors to the dtype of the result
        beta, alpha = int(beta), int(alpha)

    def element(index: Index) -> Term:
        *batch, m, n = index
        body = mul(real_at(a, (*batch, m, k)), real_at(b, (*batch, k, n)))
        total = scaled(Reduce("sum", k.digits, body, dtype_of(body)), alpha)
        return cast(add(total, scaled(real(c, index), beta)) if beta else total, site.result.dtype)

    return element


ROWS: dict[str, Row] = {
    "sum.default": Row(REDUCTION, _of_all("sum")),
    "sum.dim_IntList": Row(REDUCTION, _reduced("sum")),
    "mean.default": Row(REDUCTION, _of_all("mean")),
    "mean.dim": Row(REDUCTION, _reduced("mean")),
    "amax.default": Row(REDUCTION, _reduced("max")),
    "amin.default": Row(REDUCTION, _reduced("min")),
    "max.default": Row(REDUCTION, _of_all("max")),
    "min.default": Row(REDUCTION, _of_all("min")),
    "prod.default": Row(REDUCTION, _of_all("prod")),
    "prod.dim_int": Row(REDUCTION, _product),
    "argmax.default": Row(REDUCTION, _place(False), places=True),
    "argmin.default": Row(REDUCTION, _place(True), places=True),
    "cumsum.default": Row(REDUCTION, _cumulative("sum")),
    "cumprod.default": Row(REDUCTION, _cumulative("prod")),
    "cumsum_backwards.default": Row(REDUCTION, _cumulative("sum", True)),
    "var.correction": Row(REDUCTION, _variance),
    "var_mean.correction": Row(REDUCTION, _variance_and_mean),
    "linalg_vector_norm.default": Row(REDUCTION, _norm),
    "native_layer_norm.default": Row(REDUCTION, _layer_norm),
    "_softmax.default": Row(REDUCTION, _softmax),
    "_log_softmax.default": Row(REDUCTION, _log_softmax),
    "_softmax_backward_data.default": Row(REDUCTION, _softmax_backward),
    "_log_softmax_backward_data.default": Row(REDUCTION, _log_softmax_backward),
    "mm.default": Row(PRODUCT, _contraction),
    "bmm.default": Row(PRODUCT, _contraction),
    "addmm.default": Row(PRODUCT, _added_contraction),
    "baddbmm.default": Row(PRODUCT, _added_contraction),
}
"""The rows by the operator's name without "aten."."""
