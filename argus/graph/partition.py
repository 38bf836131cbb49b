"""The partition of a graph into groups, each of which becomes one kernel, and nodes that are left to PyTorch.

    softmax(x @ w + b) * m   →   [mm, add] [_softmax, mul]

Operators join the groups of their inputs, in the order of the graph, as long as one kernel can do it: all values have
the same parallel axes, all reductions of a group reduce the same axes, and no path leads out of a group and back.
Views between them are regroupings of atoms (`argus.graph.space`), not operators.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from argus.graph import capture
from argus.graph.capture import Meta, Value, inputs, is_view, meta_of, row, value_of
from argus.graph.indexed import INSIDE, readings
from argus.graph.operators import name_of
from argus.graph.reduced import reduced_dims, result_dims
from argus.graph.row import INDEXED, POINTWISE, PRODUCT, REDUCTION, WINDOW, NotExpressible, normal
from argus.graph.space import Dim, Dims, Mismatch, Space
from argus.graph.window import most_filter_axes, placed

if TYPE_CHECKING:
    from torch.fx import Graph, Node

MOST_OPERATORS = 40
"""Largest number of operators in a group. A larger kernel is hard to read, and its specification takes long to
prove."""

Use = tuple[Value, str]
"""A value of another group, as the operators of a group read it: "a" and "b" are the factors of a product."""


@dataclass
class Group:
    """Operators that become one kernel. `space` has the dimensions of each value that they compute, and of each use of
    a value from elsewhere. `reduced` are the atoms over which they reduce, `product` is the node of a matrix product,
    and `window` that of a convolution or of pooling. `places` are read at computed indices; `fixed` atoms are axes of
    their own. `widened`: the product reads the 16-bit floats of which its factors are copies."""

    nodes: list[Node]
    space: Space
    reduced: Dim = ()
    product: Any = None
    outputs: tuple[Value, ...] = ()
    contracted: Dim = ()
    reads: dict[Use, Value] = field(default_factory=dict)
    window: Any = None
    places: Dim = ()
    fixed: Dim = ()
    widened: bool = False

    @property
    def head(self) -> Any:
        """The product or window that the group begins with, if any."""
        return self.product or self.window

    def multiplied(self) -> str:
        """Return the dtype of the value that is read as the last factor of a product, or as the image of a convolution.
        """
        wanted = "b" if self.product is not None else "x"
        meta = next(meta_of(value) for (_, use), value in self.reads.items() if use == wanted)
        assert meta is not None
        return meta.dtype

    def over(self) -> Dim:
        """Return the atoms over which the group currently reduces."""
        return tuple(dict.fromkeys(self.space.atoms(self.reduced)))

    def copy(self) -> Group:
        return Group(
            list(self.nodes), self.space.copy(), self.reduced, self.product, (), self.contracted, dict(self.reads),
            self.window, self.places, self.fixed, self.widened,
        )  # fmt: skip

    def use(self, node: Any, value: Value) -> str:
        """Return how an operator of the group uses a value."""
        read = inputs(node)
        if (value, f"{INSIDE}{node.name}") in self.reads:
            return f"{INSIDE}{node.name}"
        if node is self.product and value in read[-2:]:
            return "ab"[read[-2:].index(value)]
        return "xw"[read.index(value)] if node is self.window and value in read[:2] else ""


@dataclass(frozen=True)
class Partition:
    """Groups in the order of their first nodes. `left` gives, for every other operator, the reason why it is left to
    PyTorch."""

    groups: tuple[Group, ...]
    left: dict[Any, str]


Apart = tuple[frozenset[Any], frozenset[Any]]
"""Two sets of nodes. No kernel contains nodes of both."""


def partition(graph: Graph, refused: dict[Any, str] | None = None, apart: Iterable[Apart] = ()) -> Partition:
    """Partition a graph. `refused` maps nodes that are left to PyTorch to the reasons."""
    return _Partitioner(graph, refused or {}, tuple(apart)).run()


def _compares(node: Node, source: Any) -> bool:
    """Return True if an operator must read the other's result from memory: positions are found in the stored result."""
    return any(found is not None and found.places for found in (row(node), row(source)))


class _Partitioner:
    def __init__(self, graph: Graph, refused: dict[Any, str], apart: tuple[Apart, ...]) -> None:
        self.graph, self.refused, self.apart = graph, refused, apart
        self.group_of: dict[Any, Group] = {}
        self.left: dict[Any, str] = {}
        self.closed: set[int] = set()  # An operator that writes closes all earlier groups.
        self.order = {node: place for place, node in enumerate(graph.nodes)}

    def run(self) -> Partition:
        for node in capture.operators(self.graph):
            if is_view(node) or capture.is_constant(node) or not any(capture.results(node)):
                continue
            why = self.refused.get(node) or capture.refusal(node)
            if not why:
                try:
                    self.place(node)
                    continue
                except Mismatch as mismatch:
                    why = f"{capture.name(node)}: {mismatch}"
            self.left[node] = why
            if capture.writes(node):
                self.closed = set(map(id, self.group_of.values()))
        groups = sorted({id(g): g for g in self.group_of.values()}.values(), key=lambda g: self.order[g.nodes[0]])
        self.find_outputs(groups)
        return Partition(tuple(g for g in groups if g.outputs), self.left)

    def place(self, node: Node) -> None:
        """Put an operator into the groups of its inputs, all of them or one, or into a group of its own."""
        found = {
            id(g): g
            for v in inputs(node)
            if (g := self.group_of.get(self.base(v)[0])) is not None
            and id(g) not in self.closed
            and not self.belongs_to_a_reduction(node, g)
        }
        producers = sorted(found.values(), key=lambda g: self.order[g.nodes[-1]], reverse=True)
        tries: list[list[Group]] = [producers] if len(producers) > 1 else []
        tries += [[h for h in producers if h is not g] for g in producers] if len(producers) > 2 else []
        tries += [[g] for g in producers]
        for attempt in tries:
            merged = self.merged(attempt, node)
            if merged is not None:
                for member in merged.nodes:
                    self.group_of[member] = merged
                return
        alone = Group([], Space())
        self.join(alone, node)
        self.group_of[node] = alone

    def belongs_to_a_reduction(self, node: Node, group: Group) -> bool:
        """Return True for an elementwise operator that should be computed with the reduction that reads its result,
        instead of after a product.

        This is so if only reductions read its result, and the product's own result is written anyway, as for `x * x` in
        a sum of squares when other operators read x.
        """
        found = row(node)
        if group.head is None or found is None or found.kind != POINTWISE:
            return False
        users = self.readers((node, 0))
        reduced = bool(users) and all((r := row(u)) is not None and r.kind == REDUCTION for u in users)
        own = [self.base(v) for v in inputs(node) if self.group_of.get(self.base(v)[0]) is group]
        return reduced and all(any(u is not node for u in self.readers(v)) for v in own)

    def readers(self, value: Value) -> list[Any]:
        """Return the operators that read a value or a view of it."""
        found: list[Any] = []
        for user in value[0].users:
            if user.op == "call_function" and (is_view(user) or value_of(user)[0] is value[0]):
                if is_view(user) or value_of(user) == value:
                    found += self.readers((user, 0))
            else:
                found.append(user)
        return found

    def merged(self, groups: list[Group], node: Node) -> Group | None:
        """Return the union of the groups and the node if one kernel can compute the union, else None."""
        if sum(len(g.nodes) for g in groups) >= MOST_OPERATORS or not self.convex(groups, node):
            return None
        if sum(g.head is not None for g in groups) > 1:
            return None
        together = {n for g in groups for n in g.nodes} | {node}
        if any(together & first and together & second for first, second in self.apart):
            return None
        if any(self.base(v)[0] in together and _compares(n, self.base(v)[0]) for n in together for v in inputs(n)):
            return None
        trial = groups[0].copy()
        try:
            for other in groups[1:]:
                shift = len(trial.space)
                trial.space.absorb(other.space)
                trial.reduced += tuple(a + shift for a in other.reduced)
                trial.contracted += tuple(a + shift for a in other.contracted)
                trial.places += tuple(a + shift for a in other.places)
                trial.fixed += tuple(a + shift for a in other.fixed)
                trial.product = trial.product or other.product
                trial.window = trial.window or other.window
                trial.widened = trial.widened or other.widened
                trial.reads |= other.reads
                trial.nodes = sorted({*trial.nodes, *other.nodes}, key=lambda n: self.order[n])
            self.internal(trial)
            self.join(trial, node)
        except Mismatch:
            return None
        return trial

    def internal(self, group: Group) -> None:
        """Unify the dimensions of a use with those of the value, for values that a merged group computes itself."""
        for use, value in list(group.reads.items()):
            if value in group.space:
                for a, b in zip(group.space[use], group.space[value], strict=True):
                    group.space.unify(b, a)
                del group.reads[use]

    def convex(self, groups: list[Group], node: Node) -> bool:
        """Return True if no path leads from the groups over another node to one of them or to `node`."""
        members = {n for g in groups for n in g.nodes}
        first = min(self.order[n] for n in members)
        seen: set[Any] = set()
        stack = [s for n in (*members, node) for s in self.sources(n) if s not in members]
        while stack:
            at = stack.pop()
            group = self.group_of.get(at)
            together = group.nodes if group is not None else [at]
            if at in seen or max(self.order[n] for n in together) < first:
                continue
            seen.update(together)
            for near in together:
                for source in self.sources(near):
                    if source in members:
                        return False
                    stack.append(source)
        return True

    def sources(self, node: Node) -> list[Any]:
        """Return the nodes whose results an operator reads."""
        return [self.base(value)[0] for value in inputs(node)] if node.op == "call_function" else []

    # ------------------------------------------------------------------------ dimensions

    def base(self, value: Value) -> Value:
        """Return the value that a chain of views starts from."""
        node = value[0]
        while getattr(node, "op", "") == "call_function" and is_view(node):
            value = value_of(node.args[0])
            node = value[0]
        return value

    def join(self, group: Group, node: Node) -> None:
        """Add an operator to a group. Raises Mismatch if one kernel cannot compute both; the group must then be
        discarded."""
        made = [m for m in capture.results(node) if m is not None]
        found = row(node)
        assert found is not None
        if found.kind == PRODUCT:
            self.join_product(group, node, made[0])
        elif found.kind == REDUCTION:
            self.join_reduction(group, node)
        elif found.kind == WINDOW:
            self.join_window(group, node)
        elif found.kind == INDEXED:
            self.join_indexed(group, node, made[0])
        else:
            self.join_pointwise(group, node, made[0])
        group.nodes.append(node)
        self.insist(group)

    def join_pointwise(self, group: Group, node: Node, made: Meta) -> None:
        operands = self.operands(group, node)
        shape = made.shape
        result: list[Dim | None] = [() if size == 1 else None for size in shape]
        for dims in operands:
            for d, dim in enumerate(dims, len(shape) - len(dims)):
                known = result[d]
                if dim and known:
                    group.space.unify(known, dim)
                elif dim:
                    result[d] = dim
        done = self.completed(group, result, shape)
        self.broadcast_back(group, done)
        group.space[(node, 0)] = done

    def operands(self, group: Group, node: Node) -> list[Dims]:
        """Return the dimensions of an elementwise operator's operands.

        A view that has the axes of another operand in other places, as in `x[:, None] - x[None, :]`, is read as a
        tensor of its own. Raises Mismatch if an earlier operator reads it otherwise."""
        found: list[Dims] = []
        places: dict[int, int] = {}
        for value in inputs(node):
            known = (value, "") in group.space
            dims = group.space.resolved(self.dims(group, value))
            of_dims = {a: d - len(dims) for d, dim in enumerate(dims) for a in dim}
            if any(places.get(a, d) != d for a, d in of_dims.items()):
                meta = meta_of(value)
                if known or meta is None or not is_view(value[0]) or self.base(value)[0] in group.nodes:
                    raise Mismatch("one tensor would be read along its diagonal")
                group.space[(value, "")] = dims = group.space.fresh(meta.shape)
                group.reads[(value, "")] = value
                of_dims = {a: d - len(dims) for d, dim in enumerate(dims) for a in dim}
            places |= of_dims
            found.append(dims)
        return found

    def broadcast_back(self, group: Group, dims: Dims) -> None:
        """Unify the axes of a tensor from elsewhere with the reduced axes, if a reduction's result is broadcast against
        it."""
        computed = {a for n in group.nodes for r in self.results(group, n) for dim in r for a in dim}
        over = group.over()
        atoms = [group.space.atoms(dim) for dim in dims]
        if not over or any(a in over for dim in atoms for a in dim):
            return
        for dim in atoms:
            if dim and not computed & set(dim) and group.space.extent(dim) == group.space.extent(over):
                return group.space.unify(over, dim)

    def results(self, group: Group, node: Node) -> list[Dims]:
        """Return the dimensions of a node's results."""
        values = ((node, place) for place in range(len(capture.results(node))))
        return [group.space[value] for value in values if value in group.space]

    def completed(self, group: Group, dims: list[Dim | None], shape: tuple[Any, ...]) -> Dims:
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

    def join_reduction(self, group: Group, node: Node) -> None:
        arguments = capture.given(node)
        sources = [self.dims(group, v) for v in inputs(node)]
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
            self.unify_reduced(group, over)
        group.reduced = over
        if not over:
            raise Mismatch("a reduction of one element")
        rest = tuple(() if d in dims else dim for d, dim in enumerate(x))
        without = rest if keep else tuple(dim for d, dim in enumerate(rest) if d not in dims)
        for place, dims_of_result in enumerate(result_dims(node, x, without)):
            group.space[(node, place)] = dims_of_result

    def unify_reduced(self, group: Group, over: Dim) -> None:
        """Unify the axes of a second reduction with those of the first. Raises Mismatch if they overlap."""
        if set(group.over()) & set(over):
            raise Mismatch("reductions over different axes")
        group.space.unify(group.over(), over)

    def join_product(self, group: Group, node: Node, made: Meta) -> None:
        if group.nodes:
            raise Mismatch("a matrix product begins a kernel")
        *added, a, b = inputs(node)
        group.widened = bool(capture.widened(node))
        left, right = self.dims(group, a, "a"), self.dims(group, b, "b")
        *batch, m, k = left
        *other, depth, n = right
        for x, y in zip((*batch, k), (*other, depth), strict=True):
            group.space.unify(x, y)
        if not k or not m or not n:
            raise Mismatch("a product with a dimension of one element")
        result = tuple(group.space.atoms(d) for d in (*batch, m, n))
        group.product, group.contracted = node, k
        for c in added:
            dims = self.dims(group, c)
            for x, y in zip(result[len(result) - len(dims) :], dims, strict=True):
                if y:
                    group.space.unify(x, y)
        group.space[(node, 0)] = result

    def join_window(self, group: Group, node: Node) -> None:
        if group.nodes:
            raise Mismatch("a window begins a kernel")
        found = placed(group.space, node)
        for value, use, dims in found.reads:
            group.space[(value, use)], group.reads[(value, use)] = dims, value
        group.window, group.contracted = node, found.contracted
        group.places, group.fixed = found.places, found.fixed
        for added in inputs(node)[2:]:
            for a, b in zip(found.result[1:2], self.dims(group, added), strict=True):
                if b:
                    group.space.unify(a, b)
        group.space[(node, 0)] = found.result

    def join_indexed(self, group: Group, node: Node, made: Meta) -> None:
        """Add an operator that reads tensors of other kernels at computed places."""
        try:
            read, fixed = readings(node)
        except NotExpressible as error:
            raise Mismatch(str(error)) from None
        result = list(group.space.fresh(made.shape))
        for reading in read:
            value, plain = reading.value, None not in reading.along
            if plain:
                dims = self.dims(group, value)
            else:
                if self.base(value)[0] in group.nodes or capture.is_constant(value[0]):
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

    def dims(self, group: Group, value: Value, use: str = "") -> Dims:
        """Return the dimensions of a value as an operator reads it.

        Raises Mismatch for a view of the group's own results that is no regrouping."""
        if value in group.space:
            return group.space[value]
        node = value[0]
        meta = meta_of(value)
        assert meta is not None
        if capture.is_constant(node):
            return ((),) * len(meta.shape)
        passed = group.widened and use in ("a", "b") and node.op == "call_function" and capture.passes(node)
        if passed or (node.op == "call_function" and is_view(node)):
            kept = group.space.copy(), dict(group.reads)
            source = value_of(node.args[0])
            own = self.base(value) in group.space
            try:
                dims = self.seen(group, node, self.dims(group, source, use), meta)
                group.space[value if own else (value, use)] = dims
                return dims
            except Mismatch:
                if own:
                    raise
                group.space, group.reads = kept
        key: Use = (value, use)
        if key not in group.space:
            if self.base(value)[0] in group.nodes:
                raise Mismatch("a view of the group's own results")
            group.space[key] = group.space.fresh(meta.shape)
            group.reads[key] = value
        return group.space[key]

    def seen(self, group: Group, node: Node, dims: Dims, meta: Meta) -> Dims:
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

    # ------------------------------------------------------------------------ one kernel

    def insist(self, group: Group) -> None:
        """Raise Mismatch unless every value has all of the group's parallel axes, and all or none of its reduced axes.
        """
        over, contracted = set(group.over()), set(group.space.atoms(group.contracted))
        axes: set[int] | None = None
        for node in group.nodes:
            for dims in self.results(group, node):
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
        if group.window is not None and self.cuts_filters(group):
            raise Mismatch("filters along several axes")

    def cuts_filters(self, group: Group) -> bool:
        """Return True if operators behind a convolution look at its filters as several dimensions."""
        most = most_filter_axes(group.window)
        return most > 0 and len(group.space[(group.window, 0)][1]) > most

    def find_outputs(self, groups: Iterable[Group]) -> None:
        """Set the outputs of each group: the values that others need."""
        needed: set[Value] = set()

        def need(value: Value) -> None:
            if value in needed:
                return
            needed.add(value)
            if value[0].op == "call_function" and is_view(value[0]):
                for source in inputs(value[0]):
                    need(source)

        for group in groups:
            for value in group.reads.values():
                need(value)
        for node in self.graph.nodes:
            if node.op == "output" or node in self.left:
                for source in node.all_input_nodes:
                    need(value_of(source))
        for group in groups:
            group.outputs = tuple(
                (node, place)
                for node in group.nodes
                for place in range(len(capture.results(node)))
                if (node, place) in needed
            )
