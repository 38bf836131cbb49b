"""Check arguments against a signature: every precondition of the proof that does not depend on addresses.

Later calls repeat only the checks whose result may differ: those of addresses (`Binding.apart`) and of conditions over
scalar arguments (`Binding.scalar_conditions`).
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import NamedTuple

from argus.backend.launch.array import Array, is_torch
from argus.backend.launch.evaluate import Number, evaluate, names, show
from argus.backend.launch.signature import Condition, Signature, TensorParam
from argus.diagnostic import Diagnostic, LaunchError, Note
from argus.ir.expr import Const, Expr, Param
from argus.ir.types import ALIGNMENTS, DTYPES, HARDWARE_AXES, MAX_EXTENT, DType
from argus.source import NO_SPAN, Span

_GRID_LIMITS = (2**31 - 1, 65535, 65535)  # CUDA C++ programming guide, "Technical Specifications per CC"


SCALAR_FORMATS = {
    "bool": "?7x",
    "int8": "b7x",
    "uint8": "B7x",
    "int32": "i4x",
    "int64": "q",
    "float16": "e6x",
    "float32": "f4x",
}
"""How `struct` packs a scalar of each dtype, little-endian, into the eight bytes that an argument takes."""


class Apart(NamedTuple):
    """Tensors `first` and `second` (positions among the tensors) overlap where low < address difference < high."""

    first: int
    second: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Described:
    """The contents of tensor map `argument`, except the address: it describes tensor `name`, number `position`.

    All sequences are in the tensor's own order of dimensions (rank 2 to 5); the last dimension is contiguous. `box` and
    `swizzle_bytes` are as in `argus.backend.abi.TensorMap`.
    """

    argument: str
    name: str
    position: int
    dtype: DType
    extents: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int


@dataclass(frozen=True, slots=True)
class Binding:
    """Checked arguments.

    `values` holds every size and symbolic stride by name. `grid` has three extents. `given` is the grid that the call
    passed, or None.
    """

    values: Mapping[str, int]
    grid: tuple[int, int, int]
    given: Sequence[int] | None
    device: str
    apart: tuple[Apart, ...]
    scalar_conditions: tuple[Condition, ...]
    described: tuple[Described, ...]


def alignment(param: TensorParam, value: Array) -> int:
    """Return the largest of `ALIGNMENTS` that `value` satisfies for `param`, in bytes."""
    quantities = [value.pointer]
    for extent, stride, declared in zip(value.shape, value.strides, param.strides, strict=False):
        unit = isinstance(declared, Const) and declared.value == 1
        quantities.append((extent if unit else stride) * value.itemsize)
    return next(a for a in ALIGNMENTS if all(q % a == 0 for q in quantities))


def bind(
    signature: Signature,
    arrays: Mapping[str, Array],
    scalars: Mapping[str, Number],
    grid: Sequence[int] | None,
) -> Binding:
    """Check one call. `arrays` and `scalars` hold every parameter by name. A `grid` of None means the declared grid.

    Raises LaunchError with the preconditions that fail.
    """
    numbers, problems = _held(signature, scalars)
    for param in signature.tensors:
        problems += _tensor(param, arrays[param.name])
    values = _values(signature, arrays, problems)
    devices = {arrays[p.name].device: p.name for p in signature.tensors}
    if len(devices) > 1:
        where = ", ".join(f"`{name}` on {device}" for device, name in devices.items())
        problems.append(
            _problem(
                "device-mismatch", f"the tensors are on several devices: {where}", NO_SPAN, "move them to one device"
            )
        )
    if not problems:
        problems += [p for t in signature.tensors if (p := _misaligned(t, arrays[t.name])) is not None]
    if problems:
        raise LaunchError(*problems)
    known: dict[str, Number] = {**values, **numbers}
    scalar_names = {p.name for p in signature.scalars}
    over_scalars = tuple(c for c in signature.conditions if names(c.expr) & scalar_names)
    check_conditions(signature.conditions, known)
    apart = _apart(signature, arrays)
    check_apart(signature, apart, [arrays[p.name].pointer for p in signature.tensors])
    return Binding(
        values,
        launch_grid(signature, known, grid),
        grid,
        next(iter(devices), "cpu"),
        apart,
        over_scalars,
        _described(signature, values),
    )


# ---------------------------------------------------------------------------- one argument


def held(signature: Signature, scalars: Mapping[str, Number]) -> dict[str, Number]:
    """Return the scalars as their parameters hold them, for example rounded to float32.

    Raises LaunchError "scalar-argument" for every scalar that its parameter cannot hold.
    """
    values, problems = _held(signature, scalars)
    if problems:
        raise LaunchError(*problems)
    return values


def _held(signature: Signature, scalars: Mapping[str, Number]) -> tuple[dict[str, Number], list[Diagnostic]]:
    values: dict[str, Number] = {}
    problems = []
    for param in signature.scalars:
        value, form = scalars[param.name], "<" + SCALAR_FORMATS[param.dtype]
        try:
            (values[param.name],) = struct.unpack(form, struct.pack(form, value))
        except (struct.error, OverflowError, TypeError, ValueError):
            message = f"`{param.name}` is {value!r}, which is no {param.dtype}"
            problems.append(_problem("scalar-argument", message, NO_SPAN, "pass a number in its range"))
    return values, problems


def _conversion(name: str, value: Array, wanted: str) -> str:
    """Return the help text that says how to convert an array of another type to the wanted one."""
    if value.dtype.startswith("complex"):
        return f"pass its pairs as a last dimension of 2: `torch.view_as_real({name})`, or NumPy's `.view` of floats"
    kept = wanted in DTYPES and (wanted == "bfloat16" or wanted.startswith("float8"))
    if kept and not is_torch(value.source):
        return f"NumPy has no {wanted}: pass `{name}` as uint{8 * DTYPES[wanted].bytes} with the same bits"
    return f"pass `{name}` as {wanted}"


def mismatches(signature: Signature, arrays: Mapping[str, Array]) -> list[Diagnostic]:
    """Return the errors of tensors with the wrong dtype, rank or extents. Works for tensors without memory."""
    problems = [p for param in signature.tensors for p in _undeclared(param, arrays[param.name])]
    _values(replace(signature, params=tuple(map(_strideless, signature.tensors))), arrays, problems)
    return problems


def _strideless(param: TensorParam) -> TensorParam:
    return replace(param, strides=(Const(1),) * len(param.shape))


def _undeclared(param: TensorParam, value: Array) -> list[Diagnostic]:
    """Return the errors of a tensor whose dtype or rank is not the declared one."""
    name, span = param.name, param.span
    if not value.holds(param.dtype):
        return [
            _problem(
                "dtype-mismatch",
                f"`{name}` holds {value.dtype}; the kernel takes {param.dtype}",
                span,
                _conversion(name, value, param.dtype),
            )
        ]
    if len(value.shape) != len(param.shape):
        return [
            _problem(
                "shape-mismatch",
                f"`{name}` has {len(value.shape)} dimensions, {list(value.shape)}; the kernel takes {len(param.shape)}",
                span,
                "reshape it",
            )
        ]
    return []


def _tensor(param: TensorParam, value: Array) -> list[Diagnostic]:
    """Return the errors of one tensor that do not involve other tensors."""
    name, span = param.name, param.span
    problems = _undeclared(param, value)
    if problems:
        return problems
    for axis, extent in enumerate(value.shape):
        if extent > MAX_EXTENT:
            problems.append(
                _problem(
                    "extent-too-large",
                    f"dimension {axis} of `{name}` has {extent} elements; the most is {MAX_EXTENT}",
                    span,
                    "split it: kernels index with 32 bits",
                )
            )
    problems += _fixed_strides(param, value)
    if param.written and not value.writable:
        problems.append(
            _problem(
                "read-only-output",
                f"`{name}` is written by the kernel, and is a read-only array",
                span,
                "pass a writable array",
            )
        )
    if param.written and not value.injective():
        problems.append(
            _problem(
                "output-overlaps-itself",
                f"`{name}` is written by the kernel, and its strides "
                f"{list(value.strides)} give several coordinates of {list(value.shape)} one address",
                span,
                "pass a tensor that was not made by `expand` or `as_strided`",
            )
        )
    return problems


def _misaligned(param: TensorParam, value: Array) -> Diagnostic | None:
    have = alignment(param, value)
    if have >= param.alignment:
        return None
    return _problem(
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
        _problem(
            "stride-mismatch",
            f"dimension {axis} of `{param.name}` has stride {stride}; the kernel takes {declared.value}",
            param.span,
            "call `.contiguous()` on it, or declare its strides in the annotation",
        )
        for axis, (extent, stride, declared) in enumerate(zip(value.shape, value.strides, param.strides, strict=True))
        if isinstance(declared, Const) and stride != declared.value and extent > 1
    ]


# ---------------------------------------------------------------------------- several tensors


def _values(signature: Signature, arrays: Mapping[str, Array], problems: list[Diagnostic]) -> dict[str, int]:
    """Return sizes and strides by name. Add to `problems` where two uses of a name, or a use and a constant, differ."""
    values: dict[str, int] = {}
    origin: dict[str, str] = {}

    def meet(declared: Expr, actual: int, place: str, span: Span) -> None:
        match declared:
            case Const(value=wanted) if actual != wanted:
                problems.append(
                    _problem(
                        "shape-mismatch",
                        f"{place} is {actual}; the kernel takes {wanted}",
                        span,
                        "pass a tensor of the declared shape",
                    )
                )
            case Param(name=name) if values.setdefault(name, actual) != actual:
                problems.append(
                    _problem(
                        "shape-mismatch",
                        f"`{name}` is {values[name]} in {origin[name]} and {actual} in {place}",
                        span,
                        "the two must be equal",
                    )
                )
            case Param(name=name):
                origin.setdefault(name, place)
            case _:
                pass

    for param in signature.tensors:
        value = arrays[param.name]
        if len(value.shape) != len(param.shape):
            continue
        for axis, (declared, actual) in enumerate(zip(param.shape, value.shape, strict=True)):
            meet(declared, actual, f"`{param.name}.shape[{axis}]`", param.span)
        for axis, (declared, actual) in enumerate(zip(param.strides, value.strides, strict=True)):
            if isinstance(declared, Param):
                meet(declared, actual, f"`{param.name}.stride({axis})`", param.span)
    return values


def _apart(signature: Signature, arrays: Mapping[str, Array]) -> tuple[Apart, ...]:
    """Return one row for each pair of tensors that both have elements and at least one of which is written."""
    rows = []
    for (i, first), (j, second) in combinations(enumerate(signature.tensors), 2):
        low1, high1 = arrays[first.name].extent()
        low2, high2 = arrays[second.name].extent()
        if (first.written or second.written) and low1 < high1 and low2 < high2:
            # for addresses p and q: overlap if p + low1 < q + high2 and q + low2 < p + high1
            rows.append(Apart(i, j, low2 - high1, high2 - low1))
    return tuple(rows)


def check_apart(signature: Signature, apart: Sequence[Apart], pointers: Sequence[int]) -> None:
    """Raise LaunchError "overlapping-output" if a written tensor shares a byte with another tensor."""
    for row in apart:
        if row.low < pointers[row.first] - pointers[row.second] < row.high:
            first, second = signature.tensors[row.first], signature.tensors[row.second]
            written, other = (first, second) if first.written else (second, first)
            raise LaunchError(
                _problem(
                    "overlapping-output",
                    f"`{written.name}` is written by the kernel, and overlaps `{other.name}` in memory",
                    written.span,
                    f"pass a tensor of its own for `{written.name}`",
                )
            )


# ---------------------------------------------------------------------------- tensor maps

_MAX_STRIDE = 2**40  # bytes; CUDA driver API, cuTensorMapEncodeTiled


def _described(signature: Signature, values: Mapping[str, int]) -> tuple[Described, ...]:
    """Return the tensors of the signature's tensor maps, as the kernel sees them.

    Raises LaunchError "tensor-map-refused" for strides that the copy engine does not take. Its other rules already
    hold: boxes are legal in a well-formed kernel, `MAX_EXTENT` bounds extents, and the alignment that the kernel was
    compiled for makes strides multiples of 16 bytes. Only the stride of a dimension of one element may be anything.
    """
    positions = {t.name: i for i, t in enumerate(signature.tensors)}
    found, problems = [], []
    for slot in signature.maps:
        position = positions[slot.tensor]
        param = signature.tensors[position]
        extents = tuple(int(evaluate(e, values)) for e in param.shape)
        strides = tuple(int(evaluate(e, values)) * param.itemsize for e in param.strides)
        dtype = DTYPES[param.dtype]
        found.append(Described(slot.name, param.name, position, dtype, extents, strides, slot.box, slot.swizzle_bytes))
        problems += [
            _problem(
                "tensor-map-refused",
                f"dimension {axis} of `{param.name}` has a stride of {stride} bytes; the copy engine takes multiples "
                "of 16 from 0 to below 2**40",
                param.span,
                "pass a contiguous copy",
            )
            for axis, stride in enumerate(strides[:-1])
            if stride % 16 or not 0 <= stride < _MAX_STRIDE
        ]
    if problems:
        raise LaunchError(*dict.fromkeys(problems))
    return tuple(found)


# ---------------------------------------------------------------------------- conditions, grid, contents


def check_conditions(conditions: Sequence[Condition], values: Mapping[str, Number]) -> None:
    """Raise LaunchError "precondition-failed" with every `requires` that does not hold."""
    problems = []
    for condition in conditions:
        try:
            holds = bool(evaluate(condition.expr, values))
            said = "does not hold"
        except (ArithmeticError, ValueError) as error:
            holds, said = False, f"has no value ({error})"
        if not holds:
            used = ", ".join(f"{name} = {values[name]}" for name in sorted(names(condition.expr)))
            problems.append(
                _problem(
                    "precondition-failed",
                    f"requires `{show(condition.expr)}` {said} for {used}",
                    condition.span,
                    "the kernel is proved only for calls that meet it: pass other sizes, or pad the tensors",
                )
            )
    if problems:
        raise LaunchError(*problems)


def _check_programs(grid: tuple[int, ...]) -> None:
    """Raise LaunchError "grid-too-large" if a persistent or flat kernel has more than `MAX_EXTENT` programs."""
    if min(grid) < 0 or prod(grid) > MAX_EXTENT:
        raise LaunchError(
            _problem(
                "grid-too-large",
                f"the grid {grid} has {prod(grid)} programs; the most that one axis of the hardware counts is "
                f"{MAX_EXTENT}",
                NO_SPAN,
                "use larger tiles",
            )
        )


def launch_grid(
    signature: Signature, values: Mapping[str, Number], given: Sequence[int] | None
) -> tuple[int, int, int]:
    """Return the three extents of the grid for sizes, strides and scalars by name.

    Raises LaunchError if neither the kernel nor the call gives a grid, if the grid is too large, or if the call's grid
    differs from the declared one.
    """
    most = HARDWARE_AXES if signature.grid is None else max(HARDWARE_AXES, len(signature.grid))
    if given is not None and (not 1 <= len(given) <= most or any(not _is_count(extent) for extent in given)):
        raise LaunchError(
            _problem(
                "grid-mismatch",
                f"the grid {tuple(given)!r} is not one to {most} non-negative integers",
                NO_SPAN,
                "write kernel[(blocks_x, blocks_y)](...)",
            )
        )
    if signature.grid is None and given is None:
        raise LaunchError(
            _problem(
                "grid-missing",
                f"kernel `{signature.name}` declares no grid, and the call gives none",
                NO_SPAN,
                "write kernel[grid](...), or declare it in the kernel with al.grid(...)",
            )
        )
    declared = None if signature.grid is None else tuple(int(evaluate(e, values)) for e in signature.grid)
    if declared is not None and given is not None and not _agree(given, declared, signature.flat):
        text = ", ".join(show(e) for e in signature.grid or ())
        raise LaunchError(
            _problem(
                "grid-mismatch",
                f"the call's grid is {tuple(given)}; the kernel declares ({text}), which is {declared} here",
                NO_SPAN,
                "leave the grid out: kernel(...)",
            )
        )
    if declared is not None and (signature.persistent or signature.flat):
        _check_programs(declared)
        return prod(declared), 1, 1
    chosen = _three(declared if declared is not None else given or ())
    for axis, (extent, limit) in enumerate(zip(chosen, _GRID_LIMITS, strict=True)):
        if extent > limit or extent < 0:
            raise LaunchError(
                _problem(
                    "grid-too-large",
                    f"axis {axis} of the grid has {extent} blocks; the most is {limit}",
                    NO_SPAN,
                    "use larger tiles, or put the longest axis first",
                )
            )
    return chosen


def _agree(given: Sequence[int], declared: Sequence[int], flat: bool) -> bool:
    """Return True if a call's grid is the declared one. For a flat kernel it may give adjacent axes as a product."""
    if not flat:
        return _three(given) == _three(declared)
    if 0 in declared:
        return 0 in given
    rest = list(declared)
    for extent in given:
        axes = 1
        while axes != extent and rest:
            axes *= rest.pop(0)
        if axes != extent:
            return False
    return all(extent == 1 for extent in rest)


def _is_count(extent: object) -> bool:
    try:
        return operator.index(extent) >= 0  # type: ignore[arg-type]
    except TypeError:
        return False


def _three(grid: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*grid, 1, 1, 1)[:3]
    return x, y, z


def check_contents(found: Signature, arrays: Mapping[str, Array], values: Mapping[str, Number]) -> None:
    """Check the contents of index tensors.

    Raises LaunchError "index-out-of-range" if an index tensor holds a value outside its declared range, and
    "index-order" if its elements are not arranged as declared. Both name the first such element. The whole tensor is
    read on its device; on a GPU this waits for earlier work.
    """
    from argus.ir.contents import offence, outside, spaced  # not needed by launches that look at no contents

    for r in found.ranges:
        wrong = outside(arrays[r.tensor].source, int(evaluate(r.lo, values)), int(evaluate(r.hi, values)))
        if wrong is not None:
            text, help = f"`{r.tensor}`{wrong}", "correct the indices: the kernel would read or write outside"
            notes = (Note(f"the bounds are {show(r.lo)} and {show(r.hi)}"),)
            raise LaunchError(Diagnostic("index-out-of-range", text, r.span, "launch", help=help, notes=notes))
    for o in found.orders:
        total, longest = (None if e is None else int(evaluate(e, values)) for e in (o.total, o.longest))
        wrong = offence(o.how, arrays[o.tensor].source, total or 0, longest)
        if wrong is not None:
            help = "correct the tensor: what is proved of the kernel holds for contents as declared alone"
            raise LaunchError(Diagnostic("index-order", f"`{o.tensor}`{spaced(wrong)}", o.span, "launch", help=help))


def _problem(code: str, message: str, span: Span, help: str) -> Diagnostic:
    return Diagnostic(code, message, span, "launch", help=help)
