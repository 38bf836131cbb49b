"""A prepared launch: what stays from call to call is packed once; a call writes addresses and scalars, and goes."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Protocol

from argus.backend.launch.bind import SCALAR_FORMATS, Binding, check_apart, check_conditions, held
from argus.backend.launch.evaluate import Number
from argus.backend.launch.signature import Signature

_SLOT = 8

Arguments = ctypes.Array[ctypes.c_void_p]
"""Pointers to the values of the entry point's arguments, in its order: what CUDA calls kernelParams."""


class Function(Protocol):
    """A kernel that a driver has loaded."""

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

    __slots__ = ("_apart", "_binding", "_buffer", "_conditions", "_go", "_lock", "_pack", "_signature")

    def __init__(self, signature: Signature, binding: Binding, function: Function) -> None:
        formats = ["Q"] * len(signature.tensors) + [SCALAR_FORMATS[s.dtype] for s in signature.scalars]
        self._signature = signature
        self._binding = binding
        self._apart = binding.apart
        self._conditions = binding.scalar_conditions
        self._pack = struct.Struct("<" + "".join(formats)).pack_into
        self._lock = Lock()
        self._buffer, arguments = _arguments(signature, binding)
        if 0 in binding.grid:
            self._go: Callable[[], None] = _nothing
        else:
            self._go = function.prepare(arguments, binding.grid, signature.num_threads, signature.shared_bytes)

    def run(self, values: Sequence[Number]) -> None:
        """Launches with the tensors' addresses, then the scalars, each in order of the signature.

        Raises LaunchError "overlapping-output", "precondition-failed" or "scalar-argument", and what the device
        says of the launch.
        """
        for first, second, low, high in self._apart:
            if low < values[first] - values[second] < high:
                check_apart(self._signature, self._apart, [int(v) for v in values[: len(self._signature.tensors)]])
        if self._conditions:
            scalars = held(self._signature, self._scalars(values))
            check_conditions(self._conditions, {**self._binding.values, **scalars})
        with self._lock:
            try:
                self._pack(self._buffer, 0, *values)
            except (struct.error, OverflowError):
                held(self._signature, self._scalars(values))
                raise
            self._go()

    def _scalars(self, values: Sequence[Number]) -> dict[str, Number]:
        scalars = self._signature.scalars
        return dict(zip((s.name for s in scalars), values[len(values) - len(scalars) :], strict=True))


def _arguments(signature: Signature, binding: Binding) -> tuple[ctypes.Array[ctypes.c_char], Arguments]:
    """The buffer of values and the pointers into it. The slots that change from call to call come first."""
    kinds = {slot.name: slot.kind for slot in signature.slots}
    changing = [*(t.name for t in signature.tensors), *(s.name for s in signature.scalars)]
    fixed = [name for name in kinds if name not in changing]
    place = {name: _SLOT * i for i, name in enumerate((*changing, *fixed))}
    buffer = ctypes.create_string_buffer(_SLOT * max(len(place), 1))
    for name in fixed:
        struct.pack_into("<i" if kinds[name] == "size" else "<q", buffer, place[name], binding.values[name])
    base = ctypes.addressof(buffer)
    pointers = [base + place[slot.name] for slot in signature.slots]
    return buffer, (ctypes.c_void_p * max(len(pointers), 1))(*pointers)


def _nothing() -> None:
    """The launch of an empty grid."""
