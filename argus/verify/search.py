"""A search for counterexamples by running the kernel at small sizes, for properties that no engine decides.

The whole kernel runs on generated inputs in the simulator, which breaks rules where the machine would. A violation is a
counterexample like any other. If there is none, unknown properties stay unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from argus.diagnostic import Diagnostic, Note, Verdict
from argus.ir.contents import arrangements
from argus.ir.nodes import InRange, Kernel, MemoryObject, Roles, Spec
from argus.ir.visit import walk
from argus.simulate import NotReplayable, Violation, replay
from argus.simulate.replay import EXTREMES, FRACTIONS, LARGE, NEGATIVE, SMALL, WHOLE
from argus.simulate.sizes import few_blocks, large_arguments, round_the_rings, several_programs, size_vectors
from argus.verify.findings import FailurePlace
from argus.verify.values.padding import padded_exponentials
from argus.verify.witness import REPLAY_ITERATIONS, witness
from argus.work import Work

_FLOATS = (SMALL, FRACTIONS, LARGE, NEGATIVE)
"""Kinds of floats. The order of the numbers of a tensor is another one in each kind."""
_Given = tuple[int, int, float] | str
"""The kind of floats, or of the contents of index tensors."""
_Blocks = list[tuple[int, ...]] | None
"""The blocks that run; None for the whole grid."""
_WIDE = frozenset({"float32", "tfloat32", "bfloat16"})
"""Types in which sums and products of large inputs are finite."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of a search.

    `found`: a refutation, if any. `complete`: all sizes were tried. `values`: values were compared with the
    specification. `runs`: the number of runs that broke no rule. `tried`: the number of sizes and inputs that are done.
    """

    found: Diagnostic | None
    complete: bool
    values: bool
    runs: int = 0
    tried: int = 0

    def settles(self, values: bool) -> bool:
        """Return True if another search, with or without `values`, would show nothing new."""
        return self.found is not None or (self.complete and self.values >= values)


def search(kernel: Kernel, values: bool, tags: bool, work: Work, before: Trial | None = None) -> Trial:
    """Run the kernel at small sizes, within `work`, until a run breaks a rule.

    `values`: also compare values with the specification, with several kinds of inputs. `tags`: also carry tags.
    `before`: an earlier search, which is continued if it looked at as much.

    An assertion that is vacuous at some sizes does not break a rule: it would have to be vacuous at all sizes.
    """
    if kernel.grid is None:
        return Trial(None, True, values)
    done, runs = (before.tried, before.runs) if before is not None and before.values == values else (0, 0)
    trials = _trials(kernel, values)
    for number, (vector, given, blocks) in enumerate(trials[done:], done):
        violations = _run(kernel, vector, given, blocks, values, tags, work)
        runs += violations == ()
        for violation in violations or ():
            if violation.certain and violation.code != "vacuous-assertion":
                return Trial(_diagnostic(kernel, violation, vector), True, values)
        if work.over:
            return Trial(None, False, values, runs, number)
    return Trial(None, True, values, runs)


def _trials(kernel: Kernel, values: bool) -> list[tuple[dict[str, int], _Given, _Blocks]]:
    """Return sizes, inputs and blocks in the order in which they are tried. Whole large grids come last, after a few of
    their blocks."""
    inputs: list[_Given] = [*(_floats(kernel) if values else (SMALL,)), *_indices(kernel)]
    inputs += [WHOLE] if values and any(t.dtype.is_int and t.dtype.bits <= 16 for t in kernel.tensors) else []
    trials = [(vector, given, few_blocks(kernel, vector)) for vector, given in product(_sizes(kernel), inputs)]
    return trials + [(vector, given, None) for vector, given, blocks in trials if blocks is not None]


def _sizes(kernel: Kernel) -> list[dict[str, int]]:
    """Return the sizes that are tried, small ones first. In a kernel with roles, the second ones let loops go round
    every ring of buffers, and then a persistent block run several programs. Large arguments come last."""
    sizes = sorted(size_vectors(kernel), key=lambda vector: sum(vector.values()))
    if sizes and any(isinstance(s, Roles) for s in kernel.body):
        larger = (round_the_rings(kernel, sizes[0]), several_programs(kernel, sizes[0]) if kernel.persistent else None)
        sizes[1:1] = [vector for vector in larger if vector is not None and vector not in sizes]
    last = large_arguments(kernel, sizes[-1]) if sizes else None
    return [*sizes, *([] if last is None else [last])]


def _floats(kernel: Kernel) -> Iterator[tuple[int, int, float]]:
    """Kinds of float inputs; more than one only if there is a specification, which alone depends on values."""
    yield SMALL
    if any(isinstance(s, Spec) for s in walk(kernel.body)):
        yield FRACTIONS
        objects: tuple[MemoryObject, ...] = (*kernel.tensors, *kernel.shared, *kernel.fragments)
        if all(o.dtype.name in _WIDE for o in objects if o.dtype.is_float):
            yield LARGE
            yield NEGATIVE


def _indices(kernel: Kernel) -> tuple[str, ...]:
    """Kinds of contents of index tensors besides those that are drawn; only if some have a range and no order.

    Blocks whose numbers are all the same write the same rows, the greatest lengths reach the ends of tensors, and
    segments whose bounds alternate overlap.
    """
    ranged = {p.tensor for p in kernel.preconditions if isinstance(p, InRange)}
    return EXTREMES if any(not arrangements(kernel, name) for name in ranged) else ()


def _run(
    kernel: Kernel, sizes: dict[str, int], given: _Given, blocks: _Blocks, values: bool, tags: bool, work: Work
) -> tuple[Violation, ...] | None:
    """Return the violations of one run; None if the kernel cannot run at these sizes."""
    floats, extreme = (SMALL, given) if isinstance(given, str) else (given, "")
    # Missing order shows in the shadows of values, whatever the values are: one kind of input is enough for it.
    order = None if given == SMALL else "program"
    try:
        with np.errstate(all="ignore"):
            return replay(
                kernel, sizes, blocks, tags=tags, values=values, iterations=REPLAY_ITERATIONS, schedule=order,
                seed=_FLOATS.index(floats), floats=floats, extreme=extreme, work=work,
            )  # fmt: skip
    except NotReplayable:
        return None


def _help(kernel: Kernel, violation: Violation) -> str:
    """Return advice about a result that differs from the specification; "" for other violations."""
    if violation.code != "spec-mismatch":
        return ""
    padded = padded_exponentials(kernel)
    if not padded:
        return "compare the kernel's operations, indices and constants with those of the specification"
    whose = ", ".join(f"`{name}`" for name in padded)
    return (
        f"masked elements of {whose} are loaded as 0, and the sum of exponentials counts them: exp(0) is 1. "
        'Load them with `other=float("-inf")`, whose exponential is 0'
    )


def _diagnostic(kernel: Kernel, violation: Violation, values: dict[str, int]) -> Diagnostic:
    span = violation.statement.span if violation.statement is not None else kernel.span
    return Diagnostic(
        violation.code,
        violation.message,
        span,
        violation.property,
        verdict=Verdict.REFUTED,
        notes=(Note("found by running the kernel at small sizes: no engine decided this for all sizes"),),
        help=_help(kernel, violation),
        witness=witness(kernel, FailurePlace(values, violation.block), violation),
    )
