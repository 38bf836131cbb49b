"""The kind of equality that a verdict on values proves.

Matching ignores casts that round, and may regroup and reorder sums. So for floats it proves equality over the real
numbers. For integers it proves exact equality.
"""

from __future__ import annotations

from argus.ir.nodes import Kernel, Spec
from argus.ir.spec_terms import of_floats
from argus.ir.visit import walk

EXACT, REAL = "exact", "over the reals"


def equalities(kernel: Kernel) -> dict[str, str]:
    """Map each specified output to `EXACT` if no float takes part, else to `REAL`."""
    specs = (stmt for stmt in walk(kernel.body) if isinstance(stmt, Spec))
    return {
        spec.output: REAL if kernel.object(spec.output).dtype.is_float or of_floats(spec.value) else EXACT
        for spec in specs
    }
