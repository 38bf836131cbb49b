"""Recipes: the launches of a function's call, recorded once and repeated for every call of its kind.

A recipe lists the plans to run in order, with the source of each address. The function that carries it out is generated
as straight-line Python code, as a reader is; the code contains only positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from argus.backend.launch.evaluate import Number
from argus.backend.launch.plan import LaunchPlan
from argus.runtime.reader import Run


@dataclass(frozen=True, slots=True)
class Given:
    """The address of the call's tensor at position `index`, plus `offset` bytes."""

    index: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """The call's number at position `index`."""

    index: int


@dataclass(frozen=True, slots=True)
class Made:
    """The address of the tensor that allocation `index` returns, plus `offset` bytes."""

    index: int
    offset: int = 0


Value = Given | Told | Made | Number


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch of `plan` with these addresses and numbers."""

    plan: LaunchPlan
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """The launches of a call with `tensors` tensors and `numbers` numbers.

    `allocations` allocate new tensors in each call. The results are the first `returned` of them: one tensor, or a
    tuple. The others go back to PyTorch's allocator, which reuses them for work that is queued later on the stream.
    `mutated` are the positions of the call's tensors that are written. `kept` stays alive with the recipe, because the
    launches use its addresses.
    """

    tensors: int
    allocations: tuple[Callable[[], Any], ...]
    launches: tuple[Launch, ...]
    returned: int
    numbers: int = 0
    mutated: tuple[int, ...] = ()
    kept: tuple[Any, ...] = ()

    def runner(self) -> Run:
        """Return the function that carries out the recipe. A launch of the call's arguments alone is run itself."""
        arguments = (*map(Given, range(self.tensors)), *map(Told, range(self.numbers)))
        if not self.returned and [launch.values for launch in self.launches] == [arguments]:
            return self.launches[0].plan.run
        constants: list[Number] = []
        launches = tuple(", ".join(_text(v, constants) for v in launch.values) for launch in self.launches)
        given = (self.tensors, self.numbers)
        make = _generated(given, len(self.allocations), launches, len(constants), self.returned)
        run = make([launch.plan.run for launch in self.launches], self.allocations, constants)
        run.kept = self.kept  # type: ignore[attr-defined]
        return run


def room(shape: Sequence[int], dtype: Any, device: Any, strides: tuple[int, ...] | None = None) -> Callable[[], Any]:
    """Return a function that allocates tensors, which are contiguous if `strides` is omitted.

    `torch.empty` takes as long as the driver's launch, and `empty_strided` half as long. The function that PyTorch's
    own compiled code calls takes a third. It allocates on the current device, so it is used only if there is a single
    device.
    """
    import torch

    size, strides = tuple(shape), strides or torch.empty(shape, device="meta").stride()
    direct = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
    if direct is not None and torch.device(device).type == "cuda" and torch.cuda.device_count() == 1:
        return partial(direct, size, strides, dtype)
    return partial(torch.empty_strided, size, strides, dtype=dtype, device=device)


# ---------------------------------------------------------------------------- generated text


def _text(value: Value, constants: list[Number]) -> str:
    """Return the generated text of `value`; numbers are added to `constants`."""
    match value:
        case Given(index=index, offset=offset) | Made(index=index, offset=offset):
            name = f"{'p' if isinstance(value, Given) else 'q'}{index}"
            if not offset:
                return name
            constants.append(offset)
            return f"{name} + c{len(constants) - 1}"
        case Told(index=index):
            return f"n{index}"
        case _:
            constants.append(value)
            return f"c{len(constants) - 1}"


_Make = Callable[[Sequence[Run], Sequence[Callable[[], Any]], Sequence[Number]], Run]


@lru_cache(maxsize=256)
def _generated(given: tuple[int, int], made: int, launches: tuple[str, ...], constants: int, returned: int) -> _Make:
    """Return `make(runs, allocations, constants)`, which returns the runner of recipes of this form."""

    def names(prefix: str, count: int) -> str:
        return "".join(f"{prefix}{i}, " for i in range(count))

    results = names("t", returned)
    lines = [
        "def make(runs, allocations, constants):",
        f"    [{names('run', len(launches))}] = runs",
        f"    [{names('make', made)}] = allocations",
        f"    [{names('c', constants)}] = constants",
        "    def run(values):",
        f"        [{names('p', given[0])}{names('n', given[1])}] = values",
        *(line for i in range(made) for line in (f"        t{i} = make{i}()", f"        q{i} = t{i}.data_ptr()")),
        *(f"        run{i}(({values},))" for i, values in enumerate(launches)),
        *([f"        return {'t0' if returned == 1 else f'({results})'}"] if returned else ()),
        "    return run",
    ]
    scope: dict[str, Any] = {}
    exec("\n".join(lines), scope)
    return scope["make"]  # type: ignore[no-any-return]
