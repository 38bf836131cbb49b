"""Compare a candidate's results with those of the author's kernel, which another process computed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

TOLERANCE = {"float32": 1e-4, "float16": 2.0**-9, "bfloat16": 2.0**-6}
"""By dtype of the output: relative to |element| + root mean square of all, because sums may be in another order."""
_NARROW = 0.13
_PIECE = 1 << 26
"""Elements that are compared at a time: in float64, all of them may not fit beside a model."""


def differences(candidate: Path, reference: Path, count: int, device: str = "cpu") -> str:
    """Describe the first difference under any of the input distributions; "" if the results agree."""
    import torch

    for place in range(count):
        ours = torch.load(candidate / f"{place}.pt", weights_only=True, map_location=device)
        theirs = torch.load(reference / f"{place}.pt", weights_only=True, map_location=device)
        if sorted(ours) != sorted(theirs):
            return f"distribution {place}: other outputs"
        for name in theirs:
            said = difference(torch, ours[name], theirs[name])
            if said:
                return f"distribution {place}, output `{name}`: {said}"
    return ""


def difference(torch: Any, ours: Any, theirs: Any, tolerance: float | None = None) -> str:
    """Describe how two tensors differ by more than rounding; "" if they agree. NaN agrees only with NaN.

    `tolerance`: another one than that of the dtype.
    """
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{tuple(ours.shape)} of {ours.dtype} for {tuple(theirs.shape)} of {theirs.dtype}"
    if not ours.is_floating_point():
        wrong = (ours != theirs).sum().item()
        return f"{wrong} elements differ" if wrong else ""
    if tolerance is None:
        tolerance = TOLERANCE.get(str(theirs.dtype).removeprefix("torch."), _NARROW)
    pieces = list(zip(ours.flatten().split(_PIECE), theirs.flatten().split(_PIECE), strict=True))
    said = next((said for a, b in pieces if (said := _elsewhere(torch, a, b))), "")
    squares, count = 0.0, 0
    for _, b in pieces:
        finite = b[b.isfinite()].double()
        squares, count = squares + finite.square().sum().item(), count + finite.numel()
    if said or not count:
        return said
    over = max(_over(a, b, tolerance, math.sqrt(squares / count)) for a, b in pieces)
    return f"an element is off by {over:.3g} more than rounding explains" if over > 0 else ""


def _elsewhere(torch: Any, a: Any, b: Any) -> str:
    """Say if infinities and NaN are not in the same places."""
    if not torch.equal(a.isfinite(), b.isfinite()) or not torch.equal(a.isnan(), b.isnan()):
        return "not the same elements are finite"
    infinite = b.isinf()
    return "" if torch.equal(a[infinite], b[infinite]) else "infinities of another sign"


def _over(a: Any, b: Any, tolerance: float, scale: float) -> float:
    """Return by how much an element differs at most beyond its tolerance; 0 if none does."""
    finite = b.isfinite()
    one, other = a[finite].double(), b[finite].double()
    off = (one - other).abs() - tolerance * (other.abs() + scale)
    return max(0.0, off.max().item()) if off.numel() else 0.0
