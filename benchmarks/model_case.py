"""One model of the benchmark of whole models: what is run of it, whether it is right, and how long it takes.

    python -m benchmarks.model_case JSON

measures one case in a process of its own, as `benchmarks.models` asks for it.
"""

from __future__ import annotations

import copy
import ctypes
import fcntl
import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import nn

from argus.written import write_whole
from benchmarks.measure import Row, batch_by_host, in_turns
from benchmarks.model_zoo import MODELS, Made, Tensors

WORSE = 1.25
"""Results are correct if their error is at most this many times the error of eager."""

MOST_ALONE = 120
"""Seconds for which a case may have the device for itself."""

SIDES: dict[str, dict[str, Any]] = {
    "compile": {},
    "reduced": {"mode": "reduce-overhead"},
    "autotune": {"mode": "max-autotune"},
    "argus": {"backend": "argus"},
    "graphs": {"backend": "argus", "options": {"cudagraphs": True}},
}
"""Arguments of torch.compile for each side. The side "eager" is the model itself."""

_PROFILED = 5
"""Number of steps whose kernels are timed. Each launch counts with its median."""

_NOISE = 1e-12
"""A tensor whose mean square is less than so much of the median is 0 but for rounding."""

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Case:
    """A model to run. `training`: one training step instead of inference; `small`: widths for a test."""

    model: str
    training: bool
    small: bool

    def __str__(self) -> str:
        return f"{self.model}, {'training' if self.training else 'inference'}"

    def made(self) -> Made:
        """Make the model, in evaluation mode so that nothing is random, and its arguments."""
        torch.manual_seed(0)
        model, arguments = MODELS[self.model](self.small)
        return model.eval(), arguments


def surveyed(case: Case, proves: bool) -> Row:
    """Return the row of what the backend would run of a model, found with tensors without contents."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from argus.graph.backend import Backend, Survey

    backend = Backend(survey=Survey("sm_90a", proves))
    model, arguments = case.made()
    model = model.bfloat16()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        call = torch.compile(model, backend=backend, dynamic=False)
        contents: Tensors = {name: mode.from_tensor(t) for name, t in _cast(arguments, torch.bfloat16).items()}
        _step(call, model, contents, case.training)
    report = backend.report(call)
    return {"model": case.model, "training": str(case.training)} | _of_report(report)


def measured(case: Case, sides: Sequence[str], batches: int, workers: int, lock: Path) -> tuple[Row, dict[str, Any]]:
    """Measure a model and return its row, and the kernels that each side launches in a step.

    The sides compile while other cases do; what is compared and timed is alone on the device.
    """
    import argus

    with torch.device("cuda"):
        model, arguments = case.made()
    model, arguments = model.bfloat16(), _cast(arguments, torch.bfloat16)
    models = {name: with_same_weights(model) for name in sides}
    calls = {name: side(models[name], name, workers) for name in sides}
    seconds = {}
    with beside_others(lock):
        for name, call in calls.items():
            start = perf_counter()
            _step(call, models[name], arguments, case.training)
            torch.cuda.synchronize()
            seconds[name] = perf_counter() - start
    with alone(lock):
        exact = _exact(model, arguments, case.training)
        errors = {
            name: _error(_results(call, models[name], arguments, case.training), exact) for name, call in calls.items()
        }
        del exact
        runs = {name: _timed(call, models[name], arguments, case.training) for name, call in calls.items()}
        in_turns(runs, 1)
        times = in_turns(runs, batches)
        steps = {name: _once(call, models[name], arguments, case.training) for name, call in calls.items()}
        memory = {name: _peak(models[name], once) for name, once in steps.items()}
        launched = {name: launches(once) for name, once in steps.items()}
        report = argus.compile_report(calls["argus"])
    return _row(case, times, errors, seconds, memory, report), {"report": report.rows, "launched": launched}


def _row(
    case: Case, times: dict[str, float], errors: dict[str, float], seconds: dict[str, float],
    memory: dict[str, int], report: Any,
) -> Row:  # fmt: skip
    right = all(errors[name] <= WORSE * errors["eager"] for name in errors if name in ("argus", "graphs"))
    best = "graphs" if "graphs" in times else "argus"
    return (
        {"model": case.model, "training": str(case.training), "correct": "yes" if right else "no"}
        | {f"{name}_us": time * 1e6 for name, time in times.items()}
        | {f"over {name}": times[name] / times["argus"] for name in ("eager", "compile") if name in times}
        | {f"over {name}": times[name] / times[best] for name in ("reduced", "autotune") if name in times}
        | {"error over eager's": errors["argus"] / max(errors["eager"], 1e-30)}
        | {f"{name} error": error for name, error in errors.items()}
        | {f"{name} peak, MiB": size / 2**20 for name, size in memory.items()}
        | {f"{name} compiled, s": time for name, time in seconds.items() if name != "eager"}
        | _of_report(report)
    )


def _peak(model: nn.Module, once: Callable[[], None]) -> int:
    """Return the bytes that a step needs beside what is there before it, with its gradients. What a recorded graph
    keeps between two steps is there before."""
    model.zero_grad(set_to_none=True)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    once()
    return int(torch.cuda.max_memory_allocated() - before)


def with_same_weights(model: nn.Module) -> nn.Module:
    """Return a copy of a model that shares its parameters and buffers: a copy for each side would not fit."""
    return copy.deepcopy(model, {id(t): t for t in (*model.parameters(), *model.buffers())})


def side(model: nn.Module, name: str, workers: int) -> Any:
    """Return the model as one of `SIDES` compiles it, or the model itself for "eager"."""
    if name == "eager":
        return model
    given = dict(SIDES[name])
    if given.get("backend") == "argus":
        given["options"] = {"workers": workers} | given.get("options", {})
    return torch.compile(model, dynamic=False, **given)


def launches(once: Callable[[], None]) -> dict[str, Any]:
    """Return the device's microseconds and the number of launches of each kernel in a step, and the microseconds in
    which the host issues the step."""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    start = perf_counter()
    once()
    issued = perf_counter() - start
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(_PROFILED):
            once()
            torch.cuda.synchronize()
    events = sorted(
        (e for e in found.events() if e.self_device_time_total > 0), key=lambda e: float(e.time_range.start)
    )
    count, rest = divmod(len(events), _PROFILED)
    steps = _PROFILED if rest else 1  # Steps that differ in their launches are averaged.
    launched = [[e] for e in events] if rest else [events[place::count] for place in range(count)]
    kernels: dict[str, list[float]] = {}
    for same in launched:
        times = kernels.setdefault(same[0].name, [])
        times.append(median(float(e.self_device_time_total) for e in same) / steps)
    told = sorted(((name, sum(t), len(t) / steps) for name, t in kernels.items()), key=lambda kernel: -kernel[1])
    return {"issued_us": issued * 1e6, "device_us": sum(time for _, time, _ in told), "kernels": told}


@contextmanager
def beside_others(lock: Path) -> Iterator[None]:
    """Use the device beside other cases that compile, when no case has it for itself or waits for that."""
    with _locked(lock.with_suffix(".turn"), fcntl.LOCK_EX):
        file = lock.open("w")
        fcntl.flock(file, fcntl.LOCK_SH)
    with file:
        yield


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Have the device for oneself. A process that dies gives it back, and one that has it for too long is ended by the
    alarm."""
    with _locked(lock.with_suffix(".turn"), fcntl.LOCK_EX), _locked(lock, fcntl.LOCK_EX):
        signal.alarm(MOST_ALONE)
        yield
        signal.alarm(0)


@contextmanager
def _locked(file: Path, how: int) -> Iterator[None]:
    with file.open("w") as opened:
        fcntl.flock(opened, how)
        yield


def _of_report(report: Any) -> Row:
    left: dict[str, float] = {}
    for row in report.rows:
        if row["by"] != "argus":
            left[str(row["reason"])] = left.get(str(row["reason"]), 0.0) + row["share"]
    worst = sorted(left, key=lambda reason: -left[reason])[:4]
    own = [row for row in report.rows if row["by"] == "argus"]
    proved = sum(row["share"] for row in own if row["verdict"] == "proved")
    taken = sum(row["share"] for row in own)
    why = "; ".join(f"{left[reason]:.1%} {reason[:90]}" for reason in worst)
    return {"kernels": len(own), "taken": float(taken), "proved": float(proved), "left": why}


def _step(call: Any, model: nn.Module, arguments: Tensors, training: bool) -> list[torch.Tensor]:
    """Return the float tensors of a call's result or, in training, the gradients of all parameters after one step."""
    if not training:
        with torch.no_grad():
            return _tensors(call(**arguments))
    model.zero_grad(set_to_none=True)
    results = _tensors(call(**arguments))
    torch.stack([result.float().square().mean() for result in results]).sum().backward()  # type: ignore[no-untyped-call]
    return [p.grad for p in model.parameters() if p.grad is not None]


def _exact(model: nn.Module, arguments: Tensors, training: bool) -> list[torch.Tensor]:
    """Return the results in float64 of the weights and inputs as rounded: rounding them is nobody's error.

    Models with operators that PyTorch lacks in float64 are computed in float32."""
    for dtype in (torch.float64, torch.float32):
        wide = copy.deepcopy(model).to(dtype)
        try:
            return _results(wide, wide, _cast(arguments, dtype), training)
        except RuntimeError:
            if dtype is torch.float32:
                raise
    raise AssertionError("a dtype is tried last")


def _results(call: Any, model: nn.Module, arguments: Tensors, training: bool) -> list[torch.Tensor]:
    return [t.detach().to(torch.float64).clone() for t in _step(call, model, arguments, training)]


def _tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result] if result.is_floating_point() else []
    values = result.values() if isinstance(result, Mapping) else result if isinstance(result, (tuple, list)) else ()
    return [t for value in values for t in _tensors(value)]


def _once(call: Any, model: nn.Module, arguments: Tensors, training: bool) -> Callable[[], None]:
    def once() -> None:  # results are not kept: gradients of several steps may not fit
        _step(call, model, arguments, training)

    return once


def _timed(call: Any, model: nn.Module, arguments: Tensors, training: bool) -> Callable[[], float]:
    time = batch_by_host(lambda _: torch.cuda.synchronize())
    once = _once(call, model, arguments, training)
    return lambda: time(once, [()])


def _error(found: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> float:
    """Return the root of the mean over tensors of the squared error, each relative to the exact tensor.

    Tensors that are 0 but for the rounding of the exact results do not count: what is relative to them is noise. The
    gradient of a bias of keys is one, because softmax ignores what it adds to all scores."""
    if [t.shape for t in found] != [t.shape for t in exact]:
        return float("inf")
    sizes = [float(right.square().mean()) for right in exact]
    least = _NOISE * median(sizes)
    squares = [
        float((own - right).square().mean()) / max(size, 1e-30)
        for own, right, size in zip(found, exact, sizes, strict=True)
        if size >= least
    ]
    return float((sum(squares) / len(squares)) ** 0.5)


def _cast(arguments: Tensors, dtype: torch.dtype) -> Tensors:
    return {name: t.to(dtype) if t.is_floating_point() else t for name, t in arguments.items()}


def main(text: str) -> None:
    """Measure the case that a JSON text describes, and write its row, and beside it its kernels."""
    asked = json.loads(text)
    if sys.platform == "linux":  # a run that is stopped leaves no process behind
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    torch.set_num_threads(asked["workers"])
    case, file = Case(asked["model"], asked["training"], asked["small"]), Path(asked["row"])
    row, kernels = measured(case, asked["sides"], asked["batches"], asked["workers"], Path(asked["lock"]))
    write_whole(file.with_suffix(".kernels.json"), json.dumps(kernels).encode())
    write_whole(file, json.dumps(row).encode())


if __name__ == "__main__":
    main(sys.argv[1])
