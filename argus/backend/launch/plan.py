"""A prepared launch: what stays from call to call is packed once; a call writes addresses and scalars, and goes."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from math import prod
from operator import is_
from threading import Lock
from typing import Protocol

from argus.backend.launch.bind import SCALAR_FORMATS, Apart, Binding, Described, check_apart, check_conditions, held
from argus.backend.launch.evaluate import Number
from argus.backend.launch.signature import Signature

_SLOT = 8

_MAP_BYTES, _MAP_ALIGNMENT = 128, 64  # CUDA driver API, CUtensorMap

_ADDRESSES, _AT_ONCE = 256, 8
"""Addresses whose tensor maps a launch keeps, for each map, and how many it finds room for at once: 128 bytes each. The
layers of a model are calls of one launch, each with weights of its own."""

_NOTHING = object()
_UNCHANGING = (int, float, bool)

Arguments = ctypes.Array[ctypes.c_void_p]
"""Pointers to the values of the entry point's arguments, in its order: what CUDA calls kernelParams."""

Encode = Callable[[int, int], None]
"""`encode(address, place)` writes the map of a tensor at `address` to the 128 bytes at `place`."""


class Function(Protocol):
    """A kernel that a driver has loaded."""

    def describe(self, tensor: Described) -> Encode:
        """What writes the tensor map that the kernel wants. The call raises LaunchError for what has no map."""

    def resident(self, threads: int, shared_bytes: int, cluster: int) -> int:
        """How many such blocks the device runs at once, in whole clusters, one or more. Raises as `prepare` does."""

    def prepare(
        self, arguments: Arguments, grid: tuple[int, int, int], threads: int, shared_bytes: int
    ) -> Callable[[], None]:
        """A call that launches the kernel with the values that `arguments` points to at that time.

        `grid` holds no zero. Raises LaunchError if the device cannot run such blocks; so does the call.
        """


class Plan:
    """Launches of one kernel on arguments that differ in addresses and scalars only.

    The lock keeps one thread's addresses from being overwritten by another's before the driver has read them.
    """

    __slots__ = (
        "_accepted", "_binding", "_buffer", "_conditions", "_first", "_go", "_lock", "_maps", "_overlap", "_pack",
        "_placed", "_scalars", "_signature",
    )  # fmt: skip

    def __init__(self, signature: Signature, binding: Binding, function: Function) -> None:
        formats = ["Q"] * len(signature.tensors) + [SCALAR_FORMATS[s.dtype] for s in signature.scalars]
        self._signature = signature
        self._scalars = tuple(s.name for s in signature.scalars)
        self._binding = binding
        self._first = len(signature.tensors)
        self._overlap = _overlap(binding.apart)
        self._accepted: tuple[object, ...] = (_NOTHING,) * len(signature.scalars)
        self._conditions = binding.scalar_conditions
        self._pack = struct.Struct("<" + "".join(formats)).pack_into
        self._lock = Lock()
        self._buffer, arguments = _arguments(signature, binding)
        self._placed: Sequence[Number] | None = None
        self._maps: tuple[_Map, ...] = ()
        self._go: Callable[[], None] = _nothing
        if 0 not in binding.grid:
            self._maps = tuple(
                _Map(signature, tensor, function.describe(tensor), arguments) for tensor in binding.described
            )
            self._go = function.prepare(
                arguments, _blocks(signature, binding, function), signature.num_threads, signature.shared_bytes
            )

    def run(self, values: Sequence[Number]) -> None:
        """Launches with the tensors' addresses, then the scalars, each in order of the signature.

        Raises LaunchError "overlapping-output", "precondition-failed", "scalar-argument" or "tensor-map-refused",
        and what the device says of the launch.
        """
        with self._lock:
            if values != self._placed:
                self._place(values)
            self._go()

    def _place(self, values: Sequence[Number]) -> None:
        """Checks what differs from call to call, and writes it to where the driver reads it."""
        self._placed = None
        if self._overlap(values):
            check_apart(self._signature, self._binding.apart, [int(v) for v in values[: self._first]])
        if self._conditions and not all(map(is_, values[self._first :], self._accepted)):
            self._check_scalars(values)
        try:
            self._pack(self._buffer, 0, *values)
        except (struct.error, OverflowError):
            held(self._signature, self._named_scalars(values))
            raise
        for tensor_map in self._maps:
            if values[tensor_map.position] != tensor_map.address:
                tensor_map.move(int(values[tensor_map.position]))
        if not self._scalars:  # of these, equal ones may differ: 0.0 and -0.0
            self._placed = values

    def _check_scalars(self, values: Sequence[Number]) -> None:
        """Numbers that are the very objects of the last check need no other, as nothing can change them."""
        scalars = held(self._signature, self._named_scalars(values))
        check_conditions(self._conditions, {**self._binding.values, **scalars})
        self._accepted = tuple(v if type(v) in _UNCHANGING else _NOTHING for v in values[self._first :])

    def _named_scalars(self, values: Sequence[Number]) -> dict[str, Number]:
        return dict(zip(self._scalars, values[len(values) - len(self._scalars) :], strict=True))


class _Map:
    """The tensor map of one argument, written again only for an address that is not among the last few."""

    __slots__ = ("_arguments", "_encode", "_free", "_places", "_rooms", "_slot", "address", "position")

    def __init__(self, signature: Signature, tensor: Described, encode: Encode, arguments: Arguments) -> None:
        self._encode, self._arguments = encode, arguments
        self._slot = next(i for i, slot in enumerate(signature.slots) if slot.name == tensor.argument)
        self._rooms: list[ctypes.Array[ctypes.c_char]] = []
        self._free: list[int] = []
        self._places: dict[int, int] = {}  # of the map, by the tensor's address; the one used last is at the end
        self.position, self.address = tensor.position, -1

    def move(self, address: int) -> None:
        """Passes the map of the tensor at `address`. Raises LaunchError "tensor-map-refused"."""
        place = self._places.pop(address, None)
        if place is None:
            if not self._free:
                self._make_room()
            self._encode(address, self._free[-1])
            place = self._free.pop()
        self._places[address] = self._arguments[self._slot] = place
        self.address = address

    def _make_room(self) -> None:
        if len(self._places) >= _ADDRESSES:
            self._free.append(self._places.pop(next(iter(self._places))))
            return
        room = ctypes.create_string_buffer(_AT_ONCE * _MAP_BYTES + _MAP_ALIGNMENT)
        self._rooms.append(room)
        first = ctypes.addressof(room)
        first += -first % _MAP_ALIGNMENT
        self._free += [first + _MAP_BYTES * i for i in range(_AT_ONCE)]


def _overlap(apart: Sequence[Apart]) -> Callable[[Sequence[Number]], bool]:
    """Whether tensors at such addresses share bytes that they must not: one expression, where a loop would cost more
    than the rest of a call's checks."""
    pairs = (f"{row.low:d} < v[{row.first:d}] - v[{row.second:d}] < {row.high:d}" for row in apart)
    check: Callable[[Sequence[Number]], bool] = eval(f"lambda v: {' or '.join(pairs) or False}")
    return check


def _arguments(signature: Signature, binding: Binding) -> tuple[ctypes.Array[ctypes.c_char], Arguments]:
    """The buffer of values and the pointers into it. The slots that change from call to call come first.

    Tensor maps are elsewhere: the first launch fills their pointers in.
    """
    kinds = {slot.name: slot.kind for slot in signature.slots if slot.kind != "tensormap"}
    changing = [*(t.name for t in signature.tensors), *(s.name for s in signature.scalars)]
    fixed = [name for name in kinds if name not in changing]
    place = {name: _SLOT * i for i, name in enumerate((*changing, *fixed))}
    buffer = ctypes.create_string_buffer(_SLOT * max(len(place), 1))
    for name in fixed:
        struct.pack_into("<i" if kinds[name] == "size" else "<q", buffer, place[name], binding.values[name])
    base = ctypes.addressof(buffer)
    pointers = [base + place[slot.name] if slot.name in place else None for slot in signature.slots]
    return buffer, (ctypes.c_void_p * max(len(pointers), 1))(*pointers)


def _blocks(signature: Signature, binding: Binding, function: Function) -> tuple[int, int, int]:
    """The blocks to launch: one for each program, or, of a persistent kernel, no more than run at once."""
    if not signature.persistent:
        return binding.grid
    at_once = function.resident(signature.num_threads, signature.shared_bytes, signature.cluster)
    return min(prod(binding.grid), at_once), 1, 1


def _nothing() -> None:
    """The launch of an empty grid."""
