"""Findings: the results of a property check, before a witness is replayed and shown."""

from __future__ import annotations

from dataclasses import dataclass, field

from argus.diagnostic import Note, Severity, Verdict, Witness
from argus.ir.expr import Const, Expr, Op, ProgramId
from argus.ir.expr import walk as parts
from argus.ir.nodes import Kernel
from argus.ir.visit import map_exprs, walk
from argus.simulate.sizes import integer_parameters
from argus.source import NO_SPAN, Span
from argus.verify.model.isl import Point
from argus.verify.model.program import Site, loops_by_trip
from argus.verify.model.translator import identifier


@dataclass(frozen=True, slots=True)
class FailurePlace:
    """Concrete values at a failure: sizes and integer arguments, block, iteration, element."""

    sizes: dict[str, int]
    block: tuple[int, ...]
    iteration: dict[str, int] = field(default_factory=dict)
    element: tuple[int, ...] = ()
    other_block: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One refuted or undecided obligation. `place` is None if there is nothing to replay."""

    code: str
    property: str
    verdict: Verdict
    message: str
    span: Span = NO_SPAN
    label: str = ""
    help: str = ""
    notes: tuple[Note, ...] = ()
    severity: Severity = Severity.ERROR
    place: FailurePlace | None = None
    arrived: str = ""
    expected: str = ""
    failing: str = ""
    object: str = ""
    """The tensor that is said to differ from its specification; "" for other findings."""
    witness: Witness | None = None
    """The witness of a run that was already made, if `place` is None."""


def unknown(code: str, prop: str, span: Span, message: str, help: str) -> Finding:
    """Make the finding of an undecided obligation, which never counts as proved."""
    return Finding(code, prop, Verdict.UNKNOWN, message, span, help=help)


def refused(code: str, span: Span, message: str, help: str) -> Finding:
    """Make the finding of a machine rule that the kernel breaks in every launch, at no particular element."""
    return Finding(code, "machine", Verdict.REFUTED, message, span, help=help)


def place_of(kernel: Kernel, point: Point, site: Site | None) -> FailurePlace:
    """Return the concrete place of a sampled instance. Unconstrained sizes are 1, and unconstrained program ids 0."""
    loops = site.iterators if site is not None else ()
    trips = loops_by_trip(kernel)
    counters = {}
    for name, value in zip(loops, point.values[: len(loops)], strict=False):
        start, step = trips.get(name, (0, 1))
        counters[name] = start + step * value
    return FailurePlace(
        sizes={name: point.parameters.get(identifier(name), 1) for name in integer_parameters(kernel)},
        block=block_of(kernel, point.parameters),
        iteration=counters,
        element=point.values[len(loops) :],
    )


def axes_help(kernel: Kernel) -> str:
    """Return help for kernels that divide a program id by sizes, which no proof can follow; "" for other kernels."""
    divided = False

    def look(expr: Expr) -> Expr | None:
        nonlocal divided
        match expr:
            case Op(op="floordiv" | "mod", args=(number, divisor)) if not isinstance(divisor, Const):
                divided = divided or any(isinstance(e, ProgramId) for e in parts(number))
        return None

    for stmt in walk(kernel.body):
        map_exprs(stmt, look)
    if not divided:
        return ""
    return (
        "a program id is divided by sizes: declare an axis of the grid for each part, `b, h = al.grid(B, H)`, "
        "and the order in which blocks run with `al.grid(..., group=8)`"
    )


def block_of(kernel: Kernel, parameters: dict[str, int], suffix: str = "") -> tuple[int, ...]:
    """Return the program ids at a sample, one for each axis of the grid (one axis if no grid is declared)."""
    axes = len(kernel.grid) if kernel.grid is not None else 1
    return tuple(parameters.get(f"pid{axis}{suffix}", 0) for axis in range(axes))
