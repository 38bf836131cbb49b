"""Compare a candidate's results with those of the author's kernel, which another process computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TOLERANCE = {"float32": 1e-4, "float16": 2.0**-9, "bfloat16": 2.0**-6}
"""By dtype of the output: relative to |element| + root mean square of all, because sums may be in another order."""
_NARROW = 0.13


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
    a, b = ours.double(), theirs.double()
    if not torch.equal(a.isfinite(), b.isfinite()) or not torch.equal(a.isnan(), b.isnan()):
        return "not the same elements are finite"
    finite = b.isfinite()
    if not torch.equal(a[~finite & ~b.isnan()], b[~finite & ~b.isnan()]):
        return "infinities of another sign"
    a, b = a[finite], b[finite]
    if not b.numel():
        return ""
    scale = b.square().mean().sqrt()
    over = ((a - b).abs() - tolerance * (b.abs() + scale)).max().item()
    return f"an element is off by {over:.3g} more than rounding explains" if over > 0 else ""
