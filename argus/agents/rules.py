"""Rules: from a kernel and one diagnostic to the edits that are worth a proof, the most likely first.

A rule reads the counterexample: the statement at the caret, the other access of a race, the steps that led to the
failure, and the path of a value. It does not know what was edited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from argus.agents.edits import Edit, Group, touched
from argus.diagnostic import Diagnostic, Event
from argus.ir.nodes import For, If, Kernel, Stmt
from argus.ir.visit import walk

Rule = Callable[["Scene"], Iterator[Edit]]

_COPIES = ("commit", "wait")


class Scene:
    """A numbered kernel with one statement on each line, its edits, and the statements at which a diagnostic points."""

    def __init__(self, kernel: Kernel, edits: list[Edit], finding: Diagnostic) -> None:
        self.finding, self.edits = finding, edits
        self.statements = tuple(walk(kernel.body))
        self._at: dict[int, list[Edit]] = {}
        for edit in edits:
            self._at.setdefault(edit.at, []).append(edit)
        self._lines = {s.span.line: s for s in self.statements}

    def on(self, stmt: Stmt | None, *groups: Group) -> Iterator[Edit]:
        """Yield the edits of a statement, group by group."""
        for group in groups:
            yield from (e for e in self._at.get(-2 if stmt is None else stmt.id, ()) if e.group is group)

    def caret(self) -> Stmt | None:
        """Return the statement that the diagnostic points at."""
        return self._lines.get(self.finding.span.line)

    def other(self) -> Stmt | None:
        """Return the statement of the other access in a race or an overlap."""
        witness = self.finding.witness
        place: Any = (witness.other or {}).get("span") if witness is not None else None
        parts = str(place).rsplit(":", 2)
        return self._lines.get(int(parts[1])) if len(parts) == 3 and parts[1].isdecimal() else None

    def steps(self) -> list[tuple[Event, Stmt]]:
        """Return the steps that led to the failure, each with its statement."""
        trace = self.finding.witness.trace if self.finding.witness is not None else ()
        return [(event, self._lines[event.span.line]) for event in trace if event.span.line in self._lines]

    def way(self) -> list[Stmt]:
        """Return the statement at the caret, the statements through which the wrong value passed (the last one first),
        the statements that access the same objects, and all loops."""
        hops = self.finding.witness.provenance if self.finding.witness is not None else ()
        found = [self._lines[hop.span.line] for hop in reversed(hops) if hop.span.line in self._lines]
        caret = self.caret()
        first = [caret] if caret is not None else []
        objects = {self.finding.witness.object} if self.finding.witness is not None else set()
        feeding: list[Stmt] = []
        for stmt in [*first, *found]:
            objects |= touched(stmt)
        for stmt in reversed(self.statements):
            if touched(stmt) & objects:
                objects |= touched(stmt)
                feeding.append(stmt)
        loops = [s for s in self.statements if isinstance(s, For)]
        return list({s.id: s for s in [*first, *found, *feeding, *loops]}.values())


def candidates(scene: Scene) -> list[Edit]:
    """Return the edits that the rules for this finding propose, without duplicates."""
    found: dict[int, Edit] = {}
    for rule in RULES.get(scene.finding.code, (protocol, values)):
        for edit in rule(scene):
            found.setdefault(id(edit), edit)
    return list(found.values())


def missing_order(scene: Scene) -> Iterator[Edit]:
    """Propose for a race: another count, a commit after the copy, a wait or barrier before the access; then indices."""
    caret, other = scene.caret(), scene.other()
    copies = any(event.what in ("issue", *_COPIES) for event, _ in scene.steps())
    waits = [s for event, s in scene.steps() if event.what in _COPIES]
    if copies:
        for wait in waits:
            yield from scene.on(wait, Group.COUNT)
        yield from (e for e in scene.on(other, Group.ORDER) if e.title == "add a commit after")
        before = [e for e in scene.on(caret, Group.ORDER) if e.title.endswith("before")]
        yield from sorted(before, key=lambda e: "barrier" not in e.title)
        for wait in waits:
            yield from (e for e in scene.on(wait, Group.ORDER) if "barrier after" in e.title)
    yield from _only(scene.on(caret, Group.ORDER), "add a barrier before")
    yield from _only(scene.on(other, Group.ORDER), "add a barrier after")
    yield from _only(scene.on(other, Group.ORDER), "add a barrier before")
    for stmt in (caret, other):
        yield from scene.on(stmt, Group.CONSTANT, Group.COUNT, Group.INDEX)


def _only(edits: Iterator[Edit], title: str) -> Iterator[Edit]:
    return (e for e in edits if e.title == title)


def fences(scene: Scene) -> Iterator[Edit]:
    """Propose fences, waits and commits on either side of asynchronous work that is not ordered, or not over."""
    found = [*scene.on(scene.caret(), Group.ORDER), *scene.on(scene.other(), Group.ORDER)]
    yield from (e for e in found if "fence" in e.title)
    yield from (e for e in found if "fence" not in e.title)


def divergent(scene: Scene) -> Iterator[Edit]:
    """Propose edits of the conditions around a statement that all threads must reach and some do not."""
    caret = scene.caret()
    for stmt in scene.statements:
        if isinstance(stmt, If) and caret is not None and any(s.id == caret.id for s in walk((stmt,))):
            yield from scene.on(stmt, Group.MASK)


def protocol(scene: Scene) -> Iterator[Edit]:
    """Propose changes of parity, slot, count and scope for waits that do not return, or return too early."""
    for stmt in {s.id: s for _, s in scene.steps()}.values():
        yield from scene.on(stmt, Group.CONSTANT, Group.COUNT, Group.SCOPE)
    yield from scene.on(scene.caret(), Group.CONSTANT, Group.COUNT, Group.SCOPE, Group.MASK, Group.ORDER)


def bounds(scene: Scene) -> Iterator[Edit]:
    """Propose, for an access outside of a tensor, changes of its mask and index; then of the kernel's loops."""
    yield from scene.on(scene.caret(), Group.CONSTANT, Group.MASK, Group.INDEX, Group.COUNT)
    for stmt in scene.statements:
        if isinstance(stmt, For):
            yield from scene.on(stmt, Group.CONSTANT, Group.LOOP)


def coverage(scene: Scene) -> Iterator[Edit]:
    """Propose edits of the grid, the store's mask and index, and loops, for elements that nobody or several write."""
    yield from (e for e in scene.edits if e.group is Group.GRID)
    witness = scene.finding.witness
    stores = [s for s in scene.statements if witness is not None and witness.object in touched(s)]
    for stmt in [*stores, *(s for s in scene.statements if isinstance(s, For))]:
        yield from scene.on(stmt, Group.CONSTANT, Group.MASK, Group.INDEX, Group.LOOP)


def values(scene: Scene) -> Iterator[Edit]:
    """Propose, for a wrong value, the likely edits at every place on its path, and then the other edits."""
    way = scene.way()
    for groups in (
        (Group.CONSTANT,),
        (Group.REDUCTION,),
        (Group.MASK, Group.VALUE),
        (Group.INDEX, Group.COUNT),
        (Group.LOOP, Group.EXCHANGE, Group.LAYOUT, Group.SCOPE),
    ):
        for stmt in way:
            yield from scene.on(stmt, *groups)


def unwritten(scene: Scene) -> Iterator[Edit]:
    """Propose edits of the order, the places and the masks for a read of something unwritten."""
    witness = scene.finding.witness
    touching = [s for s in scene.statements if witness is not None and witness.object in touched(s)]
    for groups in ((Group.CONSTANT, Group.EXCHANGE), (Group.VALUE, Group.MASK), (Group.INDEX, Group.COUNT)):
        for stmt in [s for s in (scene.caret(),) if s is not None] + touching:
            yield from scene.on(stmt, *groups)


def ill_formed(scene: Scene) -> Iterator[Edit]:
    """Propose edits of an ill-formed statement's own indices, threads and scope."""
    yield from scene.on(
        scene.caret(), Group.CONSTANT, Group.LAYOUT, Group.SCOPE, Group.INDEX, Group.REDUCTION, Group.COUNT, Group.MASK
    )


RULES: dict[str, tuple[Rule, ...]] = {
    "data-race": (missing_order, protocol),
    "block-race": (missing_order, coverage),
    "async-overwrite": (missing_order, protocol),
    "stale-read": (fences, missing_order, protocol),
    "unfinished-copy": (fences, protocol),
    "missing-proxy-fence": (fences, protocol),
    "missing-mma-fence": (fences, protocol),
    "register-in-flight": (fences, protocol),
    "out-of-bounds": (bounds, values),
    "misaligned-vector": (bounds, values),
    "output-not-covered": (coverage, values),
    "output-written-twice": (coverage, values),
    "output-written-outside": (coverage, values),
    "cell-written-twice": (coverage, values),
    "coordinate-outside": (bounds, values),
    "uninitialised-read": (unwritten, values),
    "spec-mismatch": (values,),
    "tag-mismatch": (values,),
    "ill-formed-ir": (ill_formed, values),
    "barrier-in-divergent-branch": (divergent, protocol),
    "divergent-barrier": (divergent, protocol),
    "divergent-collective": (divergent, protocol),
}
"""The rules for each error code, in order. Other codes are treated as errors of the protocol, then of values."""
