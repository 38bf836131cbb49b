"""Statements that let a person look into a running kernel: prints and assertions on the device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NewType

from argus.ir.objects import IN_REGISTERS, Access
from argus.ir.statement import Statement
from argus.layout import FragmentLayout

Quoted = NewType("Quoted", str)
"""Text for a person, which stands in quotes in the IR's text form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch(Statement):
    """A statement that reads every element of the register tile `src`, each by its primary holder, and writes nothing.

    What it reads is neither a fact nor an obligation of a proof. `layout` is that of the tile; None while it is open.
    """

    text: Quoted
    src: Access = field(metadata=IN_REGISTERS)
    shape: tuple[int, ...]
    layout: FragmentLayout | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePrint(Watch):
    """Prints one line for each element: the kernel, the program, the element's coordinates, `text`, and the value."""

    FORM: ClassVar[str] = "device_print {text} {src} shape {shape}(? layout {layout})"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAssert(Watch):
    """Stops the kernel with an error if an element is false. `text` says where the assertion stands, and what holds."""

    FORM: ClassVar[str] = "device_assert {text} {src} shape {shape}(? layout {layout})"


WATCHES: tuple[type[Watch], ...] = (DevicePrint, DeviceAssert)
"""All statements of this kind."""


def line(watch: Watch, kernel: str, program: tuple[str, ...], element: tuple[str, ...], value: str) -> str:
    """Return the line that a person reads, from the texts of its parts; a failed assertion has no value."""
    at = f"program ({', '.join(program)})" + (f" element ({', '.join(element)})" if element else "")
    match watch:
        case DeviceAssert():
            return f"{watch.text} [{kernel}, {at}]"
        case _:
            return f"{kernel}, {at}: {watch.text} = {value}"
