"""Evaluate specified terms from the contents of tensors: integers exactly, other numbers in float64."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from typing_extensions import assert_never

from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, Thread
from argus.ir.nodes import SpecOp, SpecReduce, SpecSoftmax, SpecTerm
from argus.ir.spec_terms import identity, uses
from argus.ir.types import boolean, rounds_only
from argus.simulate.evaluate import FUNCTIONS, SELECTING, Number, modulo, sortable
from argus.simulate.launch import scalar
from argus.simulate.memory import GlobalTensor
from argus.simulate.numeric import Array, round_to, saturates, shaken, strains

UFUNCS: dict[str, np.ufunc] = {
    "add": np.add, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum, "logaddexp": np.logaddexp,
}  # fmt: skip
_STARTS = {"add": 0.0, "mul": 1.0, "maximum": -np.inf, "minimum": np.inf, "logaddexp": -np.inf}


_LIMIT = 2.0**62


def _reduced(op: str, values: Array, n: int, start: float) -> Array:
    """Return the reduction by `op` along the last axis, which has n places, or one place that stands for all n."""
    values = np.asarray(values, dtype=np.float64)
    values = np.broadcast_to(values, (*values.shape[:-1], n))
    with np.errstate(all="ignore"):
        result: Array = UFUNCS[op].reduce(values, axis=-1, initial=start)
    return result


def _reduced_exactly(op: str, values: Array, n: int, start: int) -> Array:
    """Return the reduction of integers. A result that 64 bits may not hold is returned in float64."""
    values = np.broadcast_to(values, (*values.shape[:-1], n))
    rounded = _reduced(op, values, n, start)
    largest = np.abs(values.astype(np.float64)).max(initial=0.0)
    if (op in ("add", "mul") and not (np.abs(rounded) < _LIMIT).all()) or (op == "add" and n * largest >= _LIMIT):
        return rounded
    result: Array = UFUNCS[op].reduce(values.astype(np.int64), axis=-1, initial=start)
    return result


class Reference:
    """Evaluates terms. Every bound variable becomes an additional array axis at the end.

    `disturbed`: each result of arithmetic is changed by a part in 2^40. `watched`: note in `strained` if some results
    came near the ends of the 64-bit range. `stored`: tensors whose elements are those after the kernel.
    """

    def __init__(
        self,
        tensors: Mapping[str, GlobalTensor],
        params: Mapping[str, Number],
        disturbed: bool = False,
        watched: bool = False,
        stored: Collection[str] = (),
    ) -> None:
        self.tensors, self.params, self.disturbed, self.watched = tensors, params, disturbed, watched
        self.stored = stored
        self.strained = False

    def term(self, value: SpecTerm, axes: dict[int, Array]) -> Array:
        """Return the values of `value`; `axes[i]` is the array of `Coord(i)`."""
        match value:
            case SpecReduce(op=op, axis=axis, extent=extent, body=body):
                n = int(scalar(extent, self.params))
                inner = {i: a[..., None] for i, a in axes.items()} | {axis: np.arange(n)}
                terms = np.asarray(self.term(body, inner))
                if value.dtype.is_int and terms.dtype.kind in "iub":
                    whole = _reduced_exactly(op, terms, n, int(identity(value)))
                    return modulo(whole, value.dtype) if value.dtype.modular and whole.dtype.kind == "i" else whole
                start = float(identity(value)) if value.dtype.is_int else _STARTS[op]
                return self._rounded(op, _reduced(op, terms, n, start))
            case SpecSoftmax():
                return self._softmax(value, axes)
            case SpecOp(op="cast", args=(inner,)) | Op(op="cast", args=(inner,)):
                values = np.asarray(self.term(inner, axes))
                if value.dtype.modular and values.dtype.kind != "f":
                    return modulo(values.astype(np.int64), value.dtype)
                return values if rounds_only(inner.dtype, value.dtype) else round_to(values, value.dtype)
            case SpecOp(op="sortable", args=(inner,)) | Op(op="sortable", args=(inner,)):
                ordered = sortable(np.asarray(self.term(inner, axes)), value.dtype)
                return ordered.astype(np.float64) if value.dtype.is_float else ordered
            case SpecOp(op=op, args=args) | Op(op=op, args=args):
                result = self._apply(op, [self.term(a, axes) for a in args])
                return modulo(result, value.dtype) if value.dtype.modular else result
            case _:
                return self._leaf(value, axes)

    def _softmax(self, value: SpecSoftmax, axes: dict[int, Array]) -> Array:
        n = int(scalar(value.extent, self.params))
        inner = {i: a[..., None] for i, a in axes.items() if uses(value.score, i)} | {value.axis: np.arange(n)}
        level = _reduced("logaddexp", self.term(value.score, inner), n, _STARTS["logaddexp"])
        at = self.term(value.score, axes | {value.axis: self.term(value.at, axes)})
        with np.errstate(all="ignore"):
            result: Array = np.where(np.isneginf(at), 0.0, np.exp(at - level))
        return result

    def _apply(self, op: str, args: list[Array]) -> Array:
        with np.errstate(all="ignore"):
            result = np.asarray(FUNCTIONS[op](*args))
            self.strained |= self.watched and saturates(op, args[0], result)
        return self._rounded(op, result)

    def _rounded(self, op: str, result: Array) -> Array:
        """Return a result unchanged, or disturbed."""
        if result.dtype.kind != "f":
            return result
        self.strained |= self.watched and strains(result)
        return shaken(result) if self.disturbed and op not in SELECTING else result

    def _leaf(self, value: Expr, axes: dict[int, Array]) -> Array:
        match value:
            case Const(value=number):
                return np.asarray(number)
            case Param(name=name):
                return np.asarray(self.params[name])
            case Coord(axis=axis):
                return axes[axis]
            case Elem(obj=obj, index=index):
                return self._element(self.tensors[obj], [self.term(e, axes) for e in index], obj in self.stored)
            case ProgramId() | LoopVar() | Thread():
                raise ValueError("a specification reads a block's or a thread's own value")
            case Op():
                return self.term(value, axes)
            case _:
                assert_never(value)

    def _element(self, tensor: GlobalTensor, index: list[Array], final: bool) -> Array:
        """Return the contents of a tensor before the kernel, or after it. An element that does not exist is NaN in a
        float tensor, and 0 in others."""
        at, inside = np.zeros((), dtype=np.int64), np.ones((), dtype=np.bool_)
        for place, extent in zip(index, tensor.shape, strict=True):
            place = np.asarray(place).astype(np.int64)
            inside = inside & (place >= 0) & (place < extent)
            at = at * extent + place
        if inside.all():
            values = _final(tensor, at) if final else tensor.contents.initial(at)
            return values if tensor.dtype == boolean else values.astype(float if tensor.dtype.is_float else np.int64)
        known = np.full(at.shape, np.nan) if tensor.dtype.is_float else np.zeros(at.shape, dtype=np.int64)
        if tensor.dtype == boolean:
            known = np.zeros(at.shape, dtype=np.bool_)
        if inside.any():
            known[inside] = _final(tensor, at[inside]) if final else tensor.contents.initial(at[inside])
        return known


def _final(tensor: GlobalTensor, index: Array) -> Array:
    """Return the contents of a tensor after the kernel at row-major indices."""
    values: Array = tensor.contents.values[tensor.contents.cells(index)]
    return values
