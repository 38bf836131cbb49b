"""Parts that all emitted copies share: domains, holders, and checks of registers and memory."""

from __future__ import annotations

import numpy as np

from argus.backend.emit.problem import problem
from argus.backend.emit.registers import digits
from argus.backend.emit.scope import Domain, Writer
from argus.backend.emit.sums import split
from argus.ir.affine import Facts, on_runs
from argus.ir.expr import Const, Coord, Elem, Expr, elements, walk
from argus.ir.nodes import Access, Fragment, Shared, Tensor
from argus.layout import FragmentLayout, Mode, SwizzledLayout
from argus.layout.core import flat_modes
from argus.layout.fragment import cut, merged
from argus.source import Span


def domain_of(layout: FragmentLayout | None, vector: int, writer: Writer, span: Span) -> Domain:
    """Return the domain of a statement of explicit IR."""
    if layout is None:
        raise problem("not-explicit", "the statement has no layout", span)
    return Domain(writer, layout, digits(layout, vector), span)


def reads(*expressions: Expr | None) -> list[Elem]:
    """Return all registers that the expressions read."""
    return [e for expr in expressions if expr is not None for e in elements(expr)]


def holders(layout: FragmentLayout, writer: Writer, span: Span, lanes: int = 1) -> str:
    """Return `if (...)` for the primary holders of a replicated tile; "" if no element is replicated across threads.

    Replicas must be whole groups of `lanes` threads.
    """
    threads = np.arange(layout.num_threads)
    values = np.arange(layout.num_values)
    first = _zero_digits(layout.threads, threads)[:, None] & _zero_digits(layout.values, values)[None, :]
    if not np.array_equal(first, layout.primary()):
        raise problem("layout-overlaps", f"two moving digits of {layout} meet in one element",
                      span, "replicate with digits that move nowhere (`@_`)")  # fmt: skip
    conditions = []
    weight = 1
    for mode in merged(layout.threads):
        if mode.dim is None:
            if weight % lanes:
                raise problem("layout-replicates", f"{layout} replicates elements within a warp", span,
                              "a matrix store needs a layout without replicas within the warp")  # fmt: skip
            text = "thread" if weight == 1 else f"thread / {weight}"
            whole = weight * mode.extent >= writer.threads
            conditions.append(f"{text} == 0" if whole else f"{text} % {mode.extent} == 0")
        weight *= mode.extent
    return f"if ({' && '.join(conditions)})" if conditions else ""


def _zero_digits(modes: tuple[Mode, ...], index: np.ndarray[tuple[int], np.dtype[np.int64]]) -> np.ndarray[
    tuple[int], np.dtype[np.bool_]
]:  # fmt: skip
    result = np.ones(index.shape, dtype=np.bool_)
    for mode in modes:
        if mode.dim is None:
            result &= index % mode.extent == 0
        index = index // mode.extent
    return result


def check_registers(domain: Domain, fragment: Fragment, register: Access, vector: int) -> None:
    start = domain.registers(fragment, register.index)
    for i in range(1, vector):
        if (domain.registers(fragment, register.index, i) != start + i).any():
            raise problem(
                "vector-registers",
                f"the {vector} elements of one access do not lie in consecutive registers of `{fragment.name}`",
                domain.span, "lower `vector`, or give the register tile the layout of the copy",
            )  # fmt: skip


def check_vector(domain: Domain, vector: int, cell: Access, memory: Tensor | Shared, span: Span, known: Facts) -> None:
    check_run(cut(domain.layout.values, 1, vector), vector, cell, memory, span, known)


def check_run(
    modes: tuple[Mode, ...], count: int, cell: Access, memory: Tensor | Shared, span: Span, known: Facts
) -> None:
    """Check that the `count` elements of one access, which the digits `modes` enumerate, are adjacent in memory."""
    if count == 1:
        return
    run = merged(modes)
    dim = run[0].dim if len(run) == 1 and run[0].stride == 1 else None
    index = cell.index if dim is None else [on_runs(e, dim, count, known)[0] for e in cell.index]
    moved = [i for i, e in enumerate(index) if any(isinstance(c, Coord) and c.axis == dim for c in walk(e))]
    if dim is not None and len(moved) == 1:
        parts = split(index[moved[0]])
        simple = not any(isinstance(c, Coord) and c.axis == dim for _, e in parts.mixed for c in walk(e))
        if simple and parts.coords.get(dim) == 1 and _unit_run(memory, moved[0], count):
            return
    raise problem(
        "vector-not-contiguous", f"the {count} elements of one access are not neighbours in `{memory.name}`",
        span, "lower `vector`, or let consecutive elements follow the dimension of stride 1",
    )  # fmt: skip


def _unit_run(memory: Tensor | Shared, dim: int, count: int) -> bool:
    """Return True if aligned runs of `count` elements along `dim` are consecutive cells."""
    if isinstance(memory, Tensor):
        stride = memory.strides[dim]
        return isinstance(stride, Const) and stride.value == 1
    layout = memory.layout
    if isinstance(layout, SwizzledLayout):
        swizzle = layout.swizzle
        if (swizzle.source_mask | swizzle.target_mask) & (count - 1) or layout.offset % count:
            return False
        layout = layout.inner
    if layout is None:
        return False
    extent, step = flat_modes(layout[dim])[0]
    return step == 1 and extent % count == 0
