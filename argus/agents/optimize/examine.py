"""Examine one candidate in the stages that need no device, the cheapest first."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, field
from functools import lru_cache

from argus import compile
from argus.agents.imported import foreign
from argus.agents.optimize.problem import Problem, admits
from argus.agents.task import changed_task, specialised
from argus.diagnostic import ArgusError, Diagnostic, Verdict, VerificationError
from argus.frontend.decorator import KernelSource
from argus.ir.nodes import Kernel
from argus.ir.text import print_kernel
from argus.knowledge import Fact, facts_of_profile, facts_of_shape, facts_of_text
from argus.runtime.executable import CachedSource
from argus.tuning.model import MODELS, estimate
from argus.tuning.work import work_of
from argus.verify.report import Report

STAGES = ("parse", "task", "lower", "model", "emit", "prove", "build", "run", "compare", "time")
"""The stages that may refuse a candidate, in order. Nothing is compiled to machine code before "build"."""

_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""Characters that change how a text looks, or that nobody sees. People who read the best kernel should see all of it.
"""
_ROOM = 1 << 20
"""Bytes that the disk must take beside a compiler."""
SLOWER = 1.3
"""A candidate is not proved if its predicted time exceeds that of the best kernel by more than this factor."""


@dataclass(frozen=True, slots=True)
class Examined:
    """The outcome for a candidate: the stage that refused it ("" for none), why, the predicted time, and its facts."""

    refused: str
    reason: str = ""
    code: str = ""
    predicted_us: float | None = None
    facts: dict[str, Fact] = field(default_factory=dict)
    specialised: bool = False


def shape_of(problem: Problem, text: str, *, limited: bool = True) -> tuple[Examined, compile.ExplicitKernel | None]:
    """Pass a text through "parse", "task", "lower" and "model". The kernel is None if one of them refuses the text.

    If not `limited`, a kernel that the model thinks too large for the machine passes, without a predicted time.
    """
    hidden = sorted(set(_HIDDEN.findall(text)) - set(problem.text))
    if hidden:
        said = f"it has characters that readers do not see: {', '.join(f'U+{ord(c):04X}' for c in hidden)}"
        return Examined("parse", said, "hidden-text"), None
    runs = foreign(problem.text, text)
    if runs:
        return Examined("parse", runs, "python"), None
    try:
        tile = problem.kernel(text)
    except ArgusError as error:
        return _refused("parse", error.diagnostics), None
    author = problem.kernel()
    broken = changed_task(author, tile)
    narrower = specialised(author, tile)
    if broken or (narrower and not (problem.fixed and admits(tile, problem))):
        return Examined("task", f"it changes the author's {broken or 'preconditions'}", "task"), None
    try:
        explicit = compile.lower(tile, problem.target)
        facts = facts_of_text(text, problem.name, problem.target) | facts_of_shape(explicit, problem.sizes)
    except ArgusError as error:
        return _refused("lower", error.diagnostics), None
    if text != problem.text and _form(explicit) == _author(problem.path, problem.text, problem.name, problem.target):
        return Examined("task", "it is the author's kernel, written in another way", "copy", None, facts), None
    us, reason = predicted(problem, explicit)
    if reason and limited:
        return Examined("model", reason, "resources", None, facts, narrower), None
    return Examined("", "", "", None if reason else us, facts, narrower), explicit


@lru_cache(maxsize=4)
def _author(path: str, text: str, name: str, target: str) -> str:
    """Return the text of the author's lowered kernel, with its tiles numbered."""
    problem = Problem(path, text, name, target, {})
    return _form(compile.lower(problem.kernel(), target))


def _form(explicit: Kernel) -> str:
    """Return the text of a kernel with its tiles renamed to `tile0`, `tile1`, ..., so that names make no difference."""
    tiles = [tile.name for tile in explicit.shared] + [tile.name for tile in explicit.fragments]
    names = {name: f"tile{number}" for number, name in enumerate(tiles)}
    return re.sub(r"[A-Za-z_]\w*", lambda word: names.get(word[0], word[0]), print_kernel(explicit))


def examine(problem: Problem, text: str, best_us: float | None = None, *, build: bool = True) -> Examined:
    """Pass a text through all stages up to "build". Raises `OSError` if the compiler failed and the disk is full.

    `best_us` is the time that the model predicts for kernels of this kind that are as fast as the best one so far. The
    author's kernel has none, and is not refused for what the model says.
    """
    found, explicit = shape_of(problem, text, limited=text != problem.text)
    if explicit is None:
        return found
    us = found.predicted_us
    if us is not None and best_us is not None and us > SLOWER * best_us:
        said = f"the model expects {us:.1f} us, and {best_us:.1f} us of the best"
        return Examined("model", said, "slower", us, found.facts, found.specialised)
    try:
        if build:
            compile.emitted(explicit)
    except ArgusError as error:
        return _refused("emit", error.diagnostics, us)
    try:
        codes = _built(problem, text, explicit) if build else _proved(explicit)
    except VerificationError as error:
        return _refused("prove", error.diagnostics, us)
    except ArgusError as error:
        _insist_on_room()
        return _refused("build", error.diagnostics, us)
    return Examined("", "", "", us, found.facts | facts_of_profile(codes), found.specialised)


def _proved(explicit: compile.ExplicitKernel) -> list[str]:
    """Prove a kernel, and return the codes of the findings. Raises `VerificationError` unless all of it is proved."""
    return [d.code for d in _report(explicit).diagnostics]


def _report(explicit: compile.ExplicitKernel) -> Report:
    try:
        report = compile.verify(explicit)
    except ArgusError as error:
        raise VerificationError(*error.diagnostics) from error
    if report.verdict is not Verdict.PROVED:
        raise VerificationError(*report.diagnostics)
    return report


def _built(problem: Problem, text: str, explicit: compile.ExplicitKernel) -> list[str]:
    """Prove a kernel, and then build it, unless the cache has both. Return the codes of the findings.

    Only what is proved is compiled: a kernel that a decorator accepts without a proof does not count.
    """
    source = CachedSource(KernelSource(problem.name, problem.source(text)))
    known = source.cached(problem.options)
    if known is None or known.report["verdict"] != Verdict.PROVED.value:
        report = _report(explicit)
        known = source.keep(problem.options, compile.Compiled(compile.build(explicit, report), report))
    return [str(finding["code"]) for finding in known.report["diagnostics"]]


def _insist_on_room() -> None:
    """Raise `OSError` if the disk is full: a compiler may then have failed for want of room, not because of the kernel.
    """
    with tempfile.TemporaryFile() as file:
        file.write(bytes(_ROOM))
        file.flush()


def predicted(problem: Problem, explicit: Kernel) -> tuple[float | None, str]:
    """Return the predicted microseconds, None without a model, and why the machine cannot run the kernel, or ""."""
    model = MODELS.get(problem.target)
    if model is None:
        return None, ""
    found = estimate(work_of(explicit, {**problem.sizes, **problem.numbers}), model)
    return found.seconds * 1e6, found.reason


def _refused(stage: str, findings: tuple[Diagnostic, ...], us: float | None = None) -> Examined:
    errors = [d for d in findings if d.severity.value == "error"] or list(findings)
    first = sorted(errors, key=lambda d: d.verdict is Verdict.UNKNOWN)[0]
    return Examined(stage, first.message, first.code, us)
