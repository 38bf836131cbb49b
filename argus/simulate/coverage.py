"""Coverage: every element of each output is written exactly once."""

from __future__ import annotations

import numpy as np

from argus.ir.nodes import Spec
from argus.ir.visit import walk
from argus.simulate.machine import Run
from argus.simulate.memory import GlobalTensor
from argus.simulate.outcome import Violation
from argus.simulate.usage import usage


def check_coverage(run: Run, complete: bool) -> None:
    """Report elements that were written twice and, after all blocks, those that no thread wrote.

    Outputs are the tensors that have a specification or are stored to: what is also read or accumulated into is updated
    in place, and has no once. What is read and has a specification is still written.
    """
    used = usage(run.kernel)
    specified = {s.output for s in walk(run.kernel.body) if isinstance(s, Spec)}
    for name in sorted((used.stored | specified) - (used.read - specified) - used.accumulated):
        tensor = run.tensors[name]
        if tensor.dense and complete:
            _report(run, tensor, tensor.writes == 0, "output-not-covered", "is never written")
        if name not in used.read:
            _report(run, tensor, tensor.writes > 1, "output-written-twice", "is written more than once")


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
