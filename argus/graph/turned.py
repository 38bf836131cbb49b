"""Convolutions that store the phases of a transposed convolution in turns: one operator, one kernel.

    y[n, f, o] = sum over c, r of w[(f, t % S), c, r] * x[n, c, t // S + r]   with t = o + begin

for one dimension of S phases. Its tile has phases of filters as rows, and pixels of all phases as columns. Without this
operator, the phases would be written to memory, read, and written in turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from argus.graph.own import operator
from argus.graph.reductions import Over
from argus.graph.row import WINDOW, Operand, Row, Site, add, apply, integer, mul, real_at
from argus.graph.terms import Element, Flat, Index, Reduce, Term, cast, dtype_of
from argus.graph.turns import in_turns

NAME = "convolution_in_turns.default"


def convolution_in_turns(x: Any, weight: Any, steps: Sequence[int], begin: Sequence[int], size: Sequence[int]) -> Any:
    """Apply the operator. Filters have the dimensions [(filter, phases), channel, taps]."""
    schema = "convolution_in_turns(Tensor x, Tensor weight, int[] steps, int[] begin, int[] size) -> Tensor"
    return operator(schema, _computed, _traced)(x, weight, list(steps), list(begin), list(size))


def _traced(x: Any, weight: Any, steps: list[int], begin: list[int], size: list[int]) -> Any:
    return x.new_empty((x.shape[0], weight.shape[0] // prod(steps), *size))


def _computed(x: Any, weight: Any, steps: list[int], begin: list[int], size: list[int]) -> Any:
    ones, none = [1] * len(steps), [0] * len(steps)
    made = torch.ops.aten.convolution.default(x, weight, None, ones, none, ones, False, none, 1)
    return in_turns(made.unflatten(1, (-1, *steps)), begin, ones, none, size)


def _meaning(site: Site, x: Operand, weight: Operand, steps: Any, begin: Any, size: Any) -> Element:
    taps = Over(site, weight, range(2, 2 + len(steps)))
    channels = site.over(weight.split(1))

    def element(index: Index) -> Term:
        n, row, *at = index
        reached: list[Term] = []
        for d, place in enumerate(at):
            turn = add(place, integer(begin[d])) if begin[d] else place
            if steps[d] > 1:
                row = add(mul(row, integer(steps[d])), apply("mod", turn, integer(steps[d])))
                turn = apply("floordiv", turn, integer(steps[d]))
            reached.append(add(turn, taps.bound[2 + d]))
        bound = tuple(taps.bound[2 + d] for d in range(len(steps)))
        body = mul(real_at(weight, (row, channels, *bound)), real_at(x, (n, channels, *reached)))
        variables = (*channels.digits, *taps.vars) if isinstance(channels, Flat) else taps.vars
        return cast(Reduce("sum", variables, body, dtype_of(body)), site.result.dtype)

    return element


ROWS: dict[str, Row] = {NAME: Row(WINDOW, _meaning)}
"""By the operator's name without its namespace."""
