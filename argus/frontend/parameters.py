"""The parameters of a kernel: tensors, scalars, constants; symbolic sizes; the number of warps."""

from __future__ import annotations

import math
from dataclasses import replace

from argus.frontend import constants
from argus.frontend.calls import did_you_mean
from argus.frontend.context import Binding, Context, Rejected
from argus.frontend.decorator import FuncSource
from argus.frontend.expressions import evaluate
from argus.frontend.parser import parse
from argus.frontend.surface import Attribute, Binary, Expression, Function, Literal, Name, Parameter, Slice, Subscript
from argus.frontend.values import Constant, Helper, Poison, Tile, Value, describe
from argus.frontend.views import whole_view
from argus.ir.expr import Const, Expr, Param
from argus.ir.nodes import Scalar, Tensor
from argus.ir.types import DTYPES, MAX_EXTENT, DType, float32, int32, int64, uint32
from argus.source import Span

_SCALARS = (int32, int64, uint32, float32)
_FORM = 'write `al.Tensor[al.float32, "M N"]`, a scalar dtype, or `al.constexpr`'


def declare(context: Context, function: Function) -> tuple[tuple[Tensor | Scalar, ...], tuple[tuple[str, object], ...]]:
    """Bind the parameters. Return the launch parameters, and the constexpr parameters with their values.

    Raises `Rejected` after noting the errors of all parameters.
    """
    context.taken.update(p.name for p in function.params)
    kinds = [(p, _annotation(context, p)) for p in function.params]
    constexprs: list[tuple[str, object]] = []
    for parameter, kind in kinds:
        if kind == "constexpr":
            value = _constexpr(context, parameter)
            if not isinstance(value, Poison):
                named = value.function.name if isinstance(value, Helper) else value.value
                constexprs.append((parameter.name, named))
            _bind(context, parameter.name, value, parameter.span)
        elif kind is None and _is_absent(context, parameter):
            constexprs.append((parameter.name, None))
            _bind(context, parameter.name, Constant(None), parameter.span)
    known = [p.name for p, kind in kinds if kind == "constexpr" or _is_absent(context, p)]
    _check_options(context, function, known)
    params: list[Tensor | Scalar] = []
    for parameter, kind in kinds:
        if isinstance(kind, DType):
            params.append(Scalar(parameter.name, kind, parameter.span))
            _bind(context, parameter.name, Tile((), kind, Param(parameter.name, kind)), parameter.span)
        elif isinstance(kind, Subscript):
            try:
                tensor = _tensor(context, function, parameter, kind)
            except Rejected:
                _bind(context, parameter.name, Poison(), parameter.span)
                continue
            params.append(tensor)
            _bind(context, parameter.name, whole_view(tensor), parameter.span)
        elif kind is None and not _is_absent(context, parameter):
            _bind(context, parameter.name, Poison(), parameter.span)
    if context.diagnostics:
        raise Rejected
    return tuple(params), tuple(constexprs)


def _bind(context: Context, name: str, value: Value, span: Span) -> None:
    context.frame.names[name] = Binding(value, 0, span)


# ---------------------------------------------------------------------------- annotations


def _annotation(context: Context, parameter: Parameter) -> Subscript | DType | str | None:
    """Read an annotation: a tensor's annotation, a scalar's dtype, or "constexpr". Return None after noting an error.
    """
    annotation = parameter.annotation
    if _is_absent(context, parameter):
        return None
    match annotation:
        case Binary(op="|", left=Subscript() as tensor, right=Literal(value=None)):
            annotation = tensor
            default = parameter.default
            if isinstance(default, Literal) and default.value is None:
                parameter = replace(parameter, default=None)
    if annotation is None:
        context.error("bad-annotation", f"the parameter `{parameter.name}` has no annotation", parameter.span, _FORM)
        return None
    base = annotation.value if isinstance(annotation, Subscript) else annotation
    path = _path(context, base)
    name = path.removeprefix("argus.language.") if path is not None else None
    if name == "constexpr" and base is annotation:
        return name
    if parameter.default is not None:
        context.error(
            "bad-annotation",
            f"`{parameter.name}` has a default, which only `al.constexpr` parameters have",
            parameter.default.span,
            "leave the default out, and pass the value at every launch"
            if DTYPES.get(name or "") in _SCALARS
            else f"a constant is annotated `{parameter.name}: al.constexpr`",
        )
        return None
    if name == "Tensor" and isinstance(annotation, Subscript):
        return annotation
    dtype = DTYPES.get(name or "")
    if dtype in _SCALARS and base is annotation:
        return dtype
    names = ["al.Tensor", "al.constexpr", *(f"al.{d}" for d in _SCALARS)]
    if dtype is not None:
        message, remedy = f"a scalar argument is int32, int64, uint32 or float32, not {dtype}", _FORM
    else:
        message = f"this is no annotation of a kernel's parameter `{parameter.name}`"
        written = f"al.{name}" if name is not None else ""
        remedy = did_you_mean(written, names, _FORM)
    context.error("bad-annotation", message, annotation.span, remedy)
    return None


def _is_absent(context: Context, parameter: Parameter) -> bool:
    """Return True if an optional tensor parameter, `x: al.Tensor[...] | None`, is absent."""
    match parameter.annotation:
        case Binary(op="|", left=Subscript(), right=Literal(value=None)):
            return context.options.constexprs.get(parameter.name, parameter) is None
        case _:
            return False


def _path(context: Context, node: Expression) -> str | None:
    """Return the dotted path that a name or attribute stands for."""
    match node:
        case Name(id=name):
            return dict(context.module.aliases).get(name)
        case Attribute(value=value, name=name):
            path = _path(context, value)
            return None if path is None else f"{path}.{name}"
        case _:
            return None


# ---------------------------------------------------------------------------- constants


def _constexpr(context: Context, parameter: Parameter) -> Constant | Helper | Poison:
    name = parameter.name
    if name == "num_warps":
        context.error(
            "num-warps-parameter",
            "the number of warps is no parameter of a kernel",
            parameter.span,
            "write `@argus.kernel(num_warps=8)`, and read it with `al.num_warps()`",
        )
        return Poison()
    if name in context.options.constexprs:
        given = context.options.constexprs[name]
        if isinstance(given, FuncSource):
            return _helper(context, parameter, given)
        if _is_constant(given):
            if constants.items(given) <= constants.MAX_ITEMS and not constants.unprintable(given):
                return Constant(given)
            message = f"`{name}` is given a value of more than {constants.MAX_ITEMS} items, or one that has no text"
            context.error("bad-constexpr", message, parameter.span, "pass a smaller value")
            return Poison()
        context.error(
            "bad-constexpr",
            f"`{name}` is given a {type(given).__name__}",
            parameter.span,
            "pass an int, float, bool, str, dtype, None, a tuple of these, or a function under `@argus.func`",
        )
        return Poison()
    if parameter.default is None:
        context.error(
            "missing-constexpr",
            f"the constant `{name}` has no value",
            parameter.span,
            f"pass `{name}=...`, or give it a default",
        )
        return Poison()
    try:
        value = evaluate(context, parameter.default)
    except Rejected:
        return Poison()
    if isinstance(value, Helper) or (isinstance(value, Constant) and _is_constant(value.value)):
        return value
    context.error(
        "bad-constexpr", f"the default of `{name}` is {describe(value)}", parameter.default.span, "write a constant"
    )
    return Poison()


def _helper(context: Context, parameter: Parameter, given: FuncSource) -> Helper | Poison:
    """Return a helper that the caller passes in, from whatever file. Raises `SourceError` with the mistakes in that
    file."""
    module = parse(given.file, given.name)
    function = module.function(given.name)
    if function is not None and function.kind == "func":
        return Helper(function, module)
    context.error(
        "bad-constexpr",
        f"`{parameter.name}` is given `{given.name}`, which is not defined in {given.file.path}",
        parameter.span,
        "define the helper under `@argus.func`, at the top level of a file",
    )
    return Poison()


def _is_constant(value: object) -> bool:
    if isinstance(value, tuple):
        return all(_is_constant(item) for item in value)
    return value is None or isinstance(value, (int, float, str, DType))


def _check_options(context: Context, function: Function, constexprs: list[str]) -> None:
    for name in context.options.constexprs:
        if name not in constexprs:
            listed = f"the constants of `{function.name}` are {', '.join(constexprs) or 'none'}"
            context.error(
                "unknown-constexpr",
                f"`{function.name}` has no constant `{name}`",
                function.span,
                did_you_mean(str(name), constexprs, listed),
            )


# ---------------------------------------------------------------------------- tensors


def _tensor(context: Context, function: Function, parameter: Parameter, annotation: Subscript) -> Tensor:
    items = annotation.items
    if not 2 <= len(items) <= 3 or isinstance(items[0], Slice):
        context.fail("bad-annotation", "a tensor has a dtype and a shape", annotation.span, _FORM)
    dtype = evaluate(context, items[0])
    if not isinstance(dtype, Constant) or not isinstance(dtype.value, DType):
        context.fail(
            "unknown-dtype", f"a tensor's dtype is one of the language, not {describe(dtype)}", items[0].span, _FORM
        )
    shape_words = _words(context, function, items[1])
    shape = tuple(_extent(context, function, w, items[1].span) for w in shape_words)
    if len(items) == 3:
        words = _words(context, function, items[2])
        if len(words) != len(shape):
            context.fail(
                "bad-annotation",
                f"there are {len(words)} strides for {len(shape)} dimensions",
                items[2].span,
                "give one stride a dimension",
            )
        strides = tuple(_stride(context, function, w, items[2].span) for w in words)
    else:
        rank = len(shape)
        symbolic = (Param(f"{parameter.name}.stride{d}", int64) for d in range(rank - 1))
        strides = (*symbolic, Const(1, int64))
    alignment = _alignment(context, parameter, dtype.value, shape, strides)
    return Tensor(parameter.name, dtype.value, shape, strides, alignment, parameter.span)


def _words(context: Context, function: Function, item: Expression | Slice) -> list[str]:
    """Return the names and numbers in a string. The name of a constexpr parameter whose value is a string is replaced
    by that string."""
    if not isinstance(item, Literal) or not isinstance(item.value, str) or not item.value.split():
        context.fail(
            "bad-annotation",
            "a tensor's shape is a string of names and numbers",
            item.span,
            'write `"M K"`, or `"M 64"` for a fixed extent',
        )
    words: list[str] = []
    for word in item.value.split():
        binding = context.frame.names.get(word) if word in {p.name for p in function.params} else None
        value = binding.value.value if binding is not None and isinstance(binding.value, Constant) else None
        words += value.split() if isinstance(value, str) else [word]
    return words


def _extent(context: Context, function: Function, word: str, span: Span) -> Expr:
    """Read a dimension: a number, the value of a constexpr parameter, or a symbolic size."""
    fixed = _number(context, function, word, span)
    if fixed is not None:
        if not 1 <= fixed <= MAX_EXTENT:
            context.fail("bad-shape", f"an extent is 1 to {MAX_EXTENT}, not {fixed}", span, "correct the extent")
        return Const(fixed)
    if word not in context.sizes:
        context.sizes.append(word)
        context.taken.add(word)
        context.frame.sizes |= {word}
        _bind(context, word, Tile((), int32, Param(word)), span)
    return Param(word)


def _stride(context: Context, function: Function, word: str, span: Span) -> Expr:
    fixed = _number(context, function, word, span)
    if fixed is not None:
        if fixed < 0:
            context.fail("bad-shape", f"a stride is not negative: {fixed}", span, "correct the stride")
        return Const(fixed, int64)
    if word in context.sizes:
        return Param(word)
    if word not in context.frame.sizes:
        context.taken.add(word)
        context.frame.sizes |= {word}
        _bind(context, word, Tile((), int64, Param(word, int64)), span)
    return Param(word, int64)


def _number(context: Context, function: Function, word: str, span: Span) -> int | None:
    """Return the value of a word that is a number or a constexpr parameter, or None for a symbol."""
    if word.isdecimal() and len(word) < 20:
        return int(word)
    if not (word.isidentifier() and word.isascii()):
        context.fail(
            "bad-annotation",
            f"{ascii(word) if not word.isprintable() else f'`{word}`'} is neither a name nor a number",
            span,
            "separate names and numbers by spaces; names have letters from a to z, digits and underscores",
        )
    if word not in {p.name for p in function.params}:
        return None
    binding = context.frame.names.get(word)
    if binding is not None and isinstance(binding.value, Poison):
        raise Rejected
    value = binding.value if binding is not None else None
    if isinstance(value, Constant) and isinstance(value.value, int) and not isinstance(value.value, bool):
        return value.value
    context.fail(
        "bad-annotation",
        f"`{word}` is a parameter, and a symbolic size as well",
        span,
        "use different names; only an integer `al.constexpr` parameter can be an extent",
    )


def _alignment(
    context: Context, parameter: Parameter, dtype: DType, shape: tuple[Expr, ...], strides: tuple[Expr, ...]
) -> int:
    """Return the requested alignment, reduced to what constant extents and strides can keep."""
    options = context.options
    asked = options.alignment.get(parameter.name, options.default_alignment)
    if asked not in (1, 2, 4, 8, 16):
        context.fail(
            "bad-option",
            f"the alignment of `{parameter.name}` is {asked}",
            parameter.span,
            "alignments are 1, 2, 4, 8 or 16 bytes",
        )
    fixed = [int(s.value) for s in strides if isinstance(s, Const) and s.value != 1]
    for extent, stride in zip(shape, strides, strict=True):
        if isinstance(extent, Const) and isinstance(stride, Const) and stride.value == 1:
            fixed.append(int(extent.value))
    return max(math.gcd(asked, *(n * dtype.bytes for n in fixed)), dtype.bytes)
