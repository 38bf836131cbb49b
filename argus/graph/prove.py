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
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from hashlib import sha256
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
    with progress("prove kernels", len(unknown)) as show, ThreadPoolExecutor(cores if beside else 1) as pool:
        running = {pool.submit(_in_a_process if beside else prove, orders[p[0]]): p for p in unknown.values()}
        for done in as_completed(running):
            for place in running[done]:
                found[place] = done.result()
            show.step(orders[running[done][0]].name)
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
    """Prove the order on standard input and print the outcome."""
    outcome = prove(pickle.load(sys.stdin.buffer))
    print(json.dumps([outcome.verdict, outcome.reason]))
    return 0


def _in_a_process(order: ProofRequest) -> Outcome:
    path = [os.path.abspath(entry) for entry in sys.path]
    text = f"import sys; sys.path[:] = {path!r}; from argus.graph.prove import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", text], input=pickle.dumps(order), capture_output=True, check=False)
    try:
        verdict, reason = json.loads(done.stdout)
        return Outcome(verdict, reason)
    except ValueError:
        return Outcome(Verdict.UNKNOWN.value, f"the proving process ended with status {done.returncode}")


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
