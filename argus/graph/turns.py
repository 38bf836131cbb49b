"""The operator that puts phases in turns: what a transposed convolution with strides leaves behind its products.

    in_turns(x, begin, common, first, size)[n, f, o] = x[n, t % S, f, t // S]   with t = (o - first) / common + begin

for one dimension of S phases, where `o - first` is a multiple of `common`; other elements are 0. PyTorch has no such
operator: its pixel shuffle knows images alone, and whole ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from argus.graph.own import operator
from argus.graph.row import INDEXED, Operand, Row, Site, add, apply, integer
from argus.graph.terms import ZERO, Element, Index, Number, Term


def in_turns(x: Any, begin: Sequence[int], common: Sequence[int], first: Sequence[int], size: Sequence[int]) -> Any:
    """Apply the operator to [images, phases of each dimension, filters, places of each dimension]. Phases of the last
    dimension come first (`ordered`): filters of its phases that lie side by side in the result are the same."""
    schema = "in_turns(Tensor x, int[] begin, int[] common, int[] first, int[] size) -> Tensor"
    return operator(schema, _computed, _traced)(x, list(begin), list(common), list(first), list(size))


def ordered(dims: int) -> list[int]:
    """Return the spatial dimensions in the order of their phases: the last one first."""
    return [dims - 1, *range(dims - 1)]


def _traced(x: Any, begin: list[int], common: list[int], first: list[int], size: list[int]) -> Any:
    return x.new_empty((x.shape[0], x.shape[1 + len(size)], *size))


def _computed(x: Any, begin: list[int], common: list[int], first: list[int], size: list[int]) -> Any:
    dims = len(size)
    steps, places = [x.shape[1 + ordered(dims).index(d)] for d in range(dims)], x.shape[2 + dims :]
    found = x.permute(0, 1 + dims, *(e for d in range(dims) for e in (2 + dims + d, 1 + ordered(dims).index(d))))
    found = found.reshape(*found.shape[:2], *(a * b for a, b in zip(steps, places, strict=True)))
    made = x.new_zeros((*found.shape[:2], *size))
    target, source = made, found
    for d, extent in enumerate(size):
        count = -(-(extent - first[d]) // common[d])
        source = source.narrow(2 + d, begin[d], count)
        target = target[(slice(None),) * (2 + d) + (slice(first[d], None, common[d]),)]
    target.copy_(source)
    return made


def _meaning(site: Site, x: Operand, begin: Any, common: Any, first: Any, size: Any) -> Element:
    dims = len(size)

    def element(index: Index) -> Term:
        images, filters, *at = index
        phases: list[Term] = []
        places: list[Term] = []
        inside: Term | None = None
        for d, place in enumerate(at):
            moved = apply("sub", place, integer(first[d])) if first[d] else place
            if common[d] > 1:
                here = apply("eq", apply("mod", moved, integer(common[d])), ZERO)
                inside = here if inside is None else apply("and", inside, here)
                moved = apply("floordiv", moved, integer(common[d]))
            turn = add(moved, integer(begin[d])) if begin[d] else moved
            step = x.shape[1 + ordered(dims).index(d)]
            phases.append(ZERO if step == 1 else apply("mod", turn, integer(step)))
            places.append(turn if step == 1 else apply("floordiv", turn, integer(step)))
            places[-1] = ZERO if x.shape[2 + dims + d] == 1 else places[-1]
        value = x.at((images, *(phases[d] for d in ordered(dims)), filters, *places))
        return value if inside is None else apply("where", inside, value, Number(0.0, x.dtype))

    return element


ROWS: dict[str, Row] = {"in_turns.default": Row(INDEXED, _meaning)}
"""By the operator's name without its namespace."""
