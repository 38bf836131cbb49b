"""Supervised pairs without end, made by machine and labelled by proof: the two atomic skills of a writer of kernels.

`repairs`: a wrong kernel with the verifier's findings, and the right kernel. Every edit of a right text that the
verifier refutes makes a pair. `better`: a proved kernel with facts from the performance model, and a faster proved
kernel. All kernels of a family are in the same part of a split, so that no training pair is closely related to a test
answer.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from argus.agents.text_edits import text_vocabulary
from argus.agents.training.world import ACTIONS, Task, World
from argus.agents.verifier import Task as Text
from argus.agents.verifier import judge
from argus.diagnostic import ArgusError, Severity, Verdict
from argus.frontend import Options, parse
from argus.knowledge.entry import FOLDER
from argus.render import Json, diagnostics_text
from argus.source import SourceFile

REPAIR, BETTER = "repair", "better"
_SPACE = re.compile(r"\s+|#[^\n]*")


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


def repairs(
    family: str, path: str, name: str, seed: int, target: str = "sm_80", limit_s: float = 3.0
) -> Iterator[Pair]:
    """Yield a pair for each edit of a right kernel that the verifier refutes, in an order drawn with `seed`."""
    text = Path(path).read_text(encoding="utf-8")
    edits = text_vocabulary(text, name)
    random.Random(f"{seed} {family}").shuffle(edits)
    options = Options(target=target)
    for edit in edits:
        wrong = edit.apply(text)
        try:
            found = judge(Text(SourceFile(Path(path).name, wrong), name, options), limit_s, simulated=False)
        except Exception:  # A compiler failure teaches nothing.
            continue
        if found.verdict is Verdict.REFUTED:
            errors = [d for d in found.diagnostics if d.severity is Severity.ERROR]
            yield Pair(REPAIR, family, wrong, str(diagnostics_text(tuple(errors[:2])).plain), text)


def better(task: Task, world: World, seed: int, depth: int = 6) -> Iterator[Pair]:
    """Yield pairs of a text and a faster one, along random paths through the rewrites. Both are kernels of one task.

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


def distinct(pairs: Iterable[Pair], count: int, patience: int = 1000) -> Iterator[Pair]:
    """Yield the first `count` different pairs, or fewer if `patience` pairs in a row are repetitions."""
    seen: set[str] = set()
    idle = 0
    for pair in pairs:
        idle += 1
        if pair.digest not in seen:
            seen.add(pair.digest)
            idle = 0
            yield pair
        if len(seen) >= count or idle >= patience:
            return


def split(names: Sequence[str], share: float = 0.2, seed: int = 0) -> tuple[set[str], set[str]]:
    """Return the families for training and those that are held out: at least one of each, none in both."""
    order = sorted(set(names))
    random.Random(seed).shuffle(order)
    held = max(1, round(len(order) * share))
    return set(order[held:]), set(order[:held])
