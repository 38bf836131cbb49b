"""Check coverage: every element of each output is written exactly once."""

from __future__ import annotations

import numpy as np

from argus.ir.nodes import Covers, Spec
from argus.ir.visit import walk
from argus.simulate.machine import Run
from argus.simulate.memory import GlobalTensor
from argus.simulate.outcome import Violation
from argus.simulate.parts import points
from argus.simulate.usage import usage


def check_coverage(run: Run, complete: bool) -> None:
    """Report elements that were written twice and, after all blocks, elements that no thread wrote.

    Outputs are the tensors that have a specification or are stored to. A tensor that is accumulated into, or that is
    read without having a specification, is updated in place and is not checked. A tensor that is read and has a
    specification must be written, but may be written more than once.
    """
    used = usage(run.kernel)
    specified = {s.output for s in walk(run.kernel.body) if isinstance(s, Spec)}
    for covers in run.kernel.covers:
        _check_part(run, covers, complete)
    parts = {c.output for c in run.kernel.covers}
    for name in sorted((used.stored | specified) - (used.read - specified) - used.accumulated - parts):
        tensor = run.tensors[name]
        if tensor.dense and complete:
            _report(run, tensor, tensor.writes == 0, "output-not-covered", "is never written")
        if name not in used.read:
            _report(run, tensor, tensor.writes > 1, "output-written-twice", "is written more than once")


def _check_part(run: Run, covers: Covers, complete: bool) -> None:
    """Check that the declared part of an output is written once, and that nothing else of the output is written."""
    tensor, found = run.tensors[covers.output], points(run, covers)
    if found is None or not tensor.dense:
        return
    meant = np.zeros(len(tensor.contents), dtype=np.bool_)
    meant[tensor.contents.cells(found.index)] = True
    used = usage(run.kernel)
    if complete and covers.output not in used.accumulated:
        _report(run, tensor, meant & (tensor.writes == 0), "output-not-covered", "is never written")
    if covers.output not in used.read | used.accumulated:
        _report(run, tensor, tensor.writes > 1, "output-written-twice", "is written more than once")
    beside = ~meant & (tensor.writes > 0)
    _report(run, tensor, beside, "output-written-outside", "is written, and not covered", "0 writes")


def _report(run: Run, tensor: GlobalTensor, bad: np.ndarray, code: str, what: str, expected: str = "1 write") -> None:
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
            expected=expected,
            count=int(bad.sum()),
        )
    )
