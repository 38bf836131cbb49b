"""Check specifications by execution: compare the reference value with the value that the kernel wrote, integers exactly
and other numbers in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from argus.ir.expr import Coord, Op
from argus.ir.expr import walk as walk_expr
from argus.ir.nodes import Accumulate, Fragment, Kernel, Map, Shared, Spec, SpecOp, SpecReduce, SpecSoftmax, SpecTerm
from argus.ir.own_results import own_results
from argus.ir.visit import walk
from argus.simulate.evaluate import Number
from argus.simulate.launch import scalar
from argus.simulate.machine import Run
from argus.simulate.memory import GlobalTensor
from argus.simulate.numeric import Array
from argus.simulate.outcome import Violation
from argus.simulate.parts import Points, declared_part, points
from argus.simulate.reference import UFUNCS, Reference
from argus.simulate.usage import usage

_CHUNK = 1 << 22
_MOST_VALUES = 1 << 29
"""Largest number of values that are computed. For larger outputs, only evenly spaced elements are checked."""
_VALUES_PER_STEP = 64
"""Values that are computed in the time of a step: measured on attention and products."""
_COARSE = 2.0**-8
"""Relative error of another formula for the same function, such as a polynomial in place of an exponential."""
_STEP = 2.0**-4
"""The tolerance if floats become integers: another formula may reach the next integer."""
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


Widely = Callable[[frozenset[int]], "tuple[Run, Run] | None"]
"""Runs the programs of some numbers again."""


def check_spec(run: Run, stmt: Spec, complete: bool, widely: Widely) -> None:
    """Report the written element of the output that is farthest from its specified value, if the distance is too large.

    `widely` repeats the programs that wrote the elements in question in 64-bit numbers, without and with a disturbance
    (`argus.simulate.wide`). A difference counts if these runs show it, too, and if rounding and overflow do not explain
    it. If there are no such runs, nothing can be decided. Raises `NotReplayable` if they take more work than is left.

    For an output that is accumulated into, all elements count, after all blocks, because the specification says what is
    added.
    """
    output = run.tensors[stmt.output]
    combined = _combined(run, stmt)
    if combined is not None and not (complete and output.dense):
        return
    index, box, part = _checked_elements(run, stmt, combined is not None)
    if not len(index):
        return
    whole = Reference(run.tensors, run.params, stored=own_results(run.kernel))
    reference = _at(stmt, output.shape, index, whole, part) if box is None else box.values(stmt.value, whole)
    if combined is not None:
        reference = combined(reference, _numbers(output.contents.initial(index)))
    actual = _arrived(output, index)
    error, allowed, scale = _errors(run, stmt, actual, reference)
    excess, certain = error - allowed, True
    differing = np.flatnonzero(excess > 0)
    if len(differing) and output.dtype.is_float:
        most = min(_MOST_WIDE, max(_LEAST_WIDE, _MOST_WIDE_VALUES // max(1, _of_one(stmt, run.params).values)))
        farthest = np.argsort(-excess[differing], kind="stable")[: most // 2]
        looked = differing[np.unique([*farthest, *range(0, len(differing), -(-2 * len(differing) // most))])]
        explained, large = _explained(run, stmt, index[looked], allowed[looked], scale, combined, widely, part)
        excess[differing] = 0 if explained.all() else excess[differing]
        excess[looked[explained]] = 0
        certain = bool((large & ~explained).any())
    at = int(np.argmax(excess))
    if excess[at] > 0:
        cell = int(output.contents.cells(index[at : at + 1])[0])
        violation = Violation(
            "tags",
            "spec-mismatch",
            f"an element of {output.name} is not what the specification says",
            stmt,
            (),
            object=output.name,
            logical=output.logical(cell),
            physical=output.physical(cell),
            arrived=str(actual[at]),
            expected=f"{reference[at]} within {allowed[at]:.3g}",
            count=int((excess > 0).sum()),
            certain=certain,
        )
        run.log.add(violation)


def _checked_elements(run: Run, stmt: Spec, accumulated: bool) -> tuple[Array, _Box | None, Points | None]:
    """Return the row-major indices that are checked, the box that they fill, if any, and the declared part.

    The evaluation of their terms is charged as work. If that is scarce, fewer elements are checked.
    """
    output = run.tensors[stmt.output]
    index = np.sort(output.contents.index(np.flatnonzero((output.writes > 0) | accumulated)))
    covers, part = declared_part(run, stmt.output), None
    if covers is not None:
        part = points(run, covers)
        index = index[:0] if part is None else index[np.isin(index, part.index)]
    if not len(index):
        return index, None, part
    most = _MOST_VALUES if run.work is None else min(_MOST_VALUES, max(run.work.left, 0) * _VALUES_PER_STEP)
    box = None if covers is not None else _Box.filled(index, output.shape, stmt.value, run.params)
    if box is not None and box.cost > most:
        box = None
    each = max(1, _of_one(stmt, run.params).values)
    if box is None:
        index = index[:: max(1, -(-len(index) // max(1, most // each)))]
    if run.work is not None:
        run.work.spend((len(index) * each if box is None else box.cost) // _VALUES_PER_STEP)
    return index, box, part


def _errors(run: Run, stmt: Spec, actual: Array, reference: Array) -> tuple[Array, Array, float]:
    """Return the error of each element, the error that rounding allows, and the largest specified value."""
    with np.errstate(all="ignore"):
        error = np.abs(actual.astype(np.float64) - reference.astype(np.float64))
        if actual.dtype.kind == reference.dtype.kind == "i":  # float64 may not tell them apart
            error = np.where(actual == reference, 0, np.maximum(error, 1))
        finite = np.isfinite(reference)
        scale = float(np.abs(reference[finite]).max(initial=0))
        allowed = np.where(finite, tolerance(run.kernel, stmt, np.abs(reference), scale), 0.0)
    error[(actual == reference) | (np.isnan(actual) & np.isnan(reference))] = 0
    error[np.isnan(error)] = np.inf
    return error, allowed, scale


def _arrived(output: GlobalTensor, index: Array) -> Array:
    """Return int64 or float64 `[n]`: the contents of a tensor at row-major indices."""
    return _numbers(output.contents.values[output.contents.cells(index)])


def _numbers(values: Array) -> Array:
    """Return integers as int64, and other values as float64."""
    values = np.asarray(values)
    return values.astype(np.int64 if values.dtype.kind in "iu" else np.float64)


_MOST_WIDE = 256
"""Number of elements that are computed again in 64 bits. Half of them are the farthest from their specified values."""
_LEAST_WIDE, _MOST_WIDE_VALUES = 8, 1 << 25
"""Fewer elements are, but not fewer than these, if their evaluation takes more values in all than these."""
_COARSER = 2.0**17
"""Factor by which rounding to float32 changes a result more than a disturbance by parts in 2^40."""


def _explained(
    run: Run, stmt: Spec, index: Array, allowed: Array, scale: float, combined: np.ufunc | None,
    widely: Widely, part: Points | None,
) -> tuple[Array, Array]:  # fmt: skip
    """Return two bool `[n]`: the elements whose difference from the specification rounding and overflow may explain,
    and those whose difference in 64-bit numbers is too large for another formula of the same function."""
    output = run.tensors[stmt.output]
    runs = widely(frozenset(output.writers[output.contents.cells(index)].tolist()))
    if runs is None:
        return np.ones(len(index), dtype=np.bool_), np.zeros(len(index), dtype=np.bool_)
    if run.work is not None:
        run.work.spend(2 * len(index) * _of_one(stmt, run.params).values // _VALUES_PER_STEP)
    strained, actual, expected = False, list[Array](), list[Array]()
    for wide, disturbed in zip(runs, (False, True), strict=True):
        output = wide.tensors[stmt.output]
        reference = Reference(wide.tensors, wide.params, disturbed, watched=True, stored=own_results(run.kernel))
        values = _at(stmt, output.shape, index, reference, part)
        if combined is not None:
            values = combined(values, _numbers(output.contents.initial(index)))
        strained |= wide.strained or reference.strained
        actual.append(_arrived(output, index))
        expected.append(values)
    with np.errstate(all="ignore"):
        error = np.abs(actual[0] - expected[0])
        spread = np.abs(actual[0] - actual[1]) + np.abs(expected[0] - expected[1])
        near = error <= np.maximum(allowed, _COARSER * spread)
        finite = np.isfinite(error) & np.isfinite(spread)
        loose = _kinds_differ(*actual) | _kinds_differ(*expected)
        same = (actual[0] == expected[0]) | (np.isnan(actual[0]) & np.isnan(expected[0]))
        around = 4 * np.abs(expected[0]) + (scale / 32 if _deep(stmt.value) else 0.0)
        large = ~(error <= (_STEP if _has_steps(run.kernel) else _COARSE) * around)
    return same | np.where(finite, near, strained | loose), large


def _kinds_differ(a: Array, b: Array) -> Array:
    """Return bool `[n]`: the elements that are finite, an infinity or NaN in one of two runs only."""
    known = (np.isnan(a) & np.isnan(b)) | (np.isinf(a) & (a == b)) | (np.isfinite(a) & np.isfinite(b))
    result: Array = ~known
    return result


def _combined(run: Run, stmt: Spec) -> np.ufunc | None:
    """Return the one operation that accumulates into the output, or None if there is a store, no accumulation, or
    several operations."""
    ops = {s.op for s in walk(run.kernel.body) if isinstance(s, Accumulate) and s.dst.obj == stmt.output}
    stored = stmt.output in usage(run.kernel).stored
    return None if stored or len(ops) != 1 else UFUNCS[ops.pop()]


def _has_steps(kernel: Kernel) -> bool:
    """Return True if a kernel makes integers of floats."""
    values = (s.value for s in walk(kernel.body) if isinstance(s, Map | Accumulate))
    made = [e for value in values for e in walk_expr(value) if isinstance(e, Op)]
    cast = (e for e in made if e.op == "cast" and e.dtype.is_int)
    return any(e.op in ("floor", "ceil") for e in made) or any(e.args[0].dtype.is_float for e in cast)


def tolerance(kernel: Kernel, stmt: Spec, magnitude: Array, scale: float) -> Array:
    """Return the error of each element that needs no explanation, or 0 for integers. What is farther from its specified
    value is computed again in 64 bits.

    A unit is an eighth of one in the last place of the coarsest float type of the kernel's tensors and tiles, but at
    least one of float32. The tolerance is four units relative to the element, plus a share of `scale`: one unit if
    rounded values pass through a function or a second reduction (`_deep`), else 2^-16.
    """
    objects: tuple[Fragment | Shared, ...] = (*kernel.fragments, *kernel.shared)
    if not kernel.object(stmt.output).dtype.is_float:
        return np.zeros_like(magnitude)
    floats = [o.dtype for o in (*kernel.tensors, *objects) if o.dtype.is_float]
    unit = max(2.0 ** -(3 + min((_MANTISSA[d.name] for d in floats), default=23)), 2.0**-23)
    return 4 * unit * magnitude + (unit if _deep(stmt.value) else 2.0**-16) * scale


def _deep(value: SpecTerm, inside: bool = False) -> bool:
    """Return True if a rounded value may be used again.

    This is so for a reduction in a reduction, or under an operator other than +, -, *.
    """
    match value:
        case SpecReduce(op=op, body=body):
            return inside or op == "logaddexp" or _deep(body, True)
        case SpecSoftmax():
            return True
        case SpecOp(op=op, args=args) | Op(op=op, args=args):
            return op not in ("add", "sub", "mul", "cast", "neg", "where") or any(_deep(a, inside) for a in args)
        case _:
            return False


def _at(stmt: Spec, shape: tuple[int, ...], index: Array, reference: Reference, part: Points | None) -> Array:
    """Return int64 or float64 `[n]`: the specified values at n row-major indices, from the contents before the kernel.

    `part` is the part of the output that the kernel writes, whose variables the specification uses, or None for the
    whole output.
    """
    coords = part.of(index) if part is not None else np.unravel_index(index, shape) if shape else ()
    rows = max(1, _CHUNK // max(1, _of_one(stmt, reference.params).widest))
    parts = []
    for start in range(0, len(index), rows):
        axes = {axis: c[start : start + rows] for axis, c in enumerate(coords)}
        count = min(rows, len(index) - start)
        values = reference.term(stmt.value, axes)
        parts.append(np.broadcast_to(_numbers(values), (count,)))
    return np.concatenate(parts)


@dataclass(frozen=True, slots=True)
class _Box:
    """Places of an output: all combinations of the coordinates of each axis. `pieces`: the slices of each axis in which
    the places are evaluated one after another. `cost`: the number of values of all parts of the term, for all pieces
    together."""

    axes: tuple[Array, ...]
    pieces: tuple[tuple[slice, ...], ...]
    cost: int

    @staticmethod
    def filled(index: Array, shape: tuple[int, ...], value: SpecTerm, params: Mapping[str, Number]) -> _Box | None:
        """Return the box that the sorted row-major indices fill, or None if they fill none."""
        coords = np.unravel_index(index, shape) if shape else ()
        axes = tuple(np.unique(c) for c in coords)
        if prod(map(len, axes)) != len(index):
            return None

        def most(piece: list[int]) -> int:
            return _cost(value, dict(enumerate(piece)), params).widest

        piece = [len(axis) for axis in axes]
        while most(piece) > _CHUNK:
            smaller = [[-(-n // 2) if i == axis else n for i, n in enumerate(piece)] for axis in range(len(piece))]
            best = min(smaller, key=most, default=piece)
            if most(best) >= most(piece):
                break
            piece = best
        cuts = (
            [slice(at, at + step) for at in range(0, len(axis), step)] for axis, step in zip(axes, piece, strict=True)
        )
        pieces = tuple(product(*cuts))
        return _Box(axes, pieces, len(pieces) * _cost(value, dict(enumerate(piece)), params).values)

    def values(self, value: SpecTerm, reference: Reference) -> Array:
        """Return the specified values at all places. A term is evaluated once for coordinates on which it does not
        depend."""
        parts = []
        for piece in self.pieces:
            mesh = np.ix_(*(axis[cut] for axis, cut in zip(self.axes, piece, strict=True)))
            parts.append((piece, _numbers(reference.term(value, dict(enumerate(mesh))))))
        result = np.empty([len(axis) for axis in self.axes], dtype=np.result_type(*(values for _, values in parts)))
        for piece, values in parts:
            result[piece] = values
        return result.reshape(-1)


@dataclass(frozen=True, slots=True)
class _Cost:
    """What the evaluation of a term takes: the largest number of values of any part, the number of values of all parts
    together, and the axes on which the term depends."""

    widest: int
    values: int
    axes: frozenset[int]


def _cost(value: SpecTerm, extents: Mapping[int, int], params: Mapping[str, Number]) -> _Cost:
    """Return the cost of a term, given the number of values of each coordinate (`extents`)."""
    match value:
        case SpecReduce(axis=axis, extent=extent, body=body):
            inner = _cost(body, {**extents, axis: int(scalar(extent, params))}, params)
            return replace(inner, values=inner.values + inner.widest, axes=inner.axes - {axis})
        case SpecSoftmax(axis=axis, extent=extent, at=at, score=score):
            place = _cost(at, extents, params)
            inner = _cost(score, {**extents, axis: max(int(scalar(extent, params)), place.widest)}, params)
            return _Cost(inner.widest, place.values + 2 * inner.values, (inner.axes - {axis}) | place.axes)
        case SpecOp(args=args) | Op(args=args):
            each = [_cost(a, extents, params) for a in args]
            axes = frozenset[int]().union(*(c.axes for c in each))
            own = prod(extents[axis] for axis in axes)
            return _Cost(max(own, *(c.widest for c in each)), own + sum(c.values for c in each), axes)
        case _:
            axes = frozenset(e.axis for e in walk_expr(value) if isinstance(e, Coord))
            own = prod(extents[axis] for axis in axes)
            return _Cost(own, own, axes)


def _of_one(stmt: Spec, params: Mapping[str, Number]) -> _Cost:
    """Return the cost of one element of the output."""
    return _cost(stmt.value, dict.fromkeys(range(len(stmt.names)), 1), params)
