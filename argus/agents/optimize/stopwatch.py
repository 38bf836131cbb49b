"""Timing of candidates on a device, and the comparison of their results, in a process that can be ended."""

from __future__ import annotations

import math

from argus.agents.optimize import compare
from argus.agents.optimize.folder import Folder
from argus.agents.optimize.service import Answer, Worker, WorkerLost
from argus.agents.optimize.timer import DISTRIBUTIONS

_TIMER = "argus.agents.optimize.timer"
_RUN_S = 180.0
"""Time limit of a step on the device, in seconds. A process that exceeds it is ended."""


class Stopwatch:
    """A process that builds, times and runs texts on one device.

    `request` describes the problem, and results are written to files of the folder. Each method raises RuntimeError if
    the step fails, and WorkerLost if the process ends or exceeds its limit.
    """

    def __init__(self, request: Answer, folder: Folder, device: str) -> None:
        self._request, self._folder, self._device, self._worker = request, folder, device, Worker(_TIMER)

    def another(self) -> Stopwatch:
        """Return one for the same problem with a process of its own."""
        return Stopwatch(self._request, self._folder, self._device)

    def start(self) -> None:
        """Start the process ahead of the first step."""
        self._worker.start()

    def close(self) -> None:
        """End the process. The next step starts another."""
        self._worker.close()

    def time(self, text: str, seed: int) -> float:
        """Build a text and return its microseconds."""
        self._step("build", text)
        us = self._step("time", text, seed=seed)["us"]
        if not isinstance(us, float) or not math.isfinite(us) or us <= 0:
            raise RuntimeError(f"the timer said {us!r}")
        return us

    def takes(self, text: str, seed: int) -> float:
        """Return the microseconds of a text; infinity for one that does not run."""
        try:
            return self.time(text, seed)
        except (WorkerLost, RuntimeError):
            return math.inf

    def reference(self, text: str, seed: int) -> None:
        """Compute the results that candidates are compared with, and end the process."""
        try:
            self._step("build", text)
            self._results(text, "reference", seed)
        finally:
            self.close()

    def has_reference(self) -> bool:
        """Return True if the folder holds the results that candidates are compared with."""
        return len(list(self._folder.results("reference").glob("*.pt"))) >= len(DISTRIBUTIONS)

    def differences(self, text: str, seed: int) -> str:
        """Run a text that was built, and return how its results differ from the reference; an empty text if they do
        not."""
        self._results(text, "candidate", seed)
        candidate, reference = self._folder.results("candidate"), self._folder.results("reference")
        return compare.differences(candidate, reference, len(DISTRIBUTIONS), self._device)

    def _results(self, text: str, name: str, seed: int) -> None:
        """Run the built text with the run's seed, which no build is told, and write its results to a folder."""
        where = self._folder.results(name)
        for old in where.glob("*.pt"):
            old.unlink(missing_ok=True)
        answer = self._step("run", text, seed=seed, folder=str(where))
        if "unwritten" in answer:
            raise self._folder.unusable(str(answer["unwritten"]))

    def _step(self, step: str, text: str, **more: object) -> Answer:
        request = {"problem": self._request, "text": text, "device": self._device, "step": step, **more}
        answer = self._worker.ask(request, _RUN_S)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer
