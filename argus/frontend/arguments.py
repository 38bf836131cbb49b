"""Typed access to the arguments of a call. Each wrong kind of argument has its error message here."""

from __future__ import annotations

from typing import NoReturn

from argus.diagnostic import Note
from argus.frontend import tiles, views
from argus.frontend.context import CallSite
from argus.frontend.values import Constant, LambdaValue, Tile, TupleValue, View, describe, shape_text
from argus.ir.expr import Const, Expr, conjunction
from argus.ir.nodes import Tensor
from argus.ir.types import DType, boolean
from argus.layout import FragmentLayout
from argus.source import Span


def given(call: CallSite, name: str) -> bool:
    """Return True if the argument is not None."""
    return call.args[name] != Constant(None)


def tile(call: CallSite, name: str, dtype: DType | None = None) -> Tile:
    """Evaluate an argument as a tile or scalar. A constant takes `dtype`."""
    return tiles.as_tile(call.context, call.args[name], call.spans[name], dtype)


def view(call: CallSite, name: str) -> View:
    """Evaluate an argument as a view: a tensor, a shared tile, or a part of one."""
    value = call.args[name]
    if not isinstance(value, View):
        call.context.fail(
            "type-mismatch",
            f"`al.{call.name}` needs a place in memory, and this is {describe(value)}",
            call.spans[name],
            "give a part of a tensor or shared tile: `x[lo:lo + n]`",
        )
    return value


def tensor_view(call: CallSite, name: str) -> View:
    """Evaluate an argument as a part of a tensor in global memory."""
    found = view(call, name)
    if not isinstance(found.obj, Tensor):
        call.context.fail(
            "type-mismatch",
            f"`al.{call.name}` works on global tensors, and `{found.obj.name}` is a shared tile",
            call.spans[name],
            "give a part of a tensor parameter",
        )
    return found


def integer(call: CallSite, name: str, least: int | None = None) -> int:
    """Evaluate an argument as a constant integer of at least `least`."""
    value = call.args[name]
    if not isinstance(value, Constant):
        call.context.fail(
            "not-constant",
            f"`{name}` of `al.{call.name}` is a constant integer, and this is {describe(value)}",
            call.spans[name],
            "use a number or an `al.constexpr` parameter",
        )
    if not isinstance(value.value, int) or isinstance(value.value, bool):
        _fail_kind(call, name, "an integer")
    if least is not None and value.value < least:
        code = "bad-shape" if name in ("start", "stop", "shape") else "wrong-arguments"
        call.context.fail(
            code,
            f"`{name}` of `al.{call.name}` is at least {least}, not {value.value}",
            call.spans[name],
            f"use {least} or more",
        )
    return value.value


def _fail_kind(call: CallSite, name: str, what: str) -> NoReturn:
    call.context.fail(
        "wrong-arguments",
        f"`{name}` of `al.{call.name}` is {what}, and this is {describe(call.args[name])}",
        call.spans[name],
        f"give {what}",
    )


def flag(call: CallSite, name: str) -> bool:
    """Evaluate an argument as a constant bool."""
    value = call.args[name]
    if not isinstance(value, Constant) or not isinstance(value.value, bool):
        _fail_kind(call, name, "True or False")
    return value.value


def text(call: CallSite, name: str) -> str:
    """Evaluate an argument as a constant string."""
    value = call.args[name]
    if not isinstance(value, Constant) or not isinstance(value.value, str):
        _fail_kind(call, name, "a string")
    return value.value


def dtype(call: CallSite, name: str) -> DType:
    """Evaluate an argument as an element type."""
    value = call.args[name]
    if not isinstance(value, Constant) or not isinstance(value.value, DType):
        call.context.fail(
            "unknown-dtype",
            f"`{name}` of `al.{call.name}` is a dtype, and this is {describe(value)}",
            call.spans[name],
            "write `al.float32`, `al.bfloat16`, ...",
        )
    return value.value


def integers(call: CallSite, name: str) -> tuple[int, ...]:
    """Evaluate an argument as a constant tuple of integers. One integer stands for a tuple of length one."""
    value = call.args[name]
    if isinstance(value, TupleValue):
        wrong = next(i for i in value.items if not isinstance(i, Constant))
        call.context.fail(
            "not-constant",
            f"`{name}` of `al.{call.name}` holds constants, and there is {describe(wrong)} in it",
            call.spans[name],
            "sizes of tiles are constants: use numbers or `al.constexpr` parameters",
        )
    items = value.value if isinstance(value, Constant) else value
    items = items if isinstance(items, tuple) else (items,)
    if isinstance(value, Tile):
        call.context.fail(
            "not-constant",
            f"`{name}` of `al.{call.name}` is constant, and this is {describe(value)}",
            call.spans[name],
            "sizes of tiles are constants: use numbers or `al.constexpr` parameters",
        )
    if not all(isinstance(i, int) and not isinstance(i, bool) for i in items):
        _fail_kind(call, name, "a tuple of integers")
    return tuple(i for i in items if isinstance(i, int))


def shape(call: CallSite, name: str = "shape") -> tuple[int, ...]:
    """Evaluate an argument as the shape of a new tile."""
    found = integers(call, name)
    tiles.check_shape(call.context, found, call.spans[name])
    return found


def axes(call: CallSite, name: str, rank: int) -> tuple[int, ...]:
    """Evaluate an argument as dimensions of a value of the given rank. Negative dimensions count from the end."""
    found = integers(call, name)
    for axis in found:
        if not -rank <= axis < rank:
            call.context.fail(
                "bad-shape",
                f"there is no dimension {axis}: `al.{call.name}` is given {rank} dimension{'s' * (rank != 1)} here",
                call.spans[name],
                f"count from 0 to {rank - 1}" if rank else "leave it out",
            )
    return tuple(axis % rank for axis in found)


def function(call: CallSite, name: str) -> LambdaValue:
    """Evaluate an argument as a lambda."""
    value = call.args[name]
    if not isinstance(value, LambdaValue):
        call.context.fail(
            "bad-tag",
            f"`al.{call.name}` takes a lambda, and this is {describe(value)}",
            call.spans[name],
            "write `lambda i, j: ...`",
        )
    return value


def fragment_layout(call: CallSite, of: tuple[int, ...], name: str = "layout") -> FragmentLayout | None:
    """Evaluate an argument as a register layout for a tile of shape `of`. Return None if the argument is missing."""
    if not given(call, name):
        return None
    value = call.args[name]
    if not isinstance(value, Constant) or not isinstance(value.value, FragmentLayout):
        call.context.fail(
            "bad-layout",
            f"`{name}` is a register layout, and this is {describe(value)}",
            call.spans[name],
            "use `al.tiled_mma(...).a`, `al.blocked(...)` or `al.fragment_layout(...)`",
        )
    found = value.value
    if found.shape != of:
        call.context.fail(
            "bad-layout",
            f"this layout is of shape {shape_text(found.shape)}, and the tile of {shape_text(of)}",
            call.spans[name],
            "give both the same shape",
        )
    threads = call.context.num_warps * call.context.target.warp_size
    if found.num_threads != threads:
        call.context.fail(
            "bad-layout",
            f"this layout spreads over {found.num_threads} threads, and the block has {threads}",
            call.spans[name],
            "match `num_warps` and the layout",
        )
    return found


def mask(call: CallSite, target: View, extents: tuple[int, ...], span: Span) -> Expr | None:
    """Combine the arguments `mask` and `boundary_check` into one mask over the elements of `target`."""
    conditions: list[Expr] = []
    if "mask" in call.args and given(call, "mask"):
        value = tile(call, "mask")
        where = call.spans["mask"]
        tiles.require_bool(call.context, value, where, "a mask")
        notes = (Note(f"the view has shape {shape_text(extents)}", span),)
        both = tiles.broadcast_shapes(call.context, [value.shape, extents], where, notes)
        if both != extents:
            call.context.fail(
                "shape-mismatch",
                f"the mask has shape {shape_text(value.shape)}, and the view {shape_text(extents)}",
                where,
                "a mask broadcasts to its view, not the other way round",
                notes=notes,
            )
        conditions.append(tiles.stretch(value.expr, value.shape, extents))
    conditions += views.boundary_conditions(call.context, target, axes(call, "boundary_check", len(extents)))
    return conjunction(conditions)


def filling(call: CallSite, of: DType, masked: bool, default: int | float | None) -> Const | None:
    """Evaluate `other`, the value of masked-out elements, as a literal. Return None if nothing is masked."""
    value = call.args["other"]
    if not isinstance(value, Constant):
        call.context.fail(
            "not-constant",
            f"`other` is a constant, and this is {describe(value)}",
            call.spans["other"],
            "use a number, and choose elements with `al.where` after the load",
        )
    chosen = default if value.value is None else value.value
    if not masked or chosen is None:
        return None
    if value.value is None and of is boolean:
        chosen = bool(default)
    return tiles.constant_expr(call.context, chosen, of, call.spans["other"])
