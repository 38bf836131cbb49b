"""The process that runs the author's PyTorch file: it compiles, compares and times the model, and judges nothing.

The file has the form of KernelBench's files: `Model`, `get_inputs` and `get_init_inputs`. Inputs of a comparison are
drawn anew each time, and multiplied by factors that no kernel is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from argus import compile
from argus.agents.optimize.alone import alone
from argus.agents.optimize.compare import difference
from argus.agents.optimize.service import Answer, serve
from argus.agents.stitch.tuned import Choice, generator, key_of
from argus.diagnostic import ArgusError
from argus.frontend import Options
from argus.ir.expr import Param
from argus.source import SourceFile

SCALES = (1.0, 3.0, 0.01, -1.0)
TOLERANCE = 1e-2
"""Tolerance relative to the magnitude of an element and of all, for float32 models on a GPU, whose products round
operands to 19 bits."""
_WARMUP_MS, _REP_MS = 20.0, 100.0


class Reference:
    """The author's model, once as PyTorch runs it and once compiled."""

    def __init__(self) -> None:
        self._model: Any = None
        self._module: Any = None
        self._device = "cpu"

    def handle(self, request: Answer) -> Answer:
        """Answer {"load": path, "device"}, or {"choices", "seed", "options"}, with times in microseconds.

        {"survey": path, "target", "choices"} proves and builds the kernels of a model that runs nowhere.
        """
        import torch

        with torch.no_grad():
            if "survey" in request:
                return self._surveyed(torch, request)
            if "load" in request:
                return self._load(torch, Path(request["load"]), request["device"])
            return self._compiled(torch, request)

    def _load(self, torch: Any, path: Path, device: str) -> Answer:
        self._module, self._device = _module(path), device
        make = self._module.Model
        self._model = self._drawn(torch, 0, lambda: make(*self._module.get_init_inputs())).eval().to(device)
        with _turn(torch, device):
            inputs = self._inputs(torch, 0)
            return {"us": self._us(lambda: self._model(*inputs))}

    def _surveyed(self, torch: Any, request: Answer) -> Answer:
        """Return the kernels of a model of tensors without contents. They are proved and built, for the cache."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        from argus.graph.backend import Survey

        module, target, noted = _module(Path(request["survey"])), request["target"], dict[str, Answer]()
        backend = self._backend(noted, request["choices"], target, Survey(target))
        torch._dynamo.reset()
        with FakeTensorMode(allow_non_fake_inputs=True):
            model = module.Model(*module.get_init_inputs()).eval()
            torch.compile(model, backend=backend, dynamic=False)(*module.get_inputs())
        return {"items": list(noted.values())}

    def _backend(self, noted: dict[str, Answer], choices: Answer, target: str, survey: Any = None) -> Any:
        """Return the compiler's backend with some choices, which notes the kernels that it makes."""
        from argus.graph.backend import Backend

        chosen = {key: Choice(**value) for key, value in choices.items()}
        return Backend(generator(chosen, lambda group, key, now: _note(noted, group, key, now, target)), survey)

    def _drawn(self, torch: Any, seed: int, make: Callable[[], Any]) -> Any:
        """Make a model or inputs on the device, because random numbers of gigabytes take the host's processor minutes.
        """
        torch.manual_seed(seed)
        try:
            with torch.device(self._device):
                return make()
        except RuntimeError:  # it insists on the host, for example by a generator of its own
            torch.manual_seed(seed)
            return make()

    def _inputs(self, torch: Any, seed: int, factor: float = 1.0) -> list[Any]:
        drawn = self._drawn(torch, seed, self._module.get_inputs)
        found = [x.to(self._device) if isinstance(x, torch.Tensor) else x for x in drawn]
        return [x * factor if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in found]

    def _us(self, call: Any) -> float:
        from argus.tuning.bench import do_bench

        return do_bench(call, _WARMUP_MS, _REP_MS, device=self._device.partition(":")[0]) * 1e3

    def _compiled(self, torch: Any, request: Answer) -> Answer:
        from argus.runtime.device import target_of

        noted: dict[str, Answer] = {}
        backend = self._backend(noted, request["choices"], target_of(self._device))
        torch._dynamo.reset()
        call = torch.compile(self._model, backend=backend, dynamic=False, options=request["options"])
        call(*self._inputs(torch, 0))
        with _turn(torch, self._device):
            said = self._difference(torch, call, int(request["seed"]))
            if said:
                return {"different": said}
            inputs = self._inputs(torch, 0)
            return {"us": self._us(lambda: call(*inputs)), "items": list(noted.values())}

    def _difference(self, torch: Any, call: Any, seed: int) -> str:
        """Describe where the compiled model differs by more than rounding explains; "" if it does not differ.

        It runs first and on inputs of its own: what the reference leaves in memory cannot pass for its results, and
        what a model does to its inputs reaches nobody else.
        """
        for place, factor in enumerate(SCALES):
            inputs = self._inputs(torch, seed + place, factor)
            copies = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
            ours, theirs = _tensors(call(*copies)), _tensors(self._model(*inputs))
            if len(ours) != len(theirs):
                return f"inputs times {factor}: {len(ours)} results for {len(theirs)}"
            for one, other in zip(ours, theirs, strict=True):
                if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
                    said = difference(torch, one, other, TOLERANCE)
                else:
                    said = "" if one == other else f"{one!r} for {other!r}"
                if said:
                    return f"inputs times {factor}: {said}"
        return ""


@contextmanager
def _turn(torch: Any, device: str) -> Iterator[None]:
    """Have the device for oneself, and then give back the memory that is no longer used: others compile there."""
    with alone(device):
        try:
            yield
        finally:
            torch.cuda.empty_cache()


def _module(path: Path) -> Any:
    spec = spec_from_file_location("reference", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _note(noted: dict[str, Answer], group: Any, key: str, now: Choice, target: str) -> None:
    """Note a kernel of a draft: its default text, and the choice that the graph compiler makes without others."""
    if key in noted:
        return
    from argus.graph.kernel import generate

    text = generate(group, target)
    assert key_of(text.text) == key
    noted[key] = {"key": key, "name": text.name, "text": text.text, "target": target,
                  "constants": dict(now.constants), "warps": now.warps, "sizes": _sizes(text, target)}  # fmt: skip


def _tensors(found: Any) -> list[Any]:
    """Return the results of a model in order: the values of a dictionary, too."""
    if isinstance(found, dict):
        return [t for key in sorted(found) for t in _tensors(found[key])]
    if isinstance(found, tuple | list):
        return [t for part in found for t in _tensors(part)]
    return [found]


def _sizes(text: Any, target: str) -> dict[str, int]:
    """Return the sizes of a generated kernel from its tensors, or none if they are symbolic."""
    try:
        tile = compile.elaborate(SourceFile("kernel.py", text.text), text.name, Options(target=target))
    except ArgusError:
        return {}
    metas = [p.meta for p in (*text.layout.reads, *text.layout.writes)]
    found: dict[str, int] = {}
    for tensor, meta in zip(tile.tensors, metas, strict=False):
        for extent, size in zip(tensor.shape, meta.shape, strict=False):
            if isinstance(extent, Param) and isinstance(size, int):
                found[extent.name] = size
    return found


def main() -> None:
    """Serve until the parent closes the pipe."""
    serve(Reference().handle)
