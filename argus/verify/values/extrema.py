"""Places of extrema: the least place at which an element equals the maximum (or minimum) of all elements.

Some element equals the maximum, so the specified place is at most the last place. Numbers that are not below the last
place change nothing in a minimum of places: the value of elements that are no maximum, and the places of padding.
"""

from __future__ import annotations

from dataclasses import replace

from argus.verify.model.formulas import Pair, Tuple, points
from argus.verify.model.isl import Set, UnionMap, UnionSet, point
from argus.verify.values.contributions import images, loaded_cells
from argus.verify.values.summands import Placed, Ref, Summand
from argus.verify.values.terms import Apply, Cases, Choice, Constant, Index, Load, Reduce, Term, Via

_NOTHING = Constant(float("inf"))

Values = UnionMap
"""{point -> [integer]}."""


def without_high_places(
    found: list[Summand], specified: list[Summand], defined: Set
) -> tuple[list[Summand], list[Summand]]:
    """Return the operands of both minima without numbers that cannot be the result, if the specified minimum is the
    place of an extremum. Otherwise return both unchanged.

    `defined`: the sizes that are possible.
    """
    places = _places(specified, defined)
    if places is None:
        return found, specified
    last = _from_roots(specified[0], places)
    return [left for s in found for left in _lowered(s, last, defined)], [_chosen_alone(s) for s in specified]


def _places(specified: list[Summand], defined: Set) -> Values | None:
    """Return {point -> place} if every root has a point whose place is chosen, or None if that is not known."""
    if len(specified) != 1:
        return None
    (s,) = specified
    term, path = _reached(s)
    if not isinstance(term, Choice):
        return None
    places, elsewhere = integers(term.yes, path), integers(term.no, path)
    if places is None or elsewhere is None or not _attained(term.test, s, path, defined):
        return None
    last = _from_roots(s, places)
    return places if _never_below(s, elsewhere, last, defined) else None


def _attained(test: Term, s: Summand, path: UnionMap, defined: Set) -> bool:
    """Return True if a test compares elements with the extremum of some of them, and every root has such an extremum.
    """
    if isinstance(test, Apply) and test.op == "or":  # The other condition, such as NaN, only chooses more places.
        return any(_attained(t, s, path, defined) for t in test.args)
    if not (isinstance(test, Apply) and test.op.partition(" ")[0] == "eq"):
        return False
    for element, extremum in (test.args, test.args[::-1]):
        compared = _cells(element, path)
        reached, along = _through(extremum, path)
        if compared is None or not (isinstance(reached, Reduce) and _of_members(reached)):
            continue
        ((members, inner),) = reached.parts
        among = _cells(inner, along.apply_range(members))
        if among is None or among[0] != compared[0]:
            continue
        here, there = (_from_roots(s, each[1]) for each in (compared, among))
        empty = s.roots.subtract(there.domain()).intersect_params(defined)
        if empty.is_empty() and there.is_subset(here):
            return True
    return False


def _of_members(term: Reduce) -> bool:
    """Return True if a reduction is an extremum that starts from a number beyond all members."""
    if len(term.parts) != 1 or not isinstance(term.start, Constant):
        return False
    return (term.op == "maximum" and term.start.value <= -(2**31)) or (
        term.op == "minimum" and term.start.value >= 2**31 - 1
    )


def _cells(term: Term, path: UnionMap) -> tuple[str, UnionMap] | None:
    """Return the tensor and {point -> cell} of a term that is one tensor's element, or None for any other term."""
    inner, _ = _through(term, path)
    cells = loaded_cells(term, path)
    return (inner.tensor, cells) if isinstance(inner, Load) and cells is not None else None


def _lowered(s: Summand, last: UnionMap, defined: Set) -> list[Summand]:
    """Return a contribution without the points and the values that are not below the last place."""
    term, path = _reached(s)
    if isinstance(term, Choice):
        yes, no = integers(term.yes, path), integers(term.no, path)
        if yes is None or no is None or not _never_below(s, no, last, defined):
            return [s]
        points = _compared(s, yes, last, "place >= number")
        return [] if points.is_empty() else [_chosen_alone(replace(s, points=points))]
    values = integers(term, path)
    return [] if values is not None and _never_below(s, values, last, defined) else [s]


def _chosen_alone(s: Summand) -> Summand:
    """Return a choice whose other value is infinite, which changes no minimum."""
    term, path = _reached(s)
    assert isinstance(term, Choice)
    return replace(s, factors=(Placed(Ref(Choice(term.test, term.yes, _NOTHING), path)),))


def _never_below(s: Summand, values: Values, last: UnionMap, defined: Set) -> bool:
    """Return True if no point of a contribution has a number that is less than the last place of its root."""
    known = s.points.is_subset(values.domain()) and s.roots.is_subset(last.domain())
    return known and _compared(s, values, last, "place > number").intersect_params(defined).is_empty()


def _compared(s: Summand, values: Values, last: UnionMap, relation: str) -> UnionSet:
    """Return the points whose number and a place of the same root are in a relation."""
    pairs = s.upward.apply_range(last).range_product(values)
    meant = points(Pair(Tuple(("place",)), Tuple(("number",))), [relation]).to_union_set()
    return pairs.intersect_range(meant).domain().intersect(s.points)


def _from_roots(s: Summand, images: UnionMap) -> UnionMap:
    """Return {point -> image} as {root -> image}."""
    return s.upward.reverse().apply_range(images)


def integers(term: Term, path: UnionMap) -> Values | None:
    """Return {point -> [integer]} of a term that is an index or a whole number, or None for any other term."""
    return images(term, path, _integer)


def _integer(leaf: Term, path: UnionMap) -> Values | None:
    match leaf:
        case Index(values=values):
            return path.apply_range(values)
        case Constant(value=value) if value.is_integer():
            return UnionMap.from_domain_and_range(path.domain(), point((int(value),)).to_union_set())
        case _:
            return None


def _through(term: Term, path: UnionMap) -> tuple[Term, UnionMap]:
    """Return the term that a path leads to, through values at other instances and through parts that it does not
    reach."""
    match term:
        case Via(along=along, term=inner):
            return _through(inner, path.apply_range(along))
        case Cases(parts=parts):
            limited = [(path.intersect_range(region), inner) for region, inner in parts]
            each = [(p, inner) for p, inner in limited if not p.is_empty()]
            return _through(each[0][1], each[0][0]) if len(each) == 1 else (term, path)
        case _:
            return term, path


def _reached(s: Summand) -> tuple[Term, UnionMap]:
    (placed,) = s.factors
    return _through(placed.ref.term, placed.ref.path.intersect_domain(s.points))
