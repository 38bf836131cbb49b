"""The operator that writes float32 channels as TF32 channels, for products that are as exact as those of float32.

    split(x, (HIGH, LOW, HIGH))  =  [high, x - high, high] along the channels    where high is x rounded to TF32

With filters split into (HIGH, HIGH, LOW), a convolution in TF32 adds up high * high + low * high + high * low: what is
missing, low * low, is smaller than the rounding of float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from argus.graph.own import operator
from argus.graph.row import INDEXED, Operand, Row, Site, apply, integer, sub
from argus.graph.terms import Element, Index, Term, cast

HIGH, LOW = 0, 1
_DROPPED, _HALF = 0x1FFF, 0x1000  # of the 23 bits of a float32's fraction TF32 has 10


def split(x: Any, parts: Sequence[int]) -> Any:
    """Apply the operator to float32 [images, channels, places]. `parts`: HIGH or LOW."""
    return operator("split(Tensor x, int[] parts) -> Tensor", _computed, _traced)(x, list(parts))


def _traced(x: Any, parts: list[int]) -> Any:
    return x.new_empty((x.shape[0], x.shape[1] * len(parts), *x.shape[2:]))


def _computed(x: Any, parts: list[int]) -> Any:
    bits = x.contiguous().view(torch.int32)
    rounded = ((bits + _HALF) & ~_DROPPED).view(torch.float32)
    high = torch.where(x.isfinite(), rounded, x)
    return torch.cat([x - high if part == LOW else high for part in parts], 1)


def _meaning(site: Site, x: Operand, parts: Any) -> Element:
    channels = x.shape[1]

    def element(index: Index) -> Term:
        image, channel, *places = index
        value = x.at((image, apply("mod", channel, integer(channels)), *places))
        high = cast(cast(value, "tfloat32"), "float32")
        part, low = apply("floordiv", channel, integer(channels)), sub(value, high)
        found = low if parts[0] == LOW else high
        for n, kind in enumerate(parts[1:], 1):
            found = apply("where", apply("lt", part, integer(n)), found, low if kind == LOW else high)
        return found

    return element


ROWS: dict[str, Row] = {"split.default": Row(INDEXED, _meaning)}
"""By the operator's name without its namespace."""
