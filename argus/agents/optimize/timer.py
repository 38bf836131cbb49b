"""The process that runs and times candidates. It does not know how they were made, and it judges none of them.

A candidate is built before its seed is known, so that no build can depend on inputs. Inputs are drawn under each hidden
distribution. Outputs are poisoned before every run that is compared, and the device is synchronised before a result is
read. The results are written to files, which another process compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from argus import from_text
from argus.agents.contract import written
from argus.agents.optimize.alone import alone
from argus.agents.optimize.problem import Problem
from argus.agents.optimize.service import Answer, serve
from argus.ir.nodes import Kernel, Scalar, Tensor
from argus.simulate.index_contents import Declared, declared, drawn
from argus.simulate.sizes import shape_of
from argus.tuning.bench import do_bench

DISTRIBUTIONS = (1.0, 3.0, 0.01, -1.0)
"""Factors by which inputs are multiplied. Candidates are not told them."""
_WARMUP_MS, _REP_MS = 10.0, 60.0


class Timer:
    """Builds, times and runs one candidate at a time. The seed of its inputs comes after the build."""

    def __init__(self) -> None:
        self._built: dict[str, Callable[..., None]] = {}

    def handle(self, request: Answer) -> Answer:
        """Answer {"step", "problem", "text", "device"}; "time" and "run" also need "seed", and "run" needs "folder".
        The answer of "run" says "unwritten" if the disk takes no results.

        Inputs are drawn as the author's kernel declares them, so that all candidates get the same.
        """
        problem = Problem(**request["problem"])
        kernel = problem.kernel()
        if request["step"] == "build":
            return self._build(problem, kernel, request)
        with alone(request["device"]):
            return (self._time if request["step"] == "time" else self._run)(problem, kernel, request)

    def _build(self, problem: Problem, kernel: Kernel, request: Answer) -> Answer:
        import torch

        callable_ = from_text(request["text"], problem.path)[problem.name]
        callable_.prepare(*arguments(torch, kernel, problem, request["device"], seed=0, factor=1.0))
        self._built = {request["text"]: callable_}  # Only one candidate is kept, because inputs fill the memory.
        return {"built": True}

    def _run(self, problem: Problem, kernel: Kernel, request: Answer) -> Answer:
        import torch

        call, device = self._built[request["text"]], request["device"]
        outputs = sorted(written(kernel))
        names = [p.name for p in kernel.params]
        for place, factor in enumerate(DISTRIBUTIONS):
            values = arguments(torch, kernel, problem, device, seed=int(request["seed"]) + place, factor=factor)
            named = dict(zip(names, values, strict=True))
            for name in outputs:
                _poison(torch, named[name])
            call(*values)
            _join(torch, device)
            found = {n: named[n].cpu() for n in outputs}
            try:
                torch.save(found, Path(request["folder"]) / f"{place}.pt")
            except (OSError, RuntimeError) as error:  # the disk, and not the candidate, is to blame
                return {"unwritten": str(error).splitlines()[0]}
        return {"ran": True}

    def _time(self, problem: Problem, kernel: Kernel, request: Answer) -> Answer:
        import torch

        call, device = self._built[request["text"]], request["device"]
        values = arguments(torch, kernel, problem, device, seed=int(request["seed"]), factor=1.0)
        us = do_bench(lambda: call(*values), _WARMUP_MS, _REP_MS, device=device) * 1e3
        _join(torch, device)
        return {"us": us}


def arguments(torch: Any, kernel: Kernel, problem: Problem, device: str, seed: int, factor: float) -> list[Any]:
    """Draw the arguments of a call: normally distributed floats times `factor`, and integers as the kernel declares."""
    values = dict(problem.sizes)
    return [_scalar(p, problem) if isinstance(p, Scalar) else
            _tensor(torch, kernel, p, values, device, seed * 64 + place, factor)
            for place, p in enumerate(kernel.params)]  # fmt: skip


def _scalar(parameter: Scalar, problem: Problem) -> int | float:
    known: Mapping[str, int | float] = problem.numbers if parameter.dtype.is_float else problem.sizes
    return known[parameter.name]


def _tensor(
    torch: Any, kernel: Kernel, tensor: Tensor, values: Mapping[str, int], device: str, seed: int, factor: float
) -> Any:
    shape = shape_of(tensor, values)
    dtype = getattr(torch, {"boolean": "bool"}.get(tensor.dtype.name, tensor.dtype.name).replace("tfloat32", "float32"))
    if tensor.dtype.is_float:
        generator = torch.Generator(device=device).manual_seed(seed)
        return (torch.randn(shape, generator=generator, device=device) * factor).to(dtype)
    import numpy as np

    noise = np.random.default_rng(seed)
    found = drawn(declared(kernel, tensor, values) or Declared(0, 2), shape,
                  lambda n: noise.integers(0, 2**62, n).astype(np.uint64), {})  # fmt: skip
    if found is None:
        raise ValueError(f"no contents of `{tensor.name}` are as the kernel requires")
    return torch.from_numpy(found).to(device=device, dtype=dtype)


def _poison(torch: Any, tensor: Any) -> None:
    """Fill an output with a value that no kernel should compute: NaN, or bytes of 0x80."""
    if tensor.is_floating_point() and tensor.element_size() > 1:
        tensor.fill_(float("nan"))
    else:
        tensor.view(torch.uint8).fill_(0x80)


def _join(torch: Any, device: str) -> None:
    """Wait for all streams of the device."""
    if device != "cpu":
        torch.cuda.synchronize()


def main() -> None:
    """Serve until the parent closes the pipe."""
    with suppress(ImportError):
        import torch  # noqa: F401  (takes seconds: before the first request, while others work)
    serve(Timer().handle)
