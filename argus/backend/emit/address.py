"""Addresses: an index expression split into what is uniform over the block, the thread's, and the loops'
counters.

Shared memory: `x = uniform + thread + counters` (elements), then the layout's XOR. Where these parts share no
bit, XOR acts on each alone, `S(t ^ v) = S(t) ^ S(v)`: the thread's share is computed once in the prologue,
and what is left for the unrolled loops are constants, to XOR where they meet bits of the thread's share and
to add elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import gcd

import numpy as np

from argus.backend.device_api import cpp_type
from argus.backend.emit.expression import ATOM, Printer
from argus.backend.emit.problem import problem
from argus.backend.emit.registers import Digit, Ints, evaluate
from argus.backend.emit.scope import Domain, Writer
from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, Thread, walk
from argus.ir.instruction import WgmmaRow
from argus.ir.nodes import Shared, Tensor
from argus.layout import Layout, Swizzle, SwizzledLayout
from argus.layout.core import flat_modes
from argus.source import Span


@dataclass
class Parts:
    """A sum. `uniform` and `mixed` are (factor, expression); `coords` the factor of each coordinate."""

    constant: int = 0
    uniform: list[tuple[int, Expr]] = field(default_factory=list)
    mixed: list[tuple[int, Expr]] = field(default_factory=list)
    coords: dict[int, int] = field(default_factory=dict)
    threads: list[tuple[int, Expr]] = field(default_factory=list)

    def add(self, expr: Expr, factor: int) -> None:
        """Adds `factor * expr`."""
        match expr:
            case Const(value=value):
                self.constant += factor * int(value)
            case Coord(axis=axis):
                self.coords[axis] = self.coords.get(axis, 0) + factor
            case Op(op="add", args=(x, y)):
                self.add(x, factor)
                self.add(y, factor)
            case Op(op="sub", args=(x, y)):
                self.add(x, factor)
                self.add(y, -factor)
            case Op(op="neg", args=(x,)):
                self.add(x, -factor)
            case Op(op="mul", args=(x, Const(value=value))) | Op(op="mul", args=(Const(value=value), x)):
                self.add(x, factor * int(value))
            case Op(op="cast", args=(x,)) if x.dtype.is_int and expr.dtype.bits >= x.dtype.bits:
                self.add(x, factor)
            case _:
                self._leaf(expr, factor)

    def _leaf(self, expr: Expr, factor: int) -> None:
        seen = {type(e) for e in walk(expr)}
        if seen & {Coord, Elem}:
            self.mixed.append((factor, expr))
        elif Thread in seen:
            other = seen & {Param, ProgramId, LoopVar}
            (self.mixed if other else self.threads).append((factor, expr))
        else:
            self.uniform.append((factor, expr))


def split(expr: Expr) -> Parts:
    """The parts of one index expression."""
    parts = Parts()
    parts.add(expr, 1)
    return parts


def _times(text: str, factor: int) -> str:
    return text if factor == 1 else f"{text} * {factor}"


def _sum(terms: list[str]) -> str:
    return " + ".join(t for t in terms if t != "0") or "0"


# ---------------------------------------------------------------------------- global memory


def global_address(tensor: Tensor, index: tuple[Expr, ...], domain: Domain) -> tuple[str, str]:
    """(`base`, `offset`) of `tensor[index]`: the pointer moved by what is uniform, and the rest, in
    elements.

    The thread's share of the offset is computed once, in the prologue: what is left for a loop is one addition
    of 64 bits a vector, and products of constants with uniform strides.
    """
    printer = Printer(domain.writer, domain)
    base, own, rest = [], [], []
    for expr, stride in zip(index, tensor.strides, strict=True):
        parts = split(expr)
        uniform = _sum([printer.times(e, f) for f, e in parts.uniform] + [str(parts.constant)])
        threads = [
            _times(text, f) for axis, f in parts.coords.items() if f and (text := domain.thread_part(axis)) != "0"
        ]
        threads += [printer.times(e, f) for f, e in parts.threads]
        others = [_times(text, f) for axis, f in parts.coords.items() if f for text in domain.counted(axis)]
        others += [printer.times(e, f) for f, e in parts.mixed]
        base.append(_scaled(uniform, stride, printer))
        own.append(_scaled(_sum(threads), stride, printer))
        rest.append(_scaled(_sum(others), stride, printer))
    name = domain.writer.names[tensor.name]
    moved = _sum(base)
    hoisted = domain.writer.hoist("argus::i64", _sum(own), "p")
    return (name if moved == "0" else f"{name} + ({moved})", _sum([hoisted, *rest]))


def _scaled(text: str, stride: Expr, printer: Printer) -> str:
    """`text * stride` in 64 bits; nothing of it where the text is 0."""
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
    """Byte offset of `shared[index]` in the block's shared memory."""
    layout, offset = shared.layout, shared.offset
    if layout is None or offset is None:
        raise problem("not-explicit", f"shared tile `{shared.name}` has no layout or no offset", shared.span)
    inner = layout.inner if isinstance(layout, SwizzledLayout) else layout
    swizzle = layout.swizzle if isinstance(layout, SwizzledLayout) else None
    start = layout.offset if isinstance(layout, SwizzledLayout) else 0
    modes = tuple(inner)
    size = shared.dtype.bytes
    if all(len(_leaves(m)) == 1 for m in modes):
        parts = Parts(constant=start)
        for expr, mode in zip(index, modes, strict=True):
            parts.add(expr, _leaves(mode)[0][1])
        text = _split_offset(parts, swizzle, size, domain)
        if text is not None:
            return _sum([text, str(offset)])
    return _sum([_whole_offset(index, modes, start, swizzle, size, domain), str(offset)])


def box_origin(shared: Shared, index: tuple[Expr, ...], shape: tuple[int, ...], writer: Writer, span: Span) -> str:
    """Byte offset of a box of `shape` in a shared tile, where a bulk copy puts it.

    The copy engine lays rows of 128 bytes one after the other, in the 128-byte swizzle. Raises `ArgusError`
    "tma-layout" if the tile does not lie so.
    """
    parts = _rows_of_128_bytes(shared, index, span, "tma-layout")
    dense, weight = {}, 1
    for axis in reversed(range(len(shape))):
        dense[axis], weight = weight, weight * shape[axis]
    laid = {axis: parts.coords.get(axis, 0) for axis in dense if shape[axis] > 1}
    if shape[-1] * shared.dtype.bytes != 128 or any(dense[axis] != stride for axis, stride in laid.items()):
        raise problem("tma-layout", f"a box of {shape} does not lie densely in `{shared.name}`", span,
                      "copy boxes of rows of 128 bytes to tiles that hold one after the other")  # fmt: skip
    size = shared.dtype.bytes
    return _sum([*_uniform(parts, Printer(writer), size), str(parts.constant * size + (shared.offset or 0))])


def box_corner(expr: Expr, writer: Writer, span: Span) -> str:
    """Where a box starts along one dimension: the index without its coordinate."""
    parts = split(expr)
    if parts.mixed or parts.threads:
        raise problem("tma-index", "the corner of a bulk copy depends on a thread or an element", span)
    terms = _uniform(parts, Printer(writer), 1)
    return _sum([*terms, str(parts.constant)]) if parts.constant or not terms else _sum(terms)


def matrix_descriptor(
    shared: Shared, index: tuple[Expr, ...], axes: tuple[int, int], row: WgmmaRow, own: Mapping[int, str],
    loops: tuple[Digit, ...], writer: Writer, span: Span,
) -> str:  # fmt: skip
    """The matrix descriptor of an operand at the counters of `loops`; `own` is the warpgroup's share of coordinates.

    Addresses are in units of 16 bytes. Raises `ArgusError` "mma-operand" if rows do not lie as the instruction reads
    them: 128 bytes each, one after the other.
    """
    parts, size = _rows_of_128_bytes(shared, index, span, "mma-operand"), shared.dtype.bytes
    if parts.coords.get(axes[0]) != row.row_bytes // size or parts.coords.get(axes[1]) != 1:
        raise problem("mma-operand", f"rows of `{shared.name}` are not {row.row_bytes} bytes apart", span,
                      f"{row.name} reads rows of {row.row_bytes} bytes along K")  # fmt: skip

    def units(elements: int) -> int:
        if elements * size % 16:
            raise problem("mma-operand", f"an operand of {row.name} starts between units of 16 bytes", span)
        return elements * size // 16

    start = writer.hoist("argus::u64", f"argus::matrix_descriptor(smem, {shared.offset})", "p")
    mine = _sum([_times(own[a], units(f)) for a, f in parts.coords.items() if own.get(a, "0") != "0"])
    if mine != "0":
        start = writer.hoist("argus::u64", f"argus::descriptor_at({start}, argus::uniform({mine}))", "p")
    printer = Printer(writer)
    moving = [printer.times(e, units(f)) for f, e in parts.uniform]
    moving += [_times(d.name, units(parts.coords[d.dim] * d.stride)) for d in loops if d.dim in parts.coords]
    total = _sum([*moving, str(units(parts.constant))])
    return start if total == "0" else f"argus::descriptor_at({start}, {total})"


def _rows_of_128_bytes(shared: Shared, index: tuple[Expr, ...], span: Span, code: str) -> Parts:
    """The offset of `shared[index]` in elements before the swizzle, which must be the 128-byte swizzle."""
    layout, offset, size = shared.layout, shared.offset, shared.dtype.bytes
    wanted = Swizzle(3, (16 // size).bit_length() - 1, 3)
    if not isinstance(layout, SwizzledLayout) or layout.swizzle != wanted or offset is None or offset % 1024:
        raise problem(code, f"shared tile `{shared.name}` is not in the 128-byte swizzle", span,
                      f"give it the swizzle {wanted}, from a multiple of 1024 bytes on")  # fmt: skip
    parts = Parts(constant=layout.offset)
    for expr, mode in zip(index, tuple(layout.inner), strict=True):
        leaves = _leaves(mode)
        if len(leaves) > 1:
            raise problem(code, f"a dimension of `{shared.name}` is made of several", span)
        parts.add(expr, leaves[0][1])
    if parts.mixed or parts.threads:
        raise problem(code, f"the place in `{shared.name}` depends on a thread", span)
    return parts


def _leaves(mode: Layout) -> tuple[tuple[int, int], ...]:
    """(extent, stride) of the digits of one dimension that do move; (1, 0) if there is none."""
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


def _split_offset(parts: Parts, swizzle: Swizzle | None, size: int, domain: Domain) -> str | None:
    """The offset in bytes with the thread's share in the prologue; None if the XOR cannot be taken apart."""
    printer = Printer(domain.writer, domain)
    pieces = _pieces(parts, domain)
    own = [_times(domain.thread_part(axis), f) if domain.thread_part(axis) != "0" else "0"
           for axis, f in parts.coords.items() if f]  # fmt: skip
    own += [printer.times(e, f) for f, e in parts.threads]
    thread = _sum(own)
    if swizzle is None:
        hoisted = domain.writer.hoist("int", _bytes(thread, size), "p")
        terms = [hoisted, *(_sum_mixed(parts, printer, size))]
        terms += [_times(p.name, p.stride * size) if p.name else str(p.stride * size) for p in pieces]
        return _sum([*terms, *_uniform(parts, printer, size), str(parts.constant * size)])
    if parts.mixed:
        return None
    values = _thread_values(parts, domain)
    if parts.constant:
        pieces.append(_Piece("", 1, parts.constant))
    if not _disjoint([values, *(p.values() for p in pieces)]):
        return None
    reach = int(values.max()) + sum(int(p.values().max()) for p in pieces)
    top = max(reach, swizzle.source_mask, swizzle.target_mask).bit_length()
    if gcd(*(f for f, _ in parts.uniform)) % (1 << top):
        return None
    hoisted = _swizzled_thread(thread, int(np.bitwise_or.reduce(values)), swizzle, size, domain)
    supports = [_support(swizzle(values)), *(_support(swizzle(p.values())) for p in pieces)]
    alone = [not any(s & other for j, other in enumerate(supports) if j != i) for i, s in enumerate(supports)]
    crossing = [p for p, single in zip(pieces, alone[1:], strict=True) if not single]
    beside = [p for p, single in zip(pieces, alone[1:], strict=True) if single]
    text = " ^ ".join([hoisted, *(_swizzled(p, swizzle, size) for p in crossing)])
    if crossing and hoisted != "0":
        text = f"({text})"
    added = [_swizzled(p, swizzle, size) for p in beside]
    return _sum([text, *added, *_uniform(parts, printer, size)])


def _bytes(text: str, size: int) -> str:
    if text == "0" or (size == 1 and "^" not in text):
        return text
    enclosed = f"({text})" if " " in text else text
    return enclosed if size == 1 else f"{enclosed} * {size}"


def _uniform(parts: Parts, printer: Printer, size: int) -> list[str]:
    return [printer.times(e, f * size) for f, e in parts.uniform]


def _sum_mixed(parts: Parts, printer: Printer, size: int) -> list[str]:
    return [printer.times(e, f * size) for f, e in parts.mixed]


def _thread_values(parts: Parts, domain: Domain) -> Ints:
    """int64 `[threads]`: the thread's share of the offset."""
    threads = domain.threads
    zero = domain.layout.coordinates()[:, 0]
    total = np.zeros(threads.shape[0], dtype=np.int64)
    for axis, factor in parts.coords.items():
        total = total + zero[:, axis].astype(np.int64) * factor
    for factor, expr in parts.threads:
        total = total + np.broadcast_to(evaluate(expr, (), threads, domain.span), threads.shape)[:, 0] * factor
    return total


def _support(values: Ints | int) -> int:
    return int(np.bitwise_or.reduce(np.asarray(values).reshape(-1)))


def _disjoint(groups: list[Ints]) -> bool:
    """Whether no bit is set in values of two groups, and none is negative: then + is XOR."""
    seen = 0
    for values in groups:
        if int(values.min()) < 0 or _support(values) & seen:
            return False
        seen |= _support(values)
    return True


def _xor(text: str, support: int, swizzle: Swizzle) -> str:
    """`swizzle(text)` in elements, not enclosed, for an enclosed text with bits of `support` only."""
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
    """A counter's share in bytes: a constant once the loop is unrolled."""
    if not piece.name:
        return str(int(swizzle(piece.stride)) * size)
    support = _support(piece.values())
    if not swizzle.source_mask & support:
        return _times(piece.name, piece.stride * size)
    if piece.extent == 2:
        return _times(piece.name, int(swizzle(piece.stride)) * size)
    return _bytes(_xor(f"({_times(piece.name, piece.stride)})", support, swizzle), size)


def _whole_offset(
    index: tuple[Expr, ...], modes: tuple[Layout, ...], start: int, swizzle: Swizzle | None, size: int,
    domain: Domain,
) -> str:  # fmt: skip
    """The offset in bytes by the layout's formula as it stands, for layouts and indices of any form."""
    printer = Printer(domain.writer, domain)
    terms = [str(start)]
    for expr, mode in zip(index, modes, strict=True):
        coordinate = printer.text(expr, ATOM)
        weight = 1
        leaves = _leaves(mode)
        for n, (extent, stride) in enumerate(leaves):
            digit = coordinate if weight == 1 else f"{coordinate} / {weight}"
            digit = digit if n == len(leaves) - 1 else f"{digit} % {extent}"
            terms.append(_times(digit, stride) if stride else "0")
            weight *= extent
    text = f"({_sum(terms)})"
    if swizzle is not None:
        text = _xor(text, -1, swizzle)
    return _bytes(text, size)


def pointer_type(tensor: Tensor, written: bool) -> str:
    """The C++ type of a tensor's argument."""
    const = "" if written else "const "
    return f"{const}{cpp_type(tensor.dtype)}* ARGUS_RESTRICT"
