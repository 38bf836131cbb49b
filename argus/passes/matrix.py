"""Choose the matrix instruction of every product, and how the warps share it.

    mma acc += sa * sb                      ->  mma acc += sa * sb  instr mma_m16n8k16  warps (2, 2)

Products into the same accumulator get the same choice. The grid of warps is the one that reads least from shared
memory. If rows of an accumulator are reduced, or become the operand of another product, all warps are arranged along M.
A row then stays in one warp, and on NVIDIA the accumulator can be used as an operand without being moved.
"""

from __future__ import annotations

from dataclasses import replace

from argus.diagnostic import Diagnostic
from argus.ir.expr import Coord, elements
from argus.ir.instruction import MMA, WGMMA, MmaRow
from argus.ir.instruction.tiled import tiled_mma
from argus.ir.nodes import Accumulate, Copy, Fragment, Kernel, Map, Mma, Stmt, Tensor
from argus.ir.target import Target
from argus.ir.types import DType
from argus.ir.visit import rewrite_body, walk
from argus.layout import LayoutError
from argus.passes.moves import contiguous_axis, target_of
from argus.passes.report import LoweringError, problem


def choose_matrix_instructions(kernel: Kernel) -> Kernel:
    """Fill in `instr` and `warps` of every `Mma`. Raises `LoweringError` if no instruction fits."""
    by_row = _along_rows(kernel)
    chosen: dict[str, tuple[str, tuple[int, int]]] = {}
    problems: list[Diagnostic] = []
    for stmt in walk(kernel.body):
        if isinstance(stmt, Mma) and stmt.instr not in WGMMA and stmt.d.obj not in chosen:
            result = _choose(kernel, stmt, stmt.d.obj in by_row)
            if isinstance(result, Diagnostic):
                problems.append(result)
            else:
                chosen[stmt.d.obj] = result
    if problems:
        raise LoweringError(*problems)

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, Mma) or stmt.instr in WGMMA:
            return None
        instr, warps = chosen[stmt.d.obj]
        return (replace(stmt, instr=stmt.instr or instr, warps=stmt.warps or warps),)

    return replace(kernel, body=rewrite_body(kernel.body, change))


def _choose(kernel: Kernel, first: Mma, by_row: bool) -> tuple[str, tuple[int, int]] | Diagnostic:
    """Return the instruction and the warp grid for all products into the accumulator of `first`."""
    target = target_of(kernel)
    all_into = [s for s in walk(kernel.body) if isinstance(s, Mma) and s.d.obj == first.d.obj]
    named = next((s for s in all_into if s.instr is not None), first)
    a, b, d = (kernel.object(x.obj).dtype for x in (named.a, named.b, named.d))
    if named.instr is not None:
        row = MMA.get(named.instr)
        fault = _named_fault(row, named, target, (a, b, d))
        if row is None or fault is not None:
            return fault or problem("unknown-instruction", f"there is no matrix instruction {named.instr}", named.span)
        rows = [row]
    else:
        rows = [r for r in MMA.values() if target.has(r) and _takes(r, a, b, d)]
        if not rows:
            return problem(
                "no-matrix-instruction",
                f"{target.name} has no matrix instruction for {a} times {b} into {d}",
                first.span,
                _remedy([r for r in MMA.values() if target.has(r)], a),
            )
    rows.sort(key=lambda row: _across(row) != (by_row or _stored_by_rows(kernel, first.d.obj)))
    choices = [(row, warps) for row in rows for warps in _possible(kernel, row, all_into)]
    if choices:
        row, warps = min(choices, key=lambda choice: _cost(first.shape, choice[1], by_row))
        return row.name, warps
    shapes = " or ".join(dict.fromkeys("x".join(str(n) for n in r.shape) for r in rows))
    return problem(
        "matrix-shape",
        f"{kernel.num_warps} warps cannot share a product of shape {_text(first.shape)} in steps of {shapes}",
        first.span,
        "make M, N and K multiples of the instruction's shape times the warps along them, or use fewer warps",
    )


def _remedy(rows: list[MmaRow], operand: DType) -> str:
    """Say which products a target has, and first how its format of 8 bits is called if the operand has another."""
    family = str(operand).removesuffix("uz").removesuffix("fn")
    others = (t for row in rows for t in row.operands if t != operand and operand.bits == 8)
    near = next((t for t in others if str(t).startswith(family)), None)
    convert = "" if near is None else f"convert the operands to {near}, this machine's format; "
    return f"{convert}it multiplies " + "; ".join(dict.fromkeys(map(_types, rows)))


def _possible(kernel: Kernel, row: MmaRow, products: list[Mma]) -> list[tuple[int, int]]:
    """Return the warp grids that can serve all of these products."""
    grids = [w for w in _grids(kernel.num_warps) if all(_divides(row, s, w) for s in products)]
    grids = [w for w in grids if all(s.warps in (None, w) for s in products)]
    return [w for w in grids if _fits_layouts(kernel, row, products, w)]


def _across(row: MmaRow) -> bool:
    """Return True if a lane's first values are side by side in a row of the accumulator."""
    return row.c.vector_width(1) > 1


def _stored_by_rows(kernel: Kernel, accumulator: str) -> bool:
    """Return False if the results computed from the accumulator are stored to memory with contiguous columns, else
    True."""
    reach = _reached(kernel, accumulator)
    for stmt in walk(kernel.body):
        if isinstance(stmt, Copy) and stmt.src.obj in reach and len(stmt.shape) == 2:
            tensor = kernel.object(stmt.dst.obj)
            if isinstance(tensor, Tensor):
                return contiguous_axis(tensor, stmt.dst.index) != 0
    return True


def _reached(kernel: Kernel, tile: str) -> set[str]:
    """Return `tile` and the tiles that elementwise statements compute from it."""
    reach: set[str] = set()
    more = {tile}
    while more - reach:
        reach |= more
        maps = (s for s in walk(kernel.body) if isinstance(s, Map))
        more = {s.dst.obj for s in maps if any(e.obj in reach for e in elements(s.value))}
    return reach


def _named_fault(
    row: MmaRow | None, stmt: Mma, target: Target, dtypes: tuple[DType, DType, DType]
) -> Diagnostic | None:
    usable = ", ".join(r.name for r in MMA.values() if target.has(r))
    if row is None:
        what = f"there is no matrix instruction {stmt.instr}"
        return problem("unknown-instruction", what, stmt.span, f"{target.name} has {usable}")
    if not target.has(row):
        return problem(
            "instruction-target",
            f"{row.name} is an instruction of {', '.join(row.architectures)}, not of {target.name}",
            stmt.span,
            f"{target.name} has {usable}",
        )
    if not _takes(row, *dtypes):
        a, b, d = dtypes
        return problem(
            "matrix-types",
            f"{row.name} does not multiply {a} by {b} into {d}",
            stmt.span,
            f"it computes {_signature(row)}",
        )
    return None


def _takes(row: MmaRow, a: DType, b: DType, d: DType) -> bool:
    mixed = a.is_float and a.bits == 8  # The instructions for 8-bit floats take operands of two different formats.
    return a in row.operands and b in row.operands and (a == b or mixed) and d == row.accumulator


def _signature(row: MmaRow) -> str:
    return f"{row.name}: {_types(row)}"


def _types(row: MmaRow) -> str:
    return f"{' or '.join(map(str, row.operands))} into {row.accumulator}"


def _grids(num_warps: int) -> list[tuple[int, int]]:
    return [(m, num_warps // m) for m in range(1, num_warps + 1) if num_warps % m == 0]


def _divides(row: MmaRow, stmt: Mma, warps: tuple[int, int]) -> bool:
    steps = (row.shape[0] * warps[0], row.shape[1] * warps[1], row.shape[2])
    return all(extent % step == 0 for extent, step in zip(stmt.shape, steps, strict=True))


def _fits_layouts(kernel: Kernel, row: MmaRow, products: list[Mma], warps: tuple[int, int]) -> bool:
    """Return True if the layouts that the author gave to operands equal those of this grid of warps."""
    for stmt in products:
        try:
            tiled = tiled_mma(row, stmt.shape, warps)
        except LayoutError:
            return False
        for access, needed in ((stmt.a, tiled.a), (stmt.b, tiled.b), (stmt.d, tiled.c)):
            obj = kernel.object(access.obj)
            given = obj.layout if isinstance(obj, Fragment) else None
            if given is not None and given.shape == needed.shape and given.simplify() != needed.simplify():
                return False
    return True


def _cost(shape: tuple[int, int, int], warps: tuple[int, int], by_row: bool) -> tuple[int, int, int]:
    """Return the rows and columns of operands that a warp reads. With `by_row`, the number of warps along N is compared
    first."""
    m, n, _ = shape
    return (warps[1] if by_row else 0, m // warps[0] + n // warps[1], warps[0])


def _along_rows(kernel: Kernel) -> set[str]:
    """Return the accumulators whose rows are reduced or become operands, and the accumulators of products that use
    these operands."""
    statements = list(walk(kernel.body))
    products = [s for s in statements if isinstance(s, Mma)]
    result: set[str] = set()
    for product in products:
        reach = _reached(kernel, product.d.obj)
        reduces = any(
            isinstance(s, Accumulate)
            and s.instr is None
            and len(s.shape) == 2
            and Coord(1) not in s.dst.index
            and any(e.obj in reach for e in elements(s.value))
            for s in statements
        )
        enters = [p.d.obj for p in products if p.a.obj in reach]
        if reduces or enters:
            result |= {product.d.obj, *enters}
    return result


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(str(n) for n in shape)
