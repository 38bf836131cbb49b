"""Convolutions that store the phases of a transposed convolution in turns: one operator, one kernel.

    y[n, f, o] = sum over c, r of w[(t % S, f), c, r] * x[n, c, t // S + r]   with t = o + begin

for one dimension of S phases. Its tile has phases of filters along one side, and pixels of all phases along the other.
Without this operator, the phases would be written to memory, read, and written in turns. With two phases of the last
dimension (`pairs`), a tile has two accumulators, one for each, and the pixels are its rows: a thread then has both
neighbours of the result, and eight threads store consecutive ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from argus.graph.own import operator
from argus.graph.reductions import Over
from argus.graph.row import WINDOW, Operand, Row, Site, add, apply, integer, mul, real_at
from argus.graph.terms import ZERO, Element, Flat, Index, Reduce, Term, cast, dtype_of
from argus.graph.turns import in_turns, ordered

NAME = "convolution_in_turns.default"


def convolution_in_turns(x: Any, weight: Any, steps: Sequence[int], begin: Sequence[int], size: Sequence[int]) -> Any:
    """Apply the operator. Filters have the dimensions [(phases, filter), channel, taps]. Phases of the last dimension
    come first."""
    schema = "convolution_in_turns(Tensor x, Tensor weight, int[] steps, int[] begin, int[] size) -> Tensor"
    return operator(schema, _computed, _traced)(x, weight, list(steps), list(begin), list(size))


def _traced(x: Any, weight: Any, steps: list[int], begin: list[int], size: list[int]) -> Any:
    return x.new_empty((x.shape[0], weight.shape[0] // prod(steps), *size))


def _computed(x: Any, weight: Any, steps: list[int], begin: list[int], size: list[int]) -> Any:
    ones, none = [1] * len(steps), [0] * len(steps)
    made = torch.ops.aten.convolution.default(x, weight, None, ones, none, ones, False, none, 1)
    apart = made.unflatten(1, (*(steps[d] for d in ordered(len(steps))), -1))
    return in_turns(apart, begin, ones, none, size)


def _meaning(site: Site, x: Operand, weight: Operand, steps: Any, begin: Any, size: Any) -> Element:
    taps = Over(site, weight, range(2, 2 + len(steps)))
    channels = site.over(weight.split(1))

    def element(index: Index) -> Term:
        n, filters, *at = index
        turns = [add(place, integer(begin[d])) if begin[d] else place for d, place in enumerate(at)]
        row: Term = ZERO
        for d in ordered(len(steps)):
            if steps[d] > 1:
                phase = apply("mod", turns[d], integer(steps[d]))
                row = phase if row is ZERO else add(mul(row, integer(steps[d])), phase)
        row = filters if row is ZERO else add(mul(row, integer(weight.shape[0] // prod(steps))), filters)
        places = (apply("floordiv", t, integer(steps[d])) if steps[d] > 1 else t for d, t in enumerate(turns))
        reached = [add(place, taps.bound[2 + d]) for d, place in enumerate(places)]
        bound = tuple(taps.bound[2 + d] for d in range(len(steps)))
        body = mul(real_at(weight, (row, channels, *bound)), real_at(x, (n, channels, *reached)))
        variables = (*channels.digits, *taps.vars) if isinstance(channels, Flat) else taps.vars
        return cast(Reduce("sum", variables, body, dtype_of(body)), site.result.dtype)

    return element


ROWS: dict[str, Row] = {NAME: Row(WINDOW, _meaning)}
"""By the operator's name without its namespace."""
