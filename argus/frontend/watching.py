"""Elaborate output from a running kernel: `al.device_print` and `al.device_assert`."""

from __future__ import annotations

from pathlib import PurePath

from argus.frontend import arguments, tiles
from argus.frontend.context import CallSite, Handler
from argus.frontend.values import Nothing, Tile, TupleValue, Value
from argus.ir.expr import coords
from argus.ir.nodes import Access, DeviceAssert, DevicePrint, Watch
from argus.ir.watch import Quoted
from argus.source import Span

LONGEST = 200
"""Largest number of characters in a text that a kernel prints."""


def device_print(call: CallSite) -> Value:
    """Emit one print for each value."""
    text, values = _text(call), call.args["values"]
    if not call.context.target.prints:
        call.context.fail(
            "no-device-print",
            f"kernels print nothing on {call.context.target.name}",
            call.span,
            "run the kernel on the CPU target, store the numbers to a tensor, or leave the print out by a constexpr",
        )
    assert isinstance(values, TupleValue)
    if not values.items:
        call.context.fail(
            "wrong-arguments",
            "nothing is given to print",
            call.span,
            'give values too: `al.device_print("x", x)`',
        )
    for number, value in enumerate(values.items):
        name = text if len(values.items) == 1 else f"{text} [{number}]"
        _emit(call, DevicePrint, name, tiles.as_tile(call.context, value, call.span))
    return Nothing()


def device_assert(call: CallSite) -> Value:
    """Emit an assertion whose text names its file and line."""
    condition, where = arguments.tile(call, "condition"), call.spans["condition"]
    tiles.require_bool(call.context, condition, where, "the condition of `al.device_assert`")
    place = f"{_file(call.span)}:{call.span.line}"
    _emit(call, DeviceAssert, f"{place}: al.device_assert failed: {_text(call) or _source(where)}", condition)
    return Nothing()


def _emit(call: CallSite, kind: type[Watch], text: str, value: Tile) -> None:
    tile = tiles.in_registers(call.context, value, "watched", call.span)
    assert tile.fragment is not None
    src = Access(tile.fragment, coords(len(tile.shape)))
    call.context.emit(kind(text=Quoted(text), src=src, shape=tile.shape), call.span)


def _text(call: CallSite) -> str:
    text, where = arguments.text(call, "text"), call.spans["text"]
    if not text.isprintable() or len(text) > LONGEST:
        what = f"the text of `al.{call.name}` is one line of at most {LONGEST} printable characters"
        call.context.fail("wrong-arguments", what, where, "shorten it, and leave out line breaks")
    return text


def _file(span: Span) -> str:
    name = PurePath(span.file.path).name if span.file is not None else ""
    return "".join(c for c in name if c.isprintable())[:LONGEST] or "kernel"


def _source(span: Span) -> str:
    """Return the text of an expression, or its first line."""
    if span.file is None:
        return "the condition is false"
    line = span.file.line(span.line)
    text = line[span.column - 1 : span.end_column - 1] if span.line == span.end_line else line[span.column - 1 :]
    return "".join(c for c in text if c.isprintable())[:LONGEST]


HANDLERS: dict[str, Handler] = {"device_print": device_print, "device_assert": device_assert}
