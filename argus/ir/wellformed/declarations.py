"""Rules of a kernel's declarations: parameters, tiles, the grid, preconditions and promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from typing_extensions import assert_never

from argus.ir.contents import ARRANGEMENTS
from argus.ir.expr import Const, Expr, Param
from argus.ir.instruction.limits import MAX_COUNT
from argus.ir.nodes import (
    Access,
    Arranged,
    Assume,
    Covers,
    Fragment,
    InRange,
    Kernel,
    Programs,
    Requires,
    Roles,
    Scalar,
    Shared,
    Stmt,
    Tag,
    Tensor,
)
from argus.ir.statement import Problem
from argus.ir.target import TARGETS, Target
from argus.ir.types import HARDWARE_AXES, MAX_GRID_AXES, boolean
from argus.ir.typing_rules import Scope, scope_of
from argus.ir.visit import map_accesses, walk
from argus.ir.wellformed import placement
from argus.ir.wellformed.layouts import fits
from argus.ir.wellformed.site import counted, expressions, typed
from argus.layout import extremes


def names(kernel: Kernel) -> Iterator[Problem]:
    """Yield the problems of a kernel's declarations at any stage."""
    scope = scope_of(kernel)
    launch = replace(scope, launch=True, kinds=())
    yield from _named_once(kernel)
    if kernel.target is not None and kernel.target not in TARGETS:
        yield f"there is no target `{kernel.target}`", kernel.span
    if kernel.num_warps < 1 or kernel.warp_size not in (32, 64):
        yield f"{kernel.num_warps} warps of {kernel.warp_size} threads make no block", kernel.span
    for tensor in kernel.tensors:
        yield from _tensor(tensor, kernel, launch)
    tiles: tuple[Shared | Fragment, ...] = (*kernel.shared, *kernel.fragments)
    for tile in tiles:
        if any(extent < 1 for extent in tile.shape):
            yield f"`{tile.name}` has an empty shape {tile.shape}", tile.span
    yield from _grid(kernel, launch)
    yield from _preconditions(kernel, scope, launch)
    for invariant in kernel.invariants:
        output = scope.objects.get(invariant.tensor)
        if not isinstance(output, Tensor):
            yield f"`{invariant.tensor}` is not a tensor", invariant.span
        elif not invariant.sizes or not all(_varies(size, output, kernel) for size in invariant.sizes):
            what = f"`{invariant.tensor}` is invariant over sizes that are extents of it, and integer arguments"
            yield what, invariant.span
    for covers in kernel.covers:
        yield from _covers(kernel, covers, scope)


def _varies(name: str, output: Tensor, kernel: Kernel) -> bool:
    """Return True if a promise of invariance may name `name`: an extent of the output or an integer argument."""
    arguments = (p for p in kernel.params if isinstance(p, Scalar) and p.dtype.is_int)
    return Param(name) in output.shape or any(p.name == name for p in arguments)


def _named_once(kernel: Kernel) -> Iterator[Problem]:
    declared = [*(p.name for p in kernel.params), *(s.name for s in kernel.shared), *(f.name for f in kernel.fragments)]
    declared += [b.name for b in kernel.barriers]
    for name, count in Counter([*declared, *kernel.sizes]).items():
        if count > 1:
            yield f"`{name}` is declared {count} times", kernel.span
    tagged = Counter(s.obj for s in walk(kernel.body) if isinstance(s, Tag))
    for tensor in kernel.tensors:
        if tagged[tensor.name] > 1:
            yield f"`{tensor.name}` is tagged {tagged[tensor.name]} times", tensor.span


def _tensor(tensor: Tensor, kernel: Kernel, launch: Scope) -> Iterator[Problem]:
    if len(tensor.strides) != len(tensor.shape):
        yield f"`{tensor.name}` has {len(tensor.shape)} extents and {len(tensor.strides)} strides", tensor.span
    if tensor.alignment not in (1, 2, 4, 8, 16) or tensor.alignment < tensor.dtype.bytes:
        yield f"`{tensor.name}` cannot be aligned to {tensor.alignment} bytes", tensor.span
    yield from expressions((*tensor.shape, *tensor.strides), launch, tensor.span)
    if not all(_named(e, kernel.sizes) for e in tensor.shape) or not all(_named(e) for e in tensor.strides):
        yield f"extents of `{tensor.name}` are numbers or sizes, its strides numbers or names", tensor.span


def _grid(kernel: Kernel, launch: Scope) -> Iterator[Problem]:
    if kernel.grid is not None:
        most = MAX_GRID_AXES if kernel.flat else HARDWARE_AXES
        if not 1 <= len(kernel.grid) <= most:
            flat = "a flat grid" if kernel.flat else "a grid that is not flat"
            yield f"{flat} has 1 to {most} axes, not {len(kernel.grid)}", kernel.span
        yield from counted(kernel.grid, launch, kernel.span)
    axes = (2, 3) if kernel.persistent else (2,)
    if not 1 <= kernel.group < 2**31 or (kernel.group > 1 and len(kernel.grid or ()) not in axes):
        yield f"this grid is not walked {kernel.group} rows at a time", kernel.span
    if kernel.persistent and kernel.grid is None:
        yield "a kernel without a grid has no programs to share out", kernel.span


def _preconditions(kernel: Kernel, scope: Scope, launch: Scope) -> Iterator[Problem]:
    for precondition in kernel.preconditions:
        if isinstance(precondition, Assume) and not precondition.reason.isprintable():
            yield "the reason of an assumption has characters that cannot be printed", precondition.span
        match precondition:
            case Requires(cond=cond, span=span) | Assume(cond=cond, span=span):
                yield from typed("a precondition", cond, boolean, launch, span)
            case InRange(tensor=name, lo=lo, hi=hi, span=span):
                if not isinstance(scope.objects.get(name), Tensor):
                    yield f"`{name}` is not a tensor", span
                yield from counted((lo, hi), launch, span)
            case Arranged():
                yield from _arranged(precondition, scope, launch)
            case _:
                assert_never(precondition)


def _covers(kernel: Kernel, covers: Covers, scope: Scope) -> Iterator[Problem]:
    """Yield the problems of a declared part of an output."""
    target = scope.objects.get(covers.output)
    if not isinstance(target, Tensor) or len(target.shape) != len(covers.at) or len(covers.names) != len(covers.shape):
        yield f"`{covers.output}` is not a tensor of {len(covers.at)} dimensions", covers.span
    if len([c for c in kernel.covers if c.output == covers.output]) > 1:
        yield f"`{covers.output}` is covered twice", covers.span
    whole = replace(scope, kinds=(Tensor,), launch=True, loops=frozenset()).over(len(covers.names))
    yield from counted(covers.shape, replace(scope, launch=True, kinds=()), covers.span)
    yield from counted(covers.at, whole, covers.span)
    if covers.where is not None:
        yield from typed("what is covered", covers.where, boolean, whole, covers.span)


def _arranged(fact: Arranged, scope: Scope, launch: Scope) -> Iterator[Problem]:
    """Yield the problems in the form of a precondition on the arrangement of a tensor's contents."""
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
    yield from counted(tuple(e for e in (fact.total, fact.longest) if e is not None), launch, fact.span)


def _named(expr: Expr, names: tuple[str, ...] | None = None) -> bool:
    """Return True if a launch can compare an extent or a stride with that of an argument, or name it in an error
    message."""
    match expr:
        case Const(value=value):
            return names is None or value >= 0
        case Param(name=name):
            return names is None or name in names
        case _:
            return False


# ---------------------------------------------------------------------------- of explicit IR


def explicit(kernel: Kernel, target: Target | None) -> Iterator[Problem]:
    """Yield what is open or inconsistent in the declarations of explicit IR."""
    if target is None:
        yield "the kernel has no target", kernel.span
        return
    if kernel.warp_size != target.warp_size:
        yield f"warps of {kernel.warp_size} threads: {target.name} has {target.warp_size}", kernel.span
    if kernel.persistent and not any(isinstance(s, Programs) for s in walk(kernel.body)):
        yield "sharing out the programs of the grid is still a policy", kernel.span
    yield from placement.cluster(kernel, target)
    yield from _tiles(kernel)
    yield from _fragments(kernel)
    yield from _mbarriers(kernel, target)


def _tiles(kernel: Kernel) -> Iterator[Problem]:
    for tile in kernel.shared:
        if tile.layout is None or tile.offset is None:
            yield f"the shared tile `{tile.name}` has no place yet", tile.span
            continue
        sizes = tuple(mode.size() for mode in tile.layout)
        if sizes != tile.shape and not (tile.shape == () and tile.layout.size() == 1):
            yield f"the layout {tile.layout} of `{tile.name}` does not have its shape {tile.shape}", tile.span
        if extremes(tile.layout)[0] < 0:
            yield f"the layout {tile.layout} of `{tile.name}` puts an element before the tile", tile.span
        if tile.offset < 0 or tile.offset % tile.dtype.bytes:
            yield f"`{tile.name}` cannot begin at byte {tile.offset}", tile.span


def _fragments(kernel: Kernel) -> Iterator[Problem]:
    """Check that each register tile is spread over the threads of the block, or of one role."""
    named = [(part, {name for stmt in walk(part.body) for name in _objects(stmt)}) for part in _parts(kernel)]
    for fragment in kernel.fragments:
        if fragment.layout is None:
            yield f"the register tile `{fragment.name}` has no layout yet", fragment.span
            continue
        users = [part for part, names in named if fragment.name in names] or [kernel]
        if len(users) > 1:
            yield f"the register tile `{fragment.name}` belongs to threads of two roles", fragment.span
        yield from fits(f"`{fragment.name}`", fragment.layout, fragment.shape, users[0], fragment.span)


def _parts(kernel: Kernel) -> Iterator[Kernel]:
    """Yield a kernel with the statements that the whole block runs, then a kernel for each role, with the role's number
    of warps."""
    yield replace(kernel, body=tuple(s for s in kernel.body if not isinstance(s, Roles)))
    for stmt in kernel.body:
        if isinstance(stmt, Roles):
            for role in stmt.roles:
                yield replace(kernel, num_warps=role.num_warps, body=role.body)


def _objects(stmt: Stmt) -> set[str]:
    """Return the memory objects that a statement itself names."""
    found: set[str] = set()

    def note(access: Access) -> Access:
        found.add(access.obj)
        return access

    map_accesses(stmt, note)
    return found


def _mbarriers(kernel: Kernel, target: Target) -> Iterator[Problem]:
    """Check that the target has mbarriers, and that each array has bytes of its own."""
    taken = [
        (s.name, s.offset, s.offset + s.layout.cosize() * s.dtype.bytes)
        for s in kernel.shared
        if s.offset is not None and s.layout is not None
    ]
    if kernel.barriers and not target.clusters:
        yield f"{target.name} has no bulk copies that an mbarrier could count", kernel.barriers[0].span
    for barrier in kernel.barriers:
        if barrier.count < 1 or not 1 <= barrier.arrivals <= MAX_COUNT:
            yield f"`{barrier.name}` is {barrier.count} mbarriers of {barrier.arrivals} arrivals", barrier.span
        if barrier.offset is None or barrier.offset < 0 or barrier.offset % 8:
            yield f"mbarrier `{barrier.name}` cannot stand at byte {barrier.offset}", barrier.span
            continue
        end = barrier.offset + 8 * barrier.count
        for name, start, stop in taken:
            if start < end and barrier.offset < stop:
                yield f"mbarrier `{barrier.name}` shares bytes with `{name}`", barrier.span
        taken.append((barrier.name, barrier.offset, end))
