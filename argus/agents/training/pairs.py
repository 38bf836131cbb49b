"""Supervised pairs without end, made by machine and labelled by proof: the two atomic skills of a writer of kernels.

`repairs`: a wrong kernel with a counterexample, and the right kernel. Every edit of a right text that breaks a rule or
its specification in a run makes a pair: such a run is what refutes a kernel, and it takes a tenth of the time of a
proof. `better`: a kernel with facts from the performance model, and a faster kernel. All kernels of a family are in the
same part of a split, so that no training pair is closely related to a test answer.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations, count
from pathlib import Path

from argus.agents.text_edits import text_vocabulary
from argus.agents.text_scope import TextEdit
from argus.agents.training.world import ACTIONS, Task, World
from argus.agents.verifier import Task as Text
from argus.agents.verifier import lowered
from argus.diagnostic import ArgusError, Diagnostic
from argus.frontend import Options, parse
from argus.ir.cluster import unite
from argus.knowledge.entry import FOLDER
from argus.render import Json, diagnostics_text
from argus.source import SourceFile
from argus.verify.search import search
from argus.work import Work

REPAIR, BETTER = "repair", "better"
_SPACE = re.compile(r"\s+|#[^\n]*")
_WORDS = re.compile(r"\w+|[^\w\s]")
_PORTIONS, _PORTION, _BOTH = 16, 40, 60
"""The most portions of the edits of one kernel, the fewest edits in one, and the most pairs of two edits together."""
_RUN_S = 0.2
"""The work of the runs of one text, in seconds."""
_RUN, _ALIKE = 5, 0.5
"""Two kernels are kin if they share this part of their runs of so many words."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A prompt's parts and the answer. `family`: the kernel that both come from."""

    skill: str
    family: str
    text: str
    feedback: str
    answer: str

    def as_json(self) -> Json:
        """Return the pair as one line of a data set: `prompt` and `completion`, beside its parts."""
        prompt = f"{self.text}\n\n{self.feedback}\n\nWrite the kernel again."
        return {**asdict(self), "prompt": prompt, "completion": f"```python\n{self.answer}```"}

    @property
    def digest(self) -> str:
        """Return a digest of both texts without spaces and comments: equal pairs have equal digests."""
        both = _SPACE.sub("", self.text) + "\0" + _SPACE.sub("", self.answer)
        return hashlib.sha256(both.encode()).hexdigest()


def families(root: Path | None = None) -> dict[str, tuple[str, str]]:
    """Return the right kernels from which pairs are made: their family, path and name."""
    found = {path.stem: (str(path), path.stem) for path in sorted((FOLDER / "kernels").glob("*.py"))}
    for path in sorted(root.glob("*.py")) if root is not None else ():
        try:
            names = parse(SourceFile(path.name, path.read_text(encoding="utf-8"))).kernels
        except ArgusError:
            continue
        found.update({name: (str(path), name) for name in names})
    return found


def repairs(family: str, path: str, name: str, seed: int, target: str = "sm_80") -> Iterator[Pair]:
    """Yield a pair for each edit of a right kernel that a run refutes, in an order drawn with `seed`; no end.

    Two edits that are wrong each follow together.
    """
    for number in count():
        yield from some_repairs(Portion(family, path, name, seed, number), target)


@dataclass(frozen=True, slots=True)
class Portion:
    """Some of the edits of one kernel: those with number `number` when they are counted in portions."""

    family: str
    path: str
    name: str
    seed: int
    number: int


def some_repairs(portion: Portion, target: str = "sm_80") -> list[Pair]:
    """Return the pairs of one portion of a kernel's edits. Portions are independent, so processes can share them.

    Two edits that make a kernel wrong each make another wrong kernel together. These are most of the pairs: they cost
    no runs of kernels that are still right.
    """
    text = Path(portion.path).read_text(encoding="utf-8")
    wrong: list[TextEdit] = []
    found: list[Pair] = []
    lap, edits = _edits(text, portion)
    for edit in edits:
        pair = _pair(text, edit.apply(text), portion, target)
        if pair is not None:
            wrong.append(edit)
            found.append(pair)
    chance = random.Random(f"{portion.seed} {portion.family} {portion.number} both")
    together = list(_together(wrong))
    chosen = chance.sample(together, min(_BOTH, len(together)))
    both = (_pair(text, two.apply(text), portion, target) for two in chosen)
    return [*(found if not lap else ()), *(pair for pair in both if pair is not None)]


def _pair(text: str, wrong: str, portion: Portion, target: str) -> Pair | None:
    """Return the pair of a changed text and the right one; None if no run refutes the change."""
    try:
        finding = refuted(Text(SourceFile(Path(portion.path).name, wrong), portion.name, Options(target=target)))
    except Exception:  # what the compiler fails on teaches nothing
        return None
    if finding is None:
        return None
    return Pair(REPAIR, portion.family, wrong, str(diagnostics_text((finding,)).plain), text)


def refuted(text: Text) -> Diagnostic | None:
    """Return a counterexample to a kernel, found by runs at small sizes; None if none of them breaks a rule.

    Raises `ArgusError`.
    """
    found = search(unite(lowered(text)), True, True, Work.of_seconds(_RUN_S)).found
    return None if found is None else replace(found, notes=())


def _edits(text: str, portion: Portion) -> tuple[int, list[TextEdit]]:
    """Return the edits of one portion, and how often all edits came before. They come in another order each time."""
    edits = text_vocabulary(text, portion.name)
    size = max(_PORTION, -(-len(edits) // _PORTIONS))
    lap, place = divmod(portion.number, -(-len(edits) // size))
    random.Random(f"{portion.seed} {portion.family} {lap}").shuffle(edits)
    return lap, edits[place * size : (place + 1) * size]


def _together(edits: Sequence[TextEdit]) -> Iterator[TextEdit]:
    """Yield two edits as one, for all of them that change different places."""
    for one, other in combinations(edits, 2):
        if all(a[1] <= b[0] or b[1] <= a[0] for a in one.changes for b in other.changes):
            yield replace(one, title=f"{one.title}, {other.title}", changes=(*one.changes, *other.changes))


def better(task: Task, world: World, seed: int | str, depth: int = 6) -> Iterator[Pair]:
    """Yield pairs of a text and a faster one, on random ways through the rewrites; both are kernels of one task.

    The answer is only predicted to be faster. A caller proves the pairs that it uses.
    """
    chance = random.Random(f"{seed} {task}")
    while True:
        text = world.naive(task)
        for _ in range(depth):
            possible = [place for place, may in enumerate(world.actions(task, text)) if may]
            if not possible:
                break
            action = chance.choice(possible)
            new = world.step(task, text, action)
            if new is None:
                continue
            before, after = world.time(task, text), world.time(task, new)
            if after < before:
                facts = world.facts(task, text)
                bound = facts.get("bound", "nothing known")
                told = f"{before:.1f} us expected, bound by {bound}; {ACTIONS[action].title}."
                yield Pair(BETTER, task.kernel, text, told, new)
                text = new
            elif after == before:
                text = new


def distinct(pairs: Iterable[Pair], wanted: int, patience: int = 1000) -> Iterator[Pair]:
    """Yield the first `wanted` different pairs; fewer if `patience` pairs in a row bring nothing new."""
    seen: set[str] = set()
    idle = 0
    for pair in pairs:
        idle += 1
        if pair.digest not in seen:
            seen.add(pair.digest)
            idle = 0
            yield pair
        if len(seen) >= wanted or idle >= patience:
            return


def split(names: Sequence[str], share: float = 0.2, seed: int = 0,
          texts: Mapping[str, str] | None = None) -> tuple[set[str], set[str]]:  # fmt: skip
    """Return the families for training and those that are held out: at least one of each, none in both.

    With their texts, kin stay together: a kernel and a variant of it are never in different parts.
    """
    groups: list[set[str]] = []
    for name in sorted(set(names)):
        near = [g for g in groups if any(alike(texts[name], texts[n]) >= _ALIKE for n in g)] if texts else []
        groups = [g for g in groups if g not in near] + [{name}.union(*near)]
    random.Random(seed).shuffle(groups)
    held: set[str] = set()
    for group in groups[:-1]:
        if len(held) < max(1, round(len(set(names)) * share)):
            held |= group
    return set(names) - held, held


def alike(one: str, other: str) -> float:
    """Return the part of their runs of words that two texts share, from 0 to 1."""
    left, right = _runs(one), _runs(other)
    return len(left & right) / max(1, len(left | right))


def _runs(text: str) -> set[tuple[str, ...]]:
    words = _WORDS.findall(re.sub(r"#[^\n]*", "", text))
    return {tuple(words[i : i + _RUN]) for i in range(len(words) - _RUN + 1)}
