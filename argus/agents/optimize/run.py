"""The optimisation loop: the planner picks steps, provers examine them in parallel, and one timer measures the rest."""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from queue import SimpleQueue

from argus.agents.models.chat import Model
from argus.agents.optimize.ahead import Ahead, Node, calibrated, digest, promise, score
from argus.agents.optimize.examine import Examined
from argus.agents.optimize.folder import Folder, State, Trial
from argus.agents.optimize.looked import counts, sample
from argus.agents.optimize.place import place_of_timing
from argus.agents.optimize.planner import Planner, context_of, kind_of
from argus.agents.optimize.problem import Problem
from argus.agents.optimize.proposer import Proposer
from argus.agents.optimize.service import Answer, Worker, WorkerLost
from argus.agents.optimize.stopwatch import Stopwatch
from argus.diagnostic import ArgusError, Diagnostic
from argus.knowledge import entries

_PROVER = "argus.agents.optimize.prover"
_PROOF_S = 300.0
"""Time limit of a proof, in seconds. A process that exceeds it is ended, and its candidate is refused. A time-out never
counts as a proof."""
_BETTER = 0.995
_REPEATED, _FINALISTS = 3, 3
_WIDTH = 8
"""Largest number of candidates in a round of up to 16 processes; half as many as there are processes if there are more.
Small rounds let later candidates start from a better text."""
_ALIKE, _MOST_ALIKE = 0.005, 3
"""Candidates whose predicted times differ by less than this logarithm are alike. A round has at most `_MOST_ALIKE` of
them."""

Show = Callable[[State, str], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a run: total minutes, candidates, and processes that examine at a time.

    `built`: kernels are also built where the performance model tells times. With the same build cache, a run on the
    device then neither proves nor builds them again.
    """

    minutes: float = 5.0
    steps: int = 1000
    workers: int = field(default_factory=lambda: max(1, len(os.sched_getaffinity(0))))
    built: bool = False


class Run:
    """One run in a folder. `show` is called with the state and a line of text for every outcome.

    A `model` proposes steps beside those of the knowledge base. Nothing that it says counts but the text.
    """

    def __init__(
        self, problem: Problem, folder: Folder, limits: Limits, show: Show | None = None, model: Model | None = None
    ) -> None:
        self.problem, self.folder, self.limits = problem, folder, limits
        self._show = show or (lambda state, what: None)
        self.timed_on = place_of_timing(problem.target)
        self.state = State(problem.digest, self.timed_on, seed=secrets.randbelow(2**31))
        self.planner = Planner()
        self._provers = [Worker(_PROVER) for _ in range(limits.workers)]
        self._request = {**asdict(problem), "sizes": dict(problem.sizes), "numbers": dict(problem.numbers)}
        self._stopwatch = Stopwatch(self._request, folder, "cpu" if self.timed_on == "cpu" else "cuda:0")
        self._ahead = Ahead(self._provers, self._asked)
        self._proposer = None if model is None else Proposer(model)
        self._started = time.monotonic()
        self._before_s = 0.0

    def go(self) -> State:
        """Continue the folder's run, or start one. Return its state when a limit is reached or no step is left."""
        with self.folder.locked():
            self.state = self.folder.load(self.problem.digest, self.timed_on) or self.state
            self.planner = Planner.from_json(self.state.planner)
            self._before_s = self.state.spent_s
            try:
                self._again() if self.state.trials else self._begin()
                while not self._over() and self._round():
                    pass
                self._confirm()
                self._count()
            finally:
                self._close()
            return self.state

    def _over(self) -> bool:
        spent = self._before_s + time.monotonic() - self._started
        return spent > self.limits.minutes * 60 or len(self.state.trials) > self.limits.steps

    # ------------------------------------------------------------------ the author's kernel

    def _begin(self) -> None:
        """Prove and time the author's kernel. A separate process computes its results, which serve as the reference.

        The search ahead begins meanwhile.
        """
        timed = self.timed_on != "model"
        reference = self._stopwatch.another()
        for each in (reference, self._stopwatch) if timed else ():
            each.start()
        found = self._examined(self._provers[0], self.problem.text, None)
        if found.refused:
            message = f"`{self.problem.name}` is refused at {found.refused}: {found.reason}"
            help = "an optimisation starts from a kernel that is proved: `argus check` and `argus repair` say more"
            raise ArgusError(Diagnostic("bad-option", message, property="input", help=help))
        trial = Trial(0, "start", "the author's kernel", 0, digest(self.problem.text), facts=found.facts)
        trial.predicted_us = found.predicted_us
        self._ahead.start(self.problem.text, found, 0, found.predicted_us or 1.0)
        with ThreadPoolExecutor(1) as pool:
            ahead = pool.submit(self._look, [trial])
            if timed:
                reference.reference(self.problem.text, self.state.seed)
            self._measure(trial, self.problem.text)
            ahead.result()
        if trial.refused:
            message = f"`{self.problem.name}` cannot be run: {trial.reason}"
            raise ArgusError(Diagnostic("bad-option", message, property="input", help="look at the log of the folder"))
        self._note(trial, self.problem.text)

    def _again(self) -> None:
        """Give the search ahead what an earlier run has tried; compute the reference again if its results are gone."""
        if self.timed_on != "model" and not self._stopwatch.has_reference():
            self._stopwatch.another().reference(self.problem.text, self.state.seed)
        for trial in self.state.trials:
            found = Examined(trial.refused, trial.reason, trial.code, trial.predicted_us, dict(trial.facts))
            self._ahead.start(self.folder.text(trial.number), found, trial.number, trial.us)

    def _look(self, trials: Sequence[Trial]) -> None:
        """Search ahead, as far as these processes get in a few seconds."""
        self._ahead.look(max(2, len(self._provers) // 2), self.planner, trials)

    # ------------------------------------------------------------------ a round

    def _round(self) -> bool:
        """Examine the most promising texts in parallel, and time those that pass. Return False if there are none."""
        self._look(self.state.trials)
        self._propose()
        chosen = self._chosen()
        if not chosen:
            return False
        with ThreadPoolExecutor(len(self._provers)) as pool:
            asked = {pool.submit(self._examined, worker, node.text, self._limit(node)): node
                     for worker, node in zip(self._provers, chosen, strict=False)}  # fmt: skip
            for done in as_completed(asked):
                self._decide(asked[done], done.result())
                if self._over():
                    for worker in self._provers:
                        worker.end()
                    break
        return True

    def _propose(self) -> None:
        """Let the model, if there is one, propose a step from the best text; the table decides when it is tried."""
        if self._proposer is None or self._proposer.ended:
            return
        best = self._ahead.nodes[self.state.trials[self.state.best].digest]
        move = self._proposer.propose(self.problem, best.text, self.planner.lessons)
        if move is None:
            self.folder.log(f"the model: {self._proposer.ended or 'no step'}")
            return
        try:
            found = Examined(**self._asked(self._provers[0], {"shape": move.text}))
        except (WorkerLost, TypeError) as error:
            found = Examined("parse", str(error), "internal-error")
        if found.refused:
            self._proposer.refused.append(f"refused at {found.refused}: {found.reason}")
        self._ahead.nodes.setdefault(digest(move.text), Node(move.text, found, move, best))

    def _limit(self, node: Node) -> float | None:
        """Return the time that the model would predict for a text of this kind that is as fast as the best one."""
        best = self.state.trials[self.state.best].us
        factor = calibrated(self.state.trials).get(kind_of(node.found.facts), 1.0)
        return None if best is None or self.timed_on == "model" else best / factor

    def _chosen(self) -> list[Node]:
        """Return the texts to examine next, at most one for each prover, the most promising first."""
        here, left = len(self._provers), self.limits.steps + 1 - len(self.state.trials)
        width = min(here, max(_WIDTH, here // 2), max(0, left))
        calibration = calibrated(self.state.trials)
        scored = sorted(((score(n, self.planner, calibration), n) for n in self._ahead.untried()), key=lambda p: -p[0])
        chosen: list[Node] = []
        alike: dict[int, int] = {}
        for _, node in scored:
            us = node.found.predicted_us
            place = round(math.log(us) / _ALIKE) if us else -len(chosen)
            alike[place] = alike.get(place, 0) + 1
            if alike[place] <= _MOST_ALIKE:
                chosen.append(node)
            if len(chosen) >= width:
                break
        return chosen[:width]

    def _decide(self, node: Node, found: Examined) -> None:
        way, parent = node.way(), self.state.trials[node.root.trial or 0]
        names = " + ".join(dict.fromkeys(n.move.name for n in way if n.move is not None))
        how = "; ".join(n.move.how for n in way if n.move is not None)
        trial = Trial(len(self.state.trials), names, how, parent.number, digest(node.text), found.refused,
                      found.reason, found.code, found.predicted_us, facts=found.facts,
                      specialised=found.specialised)  # fmt: skip
        if not trial.refused:
            self._measure(trial, node.text)
        self._learn(way, parent, trial)
        node.trial = trial.number
        self._ahead.start(node.text, found, trial.number, trial.us)
        self._note(trial, node.text)

    def _learn(self, way: Sequence[Node], parent: Trial, trial: Trial) -> None:
        """Tell the planner, for each step, the gain that the model foresaw, and an equal share of the rest of the
        measured gain."""
        gain = None if trial.us is None or parent.us is None else math.log(parent.us / trial.us)
        promises = [promise(n) for n in way]
        rest = 0.0 if gain is None else (gain - sum(promises)) / len(way)
        for node, promised in zip(way, promises, strict=True):
            assert node.move is not None and node.parent is not None
            name = node.move.name
            invariant = next((e.invariant for e in entries() if e.name == name), "")
            self.planner.learn(name, context_of(node.parent.found.facts), promised,
                               None if gain is None else promised + rest, f"{trial.refused} {trial.code}",
                               invariant)  # fmt: skip

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

    def _count(self) -> None:
        """Count the texts that the search ahead examined and nobody compiled."""
        found = counts(self._ahead.nodes.values(), self._limit)
        if sum(found.values()) >= sum(self.state.looked.values()):  # a run that went on shortly looks at less again
            self.state.looked = found
        self.folder.save(self.state)

    def audit(self, count: int) -> tuple[int, int]:
        """Prove, build and time some texts that nobody compiled because the model expects them to be slower than the
        best one. Return how many there were, and how many are wrong or no faster."""
        best, useless = self.state.trials[self.state.best].us or math.inf, 0
        texts = sample(self._ahead.nodes.values(), self._limit, count, self.state.seed)
        free = SimpleQueue[Worker]()
        for worker in self._provers:
            free.put(worker)

        def examined(text: str) -> Examined:
            worker = free.get()
            try:
                return self._examined(worker, text, None)
            finally:
                free.put(worker)

        try:
            with ThreadPoolExecutor(len(self._provers)) as pool:
                for text, found in zip(texts, pool.map(examined, texts), strict=True):
                    useless += bool(found.refused) or self._stopwatch.takes(text, self.state.seed) >= best * _BETTER
        finally:
            self._close()
        return len(texts), useless

    def _close(self) -> None:
        self._stopwatch.close()
        for worker in self._provers:
            worker.close()

    # ------------------------------------------------------------------ processes

    def _examined(self, worker: Worker, text: str, best_us: float | None) -> Examined:
        build = self.limits.built or self.timed_on != "model"
        try:
            answer = self._asked(worker, {"text": text, "best_us": best_us, "build": build})
        except WorkerLost as error:
            return Examined("prove", str(error), "internal-error")
        if "unwritten" in answer:
            raise self.folder.unusable(str(answer["unwritten"]))
        return Examined("prove", answer["error"], "internal-error") if "error" in answer else Examined(**answer)

    def _asked(self, worker: Worker, request: Answer) -> Answer:
        return worker.ask({"problem": self._request, **request}, _PROOF_S)

    def _measure(self, trial: Trial, text: str) -> None:
        """Time a candidate; if it is faster than the best, compare its results. Without a device, predict the time.

        With a predicted time the proof alone decides, because there are no results to compare.
        """
        if self.timed_on == "model":
            trial.us, trial.compared = trial.predicted_us, True
            return
        try:
            trial.us = self._stopwatch.time(text, self.state.seed)
            best = self.state.trials[self.state.best].us if self.state.trials else None
            if best is not None and trial.us >= best * _BETTER:
                return
            said = self._stopwatch.differences(text, self.state.seed)
            trial.compared = not said
            if said:
                trial.us, trial.refused, trial.reason, trial.code = None, "compare", said, "different-result"
        except (WorkerLost, RuntimeError) as error:
            self._insist_on_device(error)
            trial.us, trial.refused, trial.reason, trial.code = None, "run", str(error), "kernel-failed"

    def _insist_on_device(self, error: Exception) -> None:
        """Raise `ArgusError` if the best kernel, which ran before, fails as well: then the device is to blame.

        The candidate is not recorded, so the next run tries it again.
        """
        if not self.state.trials:
            return
        text = self.folder.text(self.state.best)
        try:
            self._stopwatch.close()
            self._stopwatch.time(text, self.state.seed)
        except (WorkerLost, RuntimeError):
            message = f"the device no longer runs a kernel that it ran before: {error}"
            help = "what was found so far is kept; when the device is back, give the same command again"
            raise ArgusError(Diagnostic("kernel-failed", message, property="input", help=help)) from error

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
                    times[trial.number].append(self._stopwatch.time(text, self.state.seed))
        for trial in timed:
            trial.us = _middle(times[trial.number])
        state.best = min(timed, key=lambda t: t.us or math.inf).number
        self.folder.save(state)


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]
