"""One problem of KernelBench, in a process of its own: the last line of standard output is its row."""

from __future__ import annotations

import contextlib
import copy
import json
import sys
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import torch

from benchmarks.kernelbench import EMPTY
from benchmarks.measure import batch, in_turns, rotating

TOLERANCE, WORSE = 1e-3, 1.25
SCALES = (1.0, 3.0, 0.01, -1.0)
"""Inputs are drawn by the problem, each time with another seed, and multiplied by these."""


def main() -> int:
    """`python -m benchmarks.kernelbench_problem FILE BATCHES SURVEY`: print the row. 0 batches: only compile."""
    file, batches, survey = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    with contextlib.redirect_stdout(sys.stderr):
        row = EMPTY | (surveyed(file, survey) if survey else measured(file, batches))
    print(json.dumps(row))
    return 0


def problem(file: Path) -> Any:
    """The problem's module."""
    spec = spec_from_file_location("problem", file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def surveyed(file: Path, how: str) -> dict[str, Any]:
    """Return the row of what the backend would run of the problem, found with tensors without contents."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from argus.graph.backend import Backend, Survey

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    backend = Backend(survey=Survey("sm_90a", how == "prove"))
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        module = problem(file)
        model = module.Model(*module.get_init_inputs()).eval()
        call = torch.compile(model, backend=backend, dynamic=False)
        call(*module.get_inputs())
        report = backend.report(call)
    left = [f"{row['kernel']} ({row['share']:.1%}): {row['reason']}" for row in report.rows if row["by"] != "argus"]
    share = sum(row["share"] for row in report.rows if row["by"] == "argus")
    return {"correct": "", "proved_share": share, "note": "; ".join(dict.fromkeys(left))}


def measured(file: Path, batches: int) -> dict[str, Any]:
    """The problem's row: correctness, times, memory."""
    import argus

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch._inductor.config.fallback_random = True  # type: ignore[attr-defined]
    device = torch.device("cuda")
    module = problem(file)
    sides = {}
    with torch.no_grad(), device:
        original = _model(module)
        sides["eager"] = copy.deepcopy(original)
        sides["compile"] = torch.compile(copy.deepcopy(original), dynamic=False)
        sides["argus"] = torch.compile(copy.deepcopy(original), backend="argus", dynamic=False)
        if not batches:
            for call in sides.values():
                call(*_inputs(module, 0, 1.0))
            return {}
        wrong = [text for seed, scale in enumerate(SCALES) if (text := _wrong(module, original, sides, seed, scale))]
        row: dict[str, Any] = {"correct": "no" if wrong else "yes", "note": "; ".join(wrong)}
        peaks = {name: _peak(module, call) for name, call in sides.items()}
        row["peak_memory"] = peaks["argus"] / peaks["eager"]
        sets = rotating(lambda: _inputs(module, 99, 1.0), "cuda")
        runs = {f"{name}_us": (lambda call=call: batch(call, sets) * 1e6) for name, call in sides.items()}
        row |= in_turns(runs, batches)
        row["proved_share"] = argus.compile_report(sides["argus"]).proved_share
    return row


def _model(module: Any) -> Any:
    torch.manual_seed(0)
    return module.Model(*module.get_init_inputs()).eval()


def _inputs(module: Any, seed: int, scale: float) -> list[Any]:
    torch.manual_seed(1000 + seed)
    made = module.get_inputs()
    scaled = (x * scale if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in made)
    return [x.cuda() if isinstance(x, torch.Tensor) else x for x in scaled]


def _wrong(module: Any, original: Any, sides: dict[str, Callable[..., Any]], seed: int, scale: float) -> str:
    """Describe the first error in our results for one drawing of the inputs; "" if there is none."""
    inputs = _inputs(module, seed, scale)
    results = {}
    for name in ("eager", "argus"):
        torch.manual_seed(seed)  # random numbers in the model
        results[name] = list(_tensors(sides[name](*inputs)))
    exact = _exact(original, inputs, seed)
    for place, (eager, ours) in enumerate(zip(results["eager"], results["argus"], strict=True)):
        reference = eager if exact is None else exact[place]
        if ours.dtype != eager.dtype or ours.shape != eager.shape:
            return f"times {scale}: {ours.dtype} {tuple(ours.shape)}"
        if not torch.equal(ours.isnan(), eager.isnan()):
            return f"times {scale}: NaN elsewhere than in eager"
        if not _close(ours, reference):
            own, theirs = _error(ours, reference), _error(eager, reference)
            if _close(eager, reference) or own > WORSE * theirs:
                return f"times {scale}: error {own:.2e}, eager {theirs:.2e}"
    return ""


def _exact(original: Any, inputs: list[Any], seed: int) -> list[Any] | None:
    """The results in float64; None where they do not fit."""
    try:
        torch.manual_seed(seed)
        wide = [x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs]
        return list(_tensors(copy.deepcopy(original).double()(*wide)))
    except (torch.cuda.OutOfMemoryError, RuntimeError):
        torch.cuda.empty_cache()
        return None


def _tensors(result: Any) -> Iterator[Any]:
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, (tuple, list)):
        for part in result:
            yield from _tensors(part)


def _close(found: Any, reference: Any) -> bool:
    return torch.allclose(found.double(), reference.double(), rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)


def _error(found: Any, reference: Any) -> float:
    """The root mean square of the error."""
    return float((found.double() - reference.double()).nan_to_num().square().mean().sqrt())


def _peak(module: Any, call: Callable[..., Any]) -> int:
    """Bytes that a call needs at most, its inputs and parameters included."""
    inputs = _inputs(module, 7, 1.0)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    call(*inputs)
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated())


if __name__ == "__main__":
    raise SystemExit(main())
