"""Join two axes of a tensor that are only addressed by the quotient and remainder of one number.

    out[b, p // W, p % W] if p < H * W   ->   out[b, p] if p < size,   with `size` for H * W

Sets cannot divide by a size, so no question about `out` has an answer in the left form. For W > 0, p -> (p // W, p % W)
is one-to-one between all integers and the pairs whose second number is in [0, W), and between [0, H * W) and [0, H) x
[0, W). So two accesses of the right form meet if and only if those of the left form do, and the right form writes every
element if and only if the left one does. For W = 0 the tensor has no element, and the check of bounds, which looks at
the left form, allows no access.

Rows of three and more axes are joined two at a time: i // (H * W) % C, i // W % H, i % W become i // (H * W) % C,
i % (H * W), and then i % (C * H * W).

Specifications follow: one of out[b, h, w] becomes one of out[b, p], with p // W and p % W in its text. What it reads
may then be joined too. A tensor keeps its axes if one access to it has another form, if a part of it is declared, or if
a precondition or an invariant names it. A kernel with tags keeps all axes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, permutations

from argus.ir.expr import Const, Coord, Elem, Expr, Op, Param, op, rewrite
from argus.ir.expr import walk as parts_of
from argus.ir.nodes import Access, AssertTags, Assume, Kernel, Requires, Spec, SpecTerm, Stmt, Tag, Tensor
from argus.ir.spec_terms import mapped, renumbered, substituted
from argus.ir.types import boolean
from argus.ir.visit import map_accesses, map_exprs, rewrite_body, walk
from argus.verify.model.resolving import BOUND

Index = tuple[Expr, ...]


def joined(kernel: Kernel) -> Kernel:
    """Join axes as long as some can be. A kernel without any is returned as it is."""
    if any(isinstance(s, (Tag, AssertTags)) for s in walk(kernel.body)):
        return kernel
    sizes = _Sizes()
    while (found := _joinable(kernel, sizes)) is not None:
        kernel = _with_sizes(_join(kernel, *found, sizes), sizes)
    return replace(kernel, preconditions=(*kernel.preconditions, *sizes.facts())) if sizes else kernel


class _Sizes(dict[tuple[Expr, ...], Param]):
    """The parameters that stand for products of sizes, by their two factors."""

    def of(self, left: Expr, right: Expr) -> Param:
        """Return the parameter for left * right, which need not have been joined before."""
        return self.setdefault(_pair(left, right), Param(f"{BOUND}size {len(self)}", right.dtype))

    def facts(self) -> Iterator[Requires]:
        return (Requires(op("ge", size, Const(0, size.dtype))) for size in self.values())

    def other_factor(self, size: Expr, factor: Expr) -> Expr | None:
        """Return the size by which `factor` was multiplied to give `size`; None if it was not."""
        for (left, right), product in self.items():
            if product == size and factor in (left, right):
                return right if factor == left else left
        return None

    def product(self, factors: list[Expr]) -> Expr:
        """Return the product, written with the parameters."""
        while found := next((p for p in combinations(factors, 2) if _pair(*p) in self), None):
            for factor in found:
                factors.remove(factor)
            factors.append(self[_pair(*found)])
        first, *others = factors
        for factor in others:
            first = op("mul", first, factor)
        return first


def _pair(left: Expr, right: Expr) -> tuple[Expr, ...]:
    return tuple(sorted((left, right), key=repr))


# ---------------------------------------------------------------------------- which axes


def _joinable(kernel: Kernel, sizes: _Sizes) -> tuple[Tensor, int, int] | None:
    named = {fact.tensor for fact in (*kernel.preconditions, *kernel.invariants) if hasattr(fact, "tensor")}
    named |= {part.output for part in kernel.covers}
    for tensor in kernel.tensors:
        if tensor.name in named or len(tensor.shape) < 2:
            continue
        places = list(_places(kernel, tensor.name))
        for i, j in permutations(range(len(tensor.shape)), 2):
            if places and all(_whole(tensor, place, i, j, sizes) is not None for place in places):
                return tensor, i, j
    return None


def _places(kernel: Kernel, name: str) -> Iterator[Index]:
    """Yield the places of a tensor that occur in statements and specifications."""
    found: list[Index] = []

    def look(access: Access) -> Access:
        if access.obj == name:
            found.append(access.index)
        return access

    for stmt in walk(kernel.body):
        map_accesses(stmt, look)
        if isinstance(stmt, Spec):
            found += (e.index for e in _within(stmt.value) if isinstance(e, Elem) and e.obj == name)
    return iter(found)


def _whole(tensor: Tensor, place: Index, i: int, j: int, sizes: _Sizes) -> Expr | None:
    """Return p if axes i and j are at the quotient and remainder of p, or of p modulo both extents; None otherwise."""
    high, low, rows, width = place[i], place[j], tensor.shape[i], tensor.shape[j]
    if isinstance(width, Const) or not (isinstance(low, Op) and low.op == "mod" and low.args[1] == width):
        return None
    whole, turned = low.args[0], False
    if isinstance(high, Op) and high.op == "mod" and high.args[1] == rows:
        high, turned = high.args[0], True
    if high != _quotient(whole, width, sizes):
        return None
    return op("mod", whole, sizes.of(rows, width)) if turned else whole


# ---------------------------------------------------------------------------- the kernel with joined axes


def _join(kernel: Kernel, tensor: Tensor, i: int, j: int, sizes: _Sizes) -> Kernel:
    rows, width = tensor.shape[i], tensor.shape[j]
    size = sizes.of(rows, width)

    def together(index: Index, value: Expr) -> Index:
        return tuple(value if axis == i else e for axis, e in enumerate(index) if axis != j)

    def place(access: Access) -> Access:
        if access.obj != tensor.name:
            return access
        whole = _whole(tensor, access.index, i, j, sizes)
        assert whole is not None
        return replace(access, index=together(access.index, whole))

    def element(expr: Expr) -> Expr | None:
        if not (isinstance(expr, Elem) and expr.obj == tensor.name):
            return None
        return replace(expr, index=place(Access(expr.obj, expr.index)).index)

    def change(stmt: Stmt) -> tuple[Stmt, ...]:
        if not isinstance(stmt, Spec):
            return (map_accesses(stmt, place),)
        value = mapped(stmt.value, lambda e: rewrite(e, element))
        if stmt.output != tensor.name:
            return (replace(stmt, value=value),)
        names = tuple(name for axis, name in enumerate(stmt.names) if axis != j)
        return (replace(stmt, names=names, value=_of_whole(value, len(tensor.shape), i, j, width)),)

    strides = tuple(s for axis, s in enumerate(tensor.strides) if axis != i)
    new = replace(tensor, shape=together(tensor.shape, size), strides=strides)
    params = tuple(new if p.name == tensor.name else p for p in kernel.params)
    return replace(kernel, params=params, body=rewrite_body(kernel.body, change))


def _of_whole(value: SpecTerm, rank: int, i: int, j: int, width: Expr) -> SpecTerm:
    """Return the specified value over one coordinate instead of the i-th and the j-th."""
    free = 1 + max((e.axis for e in _within(value) if isinstance(e, Coord)), default=rank)
    whole = Coord(free)
    value = substituted(value, i, op("floordiv", whole, width))
    value = substituted(value, j, op("mod", whole, width))
    left = [axis for axis in range(rank) if axis != j]
    axes = {axis: at for at, axis in enumerate(left)}
    return renumbered(value, {**axes, free: axes[i]})


def _within(value: SpecTerm) -> Iterator[Expr]:
    """Yield every expression in a specified term, and every sub-expression of these."""
    found: list[Expr] = []

    def look(expr: Expr) -> Expr:
        found.extend(parts_of(expr))
        return expr

    mapped(value, look)
    return iter(found)


# ---------------------------------------------------------------------------- expressions


def _with_sizes(kernel: Kernel, sizes: _Sizes) -> Kernel:
    """Write products, quotients and comparisons with the parameters that stand for products."""

    def simpler(expr: Expr) -> Expr | None:
        return _simpler(expr, sizes)

    def everywhere(expr: Expr) -> Expr:
        return rewrite(expr, simpler)

    def change(stmt: Stmt) -> tuple[Stmt, ...]:
        return (
            (replace(stmt, value=mapped(stmt.value, everywhere)),)
            if isinstance(stmt, Spec)
            else (map_exprs(stmt, simpler),)
        )

    grid = None if kernel.grid is None else tuple(map(everywhere, kernel.grid))
    facts = tuple(
        replace(p, cond=everywhere(p.cond)) if isinstance(p, (Requires, Assume)) else p for p in kernel.preconditions
    )
    return replace(kernel, grid=grid, preconditions=facts, body=rewrite_body(kernel.body, change))


def _simpler(expr: Expr, sizes: _Sizes) -> Expr | None:
    match expr:
        case Op(op="mul") if expr.dtype.is_int and not expr.dtype.modular:
            factors = list(_factors(expr))
            return sizes.product(factors) if any(_pair(*p) in sizes for p in combinations(factors, 2)) else None
        case Op(op="floordiv", args=(Op(op="floordiv", args=(whole, first)), second)):
            size = sizes.get(_pair(first, second))
            return None if size is None else op("floordiv", whole, size)
        case Op(op="floordiv", args=(Op(op="mod", args=(whole, size)), width)):
            rows = sizes.other_factor(size, width)
            return None if rows is None else op("mod", _quotient(whole, width, sizes), rows)
        case Op(op="mod", args=(Op(op="mod", args=(whole, size)), width)):
            return None if sizes.other_factor(size, width) is None else op("mod", whole, width)
        case Op(op="add", args=(left, right)):
            return _divided(left, right, sizes) or _divided(right, left, sizes)
        case Op(op="lt" | "ge" as name, args=(part, bound)):
            return _compared(name, part, bound, sizes)
        case Op(op="gt" | "le" as name, args=(bound, part)):
            return _compared("lt" if name == "gt" else "ge", part, bound, sizes)
        case _:
            return None


def _compared(name: str, part: Expr, bound: Expr, sizes: _Sizes) -> Expr | None:
    """Return a comparison "lt" or "ge" of a quotient or remainder with a bound without the division."""
    match part:
        case Op(op="floordiv", args=(whole, width)) if _pair(bound, width) in sizes:
            return op(name, whole, sizes[_pair(bound, width)])
        case Op(op="floordiv", args=(whole, width)) if bound == Const(0, bound.dtype) and _is_factor(width, sizes):
            return op(name, whole, bound)
        case Op(op="mod", args=(_, width)) if _is_factor(width, sizes) and bound in (width, Const(0, bound.dtype)):
            return Const((name == "lt") == (bound == width), boolean)
        case _:
            return None


def _divided(left: Expr, right: Expr, sizes: _Sizes) -> Expr | None:
    """Return p for p // W * W + p % W; None for other sums."""
    match right:
        case Op(op="mod", args=(whole, width)) if _is_factor(width, sizes):
            quotient = _quotient(whole, width, sizes)
            return whole if left in (op("mul", quotient, width), op("mul", width, quotient)) else None
        case _:
            return None


def _is_factor(size: Expr, sizes: _Sizes) -> bool:
    return any(size in pair for pair in sizes)


def _factors(expr: Expr) -> Iterator[Expr]:
    match expr:
        case Op(op="mul", args=args):
            for arg in args:
                yield from _factors(arg)
        case Op(op="cast", args=(arg,)) if arg.dtype.is_int and not arg.dtype.modular:
            yield from _factors(arg)
        case _:
            yield expr


def _quotient(whole: Expr, width: Expr, sizes: _Sizes) -> Expr:
    """Return whole // width, as it is written after `_simpler`."""
    quotient = op("floordiv", whole, width)
    return _simpler(quotient, sizes) or quotient
