"""Declared parts of outputs at concrete sizes: their elements, and the variables of each element."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from argus.ir.nodes import Covers
from argus.simulate.launch import scalar
from argus.simulate.machine import Run
from argus.simulate.numeric import Array
from argus.simulate.reference import Reference

_MOST = 1 << 22
"""Largest number of points of a box that are examined."""


@dataclass(frozen=True, slots=True)
class Points:
    """The elements of a part by their row-major numbers, with the values of the part's variables for each."""

    index: Array
    variables: tuple[Array, ...]

    def of(self, index: Array) -> tuple[Array, ...]:
        """Return the variables at some of the elements."""
        order = np.argsort(self.index, kind="stable")
        places = order[np.searchsorted(self.index[order], index)]
        return tuple(a[places] for a in self.variables)


def declared_part(run: Run, output: str) -> Covers | None:
    """Return the part of an output that the kernel declares to write, or None if it writes all of it."""
    return next((c for c in run.kernel.covers if c.output == output), None)


def points(run: Run, covers: Covers) -> Points | None:
    """Return the elements of a part, or None if there are too many to enumerate."""
    box = tuple(max(0, int(scalar(e, run.params))) for e in covers.shape)
    if prod(box) > _MOST:
        return None
    mesh = [a.reshape(-1) for a in np.meshgrid(*(np.arange(n) for n in box), indexing="ij")]
    axes, reference = dict(enumerate(mesh)), Reference(run.tensors, run.params)
    shape = run.tensors[covers.output].shape
    meant = np.ones(prod(box), dtype=np.bool_)
    if covers.where is not None:
        meant = meant & np.asarray(reference.term(covers.where, axes), dtype=np.bool_)
    index = np.zeros(prod(box), dtype=np.int64)
    for place, extent in zip(covers.at, shape, strict=True):
        values = np.broadcast_to(np.asarray(reference.term(place, axes), dtype=np.float64), meant.shape)
        inside = np.isfinite(values) & (values >= 0) & (values < extent)
        meant = meant & inside
        index = index * extent + np.where(inside, values, 0).astype(np.int64)
    return Points(index[meant], tuple(a[meant] for a in mesh))
