"""Emit copies: loads, stores, asynchronous copies, and matrix moves between shared memory and registers."""

from __future__ import annotations

from argus.backend.device_api import cpp_type
from argus.backend.emit.address import global_address, shared_address
from argus.backend.emit.asynchronous import emit_bulk
from argus.backend.emit.copied import check_registers, check_run, check_vector, domain_of, holders, reads
from argus.backend.emit.expression import COMPARISON, SUM, Printer, literal
from argus.backend.emit.problem import problem
from argus.backend.emit.registers import digits
from argus.backend.emit.scope import Domain, Writer
from argus.ir.affine import facts
from argus.ir.expr import Elem
from argus.ir.instruction import INSTRUCTIONS, CopyRow, Ends, Mechanism
from argus.ir.nodes import Access, BulkCopy, Copy, Fragment, Shared, Tensor
from argus.ir.prefix import Inside, along
from argus.ir.reach import steps
from argus.ir.types import DType, boolean, int32
from argus.layout import FragmentLayout, Mode
from argus.layout.fragment import cut


def emit_copy(stmt: Copy, writer: Writer) -> None:
    """Emit one copy statement."""
    dst, src = writer.kernel.object(stmt.dst.obj), writer.kernel.object(stmt.src.obj)
    row = INSTRUCTIONS.get(stmt.instr or "")
    if isinstance(stmt, BulkCopy):
        emit_bulk(stmt, writer)
        return
    match row.mechanism if row is not None else None, dst, src:
        case _, Fragment(), Fragment():
            _move(stmt, writer)
        case (Mechanism.MATRIX, Fragment() as f, Shared() as s) | (Mechanism.MATRIX, Shared() as s, Fragment() as f):
            _matrix_move(stmt, f, s, writer)
        case Mechanism.THREADS, Fragment() as f, (Tensor() | Shared()) as m:
            _between(stmt, f, m, True, writer)
            if f.dtype == boolean and f.layout is not None:
                writer.line(f"argus::truths<{f.layout.num_values}>({writer.names[f.name]});")
        case Mechanism.THREADS, (Tensor() | Shared()) as m, Fragment() as f:
            _between(stmt, f, m, False, writer)
        case Mechanism.ASYNCHRONOUS, Shared(), Tensor():
            (_to_lds if row is not None and row.in_lane_order else _asynchronous)(stmt, dst, src, writer)
        case _:
            raise problem("copy-unsupported", f"no instruction copies `{src.name}` to `{dst.name}` directly",
                          stmt.span, "go through registers: load, then store")  # fmt: skip


# ---------------------------------------------------------------------------- registers and registers


def _move(stmt: Copy, writer: Writer) -> None:
    domain = domain_of(stmt.layout, 1, writer, stmt.span)
    used: list[Access | Elem] = [stmt.dst, stmt.src, *reads(stmt.mask)]
    for each in domain.iterations(used):
        printer = Printer(writer, each)
        dst, src = (printer.register(a) for a in (stmt.dst, stmt.src))
        if stmt.mask is None:
            writer.line(f"{dst} = {src};")
        else:
            other = dst if stmt.other is None else printer.text(stmt.other)
            writer.line(f"{dst} = {printer.text(stmt.mask, COMPARISON)} ? {src} : {other};")


# ---------------------------------------------------------------------------- registers and memory


def _between(stmt: Copy, fragment: Fragment, memory: Tensor | Shared, load: bool, writer: Writer) -> None:
    register, cell = (stmt.dst, stmt.src) if load else (stmt.src, stmt.dst)
    domain = domain_of(stmt.layout, stmt.vector, writer, stmt.span)
    check_vector(domain, stmt.vector, cell, memory, stmt.span, facts(writer.kernel))
    check_registers(domain, fragment, register, stmt.vector)
    used: list[Access | Elem] = [register, *reads(stmt.mask, *cell.index)]
    row = INSTRUCTIONS[stmt.instr or ""]
    _check_reach(row, stmt, cell)
    if isinstance(memory, Tensor) and row.ends is not Ends.WHOLE:
        (_cut if row.ends is Ends.BOTH else _unaligned)(stmt, memory, domain, used, writer)
        return
    with writer.block("" if load else holders(domain.layout, writer, stmt.span)):
        for each in domain.iterations(used):
            printer = Printer(writer, each)
            asked = None if stmt.mask is None else printer.text(stmt.mask)
            mask = None if asked == "true" else asked
            other = None if stmt.other is None else printer.text(stmt.other)
            pointer = f"&{printer.register(register)}"
            if isinstance(memory, Tensor):
                base, offset = global_address(memory, cell.index, each)
                writer.line(_global(row.call, stmt.vector, mask, f"{base}, {offset}", pointer, other if load else None))
            else:
                place = f"smem, {shared_address(memory, cell.index, each)}"
                if cell.block is not None:
                    place = f"{place}, {Printer(writer).text(cell.block)}"
                call = f"argus::{row.call}<{stmt.vector}>({place}, {pointer});"
                if load and mask is not None and other is not None:  # the mask is read once: the load may overwrite it
                    call += f" else {_fill(printer.register(register), other, stmt.vector)}"
                _guarded(writer, mask, call)


def _check_reach(row: CopyRow, stmt: Copy, cell: Access) -> None:
    if row.reach and steps(cell.index, stmt.shape) is None:
        raise problem("copy-unsupported", f"{row.name} counts from a place that all threads have in common", stmt.span,
                      "name another instruction, or none")  # fmt: skip


def _unaligned(stmt: Copy, memory: Tensor, domain: Domain, used: list[Access | Elem], writer: Writer) -> None:
    """Emit the load of vectors that start at any address.

    Vectors are loaded as whole words if all vectors of the thread lie well inside the tensor, else element by element.
    """
    name, vector = writer.names[stmt.dst.obj], stmt.vector
    with writer.braces():
        writer.line(f"argus::Words words[{domain.layout.num_values // vector}];")
        writer.line("bool amid = true;")
        for each in domain.iterations(used):
            printer = Printer(writer, each)
            writer.line(f"amid = amid & argus::is_amid<{vector}>({', '.join(_inside(stmt, domain, printer))});")
        for amid in (True, False):
            with writer.block("if (amid)" if amid else "else"):
                for each in domain.iterations(used):
                    printer = Printer(writer, each)
                    some, *place = _inside(stmt, domain, printer)
                    which, inside = ("_amid", some) if amid else ("", ", ".join((some, *place)))
                    base, offset = global_address(memory, stmt.src.index, each)
                    to = f"words[(&{printer.register(stmt.dst)} - {name}) / {vector}]"
                    writer.line(f"argus::load_words{which}<{vector}>({inside}, {base}, {offset}, {to});")
        for each in domain.iterations(used):
            register = Printer(writer, each).register(stmt.dst)
            writer.line(f"argus::shift_into_place<{vector}>(words[(&{register} - {name}) / {vector}], &{register});")


def _cut(stmt: Copy, memory: Tensor, domain: Domain, used: list[Access | Elem], writer: Writer) -> None:
    """Emit the copy of vectors that the mask may cut.

    If the thread's vectors are aligned, whole vectors are loaded first, each by one instruction. Cut vectors, which few
    warps have, follow element by element, and are put into place when all loads are on their way. Unaligned vectors
    are loaded element by element.
    """
    load, vector = memory.name == stmt.src.obj, stmt.vector
    cell, register = (stmt.src, stmt.dst) if load else (stmt.dst, stmt.src)
    name, count, dtype = writer.names[register.obj], domain.layout.num_values, cpp_type(memory.dtype)
    if load and stmt.mask is not None and stmt.other is None:
        raise problem("unaligned-mask", f"{stmt.instr} fills what the mask leaves out", stmt.span, "say with what")

    def each_of(line: str) -> None:
        for each in domain.iterations(used):
            printer = Printer(writer, each)
            place = ", ".join(global_address(memory, cell.index, each))
            inside, to = ", ".join(_inside(stmt, domain, printer)), printer.register(register)
            told = {"N": vector, "place": place, "inside": inside, "to": to, "at": to.removeprefix(name)}
            writer.line(line.format(**told))

    if not load:
        with writer.block(holders(domain.layout, writer, stmt.span)):
            each_of("argus::store_global_cut<{N}>({inside}, {place}, &{to});")
        return
    other = literal(0.0, memory.dtype) if stmt.other is None else Printer(writer).text(stmt.other)
    with writer.braces():
        writer.line("bool aligned = true, some = false;")
        each_of("aligned = aligned & argus::is_aligned<{N}>({place});")
        with writer.block("if (aligned)"):
            each_of(f"argus::load_global_whole<{{N}}>({{inside}}, {{place}}, &{{to}}, {other});")
            each_of("some = some | argus::has_ends<{N}>({inside});")
            with writer.block("if (some)"):
                writer.line(f"alignas(16) {dtype} ends[{count}];")
                cut = "if (argus::has_ends<{N}>({inside}))"
                each_of(f"{cut} argus::load_global_each<{{N}}>({{inside}}, {{place}}, &ends{{at}}, {other});")
                each_of(f"{cut} argus::put<{{N}}>(&ends{{at}}, &{{to}});")
        with writer.block("else"):
            each_of(f"argus::load_global_each<{{N}}>({{inside}}, {{place}}, &{{to}}, {other});")


def _global(name: str, vector: int, mask: str | None, place: str, pointer: str, other: str | None) -> str:
    if mask is None:
        return f"argus::{name}<{vector}>({place}, {pointer});"
    if other is not None:
        return f"argus::{name}_or<{vector}>({mask}, {place}, {pointer}, {other});"
    return f"argus::{name}_if<{vector}>({mask}, {place}, {pointer});"


def _inside(stmt: Copy, domain: Domain, printer: Printer) -> tuple[str, ...]:
    """Return the C++ of a masked vector: whether it has elements inside, its first place, and the end of the inside.

    A copy that may cut a vector at both ends also gets the start of the inside, before the end.
    """
    ends = INSTRUCTIONS[stmt.instr or ""].ends
    found, cut = _form(stmt, domain, ends), ends is Ends.BOTH
    if found is None or (not cut and stmt.other is not None and stmt.other.value != 0):
        raise problem("unaligned-mask", f"{stmt.instr} fills with zeros from one place of a vector on", stmt.span,
                      "mask by `index < n` alone, and fill with zeros")  # fmt: skip
    some = "true" if found.rest is None else printer.text(found.rest)
    if found.place is None or found.bound is None:
        return (some, "0", *(("0",) if cut else ()), str(stmt.vector))
    place, end = printer.text(found.place, SUM), printer.text(found.bound)
    if not cut:
        return some, place, end
    start = place if found.start is None else printer.text(found.start)
    inside = printer.below(found.place, found.bound, stmt.vector - 1)
    behind = None if found.start is None else printer.above(found.start, found.place)
    return some, place, _unless(behind, place, start), _unless(inside, f"{place} + {stmt.vector}", end)


def _unless(sure: str | None, met: str, bound: str) -> str:
    """Return `bound`, or `met` where the condition `sure` guarantees that the bound holds."""
    return bound if sure is None else met if sure == "true" else f"{sure} ? {met} : {bound}"


def _form(stmt: Copy, domain: Domain, ends: Ends) -> Inside | None:
    """Return the mask along the vectors, or None if it has another form or its numbers are not int32."""
    axis = next((m.dim for m in domain.layout.values if m.extent > 1), None)
    found = None if axis is None else along(stmt.mask, axis, ends)
    numbers = () if found is None else (found.place, found.start, found.bound)
    return found if all(e is None or e.dtype is int32 for e in numbers) else None


def _guarded(writer: Writer, mask: str | None, call: str) -> None:
    writer.line(call if mask is None else f"if ({mask}) {call}")


def _fill(first: str, other: str, vector: int) -> str:
    if vector == 1:
        return f"{first} = {other};"
    return f"for (int i = 0; i < {vector}; ++i) (&{first})[i] = {other};"


# ---------------------------------------------------------------------------- cp.async


def _asynchronous(stmt: Copy, dst: Shared, src: Tensor, writer: Writer) -> None:
    domain = domain_of(stmt.layout, stmt.vector, writer, stmt.span)
    for access, memory in ((stmt.dst, dst), (stmt.src, src)):
        check_vector(domain, stmt.vector, access, memory, stmt.span, facts(writer.kernel))
    if stmt.other is not None and stmt.other.value != 0:
        raise problem("cp-async-other", f"{stmt.instr} fills masked elements with zeros only", stmt.span,
                      "use `other=0`, or load to registers and store")  # fmt: skip
    name, size = INSTRUCTIONS[stmt.instr or ""].call, stmt.vector * dst.dtype.bytes
    with writer.block(holders(domain.layout, writer, stmt.span)):
        for each in domain.iterations(reads(stmt.mask, *stmt.src.index, *stmt.dst.index)):
            mask = None if stmt.mask is None else Printer(writer, each).text(stmt.mask)
            to = shared_address(dst, stmt.dst.index, each)
            base, offset = global_address(src, stmt.src.index, each)
            if mask is not None and stmt.other is not None:
                writer.line(f"argus::{name}_or_zero<{size}>(smem, {to}, {base}, {offset}, {mask});")
            else:
                _guarded(writer, mask, f"argus::{name}<{size}>(smem, {to}, {base}, {offset});")


# ---------------------------------------------------------------------------- loads to LDS


def _to_lds(stmt: Copy, dst: Shared, src: Tensor, writer: Writer) -> None:
    """Emit loads to LDS. Every lane of every wave issues every load, because a wave counts its instructions."""
    row, domain = INSTRUCTIONS[stmt.instr or ""], domain_of(stmt.layout, stmt.vector, writer, stmt.span)
    name = row.call
    _check_reach(row, stmt, stmt.src)
    for access, memory in ((stmt.dst, dst), (stmt.src, src)):
        check_vector(domain, stmt.vector, access, memory, stmt.span, facts(writer.kernel))
    for each in domain.iterations(reads(stmt.mask, *stmt.src.index, *stmt.dst.index)):
        to = shared_address(dst, stmt.dst.index, each)
        base, offset = global_address(src, stmt.src.index, each)
        if stmt.mask is None:
            writer.line(f"argus::{name}(smem, {to}, {base}, {offset});")
        else:
            mask = Printer(writer, each).text(stmt.mask)
            writer.line(f"argus::{name}_or_zero(smem, {to}, {base}, {offset}, {mask});")


# ---------------------------------------------------------------------------- ldmatrix, stmatrix


def matrix_rows(layout: FragmentLayout, dtype: DType, vector: int, trans: bool) -> FragmentLayout:
    """Return the layout by which lanes address rows: lane 8 * i + r points to the first element of row r of matrix i.

    In `layout` lane l holds four bytes of row l / 4 of each matrix, at byte 4 * (l % 4). If transposed, it holds
    elements 2 * (l % 4) and the next of column l / 4. So the row number consists of digits of the lane (and of the
    value, if transposed), and the matrix number of the value's next digits. The address has no other digits.
    """
    each = 4 // dtype.bytes
    threads, values = layout.threads, layout.values
    rows = (*cut(values, 1, each), *cut(threads, 1, 4)) if trans else cut(threads, 4, 32)
    count = vector // each
    idle = () if count == 4 else (Mode(4 // count, None),)
    lanes = (*rows, *cut(values, each, vector), *idle, *cut(threads, 32))
    return FragmentLayout(layout.shape, lanes, cut(values, vector))


def _matrix_move(stmt: Copy, fragment: Fragment, shared: Shared, writer: Writer) -> None:
    row = INSTRUCTIONS[stmt.instr or ""]
    suffix, load = "_trans" if row.transposed else "", not row.writes_memory
    register, cell = (stmt.dst, stmt.src) if load else (stmt.src, stmt.dst)
    domain = domain_of(stmt.layout, stmt.vector, writer, stmt.span)
    layout, each = domain.layout, 4 // fragment.dtype.bytes
    if stmt.mask is not None:
        raise problem("matrix-move-masked", f"{stmt.instr} moves whole matrices: it takes no mask", stmt.span,
                      "use plain shared loads and stores, or mask the values in registers")  # fmt: skip
    try:
        rows = matrix_rows(layout, fragment.dtype, stmt.vector, bool(suffix))
        run = cut(layout.threads, 4, 32) if suffix else (*cut(layout.values, 1, each), *cut(layout.threads, 1, 4))
    except ValueError as error:
        raise problem("matrix-move-layout", f"{layout} is no layout of {stmt.instr}: {error}", stmt.span) from None
    check_run(run, 16 // fragment.dtype.bytes, cell, shared, stmt.span, facts(writer.kernel))
    check_registers(domain, fragment, register, stmt.vector)
    count = stmt.vector // each
    with writer.block("" if load else holders(layout, writer, stmt.span, 32)):
        for one in domain.iterations([register]):
            at = Domain(writer, rows, digits(rows), stmt.span, one.fixed)
            pointer = f"&{Printer(writer, one).register(register)}"
            address = shared_address(shared, cell.index, at)
            writer.line(f"argus::{row.call}_x{count}{suffix}(smem, {address}, {pointer});")
