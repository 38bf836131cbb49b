"""Run a kernel of a code object: block after block, the waves of a block from barrier to barrier."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from tests.machine.gfx942 import access, lanes, matrix, scalar, shared, vector
from tests.machine.gfx942.code import Code, Descriptor, Instruction
from tests.machine.gfx942.memory import Bytes, Lds, Memory
from tests.machine.gfx942.operands import parse
from tests.machine.gfx942.vector import Step
from tests.machine.gfx942.wave import EXEC, LANES, VECTORS, Hazard, Wave

Place = tuple[Step, int, Instruction]
"""An instruction's step, the address after it, and the instruction."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument at byte `place` of the kernel's block of arguments: `data`, or an address within an array."""

    place: int
    data: bytes = b""
    array: int | None = None
    offset: int = 0


_SCALARS = 128
_ARGUMENTS = 16  # bytes: the block of arguments is aligned to so many, and the compiler loads up to the next multiple
_LIMIT = 5_000_000  # instructions of a block: more are a loop that does not end


def launch(
    code: Code,
    entry: str,
    grid: Sequence[int],
    threads: int,
    arrays: Sequence[tuple[Bytes, bool]],
    arguments: Sequence[Argument],
    visited: set[int] | None = None,
) -> Memory:
    """Run every block, and return the memory that they leave.

    `arrays`: the bytes of each tensor, and whether it may be written. The addresses of instructions that were executed
    are added to `visited`; waits only if there was something to wait for.
    """
    kernel, steps = code.kernels[entry], compiled(code)
    room = np.zeros(-(-max(kernel.argument_bytes, 1) // _ARGUMENTS) * _ARGUMENTS, np.uint8)
    memory = Memory([*arrays, (code.image, False), (room, False)])
    held = memory.array(len(arrays) + 1, room.size)
    for a in arguments:
        data = a.data if a.array is None else (memory.addresses[a.array] + a.offset).to_bytes(8, "little")
        held[a.place : a.place + len(data)] = np.frombuffer(data, np.uint8)
    for z, y, x in product(*(range(n) for n in (*grid, 1, 1, 1)[2::-1])):
        lds = Lds(kernel.shared_bytes)
        waves = [_wave(n, threads, kernel, (x, y, z), memory, lds) for n in range(-(-threads // LANES))]
        _block(steps, waves, lds, visited)
    return memory


def compiled(code: Code) -> dict[int, Place]:
    """Return the step of each instruction by address."""
    return {i.address: (_step(i), i.address + 4 * len(i.words), i) for i in code.instructions}


def _step(instruction: Instruction) -> Step:
    """Return an instruction's step; one that is not known fails where it is executed."""
    name = instruction.name
    if name in _TEXTUAL:
        found = scalar.step(instruction, parse(""))
    else:
        operands = parse(instruction.operands)
        found = (
            scalar.step(instruction, operands)
            or matrix.product(name, operands)
            or vector.step(name, operands)
            or shared.step(instruction, operands)
            or access.step(instruction, operands)
        )
    return found or _unknown(instruction)


_TEXTUAL = ("s_waitcnt", "s_nop", "s_barrier", "s_endpgm", "s_setprio", "s_sleep")


def _unknown(instruction: Instruction) -> Step:
    def run(_wave: Wave) -> None:
        raise NotImplementedError(f"no row for `{instruction.text}`")

    return run


def _wave(number: int, threads: int, kernel: Descriptor, block: Sequence[int], memory: Memory, lds: Lds) -> Wave:
    """A wave as it starts: arguments' address and block ids in scalar registers, thread ids in v0."""
    rng = np.random.default_rng(number)
    v = rng.integers(0, 2**32, (VECTORS, LANES), np.uint32)
    s = [int(x) for x in rng.integers(0, 2**32, _SCALARS)]
    private = rng.integers(0, 256, (LANES, kernel.private_bytes), np.uint8)
    image, arguments = memory.addresses[-2:]
    first = number * LANES
    wave = Wave(number, kernel.entry, image, memory, lds, v, s, private)
    wave.set_pair(EXEC, (1 << min(LANES, threads - first)) - 1)
    v[0] = np.arange(first, first + LANES, dtype=np.uint32)
    for n, name in enumerate(kernel.user):
        wave.set_pair(2 * n, arguments if name == "arguments" else 0)
    for n, value in enumerate(value for value, given in zip(block, kernel.ids, strict=True) if given):
        wave.set_scalar(2 * len(kernel.user) + n, value)
    return wave


def _block(steps: dict[int, Place], waves: list[Wave], lds: Lds, visited: set[int] | None) -> None:
    """Waves that have not ended run, one after the other, until each is at a barrier or has ended; then all meet."""
    running = waves
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        while running:
            for wave in running:
                _until_barrier(steps, wave, visited)
            running = [wave for wave in running if not wave.ended]
            lds.barrier(waves)


def _until_barrier(steps: dict[int, Place], wave: Wave, visited: set[int] | None) -> None:
    for _ in range(_LIMIT):
        step, wave.place, instruction = steps[wave.place]
        if visited is not None and scalar.waits(instruction, wave):
            visited.add(instruction.address)
        try:
            if step(wave):
                return
        except Hazard as hazard:
            where = f"at {instruction.address:#x} `{instruction.text}`, wave {wave.number}"
            raise Hazard(f"{where}: {hazard}") from None
    raise Hazard(f"wave {wave.number}: more than {_LIMIT} instructions without a barrier")


def unknown(code: Code) -> Iterator[str]:
    """Yield the instructions that have no step."""
    for step, _, instruction in compiled(code).values():
        if step.__qualname__.startswith(_unknown.__name__):
            yield instruction.text


__all__ = ["compiled", "lanes", "launch", "unknown"]
