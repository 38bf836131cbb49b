"""Coverage: after all blocks, every element of each stored tensor was written exactly once."""

from __future__ import annotations

import numpy as np

from argus.simulate.machine import Run
from argus.simulate.memory import GlobalTensor
from argus.simulate.outcome import Violation
from argus.simulate.usage import usage


def check_coverage(run: Run) -> None:
    """Report elements that no thread wrote, or that were written twice."""
    for name in sorted(usage(run.kernel).stored):
        tensor = run.tensors[name]
        if tensor.dense:
            _report(run, tensor, tensor.writes == 0, "never-written", "is never written")
            _report(run, tensor, tensor.writes > 1, "written-twice", "is written more than once")


def _report(run: Run, tensor: GlobalTensor, bad: np.ndarray, code: str, what: str) -> None:
    if not bad.any():
        return
    cell = int(np.argmax(bad))
    run.log.add(
        Violation(
            "coverage",
            code,
            f"an element of {tensor.name} {what}",
            None,
            (),
            object=tensor.name,
            logical=tensor.logical(cell),
            physical=tensor.physical(cell),
            arrived=f"{int(tensor.writes[cell])} writes",
            expected="1 write",
            count=int(bad.sum()),
        )
    )
