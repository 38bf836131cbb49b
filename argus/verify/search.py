"""Counterexamples by trial: what no engine decides may still be plainly wrong, and then a run at small sizes shows it.

The kernel runs whole, on generated inputs, in the simulator, which breaks rules where the machine would. What it finds
is a counterexample like any other; where it finds nothing, what is unknown stays unknown.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from argus.diagnostic import Diagnostic, Note, Verdict
from argus.ir.nodes import Kernel, MemoryObject, Spec
from argus.ir.visit import walk
from argus.simulate import NotReplayable, Violation, replay
from argus.simulate.replay import FRACTIONS, LARGE, NEGATIVE, SMALL
from argus.simulate.sizes import size_vectors
from argus.verify.findings import Place
from argus.verify.witness import REPLAY_ITERATIONS, witness

_WIDE = frozenset({"float32", "tfloat32", "bfloat16"})
"""Types in which sums and products of large inputs are finite."""


def search(kernel: Kernel, values: bool, deadline: float) -> tuple[Diagnostic | None, bool]:
    """The first broken rule that runs at small sizes meet before `deadline` (of `time.thread_time`), as a refutation;
    and whether there was time for all of them. `values`: whether other values than specified may be what is wrong.

    An assertion that is vacuous at some sizes is no broken rule: it has to be at all of them.
    """
    if kernel.grid is None:
        return None, True
    sizes = sorted(size_vectors(kernel), key=lambda vector: sum(vector.values()))
    for floats in _floats(kernel) if values else (SMALL,):
        for vector in sizes:
            for violation in _run(kernel, vector, floats, deadline):
                if violation.certain and violation.code != "vacuous-assertion":
                    return _diagnostic(kernel, violation, vector), True
            if time.thread_time() > deadline:
                return None, False
    return None, True


def _floats(kernel: Kernel) -> Iterator[tuple[int, int, float]]:
    """Kinds of inputs: of floats, only specifications look at the values."""
    yield SMALL
    if any(isinstance(s, Spec) for s in walk(kernel.body)):
        yield FRACTIONS
        objects: tuple[MemoryObject, ...] = (*kernel.tensors, *kernel.shared, *kernel.fragments)
        if all(o.dtype.name in _WIDE for o in objects if o.dtype.is_float):
            yield LARGE
            yield NEGATIVE


def _run(
    kernel: Kernel, sizes: dict[str, int], floats: tuple[int, int, float], deadline: float
) -> tuple[Violation, ...]:
    # What is out of order shows in the shadows of values, whatever these are.
    order = None if floats == SMALL else "program"
    try:
        with np.errstate(all="ignore"):
            return replay(
                kernel, sizes, None, iterations=REPLAY_ITERATIONS, schedule=order, floats=floats, deadline=deadline
            )
    except NotReplayable:
        return ()


def _diagnostic(kernel: Kernel, violation: Violation, values: dict[str, int]) -> Diagnostic:
    span = violation.statement.span if violation.statement is not None else kernel.span
    return Diagnostic(
        violation.code,
        violation.message,
        span,
        violation.property,
        verdict=Verdict.REFUTED,
        notes=(Note("found by running the kernel at small sizes: no engine decided this for all sizes"),),
        witness=witness(kernel, Place(values, violation.block), violation),
    )
