"""The interface to ISL, and the only module that uses islpy: integer sets and relations, work limits, and helpers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TypeVar

import islpy as isl

from argus.work import Work

__all__ = [
    "IslError",
    "Map",
    "Point",
    "Set",
    "UnionMap",
    "UnionSet",
    "charge",
    "empty_map",
    "empty_set",
    "first",
    "involves",
    "isl",
    "limited",
    "map_parts",
    "merged",
    "point",
    "same_group",
    "set_parts",
    "shift",
    "smallest",
    "unequal",
    "with_parameters",
    "without_last",
]

Map = isl.Map
Set = isl.Set
UnionMap = isl.UnionMap
UnionSet = isl.UnionSet
_Union = TypeVar("_Union", isl.UnionMap, isl.UnionSet)

IslError = isl.Error


@contextmanager
def limited(work: Work, most: int | None = None) -> Iterator[None]:
    """Charge ISL's operations in the context to `work`, and raise `IslError` after `most` steps.

    By default `most` is all the work that is left. One step is one allocation, the only thing that ISL counts.
    """
    context = isl.DEFAULT_CONTEXT
    allowed = max(1, work.left if most is None else min(most, work.left))
    context.set_max_operations(allowed)
    context.reset_operations()
    try:
        yield
    finally:
        work.spend(_operations(context, allowed))
        context.set_max_operations(0)


def charge(steps: int) -> None:
    """Take steps that another engine has used from what ISL may still use in the surrounding `limited` context."""
    context = isl.DEFAULT_CONTEXT
    most = context.get_max_operations()
    if most:
        context.set_max_operations(max(1, most - steps))


def _operations(context: isl.Context, most: int) -> int:
    """Return the number of operations that ISL has counted, at most `most`.

    ISL does not report the count, but refuses an operation once the count has reached the limit. So a binary search
    finds the largest limit at which ISL still refuses, in about 25 operations.
    """
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        context.set_max_operations(middle + 1)
        try:
            isl.Val(1)
            high = middle
        except IslError:
            low = middle + 1
    return low


def first(images: Map) -> Map:
    """Return {x -> the lexicographically first of images(x)}.

    `lexmin` has been seen to lose points of maps whose existential dimensions were not simplified. So its result is
    checked: it must be contained in `images`, and must have an image for each x.
    """
    if images.is_single_valued():  # already the answer: nothing to compute or check
        return images
    images = images.remove_redundancies()
    result = images.lexmin().coalesce()
    if not (images.domain().is_subset(result.domain()) and result.is_subset(images)):
        raise IslError("isl_map_lexmin lost points")
    return result


def merged(pieces: _Union) -> _Union:
    """Merge the pieces of a union; return the union unchanged where isl's `coalesce` fails with an internal error."""
    try:
        return pieces.coalesce()
    except isl.Error as error:
        if "tableau" not in str(error):
            raise
        return pieces


def explicit(pieces: _Union) -> _Union:
    """Merge the pieces of a union after integers that only exist became floor divisions: equal ones are one."""
    return merged(pieces.compute_divs())


@dataclass(frozen=True, slots=True)
class Point:
    """A sample: parameter values by identifier, the tuple's name, and its coordinates."""

    parameters: dict[str, int]
    name: str
    values: tuple[int, ...]


def involves(relation: Map | Set, names: Iterable[str]) -> bool:
    """Return True if a set or relation depends on one of these parameters."""
    at = (relation.find_dim_by_name(isl.dim_type.param, name) for name in names)
    return any(i >= 0 and relation.involves_dims(isl.dim_type.param, i, 1) for i in at)


def with_parameters(points: Set, names: Mapping[str, str]) -> Set:
    """Rename some parameters of a set, by `names`. A parameter that already has a new name is projected out first."""
    for old, new in names.items():
        taken = points.find_dim_by_name(isl.dim_type.param, new)
        if taken >= 0:
            points = points.project_out(isl.dim_type.param, taken, 1)
        at = points.find_dim_by_name(isl.dim_type.param, old)
        if at >= 0:
            points = points.set_dim_name(isl.dim_type.param, at, new)
    return points


def point(values: Iterable[int]) -> Set:
    """Return the unnamed set of one point."""
    numbers = tuple(values)
    found = Set.universe(isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, len(numbers)))
    for position, value in enumerate(numbers):
        found = found.fix_val(isl.dim_type.set, position, isl.Val(value))
    return found


def shift(by: int) -> Map:
    """Return {[t] -> [t + by]}."""
    line = isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, 1)
    number = isl.Aff.var_on_domain(isl.LocalSpace.from_space(line), isl.dim_type.set, 0)
    return isl.Map.from_aff(number.add_constant_val(isl.Val(by)))


def same_group(size: int) -> Map:
    """Return {[t] -> [u]}, where t and u are in the same group: floor(t / size) = floor(u / size)."""
    line = isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, 1)
    number = isl.Aff.var_on_domain(isl.LocalSpace.from_space(line), isl.dim_type.set, 0)
    group = isl.Map.from_aff(number.scale_down_val(isl.Val(size)).floor())
    return group.apply_range(group.reverse())


def unequal(space: isl.Space) -> Map:
    """Return the pairs of two different points of a set's space."""
    return isl.Map.lex_lt(space).union(isl.Map.lex_gt(space))


def without_last(space: isl.Space, name: str, count: int) -> Map:
    """Return {name[x, y] -> name[x]}, where y are the last `count` dimensions of the space of a set."""
    rank = space.dim(isl.dim_type.set)
    same = Map.identity(space.map_from_set())
    cut = same.project_out(isl.dim_type.out, rank - count, count)
    return cut.set_tuple_name(isl.dim_type.in_, name).set_tuple_name(isl.dim_type.out, name)


def empty_set() -> UnionSet:
    """Return the empty union set."""
    return isl.UnionSet("{ }")


def empty_map() -> UnionMap:
    """Return the empty union map."""
    return isl.UnionMap("{ }")


def union_of_sets(sets: Iterable[UnionSet]) -> UnionSet:
    """Return the points that lie in at least one of the sets."""
    return reduce(UnionSet.union, sets, empty_set())


def union_of_maps(maps: Iterable[UnionMap]) -> UnionMap:
    """Return the pairs that lie in at least one of the maps."""
    return reduce(UnionMap.union, maps, empty_map())


def closure(steps: UnionMap) -> UnionMap:
    """Return {instance -> every earlier one} from {instance -> the one before}, checked against the definition.

    Steps go back in the schedule, so only one relation satisfies it. Raise `IslError` if isl's result does not.
    """
    result = steps.transitive_closure()[0]
    if not result.is_equal(steps.union(steps.apply_range(result))):
        raise IslError("isl_union_map_transitive_closure is not exact")
    return result


def set_parts(union: UnionSet) -> list[Set]:
    """Return the non-empty sets of a union, one for each space."""
    listed = union.get_set_list()
    parts = [listed.get_at(i) for i in range(listed.n_set())]
    return [part for part in parts if not part.is_empty()]


def map_parts(union: UnionMap) -> list[Map]:
    """Return the non-empty maps of a union, one for each space."""
    listed = union.get_map_list()
    parts = [listed.get_at(i) for i in range(listed.n_map())]
    return [part for part in parts if not part.is_empty()]


def smallest(candidates: Set) -> Point:
    """Return a small point of a non-empty set: each parameter in order is as small as possible, then each coordinate.
    """
    name = candidates.get_tuple_name() or ""
    for position in reversed(range(candidates.dim(isl.dim_type.param))):
        if not candidates.involves_dims(isl.dim_type.param, position, 1):
            candidates = candidates.project_out(isl.dim_type.param, position, 1)
    count = candidates.dim(isl.dim_type.param)
    names = [str(candidates.get_dim_name(isl.dim_type.param, i)) for i in range(count)]
    flat = candidates.reset_tuple_id().move_dims(isl.dim_type.set, 0, isl.dim_type.param, 0, count)
    try:
        point = flat.lexmin().sample_point()
    except isl.Error:  # unbounded below: any point will do
        point = flat.sample_point()
    size = flat.dim(isl.dim_type.set)
    values = [int(point.get_coordinate_val(isl.dim_type.set, i).to_python()) for i in range(size)]
    return Point(dict(zip(names, values[:count], strict=True)), name, tuple(values[count:]))
