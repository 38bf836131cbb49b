"""Operands as LLVM prints them: registers, constants, and what stands after them."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field

from tests.machine.gfx942.wave import EXEC, M0, VCC

_NAMED = {"vcc": (VCC, 2), "vcc_lo": (VCC, 1), "vcc_hi": (VCC + 1, 1), "m0": (M0, 1), "exec": (EXEC, 2)}
_NAMED |= {"exec_lo": (EXEC, 1), "exec_hi": (EXEC + 1, 1), "flat_scratch": (102, 2), "ttmp9": (117, 1)}
_REGISTER = re.compile(r"([vsa])(?:(\d+)|\[(\d+):(\d+)\])$")
_TWO_PI = "0.15915494"


@dataclass(frozen=True, slots=True)
class Operand:
    """A register of file "v" (accumulation registers from 256), or "s"; or a constant: file "".

    `number`, `count`: the first register and how many; `text`: of a constant. `negative` and `absolute` are applied to
    what is read; `widened`: the part that SDWA selects has a sign.
    """

    file: str
    number: int = 0
    count: int = 1
    text: str = ""
    negative: bool = False
    absolute: bool = False
    widened: bool = False

    def bits(self, kind: str) -> int:
        """Return the bits of a constant as a number of `kind` (see `values`)."""
        text = self.text
        if text == "off":
            return 0
        if "." in text:
            return _float_bits(float(text), kind)
        whole = int(text, 0)
        if text.startswith("0x"):
            return whole << 32 if kind == "d" else whole
        if kind == "d":
            return whole & 0xFFFFFFFFFFFFFFFF
        return whole & (0xFFFFFFFFFFFFFFFF if kind in "UI" else 0xFFFFFFFF)


def _float_bits(value: float, kind: str) -> int:
    form = {"d": "<d", "h": "<e", "H": "<e"}.get(kind, "<f")
    return int.from_bytes(struct.pack(form, value), "little")


@dataclass(frozen=True, slots=True)
class Operands:
    """The operands of an instruction in order, and its modifiers by name ("" for those without a value)."""

    items: tuple[Operand, ...]
    modifiers: dict[str, str] = field(default_factory=dict)

    def number(self, name: str, default: int = 0) -> int:
        """Return a modifier's value as a number."""
        return int(self.modifiers[name], 0) if name in self.modifiers else default

    def bits(self, name: str, default: int) -> tuple[int, ...]:
        """Return a modifier's bits, one for each source (`op_sel:[0,1,0]`)."""
        text = self.modifiers.get(name)
        return (default,) * 3 if text is None else (*(int(t) for t in text.strip("[]").split(",")), 0, 0, 0)


def parse(text: str) -> Operands:
    """Read the operands of an instruction."""
    if not text:
        return Operands(())
    parts = text.split(", ")
    last, *more = re.split(r"\s+", parts[-1].strip())
    modifiers = dict((m.split(":", 1) if ":" in m else (m, "")) for m in more)
    return Operands(tuple(operand(part.strip()) for part in (*parts[:-1], last)), modifiers)


def operand(text: str) -> Operand:
    """Read one operand."""
    widened = text.startswith("sext(")
    inner, negative, absolute = text[5:-1] if widened else text, False, False
    if re.match(r"-[|vsa]", inner):
        inner, negative = inner[1:], True
    if inner.startswith("|"):
        inner, absolute = inner.strip("|"), True
    if inner in _NAMED:
        number, count = _NAMED[inner]
        return Operand("s", number, count, text, negative, absolute, widened)
    found = _REGISTER.match(inner)
    if found is None:
        return Operand("", text=inner)
    file, alone, first, last = found.groups()
    number = int(alone if alone is not None else first)
    count = 1 if alone is not None else int(last) - int(first) + 1
    return Operand("s" if file == "s" else "v", number + 256 * (file == "a"), count, text, negative, absolute, widened)
