"""The outputs whose elements in specifications stand for what the kernel stores."""

from __future__ import annotations

from argus.ir.access import Mode, relations
from argus.ir.nodes import Copy, Kernel, Spec
from argus.ir.spec_terms import elements_of
from argus.ir.visit import walk


def own_results(kernel: Kernel) -> frozenset[str]:
    """Return the float outputs that specifications name, and that the kernel stores, specifies and never reads.

    Specifications that name other tensors speak of their contents at launch.
    """
    specs = [s for s in walk(kernel.body) if isinstance(s, Spec)]
    named = {e.obj for s in specs for e in elements_of(s.value)}
    found = {s.output for s in specs if s.output in named and kernel.object(s.output).dtype.is_float}
    found -= {c.output for c in kernel.covers}
    if not found:
        return frozenset()
    for stmt in walk(kernel.body):
        found -= {a.obj for a in relations(stmt) if a.mode is not Mode.WRITE or not isinstance(stmt, Copy)}
    return frozenset(found)


def names_results(kernel: Kernel, spec: Spec) -> bool:
    """Return True if a specification of the kernel names such an output."""
    return not own_results(kernel).isdisjoint(e.obj for e in elements_of(spec.value))
