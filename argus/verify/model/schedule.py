"""Times of statements: their positions in the program, in as few dimensions as are needed to order them.

    (15, 1, "k", 0, 0, 1, 7)  ->  (3, "k", 12)

Every question of order compares two times, dimension by dimension. So all places between two loop counters are
replaced by one number that keeps their order. The counter of a loop that runs once is treated as a place.
"""

from __future__ import annotations

from collections.abc import Mapping

from argus.ir.expr import Const
from argus.ir.nodes import For
from argus.verify.model.program import Position, Site


def times(sites: tuple[Site, ...]) -> dict[int, Position]:
    """Map the index of each statement to its time `(number, counter, number, ...)`, ordered as the positions are."""
    positions = {site.index: site.position for site in sites}
    once = _once(sites)
    shorter = {i: tuple(0 if part in once else part for part in at) for i, at in positions.items()}
    return _numbered(shorter) or _numbered(positions) or positions


def _once(sites: tuple[Site, ...]) -> set[str]:
    """Return the variables of loops that run only one iteration, each with the value 0."""
    loops = [loop for site in sites for loop in site.loops]
    return {loop.var for loop in loops} - {loop.var for loop in loops if not _runs_once(loop)}


def _runs_once(loop: For) -> bool:
    match loop:
        case For(start=Const(value=0), stop=Const(value=stop), step=step):
            return 0 < stop <= step
        case _:
            return False


def _numbered(positions: Mapping[int, Position]) -> dict[int, Position] | None:
    """Replace the places before each counter by one number; None if one position has a counter where another has a
    place."""
    heads = {i: _places(at) for i, at in positions.items()}
    around = {heads[i] for i, at in positions.items() if len(at) > len(heads[i])}
    if any(head[: len(other)] == other for head in heads.values() for other in around if len(other) < len(head)):
        return None
    width = max(map(len, heads.values()), default=0)
    padded = {i: (*head, *(0,) * (width - len(head))) for i, head in heads.items()}
    numbers = {place: number for number, place in enumerate(sorted(set(padded.values())))}
    result: dict[int, Position] = {i: (numbers[place],) for i, place in padded.items()}
    for place, number in numbers.items():
        rests = {i: positions[i][len(heads[i]) :] for i, at in padded.items() if at == place}
        inside = {i: rest for i, rest in rests.items() if rest}
        inner = _numbered({i: rest[1:] for i, rest in inside.items()}) if inside else {}
        if inner is None:
            return None
        result |= {i: (number, inside[i][0], *at) for i, at in inner.items()}
    return result


def _places(position: Position) -> tuple[int, ...]:
    """Return the places of a position before its first counter."""
    places = []
    for part in position:
        if isinstance(part, str):
            break
        places.append(part)
    return tuple(places)
