"""Launches: the facts that preconditions establish, and the check that some launch meets them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from argus.diagnostic import Note, Severity, Verdict
from argus.ir.contents import extent, possible
from argus.ir.expr import Const, Expr, Op, Param, op, rewrite
from argus.ir.nodes import Arranged, Assume, InRange, Kernel, Precondition, Requires, Scalar, Spec
from argus.ir.types import MAX_EXTENT
from argus.ir.visit import walk
from argus.simulate.usage import usage
from argus.verify.findings import Finding
from argus.verify.model.solver import Solver, z3
from argus.work import Work


def as_launched(kernel: Kernel) -> Kernel:
    """Rename the scalars in floating-point expressions of `requires` preconditions.

    Host and device may round differently: `s + 1.0 > 1.0` may hold at launch, but not in the kernel.
    """

    def change(e: Expr) -> Expr | None:
        return rewrite(e, _of_launch) if isinstance(e, Op) and e.dtype.is_float else None

    required = tuple(
        replace(p, cond=rewrite(p.cond, change)) if isinstance(p, Requires) else p for p in kernel.preconditions
    )
    return replace(kernel, preconditions=required)


def _of_launch(expr: Expr) -> Expr | None:
    if not isinstance(expr, Param) or expr.name.endswith(_AT_LAUNCH):
        return None
    return replace(expr, name=expr.name + _AT_LAUNCH)


_AT_LAUNCH = " at launch"


def launchable(kernel: Kernel, solver: Solver) -> Iterator[z3.BoolRef]:
    """Yield the facts that hold in every launch: ranges of sizes, alignments, and the author's preconditions."""
    yield from _extents(kernel, solver)
    yield from _aligned(kernel, solver)
    yield from (_says(kernel, p, solver) for p in kernel.preconditions)


def _extents(kernel: Kernel, solver: Solver) -> Iterator[z3.BoolRef]:
    for name in kernel.sizes:
        size = solver.integer(Param(name))
        yield z3.And(size >= 0, size <= MAX_EXTENT)
    for scalar in kernel.params:
        if isinstance(scalar, Scalar) and scalar.dtype.is_int:
            value, (least, most) = solver.integer(Param(scalar.name, scalar.dtype)), scalar.dtype.integers
            yield z3.And(value >= least, value <= most)


def _something(kernel: Kernel, solver: Solver) -> z3.BoolRef:
    """Return the formula that some tensor that the kernel writes or specifies has elements."""
    specified = {s.output for s in walk(kernel.body) if isinstance(s, Spec)}
    outputs = [t for t in kernel.tensors if t.name in usage(kernel).written | specified]
    return z3.Or(*(z3.And(*(solver.integer(e) > 0 for e in t.shape)) for t in outputs)) if outputs else z3.BoolVal(True)


def check(kernel: Kernel, work: Work) -> list[Finding]:
    """Find preconditions that no launch can meet, so that a proof would be vacuous.

    Two sets of facts are tested with the preconditions. First, that something is written. Second, the alignments, where
    tensors may be empty: their empty rows satisfy every alignment.
    """
    writing, aligned = Solver(work), Solver(work)
    for fact in (*_extents(kernel, writing), _something(kernel, writing)):
        writing.assume(fact)
    for fact in (*_extents(kernel, aligned), *_aligned(kernel, aligned)):
        aligned.assume(fact)
    bytes = max((t.alignment for t in kernel.tensors), default=1)
    return (
        _idle(kernel)
        or _excluded(kernel, writing, "that writes elements", "sizes of what is written are at least 1")
        or _excluded(
            kernel,
            aligned,
            f"with tensors aligned to {bytes} bytes",
            f"rows of such tensors have a multiple of {bytes} bytes; a call is proved for the alignment that its "
            "tensors have, so look at another one: `argus check --alignment 4`",
        )
    )


def _idle(kernel: Kernel) -> list[Finding]:
    """Warn if the kernel changes no tensor: it is correct, but useless."""
    if usage(kernel).written or any(isinstance(s, Spec) for s in walk(kernel.body)):
        return []
    return [
        Finding(
            "nothing-written",
            "launch",
            Verdict.REFUTED,
            "the kernel writes no tensor: there is nothing that a caller could see",
            kernel.span,
            help="store its results: `al.store(out[...], x)`",
            severity=Severity.WARNING,
        )
    ]


def _excluded(kernel: Kernel, solver: Solver, which: str, why: str) -> list[Finding]:
    """Report the first precondition that contradicts the earlier ones and the facts that `solver` assumes."""
    earlier = list[Precondition]()
    for precondition in kernel.preconditions:
        solver.assume(_says(kernel, precondition, solver))
        earlier.append(precondition)
        if solver.holds(z3.BoolVal(False)).verdict is Verdict.PROVED:
            break
    else:
        return []
    *others, last = earlier
    notes = tuple(Note("together with this", p.span) for p in others)
    return [
        Finding(
            "contradictory-requires",
            "launch",
            Verdict.REFUTED,
            f"no launch {which} meets all preconditions, so a proof would say nothing",
            last.span,
            "what comes before excludes this",
            f"correct or remove one of them; {why}",
            notes,
        )
    ]


def _says(kernel: Kernel, precondition: Precondition, solver: Solver) -> z3.BoolRef:
    match precondition:
        case InRange() | Arranged():  # an index tensor with elements has values to hold
            some = possible(kernel, precondition)
            if isinstance(precondition, Arranged) and precondition.longest is not None and some is not None:
                assert precondition.total is not None  # segments of the greatest length hold no more than the total
                segments = op("sub", extent(kernel, precondition.tensor), Const(1))
                most = op("mul", segments, precondition.longest)
                some = op("and", some, op("le", precondition.total, most))
            return z3.BoolVal(True) if some is None else solver.condition(some)
        case Requires(cond=cond) | Assume(cond=cond):
            return solver.condition(cond)


def _aligned(kernel: Kernel, solver: Solver) -> Iterator[z3.BoolRef]:
    for tensor in kernel.tensors:
        lanes = max(1, tensor.alignment // tensor.dtype.bytes)
        for size, stride in zip(tensor.shape, tensor.strides, strict=True):
            if lanes > 1 and stride == Const(1, stride.dtype):
                yield solver.integer(size) % lanes == 0
