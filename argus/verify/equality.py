"""The equality that a verdict on values is about.

Matching leaves out casts that round, and groups and orders sums as it likes: of floats it says what is computed from
which elements over the real numbers. Integers are equal as they are.
"""

from __future__ import annotations

from argus.ir.nodes import Kernel, Spec
from argus.ir.spec_terms import of_floats
from argus.ir.visit import walk

EXACT, REAL = "exact", "over the reals"


def equalities(kernel: Kernel) -> dict[str, str]:
    """By specified output: `EXACT` where no float takes part, else `REAL`."""
    specs = (stmt for stmt in walk(kernel.body) if isinstance(stmt, Spec))
    return {
        spec.output: REAL if kernel.object(spec.output).dtype.is_float or of_floats(spec.value) else EXACT
        for spec in specs
    }
