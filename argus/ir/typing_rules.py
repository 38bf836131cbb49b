"""Typing rules of expressions: the names, coordinates and types that are allowed in each place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from typing_extensions import assert_never

from argus.ir.expr import OPERATORS, Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, Thread, children
from argus.ir.nodes import Fragment, Kernel, Mbarrier, MemoryObject, Scalar, Tensor
from argus.ir.types import HARDWARE_AXES, DType, boolean, float32, int32


@dataclass(frozen=True, slots=True)
class Scope:
    """The names that an expression may use: memory objects, launch parameters, loops, coordinates and mbarriers.

    `kinds` are the kinds of memory objects whose elements may be read. `launch` excludes everything that differs
    between blocks, iterations or threads (for preconditions, the grid and specifications). `variables` gives the
    number of variables in the specification of each output that is written in part.
    """

    objects: Mapping[str, MemoryObject]
    params: Mapping[str, DType]
    loops: frozenset[str] = frozenset()
    axes: frozenset[int] = frozenset()
    programs: int = HARDWARE_AXES
    kinds: tuple[type, ...] = (Fragment,)
    launch: bool = False
    barriers: Mapping[str, Mbarrier] = field(default_factory=dict)
    variables: Mapping[str, int] = field(default_factory=dict)

    def over(self, rank: int) -> Scope:
        """Return the scope extended by `Coord(0) ... Coord(rank - 1)`."""
        return replace(self, axes=frozenset(range(rank)))


def scope_of(kernel: Kernel) -> Scope:
    """Return the scope of a kernel's body outside of loops."""
    objects: tuple[MemoryObject, ...] = (*kernel.tensors, *kernel.shared, *kernel.fragments)
    params = dict.fromkeys(kernel.sizes, int32)
    for param in kernel.params:
        match param:
            case Scalar(name=name, dtype=dtype):
                params[name] = dtype
            case Tensor(strides=strides):
                params |= {s.name: s.dtype for s in strides if isinstance(s, Param)}
            case _:
                assert_never(param)
    barriers = {b.name: b for b in kernel.barriers}
    variables = {c.output: len(c.names) for c in kernel.covers}
    programs = len(kernel.program_ids)
    return Scope({o.name: o for o in objects}, params, barriers=barriers, programs=programs, variables=variables)


def expr_problems(expr: Expr, scope: Scope) -> Iterator[str]:
    """Yield everything that is wrong with `expr`, innermost first."""
    for child in children(expr):
        yield from expr_problems(child, scope)
    match expr:
        case Const(value=value, dtype=dtype):
            if not dtype.is_float and dtype != boolean and not _fits(value, dtype):
                yield f"the constant {value} is not a value of {dtype}"
        case Param(name=name, dtype=dtype):
            declared = scope.params.get(name)
            if declared is None:
                yield f"`{name}` is neither a size, a stride nor a scalar parameter"
            elif declared != dtype:
                yield f"`{name}` is a parameter of type {declared}, not {dtype}"
        case ProgramId(axis=axis):
            if scope.launch or axis >= scope.programs:
                yield f"program id {axis} has no meaning here"
        case LoopVar(name=name):
            if name not in scope.loops:
                yield f"no enclosing loop is called `{name}`"
        case Coord(axis=axis):
            if axis not in scope.axes:
                yield f"coordinate c{axis} is not one of the domain's ({len(scope.axes)} dimensions)"
        case Thread():
            if scope.launch:
                yield "the thread index has no meaning here"
        case Elem():
            yield from _elem_problems(expr, scope)
        case Op():
            yield from _op_problems(expr)
        case _:
            assert_never(expr)


def index_problems(obj: str, index: tuple[Expr, ...], scope: Scope) -> Iterator[str]:
    """Yield the problems of `obj[index]`, apart from problems within the index expressions."""
    target = scope.objects.get(obj)
    if target is None:
        yield f"there is no memory object `{obj}`"
        return
    if len(index) != len(target.shape):
        yield f"`{obj}` has {len(target.shape)} dimensions, but {len(index)} indices are given"
    for expr in index:
        if not expr.dtype.is_int:
            yield f"an index of `{obj}` has type {expr.dtype}: indices are integers"


def _fits(value: int | float | bool, dtype: DType) -> bool:
    low, high = dtype.integers
    return isinstance(value, int) and low <= value <= high


def _elem_problems(elem: Elem, scope: Scope) -> Iterator[str]:
    yield from index_problems(elem.obj, elem.index, scope)
    target = scope.objects.get(elem.obj)
    if target is None:
        return
    if not isinstance(target, scope.kinds):
        yield f"an element of `{elem.obj}` cannot be read in an expression here"
    if target.dtype != elem.dtype:
        yield f"`{elem.obj}` holds {target.dtype}, but is read as {elem.dtype}"


def _op_problems(expr: Op) -> Iterator[str]:
    row = OPERATORS.get(expr.op)
    if row is None:
        yield f"`{expr.op}` is not an operator of the IR"
        return
    if len(expr.args) != row.arity:
        yield f"`{expr.op}` takes {row.arity} arguments, not {len(expr.args)}"
        return
    args = expr.args
    if expr.op == "where":
        if args[0].dtype != boolean:
            yield f"the condition of `where` has type {args[0].dtype}, not bool"
        args = args[1:]
    types = {a.dtype for a in args}
    if len(types) > 1:
        yield f"the arguments of `{expr.op}` have different types: {', '.join(sorted(map(str, types)))}"
        return
    (operand,) = types
    if row.takes != "any" and (row.takes == "floats") != operand.is_float:
        yield f"`{expr.op}` does not work on {operand}"
    if expr.op == "umulhi" and not operand.modular:
        yield f"`umulhi` works on uint32, not {operand}"
    if expr.op in ("floordiv", "mod") and operand.is_int and args[1] == Const(0, operand):
        yield f"`{expr.op}` by 0 has no value"
    match expr:
        case Op(op="shl" | "shr", args=(_, Const(value=bits))) if operand.is_int and not 0 <= bits < operand.bits:
            yield f"`{expr.op}` of {operand} by {bits} has no value"
        case _:
            pass
    if expr.op == "sortable" and (operand, expr.dtype) not in ((float32, int32), (int32, float32)):
        yield f"`sortable` does not make {expr.dtype} of {operand}: it makes int32 of float32, and the other way round"
    wanted = {"bool": boolean, "same": operand, "given": expr.dtype}[row.result]
    if expr.dtype != wanted:
        yield f"`{expr.op}` on {operand} gives {wanted}, not {expr.dtype}"
