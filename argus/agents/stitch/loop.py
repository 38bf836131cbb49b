"""The loop: plan, draft, verify, tune the kernel that is expected to take longest, measure, and plan again.

The first draft is what `torch.compile(backend="argus")` makes. Every kernel of every draft is proved by the backend; a
draft counts if it agrees with the reference under hidden inputs, and if it is faster. The loop needs no language model.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from argus import compile
from argus.agents.optimize.folder import Folder
from argus.agents.optimize.service import Worker, WorkerLost
from argus.agents.stitch.tuned import Choice, Item, key_of, neighbours, read, stored
from argus.diagnostic import ArgusError, Diagnostic, Verdict
from argus.frontend import Options
from argus.source import SourceFile
from argus.tuning.model import MODELS, estimate
from argus.tuning.work import work_of

SCHEMA = "argus.agents.stitch/1"
_WORKER = "argus.agents.stitch.reference"
_LOAD_S, _DRAFT_S = 300.0, 900.0
_BETTER = 0.995
_PLENTY = 0.95
"""If a draft takes more than this share of the best draft's time, tuning of its kernel does not continue."""
_LOOKED, _PROVED = 64, 3
"""Number of choices of a kernel that the model ranks, and number of these that are tried; twice as many are proved."""
_MOST_PROCESSES = 16
_PLAN = "plan.json"

Show = Callable[[str], None]
Over = Callable[[Callable[[Choice], Any], Iterable[Choice]], Iterable[Any]]


@dataclass(frozen=True, slots=True)
class Limits:
    """Attempts for each kernel of the plan, plans after the first one, kernels of a plan, minutes in all, and processes
    that rank and prove choices."""

    attempts: int = 3
    replans: int = 2
    kernels: int = 4
    minutes: float = math.inf
    workers: int = field(default_factory=lambda: min(_MOST_PROCESSES, len(os.sched_getaffinity(0))))


@dataclass(slots=True)
class Stitch:
    """The state of a run: times of the reference, of the first draft and of the best draft, the choices, and the steps
    taken."""

    reference_us: float = 0.0
    draft_us: float = 0.0
    best_us: float = 0.0
    choices: dict[str, Choice] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the object that is stored and printed."""
        return {"schema": SCHEMA, **asdict(self), "speedup": self.reference_us / self.best_us if self.best_us else None}


class _Loop:
    def __init__(self, path: Path, device: str, folder: Folder, limits: Limits, show: Show) -> None:
        self.path, self.device, self.folder, self.limits, self.show = path, device, folder, limits, show
        self.worker = Worker(_WORKER)
        self.found = Stitch()
        self.seed = secrets.randbelow(2**31)
        self._pool: ProcessPoolExecutor | None = None
        self._tried: dict[str, list[Choice]] = {}
        self._plan = _plan_of(folder)
        self._end = time.monotonic() + 60 * limits.minutes

    def _over(self, work: Callable[[Choice], Any], choices: Iterable[Choice]) -> Iterable[Any]:
        """Do the work for each choice, in processes if there may be several."""
        if self.limits.workers < 4:  # a process takes seconds to start
            return map(work, choices)
        self._pool = self._pool or ProcessPoolExecutor(self.limits.workers, get_context("spawn"))
        return self._pool.map(work, choices)

    def close(self) -> None:
        """End the processes."""
        self.worker.close()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def go(self) -> Stitch:
        found = self.found
        kept = self.folder.path / "choices.json"
        if kept.is_file():
            found.choices = read(kept.read_text(encoding="utf-8"))
        found.reference_us = float(self._ask({"load": str(self.path), "device": self.device}, _LOAD_S)["us"])
        items = self._draft({})
        found.draft_us = found.best_us
        self._say(f"reference {found.reference_us:.1f} us, draft {found.best_us:.1f} us, {len(items)} kernels")
        if found.choices:
            items = self._draft(found.choices) or items
        for plan in range(self.limits.replans + 1):
            todo = sorted(items, key=lambda i: -i.seconds)[: self.limits.kernels]
            self._say(f"plan {plan + 1}: {', '.join(i.name for i in todo) or 'nothing to do'}")
            before = found.best_us
            for item in todo:
                self._tune(item)
            if found.best_us > before * _PLENTY or time.monotonic() > self._end:
                break
        found.kernels = [item.name for item in items]
        return found

    def _tune(self, item: Item) -> None:
        """Try other numbers of one kernel near its best ones. Stop after two attempts in a row without a gain.

        Nothing is tried twice: another time of the same numbers is no gain.
        """
        idle, item = 0, replace(item, now=self.found.choices.get(item.key, item.now))
        tried = self._tried.setdefault(item.key, [])
        for choice in self._candidates(item, tried):
            if time.monotonic() > self._end:
                return
            tried.append(choice)
            before = self.found.best_us
            numbers = [f"{name} = {value}" for name, value in choice.constants.items()]
            what = f"{item.name} with {', '.join([*numbers, f'{choice.warps} warps'])}"
            self._draft({**self.found.choices, item.key: choice}, what)
            idle = 0 if self.found.best_us < before else idle + 1
            if idle == 2:
                return

    def _candidates(self, item: Item, tried: Sequence[Choice]) -> list[Choice]:
        """Return the choices to try next. What was ranked is kept in the folder, so no run ranks it again."""
        before = {str(number): choice for number, choice in enumerate(tried)}
        place = key_of(stored({item.key: item.now, **before}))
        if place not in self._plan:
            self._plan[place] = [asdict(c) for c in ranked(item, self._over, tried)]
            self.folder.write(_PLAN, json.dumps(self._plan, indent=1))
        return [Choice(**c) for c in self._plan[place]][: self.limits.attempts]

    def prepare(self, target: str) -> int:
        """Prove and build what the first plan would try, without a device. Return the number of kernels."""
        asked = {"survey": str(self.path), "target": target}
        items = [_item(data) for data in self._ask({**asked, "choices": {}}, _DRAFT_S)["items"]]
        todo = sorted(items, key=lambda i: -i.seconds)[: self.limits.kernels]
        self._say(f"plan 1: {', '.join(i.name for i in todo) or 'nothing to do'}")
        for item in todo:
            for choice in self._candidates(item, ()):
                self._ask({**asked, "choices": {item.key: asdict(choice)}}, _DRAFT_S, fatal=False)
        return len(items)

    def _draft(self, choices: dict[str, Choice], what: str = "draft") -> list[Item]:
        """Compile, compare and time the model with some choices; keep them if they are the fastest."""
        request = {"choices": {k: asdict(c) for k, c in choices.items()}, "seed": self.seed, "options": {}}
        answer = self._ask(request, _DRAFT_S, fatal=what == "draft")
        if "us" not in answer:
            said = answer.get("different") or answer.get("error")
            self._say(f"{what}: {said}")
            if not choices:
                help = "if its results are small differences of large numbers, compare others; else report the model"
                message = f"the first draft of `{self.path}` does not compute what PyTorch does: {said}"
                raise ArgusError(Diagnostic("different-result", message, property="input", help=help))
            return []
        us = float(answer["us"])
        if not self.found.best_us or us < self.found.best_us * _BETTER:
            self.found.best_us, self.found.choices = us, choices
            self.folder.write("choices.json", stored(choices))
        self._say(f"{what}: {us:.1f} us")
        return [_item(data) for data in answer["items"]]

    def _ask(self, request: dict[str, Any], limit_s: float, fatal: bool = True) -> dict[str, Any]:
        try:
            answer = self.worker.ask(request, limit_s)
        except WorkerLost as error:
            answer = {"error": str(error)}
        if "error" in answer and fatal:
            help = "the file needs `Model`, `get_inputs` and `get_init_inputs`; look at the log of the folder"
            raise ArgusError(Diagnostic("bad-option", f"`{self.path}`: {answer['error']}", property="input", help=help))
        return answer

    def _say(self, line: str) -> None:
        self.found.steps.append(line)
        self.folder.log(line)
        self.show(line)


def _plan_of(folder: Folder) -> dict[str, list[dict[str, Any]]]:
    """Return what earlier runs in a folder ranked; nothing if the file is missing or damaged."""
    try:
        plan = json.loads((folder.path / _PLAN).read_text(encoding="utf-8"))
        return {place: [asdict(Choice(**c)) for c in choices] for place, choices in plan.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _item(data: dict[str, Any]) -> Item:
    now = Choice(data["constants"], data["warps"])
    item = Item(data["key"], data["name"], data["text"], data["target"], now, data["sizes"], 0.0)
    item.seconds = predicted(item, now) or 0.0
    return item


def ranked(item: Item, over: Over = map, tried: Sequence[Choice] = ()) -> list[Choice]:
    """Return the choices of a kernel that are proved and expected to be faster than its current choice, the fastest
    first.

    Without a model of the target, return the choices nearest to the current one. `over` is `map`, or one that spreads
    its work over processes. Choices that were tried are left out.
    """
    now = predicted(item, item.now)
    near = [choice for choice in neighbours(item.now) if choice not in tried][:_LOOKED]
    if now is not None:
        timed = [(seconds, place) for place, seconds in enumerate(over(partial(predicted, item), near))
                 if seconds is not None and seconds < now * _BETTER]  # fmt: skip
        near = [near[place] for _, place in sorted(timed)]
    near = near[: 2 * _PROVED]
    return [c for c, proved in zip(near, over(partial(_proved, item), near), strict=True) if proved][:_PROVED]


def _kernel(item: Item, choice: Choice) -> compile.ExplicitKernel:
    options = Options(target=item.target, num_warps=choice.warps, constexprs=dict(choice.constants))
    return compile.lower(compile.elaborate(SourceFile("kernel.py", item.text), item.name, options), item.target)


def predicted(item: Item, choice: Choice) -> float | None:
    """Return the seconds that the model predicts for a kernel with a choice; None where it predicts none."""
    if item.target not in MODELS or not item.sizes:
        return None
    try:
        found = estimate(work_of(_kernel(item, choice), item.sizes), MODELS[item.target])
    except (ArgusError, KeyError, TypeError, ArithmeticError):
        return None
    return found.seconds if not found.reason and math.isfinite(found.seconds) else None


def _proved(item: Item, choice: Choice) -> bool:
    try:
        return compile.verify(_kernel(item, choice)).verdict is Verdict.PROVED
    except ArgusError:
        return False


def stitch(path: Path, device: str, folder: Folder, limits: Limits | None = None,
           show: Show = lambda line: None) -> Stitch:  # fmt: skip
    """Make the model of a PyTorch file faster on a device, and leave the choices and a report in a folder.

    Raises `ArgusError` for a file that is no such model, or that the compiler's backend does not run.
    """
    with folder.locked():
        loop = _Loop(path, device, folder, limits or Limits(), show)
        try:
            found = loop.go()
        finally:
            loop.close()
        folder.write("report.json", json.dumps(found.as_json(), indent=1))
        return found


def prepare(path: Path, target: str, folder: Folder, limits: Limits | None = None,
            show: Show = lambda line: None) -> int:  # fmt: skip
    """Prove and build the first draft of a model and what its first plan would try, for a target that may be elsewhere.

    `stitch` in the same folder, with the same build cache, then needs the device only to compare and time. Returns the
    number of kernels. Raises `ArgusError` for a file that is no such model.
    """
    with folder.locked():
        loop = _Loop(path, target, folder, limits or Limits(), show)
        try:
            return loop.prepare(target)
        finally:
            loop.close()
