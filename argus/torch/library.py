"""Functions of tensors as PyTorch operators: registered when first needed, and as fast as PyTorch's dispatcher allows.

An operator is three Python functions in a `torch.library.Library`. Every call reaches the autograd function first. If
nothing else has to happen, this function launches at once, so that a call takes one pass through the dispatcher.
Otherwise it records the gradient, or passes the call on to the layers below autograd: fake tensors, tracing, other
modes, and finally the function's own implementation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from threading import RLock
from typing import Any

import torch
from torch.library import Library, register_fake, register_vmap

from argus.diagnostic import LaunchError
from argus.runtime.function import MISSES, MOST, Attended, Function, Memory, Operator, Unread
from argus.runtime.reader import UNREADABLE, Site, is_dual
from argus.torch.gradient import Gradient

_LOCK = RLock()
_OVERLOADS: dict[Function, Any] = {}
_LIBRARIES: dict[str, Library] = {}
"""The library that holds each operator, by the operator's name. An operator is registered as long as its library
lives."""


def overload(function: Function) -> Any:
    """Return the operator of `function`, an `OpOverload`."""
    with _LOCK:
        if function not in _OVERLOADS:
            _OVERLOADS[function] = _register(function)
        return _OVERLOADS[function]


def register_library() -> None:
    """Register every operator of `argus.kernels`, for programs that name them: `torch.export.load`, `torch.ops.argus`.

    A call of a function registers its operator automatically.
    """
    import argus.kernels
    from argus.kernels.matmul import Matmul

    for name in [name for name in sys.modules if name.startswith(argus.kernels.__name__)]:
        for value in vars(sys.modules[name]).values():
            functions = vars(value).values() if isinstance(value, Matmul) else (value,)
            for function in functions:
                if isinstance(function, Function) and function.operator is not None:
                    overload(function)


def _register(function: Function) -> Any:
    operator = function.operator
    assert operator is not None
    name = operator.name
    namespace, _, short = name.partition("::")
    if name in _LIBRARIES:
        _LIBRARIES.pop(name)._destroy()  # type: ignore[no-untyped-call]
    library: Any = Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
    _LIBRARIES[name] = library
    library.define(short + operator.schema[operator.schema.index("(") :], tags=(torch.Tag.pt2_compliant_tag,))
    found = getattr(getattr(torch.ops, namespace), short).default
    arguments = _Arguments(operator, found._schema)
    library.impl(short, arguments.passed(function, function.below, None), "CompositeExplicitAutograd")
    library.impl(short, arguments.passed(function, function.direct, _attended(function, found)), "Autograd")
    register_fake(name, lambda *given: operator.fake(*arguments.all(given)), lib=library)
    rule = _no_vmap(name) if found._schema.is_mutable else _vmap(found, arguments, operator.batch)
    register_vmap(name, rule, lib=library)
    return found


class _Arguments:
    """The conversion between an operator's arguments and those of its function."""

    def __init__(self, operator: Operator, schema: Any) -> None:
        self._operator, self._mutable = operator, schema.is_mutable
        self._defaults = tuple(a.default_value for a in schema.arguments)
        self._optional = sum(a.has_default_value() for a in schema.arguments)

    def all(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments with the defaults, which PyTorch leaves out."""
        return (*given, *self._defaults[len(given) :])

    def passed(self, function: Function, memory: Memory, attended: Attended | None) -> Callable[..., Any]:
        """Return `function.call(memory, attended, ...)` as a function of the operator's arguments."""
        kinds, sites = self._operator.kinds, dict[Any, Site]()
        make, divide = _passing(kinds, self._optional, self._mutable)
        split: Any = self._operator.split or divide
        places = [[i for i, kind in enumerate(kinds) if kind in of] for of in ("t", "n")]

        def learn(way: tuple[Any, ...], *given: Any) -> Site | None:
            """Keep and return the site of calls with this way, unless the function takes other tensors or numbers."""
            parts = split(*given)
            for place, part in zip(places, parts, strict=False):
                if len(part) != len(place) or any(x is not given[i] for x, i in zip(part, place, strict=True)):
                    return None
            if len(sites) >= MOST:
                sites.clear()
            return sites.setdefault(way, memory.site((len(parts[0]), len(parts[1]), parts[2])))

        passing: Callable[..., Any] = make(function, memory, attended, split, self._defaults, sites, learn)
        return passing


@lru_cache(maxsize=256)
def _passing(kinds: str, optional: int, mutable: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return `make` and `divide` for operators with arguments of these kinds, the last `optional` with defaults.

    `make(function, memory, attended, split, defaults, sites, learn)` returns the function that passes arguments on. A
    call without optional tensors finds its site by the way alone. `divide(*arguments)` returns tensors, numbers and
    way. Each line adds to the time of every call, so the code is generated. It contains only positions of arguments.
    """
    count = len(kinds)
    names = [f"a{i}" for i in range(count)]
    parameters = [name + (f"=d[{i}]" if i >= count - optional else "") for i, name in enumerate(names)]
    groups = {of: [name for name, kind in zip(names, kinds, strict=True) if kind in of] for of in ("t", "n", "o")}
    tuples = [f"{x} if {x} is None else tuple({x})" if kind == "l" else x for x, kind in zip(names, kinds, strict=True)]
    way = [x for x, kind in zip(tuples, kinds, strict=True) if kind in "lw"]
    everything, direct = ", ".join(names), ", ".join(groups["t"] + groups["n"])
    absent = " is ".join((*groups["o"], "None")) if groups["o"] else "True"
    parts = ", ".join(f"({''.join(f'{x}, ' for x in part)})" for part in (groups["t"], groups["n"], way))
    back = "" if mutable else "return "
    text = [
        "def make(function, memory, attended, split, d, sites, learn):",
        "    get, call, missed = sites.get, function.call, function.missed",
        f"    def passed({', '.join(parameters)}):",
        f"        if {absent}:",
        f"            way = ({''.join(f'{x}, ' for x in way)})",
        f"            site = get(way) or learn(way, {everything})",
        "            if site is not None:",
        "                try:",
        f"                    found = site.read({direct})",
        "                except UNREADABLE as error:",
        "                    found = Unread(error)",
        "                if found.__class__ in MISSES:",
        f"                    {back}missed(memory, attended, site, found, *split({everything}))",
        f"                return{'' if mutable else ' found'}",
        f"        {back}call(memory, attended, *split({everything}))",
        "    return passed",
        f"def divide({everything}):",
        f"    return {parts}",
    ]
    scope: dict[str, Any] = {"UNREADABLE": UNREADABLE, "Unread": Unread, "MISSES": MISSES}
    exec("\n".join(text), scope)
    return scope["make"], scope["divide"]


def _attended(function: Function, found: Any) -> Callable[..., Any]:
    """Return the function for calls that PyTorch must handle: with a gradient, or by the layers below autograd."""
    written = [i for i, a in enumerate(found._schema.arguments) if a.alias_info is not None]

    def attended(tensors: Any, numbers: Any, way: Any) -> Any:
        assert function.operator is not None
        given = function.operator.joined(tensors, numbers, way)
        if any(map(is_dual, tensors)):
            help = "use the backward pass, as torch.autograd.grad does, or call it on tensors without a tangent"
            raise _no_gradient(found, "has no derivative in forward mode", help)
        if torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in given):
            if not written and torch._C._are_functorch_transforms_active():
                raise _no_gradient(found, "has no gradient for `torch.func`", "use torch.autograd.grad or `backward`")
            if not written:
                return _Differentiable.apply(*given, function)  # type: ignore[no-untyped-call]
            if any(given[i].requires_grad for i in written):
                raise _no_gradient(found, "writes to a tensor that needs a gradient", "pass a tensor that needs none")
        with torch._C._AutoDispatchBelowAutograd():
            return found(*given)

    return attended


class _Differentiable(torch.autograd.Function):
    """A call whose gradient is recorded. The last argument is the function."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Any:
        """See torch.autograd.Function."""
        *inputs, function = given
        found, gradient = overload(function), function.gradient
        ctx.found, ctx.gradient = found, gradient
        ctx.set_materialize_grads(False)
        with torch._C._AutoDispatchBelowAutograd():
            compute = found if gradient is None or gradient.forward is None else gradient.forward
            results = compute(*inputs)
            if gradient is not None and gradient.setup_context is not None:
                gradient.setup_context(ctx, tuple(inputs), results)
        count = len(found._schema.returns)
        return results if isinstance(results, torch.Tensor) else results[:count] if count > 1 else results[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """See torch.autograd.Function."""
        gradient: Gradient | None = ctx.gradient
        if gradient is None:
            raise _no_gradient(ctx.found, "has no gradient", "call it under torch.no_grad(), or detach its arguments")
        results = gradient.backward(ctx, *gradients)
        return (*results, None) if isinstance(results, tuple) else (results, None)


def _no_gradient(found: Any, what: str, help: str) -> LaunchError:
    return LaunchError.of("no-gradient", f"the operator `{found._schema.name}` {what}", help)


def _vmap(found: Any, arguments: _Arguments, batch: int) -> Callable[..., Any]:
    """Return the rule for `torch.vmap`: one call for the batch if rows are independent, else one for each element."""

    def rule(info: Any, dims: Sequence[int | None], *given: Any) -> Any:
        given = arguments.all(given)
        dims = (*dims, *(None,) * (len(given) - len(dims)))
        several = len(found._schema.returns) > 1
        if all(dim is None for dim in dims[batch:]) and batch:
            together = (_in_front(x, dim, info.batch_size) for x, dim in zip(given[:batch], dims, strict=False))
            return found(*together, *given[batch:]), (0,) * len(found._schema.returns) if several else 0
        calls = [
            found(*(x if dim is None else x.select(dim, i) for x, dim in zip(given, dims, strict=True)))
            for i in range(info.batch_size)
        ]
        if not several:
            return torch.stack(calls), 0
        return tuple(map(torch.stack, zip(*calls, strict=True))), (0,) * len(found._schema.returns)

    return rule


def _no_vmap(name: str) -> Callable[..., Any]:
    def rule(_info: Any, _dims: Any, *_given: Any) -> Any:
        what = f"an argument of `{name}` is a tensor of `vmap`, and the operator writes to tensors that it is given"
        help = "make an operator that returns its results: kernel.as_torch_op(name, functional=True)"
        raise LaunchError.of("argument-type", what, help)

    return rule


def _in_front(x: Any, dim: int | None, size: int) -> Any:
    return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
