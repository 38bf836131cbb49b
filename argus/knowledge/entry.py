"""One entry of the knowledge base, and the form of its file.

A file begins with `# title`. Then come lines `field: value`, then prose, then the change as a `diff` block of lines
that are kept (" "), removed ("-") and added ("+"); blank lines separate the places of a change.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from argus.knowledge.clause import Clause, Facts, clauses
from argus.knowledge.facts import FACTS
from argus.knowledge.rewrites import known, rewrite

FOLDER = Path(__file__).parent
LAYERS = ("global", "local", "instruction")
_FIELDS = ("when", "do", "gain", "measured", "source", "cost", "invariant", "wrong", "on", "target")
_NEEDED = ("when", "measured", "source", "cost", "invariant", "wrong", "on")


@dataclass(frozen=True, slots=True)
class Entry:
    """One optimisation: when it applies, what it gains, how to make it, and how to get it wrong.

    `steps` are the rewrites that carry it out, in order; there are none if it needs judgement. `gain` is the expected
    speed-up; `measured` is what was measured, and `source` where. `invariant` must stay true; `wrong` lists the error
    codes of typical mistakes. `on` names the kernel of the example, one of this package, and the rewrites that are made
    before the change. `target` is the target for which both versions are proved.
    """

    name: str
    layer: str
    title: str
    when: tuple[Clause, ...]
    steps: tuple[str, ...]
    gain: float
    measured: str
    source: str
    cost: str
    invariant: str
    wrong: tuple[str, ...]
    on: tuple[str, ...]
    target: str
    prose: str
    change: str

    def applies(self, facts: Facts) -> bool:
        """Return True if every clause holds."""
        return all(clause.holds(facts) for clause in self.when)

    @property
    def kernel(self) -> str:
        """Return the name of the example's kernel."""
        return self.on[0]

    def before(self) -> str:
        """Return the kernel's text before the change."""
        text = (FOLDER / "kernels" / f"{self.on[0]}.py").read_text(encoding="utf-8")
        steps = self.on[1:]
        return text if not steps else rewrite(text, self.on[0], *steps) or ""

    def after(self) -> str:
        """Return the kernel's text after the change."""
        return changed(self.before(), self.change)


def read(path: Path) -> Entry:
    """Read an entry's file; its folder is its layer. Raises ValueError, which says what is wrong with the file."""
    head, _, rest = path.read_text(encoding="utf-8").partition("\n\n")
    title, fields = head.removeprefix("# ").strip(), dict[str, str]()
    body, _, block = rest.partition("```diff\n")
    for line in body.split("\n\n", 1)[0].splitlines():
        name, colon, value = line.partition(": ")
        if not colon or name not in _FIELDS:
            raise ValueError(f"{path.name}: `{line}` is no field: {', '.join(_FIELDS)}")
        fields[name] = value.strip()
    prose = body.split("\n\n", 1)[1:]
    change = block.partition("```")[0]
    missing = [name for name in _NEEDED if not fields.get(name)]
    steps = tuple(fields.get("do", "").split())
    unknown = [step for step in steps if not known(step)]
    if missing or unknown or path.parent.name not in LAYERS:
        raise ValueError(f"{path.name}: no {', '.join(missing)}; no such rewrite: {', '.join(unknown)}")
    return Entry(
        name=path.stem,
        layer=path.parent.name,
        title=title,
        when=clauses(fields["when"], FACTS),
        steps=steps,
        gain=float(fields.get("gain", 1)),
        measured=fields["measured"],
        source=fields["source"],
        cost=fields["cost"],
        invariant=fields["invariant"],
        wrong=tuple(fields["wrong"].split()),
        on=tuple(fields["on"].split()),
        target=fields.get("target", "sm_90a"),
        prose="".join(prose).strip(),
        change=change,
    )


def changed(text: str, change: str) -> str:
    """Make a change at each of its places in a text. Raises ValueError if a place is not there exactly once."""
    for place in change.strip("\n").split("\n\n"):
        lines = place.splitlines()
        old = "".join(f"{line[1:]}\n" for line in lines if line[:1] in " -")
        new = "".join(f"{line[1:]}\n" for line in lines if line[:1] in " +")
        if not old or text.count(f"\n{old}") != 1:
            raise ValueError(f"the text has not exactly one place of\n{old}")
        text = text.replace(f"\n{old}", f"\n{new}")
    return text
