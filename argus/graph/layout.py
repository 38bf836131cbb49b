"""The axes of a generated kernel and its tensors: atoms that every tensor keeps together form one axis.

A tensor of the graph is passed as a view (`as_strided`) with one dimension for each axis, in the order of memory. A
kernel for rows therefore serves tensors of any rank, heads that are cut out of a projection, and transposed factors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from argus.graph.capture import Meta, Value, meta_of
from argus.graph.group import Group
from argus.graph.space import Dim, Dims, Mismatch
from argus.graph.terms import Extent, product

SYMBOLS = "ABCDEFGHIJLMNOPQSTUVWXYZ"

PARALLEL, REDUCED, LEFT, RIGHT, SHARED = "parallel", "reduced", "left", "right", "shared"
PLACE = "place"
"""Kinds of axes. For a product: LEFT axes are in the first factor alone, RIGHT axes in the second, SHARED axes in both
(batches), and the REDUCED axis is summed. PLACE axes are those of an image, which is read at computed indices."""

FACTORS = ("a", "b", "x", "w")
"""Names of the uses of a product's factors, and of images and filters."""


@dataclass(frozen=True)
class Axis:
    """A loop of the kernel: atoms that stay together, most significant first. `symbol` names its extent. The extent of
    a `fixed` axis is a constant."""

    symbol: str
    atoms: tuple[int, ...]
    extent: Extent
    kind: str
    fixed: bool = False

    @property
    def size(self) -> str:
        """The extent in the kernel's text."""
        return str(self.extent) if self.fixed else self.symbol

    @property
    def index(self) -> str:
        """The name of an index along the axis."""
        return self.symbol.lower()


@dataclass(frozen=True)
class Param:
    """A tensor of the kernel. `dims` are its dimensions in the graph, in atoms; `axes` and `strides` are those of the
    passed view, in the order of memory."""

    name: str
    value: Value
    meta: Meta
    dims: Dims
    axes: tuple[Axis, ...]
    strides: tuple[Extent, ...]
    use: str = ""
    stored: str = ""

    @property
    def dtype(self) -> str:
        """The dtype in the kernel: the tensor's dtype, or the dtype in which its bits are multiplied."""
        return self.stored or self.meta.dtype

    @property
    def shape(self) -> tuple[Extent, ...]:
        return tuple(axis.extent for axis in self.axes)


@dataclass(frozen=True)
class Layout:
    """Axes and tensors of a group's kernel."""

    axes: tuple[Axis, ...]
    reads: tuple[Param, ...]
    writes: tuple[Param, ...]

    def axis(self, dim: Dim) -> Axis | None:
        """Return the axis of a dimension, or None if the dimension has one element."""
        return next((a for a in self.axes if a.atoms == dim), None)

    def of(self, kind: str) -> tuple[Axis, ...]:
        return tuple(axis for axis in self.axes if axis.kind == kind)


def layout(group: Group, multiplied: str = "", flat: bool = False) -> Layout:
    """Return the axes and tensors of a group. The factors of a product are `multiplied` in that dtype. `flat` joins the
    places of an image into one axis. Raises Mismatch if no kernel can be generated for the group."""
    space = group.space
    read: dict[tuple[Value, Dims], str] = {}
    for use, value in group.reads.items():
        read.setdefault((value, space[use]), use[1] if use[1] in FACTORS else "")
    written = [(value, space[value]) for value in group.outputs]
    strides = {key: _strides(group, *key) for key in (*read, *written)}
    kinds = _kinds(group, read)
    runs = _runs(group, list(strides.values()), kinds, set(space.atoms(group.places)) if flat else set())
    if len(runs) > len(SYMBOLS):
        raise Mismatch("more axes than there are letters")
    fixed = space.atoms(group.fixed)
    axes = tuple(
        Axis(SYMBOLS[n], run, product([space.size(a) for a in run]), kinds[run[0]], run[0] in fixed)
        for n, run in enumerate(runs)
    )
    reads = [
        _param(f"x{n}", key, strides[key], axes, use, multiplied if use else "")
        for n, (key, use) in enumerate(read.items())
    ]
    writes = [_param(f"y{n}", key, strides[key], axes, "") for n, key in enumerate(written)]
    for param in writes:
        held = {a.symbol for a in param.axes}
        if any(a.kind not in (REDUCED, PLACE) and a.symbol not in held for a in axes):
            raise Mismatch("a result that repeats its elements")
        if product(param.shape) != product(param.meta.shape):
            raise Mismatch("a result that would be written in part")
    return Layout(axes, tuple(reads), tuple(writes))


def _strides(group: Group, value: Value, dims: Dims) -> dict[int, Extent]:
    """Return the stride of each atom. Atoms that are repeated in memory have none."""
    meta = meta_of(value)
    assert meta is not None
    found: dict[int, Extent] = {}
    for dim, stride in zip(dims, meta.strides, strict=True):
        for atom in reversed(dim):
            if stride != 0:
                found[atom] = stride
            stride = stride * group.space.size(atom)
    return found


def _kinds(group: Group, read: dict[tuple[Value, Dims], str]) -> dict[int, str]:
    over = set(group.over()) | set(group.space.atoms(group.contracted))
    places = set(group.space.atoms(group.places))
    factor = {use: {a for (_, dims), u in read.items() if u == use for dim in dims for a in dim} for use in "abxw"}
    first, second = ("a", "b") if group.product is not None else ("w", "x")
    kinds: dict[int, str] = {}
    for _, dims in (*read, *((v, group.space[v]) for v in group.outputs)):
        for atom in (a for dim in dims for a in dim):
            if atom in over:
                kinds[atom] = PLACE if atom in places else REDUCED
            elif not factor[first]:
                kinds[atom] = PARALLEL
            else:
                left, right = atom in factor[first], atom in factor[second]
                kinds[atom] = SHARED if left and right else LEFT if left else RIGHT if right else PARALLEL
    return kinds


def _runs(
    group: Group, tensors: list[dict[int, Extent]], kinds: dict[int, str], flat: set[int]
) -> list[tuple[int, ...]]:
    """Return the axes into which atoms are joined, in the order of the first result. `flat` are fixed atoms that are
    joined nevertheless."""
    order: list[int] = []
    for value in group.outputs:
        order += [a for dim in group.space[value] for a in dim]
    runs: list[tuple[int, ...]] = [(a,) for a in dict.fromkeys((*order, *kinds))]

    fixed = set(group.space.atoms(group.fixed)) - flat

    def join(high: tuple[int, ...], low: tuple[int, ...]) -> bool:
        if fixed.intersection((*high, *low)):
            return False
        if kinds[high[0]] != kinds[low[0]]:
            return False
        size = product([group.space.size(a) for a in low])
        for strides in tensors:
            here = high[-1] in strides, low[-1] in strides
            if here[0] != here[1]:
                return False
            if all(here) and strides[high[-1]] != size * strides[low[-1]]:
                return False
        return True

    joined = True
    while joined:
        joined = False
        for high in runs:
            low = next((r for r in runs if r is not high and join(high, r)), None)
            if low is not None:
                runs[runs.index(high)] = high + low
                runs.remove(low)
                joined = True
                break
    return runs


def _param(
    name: str, key: tuple[Value, Dims], strides: dict[int, Extent], axes: tuple[Axis, ...], use: str, stored: str = ""
) -> Param:
    value, dims = key
    meta: Any = meta_of(value)
    own = [axis for axis in axes if axis.atoms[-1] in strides]
    own.sort(key=lambda axis: _magnitude(strides[axis.atoms[-1]]), reverse=True)
    return Param(name, value, meta, dims, tuple(own), tuple(strides[a.atoms[-1]] for a in own), use, stored)


def _magnitude(stride: Extent) -> int:
    """Return a stride as a number to sort by. Symbolic sizes count as large."""
    return stride if isinstance(stride, int) else int(stride.subs(dict.fromkeys(stride.free_symbols, 2**10 + 1)))
