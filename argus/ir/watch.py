"""Statements that show the state of a running kernel: prints and assertions on the device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NewType

from argus.ir.objects import IN_REGISTERS, Access
from argus.ir.statement import Statement
from argus.layout import FragmentLayout

Quoted = NewType("Quoted", str)
"""Text for a reader, which is quoted in the IR's text form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch(Statement):
    """A statement in which each element of the register tile `src` is read by its primary holder. It writes nothing.

    No proof uses the elements as facts or obligations. `layout` is the layout of the tile, or None while it is open.
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
    """Stops the kernel with an error if an element is false. `text` names the assertion's place and its condition."""

    FORM: ClassVar[str] = "device_assert {text} {src} shape {shape}(? layout {layout})"


WATCHES: tuple[type[Watch], ...] = (DevicePrint, DeviceAssert)
"""All kinds of watch statements."""


def line(watch: Watch, kernel: str, program: tuple[str, ...], element: tuple[str, ...], value: str) -> str:
    """Return the printed line, made from the texts of its parts. A failed assertion has no value."""
    at = f"program ({', '.join(program)})" + (f" element ({', '.join(element)})" if element else "")
    match watch:
        case DeviceAssert():
            return f"{watch.text} [{kernel}, {at}]"
        case _:
            return f"{kernel}, {at}: {watch.text} = {value}"
