"""The choice of convolutions and products that are left to PyTorch because its library is faster.

The kernel of each group that begins with a convolution is measured beside PyTorch's operators for the same group, on a
GPU, with random contents. With `options={"prefer": "fast"}`, that of a product is measured, too. PyTorch's operators
are timed one by one, so what they need is an upper bound: the operators after the product may still become one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from argus.graph.capture import Meta
from argus.graph.report import contents
from argus.tuning.bench import do_bench

SLOWER = 1.1
"""A kernel is left if it takes more than so many times as long as PyTorch's operators."""

_WARM, _MEASURED = 1.0, 3.0
"""Milliseconds of calls before a measurement, and of the measurement."""


def why_left(own: Callable[..., Any], other: Callable[..., Any], metas: Sequence[Meta]) -> str:
    """Return the reason why PyTorch's operators `other` should run instead of the kernel `own`, or "" if they need not.
    """
    if not metas or any(m.symbolic or not m.device.startswith("cuda") for m in metas):
        return ""
    with unset_fake_temporarily(), torch.no_grad():
        tensors = [contents(meta) for meta in metas]
        mine, theirs = (_seconds(call, tensors) for call in (own, other))
    if mine <= SLOWER * theirs:
        return ""
    return f"PyTorch is faster here: {theirs * 1e6:.1f} us, and the kernel {mine * 1e6:.1f} us"


def _seconds(call: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> float:
    return do_bench(lambda: call(*tensors), _WARM, _MEASURED) * 1e-3
