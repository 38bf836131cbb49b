"""Grids of generated kernels, within the limits of the hardware."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from argus.graph.terms import Extent

MOST_BLOCKS = 65535
"""Largest number of blocks along the second and third axis of a grid of two or three axes. Grids of four axes are
counted along the first."""

GridAxis = tuple[str, str, Extent]
"""The name of a program id, and the number of blocks along it as text and as a number."""


def blocks(name: str, size: str, extent: Extent, side: str, width: int) -> GridAxis:
    """Return a grid's axis of tiles of so many elements, which the constant `side` names."""
    return name, f"al.cdiv({size}, {side})", ceil(extent / width) if isinstance(extent, int) else extent


def grid(axes: Sequence[GridAxis], options: str = "") -> str:
    """Return the statement that declares a grid. Where an axis has too many blocks, further axes of one block make the
    grid one of four axes. A grid with `options`, of programs that go from tile to tile, has no such limit."""
    names, texts = [name for name, _, _ in axes], [text for _, text, _ in axes]
    crowded = any(count > MOST_BLOCKS for _, _, count in axes[1:] if isinstance(count, int))
    if crowded and not options and len(axes) in (2, 3):
        names += [f"one{n}" for n in range(4 - len(axes))]
        texts += ["1"] * (4 - len(axes))
    return f"{', '.join(names)} = al.grid({', '.join(texts)}{options})"
