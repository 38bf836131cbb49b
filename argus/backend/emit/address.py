"""Addresses: split an index expression into a part uniform over the block, the thread's part, and the loop counters'.

An offset in shared memory is `x = uniform + thread + counters` (elements), to which the layout's XOR is applied. If
these parts share no bit, the XOR acts on each part alone, `S(t ^ v) = S(t) ^ S(v)`. The thread's part is then computed
once, in the prologue. Only constants are left for the unrolled loops. A constant is combined by XOR if it overlaps
bits of the thread's part, and added otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np

from argus.backend.device_api import cpp_type
from argus.backend.emit.expression import ATOM, Printer
from argus.backend.emit.problem import problem
from argus.backend.emit.registers import Ints, evaluate
from argus.backend.emit.scope import Domain, Writer
from argus.backend.emit.sums import Parts, addends, sum_text, times_text
from argus.ir.expr import Const, Expr
from argus.ir.nodes import Shared, Tensor
from argus.ir.types import int32
from argus.layout import Layout, Swizzle, SwizzledLayout
from argus.layout.core import flat_modes

# ---------------------------------------------------------------------------- global memory


def global_address(tensor: Tensor, index: tuple[Expr, ...], domain: Domain) -> tuple[str, str]:
    """Return (`base`, `offset`) of `tensor[index]`: the pointer moved by the uniform part, and the rest in elements.

    The thread's part of the offset is computed once, in the prologue. A loop is left with one 64-bit addition per
    vector, and products of constants with uniform strides.
    """
    printer = Printer(domain.writer, domain)
    base, own, rest = [], [], []
    for expr, stride in zip(index, tensor.strides, strict=True):
        parts = addends(expr, domain.layout.shape)
        uniform = sum_text([printer.times(e, f) for f, e in parts.uniform] + [str(parts.constant)])
        threads = [
            times_text(text, f) for axis, f in parts.coords.items() if f and (text := domain.thread_part(axis)) != "0"
        ]
        threads += [printer.times(e, f) for f, e in parts.threads]
        others = [times_text(text, f) for axis, f in parts.coords.items() if f for text in domain.counted(axis)]
        others += [printer.times(e, f) for f, e in parts.mixed]
        base.append(_scaled(uniform, stride, printer))
        own.append(_scaled(sum_text(threads), stride, printer))
        rest.append(_scaled(sum_text(others), stride, printer))
    name = domain.writer.names[tensor.name]
    moved = sum_text(base)
    hoisted = domain.writer.hoist("argus::i64", sum_text(own), "p")
    return (name if moved == "0" else f"{name} + ({moved})", sum_text([hoisted, *rest]))


def _scaled(text: str, stride: Expr, printer: Printer) -> str:
    """Return `text * stride` in 64 bits; "0" if the text is "0"."""
    if text == "0":
        return "0"
    if isinstance(stride, Const) and stride.value == 1:
        return text
    return f"argus::i64({text}) * {printer.factor(stride)}"


# ---------------------------------------------------------------------------- shared memory


@dataclass(frozen=True)
class _Piece:
    """A loop's share of an offset: `name * stride` for name in [0, extent), or the constant `stride`."""

    name: str
    extent: int
    stride: int

    def values(self) -> Ints:
        return np.arange(self.extent, dtype=np.int64) * self.stride if self.name else np.array([self.stride])


def shared_address(shared: Shared, index: tuple[Expr, ...], domain: Domain) -> str:
    """Return the byte offset of `shared[index]` in the block's shared memory."""
    layout, offset = shared.layout, shared.offset
    if layout is None or offset is None:
        raise problem("not-explicit", f"shared tile `{shared.name}` has no layout or no offset", shared.span)
    inner = layout.inner if isinstance(layout, SwizzledLayout) else layout
    swizzle = layout.swizzle if isinstance(layout, SwizzledLayout) else None
    start = layout.offset if isinstance(layout, SwizzledLayout) else 0
    modes = tuple(inner)
    size = shared.dtype.bytes
    parts = _summed(index, modes, start, swizzle is not None)
    near = parts is not None and parts.reach(domain.layout.shape) * size <= int32.integers[1]
    text = _split_offset(parts, swizzle, size, domain) if parts is not None and near else None
    if text is not None:
        return sum_text([text, str(offset)])
    return sum_text([_whole_offset(index, modes, start, swizzle, size, domain), str(offset)])


def _summed(index: tuple[Expr, ...], modes: tuple[Layout, ...], start: int, panels: bool) -> Parts | None:
    """Return the offset before the swizzle as a sum, or None if it is not a sum.

    With `panels`, a dimension of two digits is split into panels of columns.
    """
    parts = Parts(constant=start)
    for expr, mode in zip(index, modes, strict=True):
        match leaves(mode):
            case ((_, stride),):
                parts.add(expr, stride)
            case ((width, near), (_, far)) if panels and parts.add_panels(expr, width, near, far):
                pass
            case _:
                return None
    return parts


def leaves(mode: Layout) -> tuple[tuple[int, int], ...]:
    """Return (extent, stride) of the digits of one dimension with an extent above 1; (1, 0) if there is none."""
    moving = tuple((n, s) for n, s in flat_modes(mode) if n > 1)
    return moving or ((1, 0),)


def _pieces(parts: Parts, domain: Domain) -> list[_Piece]:
    pieces = []
    for d in domain.loops:
        stride = parts.coords.get(d.dim, 0) * d.stride
        if not stride:
            continue
        if domain.fixed is None:
            pieces.append(_Piece(d.name, d.extent, stride))
        elif domain.fixed[d.name]:
            pieces.append(_Piece("", 1, stride * domain.fixed[d.name]))
    return pieces


def _cut_pieces(parts: Parts, domain: Domain) -> list[_Piece] | None:
    """Return the loop counters' parts of coordinates split into panels; None if a panel ends within a loop's step."""
    pieces = []
    for (axis, width, quotient), factor in parts.cuts.items():
        for d in (d for d in domain.loops if d.dim == axis):
            reach = d.extent * d.stride
            if domain.fixed is not None:
                value = domain.fixed[d.name] * d.stride
                value = value // width if quotient else value % width
                pieces += [_Piece("", 1, value * factor)] if value else []
            elif d.stride % width == 0:
                pieces += [_Piece(d.name, d.extent, d.stride // width * factor)] if quotient else []
            elif reach <= width:
                pieces += [] if quotient else [_Piece(d.name, d.extent, d.stride * factor)]
            elif width % d.stride or reach % width:
                return None
            elif quotient:
                pieces.append(_Piece(f"{d.name} / {width // d.stride}", reach // width, factor))
            else:
                pieces.append(_Piece(f"{d.name} % {width // d.stride}", width // d.stride, d.stride * factor))
    return pieces


def _cut_threads(parts: Parts, domain: Domain) -> list[str]:
    """Return the thread's part of coordinates split into panels."""
    terms = []
    for (axis, width, quotient), factor in parts.cuts.items():
        values, text = domain.layout.coordinates()[:, 0, axis], domain.thread_part(axis)
        within = int(values.max()) < width
        if quotient and not within:
            terms.append(times_text(f"{text} / {width}", factor))
        elif not quotient and (values % width).any():
            terms.append(times_text(text if within else f"{text} % {width}", factor))
    return terms


def _split_offset(parts: Parts, swizzle: Swizzle | None, size: int, domain: Domain) -> str | None:
    """Return the offset in bytes, its thread's part in the prologue; None if the XOR cannot be split over the parts."""
    printer = Printer(domain.writer, domain)
    pieces, cut = _pieces(parts, domain), _cut_pieces(parts, domain)
    if cut is None:
        return None
    pieces += cut
    own = [times_text(domain.thread_part(axis), f) if domain.thread_part(axis) != "0" else "0"
           for axis, f in parts.coords.items() if f]  # fmt: skip
    own += [*_cut_threads(parts, domain), *(printer.times(e, f) for f, e in parts.threads)]
    thread = sum_text(own)
    if swizzle is None:
        hoisted = domain.writer.hoist("int", _bytes(thread, size), "p")
        terms = [hoisted, *(_sum_mixed(parts, printer, size))]
        added = [times_text(p.name, p.stride * size) if p.name else str(p.stride * size) for p in pieces]
        return _place(terms, uniform_text(parts, printer, size), added, str(parts.constant * size), domain)
    if parts.mixed:
        return None
    values = _thread_values(parts, domain)
    pieces += [_Piece("", 1, part) for part in _constants(parts.constant, domain.writer)]
    # Multiples of the swizzle's period touch no bit that it reads or changes: they are added after the swizzle.
    period = 1 << max(swizzle.source_mask, swizzle.target_mask).bit_length()
    far = [p for p in pieces if p.stride % period == 0]
    pieces = [p for p in pieces if p.stride % period]
    if not _disjoint([values, *(p.values() for p in pieces)]):
        return None
    if gcd(*(f for f, _ in parts.uniform)) % period:
        return None
    hoisted = _swizzled_thread(thread, int(np.bitwise_or.reduce(values)), swizzle, size, domain)
    supports = [_support(swizzle(values)), *(_support(swizzle(p.values())) for p in pieces)]
    alone = [not any(s & other for j, other in enumerate(supports) if j != i) for i, s in enumerate(supports)]
    crossing = [p for p, single in zip(pieces, alone[1:], strict=True) if not single]
    beside = [p for p, single in zip(pieces, alone[1:], strict=True) if single]
    uniform = uniform_text(parts, printer, size)
    if domain.writer.waves and uniform and all(_support(swizzle(p.values())) < period for p in crossing):
        # What loops change is no part of the bits that the XOR mixes: one register holds it with the thread's part.
        hoisted, uniform = f"argus::place({hoisted}, {sum_text(uniform)})", []
    text = " ^ ".join([hoisted, *(_swizzled(p, swizzle, size) for p in crossing)])
    if crossing and hoisted != "0":
        text = f"({text})"
    added = [_swizzled(p, swizzle, size) for p in beside]
    added += [times_text(p.name, p.stride * size) if p.name else str(p.stride * size) for p in far]
    return _place([text], uniform, added, "0", domain)


def _place(thread: list[str], uniform: list[str], added: list[str], constant: str, domain: Domain) -> str:
    """Return the sum of the thread's part, what is the same in all threads, and constants and unrolled counters.

    Waves add what loops change to the thread's part once, and the accesses add the constants; else the compiler keeps a
    register for each sum of both.
    """
    if domain.writer.waves and uniform and any(text != "0" for text in (*added, constant)):
        return sum_text([f"argus::place({sum_text(thread)}, {sum_text(uniform)})", *added, constant])
    return sum_text([*thread, *added, *uniform, constant])


def _constants(constant: int, writer: Writer) -> tuple[int, ...]:
    """Return the parts of an offset's constant. For waves each bit is one: those that the XOR does not mix with the
    thread's part are added by the access itself, and cost no register for an address of their own."""
    if not writer.waves or constant < 0:
        return (constant,) if constant else ()
    return tuple(1 << bit for bit in range(constant.bit_length()) if constant >> bit & 1)


def _bytes(text: str, size: int) -> str:
    if text == "0" or (size == 1 and "^" not in text):
        return text
    enclosed = f"({text})" if " " in text else text
    return enclosed if size == 1 else f"{enclosed} * {size}"


def uniform_text(parts: Parts, printer: Printer, size: int) -> list[str]:
    """Return the uniform terms of an offset in bytes; `parts` counts elements of `size` bytes."""
    return [printer.times(e, f * size) for f, e in parts.uniform]


def _sum_mixed(parts: Parts, printer: Printer, size: int) -> list[str]:
    return [printer.times(e, f * size) for f, e in parts.mixed]


def _thread_values(parts: Parts, domain: Domain) -> Ints:
    """Return the thread's part of the offset, int64 `[threads]`."""
    threads = domain.threads
    zero = domain.layout.coordinates()[:, 0]
    total = np.zeros(threads.shape[0], dtype=np.int64)
    for axis, factor in parts.coords.items():
        total = total + zero[:, axis].astype(np.int64) * factor
    for (axis, width, quotient), factor in parts.cuts.items():
        digit = zero[:, axis] // width if quotient else zero[:, axis] % width
        total = total + digit.astype(np.int64) * factor
    for factor, expr in parts.threads:
        total = total + np.broadcast_to(evaluate(expr, (), threads, domain.span), threads.shape)[:, 0] * factor
    return total


def _support(values: Ints | int) -> int:
    return int(np.bitwise_or.reduce(np.asarray(values).reshape(-1)))


def _disjoint(groups: list[Ints]) -> bool:
    """Return True if no value is negative and no bit is set in values of two groups, so that + equals XOR."""
    seen = 0
    for values in groups:
        if int(values.min()) < 0 or _support(values) & seen:
            return False
        seen |= _support(values)
    return True


def _xor(text: str, support: int, swizzle: Swizzle) -> str:
    """Return `swizzle(text)` in elements, without parentheses, for a parenthesised text with bits of `support` only."""
    mask = swizzle.source_mask & support
    if not mask:
        return text
    read = text if mask == support else f"({text} & {mask})"
    moved = f"{read} >> {swizzle.shift}" if swizzle.shift >= 0 else f"{read} << {-swizzle.shift}"
    return f"{text} ^ ({moved})"


def _swizzled_thread(thread: str, support: int, swizzle: Swizzle, size: int, domain: Domain) -> str:
    if not swizzle.source_mask & support:
        return domain.writer.hoist("int", _bytes(thread, size), "p")
    plain = domain.writer.hoist("int", thread, "p")
    return domain.writer.hoist("int", _bytes(_xor(plain, support, swizzle), size), "p")


def _swizzled(piece: _Piece, swizzle: Swizzle, size: int) -> str:
    """Return a loop counter's part in bytes, which is a constant once the loop is unrolled."""
    if not piece.name:
        return str(int(swizzle(piece.stride)) * size)
    support = _support(piece.values())
    if not swizzle.source_mask & support:
        return times_text(piece.name, piece.stride * size)
    if piece.extent == 2:
        return times_text(piece.name, int(swizzle(piece.stride)) * size)
    return _bytes(_xor(f"({times_text(piece.name, piece.stride)})", support, swizzle), size)


def _whole_offset(
    index: tuple[Expr, ...], modes: tuple[Layout, ...], start: int, swizzle: Swizzle | None, size: int,
    domain: Domain,
) -> str:  # fmt: skip
    """Return the offset in bytes by the layout's unsimplified formula, for layouts and indices of any form."""
    printer = Printer(domain.writer, domain)
    terms = [str(start)]
    for expr, mode in zip(index, modes, strict=True):
        coordinate = printer.text(expr, ATOM)
        weight = 1
        digits = leaves(mode)
        for n, (extent, stride) in enumerate(digits):
            digit = coordinate if weight == 1 else f"{coordinate} / {weight}"
            digit = digit if n == len(digits) - 1 else f"{digit} % {extent}"
            terms.append(times_text(digit, stride) if stride else "0")
            weight *= extent
    text = f"({sum_text(terms)})"
    if swizzle is not None:
        text = _xor(text, -1, swizzle)
    return _bytes(text, size)


def pointer_type(tensor: Tensor, written: bool) -> str:
    """Return the C++ type of a tensor's argument."""
    const = "" if written else "const "
    return f"{const}{cpp_type(tensor.dtype)}* ARGUS_RESTRICT"
