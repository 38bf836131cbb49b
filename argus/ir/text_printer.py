"""Printing the IR: readable, stable, and read back exactly (spans excepted).

    copy s0[c0, c1] <- a[m0 + c0, k0 + c1] shape 128x64 if m0 + c0 < M else 0.0:bfloat16 layout [...] via cp.async

Grammar: `argus/ir/text.lark`. `c0` is `Coord(0)`; a bare name is the counter of an enclosing loop of that name,
else a launch parameter; names that could be taken for something else stand in backquotes. A type is written
(`5:int64`) only where it is not the one that follows from the context: int32 for integers, float32 for floats,
the declared type for elements and parameters, the operator's rule for operations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from typing_extensions import assert_never

from argus.ir.expr import OPERATORS, Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId, Thread
from argus.ir.nodes import (
    Access,
    Accumulate,
    Among,
    AssertTags,
    Assume,
    Barrier,
    BarrierArrive,
    BarrierSync,
    BulkCommit,
    BulkWait,
    CommitGroup,
    Copy,
    DataValue,
    For,
    Fragment,
    If,
    InRange,
    Kernel,
    Map,
    Mbarrier,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierFence,
    MbarrierInit,
    MbarrierWait,
    Mma,
    MmaCommit,
    MmaFence,
    MmaWait,
    Once,
    Precondition,
    Programs,
    ProxyFence,
    Requires,
    Role,
    Roles,
    Scalar,
    SchedGroup,
    Shared,
    Signal,
    Spec,
    SpecOp,
    SpecReduce,
    SpecSoftmax,
    SpecTerm,
    Stage,
    Stmt,
    Tag,
    TagCondition,
    TagEqual,
    TagField,
    TagTerm,
    TagTuple,
    Tensor,
    WaitCounts,
    WaitGroup,
    WaveBarrier,
    WavePriority,
)
from argus.ir.types import DType, boolean, float32, int32
from argus.ir.visit import walk
from argus.source import SourceFile

LEVELS: Mapping[str, int] = {
    "==": 1, "!=": 1, "<": 1, "<=": 1, ">": 1, ">=": 1,
    "|": 2, "^": 3, "&": 4, "<<": 5, ">>": 5, "+": 6, "-": 6, "*": 7, "/": 7, "//": 7, "%": 7,
}  # fmt: skip
"""Binding strength of the infix operators, loosest first; Python's order."""
UNARY, ATOM = 8, 9

RESERVED = frozenset({"thread", "true", "false", "inf", "nan"})
_PLAIN = re.compile(r"[A-Za-z_]\w*(\.\w+)*")
_COORD = re.compile(r"c\d+")


@dataclass(frozen=True, slots=True)
class Scope:
    """What names stand for at one point of the text: types of parameters and elements, and open loops.

    `source`: the file that is read, if statements shall say where in it they stand.
    """

    params: Mapping[str, DType]
    elements: Mapping[str, DType]
    loops: frozenset[str] = frozenset()
    source: SourceFile | None = None

    def enter(self, *loops: str) -> Scope:
        """The scope inside a loop with these counters."""
        return replace(self, loops=self.loops.union(loops))

    def is_param(self, name: str) -> bool:
        """Whether the bare `name` is read as a launch parameter."""
        return name not in self.loops and name not in RESERVED and _COORD.fullmatch(name) is None


EMPTY_SCOPE = Scope({}, {})


def scope_of(params: tuple[Tensor | Scalar, ...], objects: tuple[Shared | Fragment, ...]) -> Scope:
    """The scope of everything after the declarations."""
    types: dict[str, DType] = {}
    for param in params:
        match param:
            case Scalar(name=name, dtype=dtype):
                types[name] = dtype
            case Tensor(shape=shape, strides=strides):
                types |= {e.name: e.dtype for e in (*shape, *strides) if isinstance(e, Param)}
    tensors = {p.name: p.dtype for p in params if isinstance(p, Tensor)}
    return Scope(types, tensors | {o.name: o.dtype for o in objects})


def inferred(op: str, args: tuple[DType, ...]) -> DType | None:
    """The type of an operation when nothing is written beside it; None for casts, which say theirs."""
    match OPERATORS[op].result:
        case "bool":
            return boolean
        case "same":
            return args[-1]
        case _:
            return None


# ---------------------------------------------------------------------------- expressions


def print_expr(expr: TagTerm | SpecTerm, scope: Scope = EMPTY_SCOPE) -> str:
    """An expression, a term of a tag, or a term of a specification, as text."""
    return _term(expr, scope)[0]


def _term(expr: TagTerm | SpecTerm, scope: Scope) -> tuple[str, int]:
    """The text, and how strongly it binds."""
    match expr:
        case TagField(elem=elem, name=field):
            return f"{_elem(elem, scope)}.{field if isinstance(field, int) else _name(field)}", ATOM
        case Once(lo=lo, hi=hi):
            return f"once({_list((lo, hi), scope)})", ATOM
        case DataValue(tensor=tensor, index=index):
            return f"data({_name(tensor)}[{_list(index, scope)}])", ATOM
        case SpecReduce(op=op, axis=axis, extent=extent, body=body, dtype=dtype):
            inner = f"{print_expr(Coord(axis))}, {print_expr(extent, scope)}, {print_expr(body, scope)}"
            return f"@reduce_{op}({inner}):{dtype}", ATOM
        case SpecSoftmax(axis=axis, extent=extent, at=at, score=score, dtype=dtype):
            parts = (Coord(axis), extent, at, score)
            return f"@softmax({', '.join(print_expr(p, scope) for p in parts)}):{dtype}", ATOM
        case SpecOp(op=op, args=args, dtype=dtype):
            return f"@{op}({', '.join(print_expr(a, scope) for a in args)}):{dtype}", ATOM
        case Op():
            return _operation(expr, scope)
        case _:
            text, level, dtype = _leaf(expr, scope)
            return _ascribe(text, level, expr.dtype, dtype)


def _leaf(expr: Const | Param | ProgramId | LoopVar | Coord | Thread | Elem, scope: Scope) -> tuple[str, int, DType]:
    """Text, binding strength, and the type that is read if none is written."""
    match expr:
        case Const(value=value):
            if isinstance(value, bool):
                return str(value).lower(), ATOM, boolean
            text = repr(value)
            dtype = int32 if isinstance(value, int) else float32
            return text, UNARY if text.startswith("-") else ATOM, dtype
        case Param(name=name):
            text = name if scope.is_param(name) and _PLAIN.fullmatch(name) else f"`{name}`"
            return text, ATOM, scope.params.get(name, int32)
        case LoopVar(name=name):
            bare = name in scope.loops and not _COORD.fullmatch(name) and _PLAIN.fullmatch(name)
            return (name if bare and name not in RESERVED else f"loop(`{name}`)"), ATOM, int32
        case ProgramId(axis=axis):
            return f"program_id({axis})", ATOM, int32
        case Coord(axis=axis):
            return f"c{axis}", ATOM, int32
        case Thread():
            return "thread", ATOM, int32
        case Elem():
            return _elem(expr, scope), ATOM, scope.elements.get(expr.obj, int32)
        case _:
            assert_never(expr)


def _ascribe(text: str, level: int, dtype: DType, default: DType | None) -> tuple[str, int]:
    return (text if dtype == default else f"{text}:{dtype}"), level


def _operation(expr: Op, scope: Scope) -> tuple[str, int]:
    row = OPERATORS[expr.op]
    default = inferred(expr.op, tuple(a.dtype for a in expr.args))
    if expr.op == "cast":
        return f"{expr.dtype}({_list(expr.args, scope)})", ATOM
    if row.symbol is None:
        return _ascribe(f"{expr.op}({_list(expr.args, scope)})", ATOM, expr.dtype, default)
    if row.arity == 1:
        operand = _wrap(expr.args[0], scope, ATOM)
        # "-5" is a constant, "-(5)" the negation of one.
        literal = isinstance(expr.args[0], Const) and operand[0] != "("
        text, level = f"{row.symbol}({operand})" if literal else f"{row.symbol}{operand}", UNARY
    else:
        level = LEVELS[row.symbol]
        left_level = level + 1 if level == 1 else level  # comparisons do not chain
        left, right = _wrap(expr.args[0], scope, left_level), _wrap(expr.args[1], scope, level + 1)
        text = f"{left} {row.symbol} {right}"
    return (text, level) if expr.dtype == default else (f"({text}):{expr.dtype}", ATOM)


def _wrap(expr: Expr, scope: Scope, at_least: int) -> str:
    text, level = _term(expr, scope)
    return text if level >= at_least else f"({text})"


def _list(exprs: tuple[Expr, ...], scope: Scope) -> str:
    return ", ".join(print_expr(e, scope) for e in exprs)


def _elem(elem: Elem, scope: Scope) -> str:
    return f"{_name(elem.obj)}[{_list(elem.index, scope)}]"


def _name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f"`{name}`"


def _access(access: Access, scope: Scope) -> str:
    block = "" if access.block is None else f" block {print_expr(access.block, scope)}"
    return f"{_name(access.obj)}[{_list(access.index, scope)}]{block}"


def print_shape(shape: tuple[int, ...]) -> str:
    """`128x64`; `()` for a scalar."""
    return "x".join(map(str, shape)) or "()"


# ---------------------------------------------------------------------------- kernels and statements


def print_kernel(kernel: Kernel) -> str:
    """The whole kernel; `parse_kernel(print_kernel(k)) == k`."""
    scope = scope_of(kernel.params, (*kernel.shared, *kernel.fragments))
    lines = [f"kernel {_name(kernel.name)}"]
    if kernel.target is not None:
        lines.append(f"target {kernel.target}")
    lines.append(f"warps {kernel.num_warps} of {kernel.warp_size}")
    lines += (f"size {_name(size)}" for size in kernel.sizes)
    lines += map(_param, kernel.params)
    lines += (f"constexpr {_name(name)} = {_literal(value)}" for name, value in kernel.constexprs)
    if kernel.grid is not None:
        group = "" if kernel.group == 1 else f" group {kernel.group}"
        cluster = f" cluster {kernel.cluster}" if kernel.cluster != 1 else ""
        persistent = " persistent" if kernel.persistent else ""
        schedule = "" if kernel.schedule == "cooperative" else f" {kernel.schedule}"
        flat = " flat" if kernel.flat else ""
        lines.append(f"grid [{_list(kernel.grid, scope)}]{group}{cluster}{flat}{persistent}{schedule}")
    lines += (_precondition(p, scope) for p in kernel.preconditions)
    lines += map(_shared, kernel.shared)
    lines += map(_mbarrier, kernel.barriers)
    lines += map(_fragment, kernel.fragments)
    lines += ["body {", *_block(kernel.body, scope), "}"]
    return "\n".join(lines) + "\n"


def print_stmt(stmt: Stmt, kernel: Kernel) -> str:
    """One statement of `kernel`, with what is nested in it."""
    loops = frozenset(name for s in walk(kernel.body) if isinstance(s, For) for name in s.counters)
    scope = scope_of(kernel.params, (*kernel.shared, *kernel.fragments))
    return "\n".join(_stmt(stmt, Scope(scope.params, scope.elements, loops)))


def _param(param: Tensor | Scalar) -> str:
    match param:
        case Tensor(name=name, dtype=dtype, shape=shape, strides=strides, alignment=alignment):
            at = f"strides [{_list(strides, EMPTY_SCOPE)}] align {alignment}"
            return f"tensor {_name(name)}: {dtype}[{_list(shape, EMPTY_SCOPE)}] {at}"
        case Scalar(name=name, dtype=dtype):
            return f"scalar {_name(name)}: {dtype}"
        case _:
            assert_never(param)


def _literal(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case None:
            return "none"
        case str():
            return json.dumps(value)
        case tuple():
            return f"({''.join(f'{_literal(item)}, ' for item in value)})"
        case DType(name=name):
            return name
        case int() | float():
            return repr(value)
        case _:
            raise TypeError(f"a constexpr value of type {type(value).__name__} has no text form")


def _precondition(precondition: Precondition, scope: Scope) -> str:
    match precondition:
        case Requires(cond=cond):
            return f"requires {print_expr(cond, scope)}"
        case InRange(tensor=tensor, lo=lo, hi=hi):
            return f"in_range {_name(tensor)} from {print_expr(lo, scope)} to {print_expr(hi, scope)}"
        case Assume(cond=cond, reason=reason):
            return f"assume {print_expr(cond, scope)} because {json.dumps(reason)}"
        case _:
            assert_never(precondition)


def _shared(shared: Shared) -> str:
    layout = "" if shared.layout is None else f" layout {shared.layout}"
    at = "" if shared.offset is None else f" at {shared.offset}"
    return f"shared {_name(shared.name)}: {shared.dtype} {print_shape(shared.shape)}{layout}{at}"


def _mbarrier(barrier: Mbarrier) -> str:
    at = "" if barrier.offset is None else f" at {barrier.offset}"
    return f"mbarrier {_name(barrier.name)} count {barrier.count} arrivals {barrier.arrivals}{at}"


def _fragment(fragment: Fragment) -> str:
    layout = "" if fragment.layout is None else f" layout {fragment.layout}"
    return f"fragment {_name(fragment.name)}: {fragment.dtype} {print_shape(fragment.shape)}{layout}"


def _block(body: tuple[Stmt, ...], scope: Scope) -> list[str]:
    return [f"  {line}" for stmt in body for line in _stmt(stmt, scope)]


def _mask(mask: Expr | None, scope: Scope) -> str:
    return "" if mask is None else f" if {print_expr(mask, scope)}"


def _other(other: Const | None) -> str:
    return "" if other is None else f" else {print_expr(other)}"


def _tail(stmt: Copy | Map | Accumulate) -> str:
    """How the statement is spread over threads, and with what."""
    parts = "" if stmt.layout is None else f" layout {stmt.layout}"
    if not isinstance(stmt, Copy):
        parts += "" if stmt.scope is None else f" scope {_name(stmt.scope)}"
    if not isinstance(stmt, Map):
        parts += "" if stmt.instr is None else f" via {_name(stmt.instr)}"
    if isinstance(stmt, Copy) and stmt.vector != 1:
        parts += f" vector {stmt.vector}"
    return parts


def _stmt(stmt: Stmt, scope: Scope) -> list[str]:
    match stmt:
        case Copy(dst=dst, src=src, shape=shape, mask=mask, other=other, signal=signal, among=among):
            head = f"copy {_access(dst, scope)} <- {_access(src, scope)} shape {print_shape(shape)}"
            to = _once(stmt) + ("" if among is None else _among(among))
            return [head + _mask(mask, scope) + _other(other) + _tail(stmt) + _signal(signal, scope) + to]
        case Map(dst=dst, value=value, shape=shape):
            head = f"map {_access(dst, scope)} = {print_expr(value, scope)} shape {print_shape(shape)}"
            return [head + _tail(stmt)]
        case Accumulate(dst=dst, value=value, op=op, shape=shape, mask=mask):
            head = f"accumulate {_access(dst, scope)} {op} {print_expr(value, scope)} shape {print_shape(shape)}"
            return [head + _mask(mask, scope) + _tail(stmt)]
        case Mma(d=d, a=a, b=b, shape=shape, instr=instr, warps=warps):
            head = f"mma {_access(d, scope)} += {_access(a, scope)} * {_access(b, scope)}"
            via = "" if instr is None else f" via {_name(instr)}"
            grid = "" if warps is None else f" warps {print_shape(warps)}"
            return [f"{head} shape {print_shape(shape)}{via}{grid}"]
        case Barrier(scope=where):
            return ["barrier" if where == "block" else f"barrier scope {where}"]
        case CommitGroup():
            return ["commit_group"]
        case WaitGroup(pending=pending):
            return [f"wait_group {pending}"]
        case MmaFence():
            return ["mma_fence"]
        case MmaCommit():
            return ["mma_commit"]
        case MmaWait(pending=pending):
            return [f"mma_wait {pending}"]
        case BulkCommit():
            return ["bulk_commit"]
        case BulkWait(pending=pending, read=read):
            return [f"bulk_wait{'_read' if read else ''} {pending}"]
        case ProxyFence():
            return ["proxy_fence"]
        case BarrierSync(number=number, count=count):
            return [f"barrier_sync {number} count {count}"]
        case BarrierArrive(number=number, count=count):
            return [f"barrier_arrive {number} count {count}"]
        case WaitCounts(vm=vm, lgkm=lgkm):
            counts = (("vmcnt", vm), ("lgkmcnt", lgkm))
            return [" ".join(["s_waitcnt", *(f"{name} {n}" for name, n in counts if n is not None)])]
        case WaveBarrier():
            return ["s_barrier"]
        case WavePriority(level=level):
            return [f"s_setprio {level}"]
        case SchedGroup(mask=kinds, size=size, sync=sync):
            return [f"sched_group_barrier mask {kinds} size {size} sync {sync}"]
        case MbarrierInit(barrier=name):
            return [f"mbarrier_init {_name(name)}"]
        case MbarrierFence():
            return ["mbarrier_fence"]
        case MbarrierExpect(barrier=name, index=index, bytes=count):
            return [f"mbarrier_expect {_place(name, index, scope)} bytes {count}"]
        case MbarrierArrive(barrier=name, index=index, scope=where, among=groups):
            to = ("" if where == "block" else f" scope {where}") + "".join(map(_among, groups))
            return [f"mbarrier_arrive {_place(name, index, scope)}{to}"]
        case MbarrierWait(barrier=name, index=index, parity=parity):
            return [f"mbarrier_wait {_place(name, index, scope)} parity {print_expr(parity, scope)}"]
        case Roles(roles=roles):
            return ["roles {", *(f"  {line}" for role in roles for line in _role(role, scope)), "}"]
        case Programs(body=body, turns=turns, turn=turn):
            return ["programs {" if turns == 1 else f"programs turn {turn} of {turns} {{", *_block(body, scope), "}"]
        case Stage(dst=name, src=src, shape=shape, mask=mask, other=other):
            head = f"stage {_name(name)} <- {_access(src, scope)} shape {print_shape(shape)}"
            return [head + _mask(mask, scope) + _other(other) + _once(stmt)]
        case For(var=var, body=body):
            inner = scope.enter(*stmt.counters)
            return [f"for {_name(var)} in {_bounds(stmt, scope)} {{", *_block(body, inner), "}"]
        case If(cond=cond, then=then, orelse=orelse):
            lines = [f"if {print_expr(cond, scope)} {{", *_block(then, scope)]
            return [*lines, "} else {", *_block(orelse, scope), "}"] if orelse else [*lines, "}"]
        case Tag(obj=obj, shape=extents, fields=fields):
            entries = ", ".join(f"{_name(field)} = {print_expr(term, scope)}" for field, term in fields)
            return [f"tag {_name(obj)}[{_list(extents, scope)}] = {{{entries}}}"]
        case AssertTags(shape=shape, names=names, conditions=conditions, where=where):
            texts = "; ".join(_condition(c, scope) for c in conditions)
            only = "" if where is None else f" where {print_expr(where, scope)}"
            return [f"assert ({', '.join(map(_name, names))}) in {print_shape(shape)} {{{texts}}}{only}"]
        case Spec(output=output, names=names, value=term):
            return [f"spec {_name(output)}({', '.join(map(_name, names))}) = {print_expr(term, scope)}"]
        case _:
            assert_never(stmt)


def _bounds(loop: For, scope: Scope) -> str:
    """The range of a loop and its policy."""
    bounds = f"{print_expr(loop.start, scope)} .. {print_expr(loop.stop, scope)} step {loop.step}"
    policy = "" if loop.kind == "dynamic" else f" kind {_name(loop.kind)}"
    policy += "" if loop.stages == 1 else f" stages {loop.stages}"
    policy += "" if loop.producer_warps == 0 else f" producers {loop.producer_warps}"
    policy += "" if loop.counter is None else f" counter {_name(loop.counter.name)} wrap {loop.counter.wrap}"
    return bounds + policy


def _role(role: Role, scope: Scope) -> list[str]:
    budget = "" if role.registers is None else f" registers {role.registers}"
    head = f"role {_name(role.name)} warps {role.num_warps} from {role.first_warp}{budget} {{"
    return [head, *_block(role.body, scope), "}"]


def _place(barrier: str, index: Expr, scope: Scope) -> str:
    return f"{_name(barrier)}[{print_expr(index, scope)}]"


def _once(stmt: Copy | Stage) -> str:
    return " once" if stmt.once else ""


def _among(among: Among) -> str:
    return f" among {among.count} by {among.stride}"


def _signal(signal: Signal | None, scope: Scope) -> str:
    return "" if signal is None else f" signal {_place(signal.barrier, signal.index, scope)}"


def _condition(condition: TagCondition, scope: Scope) -> str:
    match condition:
        case TagEqual(left=left, right=right):
            return f"{_side(left, scope)} == {_side(right, scope)}"
        case TagTuple(elem=elem, terms=terms):
            return f"{_elem(elem, scope)} carries [{', '.join(print_expr(t, scope) for t in terms)}]"
        case _:
            assert_never(condition)


def _side(term: TagTerm, scope: Scope) -> str:
    text, level = _term(term, scope)
    return text if level > LEVELS["=="] else f"({text})"
