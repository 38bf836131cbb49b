"""Emit shuffles: statements whose values come from the registers of other threads of a warp."""

from __future__ import annotations

from math import prod

import numpy as np

from argus.backend.device_api import cpp_type
from argus.backend.emit.expression import Printer
from argus.backend.emit.problem import problem
from argus.backend.emit.registers import Ints, counters, evaluate, fit, register_layout
from argus.backend.emit.scope import Domain, Writer
from argus.ir.expr import Const, Elem, Expr, Thread, op
from argus.ir.nodes import Fragment, Map
from argus.layout import FragmentLayout, Mode


def _holder(modes: tuple[Mode, ...], index: tuple[Expr, ...], own: bool) -> Expr:
    """Return the number of the thread (or value) that holds the element `index`, built from the layout's digits.

    A digit that moves along no dimension is that of the current thread if `own`, else 0.
    """
    total: Expr = Const(0)
    weight = 1
    for mode in modes:
        if mode.dim is not None:
            digit = op("mod", op("floordiv", index[mode.dim], Const(mode.stride)), Const(mode.extent))
        else:
            digit = op("mod", op("floordiv", Thread(), Const(weight)), Const(mode.extent)) if own else Const(0)
        total = op("add", total, op("mul", digit, Const(weight)))
        weight *= mode.extent
    return total


def emit_shuffle(stmt: Map, domain: Domain, writer: Writer) -> None:
    """Emit `dst[c] = src[index(c)]`, where lanes of the same warp hold the source."""
    value = stmt.value
    source = writer.fragment(value.obj) if isinstance(value, Elem) else None
    if source is None or not isinstance(value, Elem):
        raise problem("shuffle-form", "a shuffle moves one register tile and computes nothing", stmt.span)
    layout, warp = register_layout(source), writer.kernel.warp_size
    thread, number = _holder(layout.threads, value.index, True), _holder(layout.values, value.index, False)
    lane = op("mod", thread, Const(warp))
    threads, numbers = (tabulate(e, domain) for e in (thread, number))
    _check_source(layout, value, threads, numbers, domain)
    masks = (threads ^ domain.threads) % warp
    same = (masks == masks[0, 0]).all() and (numbers == numbers[:1]).all()
    if same and value.obj != stmt.dst.obj and fit(numbers[0], domain.loops) is not None:
        for each in domain.iterations([stmt.dst]):
            printer, form = Printer(writer, each), fit(numbers[0], domain.loops)
            chosen = str(int(numbers[0, each.combination()])) if each.fixed is not None or form is None else form.text()
            call = f"argus::shuffle_xor({writer.names[source.name]}[{chosen}], {int(masks[0, 0])})"
            writer.line(f"{printer.register(stmt.dst)} = {call};")
        return
    _shuffle_written_out(stmt, source, domain, (lane, number), numbers)


def _shuffle_written_out(stmt: Map, source: Fragment, domain: Domain, holder: tuple[Expr, Expr], numbers: Ints) -> None:
    """Emit a shuffle: all lanes exchange every register that some lane needs, then each lane selects its own."""
    writer, name = domain.writer, domain.writer.names[source.name]
    count = prod(d.extent for d in domain.loops)
    table = counters(domain.loops)
    with writer.braces():
        writer.line(f"{cpp_type(source.dtype)} value[{count}];")
        results: list[str] = []
        for i in range(count):
            fixed = {k: int(column[i]) for k, column in table.items()}
            printer = Printer(writer, Domain(writer, domain.layout, domain.loops, domain.span, fixed))
            lane, number = (printer.text(e) for e in holder)
            for choice in sorted(set(numbers[:, i].tolist())):
                moved = f"argus::shuffle({name}[{choice}], {lane})"
                if (numbers[:, i] == choice).all():
                    writer.line(f"value[{i}] = {moved};")
                else:
                    writer.line(f"{{ const auto moved = {moved}; if ({number} == {choice}) value[{i}] = moved; }}")
            results.append(f"{printer.register(stmt.dst)} = value[{i}];")
        for line in results:
            writer.line(line)


def tabulate(expr: Expr, domain: Domain) -> Ints:
    """Return the values of `expr`, `[threads, combinations]`."""
    shape = (domain.threads.shape[0], prod(d.extent for d in domain.loops))
    return np.broadcast_to(evaluate(expr, domain.coordinates(), domain.threads, domain.span), shape)


def _check_source(layout: FragmentLayout, value: Elem, threads: Ints, numbers: Ints, domain: Domain) -> None:
    warp = domain.writer.kernel.warp_size
    if (threads // warp != domain.threads // warp).any():
        raise problem("shuffle-crosses-warps", f"elements of `{value.obj}` move between warps", domain.span,
                      "shuffles stay within a warp: move the tile through shared memory")  # fmt: skip
    table = layout.coordinates()
    for d, expr in enumerate(value.index):
        if (table[threads, numbers, d] != tabulate(expr, domain)).any():
            raise problem("shuffle-form", f"`{value.obj}` has a layout that no shuffle can read: {layout}",
                          domain.span, "use a layout whose digits do not overlap")  # fmt: skip


# ---------------------------------------------------------------------------- reductions
