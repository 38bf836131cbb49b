"""Steps of instructions that reach memory: global, buffer and scratch accesses, and loads straight into LDS.

CDNA3 ISA, chapters 9 and 10. All of them count in `vmcnt`. As LLVM assumes for this target, they are complete in order.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.machine.gfx942.atomics import update
from tests.machine.gfx942.code import Instruction
from tests.machine.gfx942.operands import Operand, Operands
from tests.machine.gfx942.vector import Step
from tests.machine.gfx942.wave import LANES, M0, Flight, Hazard, Wave, Words

Addresses = Callable[[Wave], "tuple[Any, Any]"]
"""Returns the active lanes and the address of each, unsigned 64 bits."""

_NAME = re.compile(r"(global|buffer|scratch)_(load|store)_(lds_)?(\w+?)(_d16)?(_d16_hi)?$")
_ATOMIC = re.compile(r"(global|buffer)_atomic_(\w+)$")


@dataclass(frozen=True, slots=True)
class Width:
    """Bytes of an access, and whether a shorter one than a word has a sign; `half`: it fills the half at that bit."""

    size: int
    signed: bool = False
    half: int | None = None

    @property
    def registers(self) -> int:
        return max(1, self.size // 4)


_WIDTHS = {
    "ubyte": Width(1), "byte": Width(1), "sbyte": Width(1, True), "ushort": Width(2), "short": Width(2),
    "sshort": Width(2, True), "dword": Width(4), "dwordx2": Width(8), "dwordx3": Width(12), "dwordx4": Width(16),
}  # fmt: skip


def step(instruction: Instruction, operands: Operands) -> Step | None:
    """Return the step of an access to memory; None for another instruction."""
    found = _ATOMIC.match(instruction.name)
    if found is not None:
        return _atomic(instruction, operands, found[1], found[2])
    found = _NAME.match(instruction.name)
    if found is None:
        return None
    space, verb, lds, kind, low, high = found.groups()
    width = _WIDTHS[kind]
    if low or high:
        width = Width(width.size, width.signed, 16 if high else 0)
    if space == "scratch":
        return _private(instruction, operands, verb, width)
    if lds or "lds" in operands.modifiers:
        return _to_lds(instruction, _addresses(space, operands, operands.items, 4), operands.number("offset"), width)
    if verb == "load":
        addresses = _addresses(space, operands, operands.items[1:], width.size)
        return _load(instruction, operands.items[0], addresses, width, space)
    at = 0 if space == "buffer" else 1
    rest = tuple(op for n, op in enumerate(operands.items) if n != at)
    return _store(instruction, operands.items[at], _addresses(space, operands, rest, width.size), width, space)


# ---------------------------------------------------------------------------- addresses


def _addresses(space: str, operands: Operands, items: tuple[Operand, ...], size: int) -> Addresses:
    return _global(operands, *items) if space == "global" else _buffer(operands, *items, size)


def _global(operands: Operands, address: Operand, base: Operand) -> Addresses:
    """A pair of registers for each lane, or a base for all and an offset for each, and a constant."""
    offset, n = np.uint64(operands.number("offset") % 2**64), address.number

    def read(wave: Wave) -> tuple[Any, Any]:
        low = wave.vector(n).astype(np.uint64)
        if base.file:
            where = low + np.uint64(wave.pair(base.number))
        else:
            where = low | wave.vector(n + 1).astype(np.uint64) << np.uint64(32)
        return wave.mask.copy(), where + offset

    return read


def _buffer(operands: Operands, offset: Operand, resource: Operand, scalar: Operand, bytes_: int) -> Addresses:
    """A descriptor in 4 scalar registers: lanes whose offset is not below its bytes load 0, and store nothing.

    Offset and constant are added in 32 bits (ROCm/rocm-systems, rocjitsu). An access that is cut by the end is refused:
    chips move its first words.
    """
    constant, by_lane = operands.number("offset"), "offen" in operands.modifiers
    if "idxen" in operands.modifiers:
        raise NotImplementedError("buffer accesses by index")

    def read(wave: Wave) -> tuple[Any, Any]:
        low, high, size = (wave.scalar(resource.number + n) for n in range(3))
        if high >> 16 & 0x3FFF:
            raise NotImplementedError("buffers with a stride")
        more = wave.scalar(scalar.number) if scalar.file else scalar.bits("u")
        own = wave.vector(offset.number).astype(np.uint64) if by_lane else np.zeros(LANES, np.uint64)
        own = (own + np.uint64(constant)) & np.uint64(0xFFFFFFFF)
        inside = wave.mask & (own + np.uint64(more) < np.uint64(size))
        if (own + np.uint64(more + bytes_) > np.uint64(size))[inside].any():
            raise Hazard(f"an access of {bytes_} bytes ends behind a buffer of {size}")
        return inside, np.uint64(low | (high & 0xFFFF) << 32) + np.uint64(more) + own

    return read


# ---------------------------------------------------------------------------- loads and stores


def words_of(data: Any, width: Width) -> Words:
    """Return the words of each lane, of its bytes: one row for each register."""
    if width.size % 4 == 0:
        return np.ascontiguousarray(data).view(np.uint32).T
    kind = f"{'i' if width.signed else 'u'}{width.size}"
    return np.ascontiguousarray(data).view(kind).astype(np.int32).view(np.uint32).T


def fill(wave: Wave, first: int, words: Words, active: Any, width: Width) -> None:
    """Put words into the registers of the active lanes."""
    if width.half is not None:
        old = wave.v[first, active] & np.uint32(0xFFFF << (16 - width.half))
        wave.v[first, active] = old | (words[0] & np.uint32(0xFFFF)) << np.uint32(width.half)
        return
    for n, row in enumerate(words):
        wave.v[first + n, active] = row


def _load(instruction: Instruction, into: Operand, addresses: Addresses, width: Width, space: str) -> Step:
    text, first = instruction.text, into.number
    registers = tuple(range(first, first + width.registers))

    def run(wave: Wave) -> None:
        active, where = addresses(wave)
        wave.insist(registers, "vmcnt")
        places = wave.memory.places(where[active], width.size, write=False)
        if space == "buffer":
            wave.v[first : first + width.registers, wave.mask] = 0
        fill(wave, first, words_of(wave.memory.bytes[places], width), active, width)
        wave.begin(Flight(text, {"vmcnt"}, registers))

    return run


def bytes_of(wave: Wave, first: int, width: Width, active: Any) -> Any:
    """Return the bytes of each active lane that a store of registers from `first` on takes."""
    if width.size < 4:
        word = wave.vector(first)[active] >> np.uint32(width.half or 0)
        return np.ascontiguousarray(word[:, None]).view(np.uint8)[:, : width.size]
    wave.insist(range(first, first + width.registers))
    words = wave.v[first : first + width.registers, active]
    return np.ascontiguousarray(words.T).view(np.uint8)


def _store(instruction: Instruction, data: Operand, addresses: Addresses, width: Width, _space: str) -> Step:
    text, first = instruction.text, data.number

    def run(wave: Wave) -> None:
        active, where = addresses(wave)
        places = wave.memory.places(where[active], width.size, write=True)
        wave.memory.bytes[places] = bytes_of(wave, first, width, active)
        wave.begin(Flight(text, {"vmcnt"}))

    return run


def _to_lds(instruction: Instruction, addresses: Addresses, offset: int, width: Width) -> Step:
    """Lane l's bytes arrive at M0 + offset + 4 l (CDNA3 ISA, section 9.1.9)."""
    if width.size != 4:
        raise NotImplementedError(instruction.text)
    text, lanes = instruction.text, 4 * np.arange(LANES, dtype=np.int64)

    def run(wave: Wave) -> None:
        active, where = addresses(wave)
        places = wave.lds.places((wave.scalar(M0) & 0xFFFF) + offset + lanes[wave.mask], 4)
        data = np.zeros((LANES, 4), np.uint8)
        data[active] = wave.memory.bytes[wave.memory.places(where[active], 4, write=False)]
        wave.lds.land(wave, places, data[wave.mask])
        wave.begin(Flight(text, {"vmcnt"}, landing=places))

    return run


def _private(instruction: Instruction, operands: Operands, verb: str, width: Width) -> Step:
    """Memory of a lane, where the compiler keeps what it has no registers for."""
    data = operands.items[0 if verb == "load" else 1]
    own, base = (op for n, op in enumerate(operands.items) if n != (0 if verb == "load" else 1))
    text, constant, first = instruction.text, operands.number("offset"), data.number
    registers = tuple(range(first, first + width.registers))

    def run(wave: Wave) -> None:
        start = np.full(LANES, constant + (wave.scalar(base.number) if base.file else 0), np.int64)
        start += wave.vector(own.number).astype(np.int64) if own.file else 0
        active = np.flatnonzero(wave.mask)
        places = (active[:, None], start[active][:, None] + np.arange(width.size))
        if verb == "load":
            wave.insist(registers, "vmcnt")
            fill(wave, first, words_of(wave.private[places], width), active, width)
        else:
            wave.private[places] = bytes_of(wave, first, width, active)
        wave.begin(Flight(text, {"vmcnt"}, registers if verb == "load" else ()))

    return run


def _atomic(instruction: Instruction, operands: Operands, space: str, kind: str) -> Step:
    """One lane after the other, in their order; `sc0` asks for the old value."""
    returns = "sc0" in operands.modifiers
    items = operands.items
    into, items = (items[0], items[1:]) if returns else (None, items)
    at = 0 if space == "buffer" else 1
    data, rest = items[at], tuple(op for n, op in enumerate(items) if n != at)
    size, function = update(kind)
    addresses, text = _addresses(space, operands, rest, size), instruction.text
    count = size // 4
    registers = tuple(range(into.number, into.number + count)) if into is not None else ()

    def run(wave: Wave) -> None:
        active, where = addresses(wave)
        given = bytes_of(wave, data.number, Width(4 * data.count), active)
        wave.insist(registers, "vmcnt")
        old = np.zeros((len(given), size), np.uint8)
        for n, places in enumerate(wave.memory.places(where[active], size, write=True)):
            old[n] = wave.memory.bytes[places]
            wave.memory.bytes[places] = function(old[n], given[n])
        if into is not None:
            fill(wave, into.number, words_of(old, Width(size)), active, Width(size))
        wave.begin(Flight(text, {"vmcnt"}, registers))

    return run
