"""Register a kernel as a PyTorch operator, which `torch.compile` and `torch.export` trace without looking inside."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import torch
from torch._ops import OpOverload

from argus.backend.launch.array import Array
from argus.backend.launch.bind import mismatches
from argus.backend.launch.evaluate import Number
from argus.backend.launch.signature import ScalarParam, Signature, TensorParam
from argus.diagnostic import LaunchError
from argus.ir.expr import Const, Expr, Param
from argus.ir.types import DTYPES
from argus.runtime.executable import OPTIONAL
from argus.runtime.function import Function, Operator
from argus.runtime.jit_kernel import JitKernel
from argus.runtime.work import Call, Work
from argus.torch.gradient import attach
from argus.torch.library import overload

Shape = Sequence[int]


def register(
    kernel: JitKernel,
    name: str,
    *,
    functional: bool = False,
    outputs: Mapping[str, Callable[..., Shape]] | None = None,
    num_warps: int | None = None,
    constexprs: Mapping[str, object] | None = None,
    backward: Callable[..., torch.Tensor | tuple[torch.Tensor | None, ...] | None] | None = None,
    setup_context: Callable[..., None] | None = None,
) -> OpOverload:
    """Register `kernel`, its constants fixed, as operator `name` ("namespace::name"), and return it (an `OpOverload`).

    The operator takes the kernel's tensors and scalars in order, returns nothing, and is declared to mutate the
    tensors that the kernel writes. With `functional=True` it takes what is only read, allocates what is
    written (row-major, on the inputs' device), and returns that: a tensor, or a tuple in order of declaration.
    Each output's shape follows from the names in its annotation; where a name is in no input, `outputs` gives
    the shape as a function of inputs by their names: `outputs={"c": lambda a, b: (a.shape[0], b.shape[0])}`
    (which implies `functional`).

    Inputs whose strides the kernel does not take are copied. `backward` and `setup_context` give a functional operator
    a gradient, as in `torch.library.register_autograd`. Optional tensors of the kernel are left out, unless
    `constexprs` says otherwise.

    Raises SourceError, and LaunchError "operator-name", "operator-grid" or "operator-output". A call raises the errors
    of a call of the kernel.
    """
    constants = dict(constexprs or {})
    signature = kernel.declaration(num_warps=num_warps, **constants)
    constants |= {} if num_warps is None else {"num_warps": num_warps}
    _check(name, signature)
    shapes = dict(outputs or {})
    if functional or outputs is not None:
        made = tuple(t for t in signature.tensors if t.written)
        _check_outputs(signature, made, [p for p in signature.params if p not in made], shapes)
    else:
        made = ()
    function = _Launches(kernel, signature, made, shapes, constants).function(name)
    if backward is not None:
        attach(function, backward, setup_context)
    found: OpOverload = overload(function)
    return found


def traced(kernel: JitKernel, present: str, constants: Mapping[str, object]) -> str:
    """Return the name of the operator for calls of `kernel` under `torch.compile`; its last argument is a grid.

    `present` has a letter for each parameter: "0" for an optional tensor that is None. The name is derived from the
    kernel's source, `present` and the constants.
    """
    absent = {p.name: None for p, there in zip(kernel.parameters, present, strict=False) if there == "0"}
    what = repr((kernel.source, present, sorted(constants.items())))
    name = f"argus_kernels::{kernel.__name__}_{sha256(what.encode()).hexdigest()[:16]}"
    with_absent = {**constants, **absent}
    num_warps: Any = with_absent.pop("num_warps", None)
    if name not in _TRACED:
        signature = kernel.declaration(num_warps=num_warps, **with_absent)
        fixed = with_absent | ({} if num_warps is None else {"num_warps": num_warps})
        _TRACED[name] = _Launches(kernel, signature, (), {}, fixed, gridded=True).function(name)
    overload(_TRACED[name])
    return name


_TRACED: dict[str, Function] = {}


@dataclass(frozen=True)
class _Launches:
    """Calls of a kernel as a function of its tensors and scalars. The tensors in `made` are results.

    If `gridded`, the last argument is the grid, or empty for the declared grid.
    """

    kernel: JitKernel
    signature: Signature
    made: tuple[TensorParam, ...]
    shapes: Mapping[str, Callable[..., Shape]]
    constants: Mapping[str, object]
    gridded: bool = False
    inputs: tuple[TensorParam | ScalarParam, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", tuple(p for p in self.signature.params if p not in self.made))

    def function(self, name: str) -> Function:
        """Return the function, which is the operator `name`."""
        written = [p.name for p in self.inputs if isinstance(p, TensorParam) and p.written]
        parameters = [_schema(p, written) for p in self.inputs] + ["SymInt[] grid"] * self.gridded
        returned = ["Tensor" for _ in self.made]
        result = returned[0] if len(returned) == 1 else f"({', '.join(returned)})"
        operator = Operator(f"{name}({', '.join(parameters)}) -> {result}", self.fake)
        return Function(lambda *call: self.work(operator, *call), operator)

    def work(self, operator: Operator, tensors: tuple[Any, ...], numbers: tuple[Number, ...], *way: Any) -> Work:
        """Return the work of a call: one launch of the kernel, and the results."""
        given = self._named(operator.joined(tensors, numbers, way))
        made = self._made(given)
        everything = given | {t.name: v for t, v in zip(self.made, made, strict=True)}
        grid = tuple(way[-1]) if self.gridded and way[-1] else None
        arguments = tuple(everything[p.name] for p in self.signature.params)
        return Work((Call(self.kernel, self._placed(arguments), self._constants(), grid),), made)

    def fake(self, *given: Any) -> Any:
        """Check the arguments and return uninitialised results."""
        named = self._named(given)
        made = self._made(named)
        arrays = {p.name: _array(named[p.name]) for p in self.inputs if isinstance(p, TensorParam)}
        if problems := mismatches(replace(self.signature, params=self.inputs), arrays):
            raise LaunchError(*problems)
        return None if not made else made[0] if len(made) == 1 else made

    def _placed(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments of the kernel, with None for optional tensors that are left out."""
        given = iter(arguments)
        absent = {p.name for p in self.kernel.parameters if p.kind == OPTIONAL} - {
            p.name for p in self.signature.params
        }
        names = [p.name for p in self.kernel.parameters if p.name in absent or p.name in self._params]
        return tuple(None if name in absent else next(given) for name in names)

    def _constants(self) -> dict[str, object]:
        optional = {p.name for p in self.kernel.parameters if p.kind == OPTIONAL}
        return {name: value for name, value in self.constants.items() if name not in optional}

    @property
    def _params(self) -> set[str]:
        return {p.name for p in self.signature.params}

    def _named(self, given: Sequence[Any]) -> dict[str, Any]:
        """Return the arguments by name, with copies of tensors whose strides the kernel does not take."""
        pairs = zip(self.inputs, given, strict=False)
        return {p.name: _fitting(p, v) if isinstance(p, TensorParam) else v for p, v in pairs}

    def _made(self, given: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
        if not self.made:
            return ()
        device = next(v.device for v in given.values() if isinstance(v, torch.Tensor))
        sizes = _sizes(self.inputs, given)
        return tuple(
            torch.empty(_shape(t, sizes, self.shapes.get(t.name), given), dtype=_dtype(t.dtype), device=device)
            for t in self.made
        )


# ---------------------------------------------------------------------------- schemas and shapes


def _schema(param: TensorParam | ScalarParam, written: Sequence[str]) -> str:
    """Return a parameter in the language of PyTorch's operator schemas."""
    if isinstance(param, TensorParam):
        alias = f"(a{written.index(param.name)}!)" if param.name in written else ""
        return f"Tensor{alias} {param.name}"
    dtype = DTYPES[param.dtype]
    return f"{'float' if dtype.is_float else 'SymInt' if dtype.is_int else 'bool'} {param.name}"


def _fitting(param: TensorParam, x: torch.Tensor) -> torch.Tensor:
    """Return `x`, or a contiguous copy if the kernel only reads it and requires other strides."""
    if param.written or x.ndim != len(param.strides):
        return x
    fixed = [(axis, e.value) for axis, e in enumerate(param.strides) if isinstance(e, Const)]
    return x if all(x.stride(a) == stride or x.shape[a] < 2 for a, stride in fixed) else x.contiguous()


def _array(x: torch.Tensor) -> Array:
    """Return the view of a tensor without memory that checks of shapes and dtypes need."""
    dtype = str(x.dtype).removeprefix("torch.")
    return Array(dtype, x.element_size(), tuple(x.shape), tuple(x.stride()), 0, str(x.device), True, x)


def _sizes(inputs: Sequence[TensorParam | ScalarParam], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes that the inputs' shapes determine, by name."""
    sizes: dict[str, Any] = {}
    for param in inputs:
        if isinstance(param, TensorParam):
            shape = given[param.name].shape
            if len(shape) != len(param.shape):
                text = f"`{param.name}` has {len(shape)} dimensions; the kernel takes {len(param.shape)}"
                raise LaunchError.of("shape-mismatch", text, "pass a tensor of that rank")
            for declared, extent in zip(param.shape, shape, strict=True):
                if isinstance(declared, Param):
                    sizes.setdefault(declared.name, extent)
    return sizes


def _shape(
    output: TensorParam, sizes: Mapping[str, Any], rule: Callable[..., Shape] | None, given: Mapping[str, Any]
) -> list[Any]:
    if rule is not None:
        return list(rule(**{name: given[name] for name in inspect.signature(rule).parameters}))
    return [_extent(e, sizes) for e in output.shape]


def _extent(declared: Expr, sizes: Mapping[str, Any]) -> Any:
    match declared:
        case Const(value=value):
            return int(value)
        case Param(name=name):
            return sizes[name]
        case _:
            raise TypeError(f"{type(declared).__name__} is no extent")


def _dtype(name: str) -> torch.dtype:
    result: torch.dtype = getattr(torch, "float32" if name == "tfloat32" else name)
    return result


# ---------------------------------------------------------------------------- checks


def _check(name: str, signature: Signature) -> None:
    namespace, separator, rest = name.partition("::")
    if not (separator and namespace.isidentifier() and rest.isidentifier()):
        raise LaunchError.of("operator-name", f"`{name}` is no operator name", 'write "namespace::name"')
    if signature.grid is None:
        raise LaunchError.of(
            "operator-grid",
            f"kernel `{signature.name}` declares no grid, and a call of an operator gives none",
            "declare it in the kernel with al.grid(...)",
        )


def _check_outputs(
    signature: Signature,
    made: Sequence[TensorParam],
    inputs: Sequence[TensorParam | ScalarParam],
    shapes: Mapping[str, Callable[..., Shape]],
) -> None:
    """Reject outputs that cannot be newly allocated, or whose shape is not known."""
    names, tensors = {p.name for p in inputs}, [p for p in inputs if isinstance(p, TensorParam)]
    known = {e.name for t in tensors for e in t.shape if isinstance(e, Param)}
    if not made or not tensors:
        raise LaunchError.of(
            "operator-output",
            f"kernel `{signature.name}` has no tensor that it only reads, or none that it writes",
            "register it without `functional`",
        )
    for output in made:
        if output.read:
            raise LaunchError.of(
                "operator-output",
                f"`{output.name}` is read as well as written, so a new tensor cannot take its place",
                "register the operator without `functional`, and pass the tensor",
            )
        if output.name in shapes:
            unknown = [n for n in inspect.signature(shapes[output.name]).parameters if n not in names]
            if unknown:
                raise LaunchError.of(
                    "operator-output",
                    f"the shape of `{output.name}` asks for `{unknown[0]}`, which is no input",
                    f"the inputs are {', '.join(sorted(names))}",
                )
        elif missing := [e.name for e in output.shape if isinstance(e, Param) and e.name not in known]:
            raise LaunchError.of(
                "operator-output",
                f"the extent `{missing[0]}` of `{output.name}` is in no input's shape",
                f'give its shape: outputs={{"{output.name}": lambda {tensors[0].name}: (...)}}',
            )
    if stray := [name for name in shapes if name not in {t.name for t in made}]:
        raise LaunchError.of(
            "operator-output",
            f"`{stray[0]}` is not written by the kernel",
            f"the outputs are {', '.join(t.name for t in made)}",
        )
