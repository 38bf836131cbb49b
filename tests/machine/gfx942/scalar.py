"""Steps of scalar instructions: arithmetic by rows; branches, masks, waits, and loads of scalars."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.machine.gfx942.code import Instruction
from tests.machine.gfx942.operands import Operand, Operands
from tests.machine.gfx942.scalar_rows import ROWS
from tests.machine.gfx942.vector import Step
from tests.machine.gfx942.wave import EXEC, SCALAR, VCC, Flight, Wave

Read = Callable[[Wave], int]


def step(instruction: Instruction, operands: Operands) -> Step | None:
    """Return the step of a scalar instruction; None if it has none."""
    name = instruction.name
    if name in ROWS:
        return _arithmetic(operands, *ROWS[name])
    if name in _MASKS:
        return _mask(operands, _MASKS[name])
    if name in _BRANCHES:
        return _branch(instruction, _BRANCHES[name])
    if name.startswith("s_load_dword"):
        return _load(instruction, operands)
    return _OTHERS[name](instruction, operands) if name in _OTHERS else None


def _arithmetic(operands: Operands, result: str, sources: str, scc: str, function: Any) -> Step:
    readers, items = [], list(operands.items[1:] if result else operands.items)
    own = sources.startswith("@")
    for n, kind in enumerate(sources.removeprefix("@")):
        readers.append(_reader(operands.items[0] if own and n == 0 else items.pop(0), kind))
    write = _writer(operands.items[0], result) if result else None

    def run(wave: Wave) -> None:
        values = [read(wave) for read in readers]
        made = function(wave.scc, *values) if scc.startswith("r") else function(*values)
        if scc == "t":
            wave.scc = bool(made)
            return
        value, flag = made if scc.endswith("c") else (made, wave.scc)
        assert write is not None
        write(wave, value)
        wave.scc = bool(value) if scc == "z" else bool(flag)

    return run


def _reader(op: Operand, kind: str) -> Read:
    wide, signed = kind in "UI", kind in "iI"
    if op.file == "s":
        if not wide:
            return (lambda wave: _with_sign(wave.scalar(op.number), 32)) if signed else (
                lambda wave: wave.scalar(op.number))  # fmt: skip
        return (lambda wave: _with_sign(wave.pair(op.number), 64)) if signed else (lambda wave: wave.pair(op.number))
    bits = op.bits(kind)
    value = {"k": _with_sign(bits & 0xFFFF, 16), "K": bits & 0xFFFF}.get(kind, bits)
    constant = _with_sign(value, 64 if wide else 32) if signed else value
    return lambda _wave: constant


def _with_sign(bits: int, width: int) -> int:
    return bits - (1 << width) if bits >> width - 1 else bits


def _writer(op: Operand, kind: str) -> Callable[[Wave, int], None]:
    if kind in "UI":
        return lambda wave, value: wave.set_pair(op.number, value & (1 << 64) - 1)
    return lambda wave, value: wave.set_scalar(op.number, value)


_MASKS: dict[str, Callable[[int, int], int]] = {
    "s_and_saveexec_b64": lambda a, mask: a & mask,
    "s_or_saveexec_b64": lambda a, mask: a | mask,
    "s_xor_saveexec_b64": lambda a, mask: a ^ mask,
    "s_andn2_saveexec_b64": lambda a, mask: a & ~mask,
}


def _mask(operands: Operands, function: Callable[[int, int], int]) -> Step:
    read, into = _reader(operands.items[1], "U"), operands.items[0].number

    def run(wave: Wave) -> None:
        value, old = read(wave), wave.pair(EXEC)
        wave.set_pair(into, old)
        wave.set_pair(EXEC, function(value, old))
        wave.scc = wave.pair(EXEC) != 0

    return run


_BRANCHES: dict[str, Callable[[Wave], bool]] = {
    "s_branch": lambda _wave: True,
    "s_cbranch_scc0": lambda wave: not wave.scc,
    "s_cbranch_scc1": lambda wave: wave.scc,
    "s_cbranch_vccz": lambda wave: wave.pair(VCC) == 0,
    "s_cbranch_vccnz": lambda wave: wave.pair(VCC) != 0,
    "s_cbranch_execz": lambda wave: wave.pair(EXEC) == 0,
    "s_cbranch_execnz": lambda wave: wave.pair(EXEC) != 0,
}


def _branch(instruction: Instruction, taken: Callable[[Wave], bool]) -> Step:
    target = instruction.target
    assert target is not None

    def run(wave: Wave) -> None:
        if taken(wave):
            wave.place = target

    return run


def _load(instruction: Instruction, operands: Operands) -> Step:
    """Scalar loads return in any order, so that only `lgkmcnt(0)` waits for one."""
    into, base, offset = operands.items
    registers = tuple(range(SCALAR + into.number, SCALAR + into.number + into.count))
    more, text = operands.number("offset"), instruction.text
    place = _reader(offset, "u")

    def run(wave: Wave) -> None:
        data = wave.memory.read(wave.pair(base.number) + place(wave) + more & ~3, 4 * into.count)
        wave.insist(registers)
        for n in range(into.count):
            wave.s[into.number + n] = int.from_bytes(data[4 * n : 4 * n + 4], "little")
        wave.begin(Flight(text, {"lgkmcnt"}, registers, ordered=False))

    return run


_WAIT = re.compile(r"(vmcnt|lgkmcnt)\((\d+)\)")


def _wait(instruction: Instruction, _operands: Operands) -> Step:
    counts = [(name, int(left)) for name, left in _WAIT.findall(instruction.operands)]

    def run(wave: Wave) -> None:
        for name, left in counts:
            wave.lds.landed(wave.wait(name, left))

    return run


def waits(instruction: Instruction, wave: Wave) -> bool:
    """Return True unless this is a wait for which nothing is under way."""
    if instruction.name != "s_waitcnt":
        return True
    return any(len(wave.flights[name]) > int(left) for name, left in _WAIT.findall(instruction.operands))


def _place(instruction: Instruction, operands: Operands) -> Step:
    following = instruction.address + 4
    return lambda wave: wave.set_pair(operands.items[0].number, wave.base + following)


def _jump(_instruction: Instruction, operands: Operands) -> Step:
    def run(wave: Wave) -> None:
        wave.place = wave.pair(operands.items[0].number) - wave.base

    return run


def _meet(_instruction: Instruction, _operands: Operands) -> Step:
    return lambda _wave: True


def _end(_instruction: Instruction, _operands: Operands) -> Step:
    def run(wave: Wave) -> bool:
        wave.ended = True
        return True

    return run


def _nothing(_instruction: Instruction, _operands: Operands) -> Step:
    return lambda _wave: None


_HINTS = ("s_nop", "s_setprio", "s_sleep", "s_icache_inv", "s_dcache_inv", "buffer_inv", "buffer_wbl2", "s_code_end")
_OTHERS: dict[str, Callable[[Instruction, Operands], Step]] = {
    "s_waitcnt": _wait,
    "s_barrier": _meet,
    "s_endpgm": _end,
    "s_getpc_b64": _place,
    "s_setpc_b64": _jump,
    **dict.fromkeys(_HINTS, _nothing),
}
