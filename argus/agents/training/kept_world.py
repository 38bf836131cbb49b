"""What a world knows of texts, on disk: a later command with the same sources lowers none of them again."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from argus.agents.training.world import Known, Task, World
from argus.backend.fingerprint import compiler
from argus.written import write_whole


def keep(world: World, path: Path) -> None:
    """Write what a world knows to a file, whole or not at all. Raises `OSError`."""
    places: dict[str, int] = {}

    def place(text: str | None) -> int | None:
        return None if text is None else places.setdefault(text, len(places))

    known = [[kernel, place(text), k.lowers, k.facts, [[a, place(to)] for a, to in k.leads.items()]]
             for (kernel, text), k in world.texts.items()]  # fmt: skip
    times = [[*_task(task), place(text), us if math.isfinite(us) else None] for (task, text), us in world.times.items()]
    facts = [[*_task(task), place(text), found] for (task, text), found in world.counted.items()]
    best = [[*_task(task), us] for task, us in world.best.items()]
    data = {"sources": compiler(), "texts": list(places), "known": known, "times": times, "facts": facts, "best": best}
    write_whole(path, json.dumps(data).encode(), mode=0o644)


def _task(task: Task) -> tuple[str, list[list[Any]]]:
    return task.kernel, [list(size) for size in task.sizes]


def read(path: Path) -> World:
    """Return the world of a file; a new one if there is no such file, or if it is of other sources."""
    world = World()
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return _filled(world, data) if data["sources"] == compiler() else world
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return World()


def _filled(world: World, data: dict[str, Any]) -> World:
    texts: list[str] = data["texts"]
    for kernel, at, lowers, facts, leads in data["known"]:
        to = {int(action): None if place is None else texts[place] for action, place in leads}
        world.texts[kernel, texts[at]] = Known(bool(lowers), facts, to)
    for kernel, sizes, at, us in data["times"]:
        world.times[_of(kernel, sizes), texts[at]] = math.inf if us is None else us
    for kernel, sizes, at, facts in data["facts"]:
        world.counted[_of(kernel, sizes), texts[at]] = facts
    world.best.update({_of(kernel, sizes): us for kernel, sizes, us in data["best"]})
    return world


def _of(kernel: str, sizes: list[list[Any]]) -> Task:
    return Task(kernel, tuple((name, size) for name, size in sizes))
