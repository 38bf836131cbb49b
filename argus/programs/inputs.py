"""Inputs of a program's executions: small sizes, numbers, and the contents of tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argus.backend.launch.evaluate import Number
from argus.ir.nodes import Arranged, InRange, Kernel
from argus.ir.types import DType
from argus.programs.ir import For, Program

Array = NDArray[Any]
MOST_ELEMENTS = 1 << 20
"""Largest number of elements of one tensor or buffer of an execution."""


def carrier(dtype: Any) -> Any:
    """Return the NumPy dtype that holds values of a NumPy dtype exactly: float64, bool or int64."""
    return np.float64 if np.dtype(dtype).kind == "f" else dtype if np.dtype(dtype).kind == "b" else np.int64


def carrier_of(dtype: DType) -> Any:
    """Return the NumPy dtype that holds values of a dtype exactly."""
    return np.float64 if dtype.is_float else np.bool_ if dtype.kind == "bool" else np.int64


def seed_of(name: str, read: Sequence[Array], numbers: tuple[Number, ...]) -> int:
    """Return a seed that depends on all that a kernel reads."""
    digest = sha256(f"{name} {numbers}".encode())
    for array in read:
        digest.update(str(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    return int.from_bytes(digest.digest()[:8], "little")


def drawn(seed: int, number: int, like: Array) -> Array:
    """Return numbers with the shape and dtype of `like`. Equal seeds give equal numbers."""
    rng = np.random.default_rng((seed, number))
    if like.dtype.kind == "f":
        return rng.integers(-32, 33, like.shape) / 8
    return rng.integers(0, 2, like.shape).astype(like.dtype)


def trials(program: Program) -> Iterator[tuple[dict[str, Number], dict[str, Array]]]:
    """Yield small sizes of a program, with numbers and inputs for all of its parameters."""
    from argus.simulate.sizes import admissible, size_vectors

    kernel = as_kernel(program)
    numbers = [s.name for s in program.scalars if s.dtype.is_int]
    for number, vector in enumerate(size_vectors(kernel)):
        yield inputs_of(program, kernel, vector)
        without = {**vector, **dict.fromkeys(numbers, 0)}
        if numbers and not number and admissible(kernel, without):
            yield inputs_of(program, kernel, without)


def at(program: Program, sizes: Mapping[str, int]) -> tuple[dict[str, Number], dict[str, Array]] | None:
    """Return numbers and inputs at given sizes. Return None if the program does not admit the sizes, or if the inputs
    are too large."""
    from argus.simulate.sizes import admissible, integer_parameters, shape_of

    kernel = as_kernel(program)
    vector = {name: sizes.get(name, 1) for name in integer_parameters(kernel)}
    if any(int(np.prod(shape_of(t, vector), dtype=object)) > MOST_ELEMENTS for t in program.tensors):
        return None
    if not admissible(kernel, vector):
        return None
    return inputs_of(program, kernel, vector)


def inputs_of(
    program: Program, kernel: Kernel, vector: Mapping[str, int]
) -> tuple[dict[str, Number], dict[str, Array]]:
    """Return numbers and arrays at given sizes. Index tensors with only a declared range also contain both ends of the
    range."""
    from argus.mutate.inputs import arguments
    from argus.simulate.launch import scalar

    given: dict[str, Any] = arguments(kernel, vector)
    arranged = {p.tensor for p in program.preconditions if isinstance(p, Arranged)}
    for fact in program.preconditions:
        if isinstance(fact, InRange) and fact.tensor not in arranged and given[fact.tensor].size:
            flat = given[fact.tensor].reshape(-1)
            flat[0], flat[-1] = int(scalar(fact.lo, vector)), int(scalar(fact.hi, vector)) - 1
    tensors = {t.name: given[t.name] for t in program.tensors}
    numbers: dict[str, Number] = {**vector, **{s.name: given[s.name] for s in program.scalars}}
    return numbers, tensors


def as_kernel(program: Program) -> Kernel:
    """Return a kernel with the parameters, preconditions and loops of a program. It is used to choose sizes."""
    from argus.ir import nodes
    from argus.programs.ir import walk

    loops = tuple(nodes.For(s.var, s.start, s.stop, s.step, ()) for s in walk(program.body) if isinstance(s, For))
    return Kernel(
        program.name,
        program.params,
        program.sizes,
        program.constexprs,
        None,
        4,
        32,
        program.preconditions,
        (),
        (),
        loops,
    )
