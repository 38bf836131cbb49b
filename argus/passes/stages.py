"""`Stage` as copies: asynchronous straight into shared memory where target and alignment allow."""

from __future__ import annotations

from dataclasses import replace

from argus.ir.expr import Const, Elem, Expr, elements
from argus.ir.instruction import INSTRUCTIONS
from argus.ir.nodes import Access, Copy, Kernel, Stage, Tensor
from argus.passes.affine import Facts
from argus.passes.layouts import default
from argus.passes.moves import contiguous_axis, moves, target_of, vector_width

_VECTOR = 16  # bytes: the widest access of all targets


def padded(stage: Stage, kernel: Kernel) -> Stage:
    """`stage` with zero as the value of masked elements, unless it says otherwise."""
    if stage.mask is None or stage.other is not None:
        return stage
    dtype = kernel.object(stage.dst).dtype
    return replace(stage, other=Const(0.0 if dtype.is_float else 0, dtype))


def plain_copy(stage: Stage, place: Access) -> Copy:
    """The synchronous copy of `stage` into `place`."""
    return Copy(place, stage.src, stage.shape, stage.mask, stage.other, span=stage.span)


def asynchronous_copy(kernel: Kernel, stage: Stage, place: Access, known: Facts) -> Copy | None:
    """`stage` into `place` as asynchronous copies of at least 4 bytes, or None if that cannot be.

    They fill with zeros only, and need consecutive aligned elements on both sides under a mask that is the
    same for all elements of one copy.
    """
    name = moves(target_of(kernel)).asynchronous
    source = kernel.object(stage.src.obj)
    if name is None or not isinstance(source, Tensor):
        return None
    if stage.mask is not None and (stage.other is None or stage.other.value != 0):
        return None
    axis = contiguous_axis(source, stage.src.index)
    if axis is None:
        return None
    order = (axis, *(d for d in reversed(range(len(stage.shape))) if d != axis))
    layout = default(stage.shape, kernel.num_threads, order, _VECTOR // source.dtype.bytes)
    copy = replace(plain_copy(stage, place), layout=layout)
    width = vector_width(kernel, copy, layout, INSTRUCTIONS[name], known)
    if width == 0:
        return None
    return replace(copy, instr=name, vector=width)


def reads(stage: Stage) -> tuple[Elem, ...]:
    """The registers that the indices and the mask of `stage` read."""
    exprs: tuple[Expr, ...] = (*stage.src.index, *(() if stage.mask is None else (stage.mask,)))
    return tuple(e for expr in exprs for e in elements(expr))
