"""Processes that prove kernels beside the caller: one that loads the compiler once, and others forked from it.

They outlive a round of proofs, so that the compiler is loaded once for all graphs of a compilation.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from typing import Any

_EARLY = 3
"""Number of processes at which they start before it is known whether any is needed."""

_PIPE = 1 << 20
"""Bytes of requests that a process takes before it has loaded the compiler."""

Answer = tuple[int, str, str]
"""The number of a request, the verdict, and the reason if the kernel is not proved."""


class Provers:
    """Processes that prove requests, from the outermost `with` to its end. `workers`: their number, by default one for
    each core. With one worker, there are no processes."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or len(os.sched_getaffinity(0))
        self.process: subprocess.Popen[bytes] | None = None
        self._users = 0

    def __enter__(self) -> Provers:
        self._users += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._users -= 1
        if not self._users:
            self.stop()

    def start_early(self) -> None:
        """Start the processes if there are cores for them, so that they load the compiler while PyTorch traces."""
        if self.workers >= _EARLY:
            self.start()

    def start(self) -> None:
        """Start the processes unless they run."""
        if self.process is None:
            self.process = _started(self.workers)

    def ask(self, requests: Sequence[Any]) -> None:
        """Begin to prove requests. `answers` yields the answers."""
        self.start()
        assert self.process is not None and self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(pickle.dumps(list(requests)))
            self.process.stdin.flush()

    def answers(self, number: int) -> Iterator[Answer]:
        """Yield `number` answers, or fewer if a process dies. The rest of the processes is then stopped."""
        assert self.process is not None and self.process.stdout is not None
        for line in self.process.stdout:
            with suppress(ValueError, TypeError):  # whatever else a compiler prints
                place, verdict, reason = json.loads(line)
                yield place, verdict, reason
                number -= 1
            if not number:
                return
        self.stop()

    def stop(self) -> None:
        """End the processes."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            with suppress(BrokenPipeError), self.process:  # Its pipes are closed, and it is waited for.
                self.process = None


def _started(workers: int) -> subprocess.Popen[bytes]:
    path = [os.path.abspath(entry) for entry in sys.path]
    imports = "from argus.graph.prove import prove; from argus.graph.provers import main"
    text = f"import sys; sys.path[:] = {path!r}; {imports}; sys.exit(main(prove, {workers}))"
    command, pipe = [sys.executable, "-c", text], subprocess.PIPE
    return subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, start_new_session=True, pipesize=_PIPE
    )


def main(prove: Callable[[Any], Any], workers: int) -> int:
    """Prove the lists of requests on standard input in several processes, and print a line for each answer."""
    _load_compiler()
    with ProcessPoolExecutor(workers, get_context("fork")) as pool, suppress(EOFError):
        while True:
            requests = list(enumerate(pickle.load(sys.stdin.buffer)))
            for number, request in sorted(requests, key=lambda pair: -len(pair[1].text)):  # The longest proofs first.
                pool.submit(prove, request).add_done_callback(partial(_answer, number))
    return 0


def _answer(number: int, done: Future[Any]) -> None:
    """Print an answer. If a process of the pool died, end this process, too: the caller notices that."""
    try:
        outcome = done.result()
    except BaseException:
        os._exit(1)
    sys.stdout.write(json.dumps([number, outcome.verdict, outcome.reason]) + "\n")
    sys.stdout.flush()


def _load_compiler() -> None:
    """Import what a proof needs, so that no forked process does."""
    import argus.backend.standby
    import argus.compile
    import argus.frontend.checker
    import argus.frontend.parser
    import argus.render
    import argus.verify
    import argus.verify.release  # noqa: F401


