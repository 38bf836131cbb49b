"""Translate the surface tree to tile IR.

The checker resolves names, constants, types and shapes, inlines helpers, and reports all errors together.
"""

from __future__ import annotations

from collections.abc import Mapping

from argus.diagnostic import Diagnostic, SourceError
from argus.frontend import (
    arithmetic,
    barriers,
    calls,
    clusters,
    covering,
    explicit,
    memory,
    products,
    program,
    roles,
    scanning,
    shapes,
    sorting,
    specification,
    statements,
    tagging,
    watching,
    waves,
)
from argus.frontend.axes import separate_axes
from argus.frontend.context import CallSite, Context, Frame, Handler, Rejected, Wanted
from argus.frontend.decorated import warps
from argus.frontend.expressions import evaluate
from argus.frontend.inline import inline
from argus.frontend.options import Options
from argus.frontend.parameters import declare
from argus.frontend.surface import Function, Module
from argus.frontend.values import Helper, Specified, Tile, Value, View
from argus.ir.nodes import Kernel
from argus.ir.target import TARGETS
from argus.source import Span


def check(module: Module, kernel_name: str, options: Options) -> Kernel:
    """Return the tile IR of one kernel. `options` and the defaults fix its constexpr parameters.

    Raises `SourceError` with every error that was found.
    """
    function = _kernel(module, kernel_name)
    target = TARGETS.get(options.target)
    if target is None:
        raise SourceError(
            Diagnostic(
                "bad-option",
                f"there is no target {options.target!r}",
                function.span,
                "types",
                help=f"the targets are {', '.join(TARGETS)}",
            )
        )
    frame = Frame(function, 0)
    context = Context(module, options, target, 4, HANDLERS, _inline, evaluate, frame, stack=(function,))
    try:
        context.num_warps = warps(context, function)
        params, constexprs = declare(context, function)
    except Rejected:
        raise SourceError(*_sorted(context.diagnostics)) from None
    statements.run(context, function.body)
    body = roles.finished(context)
    waves.paired(context)
    if context.diagnostics:
        raise SourceError(*_sorted(context.diagnostics))
    kernel = Kernel(
        function.name,
        params,
        tuple(context.sizes),
        constexprs,
        context.grid,
        context.num_warps,
        target.warp_size,
        tuple(context.preconditions),
        tuple(context.shared.values()),
        tuple(context.fragments.values()),
        body,
        barriers=tuple(context.mbarriers),
        group=context.group,
        persistent=context.persistent,
        cluster=context.cluster,
        schedule=context.schedule,
        flat=context.flat,
        invariants=tuple(context.invariants),
        covers=tuple(context.covers.values()),
        span=function.span,
    )
    return separate_axes(kernel)


def _kernel(module: Module, name: str) -> Function:
    function = module.function(name)
    if function is not None and function.kind == "kernel":
        return function
    listed = f"the file's kernels are {', '.join(module.kernels)}" if module.kernels else "the file has no kernel"
    raise SourceError(
        Diagnostic(
            "unknown-kernel",
            f"there is no kernel `{name}` in {module.source.path}",
            Span(module.source, module.source.first_line, 1, module.source.first_line, 2),
            "types",
            help=calls.did_you_mean(name, module.kernels, listed),
        )
    )


def _sorted(diagnostics: list[Diagnostic]) -> list[Diagnostic]:
    return sorted(diagnostics, key=lambda d: (d.span.line, d.span.column))


def _inline(
    context: Context, helper: Helper, args: tuple[Value, ...], keywords: Mapping[str, Value], span: Span,
    wanted: Wanted | None,
) -> Value:  # fmt: skip
    if context.frame.quantified and any(isinstance(a, (Tile, View, Specified)) for a in (*args, *keywords.values())):
        return specification.number(context, helper, args, keywords, span)
    return inline(context, helper, args, keywords, span, statements.run, wanted)


def _misplaced(call: CallSite) -> Value:
    call.context.fail(
        "bad-tag", "`al.once` stands in an assertion of tags", call.span, "write `x[i].k == al.once(lo, hi)`"
    )


def _of_programs(call: CallSite) -> Value:
    call.context.fail(
        "bad-program",
        f"`al.{call.name}` belongs to the host, and this is a kernel",
        call.span,
        "write `al.zeros(shape, dtype)` or `al.shared(shape, dtype)` for memory of the kernel"
        if call.name == "empty"
        else "write it in a function under `@argus.program`, which launches kernels",
    )


def _outside(call: CallSite) -> Value:
    call.context.fail(
        "bad-tag",
        f"`al.{call.name}` stands in a specification, over a lambda of one parameter",
        call.span,
        "compute it from `al.exp`, `al.max` and `al.sum`, and state it with `al.spec`",
    )


HANDLERS: dict[str, Handler] = {
    **arithmetic.HANDLERS,
    **barriers.HANDLERS,
    **clusters.HANDLERS,
    **explicit.HANDLERS,
    **memory.HANDLERS,
    **products.HANDLERS,
    **program.HANDLERS,
    **roles.HANDLERS,
    **scanning.HANDLERS,
    **shapes.HANDLERS,
    **sorting.HANDLERS,
    **tagging.HANDLERS,
    **covering.HANDLERS,
    **specification.HANDLERS,
    **watching.HANDLERS,
    **waves.HANDLERS,
    **dict.fromkeys(("empty", "stream", "current_stream", "collective"), _of_programs),
    "once": _misplaced,
    "softmax": _outside,
    "logsumexp": _outside,
}
"""The language's functions, by their name in `argus.language`."""
