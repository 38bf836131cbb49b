"""Replay a witness: run a few blocks at given sizes, on generated inputs, without allocating whole tensors."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from argus.diagnostic import Diagnostic
from argus.hardware import Instance, broken
from argus.ir.cluster import unite
from argus.ir.expr import Const, Param
from argus.ir.nodes import Kernel, Scalar, Tensor
from argus.ir.places import index_tensors
from argus.ir.types import DType
from argus.simulate import launch
from argus.simulate.evaluate import Number
from argus.simulate.index_contents import Declared, declared, drawn
from argus.simulate.machine import Places
from argus.simulate.memory import Contents, Dense, Sparse
from argus.simulate.numeric import Array, carrier, round_to
from argus.simulate.outcome import NotReplayable, Violation
from argus.simulate.run import grid_of, prepare, run_blocks
from argus.simulate.tagset import hashed
from argus.simulate.usage import kernel_roles
from argus.work import Work

Values = Array | Mapping[tuple[int, ...], int | float]
"""A whole tensor, or some of its elements by coordinate."""

SMALL, FRACTIONS, LARGE, NEGATIVE = (-6, 7, 1.0), (-6, 7, 2.0**-4), (-6, 7, 16.0), (-12, -6, 16.0)
"""Ranges of floats in generated inputs: the integers of a range, times a factor."""

EXTREMES = ("least", "greatest", "alternating", "near")
"""Contents of index tensors that are made of the ends of their declared range. "near" is the least and the few next to
it, because sizes cut what is far from them."""

_FEW = 8
"""How many numbers are near the least one."""

WHOLE = "whole"
"""Contents of integer tensors of 8 and 16 bits without a declared range: all numbers of the type, every other one the
least or the greatest."""

_UNDECLARED = {"int": (-3, 8), "uint": (0, 8), "bool": (0, 2)}
"""The range [low, high) of integers in generated inputs without a declared range, by kind of type. The ranges include 0
and, if possible, negative numbers."""

_SCHEDULES = ("program", "reverse", "lazy")
_DENSE = 1 << 20
_MOST_BLOCKS = 1 << 12
_SHOWN = 1 << 12
"""Largest number of elements of an index tensor that a counterexample shows."""


def replay(
    kernel: Kernel,
    sizes: Mapping[str, int | float],
    blocks: Sequence[tuple[int, ...]] | None,
    tensors: Mapping[str, Values] | None = None,
    *,
    tags: bool = True,
    values: bool = True,
    iterations: int = 1 << 12,
    schedule: str | None = None,
    seed: int = 0,
    floats: tuple[int, int, float] = SMALL,
    extreme: str = "",
    work: Work | None = None,
) -> tuple[Violation, ...]:
    """Run `blocks` of the explicit kernel and return the rules that it breaks. If `blocks` is None, run the whole grid,
    and also check coverage. Of the rules of the machine, those count that `argus.hardware` finds broken, too.

    `tags`: carry tags and evaluate tag assertions. `values`: compare what is written with the specification. Both are
    done in the first schedule alone: the others compute the same values, or break a rule of order.

    `schedule`: as in `simulate`. None means the program's order and, for a kernel with roles that breaks no rule in it,
    also "reverse", "lazy" and each role eagerly. Programs of a persistent kernel run in one block, and in "reverse" in
    two.

    `sizes`: the value of every size and scalar parameter. Symbolic strides may be given too; by default they are those
    of a contiguous tensor. Tensors hold small pseudo-random values that depend only on the name, the coordinate and
    `seed`. `floats` = (low, high, factor) describes floats: integers in [low, high) times the factor. Float scalars are
    half of the factor, and different from each other if the preconditions allow it. Integer tensors hold values within
    their declared `InRange`, and otherwise from -3 to 7. With `extreme`, one of `EXTREMES`, those of a tensor
    without a declared arrangement are all the least, all the greatest, both in turns, or near the least; see also
    `WHOLE`. `tensors` replaces these values, for whole tensors or at single coordinates. Elements are generated when
    they are accessed, so sizes may be large.

    Raises `NotReplayable` if the sizes break a precondition (or leave an index tensor no values), a loop takes more
    than `iterations` iterations, the grid has more than 4096 blocks, a tensor has 2^63 elements, or the run takes more
    steps than `work` has.
    """
    kernel, given = unite(kernel), dict(tensors or {})
    params = _params(kernel, sizes, floats[2])
    roles = kernel_roles(kernel)
    every = (*_SCHEDULES, *(f"eager-{role.name}" for role in roles)) if roles else _SCHEDULES[:1]
    names, places = (schedule,) if schedule is not None else every, Places()
    for name in names:
        tensors_given = ((t, given.get(t.name)) for t in kernel.tensors)
        contents = {t.name: _contents(kernel, t, params, g, seed, floats, extreme) for t, g in tensors_given}
        first = name == names[0]  # Other orders compute the same, or break a rule of order.
        run = prepare(kernel, params, contents, True, tags and first, False, iterations)
        run.work, run.values, run.places = work, values and first, places
        grid = grid_of(run, None, blocks)
        if blocks is None and grid is not None and prod(grid) > _MOST_BLOCKS:
            raise NotReplayable(f"the grid has {prod(grid)} blocks")
        found = run_blocks(run, blocks, grid, name, 2 if name == "reverse" else 1).violations
        violations = [v for v in found if v.property != "machine" or _documented(kernel, params, v)]
        if violations:
            held = _held(kernel, contents, params)
            return tuple(replace(v, contents=held) for v in violations)
    return ()


def _documented(kernel: Kernel, params: Mapping[str, Number], violation: Violation) -> bool:
    """Return True if the vendors' documents confirm that this execution breaks a rule of the machine."""
    if violation.statement is None or violation.thread is None:
        return False
    place = violation.block, violation.iteration, violation.thread, violation.registers
    return broken(kernel, violation.statement, violation.code, Instance(params, *place))


def _held(kernel: Kernel, contents: Mapping[str, Contents], params: Mapping[str, Number]) -> dict[str, Any]:
    """Return the contents of the index tensors before the kernel, as nested lists. Large tensors are left out."""
    result = {}
    for tensor in index_tensors(kernel):
        shape, _ = launch.extents(tensor, params)
        if prod(shape) <= _SHOWN:
            values = contents[tensor.name].initial(np.arange(prod(shape), dtype=np.int64))
            result[tensor.name] = np.asarray(values).reshape(shape).tolist()
    return result


def _params(kernel: Kernel, sizes: Mapping[str, int | float], factor: float) -> dict[str, Number]:
    names = _floats(kernel)
    params, problems = _bound(kernel, {name: factor * (0.5 + n / 8) for n, name in enumerate(names)} | {**sizes})
    if problems and len(names) > 1:
        params, problems = _bound(kernel, dict.fromkeys(names, factor / 2) | {**sizes})
    if problems:
        raise NotReplayable(problems[0].message)
    return params


def _bound(kernel: Kernel, given: Mapping[str, Number]) -> tuple[dict[str, Number], list[Diagnostic]]:
    """Return arguments with the strides of all tensors, and the preconditions that they break."""
    params = dict(given)
    missing = [n for n in (*kernel.sizes, *(p.name for p in kernel.params if isinstance(p, Scalar))) if n not in params]
    if missing:
        raise ValueError(f"no value for {', '.join(missing)}")
    problems = []
    for t in kernel.tensors:
        shape = tuple(int(launch.scalar(e, params)) for e in t.shape)
        strides = _strides(t, shape, params)
        problems += launch.bind_shape(t, shape, strides, params)
    return params, [*problems, *launch.unmet(kernel, params)]


def _floats(kernel: Kernel) -> list[str]:
    return [p.name for p in kernel.params if isinstance(p, Scalar) and p.dtype.is_float]


def _strides(tensor: Tensor, shape: tuple[int, ...], params: Mapping[str, Number]) -> tuple[int, ...]:
    """Return the given strides, and for other tensors those of a contiguous tensor, padded to the declared alignment.
    """
    unit = max(1, tensor.alignment // tensor.dtype.bytes)
    result = [0] * len(shape)
    step = 1
    fastest = [axis for axis, s in enumerate(tensor.strides) if isinstance(s, Const) and s.value == 1]
    rest = [axis for axis in reversed(range(len(shape))) if axis not in fastest]
    for axis in (*fastest, *rest):
        stride = tensor.strides[axis]
        if isinstance(stride, Param):
            result[axis] = int(params.get(stride.name, -(-step // unit) * unit))
        else:
            result[axis] = int(launch.scalar(stride, params))
        step = max(1, result[axis]) * max(1, shape[axis])
    return tuple(result)


def _contents(
    kernel: Kernel,
    tensor: Tensor,
    params: Mapping[str, Number],
    given: Values | None,
    seed: int,
    floats: tuple[int, int, float],
    extreme: str,
) -> Contents:
    shape, _ = launch.extents(tensor, params)
    if isinstance(given, np.ndarray):
        return Dense(round_to(given, tensor.dtype), keep=True)
    what = None if tensor.dtype.is_float else declared(kernel, tensor, params)
    low, high, factor = floats
    if not tensor.dtype.is_float:
        low, high = (what.low, what.high) if what is not None else _UNDECLARED[tensor.dtype.kind]
        factor = 1
    if what is not None and not what.possible(shape):
        raise NotReplayable(f"{tensor.name} has elements, but no values are as declared, in [{low}, {high})")
    if what is not None and what.how:
        return Dense(_arranged(tensor, what, shape, seed, given or {}), keep=True)
    if extreme == WHOLE and what is None and tensor.dtype.is_int and tensor.dtype.bits <= 16:
        low, high = tensor.dtype.integers[0], tensor.dtype.integers[1] + 1
    elif what is None:
        extreme = ""
    fill = _Fill(f"{seed}{tensor.name}", tensor.dtype, low, high, factor, shape, given or {}, extreme)
    if prod(shape) <= _DENSE:
        return Dense(fill(np.arange(prod(shape), dtype=np.int64)), keep=True)
    if prod(shape) >= 2**63:
        raise NotReplayable(f"tensor {tensor.name} has {prod(shape)} elements")
    return Sparse(tensor.dtype, fill)


def _arranged(
    tensor: Tensor, what: Declared, shape: tuple[int, ...], seed: int, given: Mapping[tuple[int, ...], int | float]
) -> Array:
    """Return contents in a declared order. They are generated for the whole tensor at once."""
    if prod(shape) > _DENSE:
        raise NotReplayable(f"{tensor.name} has {prod(shape)} elements, too many to put in order")
    start = np.int64(zlib.crc32(f"{seed}{tensor.name}".encode()) << 31)
    fixed = {_linear(index, shape): int(value) for index, value in given.items()}
    found = drawn(what, shape, lambda n: hashed(np.arange(n, dtype=np.int64) ^ start), fixed)
    if found is None:
        raise NotReplayable(f"no contents of {tensor.name} were found that are as declared")
    return round_to(found, tensor.dtype)


class _Fill:
    """The generated contents of one tensor."""

    def __init__(
        self,
        name: str,
        dtype: DType,
        low: int,
        high: int,
        factor: float,
        shape: tuple[int, ...],
        given: Mapping[tuple[int, ...], int | float],
        extreme: str,
    ) -> None:
        self.dtype, self.low, self.high, self.factor, self.extreme = dtype, low, high, factor, extreme
        self.seed = zlib.crc32(name.encode())
        self.given = {_linear(index, shape): value for index, value in given.items()}

    def __call__(self, index: Array) -> Array:
        count = max(1, self.high - self.low)  # The range of an empty tensor may be empty.
        match self.extreme:
            case "least":
                above = np.zeros_like(index)
            case "greatest":
                above = np.full_like(index, count - 1)
            case "alternating":
                above = index % 2 * (count - 1)
            case _:
                count = min(count, _FEW) if self.extreme == "near" else count
                above = (hashed(index ^ np.int64(self.seed << 31)) % np.uint64(count)).astype(np.int64)
                if self.extreme == WHOLE:
                    above = np.where(index % 4 == 1, 0, np.where(index % 4 == 2, count - 1, above))
        values = above + self.low
        result = round_to(values * self.factor, self.dtype).astype(carrier(self.dtype))
        for at, value in self.given.items():
            result[index == at] = value
        return result


def _linear(index: tuple[int, ...], shape: tuple[int, ...]) -> int:
    total = 0
    for i, extent in zip(index, shape, strict=True):
        total = total * extent + i
    return total
