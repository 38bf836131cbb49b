"""Steps of LDS instructions: reads, writes, and exchanges between lanes.

CDNA3 ISA, chapter 11. All of them count in `lgkmcnt`, and those of a wave are done in order.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tests.machine.gfx942 import lanes
from tests.machine.gfx942.access import Width, bytes_of, fill, words_of
from tests.machine.gfx942.code import Instruction
from tests.machine.gfx942.operands import Operand, Operands
from tests.machine.gfx942.vector import Step
from tests.machine.gfx942.wave import Flight, Wave

_NAME = re.compile(r"ds_(read|write)(2)?(st64)?_([bui])(\d+)(_d16)?(_d16_hi)?$")


def step(instruction: Instruction, operands: Operands) -> Step | None:
    """Return the step of an LDS instruction; None for another."""
    if instruction.name == "ds_swizzle_b32":
        return _exchange(instruction, operands, lanes.swizzle(instruction.words[0] & 0xFFFF))
    if instruction.name == "ds_bpermute_b32":
        return _exchange(instruction, operands, None)
    found = _NAME.match(instruction.name)
    if found is None:
        return None
    verb, two, far, sign, bits, low, high = found.groups()
    half = 16 if high else 0 if low else None
    width = Width(int(bits) // 8, sign == "i", half)
    scale = width.size * (64 if far else 1)
    offsets = [operands.number(f"offset{n}") * scale for n in (0, 1)] if two else [operands.number("offset")]
    if verb == "read":
        return _read(instruction, operands.items, offsets, width)
    return _write(instruction, operands.items, offsets, width)


def _places(wave: Wave, address: int, offset: int, width: Width) -> Any:
    where = wave.vector(address)[wave.mask].astype(np.int64) + offset
    return wave.lds.places(where % 2**32, width.size)


def _read(instruction: Instruction, items: tuple[Operand, ...], offsets: list[int], width: Width) -> Step:
    first, address, text = items[0].number, items[1].number, instruction.text
    count = width.registers
    registers = tuple(range(first, first + count * len(offsets)))

    def run(wave: Wave) -> None:
        every = [_places(wave, address, offset, width) for offset in offsets]
        wave.insist(registers, "lgkmcnt")
        for n, places in enumerate(every):
            data = wave.lds.read(wave, places)
            fill(wave, first + n * count, words_of(data, width), wave.mask, width)
        touched = np.concatenate([places.ravel() for places in every])
        wave.begin(Flight(text, {"lgkmcnt"}, registers, read=touched))

    return run


def _write(instruction: Instruction, items: tuple[Operand, ...], offsets: list[int], width: Width) -> Step:
    address, text = items[0].number, instruction.text

    def run(wave: Wave) -> None:
        every = [_places(wave, address, offset, width) for offset in offsets]
        for op, places in zip(items[1:], every, strict=True):
            wave.lds.write(wave, places, bytes_of(wave, op.number, width, wave.mask))
        touched = np.concatenate([places.ravel() for places in every])
        wave.begin(Flight(text, {"lgkmcnt"}, written=touched))

    return run


def _exchange(instruction: Instruction, operands: Operands, order: Any) -> Step:
    """Words from other lanes: by a fixed order, or by an address that each lane gives, four bytes a lane."""
    into, text, offset = operands.items[0].number, instruction.text, 0
    value = operands.items[1 if order is not None else 2].number
    if order is None:
        offset = operands.number("offset")

    def run(wave: Wave) -> None:
        source = order
        if source is None:
            source = (wave.vector(operands.items[1].number) + np.uint32(offset) >> np.uint32(2)) % np.uint32(64)
        result = lanes.gathered(wave.vector(value), source, wave.mask)
        wave.set_vector(into, result)
        wave.begin(Flight(text, {"lgkmcnt"}, (into,)))

    return run
