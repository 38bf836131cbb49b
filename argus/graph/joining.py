"""Add operators to a group: the dimensions of their operands and results, as far as one kernel can compute all.

Views between operators are regroupings of atoms (`argus.graph.space`), not operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from argus.graph import capture
from argus.graph.capture import Meta, Value, inputs, is_view, meta_of, row, value_of
from argus.graph.group import Group, Use
from argus.graph.indexed import INSIDE, readings
from argus.graph.operators import name_of
from argus.graph.reduced import reduced_dims, result_dims
from argus.graph.row import INDEXED, PRODUCT, REDUCTION, SCATTER, WINDOW, NotExpressible, normal
from argus.graph.space import Dim, Dims, Mismatch
from argus.graph.window import most_filter_axes, placed

if TYPE_CHECKING:
    from torch.fx import Node


def join(group: Group, node: Node) -> None:
    """Add an operator to a group. Raises Mismatch if one kernel cannot compute both; the group must then be
    discarded."""
    made = [m for m in capture.results(node) if m is not None]
    found = row(node)
    assert found is not None
    if found.kind == PRODUCT:
        _join_product(group, node, made[0])
    elif found.kind == REDUCTION:
        _join_reduction(group, node)
    elif found.kind == WINDOW:
        _join_window(group, node)
    elif found.kind == INDEXED:
        _join_indexed(group, node, made[0])
    elif found.kind == SCATTER:
        _join_scatter(group, node, made[0])
    else:
        _join_pointwise(group, node, made[0])
    group.nodes.append(node)
    _insist(group)


def base(value: Value) -> Value:
    """Return the value that a chain of views starts from."""
    node = value[0]
    while getattr(node, "op", "") == "call_function" and is_view(node):
        value = value_of(node.args[0])
        node = value[0]
    return value


def _join_pointwise(group: Group, node: Node, made: Meta) -> None:
    operands = _operands(group, node)
    shape = made.shape
    result: list[Dim | None] = [() if size == 1 else None for size in shape]
    for dims in operands:
        for d, dim in enumerate(dims, len(shape) - len(dims)):
            known = result[d]
            if dim and known:
                group.space.unify(known, dim)
            elif dim:
                result[d] = dim
    done = _completed(group, result, shape)
    _broadcast_back(group, done)
    group.space[(node, 0)] = done


def _operands(group: Group, node: Node) -> list[Dims]:
    """Return the dimensions of an elementwise operator's operands.

    A view that has the axes of another operand in other places, as in `x[:, None] - x[None, :]`, is read as a
    tensor of its own. Raises Mismatch if an earlier operator reads it otherwise."""
    found: list[Dims] = []
    places: dict[int, int] = {}
    for value in inputs(node):
        known = (value, "") in group.space
        dims = group.space.resolved(_dims_of(group, value))
        of_dims = {a: d - len(dims) for d, dim in enumerate(dims) for a in dim}
        if any(places.get(a, d) != d for a, d in of_dims.items()):
            meta = meta_of(value)
            if known or meta is None or not is_view(value[0]) or base(value)[0] in group.nodes:
                raise Mismatch("one tensor would be read along its diagonal")
            group.space[(value, "")] = dims = group.space.fresh(meta.shape)
            group.reads[(value, "")] = value
            of_dims = {a: d - len(dims) for d, dim in enumerate(dims) for a in dim}
        places |= of_dims
        found.append(dims)
    return found


def _broadcast_back(group: Group, dims: Dims) -> None:
    """Unify the axes of a tensor from elsewhere with the reduced axes, if a reduction's result is broadcast against
    it."""
    computed = {a for n in group.nodes for r in _dims_of_results(group, n) for dim in r for a in dim}
    over = group.over()
    atoms = [group.space.atoms(dim) for dim in dims]
    if not over or any(a in over for dim in atoms for a in dim):
        return
    for dim in atoms:
        if dim and not computed & set(dim) and group.space.extent(dim) == group.space.extent(over):
            return group.space.unify(over, dim)


def _completed(group: Group, dims: list[Dim | None], shape: tuple[Any, ...]) -> Dims:
    """Complete a result's dimensions: one that no operand determines is the rest of the reduced axes if that fits,
    else new."""
    used = {a for dim in dims if dim for a in group.space.atoms(dim)}
    rest = tuple(a for a in group.over() if a not in used)
    done: list[Dim] = []
    for dim, size in zip(dims, shape, strict=True):
        if dim is None:
            dim = rest if rest and group.space.extent(rest) == size else group.space.fresh((size,))[0]
        done.append(dim)
    return tuple(done)


def _join_reduction(group: Group, node: Node) -> None:
    arguments = capture.given(node)
    sources = [_dims_of(group, v) for v in inputs(node)]
    x = sources[0]
    dims, keep = reduced_dims(node, arguments, len(x))
    if name_of(node.target).endswith("_backward_data.default"):
        for a, b in zip(x, sources[1], strict=True):
            group.space.unify(a, b)
    if name_of(node.target) == "native_layer_norm.default":
        for parameter in sources[1:]:
            for a, b in zip(x[len(x) - len(parameter) :], parameter, strict=True):
                group.space.unify(a, b)
    over = tuple(a for d in dims for a in group.space.atoms(x[d]))
    if group.reduced and set(group.over()) != set(over):
        _unify_reduced(group, over)
    group.reduced = over
    if not over:
        raise Mismatch("a reduction of one element")
    rest = tuple(() if d in dims else dim for d, dim in enumerate(x))
    without = rest if keep else tuple(dim for d, dim in enumerate(rest) if d not in dims)
    for place, dims_of_result in enumerate(result_dims(node, x, without)):
        group.space[(node, place)] = dims_of_result


def _unify_reduced(group: Group, over: Dim) -> None:
    """Unify the axes of a second reduction with those of the first. Raises Mismatch if they overlap."""
    if set(group.over()) & set(over):
        raise Mismatch("reductions over different axes")
    group.space.unify(group.over(), over)


def _join_product(group: Group, node: Node, made: Meta) -> None:
    if group.nodes:
        raise Mismatch("a matrix product begins a kernel")
    *added, a, b = inputs(node)
    group.widened = bool(capture.widened(node))
    left, right = _dims_of(group, a, "a"), _dims_of(group, b, "b")
    *batch, m, k = left
    *other, depth, n = right
    for x, y in zip((*batch, k), (*other, depth), strict=True):
        group.space.unify(x, y)
    if not k or not m or not n:
        raise Mismatch("a product with a dimension of one element")
    result = tuple(group.space.atoms(d) for d in (*batch, m, n))
    group.product, group.contracted = node, k
    for c in added:
        dims = _dims_of(group, c)
        for x, y in zip(result[len(result) - len(dims) :], dims, strict=True):
            if y:
                group.space.unify(x, y)
    group.space[(node, 0)] = result


def _join_window(group: Group, node: Node) -> None:
    if group.nodes:
        raise Mismatch("a window begins a kernel")
    found = placed(group.space, node)
    for value, use, dims in found.reads:
        group.space[(value, use)], group.reads[(value, use)] = dims, value
    group.window, group.contracted = node, found.contracted
    group.places, group.fixed = found.places, found.fixed
    for added in inputs(node)[2:]:
        for a, b in zip(found.result[1:2], _dims_of(group, added), strict=True):
            if b:
                group.space.unify(a, b)
    group.space[(node, 0)] = found.result


def _join_indexed(group: Group, node: Node, made: Meta) -> None:
    """Add an operator that reads tensors of other kernels at computed places."""
    try:
        read, fixed = readings(node)
    except NotExpressible as error:
        raise Mismatch(str(error)) from None
    result = list(group.space.fresh(made.shape))
    for reading in read:
        value, plain = reading.value, None not in reading.along
        if plain:
            dims = _dims_of(group, value)
        else:
            if base(value)[0] in group.nodes or capture.is_constant(value[0]):
                raise Mismatch("a kernel's own results at computed places")
            key = (value, f"{INSIDE}{node.name}")
            dims = group.space[key] = group.space.fresh(reading.shape)
            group.reads[key] = value
            computed = tuple(a for dim, d in zip(dims, reading.along, strict=True) if d is None for a in dim)
            group.places, group.contracted = (*group.places, *computed), (*group.contracted, *computed)
            group.fixed = (*group.fixed, *computed)
        for dim, d in zip(dims, reading.along, strict=True):
            if d is not None and dim:
                group.space.unify(result[d], dim)
    group.fixed = (*group.fixed, *(a for d in fixed for a in result[d]))
    group.space[(node, 0)] = tuple(group.space.atoms(dim) for dim in result)


def _join_scatter(group: Group, node: Node, made: Meta) -> None:
    """Begin a kernel that adds rows of its first operand at the places that the second one holds."""
    if group.nodes:
        raise Mismatch("sums at places that are read begin a kernel")
    *rows, columns = _dims_of(group, inputs(node)[0])
    for a, b in zip(rows, _dims_of(group, inputs(node)[1]), strict=True):
        group.space.unify(a, b)
    (places,) = group.space.fresh(made.shape[:1])
    if not places or not columns or not any(rows):
        raise Mismatch("sums at places that are read, along a dimension of one element")
    group.scatter, group.places = node, places
    group.contracted = tuple(a for dim in rows for a in group.space.atoms(dim))
    group.space[(node, 0)] = (places, group.space.atoms(columns))


def _dims_of(group: Group, value: Value, use: str = "") -> Dims:
    """Return the dimensions of a value as an operator reads it.

    Raises Mismatch for a view of the group's own results that is no regrouping."""
    if value in group.space:
        return group.space[value]
    node = value[0]
    meta = meta_of(value)
    assert meta is not None
    if capture.is_constant(node):
        return ((),) * len(meta.shape)
    passed = use in ("a", "b") and capture.passes(node) and (group.widened or capture.copies_windows(node))
    if passed or (node.op == "call_function" and is_view(node)):
        kept = group.space.copy(), dict(group.reads)
        source = value_of(node.args[0])
        own = base(value) in group.space
        try:
            dims = _dims_of_view(group, node, _dims_of(group, source, use), meta)
            group.space[value if own else (value, use)] = dims
            return dims
        except Mismatch:
            if own:
                raise
            group.space, group.reads = kept
    key: Use = (value, use)
    if key not in group.space:
        if base(value)[0] in group.nodes:
            raise Mismatch("a view of the group's own results")
        group.space[key] = group.space.fresh(meta.shape)
        group.reads[key] = value
    return group.space[key]


def _dims_of_view(group: Group, node: Node, dims: Dims, meta: Meta) -> Dims:
    """Return the dimensions of a view."""
    arguments = capture.given(node)
    match name_of(node.target):
        case "permute.default":
            return tuple(dims[normal(d, len(dims))] for d in arguments[1])
        case "transpose.int":
            order = list(dims)
            a, b = (normal(d, len(dims)) for d in arguments[1:3])
            order[a], order[b] = order[b], order[a]
            return tuple(order)
        case "t.default":
            return tuple(reversed(dims))
        case "expand.default":
            missing = len(meta.shape) - len(dims)
            full = ((),) * missing + dims
            return tuple(
                dim if dim or size == 1 else group.space.fresh((size,))[0]
                for dim, size in zip(full, meta.shape, strict=True)
            )
        case "alias.default" | "detach.default" | "clone.default" | "_to_copy.default":
            return dims
        case _:
            return group.space.regrouped(dims, meta.shape)


def _dims_of_results(group: Group, node: Node) -> list[Dims]:
    """Return the dimensions of a node's results."""
    values = ((node, place) for place in range(len(capture.results(node))))
    return [group.space[value] for value in values if value in group.space]


def _insist(group: Group) -> None:
    """Raise Mismatch unless every value has all of the group's parallel axes, and all or none of its reduced axes.
    """
    if group.scatter is not None and len(group.nodes) > 1:
        raise Mismatch("sums at places that are read are a kernel of their own")
    over, contracted = set(group.over()), set(group.space.atoms(group.contracted))
    axes: set[int] | None = None
    for node in group.nodes:
        for dims in _dims_of_results(group, node):
            atoms = {a for dim in dims for a in dim}
            if atoms & contracted:
                raise Mismatch("the summed axis of a product")
            if atoms & over and not over <= atoms:
                raise Mismatch("a part of the reduced axes")
            parallel = atoms - over
            if axes is not None and parallel != axes:
                raise Mismatch("other parallel axes")
            axes = parallel
    if over and (group.head is not None or group.places):
        raise Mismatch("a reduction behind a product, a window or computed places")
    if group.window is not None and _cuts_filters(group):
        raise Mismatch("filters along several axes")


def _cuts_filters(group: Group) -> bool:
    """Return True if operators behind a convolution look at its filters as several dimensions."""
    most = most_filter_axes(group.window)
    return most > 0 and len(group.space[(group.window, 0)][1]) > most
