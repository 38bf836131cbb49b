"""Filters of a transposed convolution with strides, cut into those of its phases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from argus.graph.turns import ordered


@dataclass(frozen=True)
class PhaseTaps:
    """The taps of a dimension's phases: `step` phases, taps that lie `gap` apart, the `border`, the least `e` (`low`)
    and the number of taps of a phase."""

    step: int
    gap: int
    border: int
    low: int
    count: int


def in_phases(filters: Any, taps: Sequence[PhaseTaps]) -> Any:
    """Cut the taps of filters [filter, channel, taps] into phases: [(phases, filter), channel, taps of a phase]. Phases
    of the last dimension come first. All dimensions are padded by one kernel, and turned around by another."""
    dims, pad = len(taps), list[int]()
    for d, t in enumerate(taps):
        if t.gap > 1:
            filters = torch.nn.functional.pad(filters.unsqueeze(3 + d), [0, 0] * (dims - d - 1) + [0, t.gap - 1])
            filters = filters.flatten(2 + d, 3 + d)
            filters = filters.narrow(2 + d, 0, filters.shape[2 + d] - t.gap + 1)
    for size, t in zip(reversed(filters.shape[2:]), reversed(taps), strict=True):
        before = (t.low + t.count - 1) * t.step - t.border
        pad += [before, t.count * t.step - before - size]
    apart: Any = torch.nn.functional.pad(filters, pad)
    for d in reversed(range(dims)):
        apart = apart.unflatten(2 + d, (taps[d].count, taps[d].step))
    turned = apart.flip([2 + 2 * d for d in range(dims)])
    order = [*(3 + 2 * d for d in ordered(dims)), 0, 1, *(2 + 2 * d for d in range(dims))]
    return turned.permute(order).flatten(0, dims)
