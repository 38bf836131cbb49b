"""The door to ISL, and the only use of islpy: sets and relations of integers, their time limits, what ISL lacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread, get_ident
from typing import TypeVar

import islpy as isl

__all__ = [
    "OPERATIONS_PER_SECOND",
    "IslError",
    "Map",
    "Point",
    "Set",
    "UnionMap",
    "UnionSet",
    "empty_map",
    "empty_set",
    "first",
    "isl",
    "map_parts",
    "merged",
    "operation_limit",
    "set_parts",
    "smallest",
]

Map = isl.Map
Set = isl.Set
UnionMap = isl.UnionMap
UnionSet = isl.UnionSet
_Union = TypeVar("_Union", isl.UnionMap, isl.UnionSet)

OPERATIONS_PER_SECOND = 1_000_000
"""What isl counts in a second, its allocations: from 0.2 to 4 million are usual."""
_WATCH_S = 0.1


IslError = isl.Error


def _clock() -> Callable[[], float]:
    """CPU seconds of the calling thread, for any thread to read; of the whole process where no system clock tells."""
    if hasattr(time, "pthread_getcpuclockid"):
        return partial(time.clock_gettime, time.pthread_getcpuclockid(get_ident()))
    return time.process_time


@contextmanager
def operation_limit(seconds: float) -> Iterator[None]:
    """Ends isl's work after that many CPU seconds of this thread, between two of its operations, by `IslError`.

    One operation is bounded by what it allocates, at `OPERATIONS_PER_SECOND`: islpy holds Python's lock throughout, so
    that nobody can stop it, and isl counts nothing else. The count begins anew whenever others get to run.
    """
    context, done = isl.DEFAULT_CONTEXT, Event()
    used = _clock()
    deadline = used() + seconds

    def watch() -> None:
        while not done.wait(_WATCH_S):
            context.reset_operations()
            if used() > deadline:
                context.abort()

    # Short operations allocate the quickest, up to four times as much, and all of them until others run count as one.
    context.set_max_operations(int((max(seconds, 0.0) + 4 * _WATCH_S) * OPERATIONS_PER_SECOND))
    context.reset_operations()
    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        context.resume()
        context.set_max_operations(0)


def first(images: Map) -> Map:
    """{x -> the lexicographically first of images(x)}.

    `lexmin` of a map with existential dimensions that were not simplified has been seen to lose points; what it gives
    is held against its definition: images, one for each x.
    """
    if images.is_single_valued():  # its own answer, and nothing to be checked
        return images
    images = images.remove_redundancies()
    result = images.lexmin().coalesce()
    if not (images.domain().is_subset(result.domain()) and result.is_subset(images)):
        raise IslError("isl_map_lexmin lost points")
    return result


def merged(pieces: _Union) -> _Union:
    """The same in fewer pieces; as it is where isl's `coalesce` stops at a check of its own, as it has been seen to."""
    try:
        return pieces.coalesce()
    except isl.Error as error:
        if "tableau" not in str(error):
            raise
        return pieces


@dataclass(frozen=True, slots=True)
class Point:
    """A sample: parameter values by identifier, the tuple's name, and its coordinates."""

    parameters: dict[str, int]
    name: str
    values: tuple[int, ...]


def empty_set() -> UnionSet:
    """The empty union set."""
    return isl.UnionSet("{ }")


def empty_map() -> UnionMap:
    """The empty union map."""
    return isl.UnionMap("{ }")


def set_parts(union: UnionSet) -> list[Set]:
    """The non-empty sets of a union, one a space."""
    listed = union.get_set_list()
    parts = [listed.get_at(i) for i in range(listed.n_set())]
    return [part for part in parts if not part.is_empty()]


def map_parts(union: UnionMap) -> list[Map]:
    """The non-empty maps of a union, one a space."""
    listed = union.get_map_list()
    parts = [listed.get_at(i) for i in range(listed.n_map())]
    return [part for part in parts if not part.is_empty()]


def smallest(candidates: Set) -> Point:
    """A small point of a non-empty set: parameters in order, each as small as can be, then the coordinates."""
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
