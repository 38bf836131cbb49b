"""Elaborate matrix products: operands, accumulators, and the choice of an instruction that the author names."""

from __future__ import annotations

from argus.diagnostic import Note
from argus.frontend import arguments, tiles, views
from argus.frontend.context import CallSite, Handler
from argus.frontend.values import Tile, Value, View, describe, shape_text
from argus.ir.expr import Elem, Expr, coords, substitute_coords
from argus.ir.instruction import MMA, WGMMA, MmaRow, WgmmaRow
from argus.ir.nodes import Access, Mma, Shared
from argus.ir.types import DType, float32, int8, int32


def mma(call: CallSite) -> Value:
    """Emit a matrix product: into the accumulator if the result replaces it, otherwise into a copy of it."""
    context = call.context
    a, b = _operand(call, "a"), _operand(call, "b")
    (m, k), (n, k_b) = _matrix(call, a, "a"), _matrix(call, b, "b")
    if k != k_b:
        context.fail(
            "shape-mismatch",
            f"a is {shape_text((m, k))} and b {shape_text((n, k_b))}: their last dimensions, k, differ",
            call.span,
            "`al.mma` contracts the last dimension of both: b is (N, K); `al.trans` a (K, N) one",
        )
    operand = _dtype(a)
    if operand is not _dtype(b):
        context.fail(
            "type-mismatch", f"a is {operand} and b {_dtype(b)}", call.span, "convert one of them, or load both alike"
        )
    acc = _accumulator(call, operand, (m, n))
    instruction, warps = _mma_instruction(call, operand, acc.dtype)
    fragment = acc.fragment
    if fragment is None or call.wanted is None or call.wanted.fragment != fragment:
        name = call.wanted.name if call.wanted is not None else "acc"
        layout = context.fragments[fragment].layout if fragment is not None else None
        acc = tiles.materialise(context, acc, name, call.span, layout)
        fragment = acc.fragment
    assert fragment is not None
    at_m, at_n, at_k = coords(3)
    context.emit(
        Mma(
            Access(fragment, (at_m, at_n)),
            _access(a, (at_m, at_k)),
            _access(b, (at_n, at_k)),
            (m, n, k),
            instruction,
            warps,
        ),
        call.span,
    )
    return acc


def _operand(call: CallSite, name: str) -> View | Tile:
    value = call.args[name]
    if isinstance(value, View) and value.block is not None:
        call.context.fail(
            "bad-peer",
            f"{describe(value)} is another block's, and a product reads the own block's",
            call.spans[name],
            "bring it in with `al.load(...)`",
        )
    if isinstance(value, View) and isinstance(value.obj, Shared):
        return value
    if isinstance(value, View):
        call.context.fail(
            "type-mismatch",
            f"{describe(value)} is in global memory",
            call.spans[name],
            "bring it in with `al.stage(...)`, or with `al.load(...)`",
        )
    tile = arguments.tile(call, name)
    if isinstance(tile.expr, Elem):
        return tile
    return tiles.materialise(call.context, tile, name, call.spans[name])


def _dtype(value: View | Tile) -> DType:
    return value.obj.dtype if isinstance(value, View) else value.dtype


def _matrix(call: CallSite, value: View | Tile, name: str) -> tuple[int, int]:
    shape = views.known_extents(call.context, value, call.spans[name]) if isinstance(value, View) else value.shape
    if len(shape) != 2:
        call.context.fail(
            "shape-mismatch",
            f"`{name}` of `al.mma` has two dimensions, and this is {describe(value)}",
            call.spans[name],
            "give a matrix",
        )
    return shape[0], shape[1]


def _access(value: View | Tile, at: tuple[Expr, Expr]) -> Access:
    if isinstance(value, View):
        return Access(value.obj.name, tuple(substitute_coords(e, at) for e in value.index))
    assert isinstance(value.expr, Elem)
    return Access(value.expr.obj, tuple(substitute_coords(e, at) for e in value.expr.index))


def _accumulator(call: CallSite, operand: DType, shape: tuple[int, int]) -> Tile:
    wanted = int32 if operand is int8 else float32
    if not operand.is_float and operand is not int8:
        call.context.fail(
            "type-mismatch", f"there is no matrix product of {operand}", call.span, "use a float dtype or int8"
        )
    acc = arguments.tile(call, "acc", wanted)
    if acc.dtype is not wanted:
        call.context.fail(
            "type-mismatch",
            f"products of {operand} accumulate in {wanted}, and `acc` is {acc.dtype}",
            call.spans["acc"],
            f"start from `al.zeros(shape, al.{wanted})`",
        )
    if acc.shape != shape:
        call.context.fail(
            "shape-mismatch",
            f"a and b give a product of shape {shape_text(shape)}, and `acc` has {shape_text(acc.shape)}",
            call.spans["acc"],
            "acc is (M, N) for a of (M, K) and b of (N, K)",
            notes=(Note("the operands are given here", call.spans["a"]),),
        )
    return acc


def _mma_instruction(call: CallSite, operand: DType, accumulator: DType) -> tuple[str | None, tuple[int, int] | None]:
    """Return the named matrix instruction and the arrangement of warps, or None for each that is not given."""
    context = call.context
    warps: tuple[int, int] | None = None
    if arguments.given(call, "warps"):
        warps = warp_grid(call)
    if not arguments.given(call, "instruction"):
        return None, warps
    name = arguments.text(call, "instruction")
    asynchronous = WGMMA.get(name)
    if asynchronous is not None and context.target.has(asynchronous):
        row: MmaRow | WgmmaRow = asynchronous
        warps = warps or (context.num_warps, 1)
    else:
        row = mma_row(call, name)
    if operand not in row.operands or accumulator is not row.accumulator:
        context.fail(
            "unknown-instruction",
            f'"{name}" multiplies {" or ".join(map(str, row.operands))} into {row.accumulator}, not {operand} into '
            f"{accumulator}",
            call.spans["instruction"],
            "choose another instruction, or convert the operands",
        )
    return name, warps


def mma_row(call: CallSite, name: str) -> MmaRow:
    """Return the row of the matrix instruction, which the target must have."""
    context = call.context
    usable = sorted(r.name for r in MMA.values() if context.target.has(r))
    if name not in usable:
        reason = f"is not an instruction of {context.target.name}" if name in MMA else "is not a matrix instruction"
        context.fail(
            "unknown-instruction", f'"{name}" {reason}', call.spans["instruction"], f"there are: {', '.join(usable)}"
        )
    return MMA[name]


def warp_grid(call: CallSite) -> tuple[int, int]:
    """Evaluate `warps=(along M, along N)`, which must use all warps of the block."""
    warps = arguments.integers(call, "warps")
    if len(warps) != 2 or min(warps) < 1:
        call.context.fail("bad-layout", "`warps` is (along M, along N)", call.spans["warps"], "write `warps=(2, 2)`")
    if warps[0] * warps[1] != call.context.num_warps:
        call.context.fail(
            "bad-layout",
            f"{warps[0]} x {warps[1]} warps do not make the block's {call.context.num_warps}",
            call.spans["warps"],
            f"choose two numbers with the product {call.context.num_warps}, or change `num_warps`",
        )
    return warps[0], warps[1]


HANDLERS: dict[str, Handler] = {"mma": mma}
