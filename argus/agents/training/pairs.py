"""Supervised pairs without end, made by machine and labelled by proof: the two atomic skills of a writer of kernels.

`repairs`: a wrong kernel with its diagnostic, and the right kernel. An edit of a right text makes a pair if the
compiler refuses it, or if a run breaks a rule or the specification: such a run is what refutes a kernel, and neither
needs a proof. `better`: a kernel with facts from the performance model, and a faster kernel. All kernels of a family
are in the same part of a split, so that no training pair is closely related to a test answer.
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
from argus.ir.nodes import Kernel
from argus.knowledge.entry import FOLDER
from argus.render import Json, diagnostics_text
from argus.source import SourceFile
from argus.verify.search import search
from argus.work import Work

REPAIR, BETTER = "repair", "better"
COMPILER, RUN, MODEL = "compiler", "run", "model"
_SPACE = re.compile(r"\s+|#[^\n]*")
_WORDS = re.compile(r"\w+|[^\w\s]")
_PORTIONS, _PORTION, _BOTH = 64, 40, 12
"""The most portions of the edits of one kernel, the fewest edits in one, and the most pairs of two edits together that
the compiler refuses, or that runs refute."""
_RUN_S = 0.1
"""The work of the runs of one text, in seconds: enough for nearly all that is found, because runs that find nothing
take most of the time."""
_RUN, _ALIKE = 5, 0.5
"""Two kernels are kin if they share this part of their runs of so many words."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A prompt's parts and the answer. `family`: the kernel that both come from; `by`: what told that the text is wrong
    or slow: "compiler", "run" or "model"."""

    skill: str
    family: str
    text: str
    feedback: str
    answer: str
    by: str

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
    """Yield a pair for each edit of a right kernel that is wrong, in an order drawn with `seed`; no end.

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

    Two edits that make a kernel wrong each make another wrong kernel together, if the compiler refuses both or neither:
    else its finding would tell of one alone.
    """
    text = Path(portion.path).read_text(encoding="utf-8")
    wrong: dict[str, list[TextEdit]] = {COMPILER: [], RUN: []}
    found: list[Pair] = []
    lap, edits = _edits(text, portion)
    for edit in edits:
        pair = _pair(text, edit.apply(text), portion, target)
        if pair is not None:
            wrong[pair.by].append(edit)
            found.append(pair)
    chance = random.Random(f"{portion.seed} {portion.family} {portion.number} both")
    both = [two for by in (COMPILER, RUN) for two in _some(chance, list(_together(wrong[by])))]
    made = (_pair(text, two.apply(text), portion, target) for two in both)
    return [*(found if not lap else ()), *(pair for pair in made if pair is not None)]


def _some(chance: random.Random, edits: Sequence[TextEdit]) -> list[TextEdit]:
    return chance.sample(edits, min(_BOTH, len(edits)))


def _pair(text: str, wrong: str, portion: Portion, target: str) -> Pair | None:
    """Return the pair of a changed text and the right one; None if neither the compiler nor a run finds it wrong."""
    source = SourceFile(Path(portion.path).name, wrong)
    by, findings = COMPILER, tuple[Diagnostic, ...]()
    try:
        explicit = lowered(Text(source, portion.name, Options(target=target)))
        by, found = RUN, refuted(explicit)
        findings = () if found is None else (found,)
    except ArgusError as error:
        findings = error.diagnostics if by == COMPILER else ()
    except Exception:  # what the compiler fails on teaches nothing
        return None
    if not findings:
        return None
    return Pair(REPAIR, portion.family, wrong, str(diagnostics_text(findings).plain), text, by)


def refuted(explicit: Kernel) -> Diagnostic | None:
    """Return a counterexample to a kernel, found by runs at small sizes; None if none of them breaks a rule.

    Raises `ArgusError`.
    """
    found = search(unite(explicit), True, True, Work.of_seconds(_RUN_S)).found
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

    Each text of a way is paired with all slower ones before it, so a way of n texts is worth n * (n - 1) / 2 pairs. The
    answer is only predicted to be faster. A caller proves the texts that it uses.
    """
    chance = random.Random(f"{seed} {task}")
    while True:
        way, titles = [world.naive(task)], [""]
        for _ in range(depth):
            possible = [place for place, may in enumerate(world.actions(task, way[-1])) if may]
            if not possible:
                break
            action = chance.choice(possible)
            new = world.step(task, way[-1], action)
            if new is None or world.time(task, new) > world.time(task, way[-1]):
                continue
            titles.append(ACTIONS[action].title)
            for place, text in enumerate(way):
                if world.time(task, new) < world.time(task, text):
                    yield Pair(BETTER, task.kernel, text, _told(task, world, text, titles[place + 1 :]), new, MODEL)
            way.append(new)


def _told(task: Task, world: World, text: str, titles: Sequence[str]) -> str:
    """Return what a prompt tells of a slow text: its predicted time, what bounds it, and what to do."""
    bound = world.facts(task, text).get("bound", "nothing known")
    return f"{world.time(task, text):.1f} us expected, bound by {bound}; {', then '.join(titles)}."


def distinct(
    pairs: Iterable[Pair], wanted: int, patience: int = 1000, known: Iterable[str] = ()
) -> Iterator[Pair]:
    """Yield different pairs until there are `wanted` of them; fewer if `patience` pairs in a row bring nothing new.

    `known`: digests of pairs that exist, which count, and are not yielded.
    """
    seen, idle = set(known), 0
    if len(seen) >= wanted:
        return
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
