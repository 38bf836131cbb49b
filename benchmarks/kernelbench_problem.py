"""One problem of KernelBench, in a process of its own, which writes the problem's row to a file."""

from __future__ import annotations

import copy
import ctypes
import fcntl
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch._dynamo
import torch._inductor.compile_fx
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode, unset_fake_temporarily

import argus
from argus.graph.backend import Backend, Survey
from argus.graph.report import Report
from argus.runtime.device import target_of
from argus.written import write_whole
from benchmarks.kernelbench import EMPTY, Task
from benchmarks.measure import batch, in_turns, rotating

TOLERANCE, WORSE = 1e-3, 1.25
SCALES = (1.0, 3.0, 0.01, -1.0)
"""Inputs are drawn by the problem, each time with another seed, and multiplied by these."""

MOST_ALONE = 150
"""Seconds for which a problem may have the device for itself: a kernel that hangs must not stop the others."""
LARGE = 2**30
"""Bytes of inputs from which on a problem compiles without them until it has the device for itself."""
TIMED, LEAST_BATCHES, SHORT = 2.0, 3, 4
"""Seconds of a problem's measurements; batches of each side that are measured in any case; how many times as many
batches as planned fast problems have: others compile on the device, which disturbs some batches."""
_PIECE = 2**26  # elements that are compared at a time
_PR_SET_PDEATHSIG = 1


def run_task(task: Task) -> None:
    """Write the task's row. Whatever fails is told in the task's log."""
    with task.log.open("w", encoding="utf-8") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    if sys.platform == "linux":  # a run that is stopped leaves no process behind
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = str(task.device) if seen is None else seen.split(",")[task.device]
    torch.set_num_threads(task.workers)
    row = EMPTY | (surveyed(task.file, task.survey, task.workers) if task.survey else measured(task))
    write_whole(task.row, json.dumps(row).encode())


def problem(file: Path) -> Any:
    """The problem's module."""
    spec = spec_from_file_location("problem", file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def surveyed(file: Path, how: str, workers: int) -> dict[str, Any]:
    """Return the row of what the backend would run of the problem, found with tensors without contents."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    report = traced(problem(file), Survey("sm_90a", how == "prove"), workers)
    left = [f"{row['kernel']} ({row['share']:.1%}): {row['reason']}" for row in report.rows if row["by"] != "argus"]
    share = sum(row["share"] for row in report.rows if row["by"] == "argus")
    return {"correct": "", "proved_share": share, "note": "; ".join(dict.fromkeys(left))}


def traced(module: Any, survey: Survey, workers: int) -> Report:
    """Compile a problem with tensors without contents, and return the report."""
    backend = Backend(survey=survey)
    traced_too = torch._dynamo.config.patch(allow_rnn=True)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad(), traced_too:
        try:
            model = module.Model(*module.get_init_inputs()).eval()
        except DataDependentOutputException:  # the model reads a number from a tensor while it is made
            with unset_fake_temporarily():
                model = module.Model(*module.get_init_inputs()).eval()
        call: Callable[..., Any] = torch.compile(model, backend=backend, dynamic=False, options={"workers": workers})
        call(*module.get_inputs())
        return backend.report(call)


def measured(task: Task) -> dict[str, Any]:
    """The problem's row: correctness, times, memory."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch._inductor.config.fallback_random = True
    device = torch.device("cuda")
    module = problem(task.file)
    with torch.no_grad(), device:
        original = _model(module)
        sides = {name: _side(_model(problem(task.file)), name, task.workers) for name in task.sides}
        _compile_beside_others(module, sides, task.workers)
        torch.cuda.empty_cache()
        with alone(task.lock):
            _compile(module, sides)
            row = _checked(module, original, sides) if task.part != "time" else {"correct": ""}
            return row | (_timed(module, sides, task.batches) if task.part != "check" else {})


def _compile_beside_others(module: Any, sides: dict[str, Callable[..., Any]], workers: int) -> None:
    """Compile while another problem is timed. With large inputs only proofs and builds are made, for the cache, with
    tensors without contents: several such problems would not fit beside one another."""
    if _size(module) < LARGE:
        with suppress(torch.cuda.OutOfMemoryError):  # there may be enough without the others
            _compile(module, sides)
    else:
        with suppress(Exception):  # whatever cannot be traced without contents is compiled later
            traced(module, Survey(target_of("cuda:0")), workers)
        torch._dynamo.reset()


def _size(module: Any) -> int:
    """Bytes of the inputs; 0 if they cannot be made without contents."""
    with FakeTensorMode(), suppress(Exception):
        return sum(x.nbytes for x in module.get_inputs() if isinstance(x, torch.Tensor))
    return 0


def _compile(module: Any, sides: dict[str, Callable[..., Any]]) -> None:
    """Call each side once."""
    for name, call in sides.items():
        with torch._dynamo.config.patch(allow_rnn=name == "argus"):  # Inductor would unroll all steps
            call(*_inputs(module, 0, 1.0))
        torch.cuda.empty_cache()


def _side(model: Callable[..., Any], name: str, workers: int) -> Callable[..., Any]:
    """Return a side's call. Each side has code of its own: PyTorch marks a function that one backend cannot trace, and
    then traces it for no backend."""
    if name == "eager":
        return model
    more: dict[str, Any] = {"backend": "argus", "options": {"workers": workers}} if name == "argus" else {}
    return torch.compile(model, dynamic=False, **more)


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Have the device for oneself, beside processes that only compile. A process that dies gives it back, and one that
    has it for too long is ended by the alarm."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        signal.alarm(MOST_ALONE)
        yield
        signal.alarm(0)


def _checked(module: Any, original: Any, sides: dict[str, Callable[..., Any]]) -> dict[str, Any]:
    """Return whether the results are correct, and what was proved and allocated."""
    wrong = [text for seed, scale in enumerate(SCALES) if (text := _wrong(module, original, sides, seed, scale))]
    report = _report(sides["argus"])
    peaks = {name: _peak(module, call) for name, call in sides.items()}
    return {
        "correct": "no" if wrong else "yes",
        "note": "; ".join([*wrong, *_slowest(report)]),
        "peak_memory": peaks["argus"] / peaks["eager"],
        "proved_share": report.proved_share,
    }


def _timed(module: Any, sides: dict[str, Callable[..., Any]], batches: int) -> dict[str, float]:
    """Return the time of each side."""
    sets = rotating(lambda: _inputs(module, 99, 1.0), "cuda")
    runs = {f"{name}_us": (lambda call=call: batch(call, sets) * 1e6) for name, call in sides.items()}
    start = perf_counter()
    in_turns(runs, 1)
    turn = perf_counter() - start
    return in_turns(runs, max(LEAST_BATCHES, min(SHORT * batches, int(TIMED / turn))))


def _report(call: Callable[..., Any]) -> Report:
    """Return the report on a compiled model; an empty one if PyTorch traced nothing of it."""
    try:
        return argus.compile_report(call)
    except ValueError:
        return Report((), False)


def _slowest(report: Any) -> list[str]:
    """Tell of the kernels and operators that take the most time, and why some are left."""
    if not report.rows:
        return ["left: PyTorch traced none of its operators"]
    rows = sorted(report.rows, key=lambda row: -float(row["share"]))[:4]
    told = [f" {'refused' if r['by'] == 'argus' else 'left'}: {r['reason']}" if r["reason"] else "" for r in rows]
    return [f"{r['kernel']} {r['share']:.0%}{why}" for r, why in zip(rows, told, strict=True)]


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
    return all(
        torch.allclose(a.double(), b.double(), rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
        for a, b in _pieces(found, reference)
    )


def _error(found: Any, reference: Any) -> float:
    """The root mean square of the error."""
    total = sum(float((a.double() - b.double()).nan_to_num().square().sum()) for a, b in _pieces(found, reference))
    return float((total / max(found.numel(), 1)) ** 0.5)


def _pieces(found: Any, reference: Any) -> Iterator[tuple[Any, Any]]:
    """Parts of two tensors, small enough that their differences in float64 fit beside the tensors."""
    yield from zip(found.flatten().split(_PIECE), reference.flatten().split(_PIECE), strict=True)


def _peak(module: Any, call: Callable[..., Any]) -> int:
    """Bytes that a call needs at most, its inputs and parameters included."""
    inputs = _inputs(module, 7, 1.0)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    call(*inputs)
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated())
