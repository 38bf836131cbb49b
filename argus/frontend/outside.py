"""Names that no function binds: the file's constants, and names from other files or from the surrounding program."""

from __future__ import annotations

from argus.diagnostic import Note
from argus.frontend.calls import did_you_mean
from argus.frontend.context import Context, Frame, Rejected
from argus.frontend.parser import parse
from argus.frontend.surface import Module
from argus.frontend.values import Constant, Helper, ModuleValue, Poison, Value, describe
from argus.source import Elsewhere, Outer, Span, Unusable


def meaning(context: Context, outer: Outer, span: Span) -> Value:
    """Return the meaning of a name from outside the file.

    Raises `SourceError` with the mistakes of the file that defines the name.
    """
    match outer.meaning:
        case Unusable(code=code, message=message, remedy=remedy):
            context.fail(code, message, span, remedy, notes=_import_of(context.module, outer.name))
        case Elsewhere(file=file, name=name):
            return _defined(context, parse(file, name), name, outer, span)
        case known:
            return Constant(known.value)


def _defined(context: Context, module: Module, name: str, outer: Outer, span: Span) -> Value:
    """Return the helper or constant that another file defines as `name`, or imports under this name."""
    function = module.function(name)
    if function is not None and function.kind == "func":
        return Helper(function, module)
    inner = module.outer(name)
    known = any(c.name == name for c in module.constants)
    if known or inner is not None:
        was, context.module = context.module, module
        try:
            return constant(context, name, span) if known or inner is None else meaning(context, inner, span)
        finally:
            context.module = was
    where = (Note(f"this is {module.source.path}", function.span),) if function is not None else ()
    what = f"the kernel `{name}`, which" if function is not None else f"no helper and no constant `{name}`:"
    rest = "a kernel cannot call" if function is not None else "a kernel can use nothing else of it"
    known_names = [*(f.name for f in module.functions), *(n for n, _ in module.unread)]
    known_names += [c.name for c in module.constants]
    context.fail(
        "unknown-import",
        f"`{outer.name}` is imported from {module.source.path}, which has {what} {rest}",
        span,
        did_you_mean(name, known_names, "define it there under `@argus.func`"),
        notes=(*where, *_import_of(context.module, outer.name)),
    )


def attribute(context: Context, path: str, span: Span) -> Value:
    """Return the meaning of `helpers.norm`, where `helpers` is a module that the file imports."""
    outer = context.module.outer(path)
    if outer is not None:
        return meaning(context, outer, span)
    if any(other.name.startswith(f"{path}.") for other in context.module.around):
        return ModuleValue(path)
    remedy = "import it by name, `from module import name`; it is a helper under `@argus.func`, or a constant"
    context.fail("unknown-import", f"`{path}` is no helper and no constant of a module", span, remedy)


def insist_on_one_meaning(context: Context, outer: Outer | None, span: Span) -> None:
    """Reject a name that the file both imports and defines, because its meaning would depend on the order of
    statements."""
    if outer is None or isinstance(outer.meaning, Unusable):
        return
    module = context.module
    definitions = [f.span for f in module.functions if f.name == outer.name]
    definitions += [c.span for c in module.constants if c.name == outer.name]
    if definitions:
        notes = (Note("it is defined here", definitions[-1]), *_import_of(module, outer.name))
        what = f"`{outer.name}` is imported, and defined in this file as well"
        context.fail("name-clash", what, span, "rename one of the two: `from module import name as other`", notes=notes)


def _import_of(module: Module, name: str) -> tuple[Note, ...]:
    head = name.partition(".")[0]
    return tuple(Note("it is imported here", foreign.span) for foreign in module.foreign if foreign.name == head)[:1]


def constant(context: Context, name: str, span: Span) -> Value:
    """Evaluate a constant of the visible file from its text."""
    key = (context.module.source, context.module.around, name)
    if key in context.constants:
        known = context.constants[key]
        if known is None:
            context.fail("bad-constant", f"the constant `{name}` is defined by itself", span, "give it a value")
        if isinstance(known, Poison):
            raise Rejected
        return known
    definition = next(c for c in reversed(context.module.constants) if c.name == name)
    note = (Note("it is defined here", definition.span),)
    if definition.value is None:
        context.fail(
            "not-constant",
            f"`{name}` is computed by Python, and a kernel's text is not run",
            span,
            "make it a literal, or pass it as an `al.constexpr` parameter",
            notes=note,
        )
    context.constants[key] = None
    outer, context.frame = context.frame, Frame(context.frame.function, 0)
    try:
        value = context.evaluate(context, definition.value)
    except Rejected:
        context.constants[key] = Poison()
        raise
    finally:
        context.frame = outer
    if not isinstance(value, Constant):
        context.constants[key] = Poison()
        context.fail(
            "not-constant", f"`{name}` is {describe(value)}, not a constant", span, "use a literal", notes=note
        )
    context.constants[key] = value
    return value
