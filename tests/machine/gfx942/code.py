"""Code objects: the bytes that are loaded, the kernels in them, and their instructions."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from argus.backend.hip import toolchain

_LINE = re.compile(r"^\s+(\w+)(?:\s(.*?))?\s*// ([0-9A-F]{8,}): ((?:[0-9A-F]{8} ?)+)", re.MULTILINE)
_LOAD, _SYMBOLS = 1, 2
_BRANCHES = ("s_cbranch", "s_branch")


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction at byte `address` of the image; `words` is its encoding."""

    address: int
    name: str
    operands: str
    words: tuple[int, ...]

    @property
    def target(self) -> int | None:
        """The address that a branch goes to; None for other instructions."""
        if not self.name.startswith(_BRANCHES):
            return None
        offset = self.words[0] & 0xFFFF
        return self.address + 4 + 4 * (offset - 0x10000 if offset & 0x8000 else offset)

    @property
    def text(self) -> str:
        return f"{self.name} {self.operands}".rstrip()


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What a kernel's descriptor says: its first instruction, its memory, and what its scalar registers start with."""

    entry: int
    shared_bytes: int
    private_bytes: int
    argument_bytes: int
    user: tuple[str, ...]
    """What the first scalar registers hold, in order, two registers each."""
    ids: tuple[bool, bool, bool]
    """Which of the block's three ids follow them."""


@dataclass(frozen=True, slots=True)
class Code:
    """A code object: the bytes of its image, its kernels by name, and its instructions in order of address."""

    image: NDArray[np.uint8]
    kernels: dict[str, Descriptor]
    instructions: tuple[Instruction, ...]


def load(code_object: bytes) -> Code:
    """Read a code object."""
    image = _image(code_object)
    kernels = {
        name.removesuffix(".kd"): _descriptor(image, address)
        for name, address in _symbols(code_object)
        if name.endswith(".kd")
    }
    return Code(image, kernels, parsed(toolchain.disassemble(code_object)))


def parsed(disassembly: str) -> tuple[Instruction, ...]:
    """Return the instructions of a disassembly."""
    return tuple(
        Instruction(int(address, 16), name, (operands or "").strip(), tuple(int(w, 16) for w in words.split()))
        for name, operands, address, words in _LINE.findall(disassembly)
    )


def _image(code: bytes) -> NDArray[np.uint8]:
    (offset,) = struct.unpack_from("<Q", code, 32)
    size, count = struct.unpack_from("<HH", code, 54)
    parts = []
    for n in range(count):
        kind, _, start, address, _, stored, held = struct.unpack_from("<IIQQQQQ", code, offset + n * size)
        if kind == _LOAD:
            parts.append((address, code[start : start + stored], held))
    image = np.zeros(max(address + held for address, _, held in parts), np.uint8)
    for address, data, _ in parts:
        image[address : address + len(data)] = np.frombuffer(data, np.uint8)
    return image


def _symbols(code: bytes) -> list[tuple[str, int]]:
    (offset,) = struct.unpack_from("<Q", code, 40)
    size, count = struct.unpack_from("<HH", code, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, offset + n * size) for n in range(count)]
    found = []
    for section in sections:
        if section[1] == _SYMBOLS:
            names = sections[section[6]][4]
            for at in range(section[4], section[4] + section[5], 24):
                name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", code, at)
                end = code.index(b"\0", names + name)
                found.append((code[names + name : end].decode(), value))
    return found


_USER = ("buffer", "dispatch", "queue", "arguments", "dispatch_id", "scratch", "private")


def _descriptor(image: NDArray[np.uint8], address: int) -> Descriptor:
    """Read a kernel descriptor (User Guide for AMDGPU Backend, "Kernel Descriptor")."""
    block = image[address : address + 64].tobytes()
    shared, private, arguments = struct.unpack_from("<III", block, 0)
    (start,) = struct.unpack_from("<q", block, 16)
    (resources,) = struct.unpack_from("<I", block, 52)
    properties, preloaded = struct.unpack_from("<HH", block, 56)
    user = tuple(name for bit, name in enumerate(_USER) if properties >> bit & 1)
    if preloaded or set(user) - {"arguments", "dispatch", "queue", "dispatch_id"}:
        raise NotImplementedError(f"initial registers: {user}, {preloaded} preloaded")
    x, y, z = (bool(resources >> bit & 1) for bit in (7, 8, 9))
    return Descriptor(address + start, shared, private, arguments, user, (x, y, z))
