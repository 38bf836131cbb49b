"""Warnings about the speed of machine code: what the target's compiler remarked on while it built a kernel."""

from __future__ import annotations

from collections.abc import Iterator

from argus.backend.artifact import SERIALISED, SPILLED, Resources, is_serialised
from argus.diagnostic import Diagnostic, Note, Severity
from argus.ir.instruction import WGMMA
from argus.ir.nodes import Kernel, Mma
from argus.ir.visit import walk
from argus.source import NO_SPAN, Span

_CAUSES: tuple[tuple[str, str, str], ...] = (
    ("insufficient register", "a thread has too few registers for the products in flight",
     "use smaller tiles or more warps, or keep fewer numbers of rows in registers during the loop: `al.stage` them"),
    ("defining input registers", "registers of a left operand are written while a product runs",
     "convert the left operands of all products before the first product whose result is read later"),
    ("reading accumulator registers", "an accumulator is read while its product runs",
     "move what reads the sums behind the last product that runs beside theirs"),
    ("defining accumulator registers", "an accumulator is written while a product runs",
     "begin each sum with `al.zeros`, and rescale sums before the first product that runs beside theirs"),
    ("ill formed pipeline stage", "the compiler does not find the wait that ends the products",
     "write products at the top level of the loop, or in an `if` that all threads decide alike"),
    ("divergent path", "products stand in a branch that threads of a warp decide apart",
     "let the condition depend on sizes, counters and program ids alone"),
    ("unction call", "a function that is not inlined is called while products run",
     "replace what calls it: a division of 64-bit integers is such a function"),
    ("Extern calls", "a function of another file is called", "replace what calls it, such as `al.device_print`"),
)  # fmt: skip
"""A part of the compiler's remark, the cause, and the remedy."""


def remarks(kernel: Kernel, resources: Resources) -> tuple[Diagnostic, ...]:
    """Return a warning for each remark on lost performance, and one if registers are kept in memory."""
    return (*(_remark(kernel, text) for text in resources.warnings), *_spills(kernel, resources))


def _remark(kernel: Kernel, text: str) -> Diagnostic:
    if not is_serialised(text):
        return _warning("slower-code", f"the compiler of `{kernel.name}` remarks: {text}", NO_SPAN, "", "")
    cause, remedy = next(
        ((cause, remedy) for part, cause, remedy in _CAUSES if part in text),
        ("the compiler gives another reason", "leave the products of this kernel without others in flight"),
    )
    message = f"each product of `{kernel.name}` waits for the product before it: {cause}"
    return _warning(SERIALISED, message, _first_product(kernel), text, remedy)


def _spills(kernel: Kernel, resources: Resources) -> Iterator[Diagnostic]:
    if resources.spill_bytes:
        what = f"{resources.spill_bytes} bytes of each thread of `{kernel.name}` are in memory instead of registers"
        remedy = (
            "use smaller tiles or more warps, with extents that are powers of two, so that all threads share them; "
            "index tuples and tiles by constants"
        )
        yield _warning(SPILLED, what, NO_SPAN, "", remedy)


def _first_product(kernel: Kernel) -> Span:
    return next((s.span for s in walk(kernel.body) if isinstance(s, Mma) and s.instr in WGMMA), NO_SPAN)


def _warning(code: str, message: str, span: Span, text: str, help: str) -> Diagnostic:
    notes = (Note(f"the compiler: {text}"),) if text else ()
    return Diagnostic(code, message, span, "speed", Severity.WARNING, notes=notes, help=help)
