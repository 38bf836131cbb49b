"""Pairs in bulk. Many processes make them, and each result is stored at once, so that the same command can continue.

The work is a sequence of items: a portion of one kernel's edits, or some ways through the rewrites of one task. A file
beside the pairs names the items that are done. Several machines take a share of the items each.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from hashlib import sha256
from itertools import chain, count, islice
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Semaphore
from typing import Any, TextIO

from argus import compile
from argus.agents.training.pairs import Pair, Portion, better, distinct, families, some_repairs, split
from argus.agents.training.world import HELD_OUT, TRAINING, Task, World
from argus.diagnostic import ArgusError, Diagnostic, Verdict
from argus.frontend import Options
from argus.pages import example
from argus.source import SourceFile
from argus.written import write_whole

_WAYS, _AHEAD = 42, 4
"""Pairs of one task in an item of work: two or three ways; items that each process has at a time."""
_PROOF_S = 5.0
"""The work of the proof of a faster text."""
_PATIENCE = 20_000
"""The most pairs in a row that bring nothing new."""


@dataclass(frozen=True, slots=True)
class Item:
    """One item of work: a portion of edits, or a task. `seed` decides in which ways a task is solved, and `verdicts` is
    the folder of proofs."""

    name: str
    what: Portion | Task
    seed: str
    verdicts: Path


@dataclass(frozen=True, slots=True)
class Production:
    """A file of pairs under production, and the file that names what is done."""

    out: Path

    @property
    def progress(self) -> Path:
        """The file that names the items that are done."""
        return self.out.with_name(f"{self.out.name}.done")

    @property
    def verdicts(self) -> Path:
        """The folder of the proofs of faster texts, which processes share."""
        return self.out.with_name(f"{self.out.name}.verdicts")

    def done(self, seed: int) -> set[str]:
        """Return the items that an earlier command with this seed finished."""
        names = (line.decode().strip() for line in _whole_lines(self.progress))
        return {name for name in names if name.startswith(f"{seed} ")}

    def kept(self) -> Iterator[Pair]:
        """Yield the pairs in the file."""
        for line in _whole_lines(self.out):
            yield pair_of(json.loads(line))


def _whole_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, if there is one. A last line that was not written whole is cut off."""
    if not path.exists():
        return
    whole = 0
    with path.open("rb+") as file:
        for line in file:
            if line.endswith(b"\n"):
                whole += len(line)
                yield line
        file.truncate(whole)


def pair_of(line: dict[str, Any]) -> Pair:
    """Return the pair of a line of a data set."""
    return Pair(**{field.name: line[field.name] for field in fields(Pair)})


def produced(out: Path, wanted: int, seed: int = 0, jobs: int = 1, share: tuple[int, int] = (0, 1)) -> int:
    """Write up to `wanted` different pairs to a file, each with "train" or "test" by family. Return their number.

    `share`: (i, n) does every n-th item of work, from the i-th on. The same command goes on where an earlier one ended,
    however it ended.
    """
    work = Production(out)
    known, texts = known_families()
    training, _ = split(list(known), seed=seed, texts=texts)
    done = work.done(seed)
    work.verdicts.mkdir(parents=True, exist_ok=True)
    rounds = chain.from_iterable(_round(known, seed, number, work.verdicts) for number in count())
    items = (item for item in islice(rounds, share[0], None, share[1]) if item.name not in done)
    with out.open("a", encoding="utf-8") as file, work.progress.open("a", encoding="utf-8") as finished:
        _alone(finished, out)
        kept = {pair.digest for pair in work.kept()}
        number = len(kept)

        def new() -> Iterator[Pair]:
            for item, pairs in _shared(items, jobs):
                yield from pairs
                file.flush()
                print(item, file=finished, flush=True)

        for pair in distinct(new(), wanted, _PATIENCE, kept):
            number += 1
            part = "train" if pair.family in training else "test"
            file.write(json.dumps({"split": part, **_object(pair)}) + "\n")
    return number


def known_families() -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """Return the path and name of each family's kernel, and its text."""
    known = families(example("transpose.py").parent)
    return known, {family: Path(path).read_text(encoding="utf-8") for family, (path, _) in known.items()}


def _alone(file: TextIO, out: Path) -> None:
    """Raise `ArgusError` if another process works on the same pairs."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        message, help = f"another process writes `{out}`", "wait for it, or choose another file with `--out`"
        raise ArgusError(Diagnostic("bad-option", message, property="input", help=help)) from None


def _object(pair: Pair) -> dict[str, Any]:
    found = pair.as_json()
    assert isinstance(found, dict)
    return dict(found)


def _round(known: dict[str, tuple[str, str]], seed: int, number: int, verdicts: Path) -> Iterator[Item]:
    """Yield one portion of every kernel's edits, and some ways from every task."""
    for family, place in known.items():
        yield Item(f"{seed} {number} {family}", Portion(family, *place, seed, number), "", verdicts)
    for task in (*TRAINING, *HELD_OUT):
        yield Item(f"{seed} {number} {task.kernel} {task.sizes}", task, f"{seed} {number}", verdicts)


_world: list[World] = []
"""The world of a process that makes pairs: it knows the texts that it has lowered."""


def _made(item: Item) -> tuple[str, list[Pair]]:
    if isinstance(item.what, Portion):
        return item.name, some_repairs(item.what)
    _world[:] = _world or [World()]
    found = islice(better(item.what, _world[0], item.seed), _WAYS)
    return item.name, [p for p in found if all(_proved(item, t, _world[0].target) for t in (p.text, p.answer))]


def _proved(item: Item, text: str, target: str) -> bool:
    """Return True if a text is proved. Another process may have proved it already."""
    assert isinstance(item.what, Task)
    kept = item.verdicts / sha256(f"{target} {item.what.kernel}\0{text}".encode()).hexdigest()[:24]
    if kept.exists():
        return kept.read_text(encoding="utf-8") == Verdict.PROVED.value
    try:
        source = SourceFile("kernel.py", text)
        verdict = compile.prove(source, item.what.kernel, Options(target=target), limit_s=_PROOF_S).verdict
    except ArgusError:
        verdict = Verdict.UNKNOWN
    write_whole(kept, verdict.value.encode())
    return verdict is Verdict.PROVED


def _shared(items: Iterator[Item], jobs: int) -> Iterator[tuple[str, list[Pair]]]:
    """Do the items in processes, a few of them ahead of what is taken. A slow item holds nobody up."""
    if jobs == 1:
        yield from map(_made, items)
        return
    ahead, over = Semaphore(_AHEAD * jobs), Event()

    def offered() -> Iterator[Item]:
        for item in items:
            ahead.acquire()
            if over.is_set():
                return
            yield item

    with get_context("spawn").Pool(jobs) as pool:
        try:
            for found in pool.imap_unordered(_made, offered()):
                ahead.release()
                yield found
        finally:  # the pool waits for the thread that takes items
            over.set()
            ahead.release()
