"""Steps of vector instructions, made of their rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.machine.gfx942 import lanes
from tests.machine.gfx942.numbers import fused
from tests.machine.gfx942.operands import Operand, Operands
from tests.machine.gfx942.values import Source, sink, source
from tests.machine.gfx942.vector_rows import ROWS
from tests.machine.gfx942.wave import LANES, VCC, Mask, Wave

Step = Callable[[Wave], "bool | None"]
_VCC = Operand("s", VCC, 2)
_SCALES = {"mul:2": 2.0, "mul:4": 4.0, "div:2": 0.5}


def step(name: str, operands: Operands) -> Step | None:
    """Return the step of a vector instruction; None if it has no row."""
    found = lanes.ENCODINGS.search(name)
    base, encoding = (name[: found.start()], found[1]) if found else (name, "")
    if base in _SPECIAL:
        return _SPECIAL[base](operands)
    if base not in ROWS:
        return None
    results, kinds, function = ROWS[base]
    function = _ending(results, operands, function)
    readers = _sources(kinds, len(results), operands, encoding)
    if encoding.endswith("dpp"):
        return _moved(results, kinds, operands, function, readers)
    if encoding == "sdwa" and results != "m":
        return _cut(operands, function, readers)
    sinks = [sink(operands.items[n], kind) for n, kind in enumerate(results)]
    return _several(sinks, function, readers) if len(sinks) > 1 else _single(sinks[0], function, readers)


def _single(write: Any, function: Any, readers: list[Source]) -> Step:
    match readers:
        case [a]:
            return lambda wave: write(wave, function(a(wave)), None)
        case [a, b]:
            return lambda wave: write(wave, function(a(wave), b(wave)), None)
        case _:
            return lambda wave: write(wave, function(*(read(wave) for read in readers)), None)


def _several(sinks: list[Any], function: Any, readers: list[Source]) -> Step:
    def run(wave: Wave) -> None:
        for write, value in zip(sinks, function(*(read(wave) for read in readers)), strict=True):
            write(wave, value, None)

    return run


def _sources(kinds: str, results: int, operands: Operands, encoding: str) -> list[Source]:
    readers: list[Source] = []
    at, own = results, False
    for kind in kinds:
        if kind == "@":
            own = True
        elif kind == ".":
            readers.append(source(Operands((_VCC,)), 0, "m"))
        elif own:
            readers.append(source(Operands(operands.items[:1]), 0, kind))
        else:
            readers.append(_source(kind, at, at - results, operands, encoding))
            at += 1
    return readers


def _source(kind: str, at: int, number: int, operands: Operands, encoding: str) -> Source:
    if encoding != "sdwa":
        return source(operands, at, kind)
    selection = operands.modifiers.get(f"src{number}_sel", "DWORD")
    if kind == "m":
        return source(operands, at, kind)
    if operands.items[at].negative or operands.items[at].absolute:
        raise NotImplementedError("signs of parts of registers")
    return lanes.cut(source(operands, at, "u"), selection, kind, operands.items[at].widened)


def _ending(results: str, operands: Operands, function: Any) -> Any:
    """Apply the modifiers of a result: a factor, and the range from 0 to 1, or that of an unsigned integer."""
    modifiers = operands.modifiers
    factor = next((f for name, f in _SCALES.items() if modifiers.get(name[:3]) == name[4:]), None)
    if factor is None and "clamp" not in modifiers:
        return function
    if results == "u" and factor is None:
        return lambda *values: np.clip(function(*(v.astype(np.int64) for v in values)), 0, 2**32 - 1).astype(np.uint32)
    if results not in ("f", "F"):
        raise NotImplementedError(f"modifiers of a result of kind {results}: {modifiers}")
    high = np.float32(1) if "clamp" in modifiers else np.float32(np.inf)
    low = np.float32(0) if "clamp" in modifiers else -high

    def ended(*values: Any) -> Any:
        return np.clip(function(*values) * np.float32(factor or 1), low, high)

    return ended


def _moved(results: str, kinds: str, operands: Operands, function: Any, readers: list[Source]) -> Step:
    """An instruction whose first source comes from another lane."""
    read = lanes.primitive(operands, len(results))
    sinks = [sink(operands.items[n], kind) for n, kind in enumerate(results)]
    dtype = {"u": np.uint32, "i": np.int32, "f": np.float32}[kinds[0]]

    def run(wave: Wave) -> None:
        value, also = read(wave)
        made = function(value.view(dtype), *(r(wave) for r in readers[1:]))
        for write, part in zip(sinks, made if len(sinks) > 1 else (made,), strict=True):
            write(wave, part, also)

    return run


def _cut(operands: Operands, function: Any, readers: list[Source]) -> Step:
    """An instruction whose result is a part of a register."""
    register = operands.items[0].number
    selection, unused = operands.modifiers.get("dst_sel", "DWORD"), operands.modifiers.get("dst_unused", "UNUSED_PAD")

    def run(wave: Wave) -> None:
        result = np.asarray(function(*(read(wave) for read in readers)))
        wave.set_vector(register, lanes.placed(result, wave.vector(register), selection, unused))

    return run


# ---------------------------------------------------------------------------- what is unlike the others


def _read_first(operands: Operands) -> Step:
    into, register = operands.items[0].number, operands.items[1]
    if register.file == "s":
        return lambda wave: wave.set_scalar(into, wave.scalar(register.number))
    return lambda wave: wave.set_scalar(into, int(wave.vector(register.number)[int(np.argmax(wave.mask))]))


def _number(op: Operand) -> Callable[[Wave], int]:
    if op.file == "s":
        return lambda wave: wave.scalar(op.number)
    return lambda _wave: op.bits("u")


def _read_lane(operands: Operands) -> Step:
    into, register, lane = operands.items
    number = _number(lane)
    return lambda wave: wave.set_scalar(into.number, int(wave.vector(register.number)[number(wave) % LANES]))


def _write_lane(operands: Operands) -> Step:
    register, value, lane = operands.items
    number, what = _number(lane), _number(value)

    def run(wave: Wave) -> None:
        wave.vector(register.number)[number(wave) % LANES] = what(wave)

    return run


def _mixed(upper: bool) -> Callable[[Operands], Step]:
    """A float16 into one half of a register; the other half stays."""

    def make(operands: Operands) -> Step:
        register = operands.items[0].number
        readers = [source(operands, n, "x") for n in (1, 2, 3)]
        shift, kept = np.uint32(16 * upper), np.uint32(0xFFFF if upper else 0xFFFF0000)

        def run(wave: Wave) -> None:
            half = np.asarray(fused(*(read(wave) for read in readers))).astype(np.float16)
            bits = half.view(np.uint16).astype(np.uint32) << shift
            wave.set_vector(register, wave.vector(register) & kept | bits)

        return run

    return make


def _swap(operands: Operands) -> Step:
    a, b = (op.number for op in operands.items)

    def run(wave: Wave) -> None:
        first, second = wave.vector(a).copy(), wave.vector(b).copy()
        wave.set_vector(a, second)
        wave.set_vector(b, first)

    return run


_SPECIAL: dict[str, Callable[[Operands], Step]] = {
    "v_readfirstlane_b32": _read_first,
    "v_readlane_b32": _read_lane,
    "v_writelane_b32": _write_lane,
    "v_fma_mixlo_f16": _mixed(False),
    "v_fma_mixhi_f16": _mixed(True),
    "v_swap_b32": _swap,
    "v_nop": lambda _operands: lambda _wave: None,
}

__all__ = ["Mask", "Step", "step"]
