"""Prepared launches: values that stay the same between calls are packed once, and launches are kept by address."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from operator import is_
from threading import Lock
from typing import Any, Protocol

from argus.backend.launch.arguments import SCALAR_FORMATS, held
from argus.backend.launch.bind import Apart, Binding, Described, check_apart, check_conditions
from argus.backend.launch.evaluate import Number, names
from argus.backend.launch.grid import launch_grid
from argus.backend.launch.signature import Signature

_SLOT = 8

_MAP_BYTES, _MAP_ALIGNMENT = 128, 64  # CUDA driver API, CUtensorMap

_MOST = 1024
"""Largest number of launches that are kept ready, about half a kilobyte each, and of addresses whose tensor maps are
kept, for each map. The layers of a model are calls of one launch, each with its own tensors. Beyond this number,
everything is prepared again."""

_NOTHING = object()
_UNCHANGING = (int, float, bool)

Arguments = ctypes.Array[Any]
"""Memory that begins with pointers to the values of the entry point's arguments, in order. CUDA calls these pointers
kernelParams."""

Encode = Callable[[int, int], None]
"""`encode(address, place)` writes the map of a tensor at `address` to the 128 bytes at `place`."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """The functions by which a driver launches a kernel on a grid.

    `start(*bound(arguments, stream()))` queues the kernel with the values that `arguments` points to at that time, and
    returns 0. If the status is not 0, `failed(status, bound)` raises LaunchError or launches the kernel after all.
    """

    stream: Callable[[], int]
    bound: Callable[[Arguments, int], tuple[Any, ...]]
    start: Callable[..., int]
    failed: Callable[[int, tuple[Any, ...]], None]

    def launch(self, arguments: Arguments) -> None:
        """Launch the kernel once. Raises LaunchError."""
        bound = self.bound(arguments, self.stream())
        if status := self.start(*bound):
            self.failed(status, bound)


class Function(Protocol):
    """A kernel that a driver has loaded."""

    def describe(self, tensor: Described) -> Encode:
        """Return the function that writes the kernel's map of `tensor`.

        A tensor without a map raises LaunchError, here or when the function is called.
        """

    def resident(self, threads: int, shared_bytes: int, cluster: int) -> int:
        """Return the number of such blocks that the device runs at once: whole clusters, at least one.

        Raises LaunchError if the device cannot run such blocks.
        """

    def prepare(self, grid: tuple[int, int, int], threads: int, shared_bytes: int) -> Launcher:
        """Return the launcher for `grid`, which has no zero. Raises LaunchError if the device cannot run it."""


class LaunchPlan:
    """Launches of one kernel on arguments that differ only in addresses and scalars.

    `run(values)` launches the kernel. `values` is a tuple of the tensors' addresses followed by the scalars, each in
    the signature's order. `run` raises LaunchError "overlapping-output", "precondition-failed", "scalar-argument" or
    "tensor-map-refused", and the errors of the device.

    The prepared memory of a launch, kept for its addresses and stream, is never changed except for its scalars. While
    the scalars are written and read, the entry is taken out of the table, so that no other thread finds it.
    """

    __slots__ = (
        "_binding", "_conditions", "_first", "_launcher", "_lock", "_maps", "_overlap", "_room",
        "_scalars", "_signature", "run",
    )  # fmt: skip

    run: Callable[[tuple[Number, ...]], None]

    def __init__(self, signature: Signature, binding: Binding, function: Function) -> None:
        self._signature, self._binding = signature, binding
        self._scalars = tuple(s.name for s in signature.scalars)
        self._first = len(signature.tensors)
        self._overlap = overlapping(binding.apart)
        self._conditions = binding.scalar_conditions
        self._lock = Lock()
        self._room = _Room(signature, binding)
        self._maps: tuple[_Map, ...] = ()
        self._launcher = _NO_LAUNCHER
        if any(names(extent) & {*self._scalars} for extent in signature.grid or ()):
            self.run = self._by_grid(function)
            return
        if 0 not in binding.grid:
            self._maps = tuple(_Map(tensor, function.describe(tensor)) for tensor in binding.described)
            self._launcher = function.prepare(
                _blocks(signature, binding, function), signature.num_threads, signature.shared_bytes
            )
        self.run = self._with_scalars() if self._scalars else self._with_addresses()

    @property
    def written(self) -> tuple[int, ...]:
        """The positions, among the tensors, of those that the kernel writes."""
        return tuple(i for i, tensor in enumerate(self._signature.tensors) if tensor.written)

    @property
    def read(self) -> tuple[int, ...]:
        """The positions, among the tensors, of those that the kernel reads."""
        return tuple(i for i, tensor in enumerate(self._signature.tensors) if tensor.read)

    def _with_addresses(self) -> Callable[[tuple[Number, ...]], None]:
        """Return `run` for kernels without scalars. Each line of `run` adds to the time of every launch."""
        stream, start, failed = self._launcher.stream, self._launcher.start, self._launcher.failed
        ready: dict[Any, tuple[Any, ...]] = {}
        find, place = ready.get, self._place

        def run(values: tuple[Number, ...]) -> None:
            key = values, stream()
            bound = find(key)
            if bound is None:
                bound, _ = place(*key)
                if len(ready) >= _MOST:
                    ready.clear()
                ready[key] = bound
            if status := start(*bound):
                failed(status, bound)

        return run

    def _with_scalars(self) -> Callable[[tuple[Number, ...]], None]:
        """Return `run` for kernels with scalars.

        Scalars are not written again if they are the same as in the last such launch. They are mostly the same objects,
        or equal ones if PyTorch's dispatcher created new objects.
        """
        stream, start, failed = self._launcher.stream, self._launcher.start, self._launcher.failed
        ready: dict[Any, tuple[tuple[Any, ...], Arguments, tuple[object, ...]]] = {}
        take, place, write, first = ready.pop, self._place, self._write, self._first
        nothing = (_NOTHING,) * len(self._scalars)

        def run(values: tuple[Number, ...]) -> None:
            scalars = values[first:]
            key = values[:first], stream()
            launch = take(key, None) or (*place(*key), nothing)
            bound, room, written = launch
            if not all(map(is_, scalars, written)) and not _same(scalars, written):
                launch = bound, room, write(room, scalars)
            if status := start(*bound):
                failed(status, bound)
            if len(ready) >= _MOST:
                ready.clear()
            ready[key] = launch

        return run

    def _by_grid(self, function: Function) -> Callable[[tuple[Number, ...]], None]:
        """Return `run` for kernels whose grid depends on scalars; it keeps one plan for each grid."""
        binding, first = self._binding, self._first
        chosen = replace(self._signature, grid=None)
        plans: dict[tuple[int, int, int], LaunchPlan] = {}

        def run(values: tuple[Number, ...]) -> None:
            values = (*values[:first], *self._converted(values[first:]))
            known = {**binding.values, **self._held(values[first:])}
            check_conditions(self._conditions, known)
            grid = launch_grid(self._signature, known, binding.given)
            if grid not in plans:
                if len(plans) >= _MOST:
                    plans.clear()
                plans[grid] = LaunchPlan(chosen, replace(binding, grid=grid), function)
            plans[grid].run(values)

        return run

    def _place(self, addresses: tuple[Number, ...], stream: int) -> tuple[tuple[Any, ...], Arguments]:
        """Check these addresses and prepare a launch for them. Raises LaunchError."""
        if self._overlap(addresses):
            check_apart(self._signature, self._binding.apart, [int(v) for v in addresses])
        with self._lock:  # several threads may use the same map
            maps = [m.of(int(addresses[m.position])) for m in self._maps]
        room = self._room.filled(addresses, maps)
        return self._launcher.bound(room, stream), room

    def _write(self, room: Arguments, scalars: tuple[Number, ...]) -> tuple[object, ...]:
        """Check and write the scalars; return them, with `_NOTHING` for objects that may change. Raises LaunchError."""
        numbers = self._converted(scalars)
        if self._conditions:
            check_conditions(self._conditions, {**self._binding.values, **self._held(numbers)})
        try:
            self._room.write_scalars(room, *numbers)
        except (struct.error, OverflowError):
            self._held(numbers)
            raise
        return tuple(v if type(v) in _UNCHANGING else _NOTHING for v in scalars)

    def _converted(self, scalars: tuple[Number, ...]) -> tuple[Number, ...]:
        """Return the scalars as numbers. Objects are converted once, so that the checked value is the passed one."""
        if all(type(v) in _UNCHANGING for v in scalars):
            return scalars
        return tuple(self._held(scalars).values())

    def _held(self, scalars: tuple[Number, ...]) -> dict[str, Number]:
        return held(self._signature, dict(zip(self._scalars, scalars, strict=True)))


def _same(scalars: tuple[Number, ...], written: tuple[object, ...]) -> bool:
    """Return True if the scalars surely have the same bits; False with a zero, whose sign may differ, or a NaN."""
    return scalars == written and 0.0 not in scalars and all(map(is_, map(type, scalars), map(type, written)))


class _Map:
    """The tensor map of one argument, encoded once for each address."""

    __slots__ = ("_encode", "_known", "_place", "_room", "position")

    def __init__(self, tensor: Described, encode: Encode) -> None:
        self._encode, self._known = encode, dict[int, bytes]()
        self._room = ctypes.create_string_buffer(_MAP_BYTES + _MAP_ALIGNMENT)
        self._place = _aligned(ctypes.addressof(self._room))
        self.position = tensor.position

    def of(self, address: int) -> bytes:
        """Return the map of the tensor at `address`. Raises LaunchError "tensor-map-refused"."""
        known = self._known.get(address)
        if known is None:
            self._encode(address, self._place)
            if len(self._known) >= _MOST:
                self._known.clear()
            known = self._known[address] = ctypes.string_at(self._place, _MAP_BYTES)
        return known


class _Room:
    """The memory layout of a launch: pointers, then values, then tensor maps.

    Among the values, those that change come first: addresses and scalars, then sizes and strides.
    """

    def __init__(self, signature: Signature, binding: Binding) -> None:
        changing = [*(t.name for t in signature.tensors), *(s.name for s in signature.scalars)]
        fixed = [(s.name, s.kind) for s in signature.slots if s.kind != "tensormap" and s.name not in changing]
        place = {name: _SLOT * i for i, name in enumerate((*changing, *(name for name, _ in fixed)))}
        described = {tensor.argument: i for i, tensor in enumerate(binding.described)}
        self._at = _SLOT * max(len(signature.slots), 1)
        values = bytearray(_SLOT * len(place))
        for name, kind in fixed:
            struct.pack_into("<i" if kind == "size" else "<q", values, place[name], binding.values[name])
        self._values = bytes(values)
        self._maps_at = self._at + len(values)
        # The position of each argument: its offset among the values, or the index of its map.
        self._slots = [(place.get(s.name), described.get(s.name, 0)) for s in signature.slots]
        spare = _MAP_BYTES * len(described) + _MAP_ALIGNMENT if described else 0
        self._type = ctypes.c_char * (self._maps_at + spare)
        self._pack_pointers = struct.Struct(f"={len(signature.slots)}Q").pack_into
        self._pack_addresses = struct.Struct(f"<{len(signature.tensors)}Q").pack_into
        self._pack_scalars = struct.Struct("<" + "".join(SCALAR_FORMATS[s.dtype] for s in signature.scalars)).pack_into
        self._scalars_at = self._at + _SLOT * len(signature.tensors)

    def filled(self, addresses: Sequence[Number], maps: Sequence[bytes]) -> Arguments:
        """Return new memory with everything but the scalars filled in."""
        room = self._type()
        base = ctypes.addressof(room)
        first = _aligned(base + self._maps_at)
        pointers = (
            base + self._at + value if value is not None else first + _MAP_BYTES * index for value, index in self._slots
        )
        self._pack_pointers(room, 0, *pointers)
        ctypes.memmove(base + self._at, self._values, len(self._values))
        self._pack_addresses(room, self._at, *addresses)
        for i, made in enumerate(maps):
            ctypes.memmove(first + _MAP_BYTES * i, made, _MAP_BYTES)
        return room

    def write_scalars(self, room: Arguments, *scalars: Number) -> None:
        """Write the scalars. Raises struct.error or OverflowError for a scalar that its type cannot hold."""
        self._pack_scalars(room, self._scalars_at, *scalars)


def _aligned(address: int) -> int:
    return address + -address % _MAP_ALIGNMENT


def overlapping(apart: Sequence[Apart]) -> Callable[[Sequence[Number]], bool]:
    """Return a function that returns True if tensors at given addresses overlap that must not.

    It is generated as one expression, because a loop would take longer than all other checks of a call.
    """
    pairs = (f"{row.low:d} < v[{row.first:d}] - v[{row.second:d}] < {row.high:d}" for row in apart)
    check: Callable[[Sequence[Number]], bool] = eval(f"lambda v: {' or '.join(pairs) or False}")
    return check


def _blocks(signature: Signature, binding: Binding, function: Function) -> tuple[int, int, int]:
    """Return the blocks to launch: one per program, or, for a persistent kernel, at most as many as run at once."""
    if not signature.persistent:
        return binding.grid
    at_once = function.resident(signature.num_threads, signature.shared_bytes, signature.cluster)
    return min(prod(binding.grid), at_once), 1, 1


def _unused(*_: Any) -> None:
    raise AssertionError("an empty grid is not launched")


_NO_LAUNCHER = Launcher(lambda: 0, lambda _arguments, _stream: (), lambda: 0, _unused)
"""The launcher of an empty grid."""
