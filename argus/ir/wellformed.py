"""What a legal kernel is at each stage. A finding here is a mistake of the frontend or a pass, not of an author."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from typing_extensions import assert_never

from argus.diagnostic import Diagnostic
from argus.ir.contents import ARRANGEMENTS
from argus.ir.expr import REDUCTIONS, Const, Elem, Expr, Op, Param
from argus.ir.expr import walk as walk_expr
from argus.ir.instruction import REDUCES
from argus.ir.nodes import (
    Access,
    Accumulate,
    Arranged,
    AssertTags,
    Assume,
    Barrier,
    BarrierArrive,
    BarrierSync,
    BulkCommit,
    BulkWait,
    CommitGroup,
    Copy,
    Covers,
    DataValue,
    For,
    Fragment,
    Hint,
    If,
    InRange,
    Kernel,
    Map,
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
    Programs,
    ProxyFence,
    Requires,
    Roles,
    Shared,
    Spec,
    SpecOp,
    SpecReduce,
    SpecSoftmax,
    SpecTerm,
    Stage,
    Stmt,
    Tag,
    TagEqual,
    TagField,
    TagTerm,
    TagTuple,
    Tensor,
    WaitCounts,
    WaitGroup,
    WaveBarrier,
)
from argus.ir.target import TARGETS
from argus.ir.types import HARDWARE_AXES, MAX_GRID_AXES, DType, boolean, int32
from argus.ir.typing_rules import Scope, expr_problems, index_problems, scope_of
from argus.ir.visit import walk
from argus.ir.waves import wave_step
from argus.ir.wellformed_barriers import initialisations, named_barriers, running_counts
from argus.ir.wellformed_explicit import explicit_problems
from argus.ir.wellformed_hopper import barrier_problem, cluster_problems, programs_placement, roles_placement
from argus.source import Span

_ANY = (Tensor, Shared, Fragment)
Problem = tuple[str, Span]


def check_tile(kernel: Kernel) -> tuple[Diagnostic, ...]:
    """Violations of the rules that hold at every stage: names, ranks, types, scopes."""
    return _diagnostics(_tile(kernel))


def check_explicit(kernel: Kernel) -> tuple[Diagnostic, ...]:
    """Violations of the rules of explicit IR: those of `check_tile`, and everything filled in and consistent.

    A kernel in which there are none is not checked again.
    """
    if kernel.well_formed:
        return ()
    problems = list(_tile(kernel))
    # The layout rules take for granted that names and ranks are right.
    found = _diagnostics(problems or explicit_problems(kernel))
    if not found:
        object.__setattr__(kernel, "well_formed", True)  # a fact about a value that never changes
    return found


def _diagnostics(problems: Iterable[Problem]) -> tuple[Diagnostic, ...]:
    return tuple(Diagnostic("ill-formed-ir", message, span, property="types") for message, span in problems)


def _tile(kernel: Kernel) -> Iterator[Problem]:
    declared = [*(p.name for p in kernel.params), *(s.name for s in kernel.shared), *(f.name for f in kernel.fragments)]
    declared += [b.name for b in kernel.barriers]
    for name, count in Counter([*declared, *kernel.sizes]).items():
        if count > 1:
            yield f"`{name}` is declared {count} times", kernel.span
    tagged = Counter(s.obj for s in walk(kernel.body) if isinstance(s, Tag))
    for tensor in kernel.tensors:
        if tagged[tensor.name] > 1:
            yield f"`{tensor.name}` is tagged {tagged[tensor.name]} times", tensor.span
    if kernel.target is not None and kernel.target not in TARGETS:
        yield f"there is no target `{kernel.target}`", kernel.span
    if kernel.num_warps < 1 or kernel.warp_size not in (32, 64):
        yield f"{kernel.num_warps} warps of {kernel.warp_size} threads make no block", kernel.span
    scope = scope_of(kernel)
    launch = replace(scope, launch=True, kinds=())
    taken = {*declared, *kernel.sizes}
    for loop in (s for s in walk(kernel.body) if isinstance(s, For)):
        for name in taken.intersection(loop.counters):
            yield f"a loop counts `{name}`, which something else is called", loop.span
    for tensor in kernel.tensors:
        if len(tensor.strides) != len(tensor.shape):
            yield f"`{tensor.name}` has {len(tensor.shape)} extents and {len(tensor.strides)} strides", tensor.span
        if tensor.alignment not in (1, 2, 4, 8, 16) or tensor.alignment < tensor.dtype.bytes:
            yield f"`{tensor.name}` cannot be aligned to {tensor.alignment} bytes", tensor.span
        yield from _exprs((*tensor.shape, *tensor.strides), launch, tensor.span)
        if not all(_named(e, kernel.sizes) for e in tensor.shape) or not all(_named(e) for e in tensor.strides):
            yield f"extents of `{tensor.name}` are numbers or sizes, its strides numbers or names", tensor.span
    tiles: tuple[Shared | Fragment, ...] = (*kernel.shared, *kernel.fragments)
    for tile in tiles:
        if any(extent < 1 for extent in tile.shape):
            yield f"`{tile.name}` has an empty shape {tile.shape}", tile.span
    if kernel.grid is not None:
        most = MAX_GRID_AXES if kernel.flat else HARDWARE_AXES
        if not 1 <= len(kernel.grid) <= most:
            flat = "a flat grid" if kernel.flat else "a grid that is not flat"
            yield f"{flat} has 1 to {most} axes, not {len(kernel.grid)}", kernel.span
        yield from _counted(kernel.grid, launch, kernel.span)
    axes = (2, 3) if kernel.persistent else (2,)
    if not 1 <= kernel.group < 2**31 or (kernel.group > 1 and len(kernel.grid or ()) not in axes):
        yield f"this grid is not walked {kernel.group} rows at a time", kernel.span
    if kernel.persistent and kernel.grid is None:
        yield "a kernel without a grid has no programs to share out", kernel.span
    for precondition in kernel.preconditions:
        match precondition:
            case Requires(cond=cond, span=span) | Assume(cond=cond, span=span):
                yield from _typed("a precondition", cond, boolean, launch, span)
            case InRange(tensor=name, lo=lo, hi=hi, span=span):
                if not isinstance(scope.objects.get(name), Tensor):
                    yield f"`{name}` is not a tensor", span
                yield from _counted((lo, hi), launch, span)
            case Arranged():
                yield from _arranged(precondition, scope, launch)
            case _:
                assert_never(precondition)
    for invariant in kernel.invariants:
        output = scope.objects.get(invariant.tensor)
        if not isinstance(output, Tensor):
            yield f"`{invariant.tensor}` is not a tensor", invariant.span
        elif not invariant.sizes or any(Param(size) not in output.shape for size in invariant.sizes):
            yield f"`{invariant.tensor}` is invariant over sizes that are extents of it", invariant.span
    for covers in kernel.covers:
        yield from _covers(kernel, covers, scope)
    yield from roles_placement(kernel)
    yield from programs_placement(kernel)
    yield from named_barriers(kernel)
    yield from initialisations(kernel)
    yield from running_counts(kernel)
    yield from cluster_problems(kernel)
    yield from _body(kernel.body, scope)


def _covers(kernel: Kernel, covers: Covers, scope: Scope) -> Iterator[Problem]:
    """What is wrong with a declared part of an output."""
    target = scope.objects.get(covers.output)
    if not isinstance(target, Tensor) or len(target.shape) != len(covers.at) or len(covers.names) != len(covers.shape):
        yield f"`{covers.output}` is not a tensor of {len(covers.at)} dimensions", covers.span
    if len([c for c in kernel.covers if c.output == covers.output]) > 1:
        yield f"`{covers.output}` is covered twice", covers.span
    whole = replace(scope, kinds=(Tensor,), launch=True, loops=frozenset()).over(len(covers.names))
    yield from _counted(covers.shape, replace(scope, launch=True, kinds=()), covers.span)
    yield from _counted(covers.at, whole, covers.span)
    if covers.where is not None:
        yield from _typed("what is covered", covers.where, boolean, whole, covers.span)


def _arranged(fact: Arranged, scope: Scope, launch: Scope) -> Iterator[Problem]:
    """What is wrong with a fact about the order of a tensor's contents, as a statement about them."""
    tensor = scope.objects.get(fact.tensor)
    if not isinstance(tensor, Tensor) or not tensor.dtype.is_int or not tensor.shape:
        yield f"`{fact.tensor}` is not a tensor of integers with a dimension", fact.span
        return
    if fact.how not in ARRANGEMENTS:
        yield f"contents cannot be {fact.how}", fact.span
    if fact.how in ("permutation", "offsets") and len(tensor.shape) != 1:
        yield f"{fact.how} have one dimension, and `{fact.tensor}` has {len(tensor.shape)}", fact.span
    if (fact.how == "offsets") != (fact.total is not None) or (fact.how != "offsets" and fact.longest is not None):
        yield f"{fact.how} have {'a' if fact.how == 'offsets' else 'no'} total", fact.span
    yield from _counted(tuple(e for e in (fact.total, fact.longest) if e is not None), launch, fact.span)


def _named(expr: Expr, names: tuple[str, ...] | None = None) -> bool:
    """Whether a launch can compare an extent or a stride with that of an argument, or call that by its name."""
    match expr:
        case Const(value=value):
            return names is None or value >= 0
        case Param(name=name):
            return names is None or name in names
        case _:
            return False


def _body(body: tuple[Stmt, ...], scope: Scope) -> Iterator[Problem]:
    for stmt in body:
        yield from _stmt(stmt, scope)


def _stmt(stmt: Stmt, scope: Scope) -> Iterator[Problem]:
    match stmt:
        case Copy():
            yield from _copy(stmt, scope.over(len(stmt.shape)))
        case Map(dst=dst, value=value, shape=shape, span=span):
            inner = scope.over(len(shape))
            yield from _access(dst, inner, (Fragment,), span)
            yield from _typed(f"the value for `{dst.obj}`", value, _dtype(dst.obj, scope), inner, span)
        case Accumulate(dst=dst, value=value, op=op, shape=shape, mask=mask, span=span):
            inner = scope.over(len(shape))
            if op not in REDUCTIONS:
                yield f"`{op}` is not a reduction", span
            yield from _access(dst, inner, (Fragment, Tensor), span)
            readable = replace(inner, kinds=(Shared,)) if stmt.instr in REDUCES else inner
            yield from _typed(f"the value for `{dst.obj}`", value, _dtype(dst.obj, scope), readable, span)
            yield from _mask(mask, inner, span)
        case Mma(d=d, a=a, b=b, shape=shape, span=span):
            inner = scope.over(3)
            yield from _access(d, inner, (Fragment,), span)
            yield from _access(a, inner, (Fragment, Shared), span)
            yield from _access(b, inner, (Fragment, Shared), span)
            if _dtype(a.obj, scope) != _dtype(b.obj, scope):
                yield f"`{a.obj}` and `{b.obj}` have different types", span
        case Stage(dst=dst, src=src, shape=shape, mask=mask, other=other, span=span):
            inner = scope.over(len(shape))
            tile = scope.objects.get(dst)
            if not isinstance(tile, Shared) or tile.shape != shape:
                yield f"`{dst}` is not a shared tile of shape {shape}", span
            yield from _access(src, inner, (Tensor,), span)
            yield from _mask(mask, inner, span)
            if other is not None and other.dtype != _dtype(dst, scope):
                yield f"padding of type {other.dtype} does not fit `{dst}`", span
        case For():
            yield from _loop(stmt, scope)
        case If(cond=cond, then=then, orelse=orelse, span=span):
            yield from _typed("a condition", cond, boolean, scope, span)
            yield from _body((*then, *orelse), scope)
        case Barrier() | CommitGroup() | BarrierSync() | BarrierArrive() | MbarrierInit() | MbarrierFence():
            pass
        case MmaFence() | MmaCommit() | ProxyFence() | BulkCommit():
            pass
        case MbarrierExpect(barrier=name, index=index) | MbarrierArrive(barrier=name, index=index):
            yield from _exprs((index,), scope, stmt.span)
            yield from barrier_problem(name, index, scope.barriers, stmt.span)
        case MbarrierWait(barrier=name, index=index, parity=parity, span=span):
            yield from _exprs((index, parity), scope, span)
            yield from barrier_problem(name, index, scope.barriers, span, parity)
        case WaitCounts() | WaveBarrier() | Hint():
            yield from wave_step(stmt)
        case Roles(roles=roles):
            for role in roles:
                yield from _body(role.body, scope)
        case Programs(body=body):
            yield from _body(body, scope)
        case WaitGroup(pending=pending) | MmaWait(pending=pending) | BulkWait(pending=pending):
            if pending < 0:
                yield f"cannot wait for {pending} pending groups", stmt.span
        case Tag() | AssertTags() | Spec():
            yield from _annotation(stmt, replace(scope, kinds=_ANY))
        case _:
            assert_never(stmt)


def _loop(loop: For, scope: Scope) -> Iterator[Problem]:
    kind, span = loop.kind, loop.span
    if loop.step < 1 or loop.stages < 1 or kind not in ("dynamic", "pipelined"):
        yield f"a {kind} loop with step {loop.step} and {loop.stages} stages is none", span
    if loop.producer_warps < 0 or (loop.producer_warps and kind != "pipelined"):
        yield f"a {kind} loop with {loop.producer_warps} producer warps is none", span
    bound = loop.counters
    for name in bound:
        if name in scope.loops:
            yield f"a loop inside the loop over `{name}` has the same counter", span
    if loop.counter is not None and (loop.counter.wrap < 1 or loop.counter.name == loop.var):
        yield f"the count `{loop.counter.name}` modulo {loop.counter.wrap} is none", span
    yield from _exprs((loop.start, loop.stop), scope, span)
    yield from _body(loop.body, replace(scope, loops=scope.loops.union(bound)))


def _copy(stmt: Copy, scope: Scope) -> Iterator[Problem]:
    for access in (stmt.dst, stmt.src):
        yield from _access(access, scope, _ANY, stmt.span, peers=True)
        if access.block is not None:
            yield from _typed("the number of a block", access.block, int32, replace(scope, axes=frozenset()), stmt.span)
    yield from _mask(stmt.mask, scope, stmt.span)
    held, moved = _dtype(stmt.dst.obj, scope), _dtype(stmt.src.obj, scope)
    if held != moved:
        yield f"`{stmt.src.obj}` holds {moved}, `{stmt.dst.obj}` {held}: a copy does not convert", stmt.span
    if stmt.other is not None and stmt.other.dtype != held:
        yield f"padding of type {stmt.other.dtype} does not fit `{stmt.dst.obj}`", stmt.span
    if stmt.vector < 1:
        yield f"a vector of {stmt.vector} elements is none", stmt.span
    if stmt.signal is not None:
        yield from _exprs((stmt.signal.index,), scope, stmt.span)
        yield from barrier_problem(stmt.signal.barrier, stmt.signal.index, scope.barriers, stmt.span)


def _annotation(stmt: Tag | AssertTags | Spec, scope: Scope) -> Iterator[Problem]:
    match stmt:
        case Tag(obj=obj, shape=shape, fields=fields, span=span):
            target = scope.objects.get(obj)
            if target is None or len(target.shape) != len(shape):
                yield f"there is no memory object `{obj}` of {len(shape)} dimensions", span
            names = [name for name, _ in fields]
            if len(set(names)) != len(names):
                yield f"the tag of `{obj}` has two fields of one name", span
            for _, term in fields:
                yield from _tag_term(term, scope.over(len(shape)), span)
        case AssertTags(shape=shape, names=names, conditions=conditions, where=where, span=span):
            yield from _mask(where, scope.over(len(shape)), span)
            if len(names) != len(shape):
                yield f"{len(names)} names for {len(shape)} quantified variables", span
            inner = scope.over(len(shape))
            for condition in conditions:
                match condition:
                    case TagEqual(left=left, right=right):
                        yield from _tag_term(left, inner, span)
                        yield from _tag_term(right, inner, span)
                    case TagTuple(elem=elem, terms=terms):
                        yield from _exprs((elem,), inner, span)
                        for term in terms:
                            yield from _tag_term(term, inner, span)
                    case _:
                        assert_never(condition)
        case Spec(output=output, names=names, value=value, span=span):
            target = scope.objects.get(output)
            rank = None if not isinstance(target, Tensor) else scope.variables.get(output, len(target.shape))
            if rank != len(names):
                yield f"`{output}` is not a tensor of {len(names)} dimensions", span
            whole = replace(scope, kinds=(Tensor,), launch=True, loops=frozenset())  # of all blocks and iterations
            yield from _spec_term(value, whole.over(len(names)), span)
        case _:
            assert_never(stmt)


def _tag_term(term: TagTerm, scope: Scope, span: Span) -> Iterator[Problem]:
    match term:
        case TagField(elem=elem):
            yield from _exprs((elem,), scope, span)
        case Once(lo=lo, hi=hi):
            yield from _exprs((lo, hi), scope, span)
        case DataValue(tensor=tensor, index=index):
            yield from _access(Access(tensor, index), scope, (Tensor,), span)
        case _:
            yield from _exprs((term,), scope, span)


def _spec_term(term: SpecTerm, scope: Scope, span: Span) -> Iterator[Problem]:
    match term:
        case SpecReduce(op=op, axis=axis, extent=extent, body=body):
            if op not in (*REDUCTIONS, "logaddexp"):
                yield f"`{op}` is not a reduction", span
            if axis in scope.axes:
                yield f"the bound variable c{axis} is bound already", span
            yield from _exprs((extent,), scope, span)
            yield from _spec_term(body, replace(scope, axes=scope.axes | {axis}), span)
        case SpecSoftmax(axis=axis, extent=extent, at=at, score=score):
            if axis in scope.axes:
                yield f"the bound variable c{axis} is bound already", span
            yield from _exprs((extent, at), scope, span)
            yield from _spec_term(score, replace(scope, axes=scope.axes | {axis}), span)
        case SpecOp(args=args):
            for arg in args:
                yield from _spec_term(arg, scope, span)
        case _:
            yield from _exprs((term,), scope, span)


def _dtype(obj: str, scope: Scope) -> DType | None:
    target = scope.objects.get(obj)
    return None if target is None else target.dtype


def _access(
    access: Access, scope: Scope, kinds: tuple[type, ...], span: Span, peers: bool = False
) -> Iterator[Problem]:
    for message in index_problems(access.obj, access.index, scope):
        yield message, span
    target = scope.objects.get(access.obj)
    if target is not None and not isinstance(target, kinds):
        yield f"`{access.obj}` is a {type(target).__name__.lower()}, which cannot stand here", span
    yield from _exprs(access.index, scope, span)
    if access.block is not None and not peers:
        yield f"only a copy reaches a tile of a peer, such as `{access.obj}`", span


def _mask(mask: Expr | None, scope: Scope, span: Span) -> Iterator[Problem]:
    if mask is not None:
        yield from _typed("a mask", mask, boolean, scope, span)


def _typed(what: str, expr: Expr, dtype: DType | None, scope: Scope, span: Span) -> Iterator[Problem]:
    yield from _exprs((expr,), scope, span)
    if dtype is not None and expr.dtype != dtype:
        yield f"{what} has type {expr.dtype}, not {dtype}", span


def _counted(exprs: tuple[Expr, ...], scope: Scope, span: Span) -> Iterator[Problem]:
    """What host and device compute, both, and alike."""
    yield from _exprs(exprs, scope, span)
    if any(isinstance(e, Op) and e.dtype.is_float for expr in exprs for e in walk_expr(expr)):
        yield "an extent or a limit is computed in floats, which the host rounds otherwise than the device", span


def _exprs(exprs: Iterable[Expr | Elem], scope: Scope, span: Span) -> Iterator[Problem]:
    for expr in exprs:
        for message in expr_problems(expr, scope):
            yield message, span
