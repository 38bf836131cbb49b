"""Emit conversions of small integers, such as unpacked weights, to 16-bit floats, which hold them exactly.

    map w[c] = bfloat16((words[c / 8] >> c % 8 * 16 & 15) - (zero[c / 128] & 15))

Converting a wide integer takes a slow instruction for each number. The bits of a number below 128 are the last bits of
a bfloat16 from 128 to 255. Two numbers that lie 16 bits apart in a word are therefore converted by a shift, an `and`,
an `or` and one subtraction of two halves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from argus.backend.emit.copied import reads
from argus.backend.emit.expression import Printer
from argus.backend.emit.registers import digits, evaluate
from argus.backend.emit.scope import Domain, Writer
from argus.ir.expr import Const, Coord, Elem, Expr, Op, coords, elements, walk
from argus.ir.interval import WIDE, Interval, operate
from argus.ir.nodes import Map
from argus.ir.types import bfloat16, float16, int32

_MOST = 255
"""The largest integer up to which both types hold every integer, and the differences of two."""
_APART = 16
"""Bits from a number to the next one in a word of two."""


@dataclass(frozen=True, slots=True)
class Integers:
    """The integers `some - less` (or `some`), each from 0 to `most`, a number whose bits are all ones, for the first
    number of each pair of `domain`."""

    some: Expr
    less: Expr | None
    most: int
    domain: Domain


def integers(stmt: Map, writer: Writer) -> Integers | None:
    """Return the small integers that a statement converts to 16-bit floats to fill a whole tile, or None."""
    tile, layout = writer.fragment(stmt.dst.obj), stmt.layout
    match stmt.value:
        case Op(op="cast", args=(whole,), dtype=dtype) if dtype in (bfloat16, float16) and whole.dtype == int32:
            fills = tile is not None and stmt.dst.index == coords(len(stmt.shape)) and layout == tile.layout
        case _:
            return None
    innermost = next((m for m in layout.values if m.extent > 1), None) if layout is not None else None
    if not fills or layout is None or innermost is None or innermost.dim is None or innermost.extent % 2:
        return None
    parts = whole.args if isinstance(whole, Op) and whole.op == "sub" else (whole,)
    ranges = [_range(part) for part in parts]
    most, domain = max(1, *(high for _, high in ranges)), Domain(writer, layout, digits(layout, 2), stmt.span)
    if min(low for low, _ in ranges) < 0 or most > _MOST or not all(_paired(part, domain) for part in parts):
        return None
    ones = (1 << most.bit_length()) - 1
    if any(found[2] != ones for part in parts if (found := _shifted(part)) is not None):
        return None
    return Integers(parts[0], parts[1] if len(parts) > 1 else None, ones, domain)


def _range(expr: Expr) -> Interval:
    match expr:
        case Const(value=value):
            return int(value), int(value)
        case Op(op=name, args=args) if all(a.dtype.is_int for a in args):
            return operate(name, [_range(a) for a in args])
        case _ if expr.dtype.is_int:
            return expr.dtype.integers
        case _:
            return WIDE


def _paired(expr: Expr, domain: Domain) -> bool:
    """Return True if the numbers of every pair are equal, or stand 16 bits apart in the same word."""
    found = _shifted(expr)
    if found is None:
        return _equal(expr, domain)
    word, place, _ = found
    if any(elements(place)):
        return False
    first, second = (evaluate(place, domain.coordinates(i), domain.threads, domain.span) for i in range(2))
    return _equal(word, domain) and bool(np.all(second == first + _APART))


def _shifted(expr: Expr) -> tuple[Expr, Expr, int] | None:
    """Return (word, place, mask) of `word >> place & mask`, a number that lies in half a word."""
    match expr:
        case Op(op="and", args=(Op(op="shr", args=(word, place)), Const(value=mask))) if word.dtype == int32:
            return word, place, int(mask)
        case _:
            return None


def _equal(expr: Expr, domain: Domain) -> bool:
    """Return True if both numbers of every pair read the same registers, and no coordinate."""
    match expr:
        case Elem(obj=name, index=index):
            tile = domain.writer.fragment(name)
            if tile is None:
                return False
            return bool(np.array_equal(domain.registers(tile, index, 0), domain.registers(tile, index, 1)))
        case Op(args=args):
            return all(_equal(a, domain) for a in args)
        case _:
            return not any(isinstance(e, Coord) for e in walk(expr))


def emit_integers(stmt: Map, found: Integers, writer: Writer) -> None:
    """Emit the computation of all integers, two in a word, then their conversion."""
    name, count = writer.names[stmt.dst.obj], found.domain.layout.num_values
    parts = {"some": found.some} | ({} if found.less is None else {"less": found.less})
    with writer.braces():
        for part in parts:
            writer.line(f"unsigned {part}[{count}];")
        for each in found.domain.iterations([stmt.dst, *reads(stmt.value)]):
            printer = Printer(writer, each)
            place = printer.register(stmt.dst).removeprefix(name)
            for part, expr in parts.items():
                writer.line(f"{part}{place} = {_both(expr, printer)};")
        second = "less" if found.less is not None else "nullptr"
        writer.line(f"argus::integers<{count}, {found.most}>(some, {second}, {name});")


def _both(expr: Expr, printer: Printer) -> str:
    """Return a word with both numbers of a pair, among other bits."""
    shifted = _shifted(expr)
    if shifted is None:
        return f"unsigned({printer.text(expr)}) * {(1 << _APART) + 1}u"
    word, place, _ = shifted
    return f"unsigned(argus::shr({printer.text(word)}, {printer.text(place)}))"
