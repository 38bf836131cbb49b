"""Check arguments against a signature: every precondition of the proof that does not depend on addresses.

Later calls repeat only the checks whose result may differ: those of addresses (`Binding.apart`) and of conditions over
scalar arguments (`Binding.scalar_conditions`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

from argus.backend.launch.arguments import converted, misaligned, problem, tensor_problems, undeclared
from argus.backend.launch.array import Array
from argus.backend.launch.evaluate import Number, evaluate, names, show
from argus.backend.launch.grid import launch_grid
from argus.backend.launch.signature import Condition, Signature, TensorParam
from argus.diagnostic import Diagnostic, LaunchError, Note
from argus.ir.expr import Const, Expr, Param
from argus.ir.pixels import Pixels
from argus.ir.types import DTYPES, DType
from argus.source import NO_SPAN, Span


class Apart(NamedTuple):
    """Tensors `first` and `second` (positions among the tensors) overlap where low < address difference < high."""

    first: int
    second: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Described:
    """The contents of tensor map `argument`, except the address: it describes tensor `name`, number `position`.

    All sequences are in the tensor's own order of dimensions (rank 2 to 5); the last dimension is contiguous. `box`,
    `swizzle_bytes` and `pixels` are as in `argus.backend.abi.TensorMap`.
    """

    argument: str
    name: str
    position: int
    dtype: DType
    extents: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int
    pixels: Pixels | None = None


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


def bind(
    signature: Signature,
    arrays: Mapping[str, Array],
    scalars: Mapping[str, Number],
    grid: Sequence[int] | None,
) -> Binding:
    """Check one call. `arrays` and `scalars` hold every parameter by name. A `grid` of None means the declared grid.

    Raises LaunchError with the preconditions that fail.
    """
    numbers, problems = converted(signature, scalars)
    for param in signature.tensors:
        problems += tensor_problems(param, arrays[param.name])
    values = _values(signature, arrays, problems)
    devices = {arrays[p.name].device: p.name for p in signature.tensors}
    if len(devices) > 1:
        where = ", ".join(f"`{name}` on {device}" for device, name in devices.items())
        problems.append(
            problem(
                "device-mismatch", f"the tensors are on several devices: {where}", NO_SPAN, "move them to one device"
            )
        )
    if not problems:
        problems += [p for t in signature.tensors if (p := misaligned(t, arrays[t.name])) is not None]
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


# ---------------------------------------------------------------------------- several tensors


def mismatches(signature: Signature, arrays: Mapping[str, Array]) -> list[Diagnostic]:
    """Return the errors of tensors with the wrong dtype, rank or extents. Works for tensors without memory."""
    problems = [p for param in signature.tensors for p in undeclared(param, arrays[param.name])]
    _values(replace(signature, params=tuple(map(_strideless, signature.tensors))), arrays, problems)
    return problems


def _strideless(param: TensorParam) -> TensorParam:
    return replace(param, strides=(Const(1),) * len(param.shape))


def _values(signature: Signature, arrays: Mapping[str, Array], problems: list[Diagnostic]) -> dict[str, int]:
    """Return sizes and strides by name. Add to `problems` where two uses of a name, or a use and a constant, differ."""
    values: dict[str, int] = {}
    origin: dict[str, str] = {}

    def meet(declared: Expr, actual: int, place: str, span: Span) -> None:
        match declared:
            case Const(value=wanted) if actual != wanted:
                problems.append(
                    problem(
                        "shape-mismatch",
                        f"{place} is {actual}; the kernel takes {wanted}",
                        span,
                        "pass a tensor of the declared shape",
                    )
                )
            case Param(name=name) if values.setdefault(name, actual) != actual:
                problems.append(
                    problem(
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
                problem(
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
        how = (slot.box, slot.swizzle_bytes, slot.pixels)
        found.append(Described(slot.name, param.name, position, dtype, extents, strides, *how))
        problems += [
            problem(
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
                problem(
                    "precondition-failed",
                    f"requires `{show(condition.expr)}` {said} for {used}",
                    condition.span,
                    "the kernel is proved only for calls that meet it: pass other sizes, or pad the tensors",
                )
            )
    if problems:
        raise LaunchError(*problems)


def check_contents(found: Signature, arrays: Mapping[str, Array], values: Mapping[str, Number]) -> None:
    """Check the contents of index tensors.

    Raises LaunchError "index-out-of-range" if an index tensor holds a value outside its declared range, and
    "index-order" if its elements are not arranged as declared. Both name the first such element. The whole tensor is
    read on its device; on a GPU this waits for earlier work.
    """
    from argus.ir.contents import offence, outside, spaced  # imported late: most launches check no contents

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
