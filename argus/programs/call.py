"""One call of a program: its launches are bound to sizes, all checked, and then run in order."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from argus.backend.launch.array import Array, is_torch
from argus.backend.launch.bind import Binding, bind
from argus.backend.launch.evaluate import Number, evaluate
from argus.backend.launch.plan import Function, LaunchPlan
from argus.diagnostic import LaunchError
from argus.ir.expr import Expr, Param
from argus.programs.bound import exact_bytes, strides_of
from argus.programs.execute import hosted
from argus.programs.ir import MAIN, POOL_ALIGNMENT, Collective, For, If, Launch, Part, Record, Step, Wait
from argus.programs.ready import Ready
from argus.runtime.reader import Run
from argus.runtime.recipe import Given, Made, Recipe, Told, room
from argus.runtime.recipe import Launch as RecipeLaunch

Collectives = Mapping[str, Callable[[tuple[Any, ...], tuple[Any, ...]], None]]

_POOL = ""
"""The name of the pool in the table of addresses."""


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of a call, by name."""

    arrays: Mapping[str, Array]
    scalars: Mapping[str, Number]
    constexprs: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class _Place:
    """A part in memory: bytes from the beginning of a tensor or of the pool."""

    base: str
    offset: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Queued:
    """A prepared launch. Its addresses, and the numbers that are given by name, are those of the call."""

    plan: LaunchPlan
    places: tuple[_Place, ...]
    numbers: tuple[Number | str, ...]
    stream: str


@dataclass(frozen=True, slots=True)
class _Called:
    """A collective with its parts in memory."""

    name: str
    reads: tuple[_Place, ...]
    writes: tuple[_Place, ...]
    stream: str


@dataclass(frozen=True, slots=True)
class _Recorded:
    """The record of an event, by its number among the events of the call."""

    event: int
    stream: str


@dataclass(frozen=True, slots=True)
class _Awaited:
    """A wait for event number `event`."""

    stream: str
    event: int


_Action = _Queued | _Called | _Recorded | _Awaited


class Plan:
    """The launches of a program for calls of one kind: the same shapes, strides, whole numbers, device and constants.

    All launches are checked before the first one is made. Raises LaunchError.
    """

    def __init__(
        self,
        ready: Ready,
        functions: Sequence[Function],
        binding: Binding,
        call: Call,
    ) -> None:
        self.program, self.kernels, self.functions, self.device = (
            ready.program,
            ready.kernels,
            functions,
            binding.device,
        )
        self.signature, self.binding, self.deciding = ready.signature, binding, ready.deciding
        self.env: dict[str, Number] = {**binding.values, **call.scalars}
        self.call = call
        self.events: dict[str, int] = {}
        self.count = 0
        self.offsets = self._offsets()
        self.written = frozenset(t.name for t in self.signature.tensors if t.written)
        self.actions = tuple(self._actions(self.program.body))
        self.calls = any(isinstance(a, _Called) for a in self.actions)

    def _offsets(self) -> dict[str, int]:
        for b in self.program.buffers:
            size = self.number(exact_bytes(b))
            self.env[b.bytes.name] = -(-size // POOL_ALIGNMENT) * POOL_ALIGNMENT
        return {b.name: self.number(b.offset) for b in self.program.buffers if b.offset is not None}

    def number(self, expr: Expr) -> Any:
        """Return the current value of an expression."""
        return evaluate(hosted(expr), self.env)

    # ------------------------------------------------------------------ preparation

    def _actions(self, body: tuple[Step, ...]) -> Sequence[_Action]:
        found: list[_Action] = []
        for step in body:
            match step:
                case Launch():
                    found.append(self._launch(step))
                case Collective(name=name, stream=stream):
                    reads, writes = (tuple(map(self._place, parts)) for parts in (step.reads, step.writes))
                    found.append(_Called(name, reads, writes, stream))
                case Record(event=event, stream=stream):
                    self.events[event] = self.count
                    found.append(_Recorded(self.count, stream))
                    self.count += 1
                case Wait(stream=stream, event=event):
                    found.append(_Awaited(stream, self.events[event]))
                case For(var=var):
                    for value in range(self.number(step.start), self.number(step.stop), step.step):
                        self.env[var] = value
                        found += self._actions(step.body)
                case If(cond=cond, then=then, orelse=orelse):
                    found += self._actions(then if self.number(cond) else orelse)
        return found

    def _launch(self, step: Launch) -> _Queued:
        signature, arguments = self.kernels[step.use].signature, dict(step.arguments)
        places: dict[str, _Place] = {}
        numbers: list[Number | str] = []
        for t in signature.tensors:
            part = arguments[t.name]
            assert isinstance(part, Part)
            places[t.name] = self._place(part)
        for s in signature.scalars:
            value = arguments[s.name]
            assert not isinstance(value, Part)
            late = isinstance(value, Param) and value.dtype.is_float
            numbers.append(value.name if late and isinstance(value, Param) else self.number(value))
        grid = None if step.grid is None else tuple(self.number(e) for e in step.grid)
        arrays = {n: self._array(p) for n, p in places.items()}
        known = {s.name: self._now(n) for s, n in zip(signature.scalars, numbers, strict=True)}
        plan = LaunchPlan(signature, bind(signature, arrays, known, grid), self.functions[step.use])
        return _Queued(plan, tuple(places.values()), tuple(numbers), step.stream)

    def _now(self, number: Number | str) -> Number:
        return self.call.scalars[number] if isinstance(number, str) else number

    def _place(self, part: Part) -> _Place:
        obj = self.program.object(part.obj)
        strides = [self.number(e) for e in obj.strides]
        start = sum(self.number(s) * stride for s, stride in zip(part.start, strides, strict=True))
        base = part.obj if part.obj not in self.offsets else _POOL
        offset = self.offsets.get(part.obj, 0) + start * obj.dtype.bytes
        shape = tuple(self.number(e) for e in part.shape)
        kept = tuple(self.number(e) for e in strides_of(self.program, part))
        return _Place(base, offset, obj.dtype.name, shape, kept)

    def _array(self, place: _Place) -> Array:
        """Return a part as a launch argument. The pool's address is assumed to be far from those of all tensors."""
        from argus.ir.types import DTYPES

        base = self.call.arrays[place.base].pointer if place.base != _POOL else 1 << 60
        return Array(place.dtype, DTYPES[place.dtype].bytes, place.shape, place.strides, base + place.offset,
                     self.device, True, None)  # fmt: skip

    # ------------------------------------------------------------------ running

    def run(self, call: Call, collectives: Collectives) -> None:
        """Make all launches with the addresses of a call. Raises LaunchError before the first one, if any."""
        for name in sorted({a.name for a in self.actions if isinstance(a, _Called)} - collectives.keys()):
            help = f'pass collectives={{"{name}": function}}'
            raise LaunchError.of("argument-count", f'the program calls "{name}", and the call gives no function', help)
        pool = self._pool()
        bases = {name: a.pointer for name, a in call.arrays.items()} | {_POOL: _address(pool)}
        bytes_of = {name: a.source for name, a in call.arrays.items()} | {_POOL: pool}
        streams = self._streams()
        events = [streams.event() for _ in range(self.count)]
        for action in self.actions:
            match action:
                case _Queued(plan=plan, places=places, numbers=numbers):
                    addresses = tuple([bases[p.base] + p.offset for p in places])
                    told = tuple([call.scalars[n] if isinstance(n, str) else n for n in numbers])
                    with streams.on(action.stream):
                        plan.run((*addresses, *told))
                case _Called(name=name, reads=reads, writes=writes):
                    given = (tuple(_tensor(bytes_of[p.base], p) for p in parts) for parts in (reads, writes))
                    with streams.on(action.stream):
                        collectives[name](*given)
                case _Recorded(event=event, stream=stream):
                    streams.record(stream, events[event])
                case _Awaited(stream=stream, event=event):
                    streams.wait(stream, events[event])

    def runner(self) -> Run:
        """Return `run(values)` for calls of PyTorch tensors without collectives: addresses, then scalars."""
        torch = sys.modules["torch"]
        pool = room((self._size,), torch.uint8, self.device)
        order = {t.name: i for i, t in enumerate(self.signature.tensors)}
        names = [s.name for s in self.signature.scalars]
        launches = [a for a in self.actions if isinstance(a, _Queued)]

        def launched(action: _Queued) -> RecipeLaunch:
            places = [Made(0, p.offset) if p.base == _POOL else Given(order[p.base], p.offset) for p in action.places]
            numbers = [Told(names.index(n)) if isinstance(n, str) else n for n in action.numbers]
            return RecipeLaunch(action.plan, (*places, *numbers))

        if isinstance(self._streams(), _Host) or len(self.program.streams) == 1:
            made = tuple(map(launched, launches))
            return Recipe(len(order), (pool,), made, 0, len(names)).runner()
        single = {id(a): Recipe(len(order) + 1, (), (_from_given(launched(a), len(order)),), 0, len(names)).runner()
                  for a in launches}  # fmt: skip

        def run(values: tuple[Number, ...]) -> None:
            streams, kept = self._streams(), pool()
            events = [streams.event() for _ in range(self.count)]
            given = (*values[: len(order)], kept.data_ptr(), *values[len(order) :])
            for action in self.actions:
                match action:
                    case _Queued():
                        with streams.on(action.stream):
                            single[id(action)](given)
                    case _Recorded(event=event, stream=stream):
                        streams.record(stream, events[event])
                    case _Awaited(stream=stream, event=event):
                        streams.wait(stream, events[event])

        return run

    @property
    def _size(self) -> int:
        """The number of bytes of the pool, at least one."""
        return max(int(self.number(self.program.pool)) if self.program.pool is not None else 0, 1)

    def _pool(self) -> Any:
        size = self._size
        source = next((a.source for a in self.call.arrays.values() if is_torch(a.source)), None)
        if source is not None:
            return sys.modules["torch"].empty(size, dtype=sys.modules["torch"].uint8, device=self.device)
        import numpy as np

        room = np.empty(size + POOL_ALIGNMENT, dtype=np.uint8)
        first = -room.ctypes.data % POOL_ALIGNMENT
        return room[first : first + size]

    @cached_property
    def _own(self) -> Mapping[str, Any]:
        """The program's own streams, which calls of this kind share."""
        torch = sys.modules["torch"]
        return {name: torch.cuda.Stream(self.device) for name in self.program.streams if name != MAIN}

    def _streams(self) -> _Host | _Device:
        return _Device(self) if self.device != "cpu" else _Host()


def _from_given(launch: RecipeLaunch, pool: int) -> RecipeLaunch:
    """Return a launch that reads the pool's address from position `pool` of the call's addresses."""
    values = (Given(pool, v.offset) if isinstance(v, Made) else v for v in launch.values)
    return RecipeLaunch(launch.plan, tuple(values))


class _Host:
    """Streams of the CPU. Every launch is complete when it returns."""

    def on(self, _stream: str) -> AbstractContextManager[Any]:
        return nullcontext()

    def event(self) -> None:
        return None

    def record(self, _stream: str, _event: None) -> None:
        pass

    def wait(self, _stream: str, _event: None) -> None:
        pass


class _Device:
    """Streams of a GPU: the current one, and those of the plan."""

    def __init__(self, plan: Plan) -> None:
        self._cuda = sys.modules["torch"].cuda
        self._all = {MAIN: self._cuda.current_stream(plan.device), **plan._own}

    def on(self, stream: str) -> AbstractContextManager[Any]:
        found: AbstractContextManager[Any] = nullcontext() if stream == MAIN else self._cuda.stream(self._all[stream])
        return found

    def event(self) -> Any:
        return self._cuda.Event()

    def record(self, stream: str, event: Any) -> None:
        event.record(self._all[stream])

    def wait(self, stream: str, event: Any) -> None:
        self._all[stream].wait_event(event)


def _address(pool: Any) -> int:
    return int(pool.data_ptr()) if is_torch(pool) else int(pool.ctypes.data)


def _tensor(source: Any, place: _Place) -> Any:
    """Return a part of a tensor or of the pool as a separate tensor or array."""
    if is_torch(source):
        torch = sys.modules["torch"]
        dtype = getattr(torch, place.dtype)
        flat = source.view(dtype) if source.dtype is torch.uint8 and place.base == _POOL else source
        first = flat.storage_offset() + place.offset // dtype.itemsize
        return flat.as_strided(place.shape, place.strides, first)
    import numpy as np

    item = np.dtype(source.dtype if place.base != _POOL else place.dtype)
    strides = tuple(s * item.itemsize for s in place.strides)
    reach = sum((n - 1) * s for n, s in zip(place.shape, strides, strict=True)) + item.itemsize
    if 0 in place.shape:
        return np.empty(place.shape, item)
    room: Any = (ctypes.c_char * reach).from_address(source.ctypes.data + place.offset)
    return np.ndarray(place.shape, item, room, 0, strides)
