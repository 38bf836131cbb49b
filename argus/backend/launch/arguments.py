"""Check each argument by itself: its dtype, rank, strides and alignment; scalars by their range."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from argus.backend.launch.array import Array, is_torch
from argus.backend.launch.evaluate import Number
from argus.backend.launch.signature import Signature, TensorParam
from argus.diagnostic import Diagnostic, LaunchError
from argus.ir.expr import Const
from argus.ir.types import ALIGNMENTS, DTYPES, MAX_EXTENT
from argus.source import NO_SPAN, Span

SCALAR_FORMATS = {
    "bool": "?7x",
    "int8": "b7x",
    "uint8": "B7x",
    "int32": "i4x",
    "int64": "q",
    "uint32": "I4x",
    "float16": "e6x",
    "float32": "f4x",
}
"""How `struct` packs a scalar of each dtype, little-endian, into the eight bytes that an argument takes."""


def alignment(param: TensorParam, value: Array) -> int:
    """Return the largest of `ALIGNMENTS` that `value` satisfies for `param`, in bytes."""
    quantities = [value.pointer]
    for extent, stride, declared in zip(value.shape, value.strides, param.strides, strict=False):
        unit = isinstance(declared, Const) and declared.value == 1
        quantities.append((extent if unit else stride) * value.itemsize)
    return next(a for a in ALIGNMENTS if all(q % a == 0 for q in quantities))


def held(signature: Signature, scalars: Mapping[str, Number]) -> dict[str, Number]:
    """Return the scalars as their parameters hold them, for example rounded to float32.

    Raises LaunchError "scalar-argument" for every scalar that its parameter cannot hold.
    """
    values, problems = converted(signature, scalars)
    if problems:
        raise LaunchError(*problems)
    return values


def converted(signature: Signature, scalars: Mapping[str, Number]) -> tuple[dict[str, Number], list[Diagnostic]]:
    values: dict[str, Number] = {}
    problems = []
    for param in signature.scalars:
        value, form = scalars[param.name], "<" + SCALAR_FORMATS[param.dtype]
        try:
            (values[param.name],) = struct.unpack(form, struct.pack(form, value))
        except (struct.error, OverflowError, TypeError, ValueError):
            message = f"`{param.name}` is {value!r}, which is no {param.dtype}"
            problems.append(problem("scalar-argument", message, NO_SPAN, "pass a number in its range"))
    return values, problems


def _conversion(name: str, value: Array, wanted: str) -> str:
    """Return the help text that says how to convert an array of another type to the wanted one."""
    if value.dtype.startswith("complex"):
        return f"pass its pairs as a last dimension of 2: `torch.view_as_real({name})`, or NumPy's `.view` of floats"
    kept = wanted in DTYPES and (wanted == "bfloat16" or wanted.startswith("float8"))
    if kept and not is_torch(value.source):
        return f"NumPy has no {wanted}: pass `{name}` as uint{8 * DTYPES[wanted].bytes} with the same bits"
    return f"pass `{name}` as {wanted}"


def undeclared(param: TensorParam, value: Array) -> list[Diagnostic]:
    """Return the errors of a tensor whose dtype or rank is not the declared one."""
    name, span = param.name, param.span
    if not value.holds(param.dtype):
        return [
            problem(
                "dtype-mismatch",
                f"`{name}` holds {value.dtype}; the kernel takes {param.dtype}",
                span,
                _conversion(name, value, param.dtype),
            )
        ]
    if len(value.shape) != len(param.shape):
        return [
            problem(
                "shape-mismatch",
                f"`{name}` has {len(value.shape)} dimensions, {list(value.shape)}; the kernel takes {len(param.shape)}",
                span,
                "reshape it",
            )
        ]
    return []


def tensor_problems(param: TensorParam, value: Array) -> list[Diagnostic]:
    """Return the errors of one tensor that do not involve other tensors."""
    name, span = param.name, param.span
    problems = undeclared(param, value)
    if problems:
        return problems
    for axis, extent in enumerate(value.shape):
        if extent > MAX_EXTENT:
            problems.append(
                problem(
                    "extent-too-large",
                    f"dimension {axis} of `{name}` has {extent} elements; the most is {MAX_EXTENT}",
                    span,
                    "split it: kernels index with 32 bits",
                )
            )
    problems += _fixed_strides(param, value)
    if param.written and not value.writable:
        problems.append(
            problem(
                "read-only-output",
                f"`{name}` is written by the kernel, and is a read-only array",
                span,
                "pass a writable array",
            )
        )
    if param.written and not value.injective():
        problems.append(
            problem(
                "output-overlaps-itself",
                f"`{name}` is written by the kernel, and its strides "
                f"{list(value.strides)} give several coordinates of {list(value.shape)} one address",
                span,
                "pass a tensor that was not made by `expand` or `as_strided`",
            )
        )
    return problems


def misaligned(param: TensorParam, value: Array) -> Diagnostic | None:
    have = alignment(param, value)
    if have >= param.alignment:
        return None
    return problem(
        "misaligned-argument",
        f"`{param.name}` is aligned to {have} bytes; the kernel was compiled for {param.alignment} (address, "
        "strides, and extent of the contiguous dimension)",
        param.span,
        f"pad it, or compile with alignment {have}",
    )


def _fixed_strides(param: TensorParam, value: Array) -> list[Diagnostic]:
    """Return the errors of strides that differ from a constant in the annotation.

    The stride of a dimension of one element may be anything.
    """
    if 0 in value.shape:
        return []
    return [
        problem(
            "stride-mismatch",
            f"dimension {axis} of `{param.name}` has stride {stride}; the kernel takes {declared.value}",
            param.span,
            "call `.contiguous()` on it, or declare its strides in the annotation",
        )
        for axis, (extent, stride, declared) in enumerate(zip(value.shape, value.strides, param.strides, strict=True))
        if isinstance(declared, Const) and stride != declared.value and extent > 1
    ]


def problem(code: str, message: str, span: Span, help: str) -> Diagnostic:
    return Diagnostic(code, message, span, "launch", help=help)
