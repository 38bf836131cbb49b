"""Names for the dimensions of tensors: dimensions that a specification indexes by one variable share a name.

So the depth of a product has the same name in both operands, and rows and columns have different ones. What a variable
of a specification does not tell, equal extents of different tensors do.
"""

from __future__ import annotations

from collections.abc import Iterator

from argus.ir.expr import Coord, Elem, Param, walk
from argus.ir.nodes import Copy, Kernel, Spec, SpecReduce, SpecSoftmax, SpecTerm, Stage, Tensor
from argus.ir.tags import SpecOp
from argus.ir.visit import walk as statements

Place = tuple[str, int]
"""A tensor and a dimension of it; or the number of a specification, as text, and one of its variables."""


class _Classes:
    """Disjoint sets of places, any two of which can be joined."""

    def __init__(self) -> None:
        self._of: dict[Place, set[Place]] = {}

    def of(self, place: Place) -> set[Place]:
        return self._of.setdefault(place, {place})

    def join(self, one: Place, other: Place) -> None:
        """Make one set of two, unless two dimensions of one tensor would be told apart no more."""
        left, right = self.of(one), self.of(other)
        both = left | right
        tensors = [place[0] for place in both if not place[0].isdecimal()]
        if left is not right and len(set(tensors)) == len(tensors):
            for place in both:
                self._of[place] = both


def names_of(kernel: Kernel) -> dict[str, tuple[str, ...]]:
    """Return a name for each dimension of each tensor that a kernel reads."""
    read = {s.src.obj for s in statements(kernel.body) if isinstance(s, Copy | Stage)}
    tensors = [t for t in kernel.tensors if t.name in read]
    classes = _Classes()
    specs = [s for s in statements(kernel.body) if isinstance(s, Spec)]
    for number, spec in enumerate(specs):
        for one, other in _joined(spec.value, str(number)):
            classes.join(one, other)
    if not specs:
        _by_extents(tensors, classes)
    return _named(tensors, classes)


def _joined(term: SpecTerm, spec: str) -> Iterator[tuple[Place, Place]]:
    """Yield pairs of places that have the same name: a dimension and the variable that indexes it."""
    match term:
        case SpecReduce(body=body):
            yield from _joined(body, spec)
        case SpecSoftmax(axis=axis, at=at, score=score):
            if isinstance(at, Coord):
                yield (spec, axis), (spec, at.axis)
            yield from _joined(score, spec)
        case SpecOp(args=args):
            for arg in args:
                yield from _joined(arg, spec)
        case _:
            for elem in (e for e in walk(term) if isinstance(e, Elem)):
                for dim, index in enumerate(elem.index):
                    if isinstance(index, Coord):
                        yield (elem.obj, dim), (spec, index.axis)


def _by_extents(tensors: list[Tensor], classes: _Classes) -> None:
    for number, one in enumerate(tensors):
        for other in tensors[:number]:
            for i, extent in enumerate(one.shape):
                for j, same in enumerate(other.shape):
                    if extent == same and isinstance(extent, Param):
                        classes.join((one.name, i), (other.name, j))


def _named(tensors: list[Tensor], classes: _Classes) -> dict[str, tuple[str, ...]]:
    """Give each class the name of its first extent, in small letters, with a number if that is taken."""
    given: dict[int, str] = {}
    taken: set[str] = set()
    found: dict[str, tuple[str, ...]] = {}
    for tensor in tensors:
        names = []
        for dim, extent in enumerate(tensor.shape):
            key = id(classes.of((tensor.name, dim)))
            if key not in given:
                wanted = extent.name.lower() if isinstance(extent, Param) else "d"
                given[key] = _free(wanted if wanted.isidentifier() else "d", taken)
            names.append(given[key])
        found[tensor.name] = tuple(names)
    return found


def _free(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}{number}", number + 1
    taken.add(name)
    return name
