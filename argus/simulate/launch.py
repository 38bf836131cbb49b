"""Bind arguments: sizes and strides from arrays, preconditions, initial contents."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from typing_extensions import assert_never

from argus.diagnostic import Diagnostic, LaunchError
from argus.ir.contents import offence, outside, ranges, spaced
from argus.ir.expr import Const, Expr, Param
from argus.ir.nodes import Arranged, Assume, InRange, Kernel, Requires, Scalar, Tensor
from argus.ir.types import MAX_EXTENT
from argus.simulate.evaluate import Bindings, Fault, Number, Overflow, evaluate
from argus.simulate.numeric import Array, carrier
from argus.simulate.usage import usage
from argus.source import Span

Argument = Array | int | float


def bind(kernel: Kernel, arguments: Mapping[str, Argument]) -> dict[str, Number]:
    """Return the value of every `Param`. Raises `LaunchError` with everything that is wrong with the call.

    Float tensors are passed as float32 arrays (float16 tensors also as float16), other tensors in the type of the same
    name.
    """
    problems: list[Diagnostic] = []
    params: dict[str, Number] = {}
    known = {p.name for p in kernel.params}
    for name in arguments:
        if name not in known:
            problems.append(_problem("unknown-argument", f"there is no parameter `{name}`", kernel.span))
    for p in kernel.params:
        if p.name not in arguments:
            problems.append(_problem("missing-argument", f"the argument for `{p.name}` is missing", p.span))
        elif isinstance(p, Scalar):
            value = arguments[p.name]
            if isinstance(value, np.ndarray) and value.ndim:
                problems.append(_problem("wrong-type", f"`{p.name}` is a scalar, but an array was passed", p.span))
            else:
                params[p.name] = float(value) if p.dtype.is_float else int(value)
        else:
            problems += _bind_tensor(p, arguments[p.name], params)
    if not problems:
        problems = _aliased(kernel, arguments) + unmet(kernel, params)
    if problems:
        raise LaunchError(*problems)
    return params


def _problem(code: str, message: str, span: Span) -> Diagnostic:
    return Diagnostic(code, message, span, property="launch")


def _bind_tensor(tensor: Tensor, array: Argument, params: dict[str, Number]) -> list[Diagnostic]:
    if not isinstance(array, np.ndarray):
        return [_problem("wrong-type", f"`{tensor.name}` is a tensor: pass a NumPy array", tensor.span)]
    wanted = {carrier(tensor.dtype)} | ({np.dtype(np.float16)} if tensor.dtype.name == "float16" else set())
    if array.dtype not in wanted:
        text = f"`{tensor.name}` of {tensor.dtype} takes an array of {carrier(tensor.dtype)}, not {array.dtype}"
        return [_problem("wrong-type", text, tensor.span)]
    if array.ndim != len(tensor.shape):
        text = f"`{tensor.name}` has {len(tensor.shape)} dimensions, but the array has {array.ndim}"
        return [_problem("wrong-shape", text, tensor.span)]
    strides = tuple(s // array.itemsize for s in array.strides)
    return bind_shape(tensor, array.shape, strides, params)


def bind_shape(
    tensor: Tensor, shape: tuple[int, ...], strides: tuple[int, ...], params: dict[str, Number]
) -> list[Diagnostic]:
    """Enter a tensor's extents and strides (in elements) into `params`; return the problems."""
    problems: list[Diagnostic] = []

    def unify(expr: Expr, value: int, what: str, code: str) -> None:
        expected = expr.value if isinstance(expr, Const) else None
        if isinstance(expr, Param):
            expected = params.setdefault(expr.name, value)
        if expected != value:
            text = f"{what} of `{tensor.name}` is {value}, but must be {expected}"
            problems.append(_problem(code, text, tensor.span))

    for axis, (expr, value) in enumerate(zip(tensor.shape, shape, strict=True)):
        if value > MAX_EXTENT:
            text = f"extent {value} of `{tensor.name}` is above {MAX_EXTENT}"
            problems.append(_problem("wrong-shape", text, tensor.span))
        unify(expr, value, f"extent {axis}", "wrong-shape")
    for axis, (expr, value) in enumerate(zip(tensor.strides, strides, strict=True)):
        if isinstance(expr, Const) and (shape[axis] <= 1 or 0 in shape):
            continue  # No address depends on this stride.
        unify(expr, value, f"stride {axis}", "wrong-stride")
    return problems + _alignment(tensor, shape, strides)


def _alignment(tensor: Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> list[Diagnostic]:
    problems = []
    for axis, (expr, stride) in enumerate(zip(tensor.strides, strides, strict=True)):
        unit = isinstance(expr, Const) and expr.value == 1
        length = (shape[axis] if unit else stride) * tensor.dtype.bytes
        if length % tensor.alignment and (unit or (shape[axis] > 1 and 0 not in shape)):
            what = "extent" if unit else "stride"
            text = (
                f"{what} {axis} of `{tensor.name}` is {length} bytes, "
                f"which is not a multiple of its alignment of {tensor.alignment} bytes"
            )
            problems.append(_problem("misaligned-argument", text, tensor.span))
    return problems


def _aliased(kernel: Kernel, arguments: Mapping[str, Argument]) -> list[Diagnostic]:
    """Return the problems of output tensors that overlap another tensor."""
    outputs = usage(kernel).written
    arrays = {t.name: (t, arguments[t.name]) for t in kernel.tensors}
    problems = []
    for name in outputs:
        tensor, array = arrays[name]
        for other, (_, second) in arrays.items():
            one, two = np.asarray(array), np.asarray(second)
            if other != name and np.may_share_memory(one, two) and np.shares_memory(one, two):
                text = f"output tensor `{name}` overlaps `{other}` in memory"
                problems.append(_problem("aliased-output", text, tensor.span))
    return problems


def unmet(kernel: Kernel, params: Mapping[str, Number]) -> list[Diagnostic]:
    """Return the problems of `requires` conditions that do not hold."""
    problems = []
    for condition in kernel.preconditions:
        match condition:
            case Requires(cond=cond, span=span):
                if not bool(scalar(cond, params)):
                    problems.append(_problem("requires-not-met", "a precondition of the kernel does not hold", span))
            case InRange() | Arranged() | Assume():
                pass
            case _:
                assert_never(condition)
    return problems


def check_ranges(kernel: Kernel, arguments: Mapping[str, Argument], params: Mapping[str, Number]) -> None:
    """Raise `LaunchError` if the contents of an index tensor violate their declaration."""
    problems = []
    for fact in ranges(kernel):
        values = np.asarray(arguments[fact.tensor])
        wrong = outside(values, int(scalar(fact.lo, params)), int(scalar(fact.hi, params)))
        if wrong is not None:
            problems.append(_problem("index-out-of-range", f"`{fact.tensor}`{wrong}", fact.span))
    for order in kernel.preconditions if not problems else ():
        if isinstance(order, Arranged):
            total, longest = (None if e is None else int(scalar(e, params)) for e in (order.total, order.longest))
            wrong = offence(order.how, np.asarray(arguments[order.tensor]), total or 0, longest)
            if wrong is not None:
                problems.append(_problem("index-order", f"`{order.tensor}`{spaced(wrong)}", order.span))
    if problems:
        raise LaunchError(*problems)


def scalar(expr: Expr, params: Mapping[str, Number], fault: Fault | None = None) -> Number:
    """Return the value of an expression over launch-time scalars. `fault` is called on 32-bit overflow."""
    none = np.zeros(1, dtype=np.int64)

    def nothing(*_: object) -> Array:
        raise ValueError("a launch-time expression reads a register")

    def ignore(code: str, expr: Expr, bad: Array) -> None:
        return None

    overflow = Overflow.IGNORE if fault is None else Overflow.REPORT
    value: Number = evaluate(expr, Bindings(params, (), {}, (), none, nothing, fault or ignore, overflow)).item()
    return value


def extents(tensor: Tensor, params: Mapping[str, Number]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape and the strides (in elements) of a tensor."""
    shape = tuple(int(scalar(e, params)) for e in tensor.shape)
    strides = tuple(int(scalar(e, params)) for e in tensor.strides)
    return shape, strides
