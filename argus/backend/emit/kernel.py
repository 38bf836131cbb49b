"""A whole kernel: signature, prologue, body."""

from __future__ import annotations

from typing_extensions import assert_never

from argus.backend.abi import arguments, entry, shared_bytes
from argus.backend.device_api import cpp_type
from argus.backend.emit.address import pointer_type
from argus.backend.emit.compute import emit_accumulate, emit_map
from argus.backend.emit.copy import emit_copy
from argus.backend.emit.expression import SUM, Printer, natural
from argus.backend.emit.matrix import emit_mma
from argus.backend.emit.names import identifiers
from argus.backend.emit.problem import problem
from argus.backend.emit.registers import register_layout
from argus.backend.emit.scope import Writer
from argus.ir import visit
from argus.ir.nodes import (
    Accumulate,
    AssertTags,
    Barrier,
    CommitGroup,
    Copy,
    For,
    If,
    Kernel,
    Map,
    Mma,
    Spec,
    Stage,
    Stmt,
    Tag,
    WaitGroup,
)


def emit(kernel: Kernel) -> str:
    """The C++ text of an explicit kernel, for any target's header.

    Depends on what the kernel does alone: tags, assertions, specifications, preconditions and spans leave no
    trace. Raises `ArgusError` where a statement has no C++: IR that is not explicit, register tiles indexed
    at run time, layouts that an instruction cannot serve.
    """
    writer = Writer(kernel, identifiers(kernel), set(kernel.sizes))
    for stmt in kernel.body:
        _statement(stmt, writer)
    body, writer.lines = writer.lines, []
    _head(kernel, writer)
    return "\n".join([*writer.lines, *body, "}"]) + "\n"


def _head(kernel: Kernel, writer: Writer) -> None:
    """Everything before the first statement."""
    written = {s.dst.obj for s in visit.walk(kernel.body) if isinstance(s, Copy | Accumulate)}
    tensors = {t.name: t for t in kernel.tensors}
    parameters = []
    for a in arguments(kernel):
        ctype = pointer_type(tensors[a.name], a.name in written) if a.kind == "pointer" else cpp_type(a.dtype)
        parameters.append(f"{ctype} {writer.names[a.name]}")
    writer.lines = [f"ARGUS_KERNEL({entry(kernel)}, {kernel.num_threads})(", *_comma(parameters), ") {"]
    if kernel.shared:
        writer.line(f"ARGUS_SHARED(smem, {shared_bytes(kernel)});")
        for s in kernel.shared:
            extents = "x".join(map(str, s.shape))
            writer.line(f"// smem + {s.offset}: {writer.names[s.name]}, {s.dtype} {extents}, {s.layout}")
    writer.line("const int thread = argus::thread_id();")
    for (ctype, text), name in writer.prologue.items():
        writer.line(f"const {ctype} {name} = {text};")
    for f in kernel.fragments:
        layout = register_layout(f)
        name = writer.names[f.name]
        writer.line(f"alignas(16) {cpp_type(f.dtype)} {name}[{layout.num_values}];  // {layout}")
    writer.line("")


def _comma(items: list[str]) -> list[str]:
    return [f"    {item}{',' if i < len(items) - 1 else ''}" for i, item in enumerate(items)]


def _statement(stmt: Stmt, writer: Writer) -> None:
    match stmt:
        case Copy():
            emit_copy(stmt, writer)
        case Map():
            emit_map(stmt, writer)
        case Accumulate():
            emit_accumulate(stmt, writer)
        case Mma():
            emit_mma(stmt, writer)
        case Barrier():
            writer.line("argus::barrier();")
        case CommitGroup():
            writer.line("argus::cp_async_commit();")
        case WaitGroup(pending=pending):
            writer.line(f"argus::cp_async_wait<{pending}>();")
        case For():
            _loop(stmt, writer)
        case If():
            _branch(stmt, writer)
        case Tag() | AssertTags() | Spec():
            pass
        case Stage():
            raise problem("not-explicit", "a staged copy is a policy: lower the kernel first", stmt.span)
        case _:
            assert_never(stmt)


def _loop(stmt: For, writer: Writer) -> None:
    if stmt.kind != "dynamic":
        raise problem("not-explicit", f"a {stmt.kind} loop is a policy: lower the kernel first", stmt.span)
    printer, name = Printer(writer), writer.names[stmt.var]
    start, stop = printer.text(stmt.start), printer.text(stmt.stop, SUM)
    fresh = stmt.var not in writer.natural and natural(stmt.start, writer.natural)
    if fresh:
        writer.natural.add(stmt.var)
    with writer.block(f"for (int {name} = {start}; {name} < {stop}; {name} += {stmt.step})"):
        for inner in stmt.body:
            _statement(inner, writer)
    if fresh:
        writer.natural.discard(stmt.var)


def _branch(stmt: If, writer: Writer) -> None:
    with writer.block(f"if ({Printer(writer).text(stmt.cond)})"):
        for inner in stmt.then:
            _statement(inner, writer)
    if stmt.orelse:
        with writer.block("else"):
            for inner in stmt.orelse:
                _statement(inner, writer)
