"""Proofs of generated kernels: several run at a time, and the cache keeps every outcome.

`CachedSource` keeps kernels that are proved and built, under a key that covers the kernel's text. The text has no names
or sizes of the graph, so layers of the same structure share a proof, in this process and in later ones. A kernel whose
cache entry is damaged is proved again.
"""

from __future__ import annotations

import json
import os
import pickle
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

_SIDE_BY_SIDE = 4
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


def prove_all(orders: Sequence[ProofRequest], workers: int | None = None) -> list[Outcome]:
    """Return the outcome of each request. Kernels that are not in the cache are proved by `workers` processes.

    The default is one process per core; a few kernels are proved in this process. A terminal shows a progress bar."""
    found: dict[int, Outcome] = {}
    unknown: dict[tuple[str, str, str], list[int]] = {}
    for place, order in enumerate(orders):
        known = _known(order)
        if known is not None:
            found[place] = known
        else:
            key = (order.text, order.target, repr(sorted(order.alignment.items())))
            unknown.setdefault(key, []).append(place)
    cores = workers or len(os.sched_getaffinity(0))
    beside = cores > 1 and len(unknown) >= _SIDE_BY_SIDE
    places = list(unknown.values())
    wanted = [orders[p[0]] for p in places]
    with progress("prove kernels", len(wanted)) as show:
        for number, outcome in _side_by_side(wanted, cores) if beside else enumerate(map(prove, wanted)):
            found |= dict.fromkeys(places[number], outcome)
            show.step(wanted[number].name)
    return [found[place] for place in range(len(orders))]


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
    import argus.compile  # noqa: F401

    orders, workers = pickle.load(sys.stdin.buffer)
    with ProcessPoolExecutor(min(workers, len(orders)), get_context("fork")) as pool:
        running = {pool.submit(prove, order): number for number, order in enumerate(orders)}
        for done in as_completed(running):
            outcome = done.result()
            print(json.dumps([running[done], outcome.verdict, outcome.reason]), flush=True)
    return 0


def _side_by_side(orders: Sequence[ProofRequest], workers: int) -> Iterator[tuple[int, Outcome]]:
    """Yield the number and the outcome of each order, as processes find them. If a process dies, each order without an
    outcome gets a process of its own."""
    left = set(range(len(orders)))
    for number, outcome in _proved_elsewhere(orders, workers):
        left.discard(number)
        yield number, outcome
    for number in sorted(left):
        outcomes = [outcome for _, outcome in _proved_elsewhere([orders[number]], 1)]
        yield number, outcomes[0] if outcomes else Outcome(Verdict.UNKNOWN.value, "the proving process ended early")


def _proved_elsewhere(orders: Sequence[ProofRequest], workers: int) -> Iterator[tuple[int, Outcome]]:
    """Yield the outcomes that a process prints until it ends."""
    path = [os.path.abspath(entry) for entry in sys.path]
    text = f"import sys; sys.path[:] = {path!r}; from argus.graph.prove import main; sys.exit(main())"
    command, pipe = [sys.executable, "-c", text], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(pickle.dumps((list(orders), workers)))
            process.stdin.close()
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
