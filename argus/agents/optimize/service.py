"""Worker processes that answer one request per line. Only the worker's own code can write to the pipe of its answers.

Whatever a worker's libraries or compilers print goes to its standard error, so no printed line can pass for an answer.
A worker that dies is replaced; the request that it died of is refused.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

from argus.environment import STARTER, for_programs, started_by

_LOOK_S = 1.0
Answer = dict[str, Any]
Handler = Callable[[Answer], Answer]


class WorkerLost(Exception):
    """The process ended, or answered with something that is not an answer."""


class Worker:
    """One process that runs `module`.main(). It has a folder for temporary files, which goes when the process is ended:
    a process that is killed removes nothing itself.
    """

    def __init__(self, module: str, log: int | None = None) -> None:
        self._module, self._log = module, log
        self._process: subprocess.Popen[str] | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def ask(self, request: Answer, timeout_s: float | None = None) -> Answer:
        """Send a request and wait for its answer. Raises WorkerLost; the next request starts a new process."""
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        watch = threading.Timer(timeout_s, process.kill) if timeout_s is not None else None
        try:
            if watch is not None:
                watch.start()
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            if not isinstance(answer, dict):
                raise ValueError("no object")
            return answer
        except (OSError, ValueError) as error:
            self.close()
            raise WorkerLost(f"the process ended ({process.returncode}): {error}") from error
        finally:
            if watch is not None:
                watch.cancel()

    def start(self) -> None:
        """Start the process, so that it is ready when the first request comes."""
        self._running()

    def end(self) -> None:
        """End the process, also while another thread waits for its answer: that thread gets WorkerLost."""
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End the process, for which no thread waits."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()
        scratch, self._scratch = self._scratch, None
        if scratch is not None:
            scratch.cleanup()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._scratch = tempfile.TemporaryDirectory(prefix="argus-worker-", ignore_cleanup_errors=True)
            path = [os.path.abspath(entry) for entry in sys.path]
            text = f"import sys; sys.path[:] = {path!r}; from {self._module} import main; main()"
            environment = {**for_programs(), "TMPDIR": self._scratch.name, STARTER: str(os.getpid())}
            self._process = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, env=environment,
                                             stdout=subprocess.PIPE, stderr=self._log, text=True)  # fmt: skip
        return self._process


def serve(handler: Handler) -> None:
    """Answer requests on standard input until it ends; an error is an answer, too.

    The process also ends while it answers, once the process that started it is gone: a kernel that hangs would keep
    the device from all later runs.
    """
    answers = _private_output()
    threading.Thread(target=_end_with, args=(started_by(),), daemon=True).start()
    for line in sys.stdin:
        try:
            answer = handler(json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _end_with(parent: int) -> None:
    """End this process when its parent has ended. Its parent is then another process."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os.kill(os.getpid(), signal.SIGKILL)


def _private_output() -> TextIO:
    """Redirect standard output to standard error, and return the original standard output as a new file."""
    private = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return private
