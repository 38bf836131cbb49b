"""Refutations of batch invariance: two calls with equal inputs in a row that compute different bits for it.

The calls run in the simulator. Inputs are drawn by coordinate, so two calls agree wherever both have an element. The
second call has another batch, or the same batch with the blocks in the opposite order.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from argus.diagnostic import LaunchError, Note, Verdict, Witness
from argus.ir.nodes import Accumulate, Invariant, Kernel, Scalar, Tensor
from argus.ir.visit import walk
from argus.simulate import NotReplayable, simulate
from argus.simulate.evaluate import Number
from argus.simulate.index_contents import declared, drawn
from argus.simulate.launch import Argument, scalar
from argus.simulate.numeric import Array, carrier, round_to
from argus.simulate.run import walk_grid
from argus.simulate.sizes import FLOAT, admissible, shape_of, size_vectors
from argus.verify.findings import Finding
from argus.work import STEPS_PER_SECOND, Work

_WORK = 3 * STEPS_PER_SECOND
_MOST_CELLS = 1 << 22
_LATEST = 8
"""So many calls' results are kept, because each call is compared with several others."""
_Values = NDArray[np.float64]
_Difference = tuple[tuple[int, ...], str, str]
"""An element, and its value in each of two calls."""


@dataclass(frozen=True, slots=True)
class _Call:
    """The sizes and integer arguments of a call. `reverse`: blocks run from the last to the first."""

    sizes: dict[str, int]
    reverse: bool

    def __hash__(self) -> int:
        return hash((tuple(self.sizes.items()), self.reverse))

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.sizes.items())
        return f"{shown}, last block first" if self.reverse else shown


def refuted(kernel: Kernel, finding: Finding, left: Work) -> Finding:
    """Return a refutation with two calls if runs show a row that differs; otherwise return the finding unchanged.

    The runs take a part of the work that is `left`.
    """
    promise = next((p for p in kernel.invariants if p.span == finding.span), None)
    if promise is None:  # no promise is looked at: the proof of all of them gave up
        return finding
    work = left.part(_WORK)
    run = lru_cache(_LATEST)(partial(_result, kernel, promise, work=work))
    for first, second in _pairs(kernel, promise):
        difference = _difference(run, first, second)
        if difference is not None:
            return _with_calls(finding, promise, first, second, difference)
    return finding


def _pairs(kernel: Kernel, promise: Invariant) -> Iterator[tuple[_Call, _Call]]:
    """Pairs of calls to compare: one batch in two orders of blocks, two small batches, then others.

    Sizes that are not the batch's are large first, because short sums hardly round.
    """
    vectors = sorted(size_vectors(kernel), key=lambda vector: -sum(vector.values()))
    tensors = {tensor.name for tensor in kernel.tensors}
    adds = any(isinstance(s, Accumulate) and s.dst.obj in tensors for s in walk(kernel.body))
    if adds and kernel.grid is not None and not kernel.persistent:
        for vector in vectors:
            yield _Call(vector, False), _Call(vector, True)
    small = [dict.fromkeys(promise.sizes, extent) for extent in (1, 2, 4, 8, 16)]
    for vector in vectors:
        few = [_Call(sizes, False) for each in small if admissible(kernel, sizes := vector | each)]
        yield from combinations(few, 2)
    for vector in vectors:
        for other in (*small, *vectors):
            changed = vector | {size: other[size] for size in promise.sizes}
            if changed != vector and admissible(kernel, changed):
                yield _Call(vector, False), _Call(changed, False)


def _difference(run: Callable[[_Call], _Values | None], first: _Call, second: _Call) -> _Difference | None:
    """Return the first element that both calls have and that differs in a bit, with its two values, or None if there is
    none."""
    try:
        one, two = run(first), run(second)
    except (NotReplayable, LaunchError):  # too long a run, or sizes that the kernel does not take
        return None
    if one is None or two is None:
        return None
    window = tuple(slice(0, min(a, b)) for a, b in zip(one.shape, two.shape, strict=True))
    one, two = one[window], two[window]
    differing = np.argwhere(~((one == two) | (np.isnan(one) & np.isnan(two))))
    if not len(differing):
        return None
    at = tuple(int(i) for i in differing[0])
    return at, _shown(one[at]), _shown(two[at])


def _shown(value: np.float64) -> str:
    """Format a value with the fewest digits that identify it, as a float32 if it is one."""
    return str(np.float32(value)) if np.float64(np.float32(value)) == value else str(value)


def _result(kernel: Kernel, promise: Invariant, call: _Call, *, work: Work) -> _Values | None:
    """Run a call and return the contents of the output; None if the call is too large or has no valid contents."""
    scalars = [p for p in kernel.params if isinstance(p, Scalar)]
    params: dict[str, Number] = {p.name: FLOAT for p in scalars if p.dtype.is_float}
    params.update(call.sizes)
    arguments: dict[str, Argument] = {p.name: params[p.name] for p in scalars}
    for tensor in kernel.tensors:
        shape = shape_of(tensor, call.sizes)
        if np.prod(shape, dtype=np.int64) > _MOST_CELLS:
            return None
        contents = _contents(kernel, tensor, shape, params)
        if contents is None:
            return None
        arguments[tensor.name] = contents
    blocks = None
    if call.reverse and kernel.grid is not None:
        blocks = walk_grid(tuple(int(scalar(e, params)) for e in kernel.grid), kernel.group)[::-1]
    with np.errstate(all="ignore"):
        outcome = simulate(kernel, arguments, blocks=blocks, checks=False, work=work, watch=False)
    return np.asarray(outcome.tensors[promise.tensor], dtype=np.float64)


def _contents(kernel: Kernel, tensor: Tensor, shape: tuple[int, ...], params: dict[str, Number]) -> Array | None:
    """Pseudo-random contents by coordinate: fractions, so that sums round, and integers as declared.

    None if no contents meet the declarations.
    """
    state = np.full(shape, zlib.crc32(tensor.name.encode()), dtype=np.uint64)
    for axis, extent in enumerate(shape):
        index = np.arange(extent, dtype=np.uint64).reshape([-1 if a == axis else 1 for a in range(len(shape))])
        state = (state ^ (index + np.uint64(0x9E3779B9))) * np.uint64(6364136223846793005)
        state ^= state >> np.uint64(29)
    what = None if tensor.dtype.is_float else declared(kernel, tensor, params)
    values: Array | None
    if tensor.dtype.is_float:
        values = (state % np.uint64(20011)).astype(np.float64) / 10007.0 - 1.0
    elif what is None:
        values = (state % np.uint64(8)).astype(np.float64)
    else:
        values = drawn(what, shape, lambda count: np.resize(state, count), {})
    return None if values is None else round_to(values, tensor.dtype).astype(carrier(tensor.dtype))


def _with_calls(finding: Finding, promise: Invariant, first: _Call, second: _Call, difference: _Difference) -> Finding:
    at, one, two = difference
    element = f"{promise.tensor}[{', '.join(map(str, at))}]"
    witness = Witness(
        sizes=first.sizes,
        block=(),
        object=promise.tensor,
        logical=at,
        arrived=f"{two} in the second call",
        expected=f"{one}, as in the first call",
        other={"sizes": {**second.sizes}, "blocks": "last first" if second.reverse else "first to last"},
        replayed=True,
    )
    notes = (Note(f"first call: {first}: {element} is {one}"), Note(f"second call: {second}: {element} is {two}"))
    message = finding.message.replace("may depend", "depend")
    return replace(
        finding, code="not-invariant", verdict=Verdict.REFUTED, message=message, notes=notes, witness=witness
    )
