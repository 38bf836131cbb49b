"""Functions of PyTorch tensors as prepared launches: what a call does is found out once, and done again for its kind.

A recipe says which plans run, in what order, on which addresses. What carries it out is generated as Python text, one
straight line, as a reader is; the text is made of positions only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from argus.backend.launch.evaluate import Number
from argus.backend.launch.plan import Plan
from argus.runtime.jit_kernel import JitKernel
from argus.runtime.reader import UNPREPARED, Memory, Run


@dataclass(frozen=True, slots=True)
class Given:
    """The address of the call's tensor number `index`, or `offset` bytes behind it."""

    index: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """Number `index` of the call."""

    index: int


@dataclass(frozen=True, slots=True)
class Made:
    """The address of what allocation number `index` gives, or `offset` bytes behind it."""

    index: int
    offset: int = 0


Value = Given | Told | Made | Number


@dataclass(frozen=True, slots=True)
class Launch:
    """`plan`, on these addresses and numbers."""

    plan: Plan
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """`launches` in order, on what calls with `tensors` tensors and `numbers` numbers give, and on what `allocations`
    make anew in each call.

    The results are the first `returned` of these: one tensor, else a tuple. The others go back to
    PyTorch's allocator, which gives them to work that is queued later on the stream.
    """

    tensors: int
    allocations: tuple[Callable[[], Any], ...]
    launches: tuple[Launch, ...]
    returned: int
    numbers: int = 0

    def runner(self) -> Run:
        """What carries it out."""
        constants: list[Number] = []
        launches = tuple(", ".join(_text(v, constants) for v in launch.values) for launch in self.launches)
        given = (self.tensors, self.numbers)
        make = _generated(given, len(self.allocations), launches, len(constants), self.returned)
        return make([launch.plan.run for launch in self.launches], self.allocations, constants)


def room_like(x: Any) -> Callable[[], Any]:
    """An allocation of contiguous tensors of the shape, dtype and device of `x`."""
    return room(x.shape, x.dtype, x.device)


def room(shape: Sequence[int], dtype: Any, device: Any) -> Callable[[], Any]:
    """An allocation of contiguous tensors.

    `torch.empty` takes as long as the driver's launch, `empty_strided` half of that, and what PyTorch's own compiled
    code calls a third. That one allocates on the current device, so it is taken where there is but one.
    """
    import torch

    size, strides = tuple(shape), torch.empty(shape, device="meta").stride()
    direct = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
    if direct is not None and torch.device(device).type == "cuda" and torch.cuda.device_count() == 1:
        return partial(direct, size, strides, dtype)
    return partial(torch.empty_strided, size, strides, dtype=dtype, device=device)


@dataclass(frozen=True, slots=True)
class Beside:
    """A further launch of a work's kernel, with its numbers: on views of the function's tensors, in order, and of what
    the work writes."""

    read: tuple[Any, ...]
    written: tuple[Any, ...]
    constants: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Join:
    """A last launch, `kernel(*tensors, **constants)`: of all that was written, then of the results, as views."""

    kernel: JitKernel
    tensors: tuple[Any, ...]
    constants: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Work:
    """A function's launch, `kernel(*read, *written, *numbers, **constants)`, and what follows, if anything.

    `read` are the function's tensors in order, or what stands for them: views from their first element on, copies.
    `written` are new and contiguous, or the first elements of `rooms`, which are; `results` are the same in the shapes
    that the caller gets, or what `join` makes.
    """

    kernel: JitKernel
    read: tuple[Any, ...]
    written: tuple[Any, ...]
    results: tuple[Any, ...]
    numbers: tuple[Number, ...]
    constants: Mapping[str, object]
    join: Join | None = None
    rooms: tuple[Any, ...] = ()
    beside: Beside | None = None


Results = tuple[Any, ...]
"""Finished results of a call that launches nothing."""


class Function:
    """A function whose calls are one launch each, or up to three. Keeps what it prepared, by shapes, strides, dtypes,
    alignments and device. `work(tensors, numbers, *way)` says what a call does, and raises what is wrong with its
    arguments.
    """

    def __init__(self, work: Callable[..., Work | Results]) -> None:
        self._work = work
        self._memory = Memory()

    def __call__(self, tensors: tuple[Any, ...], numbers: tuple[Number, ...] = (), way: tuple[Any, ...] = ()) -> Any:
        """The results: a tensor, or a tuple of several. `way` holds what else the work depends on, hashable.

        `numbers` are those of the launch; if there are none, the work's are, which then follow from the rest.
        Raises what `work` raises, and what a kernel's call raises.
        """
        kind = (len(numbers), way) if numbers else way
        results = self._memory.call(kind, tensors, numbers, self._prepared, tensors, numbers, way)
        return self._anew(tensors, numbers, way) if results is UNPREPARED else results

    def _prepared(self, tensors: tuple[Any, ...], numbers: tuple[Number, ...], way: tuple[Any, ...]) -> Run | None:
        """None where tensors have to be copied first, and where nothing is launched."""
        work = self._work(tensors, numbers, *way)
        if not isinstance(work, Work):
            return None
        if any(x.data_ptr() != given.data_ptr() for x, given in zip(work.read, tensors, strict=True)):
            return None
        plan = work.kernel.prepare(*work.read, *work.written, *work.numbers, **work.constants)
        addresses: list[Value] = [Given(i) for i in range(len(tensors))]
        results, made = len(work.results), work.rooms or work.written
        rooms = work.results if work.join is None else (*work.results, *made)
        written: list[Value] = [Made(len(rooms) - len(made) + i) for i in range(len(made))]
        last = tuple(Told(i) for i in range(len(numbers))) if numbers else work.numbers
        launches = [Launch(plan, (*addresses, *written, *last))]
        if (beside := work.beside) is not None:
            more = work.kernel.prepare(*beside.read, *beside.written, *work.numbers, **beside.constants)
            read = (Given(i, _bytes(x, tensors[i])) for i, x in enumerate(beside.read))
            own = (Made(len(rooms) - len(made) + i, _bytes(x, made[i])) for i, x in enumerate(beside.written))
            launches.append(Launch(more, (*read, *own, *last)))
        if work.join is not None:
            second = work.join.kernel.prepare(*work.join.tensors, **work.join.constants)
            launches.append(Launch(second, (*written, *map(Made, range(results)))))
        return Recipe(len(tensors), tuple(map(room_like, rooms)), tuple(launches), results, len(numbers)).runner()

    def _anew(self, tensors: tuple[Any, ...], numbers: tuple[Number, ...], way: tuple[Any, ...]) -> Any:
        work = self._work(tensors, numbers, *way)
        results = work.results if isinstance(work, Work) else work
        if isinstance(work, Work):
            work.kernel(*work.read, *work.written, *work.numbers, **work.constants)
            if (beside := work.beside) is not None:
                work.kernel(*beside.read, *beside.written, *work.numbers, **beside.constants)
            if work.join is not None:
                work.join.kernel(*work.join.tensors, **work.join.constants)
        return results[0] if len(results) == 1 else results


def _bytes(view: Any, tensor: Any) -> int:
    """How far a view begins behind its tensor."""
    return int(view.data_ptr() - tensor.data_ptr())


# ---------------------------------------------------------------------------- generated text


def _text(value: Value, constants: list[Number]) -> str:
    """How the generated text says `value`; numbers go to `constants`."""
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
    """`make(runs, allocations, constants)` gives the runner of recipes of this form."""

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
        f"        return {'t0' if returned == 1 else f'({results})'}",
        "    return run",
    ]
    scope: dict[str, Any] = {}
    exec("\n".join(lines), scope)
    return scope["make"]  # type: ignore[no-any-return]
