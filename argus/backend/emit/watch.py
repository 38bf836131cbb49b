"""Emit prints and assertions on the device."""

from __future__ import annotations

import string
from dataclasses import replace

from argus.backend.emit.copied import domain_of, holders
from argus.backend.emit.expression import Printer
from argus.backend.emit.problem import problem
from argus.backend.emit.scope import Domain, Writer
from argus.ir.nodes import DeviceAssert, Watch
from argus.ir.types import DType
from argus.ir.watch import Quoted, line


def emit_watch(stmt: Watch, writer: Writer) -> None:
    """Emit a print or an assertion of each element, by the thread that is its primary holder."""
    domain, fragment = domain_of(stmt.layout, 1, writer, stmt.span), writer.fragment(stmt.src.obj)
    if fragment is None:
        raise problem("element-not-register", f"`{stmt.src.obj}` is not in registers", stmt.span, "load it first")
    with writer.block(holders(domain.layout, writer, stmt.span)):
        for each in domain.iterations([stmt.src]):
            value = Printer(writer, each).register(stmt.src)
            call = _call(stmt, each, fragment.dtype, value, writer)
            writer.line(f"if (!{value}) {call}" if isinstance(stmt, DeviceAssert) else call)


def _call(stmt: Watch, domain: Domain, dtype: DType, value: str, writer: Writer) -> str:
    """Return the call that prints the line of one element, and stops the kernel if an assertion failed."""
    kernel = writer.kernel
    program = [writer.block_id(axis) for axis in range(len(kernel.grid or kernel.program_ids))]
    element = [domain.coordinate(dim) for dim in range(len(stmt.shape))]
    shown, ctype = ("%g", "double") if dtype.is_float else ("%lld", "long long")
    printed = replace(stmt, text=Quoted(stmt.text.replace("%", "%%")))
    form = line(printed, kernel.name, ("%d",) * len(program), ("%d",) * len(element), shown)
    if isinstance(stmt, DeviceAssert):
        return f"argus::fail({', '.join([quoted(form), *program, *element])});"
    number = f"static_cast<{ctype}>({_plain(value, dtype)})"
    form = quoted(f"{form}\n")
    return f"argus::print({', '.join([form, *program, *element, number])});"


def _plain(value: str, dtype: DType) -> str:
    """Return a value as a C++ number. The narrow floats are not C++ numbers, so they are converted."""
    return f"argus::cast<float>({value})" if dtype.is_float and dtype.name != "float32" else value


def quoted(text: str) -> str:
    """Return a string literal of C++: characters other than plain ones are written by their number."""
    plain = {ord(c) for c in " !#$%&'()*+,-./:;<=>@[]^_`{|}~"}
    plain |= set(string.ascii_letters.encode() + string.digits.encode())
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in text.encode()) + '"'
