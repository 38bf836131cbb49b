"""The meaning of ISL's answers, as formulas for Z3: they have no model if the answer is right, and have one if not.

An answer "yes" says that some formulas have no model; an answer "no" says that one of them has a model. A result is
checked against its definition as two answers "yes": it contains nothing wrong, and nothing is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from argus.verify.model.isl import Map, Set, UnionMap, UnionSet
from argus.verify.model.solver import z3
from argus.verify.opinion.elimination import exact
from argus.verify.opinion.formulas import Pieces, Space, Spaces, Union, Value, Variable, disjunction, pieces

Formulas = Iterator[z3.BoolRef]
_KINDS = (Set, Map, UnionSet, UnionMap)


class Unclaimed(Exception):
    """An answer has a meaning that this module does not know."""


def counterexamples(name: str, operands: tuple[Any, ...], result: Any) -> Formulas:
    """Formulas that have no model if the answer "yes" is right, or if the result is right.

    For an answer "no" they are the same formulas as for "yes"; one of them has a model if "no" is right.
    """
    if any(not isinstance(o, _KINDS) for o in operands):
        raise Unclaimed(name)
    yield from _CLAIMS[name](*operands) if isinstance(result, bool) else _CLAIMS[name](*operands, result)


def _at(inputs: str = "x", outputs: str = "y") -> Value:
    """Return a function from variables to Z3 integers; `inputs` and `outputs` are the prefixes of coordinates."""
    letters = {"in": inputs, "out": outputs}

    def of(variable: Variable) -> z3.ArithRef:
        kind, which = variable
        return z3.Int(f"p {which}" if kind == "param" else f"{letters[kind]} {which}")

    return of


_HERE = _at()


def _some(found: Pieces | None, of: Value = _HERE) -> z3.BoolRef:
    return disjunction([c.formula(of) for c in found.conjunctions] if found else [])


def _none(found: Pieces | None, of: Value = _HERE) -> z3.BoolRef:
    return z3.Not(disjunction([exact(c, of) for c in found.conjunctions])) if found else z3.BoolVal(True)


def _empty(a: Union) -> Formulas:
    yield from (_some(found) for found in pieces(a).values())


def _subset(a: Union, b: Union) -> Formulas:
    others = pieces(b)
    yield from (z3.And(_some(found), _none(others.get(spaces))) for spaces, found in pieces(a).items())


def _equal(a: Union, b: Union) -> Formulas:
    yield from _subset(a, b)
    yield from _subset(b, a)


def _disjoint(a: Union, b: Union) -> Formulas:
    others = pieces(b)
    yield from (z3.And(_some(mine), _some(others[s])) for s, mine in pieces(a).items() if s in others)


def _single_valued(a: Union) -> Formulas:
    yield from _alike(a, 0)


def _injective(a: Union) -> Formulas:
    yield from _alike(a, 1)


def _bijective(a: Union) -> Formulas:
    yield from _single_valued(a)
    yield from _injective(a)


def _alike(a: Union, side: int) -> Formulas:
    """Formulas for two pairs that agree on one side and differ on the other."""
    found = list(pieces(a).items())
    another = _at("x", "z") if side == 0 else _at("z", "y")
    for number, (spaces, mine) in enumerate(found):
        for others, other in found[number:]:
            if others[side] != spaces[side]:
                continue
            both = z3.And(_some(mine), _some(other, another))
            count, letter = (mine.outputs, "y") if side == 0 else (mine.inputs, "x")
            differ = [z3.Int(f"{letter} {i}") != z3.Int(f"z {i}") for i in range(count)]
            yield z3.And(both, disjunction(differ)) if others == spaces else both


def _subtracted(a: Union, b: Union, result: Union) -> Formulas:
    mine, others, found = pieces(a), pieces(b), pieces(result)
    for spaces in dict.fromkeys((*mine, *found)):
        parts = mine.get(spaces), others.get(spaces), found.get(spaces)
        yield z3.And(_some(parts[0]), _none(parts[1]), _none(parts[2]))
        yield z3.And(_some(parts[2]), _none(parts[0]))
        yield z3.And(_some(parts[2]), _some(parts[1]))


def _side(a: Union, result: Union, side: int) -> Formulas:
    """Formulas for a wrong domain (`side` 0) or range (`side` 1) of a relation."""
    found = pieces(result)
    of = _at("y", "x") if side == 0 else _HERE  # the side's coordinates are called y, like a set's
    grouped: dict[Space, list[Pieces]] = {}
    for spaces, part in pieces(a).items():
        grouped.setdefault(spaces[side], []).append(part)
    for space in dict.fromkeys((*grouped, *(s[1] for s in found))):
        own = found.get(((), space))
        yield z3.And(disjunction([_some(part, of) for part in grouped.get(space, [])]), _none(own))
        shadows = [_shadow(part, of, side) for part in grouped.get(space, [])]
        yield z3.And(_some(own), z3.Not(disjunction(shadows)))


def _shadow(part: Pieces, of: Value, side: int) -> z3.BoolRef:
    """Return the formula that an element on the other side exists: its coordinates become existential integers."""
    return disjunction([exact(c.projected("out" if side == 0 else "in"), of) for c in part.conjunctions])


def _domain(a: Union, result: Union) -> Formulas:
    yield from _side(a, result, 0)


def _range(a: Union, result: Union) -> Formulas:
    yield from _side(a, result, 1)


def _applied(a: Union, b: Union, result: Union) -> Formulas:
    mine, others, found = pieces(a), pieces(b), pieces(result)
    through = _at("x", "z"), _at("z", "y")
    made: dict[Spaces, list[tuple[Pieces, Pieces]]] = {}
    for (start, middle), first in mine.items():
        for (meets, end), second in others.items():
            if middle == meets:
                made.setdefault((start, end), []).append((first, second))
    for spaces in dict.fromkeys((*made, *found)):
        pairs, own = made.get(spaces, []), found.get(spaces)
        steps = [z3.And(_some(f, through[0]), _some(s, through[1])) for f, s in pairs]
        yield z3.And(disjunction(steps), _none(own))
        joined = [exact(f.then(s), _HERE) for first, second in pairs
                  for f in first.conjunctions for s in second.conjunctions]  # fmt: skip
        yield z3.And(_some(own), z3.Not(disjunction(joined)))


def _first(a: Union, result: Union) -> Formulas:
    yield from _extreme(a, result, least=True)


def _last(a: Union, result: Union) -> Formulas:
    yield from _extreme(a, result, least=False)


def _extreme(a: Union, result: Union, least: bool) -> Formulas:
    mine, found = pieces(a), pieces(result)
    yield from _subset(result, a)
    for spaces, part in mine.items():
        own = found.get(spaces)
        shadows = [exact(c.projected("out"), _HERE) for c in own.conjunctions] if own else []
        yield z3.And(_some(part), z3.Not(disjunction(shadows)))
        if own:
            other, here = ([z3.Int(f"{letter} {i}") for i in range(part.outputs)] for letter in "zy")
            yield z3.And(_some(own), _some(part, _at("x", "z")), _before(*((other, here) if least else (here, other))))


def _before(first: list[z3.ArithRef], second: list[z3.ArithRef]) -> z3.BoolRef:
    """Return the formula that `first` precedes `second` in lexicographic order."""
    return disjunction(
        [z3.And(a < b, *(c == d for c, d in zip(first[:i], second[:i], strict=True)))
         for i, (a, b) in enumerate(zip(first, second, strict=True))]
    )  # fmt: skip


_CLAIMS: dict[str, Callable[..., Formulas]] = {
    "is_empty": _empty,
    "is_subset": _subset,
    "is_equal": _equal,
    "is_disjoint": _disjoint,
    "is_single_valued": _single_valued,
    "is_injective": _injective,
    "is_bijective": _bijective,
    "lexmin": _first,
    "lexmax": _last,
    "subtract": _subtracted,
    "coalesce": _equal,
    "apply_range": _applied,
    "domain": _domain,
    "range": _range,
}
