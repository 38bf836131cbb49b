"""Kernels of the graph compiler with other numbers: extents of tiles, and warps. Their results stay the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

_FACTORS = (0.5, 1, 2, 4)
_MOST = 1 << 15


@dataclass(frozen=True, slots=True)
class Choice:
    """Other defaults of a kernel's constants, and its number of warps."""

    constants: Mapping[str, int] = field(default_factory=dict)
    warps: int = 4


@dataclass(slots=True)
class Item:
    """A kernel of the plan: its key, text, target, current choice, sizes, and expected time in seconds."""

    key: str
    name: str
    text: str
    target: str
    now: Choice
    sizes: dict[str, int]
    seconds: float


def key_of(text: str) -> str:
    """Return the key of a kernel: a digest of the text that the graph compiler generates by default."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def neighbours(now: Choice) -> Iterator[Choice]:
    """Yield the choices near the current one: each constant and the number of warps times a half, two or four."""
    names = sorted(now.constants)
    for factors in product(_FACTORS, repeat=len(names) + 1):
        constants = {n: int(now.constants[n] * f) for n, f in zip(names, factors, strict=False)}
        warps = int(now.warps * factors[-1])
        if 1 <= warps <= 16 and all(1 <= c for c in constants.values()) and _product(constants) <= _MOST:
            choice = Choice(constants, warps)
            if choice != now:
                yield choice


def _product(constants: Mapping[str, int]) -> int:
    return constants.get("HEIGHT", 1) * constants.get("WIDTH", 1)


def generator(choices: Mapping[str, Choice], note: Callable[[Any, str, Choice], None]) -> Any:
    """Return a generator for the graph compiler's backend that makes kernels as chosen, and notes each of them."""
    from argus.graph.kernel import generate, statements

    def made(group: Any, found: Any, target: str) -> Any:
        body, constants, warps, requires = statements(group, found, target)
        key = key_of(generate(group, target).text)
        note(group, key, Choice(dict(constants), warps))
        choice = choices.get(key)
        if choice is None or set(choice.constants) != set(constants):
            return body, constants, warps, requires
        return body, dict(choice.constants), choice.warps, requires

    return made


def stored(choices: Mapping[str, Choice]) -> str:
    """Return choices as the text of a file."""
    return json.dumps({key: asdict(choice) for key, choice in choices.items()}, indent=1)


def read(text: str) -> dict[str, Choice]:
    """Read what `stored` returned."""
    return {key: Choice(**value) for key, value in json.loads(text).items()}


def stitched(folder: str | Path) -> Any:
    """Return the backend of `torch.compile` with the choices that a run has left in its folder."""
    from argus.graph.backend import Backend

    choices = read((Path(folder) / "choices.json").read_text(encoding="utf-8"))
    return Backend(generator(choices, lambda group, key, choice: None))
