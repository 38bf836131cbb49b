"""The nodes of a traced graph: values with shapes, strides and dtypes, and operators with their table rows."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from argus.graph.library import copies_too_much
from argus.graph.operators import arguments, name_of, row_of
from argus.graph.row import POINTWISE, SCATTER, VIEW, WINDOW, Row
from argus.graph.terms import Extent

if TYPE_CHECKING:
    from torch.fx import Node

Value = tuple[Any, int]
"""A node and the number of one of its results."""

FLOATS = frozenset(("float32", "float16", "bfloat16"))
SHORT = frozenset(("float16", "bfloat16"))
PRODUCTS = frozenset(("mm.default", "bmm.default", "addmm.default", "baddbmm.default"))
READ = FLOATS | {"bool", "int32", "int64"}
"""Dtypes of tensors that generated kernels read. Kernels write floats and truth values."""

_LEAST_ROWS = 16
"""Size of a dimension of windows from which on a product reads them where they overlap: the side of a small tile."""


@dataclass(frozen=True)
class Meta:
    """A tensor as traced. `symbolic`: some size or stride is known only at run time."""

    shape: tuple[Extent, ...]
    strides: tuple[Extent, ...]
    dtype: str
    device: str
    symbolic: bool


def value_of(node: Node) -> Value:
    """Return the value that a node stands for. A `getitem` node stands for one result of its argument."""
    if node.op == "call_function" and node.target is operator.getitem:
        source, place = node.args
        return source, int(place)  # type: ignore[arg-type]
    return node, 0


def meta_of(value: Value) -> Meta | None:
    """Return the shape, strides and dtype of a value, or None if it is not a dense tensor."""
    node, place = value
    known = node.meta.get("val")
    if isinstance(known, (tuple, list)):
        known = known[place] if place < len(known) else None
    return _meta(known)


def results(node: Node) -> tuple[Meta | None, ...]:
    """Return the shape, strides and dtype of each result of a node, with None for results that are not dense tensors.
    """
    known = node.meta.get("val")
    return tuple(_meta(v) for v in known) if isinstance(known, (tuple, list)) else (_meta(known),)


def _meta(known: Any) -> Meta | None:
    import torch

    if not isinstance(known, torch.Tensor) or known.layout is not torch.strided or known.is_quantized:
        return None
    shape, strides = tuple(map(_extent, known.shape)), tuple(map(_extent, known.stride()))
    symbolic = not all(isinstance(e, int) for e in (*shape, *strides))
    return Meta(shape, strides, str(known.dtype).removeprefix("torch."), str(known.device), symbolic)


def _extent(size: Any) -> Extent:
    """Return a size as an integer or a SymPy expression."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    return int(expression) if expression.is_Integer else expression


def inputs(node: Node) -> tuple[Value, ...]:
    """Return the tensors that an operator reads, in the order of its arguments and once for each use."""
    import torch

    found: list[Value] = []

    def visit(argument: Any) -> None:
        if isinstance(argument, torch.fx.Node):
            found.append(value_of(argument))
        elif isinstance(argument, (list, tuple)):
            for part in argument:
                visit(part)

    for argument in given(node):
        visit(argument)
    return tuple(found)


def given(node: Node) -> tuple[Any, ...]:
    """Return the arguments in the order of the operator's schema, if it has one."""
    if hasattr(node.target, "_schema"):
        return arguments(node.target, node.args, dict(node.kwargs))
    return (*node.args, *node.kwargs.values())


def row(node: Node) -> Row | None:
    """Return the table row of a node's operator."""
    return row_of(node.target) if node.op == "call_function" else None


def name(node: Node) -> str:
    """Return the operator's name for reports."""
    return name_of(node.target) or getattr(node.target, "__name__", str(node.target))


def is_view(node: Node) -> bool:
    """Return True for an operator that changes only which index means which element."""
    found = row(node)
    return found is not None and found.kind == VIEW


def is_library(node: Node) -> bool:
    """Return True for an operator of the library `argus.kernels`, whose kernels are proved before they run."""
    return node.op == "call_function" and getattr(node.target, "namespace", "") == "argus"


def writes(node: Node) -> bool:
    """Return True for an operator that writes one of its arguments."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def is_constant(node: Node) -> bool:
    """Return True for an operator whose result is filled with one known number, which kernels contain as a constant."""
    found = row(node)
    if found is None or found.kind != POINTWISE or found.left or inputs(node):
        return False
    made = results(node)[0]
    numbers = (n for a in given(node) for n in (a if isinstance(a, (list, tuple)) else (a,)))
    known = not any(map(_is_computed, numbers))
    return known and made is not None and made.dtype in FLOATS | {"bool"}


def refusal(node: Node) -> str:
    """Explain why the generator does not take an operator, or return "" if it may."""
    found = row(node)
    if found is None:
        return f"{name(node)} has no row in the operator table"
    if found.left:
        return f"{name(node)}: {found.left}"
    if found.kind == SCATTER and _is_deterministic():
        return f"{name(node)}: blocks add in no fixed order, and PyTorch was told to use deterministic algorithms"
    metas = [meta_of(v) for v in inputs(node)]
    made = [m for m in results(node)[: 1 if found.kind == WINDOW else None] if m is not None]
    if any(m is None for m in metas) or not made:
        return f"{name(node)} on something that is no dense tensor"
    known = [m for m in metas if m is not None]
    unread = sorted({m.dtype for m in known} - READ)
    if unread:
        return f"{name(node)}: kernels do not read {unread[0]}"
    unwritten = sorted({m.dtype for m in made} - FLOATS - {"bool"})
    if found.places and known[0].dtype not in FLOATS:
        return f"{name(node)} of {known[0].dtype}"
    if unwritten and not found.places:
        return f"{name(node)}: kernels do not compute {unwritten[0]}, which may wrap around or lose digits"
    placed = [m for v in inputs(node) if not is_constant(v[0]) and (m := meta_of(v)) is not None]
    if len({m.device for m in (*placed, *made)}) > 1:
        return f"{name(node)} on several devices"
    factor = widened(node) or known[-1].dtype
    if name(node) in PRODUCTS and known[-1].device.startswith("cuda") and not _multiplied(factor):
        return f"{name(node)}: kernels multiply float32 without matrix instructions, and PyTorch's library is faster"
    if name(node) in PRODUCTS and _is_copied(factor, *known[-2:]):
        return f"{name(node)}: a factor is contiguous along rows or columns, and PyTorch's library needs no copy of it"
    if any(size == 0 for m in (*known, *made) for size in m.shape):
        return f"{name(node)} without elements"
    if any(map(_is_computed, given(node))):
        return f"{name(node)} with a number that is known only when it runs"
    return ""


def _is_deterministic() -> bool:
    import torch

    return torch.are_deterministic_algorithms_enabled()


def passes(node: Node) -> bool:
    """Return True for an operator that returns the elements of a tensor unchanged, or 16-bit floats as float32."""
    if node.op != "call_function" or name(node) not in ("_to_copy.default", "clone.default"):
        return is_view(node)
    (read,), (made,) = map(meta_of, inputs(node)), results(node)
    if read is None or made is None:
        return False
    if read.device != made.device:
        return False
    return read.dtype == made.dtype or (read.dtype in SHORT and made.dtype == "float32")


def copies_windows(node: Node) -> bool:
    """Return True for a copy of windows that overlap in memory, which takes more memory than they do.

    A product reads the windows themselves, unless the dimension before its terms is shorter than a tile's side."""
    if node.op != "call_function" or name(node) != "clone.default":
        return False
    read = meta_of(inputs(node)[0])
    if read is None or read.symbolic or len(read.shape) < 2 or read.shape[-2] < _LEAST_ROWS:
        return False
    span = 1 + sum((size - 1) * stride for size, stride in zip(read.shape, read.strides, strict=True))
    return 0 not in read.strides and prod(read.shape) > span


def widened(node: Node) -> str:
    """Return the dtype of the 16-bit floats that were converted to a product's float32 factors, or "".

    Products of such factors are exact in float32, so a kernel multiplies the 16-bit floats themselves.
    """
    if name(node) not in PRODUCTS:
        return ""
    found = []
    for value in inputs(node)[-2:]:
        while value[0].op == "call_function" and passes(value[0]):
            value = value_of(value[0].args[0])
        found.append(meta_of(value))
    dtypes = {m.dtype if m is not None else "" for m in found}
    made = results(node)[0]
    same = len(dtypes) == 1 and made is not None and made.dtype == "float32"
    return dtypes.pop() if same and dtypes <= SHORT else ""


def _multiplied(dtype: str) -> bool:
    """Return True for factors that a GPU's matrix instructions may multiply."""
    import torch

    return dtype != "float32" or bool(torch.backends.cuda.matmul.allow_tf32)


def _is_copied(dtype: str, a: Meta, b: Meta) -> bool:
    """Return True for a float32 product on a GPU for which kernels would copy too many operands."""
    if dtype != "float32" or not a.device.startswith("cuda") or a.symbolic or b.symbolic:
        return False
    turned = (*b.shape[:-2], b.shape[-1], b.shape[-2]), (*b.strides[:-2], b.strides[-1], b.strides[-2])
    return copies_too_much((a.shape, a.strides), turned)


def _is_computed(argument: Any) -> bool:
    """Return True for a number that is known only when the graph runs."""
    import torch

    if isinstance(argument, torch.SymInt | torch.SymFloat | torch.SymBool):
        return True
    return isinstance(argument, torch.fx.Node) and not isinstance(argument.meta.get("val"), torch.Tensor | tuple | list)


def operators(graph: Any) -> Iterator[Node]:
    """Yield the nodes that compute a value, in order."""
    for node in graph.nodes:
        if node.op == "call_function" and node.target is not operator.getitem:
            yield node
