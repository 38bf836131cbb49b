"""The launch grid of a call: the one that the kernel declares, or the one that the call gives."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from math import prod

from argus.backend.launch.arguments import problem
from argus.backend.launch.evaluate import Number, evaluate, show
from argus.backend.launch.signature import Signature
from argus.diagnostic import LaunchError
from argus.ir.types import HARDWARE_AXES, MAX_EXTENT
from argus.source import NO_SPAN

_GRID_LIMITS = (2**31 - 1, 65535, 65535)  # CUDA C++ programming guide, "Technical Specifications per CC"


def _check_programs(grid: tuple[int, ...]) -> None:
    """Raise LaunchError "grid-too-large" if a persistent or flat kernel has more than `MAX_EXTENT` programs."""
    if min(grid) < 0 or prod(grid) > MAX_EXTENT:
        raise LaunchError(
            problem(
                "grid-too-large",
                f"the grid {grid} has {prod(grid)} programs; the most that one axis of the hardware counts is "
                f"{MAX_EXTENT}",
                NO_SPAN,
                "use larger tiles",
            )
        )


def launch_grid(
    signature: Signature, values: Mapping[str, Number], given: Sequence[int] | None
) -> tuple[int, int, int]:
    """Return the three extents of the grid for sizes, strides and scalars by name.

    Raises LaunchError if neither the kernel nor the call gives a grid, if the grid is too large, or if the call's grid
    differs from the declared one.
    """
    most = HARDWARE_AXES if signature.grid is None else max(HARDWARE_AXES, len(signature.grid))
    if given is not None and (not 1 <= len(given) <= most or any(not _is_count(extent) for extent in given)):
        raise LaunchError(
            problem(
                "grid-mismatch",
                f"the grid {tuple(given)!r} is not one to {most} non-negative integers",
                NO_SPAN,
                "write kernel[(blocks_x, blocks_y)](...)",
            )
        )
    if signature.grid is None and given is None:
        raise LaunchError(
            problem(
                "grid-missing",
                f"kernel `{signature.name}` declares no grid, and the call gives none",
                NO_SPAN,
                "write kernel[grid](...), or declare it in the kernel with al.grid(...)",
            )
        )
    declared = None if signature.grid is None else tuple(int(evaluate(e, values)) for e in signature.grid)
    if declared is not None and given is not None and not _agree(given, declared, signature.flat):
        text = ", ".join(show(e) for e in signature.grid or ())
        raise LaunchError(
            problem(
                "grid-mismatch",
                f"the call's grid is {tuple(given)}; the kernel declares ({text}), which is {declared} here",
                NO_SPAN,
                "leave the grid out: kernel(...)",
            )
        )
    if declared is not None and (signature.persistent or signature.flat):
        _check_programs(declared)
        return prod(declared), 1, 1
    chosen = _three(declared if declared is not None else given or ())
    for axis, (extent, limit) in enumerate(zip(chosen, _GRID_LIMITS, strict=True)):
        if extent > limit or extent < 0:
            raise LaunchError(
                problem(
                    "grid-too-large",
                    f"axis {axis} of the grid has {extent} blocks; the most is {limit}",
                    NO_SPAN,
                    "use larger tiles, or put the longest axis first",
                )
            )
    return chosen


def _agree(given: Sequence[int], declared: Sequence[int], flat: bool) -> bool:
    """Return True if a call's grid is the declared one. For a flat kernel it may give adjacent axes as a product."""
    if not flat:
        return _three(given) == _three(declared)
    if 0 in declared:
        return 0 in given
    rest = list(declared)
    for extent in given:
        axes = 1
        while axes != extent and rest:
            axes *= rest.pop(0)
        if axes != extent:
            return False
    return all(extent == 1 for extent in rest)


def _is_count(extent: object) -> bool:
    try:
        return operator.index(extent) >= 0  # type: ignore[arg-type]
    except TypeError:
        return False


def _three(grid: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*grid, 1, 1, 1)[:3]
    return x, y, z
