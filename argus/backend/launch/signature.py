"""The signature of a compiled kernel, which a launcher needs: parameters, preconditions, calling convention.

The signature is taken from the explicit kernel that was proved and stored beside the binary, so that a cached kernel
is launched without its IR.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from argus.backend.fingerprint import constant, value_of
from argus.backend.launch.evaluate import from_json, to_json
from argus.ir.expr import Expr
from argus.ir.pixels import Pixels
from argus.source import NO_SPAN, SourceFile, Span

if TYPE_CHECKING:
    from argus.ir.nodes import Kernel


@dataclass(frozen=True, slots=True)
class TensorParam:
    """A tensor parameter. `shape` and `strides` (elements) are `Param`s or `Const`s; `dtype` is an Argus name.

    `alignment` (bytes) divides the address, every stride that is not the constant 1, and the extent of the
    stride-1 dimension, each times the item size.
    """

    name: str
    dtype: str
    itemsize: int
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    alignment: int
    read: bool
    written: bool
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True)
class ScalarParam:
    """A scalar launch parameter."""

    name: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Condition:
    """A `requires` over sizes, strides and scalars."""

    expr: Expr
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True)
class ContentRange:
    """`lo <= every element < hi` for the index tensor `tensor`."""

    tensor: str
    lo: Expr
    hi: Expr
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True)
class ContentOrder:
    """The declared arrangement of the elements of index tensor `tensor`; see `argus.ir.nodes.Arranged`."""

    tensor: str
    how: str
    total: Expr | None = None
    longest: Expr | None = None
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True)
class Slot:
    """One argument of the entry point; see `argus.backend.abi.Argument`. `dtype` is a name."""

    name: str
    kind: str
    dtype: str


@dataclass(frozen=True, slots=True)
class MapSlot:
    """The tensor map that is the argument `name`; see `argus.backend.abi.TensorMap`."""

    name: str
    tensor: str
    box: tuple[int, ...]
    swizzle_bytes: int
    pixels: Pixels | None


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of a compiled kernel.

    If `grid` is None, the launch gives it. `shared_bytes` is the shared memory that a block needs. In a `persistent`
    kernel (see `argus.backend.abi`) the grid counts programs. `cluster` is the number of blocks in a cluster. `flat` is
    as in `argus.ir.nodes.Kernel`.
    """

    name: str
    constexprs: tuple[tuple[str, object], ...]
    params: tuple[TensorParam | ScalarParam, ...]
    sizes: tuple[str, ...]
    grid: tuple[Expr, ...] | None
    conditions: tuple[Condition, ...]
    ranges: tuple[ContentRange, ...]
    orders: tuple[ContentOrder, ...]
    slots: tuple[Slot, ...]
    maps: tuple[MapSlot, ...]
    num_threads: int
    shared_bytes: int
    persistent: bool
    cluster: int
    flat: bool

    @property
    def tensors(self) -> tuple[TensorParam, ...]:
        """The tensor parameters, in order."""
        return tuple(p for p in self.params if isinstance(p, TensorParam))

    @property
    def scalars(self) -> tuple[ScalarParam, ...]:
        """The scalar parameters, in order."""
        return tuple(p for p in self.params if isinstance(p, ScalarParam))


def signature(kernel: Kernel) -> Signature:
    """Return the signature of a kernel in tile or explicit IR; in tile IR, shared memory is not laid out: 0 bytes."""
    from argus.backend.abi import arguments, persistent, shared_bytes, tensor_maps
    from argus.ir.contents import ranges
    from argus.ir.nodes import Arranged, Requires, Tensor

    read, written = _touched(kernel)
    params: list[TensorParam | ScalarParam] = []
    for p in kernel.params:
        if isinstance(p, Tensor):
            params.append(
                TensorParam(
                    p.name,
                    p.dtype.name,
                    p.dtype.bytes,
                    p.shape,
                    p.strides,
                    p.alignment,
                    p.name in read,
                    p.name in written,
                    p.span,
                )
            )
        else:
            params.append(ScalarParam(p.name, p.dtype.name))
    conditions = tuple(Condition(p.cond, p.span) for p in kernel.preconditions if isinstance(p, Requires))
    within = tuple(ContentRange(r.tensor, r.lo, r.hi, r.span) for r in ranges(kernel))
    facts = (p for p in kernel.preconditions if isinstance(p, Arranged))
    orders = tuple(ContentOrder(p.tensor, p.how, p.total, p.longest, p.span) for p in facts)
    slots = tuple(Slot(a.name, a.kind, a.dtype.name) for a in arguments(kernel))
    return Signature(
        kernel.name,
        kernel.constexprs,
        tuple(params),
        kernel.sizes,
        kernel.grid,
        conditions,
        within,
        orders,
        slots,
        tuple(MapSlot(m.name, m.tensor, m.box, m.swizzle_bytes, m.pixels) for m in tensor_maps(kernel)),
        kernel.num_threads,
        shared_bytes(kernel),
        persistent(kernel),
        kernel.cluster,
        kernel.flat,
    )


def _touched(kernel: Kernel) -> tuple[set[str], set[str]]:
    """Return the objects that the body reads, and those that it writes (an accumulation does both)."""
    from argus.ir.access import Mode, relations
    from argus.ir.nodes import Stage
    from argus.ir.visit import walk

    read: set[str] = set()
    written: set[str] = set()
    for stmt in walk(kernel.body):
        if isinstance(stmt, Stage):
            read.add(stmt.src.obj)
        for relation in relations(stmt):
            if relation.mode is not Mode.WRITE:
                read.add(relation.obj)
            if relation.mode is not Mode.READ:
                written.add(relation.obj)
    return read, written


# ---------------------------------------------------------------------------- JSON


def signature_to_json(value: Signature) -> Any:
    """Return `value` as a JSON value; spans are stored without the file."""
    return {
        "name": value.name,
        "constexprs": [[name, constant(v)] for name, v in value.constexprs],
        "params": [_param_to_json(p) for p in value.params],
        "sizes": list(value.sizes),
        "grid": None if value.grid is None else _exprs(value.grid),
        "conditions": [[to_json(c.expr), _span_to_json(c.span)] for c in value.conditions],
        "ranges": [[r.tensor, to_json(r.lo), to_json(r.hi), _span_to_json(r.span)] for r in value.ranges],
        "orders": [
            [o.tensor, o.how, *(None if e is None else to_json(e) for e in (o.total, o.longest)), _span_to_json(o.span)]
            for o in value.orders
        ],
        "slots": [[s.name, s.kind, s.dtype] for s in value.slots],
        "maps": [_map_to_json(m) for m in value.maps],
        "num_threads": value.num_threads,
        "shared_bytes": value.shared_bytes,
        "persistent": value.persistent,
        "cluster": value.cluster,
        "flat": value.flat,
    }


def signature_from_json(data: Any, file: SourceFile) -> Signature:
    """Return the signature that the JSON value of `signature_to_json` describes; `file` contains the kernel."""
    return Signature(
        data["name"],
        tuple((name, value_of(v)) for name, v in data["constexprs"]),
        tuple(_param_from_json(p, file) for p in data["params"]),
        tuple(data["sizes"]),
        None if data["grid"] is None else tuple(from_json(e) for e in data["grid"]),
        tuple(Condition(from_json(e), _span_from_json(s, file)) for e, s in data["conditions"]),
        tuple(
            ContentRange(t, from_json(lo), from_json(hi), _span_from_json(s, file)) for t, lo, hi, s in data["ranges"]
        ),
        tuple(
            ContentOrder(t, how, None if n is None else from_json(n), None if m is None else from_json(m),
                         _span_from_json(s, file))
            for t, how, n, m, s in data["orders"]
        ),
        tuple(Slot(*slot) for slot in data["slots"]),
        tuple(_map_from_json(*m) for m in data["maps"]),
        data["num_threads"],
        data["shared_bytes"],
        data["persistent"],
        data["cluster"],
        data["flat"],
    )


def _map_to_json(m: MapSlot) -> Any:
    pixels = None if m.pixels is None else [m.pixels.counts, m.pixels.strides, m.pixels.lower]
    return [m.name, m.tensor, list(m.box), m.swizzle_bytes, pixels]


def _map_from_json(name: str, tensor: str, box: list[int], swizzle: int, pixels: list[list[int]] | None) -> MapSlot:
    return MapSlot(name, tensor, tuple(box), swizzle, None if pixels is None else Pixels(*(tuple(p) for p in pixels)))


def _param_to_json(p: TensorParam | ScalarParam) -> Any:
    if isinstance(p, ScalarParam):
        return ["scalar", p.name, p.dtype]
    return [
        "tensor",
        p.name,
        p.dtype,
        p.itemsize,
        _exprs(p.shape),
        _exprs(p.strides),
        p.alignment,
        p.read,
        p.written,
        _span_to_json(p.span),
    ]


def _param_from_json(data: Any, file: SourceFile) -> TensorParam | ScalarParam:
    if data[0] == "scalar":
        return ScalarParam(*data[1:])
    _, name, dtype, itemsize, shape, strides, alignment, read, written, span = data
    return TensorParam(
        name,
        dtype,
        itemsize,
        tuple(from_json(e) for e in shape),
        tuple(from_json(e) for e in strides),
        alignment,
        read,
        written,
        _span_from_json(span, file),
    )


def _exprs(exprs: tuple[Expr, ...]) -> list[Any]:
    return [to_json(e) for e in exprs]


def _span_to_json(span: Span) -> Any:
    if span.file is None:
        return None
    return [span.line, span.column, span.end_line, span.end_column]


def _span_from_json(data: Any, file: SourceFile) -> Span:
    if data is None:
        return NO_SPAN
    return Span(file, *data)
