"""A kernel as a PyTorch custom operator, which `torch.compile` and `torch.export` trace without looking inside."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from argus.backend.launch.signature import ScalarParam, Signature, TensorParam
from argus.diagnostic import LaunchError
from argus.ir.expr import Const, Expr, Param
from argus.ir.types import DTYPES
from argus.runtime.jit_kernel import JitKernel

Shape = Sequence[int]


def register(
    kernel: JitKernel,
    name: str,
    *,
    functional: bool = False,
    outputs: Mapping[str, Callable[..., Shape]] | None = None,
    num_warps: int | None = None,
    constexprs: Mapping[str, object] | None = None,
) -> Any:
    """Registers `kernel`, its constants fixed, as operator `name` ("namespace::name"), and returns it.

    The operator takes the kernel's tensors and scalars in order, returns nothing, and is declared to mutate the
    tensors that the kernel writes. With `functional=True` it takes what is only read, allocates what is
    written (row-major, on the inputs' device), and returns that: a tensor, or a tuple in order of declaration.
    Each output's shape follows from the names in its annotation; where a name is in no input, `outputs` gives
    the shape as a function of inputs by their names: `outputs={"c": lambda a, b: (a.shape[0], b.shape[0])}`
    (which implies `functional`).

    Raises SourceError, and LaunchError "operator-name", "operator-grid" or "operator-output". A call raises
    what a call of the kernel raises.
    """
    constants = dict(constexprs or {})
    if num_warps is not None:
        constants["num_warps"] = num_warps
    signature = kernel.declaration(num_warps=num_warps, **dict(constexprs or {}))
    _check(name, signature)
    if functional or outputs is not None:
        return _functional(kernel, name, signature, dict(outputs or {}), constants)
    return _mutating(kernel, name, signature, constants)


def _mutating(kernel: JitKernel, name: str, signature: Signature, constants: Mapping[str, object]) -> Any:
    written = [t.name for t in signature.tensors if t.written]
    parameters = [_schema(p, written) for p in signature.params]

    def launch(*arguments: Any) -> None:
        kernel(*arguments, **constants)

    def fake(*arguments: Any) -> None:
        return None

    return _define(name, launch, fake, written, f"({', '.join(parameters)}) -> ()")


def _functional(
    kernel: JitKernel,
    name: str,
    signature: Signature,
    shapes: dict[str, Callable[..., Shape]],
    constants: Mapping[str, object],
) -> Any:
    made = [t for t in signature.tensors if t.written]
    inputs = [p for p in signature.params if p not in made]
    _check_outputs(signature, made, inputs, shapes)
    result = "Tensor" if len(made) == 1 else f"({', '.join('Tensor' for _ in made)})"

    def allocate(*arguments: Any) -> tuple[torch.Tensor, ...]:
        given = {p.name: value for p, value in zip(inputs, arguments, strict=True)}
        device = next(v.device for v in given.values() if isinstance(v, torch.Tensor))
        sizes = _sizes(inputs, given)
        return tuple(
            torch.empty(_shape(t, sizes, shapes.get(t.name), given), dtype=_dtype(t.dtype), device=device) for t in made
        )

    def returned(tensors: tuple[torch.Tensor, ...]) -> Any:
        return tensors[0] if len(tensors) == 1 else tensors

    def launch(*arguments: Any) -> Any:
        tensors = allocate(*arguments)
        everything = {p.name: v for p, v in zip(inputs, arguments, strict=True)}
        everything |= {t.name: v for t, v in zip(made, tensors, strict=True)}
        kernel(*(everything[p.name] for p in signature.params), **constants)
        return returned(tensors)

    def fake(*arguments: Any) -> Any:
        return returned(allocate(*arguments))

    return _define(name, launch, fake, [], f"({', '.join(_schema(p, []) for p in inputs)}) -> {result}")


def _define(name: str, launch: Callable[..., Any], fake: Callable[..., Any], mutates: list[str], schema: str) -> Any:
    defined = torch.library.custom_op(name, launch, mutates_args=mutates, schema=schema)
    defined.register_fake(fake)
    return defined


# ---------------------------------------------------------------------------- schemas and shapes


def _schema(param: TensorParam | ScalarParam, written: Sequence[str]) -> str:
    """A parameter in the language of PyTorch's operator schemas."""
    if isinstance(param, TensorParam):
        alias = f"(a{written.index(param.name)}!)" if param.name in written else ""
        return f"Tensor{alias} {param.name}"
    dtype = DTYPES[param.dtype]
    return f"{'float' if dtype.is_float else 'int' if dtype.is_int else 'bool'} {param.name}"


def _sizes(inputs: Sequence[TensorParam | ScalarParam], given: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes that the inputs' shapes give, by name."""
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
    """Refuses outputs that cannot be made anew, or whose shape is not known."""
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
