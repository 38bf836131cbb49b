"""The stages that a kernel's text passes, the cheapest rejection first: parse, lower, prove, simulate."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from argus import compile
from argus.diagnostic import ArgusError, Diagnostic, Verdict
from argus.frontend import Options
from argus.mutate import arguments
from argus.render import Json, diagnostic_json
from argus.simulate import NotReplayable, simulate
from argus.simulate.sizes import size_vectors
from argus.source import SourceFile
from argus.work import LIMIT_S

SCHEMA = "argus.agents.judgement/1"
"""The version of `judgement_json`. It changes when a field is removed or changes its meaning."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Task:
    """One kernel's text: of a Python file, or, without `options`, of an explicit kernel."""

    source: SourceFile
    name: str
    options: Options | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: "parse", "lower", "prove" or "simulate"; `passed` is False if the text went no further."""

    name: str
    passed: bool
    seconds: float
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of one text. `explicit` is its kernel if lowering succeeded; `verdict` is None if there was nothing
    to prove."""

    kernel: str
    stages: tuple[Stage, ...]
    verdict: Verdict | None = None
    explicit: compile.ExplicitKernel | None = None

    @property
    def proved(self) -> bool:
        """True only for a proof of every property."""
        return self.verdict is Verdict.PROVED

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The findings of all stages, in order."""
        return tuple(d for stage in self.stages for d in stage.diagnostics)


def judge(task: Task, limit_s: float = LIMIT_S, *, simulated: bool = True,
          tile: compile.TileKernel | None = None) -> Judgement:  # fmt: skip
    """Judge a text: pass it through the stages until one rejects it. `tile` is its kernel if it is known already.

    If the proof ends with unknown and `simulated` is set, the simulator runs the kernel at small sizes. A rule that is
    broken there refutes the kernel. No simulation proves it.
    """
    stages: list[Stage] = []
    try:
        if task.options is None:
            explicit = _stage(stages, "parse", lambda: compile.read(task.source))
        else:
            options = task.options
            known = _stage(stages, "parse", lambda: tile or compile.elaborate(task.source, task.name, options))
            explicit = _stage(stages, "lower", lambda: compile.lower(known, options.target))
    except ArgusError:
        return Judgement(task.name, tuple(stages))
    start = time.perf_counter()
    try:
        report = compile.verify(explicit, limit_s)
    except ArgusError as error:
        stages.append(Stage("prove", False, time.perf_counter() - start, error.diagnostics))
        return Judgement(explicit.name, tuple(stages), None, explicit)
    proved = report.verdict is Verdict.PROVED
    stages.append(Stage("prove", proved, time.perf_counter() - start, report.diagnostics))
    verdict = report.verdict
    if verdict is Verdict.UNKNOWN and simulated:
        stages.append(_simulated(explicit))
        verdict = verdict if stages[-1].passed else Verdict.REFUTED
    return Judgement(explicit.name, tuple(stages), verdict, explicit)


def lowered(task: Task, tile: compile.TileKernel | None = None) -> compile.ExplicitKernel:
    """Return the explicit kernel of a text. `tile` is its kernel if it is known already. Raises `ArgusError`."""
    if task.options is None:
        return compile.read(task.source)
    tile = tile or compile.elaborate(task.source, task.name, task.options)
    return compile.lower(tile, task.options.target)


def _stage(stages: list[Stage], name: str, work: Callable[[], _T]) -> _T:
    start = time.perf_counter()
    try:
        result = work()
    except ArgusError as error:
        stages.append(Stage(name, False, time.perf_counter() - start, error.diagnostics))
        raise
    stages.append(Stage(name, True, time.perf_counter() - start))
    return result


def _simulated(explicit: compile.ExplicitKernel) -> Stage:
    """Return the first rule that the kernel breaks at small sizes, or None if it breaks none."""
    start = time.perf_counter()
    for values in size_vectors(explicit):
        try:
            inputs = arguments(explicit, values)
            outcome = simulate(explicit, inputs, tags=True, stop_at_first=True, resident=1, watch=False)
        except (ArgusError, NotReplayable):  # Nothing is known about these sizes.
            continue
        for violation in outcome.violations:
            at = ", ".join(f"{name} = {value}" for name, value in values.items())
            finding = Diagnostic(violation.code, f"{violation} at {at}", explicit.span, "simulation",
                                 verdict=Verdict.REFUTED)  # fmt: skip
            return Stage("simulate", False, time.perf_counter() - start, (finding,))
    return Stage("simulate", True, time.perf_counter() - start)


def judgement_json(judgement: Judgement) -> Json:
    """Return an object with `kernel`, `verdict` ("error" if there was nothing to prove) and `stages`.

    Each stage has `name`, `passed`, `seconds` and `diagnostics`, which are those of `argus check --json`.
    """
    return {
        "schema": SCHEMA,
        "kernel": judgement.kernel,
        "verdict": "error" if judgement.verdict is None else judgement.verdict.value,
        "stages": [
            {
                "name": stage.name,
                "passed": stage.passed,
                "seconds": round(stage.seconds, 6),
                "diagnostics": [diagnostic_json(d) for d in stage.diagnostics],
            }
            for stage in judgement.stages
        ],
    }
