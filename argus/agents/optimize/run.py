"""The optimisation loop: the planner picks steps, provers examine them in parallel, and one timer measures the rest."""

from __future__ import annotations

import hashlib
import math
import os
import random
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec

from argus.agents.optimize.compare import differences
from argus.agents.optimize.examine import Examined
from argus.agents.optimize.folder import Folder, State, Trial
from argus.agents.optimize.moves import TUNE, Move, moves
from argus.agents.optimize.planner import Planner, context_of
from argus.agents.optimize.problem import Problem
from argus.agents.optimize.service import Worker, WorkerLost
from argus.agents.optimize.timer import DISTRIBUTIONS
from argus.diagnostic import ArgusError, Diagnostic
from argus.knowledge import entries
from argus.tuning.model import MODELS

_PROVER, _TIMER = "argus.agents.optimize.prover", "argus.agents.optimize.timer"
_PROOF_S, _RUN_S = 300.0, 180.0
"""A process that takes longer is ended, and its candidate is refused. A time-out never counts as a proof."""
_BETTER, _MUCH_BETTER = 0.995, 0.8
_PARENTS, _SCREENED = 3, 4
"""The texts from which steps are taken; and, as a multiple of a round, the steps that only change constants."""
_REPEATED, _FINALISTS = 3, 3
_WIDTH = 8
"""The most candidates of a round. Small rounds let later candidates start from a better text."""

Show = Callable[[State, str], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a run: total minutes, candidates, and processes that examine at a time."""

    minutes: float = 5.0
    steps: int = 1000
    workers: int = field(default_factory=lambda: max(1, len(os.sched_getaffinity(0))))


@dataclass(frozen=True, slots=True)
class Step:
    """A move from a trial. `prior`: the promised gain, a logarithm; `score`: the expected gain over the best trial."""

    move: Move
    parent: int
    context: str
    prior: float
    score: float


def place_of_timing(target: str) -> str:
    """Return where candidates are timed: "gpu", "cpu" or "model". Raises `ArgusError` if none of these is possible."""
    if find_spec("torch") is not None:
        if target == "cpu":
            return "cpu"
        import torch

        from argus.runtime.device import target_of

        if torch.cuda.is_available():
            with suppress(ArgusError):
                if target_of("cuda:0") == target:
                    return "gpu"
    if target in MODELS:
        return "model"
    message = f"nothing here can tell how long a kernel takes on {target}"
    help = "run on a machine with that GPU and PyTorch, or choose another target"
    raise ArgusError(Diagnostic("bad-option", message, property="input", help=help))


class Run:
    """One run in a folder. `show` is called with the state and a line of text for every outcome."""

    def __init__(self, problem: Problem, folder: Folder, limits: Limits, show: Show | None = None) -> None:
        self.problem, self.folder, self.limits = problem, folder, limits
        self._show = show or (lambda state, what: None)
        self.timed_on = place_of_timing(problem.target)
        self.state = State(problem.digest, self.timed_on, seed=secrets.randbelow(2**31))
        self.planner = Planner()
        self._provers = [Worker(_PROVER) for _ in range(limits.workers)]
        self._timer = Worker(_TIMER)
        self._request = {**asdict(problem), "sizes": dict(problem.sizes), "numbers": dict(problem.numbers)}
        self._looked: dict[str, Examined] = {}
        self._started = time.monotonic()
        self._before_s = 0.0

    def go(self) -> State:
        """Continue the folder's run, or start one. Return its state when a limit is reached or no step is left."""
        with self.folder.locked():
            self.state = self.folder.load(self.problem.digest) or self.state
            self.planner = Planner.from_json(self.state.planner)
            self._before_s = self.state.spent_s
            try:
                if not self.state.trials:
                    self._begin()
                while not self._over() and self._round():
                    pass
                self._confirm()
            finally:
                for worker in (*self._provers, self._timer):
                    worker.close()
            return self.state

    def _over(self) -> bool:
        spent = self._before_s + time.monotonic() - self._started
        return spent > self.limits.minutes * 60 or len(self.state.trials) > self.limits.steps

    # ------------------------------------------------------------------ the author's kernel

    def _begin(self) -> None:
        """Prove and time the author's kernel. A separate process computes its results, which serve as the reference."""
        found = self._examined(self._provers[0], self.problem.text, None)
        if found.refused:
            message = f"`{self.problem.name}` is refused at {found.refused}: {found.reason}"
            help = "an optimisation starts from a kernel that is proved: `argus check` and `argus repair` say more"
            raise ArgusError(Diagnostic("bad-option", message, property="input", help=help))
        trial = Trial(0, "start", "the author's kernel", 0, _digest(self.problem.text), facts=found.facts)
        trial.predicted_us = found.predicted_us
        if self.timed_on != "model":
            reference = Worker(_TIMER)
            reference.start()
            self._timer.start()
            try:
                self._asked_timer(reference, "build", self.problem.text)
                self._results(reference, self.problem.text, "reference")
            finally:
                reference.close()
        self._measure(trial, self.problem.text)
        if trial.refused:
            message = f"`{self.problem.name}` cannot be run: {trial.reason}"
            raise ArgusError(Diagnostic("bad-option", message, property="input", help="look at the log of the folder"))
        self._note(trial, self.problem.text)

    # ------------------------------------------------------------------ a round

    def _round(self) -> bool:
        """Examine the most promising steps in parallel, and time those that pass. False if there are no steps."""
        steps = self._steps()
        if not steps:
            return False
        best = self.state.trials[self.state.best].predicted_us
        with ThreadPoolExecutor(len(self._provers)) as pool:
            found = pool.map(lambda pair: self._examined(pair[0], pair[1].move.text, best),
                             zip(self._provers, steps, strict=False))  # fmt: skip
            for step, examined in zip(steps, found, strict=False):
                before = self.state.trials[self.state.best].us or math.inf
                self._decide(step, examined)
                now = self.state.trials[self.state.best].us or math.inf
                if self._over() or (now < before * _MUCH_BETTER and step.move.name != TUNE):
                    break  # the other steps started from a text that is now much slower than the best
        return True

    def _decide(self, step: Step, found: Examined) -> None:
        state, move = self.state, step.move
        trial = Trial(len(state.trials), move.name, move.how, step.parent, _digest(move.text), found.refused,
                      found.reason, found.code, found.predicted_us, facts=found.facts,
                      specialised=found.specialised)  # fmt: skip
        if not trial.refused:
            self._measure(trial, move.text)
        parent = state.trials[step.parent]
        gain = None if trial.us is None or parent.us is None else math.log(parent.us / trial.us)
        invariant = next((e.invariant for e in entries() if e.name == move.name), "")
        self.planner.learn(move.name, step.context, step.prior, gain, f"{trial.refused} {trial.code}", invariant)
        self._note(trial, move.text)

    def _note(self, trial: Trial, text: str) -> None:
        """Record a trial: store its text, update the best so far, save the state and write the log."""
        state = self.state
        trial.at_s = state.spent_s = self._before_s + time.monotonic() - self._started
        self.folder.keep(trial.number, text)
        state.trials.append(trial)
        best = state.trials[state.best]
        if trial.compared and trial.us is not None and best.us is not None and trial.us < best.us * _BETTER:
            state.best = trial.number
        state.planner = self.planner.as_json()
        self.folder.save(state)
        said = f"refused at {trial.refused}: {trial.reason}" if trial.refused else f"{trial.us:.1f} us"
        line = f"{trial.number} from {trial.parent}: {trial.name} ({trial.how}): {said}"
        self.folder.log(line)
        self._show(state, line)

    def _steps(self) -> list[Step]:
        """Return the steps to examine next, at most one for each prover, the most promising first."""
        tried = {t.digest for t in self.state.trials}
        best = self.state.trials[self.state.best]
        found: list[Step] = []
        for parent in self._parents():
            facts, text = dict(parent.facts), self.folder.text(parent.number)
            context = context_of(facts)
            behind = math.log((best.us or 1.0) / (parent.us or 1.0))
            for move in moves(text, self.problem.name, self.problem.target, facts, dict(self.problem.sizes)):
                if _digest(move.text) not in tried:
                    prior = math.log(move.gain)
                    score = self.planner.expected(move.name, context, prior) + behind
                    found.append(Step(move, parent.number, context, prior, score))
        return self._looked_at(found)

    def _parents(self) -> list[Trial]:
        """Return the fastest text of each kind, fastest first, at most `_PARENTS`: a kind may only lack constants."""
        timed = sorted((t for t in self.state.trials if t.us is not None), key=lambda t: t.us or 0.0)
        fastest: dict[str, Trial] = {}
        for trial in timed:
            fastest.setdefault(context_of(trial.facts), trial)
        return list(fastest.values())[:_PARENTS]

    def _looked_at(self, steps: list[Step]) -> list[Step]:
        """Predict some of the steps, drop those that are refused, and return the most promising ones, best first."""
        width = min(len(self._provers), _WIDTH, max(0, self.limits.steps + 1 - len(self.state.trials)))
        random.Random(f"{self.state.seed} {len(self.state.trials)}").shuffle(steps)
        named = sorted((s for s in steps if s.move.name != TUNE), key=lambda s: -s.score)[: 2 * width]
        numbers = [s for s in steps if s.move.name == TUNE][: _SCREENED * width]
        with ThreadPoolExecutor(len(self._provers)) as pool:
            chunks = [(w, (named + numbers)[i :: len(self._provers)]) for i, w in enumerate(self._provers)]
            parts = list(pool.map(lambda pair: [self._with_model(pair[0], s) for s in pair[1]], chunks))
        good = sorted((s for part in parts for s in part if s is not None), key=lambda s: -s.score)
        return good[:width]

    def _with_model(self, worker: Worker, step: Step) -> Step | None:
        """Return the step with the model's prediction in its prior and score; None if a stage refuses it."""
        key = _digest(step.move.text)
        if key not in self._looked:
            self._looked[key] = self._asked(worker, {"text": step.move.text, "shape": True})
        found, parent = self._looked[key], self.state.trials[step.parent]
        if found.refused:
            return None
        if found.predicted_us is None or parent.predicted_us is None:
            return step
        promised = 0.0 if _unlike(parent) else math.log(parent.predicted_us / found.predicted_us)
        prior = max(step.prior, promised) if step.move.name != TUNE else promised
        gain = self.planner.expected(step.move.name, step.context, prior)
        return Step(step.move, step.parent, step.context, prior, step.score + gain -
                    self.planner.expected(step.move.name, step.context, step.prior))  # fmt: skip

    # ------------------------------------------------------------------ processes

    def _examined(self, worker: Worker, text: str, best_us: float | None) -> Examined:
        build = self.timed_on != "model"
        return self._asked(worker, {"text": text, "best_us": best_us, "build": build})

    def _asked(self, worker: Worker, request: dict[str, object]) -> Examined:
        try:
            answer = worker.ask({"problem": self._request, **request}, _PROOF_S)
        except WorkerLost as error:
            return Examined("prove", str(error), "internal-error")
        return Examined("prove", answer["error"], "internal-error") if "error" in answer else Examined(**answer)

    def _measure(self, trial: Trial, text: str) -> None:
        """Time a candidate; if it is faster than the best, compare its results. Without a device, predict the time.

        With a predicted time the proof alone decides, because there are no results to compare.
        """
        if self.timed_on == "model":
            trial.us, trial.compared = trial.predicted_us, True
            return
        try:
            self._asked_timer(self._timer, "build", text)
            trial.us = self._time(text)
            best = self.state.trials[self.state.best].us if self.state.trials else None
            if best is not None and trial.us >= best * _BETTER:
                return
            self._results(self._timer, text, "candidate")
            said = differences(self.folder.results("candidate"), self.folder.results("reference"), len(DISTRIBUTIONS),
                               self._device)  # fmt: skip
            trial.compared = not said
            if said:
                trial.us, trial.refused, trial.reason, trial.code = None, "compare", said, "different-result"
        except (WorkerLost, RuntimeError) as error:
            trial.us, trial.refused, trial.reason, trial.code = None, "run", str(error), "kernel-failed"

    @property
    def _device(self) -> str:
        return "cpu" if self.timed_on == "cpu" else "cuda:0"

    def _asked_timer(self, worker: Worker, step: str, text: str, **more: object) -> dict[str, object]:
        """Ask a timer for one step of a candidate. Raises RuntimeError if the step fails, and WorkerLost."""
        request = {"problem": self._request, "text": text, "device": self._device, "step": step, **more}
        answer = worker.ask(request, _RUN_S)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def _results(self, worker: Worker, text: str, name: str) -> None:
        """Run the built candidate with the run's seed, which no build is told, and write its results to a folder."""
        where = self.folder.results(name)
        for old in where.glob("*.pt"):
            old.unlink()
        self._asked_timer(worker, "run", text, seed=self.state.seed, folder=str(where))

    def _time(self, text: str) -> float:
        """Return the microseconds of the built candidate. Raises RuntimeError if the timer gives no valid time."""
        us = self._asked_timer(self._timer, "time", text, seed=self.state.seed)["us"]
        if not isinstance(us, float) or not math.isfinite(us) or us <= 0:
            raise RuntimeError(f"the timer said {us!r}")
        return us

    def _confirm(self) -> None:
        """Time the fastest candidates again, in turns, and make the one with the least median time the best."""
        state = self.state
        timed = sorted((t for t in state.trials if t.compared), key=lambda t: t.us or 0.0)[:_FINALISTS]
        if self.timed_on == "model" or len(timed) < 2:
            return
        times: dict[int, list[float]] = {t.number: [t.us or 0.0] for t in timed}
        for _ in range(_REPEATED - 1):
            for trial in timed:
                with suppress(WorkerLost, RuntimeError):
                    text = self.folder.text(trial.number)
                    self._asked_timer(self._timer, "build", text)
                    times[trial.number].append(self._time(text))
        for trial in timed:
            trial.us = _middle(times[trial.number])
        state.best = min(timed, key=lambda t: t.us or math.inf).number
        self.folder.save(state)


def _unlike(trial: Trial) -> bool:
    """Return True if the model cannot rank texts like this one: its products read operands without a stage."""
    return bool(trial.facts.get("loaded_operands"))


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
