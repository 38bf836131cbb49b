"""A group at small sizes: the same operators on tensors of a few elements, which PyTorch runs on the CPU.

Atoms of the group's space (`argus.graph.space`) get small sizes. Equal sizes stay equal, and arguments that state
sizes, as of a reshape, follow. Sizes that a result gets from its operator, as behind a convolution or a concatenation,
are those that PyTorch finds. Taps of filters, strides and borders keep their own values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch

from argus.graph import capture
from argus.graph.capture import Value, inputs, meta_of, value_of
from argus.graph.group import Group
from argus.graph.operators import name_of
from argus.graph.row import POINTWISE
from argus.graph.space import Dim, Dims, Mismatch
from argus.graph.turned import NAME as TURNED
from argus.graph.window import Window, window_of

SMALL = (3, 5, 2, 4, 6, 7)
"""Sizes that replace larger ones, in the order in which a group's sizes first occur."""

_MOST_KEPT = 4  # a size up to which a dimension keeps its own
_MOST_TAPS = 200
_ROWS = 5  # rows of a result whose rows are read from a tensor
_FILTERS = 2  # filters of a convolution whose phases are stored in turns
_OUT = 3  # places of a window operator's result along each dimension
_RATIO = 3  # places of an image for each place of a result whose windows divide the image
_MOST_ELEMENTS = 1 << 14
_MOST_WHOLE = 1 << 20  # combinations of indices at which a group is compared at its own sizes

_STATED = {
    "view.default": 1, "_unsafe_view.default": 1, "reshape.default": 1, "expand.default": 1,
    "_adaptive_avg_pool2d.default": 1, "native_layer_norm.default": 1, TURNED: 4,
}  # fmt: skip
"""The argument of an operator that states sizes."""


class NotSmall(Exception):
    """A group has no small instance. The text gives the reason."""


class Small:
    """A group at small sizes, or at its own if `whole`, with `tensors`: what it reads, as tensors on the CPU.

    Raises NotSmall if no sizes are found that suit all operators."""

    def __init__(self, group: Group, whole: bool = False, seed: int = 0) -> None:
        self.original, self.whole = group, whole
        self.sizes: dict[int, int] = _own_sizes(group) if whole else dict(_of_window(group))
        self.known: dict[Any, int] = {}
        if group.scatter is not None:
            self.sizes |= dict.fromkeys(group.space.atoms(group.places), _ROWS)
        self.generator = torch.Generator().manual_seed(seed)
        self.graph = torch.fx.Graph()
        self.nodes: dict[Any, Any] = {}
        self.read: dict[Value, Any] = {}
        self.tensors: dict[Value, torch.Tensor] = {}
        with torch.no_grad():
            self.dims = self._dims_of_reads()
            for node in group.nodes:
                self._copied(node)
        self.group = self._moved()

    def wide(self) -> dict[Value, Any]:
        """Return the value of each output in float64, by PyTorch. Integers and truth values keep their dtype."""
        return self._run(lambda x: x.double() if x.is_floating_point() else x, torch.float64)

    def own(self) -> dict[Value, Any]:
        """Return the value of each output in the dtypes of the graph."""
        return self._run(lambda x: x, None)

    def _run(self, change: Callable[[torch.Tensor], torch.Tensor], dtype: Any) -> dict[Value, Any]:
        known: dict[Any, Any] = {node: change(x) for (node, _), x in self.tensors.items()}
        with torch.no_grad():
            for node in self.graph.nodes:
                if node.op == "call_function":
                    known[node] = _expanded(_called(node, lambda n: known[n], dtype), node.meta["val"])
        return {(n, p): known[n][p] if isinstance(known[n], (tuple, list)) else known[n] for n, p in self.group.outputs}

    # ------------------------------------------------------------------------ tensors that are read

    def _dims_of_reads(self) -> dict[Value, Dims]:
        found: dict[Value, Dims] = {}
        for use, value in self.original.reads.items():
            dims = self.original.space[use]
            if found.setdefault(value, dims) != dims:
                raise NotSmall("a tensor is read with two shapes")
        return found

    def extent(self, dim: Dim) -> int:
        return prod(self.sizes[a] for a in dim)

    def _input(self, value: Value, dims: Dims) -> None:
        """Draw a tensor that the group reads. Its sizes that are not known yet are chosen."""
        meta = meta_of(value)
        assert meta is not None
        for atom in (a for dim in dims for a in dim):
            self.sizes.setdefault(atom, self._small(self.original.space.size(atom)))
        shape = tuple(map(self.extent, dims))
        if prod(shape) > _MOST_ELEMENTS:
            raise NotSmall("it has too many elements at the smallest sizes")
        order = sorted(range(len(shape)), key=lambda d: -_number(meta.strides[d]))
        repeated = [d for d in range(len(shape)) if meta.strides[d] == 0]
        drawn = self._drawn([1 if d in repeated else shape[d] for d in order], getattr(torch, meta.dtype))
        x = drawn.permute([order.index(d) for d in range(len(shape))]).expand(shape)
        node = self.graph.placeholder(f"read{len(self.read)}")
        node.meta["val"] = x
        self.read[value], self.tensors[(node, 0)] = node, x

    def _small(self, own: Any) -> int:
        if isinstance(own, int) and own <= _MOST_KEPT:
            return own
        return self.known.setdefault(own, SMALL[len(self.known) % len(SMALL)])

    def _drawn(self, shape: Sequence[int], dtype: Any) -> torch.Tensor:
        """Return random numbers, some of them among the values at which functions change."""
        if dtype.is_floating_point:
            special = torch.tensor((0.0, 1.0, -1.0, 0.5, -0.5, 3.0, -3.0, 6.0, -7.0))
            x = torch.randn(list(shape), generator=self.generator)
            chosen = special[torch.randint(len(special), list(shape), generator=self.generator)]
            return torch.where(torch.rand(list(shape), generator=self.generator) < 0.25, chosen, x).to(dtype)
        places = [self.sizes[a] for a in self.original.space.atoms(self.original.places) if a in self.sizes]
        most = 2 if dtype is torch.bool else min(places, default=4)
        return torch.randint(most, list(shape), generator=self.generator).to(dtype)

    # ------------------------------------------------------------------------ operators

    def _copied(self, node: Any) -> Any:
        """Return the small copy of a node, after those that it reads."""
        if node in self.nodes:
            return self.nodes[node]
        args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), self._argument)
        new = self.graph.create_node("call_function", node.target, self._stated(node, args), kwargs, name=node.name)
        self.nodes[node] = new
        made = _called(new, lambda n: n.meta["val"], None)
        new.meta["val"] = self._settled(node, made)
        return new

    def _argument(self, node: Any) -> Any:
        value = value_of(node)
        if value in self.dims:
            if value not in self.read:
                self._input(value, self.dims[value])
            return self.read[value]
        if node.op != "call_function" or meta_of(value) is None:
            return node  # a size, which `_stated` replaces
        if value[1] == 0 and value[0] is node:
            return self._copied(node)
        source = self._copied(value[0])
        found = self.graph.call_function(node.target, (source, value[1]))
        found.meta["val"] = source.meta["val"][value[1]]
        return found

    def _stated(self, node: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a node's arguments with small sizes where they state sizes."""
        name, changed = name_of(node.target), list(args)
        if self.whole:
            return args
        if node is self.original.scatter:
            changed[2] = self.extent(self.original.places)
        if name == "full.default":
            changed[0] = [1] * len(args[0])
        elif name == "convolution.default" and args[8] > 1:
            changed[8] = self._groups(node, args[8])
        elif name in _STATED and len(args) > _STATED[name]:
            at, count = _STATED[name], len(args[_STATED[name]])
            given = name == "native_layer_norm.default"
            changed[at] = list(args[0].meta["val"].shape[-count:] if given else self._shape(node, count))
        return tuple(changed)

    def _groups(self, node: Any, groups: int) -> int:
        channels = self.original.space[(inputs(node)[0], "x")][1]
        taken = [a for n, a in enumerate(channels) if prod(map(self._own, channels[: n + 1])) <= groups]
        if prod(map(self._own, taken)) != groups:
            raise NotSmall("groups of channels that are no dimension")
        return self.extent(tuple(taken))

    def _own(self, atom: int) -> int:
        return int(self.original.space.size(atom))

    def _shape(self, node: Any, count: int) -> tuple[int, ...]:
        """Return the sizes of the last dimensions of a node's result."""
        dims = self._dims((node, 0))
        if capture.name(node) == "expand.default":  # its size is that of a tensor which is read later
            for atom in (a for dim in dims for a in dim):
                self.sizes.setdefault(atom, self._small(self.original.space.size(atom)))
        try:
            return tuple(map(self.extent, dims[len(dims) - count :]))
        except KeyError:
            raise NotSmall("a size that only an operator knows") from None

    def _dims(self, value: Value) -> Dims:
        for key, dims in self.original.space.items():
            if key == value or (isinstance(key, tuple) and key[0] == value):
                return dims
        raise NotSmall(f"{capture.name(value[0])} has no dimensions of its own")

    def _settled(self, node: Any, made: Any) -> Any:
        """Check the shapes of a node's results, from which sizes that were not known follow."""
        if isinstance(made, (tuple, list)):
            return type(made)(self._result((node, place), x) for place, x in enumerate(made))
        return self._result((node, 0), made)

    def _result(self, value: Value, x: Any) -> Any:
        if capture.is_constant(value[0]) or value not in self.original.space:
            return x
        dims = self.original.space[value]
        for dim, size in zip(dims, x.shape, strict=True):
            if len(dim) == 1:
                self.sizes.setdefault(dim[0], int(size))
        if any(a not in self.sizes for dim in dims for a in dim):
            raise NotSmall("a size that follows from no other")
        shape = tuple(map(self.extent, dims))
        row = capture.row(value[0])
        if row is not None and row.kind == POINTWISE:
            x = x.expand(shape)
        if tuple(x.shape) != shape:
            raise NotSmall(f"{capture.name(value[0])} makes a tensor of another shape")
        return x

    # ------------------------------------------------------------------------ the group

    def _moved(self) -> Group:
        """Return the group over the small nodes."""
        group, used = self.original, [key for key, _ in self.original.space.items() if self._is_used(key)]
        if any(a not in self.sizes for key in used for dim in group.space[key] for a in dim):
            raise NotSmall("a size that follows from no other")
        return replace(
            group,
            nodes=[self.nodes[n] for n in group.nodes],
            space=group.space.at_sizes(self.sizes, {key: self._key(key) for key in used}),
            product=self.nodes.get(group.product),
            scatter=self.nodes.get(group.scatter),
            window=self.nodes.get(group.window),
            outputs=tuple(map(self._value, group.outputs)),
            reads={self._key(use): self._value(value) for use, value in group.reads.items()},
        )

    def _is_used(self, key: Any) -> bool:
        node = key[0][0] if isinstance(key[0], tuple) else key[0]
        return node in self.nodes or any(v[0] is node for v in self.read)

    def _value(self, value: Value) -> Value:
        return (self.read[value], 0) if value in self.read else (self.nodes[value[0]], value[1])

    def _key(self, key: Any) -> Any:
        if not isinstance(key[0], tuple):
            return self._value(key)
        return self._value(key[0]), key[1]


def _called(node: Any, of: Callable[[Any], Any], dtype: Any) -> Any:
    """Run a node on the CPU. Floats become `dtype`, unless it is None."""

    def changed(argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return of(argument)
        if isinstance(argument, torch.device):
            return torch.device("cpu")
        if isinstance(argument, torch.dtype) and argument.is_floating_point and dtype is not None:
            return dtype
        return argument

    args, kwargs = torch.fx.node.map_aggregate((node.args, dict(node.kwargs)), changed)
    if dtype is not None and name_of(node.target) in ("_softmax.default", "_log_softmax.default"):
        args = (*args[:2], False)
    return node.target(*args, **kwargs)


def _expanded(made: Any, like: Any) -> Any:
    return made.expand(like.shape) if isinstance(made, torch.Tensor) else made


def _number(extent: Any) -> int:
    return extent if isinstance(extent, int) else int(extent.subs(dict.fromkeys(extent.free_symbols, 1024)))


# ---------------------------------------------------------------------------- sizes


def _own_sizes(group: Group) -> dict[int, int]:
    atoms = {a for _, dims in group.space.items() for dim in dims for a in dim}
    sizes = {a: size for a in atoms if isinstance(size := group.space.size(a), int)}
    if len(sizes) < len(atoms) or prod(sizes.values()) > _MOST_WHOLE:
        raise NotSmall("its own sizes are large")
    return sizes


def _of_window(group: Group) -> Iterator[tuple[int, int]]:
    """Yield the sizes of the places of an image, and of the taps of filters."""
    if group.window is None:
        return
    try:
        window = window_of(group.window)
    except Mismatch as error:
        raise NotSmall(str(error)) from None
    if prod(window.taps) > _MOST_TAPS and not capture.name(group.window).startswith("_adaptive"):
        raise NotSmall("its windows have too many places")
    space, values = group.space, inputs(group.window)
    if window.op == "convolution":
        for dim in space[(values[1], "w")][2:]:
            yield from ((a, int(space.size(a))) for a in dim)
    if window.turns:
        phases = prod(step for step, _ in window.turns)
        yield from ((a, _FILTERS * phases) for a in space[(values[1], "w")][0])
    here, there = space[(values[0], "x")][-window.spatial :], space[(group.window, 0)][-window.spatial :]
    for d, (dim, result) in enumerate(zip(here, there, strict=True)):
        if len(dim) > 1:
            raise NotSmall("an image whose places are cut")
        own, made = space.extent(dim), space.extent(result)
        for atom in dim:
            yield atom, _places(window, d, own, made, capture.name(group.window).startswith("_adaptive"))
        if capture.name(group.window).startswith("_adaptive") or window.turns:
            yield from _results(window, d, result, own, made)


def _results(window: Window, d: int, dim: Dim, own: int, made: int) -> Iterator[tuple[int, int]]:
    """Yield the size of a dimension of the result where the operator's arguments state it."""
    if len(dim) != 1:
        if dim:
            raise NotSmall("an image whose places are cut")
        return
    step = window.turns[d][0] if window.turns else 0
    yield dim[0], (made - step * (own - _kept(own, window.taps[d])) if step else min(made, _OUT))


def _kept(own: int, taps: int) -> int:
    return min(own, _OUT + taps)


def _places(window: Window, d: int, own: int, made: int, divides: bool) -> int:
    """Return the size of an image along a dimension."""
    if divides:
        return min(made, _OUT) * min(own // made, _RATIO)
    if window.transposed:
        return min(own, _OUT)
    reach = (window.taps[d] - 1) * window.dilation[d] + 1
    if window.turns:
        return _kept(own, reach)
    over = (own + 2 * window.padding[d] - reach) % window.stride[d]
    for out in range(min(made, _OUT), made + 1):
        size = (out - 1) * window.stride[d] + reach - 2 * window.padding[d] + over
        if size > window.padding[d]:
            return min(size, own)
    return own
