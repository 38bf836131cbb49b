"""Specifications by execution: the reference value in float64 beside what the kernel wrote."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from typing_extensions import assert_never

from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, Thread
from argus.ir.nodes import Fragment, Kernel, Shared, Spec, SpecOp, SpecReduce, SpecTerm
from argus.ir.types import DType
from argus.simulate.evaluate import FUNCTIONS, Number
from argus.simulate.launch import scalar
from argus.simulate.machine import Run
from argus.simulate.numeric import Array
from argus.simulate.outcome import Violation

_CHUNK = 1 << 22
_MANTISSA = {
    "float32": 23,
    "tfloat32": 10,
    "float16": 10,
    "bfloat16": 7,
    "float8_e4m3fn": 3,
    "float8_e5m2": 2,
    "float8_e4m3fnuz": 3,
    "float8_e5m2fnuz": 2,
}


def check_spec(run: Run, stmt: Spec) -> None:
    """Report the element of the output that is farthest from its specified value, if it is too far.

    Too far is more than a few units in the last place of the coarsest float type that the kernel keeps values in,
    relative to the largest magnitude of the reference; integers must be equal.
    """
    output = run.tensors[stmt.output]
    if len(run.inputs) < len(run.tensors) or 0 in output.shape:
        return
    reference = evaluate_spec(stmt, output.shape, run.inputs, run.params)
    actual = output.contents.values.reshape(output.shape).astype(np.float64)
    with np.errstate(all="ignore"):
        error = np.abs(actual - reference)
    error[(actual == reference) | (np.isnan(actual) & np.isnan(reference))] = 0
    error[np.isnan(error)] = np.inf
    finite = np.abs(reference[np.isfinite(reference)])
    allowed = tolerance(run.kernel, output.dtype) * max(1e-30, float(finite.max(initial=0)))
    at = int(np.argmax(error))
    worst = float(error.reshape(-1)[at])
    if worst > allowed:
        logical = output.logical(at)
        run.log.add(
            Violation(
                "spec",
                "specification-not-met",
                f"an element of {output.name} is not what the specification says",
                stmt,
                (),
                object=output.name,
                logical=logical,
                physical=output.physical(at),
                arrived=str(actual[logical]),
                expected=f"{reference[logical]} within {allowed:.3g}",
                count=int((error > allowed).sum()),
            )
        )


def tolerance(kernel: Kernel, dtype: DType) -> float:
    """Relative error that rounding explains: 8 units in the last place of the coarsest float type in use."""
    objects: tuple[Fragment | Shared, ...] = (*kernel.fragments, *kernel.shared)
    floats = [o.dtype for o in (*kernel.tensors, *objects) if o.dtype.is_float]
    if not dtype.is_float:
        return 0.0
    return 8 * 2.0 ** -min((_MANTISSA[d.name] for d in floats), default=23)


def evaluate_spec(
    stmt: Spec, shape: tuple[int, ...], tensors: Mapping[str, Array], params: Mapping[str, Number]
) -> Array:
    """float64 array of `shape`: the specified values, from the tensors' contents before the kernel."""
    result = np.zeros(shape)
    rows = max(1, _CHUNK // max(1, int(np.prod(shape[1:])) * _volume(stmt.value, params)))
    for start in range(0, shape[0] if shape else 1, rows):
        extents = (min(rows, shape[0] - start), *shape[1:]) if shape else ()
        axes = dict(enumerate(_axes(extents)))
        if shape:
            axes[0] = axes[0] + start
        values = np.broadcast_to(_Reference(tensors, params).term(stmt.value, axes, len(extents)), extents)
        result[start : start + rows if shape else None] = values
    return result


def _axes(shape: tuple[int, ...]) -> list[Array]:
    return [np.arange(n).reshape([-1 if i == axis else 1 for i in range(len(shape))]) for axis, n in enumerate(shape)]


def _volume(value: SpecTerm, params: Mapping[str, Number]) -> int:
    """The product of all nested reductions' extents: how many terms one element takes at once."""
    match value:
        case SpecReduce(extent=extent, body=body):
            return max(1, int(scalar(extent, params))) * _volume(body, params)
        case SpecOp(args=args):
            return max((_volume(a, params) for a in args), default=1)
        case _:
            return 1


class _Reference:
    """Evaluates terms; every bound variable is one more array axis, at the end."""

    def __init__(self, tensors: Mapping[str, Array], params: Mapping[str, Number]) -> None:
        self.tensors, self.params = tensors, params

    def term(self, value: SpecTerm, axes: dict[int, Array], rank: int) -> Array:
        """The values of `value`; `axes[i]` is the array of `Coord(i)`, of at most `rank` dimensions."""
        match value:
            case SpecReduce(op=op, axis=axis, extent=extent, body=body):
                n = int(scalar(extent, self.params))
                inner = {i: a[..., None] for i, a in axes.items()} | {axis: np.arange(n)}
                values = np.asarray(self.term(body, inner, rank + 1), dtype=np.float64)
                shape = np.broadcast_shapes(values.shape, *(a.shape for a in inner.values()))
                values = np.broadcast_to(values, shape)
                start = {"add": 0.0, "maximum": -np.inf, "minimum": np.inf}[op]
                ufunc: np.ufunc = {"add": np.add, "maximum": np.maximum, "minimum": np.minimum}[op]
                result: Array = ufunc.reduce(values, axis=-1, initial=start)
                return result
            case SpecOp(op=op, args=args):
                return self._apply(op, [self.term(a, axes, rank) for a in args])
            case Op(op=op, args=exprs):
                return self._apply(op, [self.term(a, axes, rank) for a in exprs])
            case _:
                return self._leaf(value, axes, rank)

    def _apply(self, op: str, args: list[Array]) -> Array:
        if op == "cast":
            return args[0]
        with np.errstate(all="ignore"):
            return FUNCTIONS[op](*args)

    def _leaf(self, value: Expr, axes: dict[int, Array], rank: int) -> Array:
        match value:
            case Const(value=number):
                return np.asarray(number)
            case Param(name=name):
                return np.asarray(self.params[name])
            case Coord(axis=axis):
                return axes[axis]
            case Elem(obj=obj, index=index):
                at = tuple(np.asarray(self.term(e, axes, rank)).astype(np.int64) for e in index)
                values = self.tensors[obj][at]
                return values.astype(np.float64) if values.dtype.kind == "f" else values
            case ProgramId() | LoopVar() | Thread():
                raise ValueError("a specification reads a block's or a thread's own value")
            case Op():
                return self.term(value, axes, rank)
            case _:
                assert_never(value)
