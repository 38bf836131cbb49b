"""Machine rules: instructions are used as their documents allow, within the target's budgets.

Alignment and contiguity of vector accesses are proved for all sizes (z3). Register and shared layouts are concrete, and
are compared as tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from argus.diagnostic import Verdict
from argus.ir.expr import Const, Coord, Expr, LoopVar, Param, ProgramId, op, rewrite
from argus.ir.instruction import BULK_LOADS, BULK_STORES, INSTRUCTIONS, REDUCES, Ends
from argus.ir.nodes import Access, Accumulate, Copy, Fragment, Kernel, Mma, Shared, Tensor
from argus.ir.prefix import along
from argus.ir.reach import steps
from argus.ir.target import TARGETS
from argus.ir.waves import in_lane_order
from argus.layout import FragmentLayout
from argus.layout.analysis import is_injective
from argus.simulate.sizes import integer_arguments
from argus.verify.checks.bounds import BoundsChecker
from argus.verify.checks.matrix import matrix_rows, mma
from argus.verify.checks.physical import offsets
from argus.verify.findings import FailurePlace, Finding, place_of, refused, unknown
from argus.verify.model.isl import smallest
from argus.verify.model.program import Site
from argus.verify.model.relations import Model
from argus.verify.model.solver import z3


def check(bounds: BoundsChecker, model: Model, launched: Kernel) -> list[Finding]:
    """Check all machine rules of one kernel. `launched`: the kernel of one block, since each block has its own budget.

    A broken rule about data layout shows in any launch, so its finding gets the smallest place for the replay.
    """
    statements = []
    for site, finding in _statements(bounds):
        domain, exact, _ = model.domain(site)
        if finding.code in _SHOWS_IN_DATA and finding.place is None and exact and not domain.is_empty():
            finding = replace(finding, place=place_of(model.kernel, smallest(domain), site))
        statements.append(finding)
    return [*_memory(launched), *_registers(launched), *statements]


_SHOWS_IN_DATA = ("misaligned-vector", "lds-lane-order", "matrix-row-layout", "mma-operand-layout")


# ---------------------------------------------------------------------------- budgets


def _memory(kernel: Kernel) -> list[Finding]:
    findings = []
    target = TARGETS[kernel.target or "sm_80"]
    ends = [(b.offset + 8 * b.count, b.span) for b in kernel.barriers if b.offset is not None]
    for tile in kernel.shared:
        assert tile.layout is not None and tile.offset is not None
        if not is_injective(tile.layout):
            findings.append(
                refused(
                    "shared-layout-overlaps",
                    tile.span,
                    f"the layout {tile.layout} of '{tile.name}' puts two elements at one address",
                    "choose an injective layout",
                )
            )
        ends.append((tile.offset + int(tile.layout.cosize()) * tile.dtype.bytes, tile.span))
    for end, span in ends:
        if end > target.shared_bytes:
            text = f"shared memory ends at byte {end}; {target.name} gives a block {target.shared_bytes}"
            findings.append(refused("shared-memory-exceeded", span, text, "use smaller tiles or fewer stages"))
    if kernel.num_threads > target.max_threads:
        findings.append(
            refused(
                "too-many-threads",
                kernel.span,
                f"{kernel.num_threads} threads in a block; {target.name} allows {target.max_threads}",
                "use fewer warps",
            )
        )
    return findings


def _registers(kernel: Kernel) -> list[Finding]:
    target = TARGETS[kernel.target or "sm_80"]
    largest = max(kernel.fragments, key=_words, default=None)
    if largest is not None and _words(largest) > target.registers:
        return [
            refused(
                "register-budget-exceeded",
                largest.span,
                f"'{largest.name}' alone takes {_words(largest)} registers a thread; "
                f"{target.name} has {target.registers}",
                "use a smaller tile or more warps",
            )
        ]
    return []


def _words(fragment: Fragment) -> int:
    assert fragment.layout is not None
    return -(-fragment.layout.num_values * fragment.dtype.bytes // 4)


# ---------------------------------------------------------------------------- statements


def _statements(bounds: BoundsChecker) -> Iterator[tuple[Site, Finding]]:
    for site in bounds.sites:
        match site.stmt:
            case Copy():
                yield from ((site, f) for f in _copy(bounds, site, site.stmt))
            case Accumulate(dst=dst, shape=shape, instr=instr) if instr in REDUCES:
                yield from ((site, f) for f in _bulk(bounds, site, dst, shape))
            case Mma():
                yield from ((site, f) for f in mma(bounds, site.stmt))
            case _:
                pass


def _copy(bounds: BoundsChecker, site: Site, stmt: Copy) -> list[Finding]:
    kernel = bounds.kernel
    if stmt.instr in BULK_LOADS | BULK_STORES:
        return _bulk(bounds, site, stmt.src if stmt.instr in BULK_LOADS else stmt.dst, stmt.shape)
    if stmt.instr is None or stmt.layout is None:
        return []
    row, target = INSTRUCTIONS[stmt.instr], TARGETS[kernel.target or "sm_80"]
    if not target.has(row):
        return [
            refused(
                "instruction-not-available",
                stmt.span,
                f"{target.name} has no {row.name}",
                f"{row.name} needs {' or '.join(row.architectures)}",
            )
        ]
    dtype = kernel.object(stmt.dst.obj).dtype
    width = stmt.vector * dtype.bytes
    if dtype.bits not in row.dtypes_bits or width not in row.vector_bytes:
        allowed = ", ".join(map(str, row.vector_bytes))
        return [
            refused(
                "vector-width",
                stmt.span,
                f"{row.name} moves {allowed} bytes of {'/'.join(map(str, row.dtypes_bits))}-bit elements at a time; "
                f"here {stmt.vector} x {dtype} = {width} bytes",
                "choose another layout or dtype",
            )
        ]
    findings = []
    for access in (stmt.src, stmt.dst):
        obj = kernel.object(access.obj)
        if isinstance(obj, Shared) and row.collective:
            findings += matrix_rows(site, stmt, access, obj)
        elif isinstance(obj, Shared) and row.in_lane_order:
            findings += _lanes(bounds, site, stmt, access, obj)
        elif isinstance(obj, Shared) and stmt.vector > 1:
            findings += _shared_vector(site, stmt, access, obj) or _shared_mask(bounds, site, stmt, obj)
        elif isinstance(obj, Tensor) and stmt.vector > 1:
            findings += _global_vector(bounds, site, stmt, access, obj)
        if isinstance(obj, Tensor) and row.reach:
            findings += _reach(bounds, site, stmt, access, obj)
    return findings


def _reach(bounds: BoundsChecker, site: Site, stmt: Copy, access: Access, tensor: Tensor) -> list[Finding]:
    """Check that every element lies within the instruction's reach of the tile's first place."""
    row, solver, far = INSTRUCTIONS[stmt.instr or ""], bounds.solver, steps(access.index, stmt.shape)
    text = f"cannot exclude that elements of '{tensor.name}' lie {row.reach} bytes or more from the first of their tile"
    help = "bound the strides by `al.requires`, or leave the instruction open"
    if far is not None:
        strides = [step * solver.integer(stride) for step, stride in zip(far, tensor.strides, strict=True) if step]
        size = (sum(strides, z3.IntVal(0)) + stmt.vector) * tensor.dtype.bytes
        forward = [solver.integer(stride) >= 0 for step, stride in zip(far, tensor.strides, strict=True) if step]
        if solver.holds(z3.And(size <= row.reach, *forward), bounds.facts(site)).verdict is Verdict.PROVED:
            return []
    return [unknown("vector-unknown", "machine", stmt.span, text, help)]


def _bulk(bounds: BoundsChecker, site: Site, outside: Access, shape: tuple[int, ...]) -> list[Finding]:
    """Check that a bulk copy's box starts at a multiple of 16 bytes of a row; H200s stop at others (measured)."""
    solver, dtype = bounds.solver, bounds.kernel.object(outside.obj).dtype
    origin = solver.integer(outside.index[-1]) - solver.integer(Coord(len(shape) - 1))
    answer = solver.holds(origin % (16 // dtype.bytes) == 0, bounds.facts(site))
    if answer.verdict is Verdict.PROVED:
        return []
    text = f"a bulk copy of '{outside.obj}' may begin at other than a multiple of 16 bytes of a row"
    help = f"let the tile begin at a multiple of {16 // dtype.bytes} elements, or leave out producer_warps"
    return [unknown("bulk-copy-origin", "machine", site.stmt.span, text, help)]


def _along(layout: FragmentLayout, vector: int) -> list[int]:
    """Return the dimensions along which every thread holds aligned runs of `vector` elements."""
    first = layout.coordinates()[:, ::vector]
    dims = [d for d in range(layout.rank) if layout.vector_width(d) >= vector]
    return [d for d in dims if not (first[..., d] % vector).any()]


def _global_vector(bounds: BoundsChecker, site: Site, stmt: Copy, access: Access, tensor: Tensor) -> list[Finding]:
    """Check that vector elements are consecutive along the stride-1 dimension, aligned, and share one mask value."""
    vector, layout = stmt.vector, stmt.layout
    assert layout is not None
    unit = [i for i, s in enumerate(tensor.strides) if s == Const(1, s.dtype)]
    dims = _along(layout, vector)
    help = "choose a layout whose vectors run along the tensor's contiguous dimension, or vector 1"
    row = INSTRUCTIONS[stmt.instr or ""]
    anywhere, ends_inside = row.ends is not Ends.WHOLE, row.ends is Ends.LAST
    if not unit or not dims or (tensor.alignment < vector * tensor.dtype.bytes and not anywhere):
        return [
            refused(
                "misaligned-vector",
                stmt.span,
                f"{vector}-element access of '{tensor.name}' (alignment {tensor.alignment} bytes) cannot be one vector",
                help,
            )
        ]
    solver, dim = bounds.solver, dims[0]
    further = Param("place in the vector")
    step = solver.integer(further)
    facts = [*bounds.facts(site), solver.integer(Coord(dim)) % vector == 0, step >= 0, step < vector]
    goals = []

    def shifted(expr: Expr) -> Expr:  # A register at another place holds another number.
        return rewrite(expr, lambda e: op("add", e, further) if e == Coord(dim) else None)

    for axis, index in enumerate(access.index):
        here, there = solver.integer(index), solver.integer(shifted(index))
        moved = step if axis == unit[0] else z3.IntVal(0)
        goals.append(there == here + moved)
    if not anywhere:
        goals.append(solver.integer(access.index[unit[0]]) % vector == 0)
    elif (found := along(stmt.mask, dim, row.ends)) is None:
        text = f"the mask of the {vector}-element vectors of '{tensor.name}' is no bound of the place along them"
        return [refused("misaligned-vector", stmt.span, text, "mask by `index < n` alone, or move single elements")]
    elif ends_inside and found.place is not None and found.bound is not None:
        left = solver.integer(found.bound) - solver.integer(found.place)  # So many elements may be read as whole words.
        end = solver.integer(tensor.shape[unit[0]]) - solver.integer(access.index[unit[0]])
        facts += [solver.condition(stmt.mask)] if stmt.mask is not None else []
        goals.append(z3.Implies(left >= 2 * vector, end >= 2 * vector))
    if stmt.mask is not None and not anywhere:
        goals.append(solver.condition(shifted(stmt.mask)) == solver.condition(stmt.mask))
    answer = solver.holds(z3.And(*goals), facts)
    if answer.verdict is Verdict.PROVED:
        return []
    far = "contiguous, with elements as far as their mask goes" if ends_inside else "contiguous"
    wanted = far if anywhere else "aligned, contiguous and masked alike"
    text = f"the {vector}-element vectors of '{tensor.name}' are not {wanted}"
    if answer.verdict is Verdict.UNKNOWN:
        return [unknown("vector-unknown", "machine", stmt.span, f"cannot decide whether {text}: {answer.reason}", help)]
    axes = len(bounds.kernel.grid) if bounds.kernel.grid is not None else 1
    place = FailurePlace(
        sizes={p.name: answer.model.get(p, 1) for p in integer_arguments(bounds.kernel)},
        block=tuple(answer.model.get(ProgramId(a), 0) for a in range(axes)),
        iteration={v: answer.model.get(LoopVar(v), 0) for v in site.iterators},
        element=tuple(answer.model.get(Coord(a), 0) for a in range(len(site.shape))),
    )
    return [Finding("misaligned-vector", "machine", Verdict.REFUTED, text, stmt.span, help=help, place=place)]


def _shared_vector(site: Site, stmt: Copy, access: Access, tile: Shared) -> list[Finding]:
    """Check that the elements of each vector are consecutive and aligned in the tile's layout, swizzle included."""
    found = offsets(site, access, tile)
    help = "choose a shared layout that keeps the vector's elements together"
    if found is None:
        return [
            unknown(
                "vector-unknown",
                "machine",
                stmt.span,
                f"cannot tell the addresses of the vectors of '{tile.name}'",
                help,
            )
        ]
    assert stmt.layout is not None and tile.offset is not None
    groups = found.reshape(*found.shape[:-1], -1, stmt.vector)
    first = groups[..., :1]
    together = bool((groups == first + np.arange(stmt.vector)).all())
    aligned = bool(((first * tile.dtype.bytes + tile.offset) % (stmt.vector * tile.dtype.bytes) == 0).all())
    if together and aligned:
        return []
    return [
        refused(
            "misaligned-vector",
            stmt.span,
            f"the {stmt.vector}-element vectors of shared tile '{tile.name}' are not contiguous and aligned "
            f"in {tile.layout}",
            help,
        )
    ]


def _shared_mask(bounds: BoundsChecker, site: Site, stmt: Copy, tile: Shared) -> list[Finding]:
    """Check that all elements of a vector have the same mask value, because one condition is tested for all of them."""
    if stmt.mask is None:
        return []
    assert stmt.layout is not None
    dim = next(iter(_along(stmt.layout, stmt.vector)), None)
    text = f"the {stmt.vector}-element vectors of shared tile '{tile.name}' are not masked alike"
    help = "mask whole vectors, or let it be vector 1"
    if dim is None:
        return [unknown("vector-unknown", "machine", stmt.span, f"cannot decide whether {text}", help)]
    solver, further = bounds.solver, Param("place in the vector")
    step, first = solver.integer(further), solver.integer(Coord(dim))
    moved = rewrite(stmt.mask, lambda e: op("add", e, further) if e == Coord(dim) else None)
    facts = [*bounds.facts(site), first % stmt.vector == 0, step >= 0, step < stmt.vector]
    answer = solver.holds(solver.condition(moved) == solver.condition(stmt.mask), facts)
    if answer.verdict is Verdict.PROVED:
        return []
    return [unknown("vector-unknown", "machine", stmt.span, f"cannot exclude that {text}", help)]


def _lanes(bounds: BoundsChecker, site: Site, stmt: Copy, access: Access, tile: Shared) -> list[Finding]:
    """Check that in each load to LDS, the lanes of a wave write one run of bytes in lane order."""
    found = offsets(site, access, tile)
    help = "let consecutive lanes copy consecutive 4 bytes of the tile, and leave swizzles out: 256 bytes a wave"
    if found is None:
        text = f"cannot tell where in '{tile.name}' the lanes of {stmt.instr} write"
        return [unknown("vector-unknown", "machine", stmt.span, text, help)]
    findings = _shared_vector(site, stmt, access, tile)
    assert tile.offset is not None
    first = found[..., :: stmt.vector] * tile.dtype.bytes + tile.offset
    if not in_lane_order(first, bounds.kernel.warp_size).all():
        text = f"the lanes of {stmt.instr} write consecutive bytes, but those of '{tile.name}' in {tile.layout} are not"
        findings.append(refused("lds-lane-order", stmt.span, text, help))
    return findings
