"""Judge mutants by verifier and simulator."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argus.diagnostic import ArgusError, Diagnostic, Severity, SourceError, Verdict, VerificationError
from argus.ir.access import Mode, relations
from argus.ir.cluster import unite
from argus.ir.nodes import Kernel, Spec
from argus.ir.visit import walk
from argus.mutate.inputs import arguments
from argus.mutate.mutation import Change, Kind, Mutation, mutations
from argus.simulate import NotReplayable, simulate
from argus.simulate.sizes import admissible, size_vectors
from argus.simulate.usage import kernel_roles
from argus.verify import verify

Tensors = dict[str, NDArray[Any]]
Progress = Callable[[int, int], None]
"""Called before each mutant with the number of mutants that are done and the total number."""

_ROUNDING = {32: 2.0**-18, 16: 2.0**-6, 8: 2.0**-2}
"""Relative differences that another order of the same operations explains, by the bits of a result's type."""
_RELATIVE_TO_LARGEST = 2.0**-16


class Outcome(Enum):
    """The outcome of a mutant. KILLED: refused or refuted. EQUIVALENT: proved, and no difference was seen. MISSED:
    proved, although it breaks a rule in the simulator or computes something else. UNKNOWN: undecided, or not
    simulated."""

    KILLED = "killed"
    EQUIVALENT = "equivalent"
    MISSED = "missed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one mutant.

    `code` is the code of the deciding diagnostic or violation, or "" if the mutant is equivalent. `detail` explains in
    words, with the sizes, why the mutant was missed or is unknown. `seconds` are those of the processor.
    """

    mutation: Change
    outcome: Outcome
    code: str
    detail: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Trial:
    """The results for mutants of one kernel, drawn from all `possible` ones with `seed`. `unspecified` is the result of
    the function of that name."""

    kernel: str
    seed: int
    possible: int
    results: tuple[Result, ...]
    unspecified: tuple[str, ...] = ()

    def number(self, outcome: Outcome, kind: Kind | None = None) -> int:
        """Return the number of mutants (of one kind) with the given outcome."""
        return sum(r.outcome is outcome and kind in (None, r.mutation.kind) for r in self.results)


def trial(
    kernel: Kernel, seed: int, count: int | None, limit_s: float, progress: Progress = lambda done, of: None
) -> Trial:
    """Judge `count` mutants (None: all) of the explicit `kernel`, drawn without replacement, in program order.

    `limit_s` is the work of each proof in seconds. Raises `VerificationError` if the kernel itself is not proved, or
    breaks a rule in the simulator.
    """
    judge = Judge(kernel, limit_s)
    judge.insist()
    everything = mutations(kernel)
    chosen = drawn(len(everything), seed, count)
    results: list[Result] = []
    for number in chosen:
        progress(len(results), len(chosen))
        results.append(judge.result(everything[number]))
    return Trial(kernel.name, seed, len(everything), tuple(results), unspecified(kernel))


def unspecified(kernel: Kernel) -> tuple[str, ...]:
    """Return the tensors that a kernel writes and that have no specification.

    If a mutant writes a wrong value to such a tensor, only rules and tags can catch it.
    """
    statements = tuple(walk(kernel.body))
    specified = {s.output for s in statements if isinstance(s, Spec)}
    written = {a.obj for s in statements for a in relations(s) if a.mode is not Mode.READ}
    return tuple(t.name for t in kernel.tensors if t.name in written - specified)


def drawn(possible: int, seed: int, count: int | None) -> list[int]:
    """Return the `count` of `possible` mutants that `seed` draws, without replacement and in order, or all of them for
    None."""
    if count is None or count >= possible:
        return list(range(possible))
    return sorted(random.Random(seed).sample(range(possible), count))


# ---------------------------------------------------------------------------- the simulator


@dataclass(frozen=True, slots=True)
class _Run:
    """One simulation: `code` and `detail` of the first broken rule, or "" and the tensors at the end."""

    code: str
    detail: str
    tensors: Tensors


class Judge:
    """Judges mutants of a kernel: first by the verifier, `limit_s` seconds each, then by the simulator, which compares
    them with the kernel."""

    def __init__(self, kernel: Kernel, limit_s: float) -> None:
        self.kernel, self.limit_s = kernel, limit_s
        self.vectors = size_vectors(kernel)
        self._known: dict[tuple[tuple[str, int], ...], Tensors] = {}

    def insist(self) -> None:
        """Raise `VerificationError` unless the kernel is proved and breaks no rule at any size that is tried."""
        report = verify(self.kernel, self.limit_s)
        if report.verdict is not Verdict.PROVED:
            raise VerificationError(*(d for d in report.diagnostics if d.severity is Severity.ERROR))
        for values in self.vectors:
            run = _simulate(self.kernel, values, "program")
            if run.code:
                text = f"{self.kernel.name} is proved, and yet: {run.detail} at {values}"
                raise VerificationError(Diagnostic(run.code, text, self.kernel.span, property="internal"))
            self._known[tuple(values.items())] = run.tensors

    def result(self, mutation: Mutation) -> Result:
        """Judge a mutant."""
        start = time.process_time()
        try:
            outcome, code, detail = self._decide(mutation)
        except Exception as error:  # An internal error on one mutant does not hide the results of the others.
            outcome, code, detail = Outcome.UNKNOWN, "internal-error", f"{type(error).__name__}: {error}"
        return Result(mutation, outcome, code, detail, time.process_time() - start)

    def _decide(self, mutation: Mutation) -> tuple[Outcome, str, str]:
        try:
            report = verify(mutation.kernel, self.limit_s)
        except SourceError as error:
            return Outcome.KILLED, error.diagnostics[0].code, ""
        errors = [d for d in report.diagnostics if d.severity is Severity.ERROR]
        match report.verdict:
            case Verdict.REFUTED:
                return Outcome.KILLED, next(d.code for d in errors if d.verdict is Verdict.REFUTED), ""
            case Verdict.UNKNOWN:
                return Outcome.UNKNOWN, errors[0].code, errors[0].message
            case Verdict.PROVED:
                return self._compare(mutation)

    def _compare(self, mutation: Mutation) -> tuple[Outcome, str, str]:
        """Simulate a proved mutant and compare its results with those of the original."""
        # Without a precondition there may be sizes that the original does not admit.
        more = size_vectors(mutation.kernel) if mutation.kind is Kind.REQUIRES else ()
        vectors = [*self.vectors, *(v for v in more if v not in self.vectors)]
        runs = 0
        for values, schedule in _plan(mutation.kernel, vectors):
            if not admissible(mutation.kernel, values):
                continue
            try:
                run = _simulate(mutation.kernel, values, schedule)
            except NotReplayable:
                continue
            runs += 1
            at = ", ".join(f"{name} = {value}" for name, value in values.items()) + f", schedule {schedule}"
            if run.code:
                return Outcome.MISSED, run.code, f"{run.detail} at {at}"
            other = self._difference(values, run.tensors)
            if other:
                return Outcome.MISSED, "different-result", f"{other} at {at}"
        if not runs:
            return Outcome.UNKNOWN, "not-simulated", "proved, but there are no small sizes to run it at"
        return Outcome.EQUIVALENT, "", ""

    def _difference(self, values: dict[str, int], found: Tensors) -> str:
        """Describe the first element that differs from the results of the original kernel, or return "" if there is
        none."""
        if not admissible(self.kernel, values):
            return ""
        key = tuple(values.items())
        if key not in self._known:
            self._known[key] = _simulate(self.kernel, values, "program").tensors
        for tensor in self.kernel.tensors:
            ours, theirs = self._known[key][tensor.name], found[tensor.name]
            wrong = _differs(ours, theirs, tensor.dtype.bits if tensor.dtype.is_float else None)
            if wrong.any():
                at = tuple(int(i[0]) for i in np.nonzero(wrong))
                return f"{tensor.name}{list(at)} is {theirs[at]}, not {ours[at]}"
        return ""


def _plan(kernel: Kernel, vectors: list[dict[str, int]]) -> list[tuple[dict[str, int], str]]:
    """Plan sizes and schedules: the program's order at all sizes, the other schedules at the last sizes only.

    At these, loops run longest. For persistent kernels they include sizes at which one block runs several programs."""
    roles = kernel_roles(unite(kernel))
    eager = [f"eager-{role.name}" for role in roles]
    others = ["reverse", *(["lazy", *eager] if roles else []), "random(1)"]
    busiest = vectors[-2:] if kernel.persistent else vectors[-1:]
    return [*((v, "program") for v in vectors), *((v, schedule) for v in busiest for schedule in others)]


def _simulate(kernel: Kernel, values: dict[str, int], schedule: str) -> _Run:
    try:
        inputs = arguments(kernel, values)
        outcome = simulate(kernel, inputs, tags=True, schedule=schedule, stop_at_first=True, resident=1, watch=False)
    except ArgusError as error:
        return _Run(error.diagnostics[0].code, error.diagnostics[0].message, {})
    first = next(iter(outcome.violations), None)
    return _Run(first.code, str(first), {}) if first is not None else _Run("", "", outcome.tensors)


def _differs(ours: NDArray[Any], theirs: NDArray[Any], bits: int | None) -> NDArray[np.bool_]:
    """Return the elements that differ by more than rounding. Integers are compared exactly."""
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs)) if bits is not None else ours == theirs
    if bits is None:
        return np.asarray(~same)
    with np.errstate(all="ignore"):
        magnitude = np.where(np.isfinite(ours), np.abs(ours), 0)
        allowed = _ROUNDING[bits] * magnitude + _RELATIVE_TO_LARGEST * magnitude.max(initial=0)
        near = np.abs(ours - theirs) <= allowed
    return np.asarray(~(same | near))
