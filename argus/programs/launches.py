"""Match launches in a program, `kernel(x, h, 2.0, BLOCK=64, stream=s)`, with the kernel's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from argus import compile
from argus.diagnostic import Note, SourceError
from argus.frontend import Options
from argus.frontend.calls import did_you_mean
from argus.frontend.context import Context
from argus.frontend.decorator import FuncSource
from argus.frontend.expressions import items_of
from argus.frontend.parser import parse
from argus.frontend.surface import Attribute, Call, Expression, Function, Module, Name, Slice, Subscript
from argus.frontend.tiles import as_tile
from argus.frontend.values import Constant, Helper, Value, View, describe
from argus.ir.expr import Const, Expr, LoopVar, Op, Param, walk
from argus.ir.nodes import Kernel, Scalar, Tensor
from argus.ir.types import int32
from argus.programs.ir import Launch, Part, Step, Use
from argus.programs.parts import part_of
from argus.source import Elsewhere, SourceFile, Span

_OPTIONS = ("num_warps", "stream")
"""Keywords of a launch that are not parameters of the kernel."""


class State(Protocol):
    """The part of a program's elaboration that launches use."""

    context: Context
    uses: list[Use]
    steps: list[Step]

    def value(self, node: Expression) -> Value:
        """Return the value of an expression of the program."""

    def stream(self, node: Expression | None) -> str:
        """Return the stream that a launch option names."""


_KernelText = tuple[Function, SourceFile]


def kernel_of(context: Context, node: Expression) -> _KernelText | None:
    """Return the kernel that an expression names in this file or in an imported one. Return None for anything else."""
    match node:
        case Name(id=name) if name not in context.frame.names:
            return _named(context.module, name)
        case Attribute(value=Name(id=module), name=name) if module not in context.frame.names:
            return _named(context.module, f"{module}.{name}")
        case _:
            return None


def _named(module: Module, name: str) -> _KernelText | None:
    function = module.function(name)
    if function is not None:
        return (function, replace(module.source, around=module.around)) if function.kind == "kernel" else None
    outer = module.outer(name)
    if outer is None or not isinstance(outer.meaning, Elsewhere):
        return None
    file, inner = outer.meaning.file, outer.meaning.name
    return _named(parse(file, inner), inner)


def launch(state: State, node: Call, span: Span) -> bool:
    """Elaborate a statement if it launches a kernel. Return False if it does not."""
    callee = node.function
    grid = callee if isinstance(callee, Subscript) else None
    if isinstance(callee, Subscript):
        callee = callee.value
    if not isinstance(callee, (Name, Attribute)) or (found := kernel_of(state.context, callee)) is None:
        return False
    function, file = found
    given = _given(state.context, function, node)
    kinds = dict(compile.declared(file, function.name))
    constexprs = _constants(state, function, kinds, given)
    warps = _num_warps(state, given)
    kernel = _elaborated(state, function, file, constexprs, warps, span)
    passed = tuple((p.name, _argument(state, kernel, p, given, span)) for p in kernel.params)
    stream = state.stream(given.get("stream"))
    number = _use(state, Use(function.name, file, tuple(sorted(constexprs.items())), warps, (), kernel))
    state.steps.append(Launch(number, passed, stream, _grid(state, kernel, grid, span), span))
    return True


def _given(context: Context, function: Function, node: Call) -> Mapping[str, Expression]:
    """Return the arguments by name, for parameters and options."""
    names = [p.name for p in function.params]
    form = f"its form is `{function.name}({', '.join(names)})`"
    note = (Note("it is defined here", function.span),)
    if clash := next((n for n in _OPTIONS if n in names), None):
        help = "rename the parameter"
        context.fail(
            "bad-launch", f"`{clash}` is an option of a launch, and a parameter here", node.span, help, notes=note
        )
    if len(node.args) > len(names):
        what = f"`{function.name}` takes {len(names)} arguments, and {len(node.args)} are given"
        context.fail("bad-launch", what, node.span, form, notes=note)
    given = dict(zip(names, node.args, strict=False))
    for keyword in node.keywords:
        if keyword.name in given or keyword.name not in (*names, *_OPTIONS):
            what = "gets its argument twice:" if keyword.name in given else "has no argument"
            help = did_you_mean(keyword.name, [*names, *_OPTIONS], form)
            context.fail("bad-launch", f"`{function.name}` {what} `{keyword.name}`", keyword.span, help, notes=note)
        given[keyword.name] = keyword.value
    return given


def _constants(
    state: State, function: Function, kinds: Mapping[str, str], given: Mapping[str, Expression]
) -> dict[str, object]:
    """Return the constexpr parameters that a launch passes, and None for each tensor that it omits."""
    found: dict[str, object] = {}
    for parameter in function.params:
        name, kind = parameter.name, kinds[parameter.name]
        if kind == "constexpr" and name in given:
            found[name] = _constant(state, given[name], name)
        elif kind == "optional" and (name not in given or state.value(given[name]) == Constant(None)):
            found[name] = None
    return found


def _constant(state: State, node: Expression, name: str) -> object:
    match state.value(node):
        case Constant(value=value):
            return value
        case Helper(function=function, module=module):
            return FuncSource(function.name, replace(module.source, around=module.around))
        case other:
            what = f"`{name}` is a constant of the kernel, and this is {describe(other)}"
            state.context.fail("bad-launch", what, node.span, "pass a number, or an `al.constexpr` parameter")


def _num_warps(state: State, given: Mapping[str, Expression]) -> int | None:
    if "num_warps" not in given:
        return None
    value = state.value(given["num_warps"])
    if not isinstance(value, Constant) or type(value.value) is not int:
        state.context.fail("bad-launch", f"`num_warps` is {describe(value)}", given["num_warps"].span, "write a number")
    return value.value


def _elaborated(
    state: State, function: Function, file: SourceFile, constexprs: dict[str, object], warps: int | None, span: Span
) -> Kernel:
    options = Options(state.context.options.target, warps, constexprs, default_alignment=1)
    try:
        return compile.elaborate(file, function.name, options)
    except SourceError as error:
        state.context.diagnostics += error.diagnostics
        what = f"the kernel `{function.name}` has mistakes for these constants"
        state.context.fail("bad-launch", what, span, "see the other messages")


def _argument(
    state: State, kernel: Kernel, param: Tensor | Scalar, given: Mapping[str, Expression], span: Span
) -> Part | Expr:
    note = (Note("it is declared here", param.span),)
    if param.name not in given:
        what = f"`{kernel.name}` lacks its argument `{param.name}`"
        state.context.fail("bad-launch", what, span, "pass every tensor and number", notes=note)
    node = given[param.name]
    if isinstance(param, Scalar):
        return _number(state, param, node)
    value = state.value(node)
    if not isinstance(value, View):
        what = f"`{param.name}` is a tensor, and this is {describe(value)}"
        state.context.fail("bad-launch", what, node.span, "pass a tensor, a buffer, or a part of one", notes=note)
    if value.obj.dtype is not param.dtype:
        what = f"`{param.name}` of `{kernel.name}` holds {param.dtype}, and {describe(value)} {value.obj.dtype}"
        state.context.fail("bad-launch", what, node.span, "pass a tensor of the same dtype", notes=note)
    if len(value.shape) != len(param.shape):
        rank = f"`{param.name}` of `{kernel.name}` has {len(param.shape)} dimensions"
        what = f"{rank}, and {describe(value)} {len(value.shape)}"
        state.context.fail("bad-launch", what, node.span, "index or slice it to as many", notes=note)
    return part_of(value)


def _number(state: State, param: Scalar, node: Expression) -> Expr:
    found = as_tile(state.context, state.value(node), node.span, param.dtype)
    if found.shape or found.dtype is not param.dtype:
        what = f"`{param.name}` is of {param.dtype}, and this is {describe(found)}"
        state.context.fail("bad-launch", what, node.span, f"convert it: `x.to(al.{param.dtype})`")
    known = all(isinstance(e, (Const, Param, LoopVar, Op)) for e in walk(found.expr))
    if param.dtype.is_float and not isinstance(found.expr, (Const, Param)):
        what = f"`{param.name}` is computed in floats, which host and device round differently"
        state.context.fail(
            "bad-launch", what, node.span, "pass a constant or a parameter of the program, and compute in the kernel"
        )
    if not known:
        state.context.fail("bad-launch", f"`{param.name}` is not known on the host", node.span, "use sizes and numbers")
    return found.expr


def _grid(state: State, kernel: Kernel, node: Subscript | None, span: Span) -> tuple[Expr, ...] | None:
    if node is None and kernel.grid is None:
        what = f"`{kernel.name}` declares no grid, and the launch gives none"
        state.context.fail(
            "bad-launch", what, span, f"write `{kernel.name}[(blocks,)](...)`, or declare it in the kernel"
        )
    if node is None:
        return None
    if kernel.grid is not None:
        what = f"`{kernel.name}` declares its grid, and the launch gives another"
        state.context.fail("bad-launch", what, node.span, f"write `{kernel.name}(...)`")
    values = [state.value(i) for i in node.items if not isinstance(i, Slice)]
    items = items_of(values[0]) if len(values) == 1 else None
    extents = []
    for value in items if items is not None else values:
        found = as_tile(state.context, value, node.span, int32)
        if found.shape or found.dtype is not int32:
            state.context.fail(
                "bad-launch", f"a grid is of int32, and this is {describe(found)}", node.span, "use sizes"
            )
        extents.append(found.expr)
    return tuple(extents)


def _use(state: State, use: Use) -> int:
    """Return the number of a use. Equal uses share a number."""
    if use not in state.uses:
        state.uses.append(use)
    return state.uses.index(use)
