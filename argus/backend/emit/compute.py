"""Emit elementwise statements and reductions."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from argus.backend.device_api import cpp_type
from argus.backend.emit.address import global_address
from argus.backend.emit.asynchronous import emit_bulk_reduce
from argus.backend.emit.copied import domain_of, holders, reads
from argus.backend.emit.expression import Printer, literal, reduction
from argus.backend.emit.fractions import emit_fractions, fractions
from argus.backend.emit.problem import problem
from argus.backend.emit.registers import register_layout
from argus.backend.emit.scope import Domain, Writer
from argus.backend.emit.shuffles import emit_shuffle, tabulate
from argus.ir.expr import OPERATORS, REDUCTIONS, Const, Coord, Elem, Expr, Op, coords, walk
from argus.ir.instruction import REDUCES
from argus.ir.nodes import Accumulate, Fragment, Map, Tensor
from argus.ir.promise import MODERATE, promised
from argus.ir.types import bfloat16, float8_e4m3fn, float8_e4m3fnuz, float16, float32, int32


def emit_map(stmt: Map, writer: Writer) -> None:
    """Emit `dst = value` elementwise, in the thread's own registers or by a shuffle."""
    domain = domain_of(stmt.layout, 1, writer, stmt.span)
    if stmt.scope == "warp":
        emit_shuffle(stmt, domain, writer)
        return
    if writer.waves and (source := _halved(stmt, writer)) is not None:
        writer.line(f"argus::halve<{domain.layout.num_values}>({writer.names[source]}, {writer.names[stmt.dst.obj]});")
        return
    if (wide := _narrowed(stmt, writer)) is not None:
        _narrow(stmt, wide, domain, writer)
        return
    if (source := _widened(stmt, writer)) is not None:
        writer.line(f"argus::widen<{domain.layout.num_values}>({writer.names[source]}, {writer.names[stmt.dst.obj]});")
        return
    if (small := fractions(stmt, writer)) is not None:
        emit_fractions(stmt, small, writer)
        return
    if writer.waves and (terms := _of_sums(stmt, writer)) is not None:
        _function_of_sums(stmt, terms, domain, writer)
        return
    for each in domain.iterations([stmt.dst, *reads(stmt.value)]):
        printer = Printer(writer, each)
        writer.line(f"{printer.register(stmt.dst)} = {printer.text(stmt.value)};")


def _narrowed(stmt: Map, writer: Writer) -> Expr | None:
    """Return the float32 expression that a statement converts to narrow floats to fill a whole tile, or None.

    Narrow floats have 8 bits. On AMD's GPUs bfloat16 is narrow too, because one instruction packs two of them.
    """
    tile = writer.fragment(stmt.dst.obj)
    match stmt.value:
        case Op(op="cast", args=(wide,), dtype=dtype) if wide.dtype == float32 and (
            (dtype.is_float and dtype.bits == 8) or (dtype == bfloat16 and writer.waves)
        ):
            whole = stmt.dst.index == coords(len(stmt.shape)) and tile is not None and stmt.layout == tile.layout
            return wide if whole and stmt.dst.obj not in {e.obj for e in reads(wide)} else None
        case _:
            return None


def _widened(stmt: Map, writer: Writer) -> str | None:
    """Return the tile of 8 bits that a statement converts to floats of 16 bits, register by register, or None."""
    match stmt.value:
        case Op(op="cast", args=(Elem() as source,), dtype=dtype) if dtype in (bfloat16, float16):
            return source.obj if source.dtype.bits == 8 and _register_by_register(stmt, source, writer) else None
        case _:
            return None


def _halved(stmt: Map, writer: Writer) -> str | None:
    """Return the tile of float8_e4m3fn whose halves a statement makes float8_e4m3fnuz, register by register, or None.
    """
    match stmt.value:
        case Op(op="cast", args=(Op(op="mul", args=(Op(op="cast", args=(Elem() as e,)), Const(value=0.5))) as half,)):
            known = (e.dtype, half.dtype, stmt.value.dtype) == (float8_e4m3fn, float32, float8_e4m3fnuz)
            return e.obj if known and _register_by_register(stmt, e, writer) else None
        case _:
            return None


def _register_by_register(stmt: Map, source: Elem, writer: Writer) -> bool:
    """Return True if a statement fills a whole tile, each register from the same one of the tile `source`."""
    tiles = writer.fragment(source.obj), writer.fragment(stmt.dst.obj)
    whole = source.index == stmt.dst.index == coords(len(stmt.shape))
    return whole and all(tile is not None and tile.layout == stmt.layout for tile in tiles)


def _of_sums(stmt: Map, writer: Writer) -> tuple[Expr, Expr, Expr] | None:
    """Return a, b and c if a statement fills a whole tile with a function of a * b + c, in float32, else None."""
    tile = writer.fragment(stmt.dst.obj)
    match stmt.value:
        case Op(op=name, args=(Op(op="add", args=(Op(op="mul", args=(a, b)), c)),)) if stmt.value.dtype == float32:
            whole = stmt.dst.index == coords(len(stmt.shape)) and tile is not None and stmt.layout == tile.layout
            own = stmt.dst.obj in {e.obj for e in reads(stmt.value)}
            return (a, b, c) if whole and not own and OPERATORS[name].function is not None else None
        case _:
            return None


def _function_of_sums(stmt: Map, terms: tuple[Expr, Expr, Expr], domain: Domain, writer: Writer) -> None:
    """Emit the sums, two per instruction, and then the function of each sum."""
    assert isinstance(stmt.value, Op)
    with writer.braces():
        _sums_of_products(stmt, terms, domain, writer)
        for each in domain.iterations([stmt.dst]):
            cell = Printer(writer, each).register(stmt.dst)
            writer.line(f"{cell} = argus::{stmt.value.op}({cell});")


def _sums_of_products(stmt: Map | Accumulate, terms: tuple[Expr, ...], domain: Domain, writer: Writer) -> None:
    """Emit the two factors of all numbers and, if there is a third term, what they are added to; then the sums."""
    name, count = writer.names[stmt.dst.obj], domain.layout.num_values
    writer.line(f"float _left[{count}], _right[{count}];")
    for each in domain.iterations([stmt.dst, *reads(stmt.value)]):
        printer = Printer(writer, each)
        place = printer.register(stmt.dst).removeprefix(name)
        for side, term in zip(("_left", "_right", name), terms, strict=False):
            writer.line(f"{side}{place} = {printer.text(term)};")
    writer.line(f"argus::add_products<{count}>({name}, _left, _right);")


def _narrow(stmt: Map, wide: Expr, domain: Domain, writer: Writer) -> None:
    """Emit the computation of all numbers, then their conversion, because instructions convert several at a time."""
    name, count = writer.names[stmt.dst.obj], domain.layout.num_values
    with writer.braces():
        writer.line(f"float wide[{count}];")
        for each in domain.iterations([stmt.dst, *reads(wide)]):
            printer = Printer(writer, each)
            place = printer.register(stmt.dst).removeprefix(name)
            writer.line(f"wide{place} = {printer.text(wide)};")
        writer.line(f"argus::narrow{_promise(wide, writer)}<{count}>(wide, {name});")


def _promise(value: Expr, writer: Writer) -> str:
    """Return the ending of the functions that make use of a value's promise, which only AMD's GPUs have."""
    if promised(value) is None or not writer.waves:
        return ""
    return "_moderate" if isinstance(value, Op) and value.op == MODERATE else "_numbers"


# ---------------------------------------------------------------------------- shuffles


def emit_accumulate(stmt: Accumulate, writer: Writer) -> None:
    """Emit `dst = dst op value`: in the thread's registers, across a warp, or atomically in memory."""
    if stmt.instr in REDUCES:
        emit_bulk_reduce(stmt, writer)
        return
    domain = domain_of(stmt.layout, 1, writer, stmt.span)
    target = writer.kernel.object(stmt.dst.obj)
    match target:
        case Tensor():
            _atomic(stmt, target, domain, writer)
        case Fragment() if stmt.scope == "warp":
            _across_warp(stmt, target, domain, writer)
        case Fragment():
            if writer.waves and _folds(stmt, target, domain):
                _fold(stmt, domain, writer)
                return
            if writer.waves and _multiplies(stmt, target, domain):
                _add_products(stmt, domain, writer)
                return
            if not writer.waves and (bound := _bound_of_all(stmt, target, domain)) is not None:
                _largest_below(stmt, bound, domain, writer)
                return
            combine = reduction(stmt.op, target.dtype)
            domain = _last_first(stmt, domain)
            for each in domain.iterations([stmt.dst, *reads(stmt.value, stmt.mask)]):
                printer = Printer(writer, each)
                cell = printer.register(stmt.dst)
                guard = "" if stmt.mask is None else f"if ({printer.text(stmt.mask)}) "
                writer.line(f"{guard}{cell} = {combine(cell, printer.factor(stmt.value))};")
        case _:
            raise problem("accumulate-unsupported", f"`{target.name}` cannot be accumulated into", stmt.span,
                          "accumulate into registers or global memory")  # fmt: skip


def _folds(stmt: Accumulate, target: Fragment, domain: Domain) -> bool:
    """Return True if the statement makes one float32 the largest, the smallest or the sum of several of the thread's
    numbers."""
    many = domain.layout.num_values > 1 and register_layout(target).num_values == 1
    return many and stmt.mask is None and target.dtype == float32 and stmt.op in _FOLDS


_FOLDS = {"maximum": "maximum_of", "minimum": "minimum_of", "add": "sum_of"}


def _fold(stmt: Accumulate, domain: Domain, writer: Writer) -> None:
    """Emit the computation of all numbers, then their reduction, which sums, or looks for NaN, two at a time."""
    count = domain.layout.num_values
    with writer.braces():
        writer.line(f"float _many[{count}];")
        writer.line("int _n = 0;")
        for each in domain.iterations([stmt.dst, *reads(stmt.value)]):
            printer = Printer(writer, each)
            cell = printer.register(stmt.dst)
            writer.line(f"_many[_n++] = {printer.text(stmt.value)};")
        numbers = "" if promised(stmt.value) is None or stmt.op == "add" else "_numbers"
        writer.line(f"{cell} = argus::{_FOLDS[stmt.op]}{numbers}<{count}>({cell}, _many);")


def _bound_of_all(stmt: Accumulate, target: Fragment, domain: Domain) -> Expr | None:
    """Return the bound if the statement makes an integer the largest of those of the thread's numbers that are below
    it, as in `x < bound ? x : least`, and if it is the same for all of them."""
    many = domain.layout.num_values > 1 and register_layout(target).num_values == 1
    match stmt.value:
        case Op(op="where", args=(Op(op="lt", args=(x, bound)), chosen, Const(value=least))) if (
            many and stmt.op == "maximum" and stmt.mask is None and target.dtype == int32 and x == chosen
        ):
            return bound if least == _LEAST and _same_for_all(bound, domain) else None
        case _:
            return None


_LEAST = -(2**31)


def _same_for_all(expr: Expr, domain: Domain) -> bool:
    """Return True if an expression has one value for all numbers of a thread."""
    match expr:
        case Const():
            return True
        case Elem(obj=name, index=index) if (tile := domain.writer.fragment(name)) is not None:
            return bool(np.ptp(domain.registers(tile, index)) == 0)
        case _:
            return False


def _largest_below(stmt: Accumulate, bound: Expr, domain: Domain, writer: Writer) -> None:
    """Emit all numbers, then the largest of those below the bound."""
    assert isinstance(stmt.value, Op)
    count, value = domain.layout.num_values, stmt.value.args[1]
    with writer.braces():
        writer.line(f"int _many[{count}];")
        writer.line("int _n = 0;")
        for each in domain.iterations([stmt.dst, *reads(stmt.value)]):
            printer = Printer(writer, each)
            cell, limit = printer.register(stmt.dst), printer.text(bound)
            writer.line(f"_many[_n++] = {printer.text(value)};")
        writer.line(f"{cell} = argus::largest_below<{count}>({cell}, {limit}, _many);")


def _multiplies(stmt: Accumulate, target: Fragment, domain: Domain) -> bool:
    """Return True if the statement adds a product to every number of a whole float32 tile."""
    match stmt.value:
        case Op(op="mul", args=(a, b)) if stmt.op == "add" and stmt.mask is None:
            whole = stmt.dst.index == coords(len(stmt.shape)) and stmt.layout == target.layout
            floats = target.dtype == a.dtype == b.dtype == float32
            return whole and floats and stmt.dst.obj not in {e.obj for e in reads(stmt.value)}
        case _:
            return False


def _add_products(stmt: Accumulate, domain: Domain, writer: Writer) -> None:
    """Emit the factors of all numbers, then their products and sums, two per instruction."""
    assert isinstance(stmt.value, Op)
    with writer.braces():
        _sums_of_products(stmt, stmt.value.args, domain, writer)


def _last_first(stmt: Accumulate, domain: Domain) -> Domain:
    """Return `domain` with the loops along reduced dimensions that lie within one thread running backwards.

    The element loaded last is then used first. Otherwise the compiler would wait between loads to save registers, and
    fewer loads would be in flight.
    """
    shared = {m.dim for m in domain.layout.threads if m.extent > 1}
    kept = {c.axis for e in stmt.dst.index for c in walk(e) if isinstance(c, Coord)}
    loops = (replace(d, down=d.dim not in shared | kept) for d in domain.loops)
    return replace(domain, loops=tuple(loops))


def _atomic(stmt: Accumulate, tensor: Tensor, domain: Domain, writer: Writer) -> None:
    with writer.block(holders(domain.layout, writer, stmt.span)):
        for each in domain.iterations(reads(stmt.value, stmt.mask, *stmt.dst.index)):
            printer = Printer(writer, each)
            base, offset = global_address(tensor, stmt.dst.index, each)
            guard = "" if stmt.mask is None else f"if ({printer.text(stmt.mask)}) "
            value = printer.text(stmt.value)
            writer.line(f"{guard}argus::atomic_{stmt.op}({base}, {offset}, {value});")


def _across_warp(stmt: Accumulate, target: Fragment, domain: Domain, writer: Writer) -> None:
    """Emit a reduction in which each lane reduces its own elements, then lanes exchange along the bits it crosses."""
    bits = crossed_bits(stmt, target, domain)
    numbers = domain.writer.waves and target.dtype == float32 and promised(stmt.value) is not None
    combine = reduction(stmt.op, target.dtype, numbers)
    count = register_layout(target).num_values
    used = sorted(set(domain.registers(target, stmt.dst.index).tolist()))
    identity = literal(REDUCTIONS[stmt.op](target.dtype), target.dtype)
    name = writer.names[target.name]

    def every(text: str) -> None:
        if used == list(range(count)) and count > 1:
            writer.line("#pragma unroll")
            writer.line(f"for (int r = 0; r < {count}; ++r) {text.format('r')}")
        else:
            for number in used:
                writer.line(text.format(number))

    with writer.braces():
        writer.line(f"{cpp_type(target.dtype)} total[{count}];")
        every(f"total[{{0}}] = {identity};")
        for each in domain.iterations([stmt.dst, *reads(stmt.value, stmt.mask)]):
            printer = Printer(writer, each)
            cell = "total" + printer.register(stmt.dst).removeprefix(name)
            guard = "" if stmt.mask is None else f"if ({printer.text(stmt.mask)}) "
            writer.line(f"{guard}{cell} = {combine(cell, printer.factor(stmt.value))};")
        for bit in bits:
            every(f"total[{{0}}] = {combine('total[{0}]', f'argus::shuffle_xor(total[{{0}}], {bit})')};")
        every(f"{name}[{{0}}] = {combine(f'{name}[{{0}}]', 'total[{0}]')};")


def crossed_bits(stmt: Accumulate, target: Fragment, domain: Domain) -> list[int]:
    """Return the bits of the lane number over which the elements of one cell are spread.

    Raises `ArgusError` "reduction-layout" if exchanges along these bits do not combine all elements of a cell, and
    "reduction-crosses-warps" if other warps hold some of them.
    """
    shape = (domain.threads.shape[0], prod(d.extent for d in domain.loops))
    element, cell = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for coordinate, extent in zip(domain.coordinates(), domain.layout.shape, strict=True):
        element = element * extent + coordinate
    for expr, extent in zip(stmt.dst.index, target.shape, strict=True):
        cell = cell * extent + tabulate(expr, domain)
    bits: list[int] = []
    bit = 1
    while bit < domain.writer.kernel.warp_size:
        other = np.arange(shape[0]) ^ bit
        moved, same = element != element[other], cell == cell[other]
        crossing = moved & same
        if crossing.any() and not crossing.all():
            raise problem("reduction-layout", f"lanes share the elements of a cell of `{target.name}` unevenly",
                          stmt.span, "use powers of two along the reduced dimension")  # fmt: skip
        if crossing.all():
            bits.append(bit)
        bit *= 2
    whole = np.bincount(cell.reshape(-1)[np.unique(element, return_index=True)[1]], minlength=int(cell.max()) + 1)
    own = np.array([np.bincount(row, minlength=whole.size) for row in cell])
    together = own << len(bits)
    if ((own > 0) & (together != whole[None, :])).any():
        raise problem("reduction-crosses-warps", f"elements of one cell of `{target.name}` lie in several warps",
                      stmt.span, "reduce within warps, then through shared memory")  # fmt: skip
    return bits
