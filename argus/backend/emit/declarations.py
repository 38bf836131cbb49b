"""Declarations before the statements of a kernel or role: thread, values used several times, registers, counters."""

from __future__ import annotations

from argus.backend.device_api import cpp_type
from argus.backend.emit.registers import register_layout
from argus.backend.emit.scope import Writer
from argus.ir import visit
from argus.ir.nodes import For, Fragment, Stmt


def opening(writer: Writer, thread: str, fragments: tuple[Fragment, ...]) -> None:
    """Emit the declarations that the statements of a kernel or role use: thread, prologue variables, registers."""
    writer.line(f"{'int' if writer.kernel.persistent else 'const int'} thread = {thread};")
    prologue(writer, 0)
    for f in fragments:
        layout = register_layout(f)
        name = writer.names[f.name]
        writer.line(f"alignas(16) {cpp_type(f.dtype)} {name}[{layout.num_values}];  // {layout}")
    writer.line("")


def prologue(writer: Writer, start: int) -> None:
    """Emit the variables of the prologue from number `start` on."""
    for (ctype, text), name in list(writer.prologue.items())[start:]:
        writer.line(f"const {ctype} {name} = {text};")


def counts(body: tuple[Stmt, ...], writer: Writer) -> None:
    """Declare the running counters of all loops, which keep their values after the loops."""
    for stmt in visit.walk(body):
        if isinstance(stmt, For) and stmt.counter is not None:
            writer.line(f"unsigned {writer.names[stmt.counter.name]} = 0;")
