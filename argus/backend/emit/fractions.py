"""Emit conversions of packed integers to fractions of 16 bits, two numbers an instruction.

    map w[c] = bfloat16(words[c / 8] >> c % 8 * 16 & 15) * 0.015625 - less[c / 128]

Converting an integer takes a slow instruction for each number. The bits of a number below 256, read as a 16-bit float,
are that number times the least subnormal number. One fused multiplication and addition of two halves therefore makes
two numbers of a word, 16 bits apart. The largest power of 2 of a format leaves a unit of 1 / 64 (bfloat16) or 1 / 512.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from argus.backend.emit.copied import reads
from argus.backend.emit.expression import Printer
from argus.backend.emit.registers import digits, evaluate
from argus.backend.emit.scope import Domain, Writer
from argus.ir.expr import Const, Coord, Elem, Expr, Op, coords, elements, walk
from argus.ir.nodes import Map
from argus.ir.types import DType, bfloat16, float16, int32

UNITS: dict[DType, float] = {bfloat16: 2.0**-6, float16: 2.0**-9}
"""What one is worth in the result, by its dtype."""

_MOST = 255
"""The largest integer whose bits are that many times the least subnormal number, in both dtypes."""
_APART = 16
"""Bits from a number to the next one in a word of two."""


@dataclass(frozen=True, slots=True)
class Fractions:
    """The fractions `unit * (word >> place & most) - less` for the first number of each pair of `domain`."""

    word: Expr
    place: Expr
    most: int
    less: Expr
    domain: Domain


def fractions(stmt: Map, writer: Writer) -> Fractions | None:
    """Return the packed integers that a statement converts to 16-bit floats to fill a whole tile, or None."""
    tile, layout = writer.fragment(stmt.dst.obj), stmt.layout
    match stmt.value:
        case Op(op="sub", args=(Op(op="mul", args=(Op(op="cast", args=(whole,)), Const(value=unit))), less), dtype=to):
            fills = tile is not None and stmt.dst.index == coords(len(stmt.shape)) and layout == tile.layout
        case _:
            return None
    innermost = next((m for m in layout.values if m.extent > 1), None) if layout is not None else None
    if not fills or layout is None or innermost is None or innermost.dim is None or innermost.extent % 2:
        return None
    found, domain = _shifted(whole), Domain(writer, layout, digits(layout, 2), stmt.span)
    if UNITS.get(to) != unit or found is None or not _apart(found, domain) or not _equal(less, domain):
        return None
    return Fractions(*found, less, domain)


def _shifted(expr: Expr) -> tuple[Expr, Expr, int] | None:
    """Return (word, place, most) of `word >> place & most`, where the bits of `most` are all ones."""
    match expr:
        case Op(op="and", args=(Op(op="shr", args=(word, place)), Const(value=most))) if word.dtype == int32:
            return (word, place, int(most)) if 0 < most <= _MOST and not int(most) & (int(most) + 1) else None
        case _:
            return None


def _apart(found: tuple[Expr, Expr, int], domain: Domain) -> bool:
    """Return True if the numbers of every pair stand 16 bits apart in the same word."""
    word, place, most = found
    if any(elements(place)) or not _equal(word, domain):
        return False
    first, second = (evaluate(place, domain.coordinates(i), domain.threads, domain.span) for i in range(2))
    inside = np.all(first >= 0) and np.all(first + most.bit_length() <= _APART)
    return bool(inside and np.all(second == first + _APART))


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


def emit_fractions(stmt: Map, found: Fractions, writer: Writer) -> None:
    """Emit a conversion that `found` describes: one call for each pair of numbers."""
    for each in found.domain.iterations([stmt.dst, *reads(stmt.value)]):
        printer = Printer(writer, each)
        word, place, less = (printer.text(e) for e in (found.word, found.place, found.less))
        pair = printer.register(stmt.dst)
        writer.line(f"argus::fractions<{found.most}>(unsigned({word}), {place}, {less}, &{pair});")
