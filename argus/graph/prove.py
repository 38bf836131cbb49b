"""Proofs of generated kernels: several run at a time, and the cache keeps every outcome.

`CachedSource` keeps kernels that are proved and built, under a key that covers the kernel's text. The text has no names
or sizes of the graph, so layers of the same structure share a proof, in this process and in later ones. A kernel whose
cache entry is damaged is proved again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from argus.backend.cache import DiskCache, Entry, cache_key
from argus.backend.fingerprint import FORMAT, compiler
from argus.diagnostic import ArgusError, Diagnostic, Severity, Verdict
from argus.environment import cache_directory
from argus.frontend.decorator import KernelSource
from argus.frontend.options import Options
from argus.graph.provers import Provers
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

    Kernels that are in the cache are not proved again. A single kernel is proved in the caller's process, when it asks
    for the outcomes, unless `provers` already run."""

    def __init__(self, orders: Sequence[ProofRequest], provers: Provers) -> None:
        self.orders, self.provers, self.found = orders, provers, dict[int, Outcome]()
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
        least = _SIDE_BY_SIDE if provers.process is None else 1
        self.beside = provers.workers > 1 and len(self.wanted) >= least
        if self.beside:
            provers.ask(self.wanted)

    def outcomes(self) -> list[Outcome]:
        """Return the outcome of each order. A terminal shows a progress bar meanwhile."""
        with progress("prove kernels", len(self.wanted)) as show:
            for number, outcome in self._made():
                self.found |= dict.fromkeys(self.places[number], outcome)
                show.step(self.wanted[number].name)
        return [self.found[place] for place in range(len(self.orders))]

    def _made(self) -> Iterator[tuple[int, Outcome]]:
        """Yield the number and the outcome of each kernel that is not in the cache. If a process dies, the kernels
        without an outcome are asked for one by one."""
        if not self.beside:
            yield from enumerate(map(prove, self.wanted))
            return
        left = set(range(len(self.wanted)))
        for number, verdict, reason in self.provers.answers(len(left)):
            left.discard(number)
            yield number, Outcome(verdict, reason)
        for number in sorted(left):
            self.provers.ask([self.wanted[number]])
            answers = [Outcome(verdict, reason) for _, verdict, reason in self.provers.answers(1)]
            yield number, answers[0] if answers else Outcome(Verdict.UNKNOWN.value, "the proving process ended early")


def prove_all(orders: Sequence[ProofRequest], workers: int | None = None) -> list[Outcome]:
    """Return the outcome of each request (see `Proofs`)."""
    with Provers(workers) as provers:
        return Proofs(orders, provers).outcomes()


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
