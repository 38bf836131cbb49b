"""Proofs of generated kernels: several run at a time, and the cache keeps every outcome.

`CachedSource` keeps kernels that are proved and built, under a key that covers the kernel's text. The text has no names
or sizes of the graph, so layers of the same structure share a proof, in this process and in later ones. A kernel whose
cache entry is damaged is proved again.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path

from argus.backend.cache import DiskCache, Entry, cache_key
from argus.backend.fingerprint import FORMAT, compiler
from argus.diagnostic import ArgusError, Diagnostic, Severity, Verdict
from argus.environment import cache_directory
from argus.frontend.decorator import KernelSource
from argus.frontend.options import Options
from argus.runtime.executable import CachedSource
from argus.source import SourceFile
from argus.tuning.progress import progress
from argus.written import write_whole

_SIDE_BY_SIDE = 2
"""Number of proofs at which starting separate processes pays."""


@dataclass(frozen=True)
class ProofRequest:
    """A kernel to be proved and built for a target, for tensors with these alignments in bytes."""

    name: str
    text: str
    target: str
    alignment: Mapping[str, int]

    @property
    def options(self) -> Options:
        return Options(self.target, None, {}, dict(self.alignment))

    def source(self, path: str = "<graph>") -> KernelSource:
        return KernelSource(self.name, SourceFile(path, self.text))


@dataclass(frozen=True)
class Outcome:
    """The verdict on a kernel ("proved", "unknown", "refuted"), and the reason if it is not proved."""

    verdict: str
    reason: str = ""


class Proofs:
    """Proofs of kernels, which begin when this is made and run beside the caller in processes of their own.

    Kernels that are in the cache are not proved again. `workers`: number of processes, by default one for each core. A
    few kernels are proved in the caller's process, when it asks for their outcomes."""

    def __init__(self, orders: Sequence[ProofRequest], workers: int | None = None) -> None:
        self.orders, self.found = orders, dict[int, Outcome]()
        places: dict[tuple[str, str, str], list[int]] = {}
        for place, order in enumerate(orders):
            known = _known(order)
            if known is not None:
                self.found[place] = known
            else:
                key = (order.text, order.target, repr(sorted(order.alignment.items())))
                places.setdefault(key, []).append(place)
        self.places = list(places.values())
        self.wanted = [orders[p[0]] for p in self.places]
        cores = workers or len(os.sched_getaffinity(0))
        self.process = _started(self.wanted, cores) if cores > 1 and len(self.wanted) >= _SIDE_BY_SIDE else None

    def outcomes(self) -> list[Outcome]:
        """Return the outcome of each order. A terminal shows a progress bar meanwhile."""
        with progress("prove kernels", len(self.wanted)) as show:
            for number, outcome in self._made():
                self.found |= dict.fromkeys(self.places[number], outcome)
                show.step(self.wanted[number].name)
        return [self.found[place] for place in range(len(self.orders))]

    def _made(self) -> Iterator[tuple[int, Outcome]]:
        """Yield the number and the outcome of each kernel that is not in the cache. If a process dies, each kernel
        without an outcome gets a process of its own."""
        if self.process is None:
            yield from enumerate(map(prove, self.wanted))
            return
        left = set(range(len(self.wanted)))
        for number, outcome in _printed(self.process):
            left.discard(number)
            yield number, outcome
        for number in sorted(left):
            outcomes = [outcome for _, outcome in _printed(_started([self.wanted[number]], 1))]
            yield number, outcomes[0] if outcomes else Outcome(Verdict.UNKNOWN.value, "the proving process ended early")

    def stop(self) -> None:
        """End the processes, whose outcomes nobody needs."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()


def prove_all(orders: Sequence[ProofRequest], workers: int | None = None) -> list[Outcome]:
    """Return the outcome of each request (see `Proofs`)."""
    return Proofs(orders, workers).outcomes()


def prove(order: ProofRequest) -> Outcome:
    """Prove and build a kernel; both outcomes are kept in the cache."""
    try:
        CachedSource(order.source()).executable(order.options)
    except ArgusError as error:
        outcome = _failed(error)
        DiskCache(cache_directory()).put(_key(order), Entry({"verdict": outcome.verdict, "reason": outcome.reason}))
        return outcome
    return Outcome(Verdict.PROVED.value)


def stored(order: ProofRequest) -> Path | None:
    """Write the kernel's text to a file for readers. Return its path, or None if it cannot be written."""
    digest = sha256(order.text.encode()).hexdigest()[:12]
    path = cache_directory() / "graph" / f"{order.name}-{digest}.py"
    try:
        if not path.exists() or path.read_text(encoding="utf-8") != order.text:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(path, order.text.encode())
    except OSError:
        return None
    return path


def main() -> int:
    """Prove the orders on standard input in several processes, and print a line for each outcome.

    The compiler is loaded once, before the processes are forked."""
    orders, workers = pickle.load(sys.stdin.buffer)
    import argus.compile  # noqa: F401

    with ProcessPoolExecutor(min(workers, len(orders)), get_context("fork")) as pool:
        running = {pool.submit(prove, order): number for number, order in enumerate(orders)}
        for done in as_completed(running):
            outcome = done.result()
            print(json.dumps([running[done], outcome.verdict, outcome.reason]), flush=True)
    return 0


def _started(orders: Sequence[ProofRequest], workers: int) -> subprocess.Popen[bytes]:
    """Start a process that proves the orders by so many others, which can be ended together."""
    path = [os.path.abspath(entry) for entry in sys.path]
    text = f"import sys; sys.path[:] = {path!r}; from argus.graph.prove import main; sys.exit(main())"
    command, pipe = [sys.executable, "-c", text], subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, start_new_session=True)
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.write(pickle.dumps((list(orders), workers)))
        process.stdin.close()
    return process


def _printed(process: subprocess.Popen[bytes]) -> Iterator[tuple[int, Outcome]]:
    """Yield the outcomes that a process prints until it ends."""
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            with suppress(ValueError, TypeError):  # whatever else a compiler prints
                number, verdict, reason = json.loads(line)
                yield number, Outcome(verdict, reason)


def _known(order: ProofRequest) -> Outcome | None:
    """Return the cached outcome of a kernel's proof, or None."""
    if CachedSource(order.source()).cached(order.options) is not None:
        return Outcome(Verdict.PROVED.value)
    entry = DiskCache(cache_directory()).get(_key(order))
    return None if entry is None else Outcome(entry.data["verdict"], entry.data["reason"])


def _key(order: ProofRequest) -> str:
    what = {"text": order.text, "name": order.name, "target": order.target, "alignment": dict(order.alignment)}
    return cache_key({"format": FORMAT, "compiler": compiler(), "kind": "outcome", **what})


def _failed(error: ArgusError) -> Outcome:
    errors = [d for d in error.diagnostics if d.severity is Severity.ERROR]
    refuted = any(d.verdict is Verdict.REFUTED for d in errors)
    verdict = Verdict.REFUTED if refuted else Verdict.UNKNOWN
    return Outcome(verdict.value, "; ".join(map(_said, errors[:2])))


def _said(diagnostic: Diagnostic) -> str:
    return f"{diagnostic.code}: {diagnostic.message}"
