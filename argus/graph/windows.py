"""Rows of pooling and convolutions: sums and maxima over windows of an image.

A window is a choice among all places, as in specifications: the maximum over h of x[h] where
`p * stride - padding <= h < p * stride - padding + size`. A transposed convolution adds up the products of all places
and filters that contribute to an element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from argus.graph.reductions import Over
from argus.graph.row import WINDOW, Operand, Row, Site, add, apply, integer, mul, real, real_at
from argus.graph.terms import Element, Flat, Index, Number, Reduce, Term, cast, dtype_of, product
from argus.graph.views import within


def each(values: Sequence[int], count: int) -> list[int]:
    """Return one value for each dimension. A single value stands for all dimensions."""
    given = list(values)
    return given * count if len(given) == 1 else given


def _start(place: Term, stride: int, padding: int) -> Term:
    """Return the place at which the window of an element of the result begins."""
    return apply("sub", mul(place, integer(stride)), integer(padding))


def _both(conditions: Sequence[Term]) -> Term:
    found: Term = Number(True, "bool")
    for n, condition in enumerate(conditions):
        found = condition if n == 0 else apply("and", found, condition)
    return found


def _maximum_pool(spatial: int) -> Callable[..., Any]:
    def meaning(
        site: Site, x: Operand, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, *_: Any
    ) -> Any:
        sizes, gaps = each(kernel, spatial), each(dilation if dilation != 1 else [1], spatial)
        strides, borders = each(stride or kernel, spatial), each(padding if padding != 0 else [0], spatial)
        first = len(x.shape) - spatial
        over = Over(site, x, range(first, len(x.shape)))

        def element(index: Index) -> Term:
            conditions = []
            for d in range(spatial):
                at, start = over.bound[first + d], _start(index[first + d], strides[d], borders[d])
                reach = add(start, integer((sizes[d] - 1) * gaps[d]))
                conditions += [apply("le", start, at), apply("le", at, reach)]
                if gaps[d] > 1:
                    offset = apply("mod", apply("sub", at, start), integer(gaps[d]))
                    conditions.append(apply("eq", offset, integer(0)))
            value = over.at(index)
            lowest = Number(float("-inf"), dtype_of(value))
            chosen = apply("where", _both(conditions), value, lowest)
            return cast(Reduce("max", over.vars, chosen, dtype_of(value)), site.result.dtype)

        return element, None

    return meaning


def _average_pool(spatial: int) -> Callable[..., Element]:
    def meaning(
        site: Site, x: Operand, kernel: Any, stride: Any = (), padding: Any = 0, ceil: bool = False,
        padded: bool = True, divisor: int | None = None,
    ) -> Element:  # fmt: skip
        sizes, first = each(kernel, spatial), len(x.shape) - spatial
        strides, borders = each(stride or kernel, spatial), each(padding if padding != 0 else [0], spatial)
        over = Over(site, x, range(first, len(x.shape)))

        def element(index: Index) -> Term:
            conditions, counts = [], []
            for d in range(spatial):
                size = x.shape[first + d]
                at, start = over.bound[first + d], _start(index[first + d], strides[d], borders[d])
                conditions += [apply("le", start, at), apply("lt", at, add(start, integer(sizes[d])))]
                last = (site.result.shape[first + d] - 1) * strides[d] - borders[d] + sizes[d]
                counts.append(_counted(start, sizes[d], size, borders[d] if padded else 0, borders[d], last))
            value = over.at(index)
            zero = Number(0.0, dtype_of(value))
            total: Term = Reduce("sum", over.vars, apply("where", _both(conditions), value, zero), dtype_of(value))
            count = integer(divisor) if divisor is not None else _product(counts)
            return cast(apply("div", total, cast(count, dtype_of(value))), site.result.dtype)

        return element

    return meaning


def _counted(start: Term, window: int, size: int, border: int, padding: int, last: int) -> Term:
    """Return how many places of a window count: those inside the image with a border of `border`.

    `last`: the place where the last window ends."""
    if border == padding and last <= size + padding:
        return integer(window)
    low = start if border == padding else apply("maximum", start, integer(-border))
    high = add(start, integer(window))
    if last > size + border:
        high = apply("minimum", high, integer(size + border))
    return apply("sub", high, low)


def _product(counts: Sequence[Term]) -> Term:
    numbers = [c.value for c in counts if isinstance(c, Number)]
    found: Term = integer(int(product(numbers)))
    for count in counts:
        found = found if isinstance(count, Number) else mul(found, count)
    return found


def _adaptive_pool(site: Site, x: Operand, *_: Any) -> Element:
    """Return the average pooling whose windows divide the image: window p covers floor(p H / P) to ceil((p + 1) H / P).
    """
    spatial = len(site.result.shape) - (2 if len(site.result.shape) > 3 else 1)
    first = len(x.shape) - spatial
    over = Over(site, x, range(first, len(x.shape)))

    def element(index: Index) -> Term:
        conditions, counts = [], []
        for d in range(first, len(x.shape)):
            size, made = x.shape[d], site.result.shape[d]
            start = apply("floordiv", mul(index[d], integer(size)), integer(made))
            stop = apply(
                "floordiv", add(mul(add(index[d], integer(1)), integer(size)), integer(made - 1)), integer(made)
            )
            conditions += [apply("le", start, over.bound[d]), apply("lt", over.bound[d], stop)]
            counts.append(integer(size // made) if size % made == 0 else apply("sub", stop, start))
        value = over.at(index)
        zero = Number(0.0, dtype_of(value))
        total = Reduce("sum", over.vars, apply("where", _both(conditions), value, zero), dtype_of(value))
        return cast(apply("div", total, cast(_product(counts), dtype_of(value))), site.result.dtype)

    return element


def _convolution(
    site: Site,
    x: Operand,
    weight: Operand,
    bias: Operand | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Element:
    spatial = len(x.shape) - 2
    steps = tuple(zip(*(each(v, spatial) for v in (stride, padding, dilation)), strict=True))
    filters = Over(site, weight, range(2, 2 + spatial))
    channels = site.over(_inner(weight, 0, groups) if transposed else weight.split(1))
    places = Over(site, x, range(2, 2 + spatial)) if transposed else None

    def element(index: Index) -> Term:
        n, f, *at = index
        group, inner = _grouped(f, groups, site.result.shape[1] // groups)
        channel = _joined(group, channels, weight.shape[0] // groups if transposed else weight.shape[1])
        bound = tuple(filters.bound[2 + d] for d in range(spatial))
        if places is not None:
            here = tuple(places.bound[2 + d] for d in range(spatial))
            inside = _both([_meet(at[d], here[d], bound[d], *steps[d]) for d in range(spatial)])
            body = mul(real_at(weight, (channel, inner, *bound)), real_at(x, (n, channel, *here)))
            variables = (*channels.digits, *places.vars, *filters.vars)
        else:
            reach = tuple(_reached(at[d], bound[d], *steps[d]) for d in range(spatial))
            inside = _both([c for d in range(spatial) for c in _border(reach[d], x, weight, site, d, *steps[d])])
            body = mul(real_at(weight, (f, channels, *bound)), real_at(x, (n, channel, *reach)))
            variables = (*channels.digits, *filters.vars)
        if inside != Number(True, "bool"):
            body = apply("where", inside, body, Number(0.0, dtype_of(body)))
        total: Term = Reduce("sum", variables, body, dtype_of(body))
        if bias is not None:
            total = add(total, real(bias, (f,)))
        return cast(total, site.result.dtype)

    return element


def _meet(place: Term, here: Term, tap: Term, stride: int, padding: int, dilation: int) -> Term:
    """Return the condition that a transposed convolution adds element `here`, times filter `tap`, to `place` of its
    result."""
    to = add(mul(here, integer(stride)), mul(tap, integer(dilation)))
    return apply("eq", add(place, integer(padding)) if padding else place, to)


def _reached(place: Term, tap: Term, stride: int, padding: int, dilation: int) -> Term:
    step = add(mul(place, integer(stride)), mul(tap, integer(dilation)))
    return apply("sub", step, integer(padding)) if padding else step


def _border(
    here: Term, x: Operand, weight: Operand, site: Site, d: int, stride: int, padding: int, dilation: int
) -> list[Term]:
    """Return the condition that a place is inside the image, or none if all places are inside."""
    size, taps, made = x.shape[2 + d], weight.shape[2 + d], site.result.shape[2 + d]
    last = (made - 1) * stride - padding + (taps - 1) * dilation
    return [within(here, size)] if padding or last >= size else []


def _inner(weight: Operand, dim: int, groups: int) -> tuple[Any, ...]:
    """Return the sizes of a dimension's digits within a group."""
    digits = list(weight.split(dim))
    if groups > 1 and digits and digits[0] == groups:
        return tuple(digits[1:])
    return (weight.shape[dim] // groups,) if groups > 1 else tuple(digits)


def _grouped(index: Term, groups: int, inner: int) -> tuple[Term | None, Term]:
    """Split a channel into its group and its place in the group."""
    if groups == 1:
        return None, index
    if isinstance(index, Flat) and index.digits and index.digits[0].size == groups:
        return Flat(index.digits[:1]), Flat(index.digits[1:])
    return apply("floordiv", index, integer(inner)), apply("mod", index, integer(inner))


def _joined(group: Term | None, inner: Flat, size: int) -> Term:
    """Return the channel with this place in its group."""
    if group is None:
        return inner
    if isinstance(group, Flat):
        return Flat((*group.digits, *inner.digits))
    return add(mul(group, integer(size)), inner)


ROWS: dict[str, Row] = {
    "avg_pool1d.default": Row(WINDOW, _average_pool(1)),
    "avg_pool2d.default": Row(WINDOW, _average_pool(2)),
    "avg_pool3d.default": Row(WINDOW, _average_pool(3)),
    "_adaptive_avg_pool2d.default": Row(WINDOW, _adaptive_pool),
    "max_pool2d_with_indices.default": Row(WINDOW, _maximum_pool(2)),
    "max_pool3d_with_indices.default": Row(WINDOW, _maximum_pool(3)),
    "convolution.default": Row(WINDOW, _convolution),
}
"""The rows by the operator's name without "aten."."""
