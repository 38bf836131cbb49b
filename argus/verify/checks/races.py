"""Races: two threads access one cell, at least one writes, and nothing orders the two accesses.

Within a block, `order.Ordering` gives the order; the lanes of a warp are not ordered among themselves. Blocks are never
ordered. First all pairs of instances are compared without regard to threads. Only the pairs that remain are refined by
the threads that hold the elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement, product

from argus.diagnostic import Note, Verdict
from argus.ir.access import Holders, Mode
from argus.ir.cluster import rank_of
from argus.ir.expr import Thread, walk
from argus.ir.instruction import Order
from argus.ir.nodes import Accumulate, Shared, Tensor
from argus.ir.waves import behind as first_behind
from argus.simulate.sizes import integer_parameters
from argus.verify.checks.meetings import never_meet
from argus.verify.findings import FailurePlace, Finding, axes_help, place_of, unknown
from argus.verify.model.formulas import Tuple
from argus.verify.model.isl import Map, Set, involves, isl, same_group, shift, smallest, unequal
from argus.verify.model.relations import Cells, Model
from argus.verify.model.translator import THREAD, NonAffine, holder_condition, identifier
from argus.verify.order.order import Ordering


def check(model: Model, ordering: Ordering, objects: Sequence[Shared | Tensor]) -> list[Finding]:
    """Find all races on these objects, within a block and across blocks."""
    findings: list[Finding] = []
    for obj in objects:
        accesses = model.accesses_of(obj.name)
        clobbers = model.clobbers(obj.name)
        if all(c.relation.mode is Mode.READ for c in (*accesses, *clobbers)):
            continue
        pairs = [*combinations_with_replacement(accesses, 2), *product(accesses, clobbers)]
        for first, second in pairs:
            if not _conflicting(first, second):
                continue
            directions = [(first, second)] if first is second else [(first, second), (second, first)]
            for a, b in directions:
                finding = _within_block(model, ordering, obj, a, b)
                if finding is not None:
                    findings.append(finding)
                    break
            if isinstance(obj, Tensor):
                across = _across_blocks(model, obj, first, second)
                if across is not None:
                    findings.append(across)
    return findings


def _conflicting(a: Cells, b: Cells) -> bool:
    """Return True if the order of two accesses matters: not for two reads, nor for two atomic updates of one kind.

    Atomic updates are of one kind if they use one operation and one proxy. Updates by threads and updates by the copy
    engine are not atomic with respect to each other (PTX ISA, memory consistency model).
    """
    modes = {a.relation.mode, b.relation.mode}
    operations = {s.op for s in (a.site.stmt, b.site.stmt) if isinstance(s, Accumulate)}
    proxies = {c.relation.order.by_proxy for c in (a, b)}
    return modes != {Mode.READ} and (modes != {Mode.ACCUMULATE} or len(operations) > 1 or len(proxies) > 1)


# ---------------------------------------------------------------------------- within a block


def _within_block(model: Model, ordering: Ordering, obj: Shared | Tensor, a: Cells, b: Cells) -> Finding | None:
    order = a.relation.order
    asynchronous = order is not Order.SYNC
    conflict = conflicts(model, a, b)
    in_turn = ordering.in_turn(conflict, a.site, b.site)
    loose = ordering.unordered(in_turn, a.site, b.site, order)
    if a.site is b.site and _self_conflict(model, a, b):
        loose = loose.union(conflict.intersect(isl.Map.identity(conflict.get_space())))
    rounds = model.rings.next_rounds(obj.name)
    if rounds is not None:  # the same buffer in a later round: the later trip comes second
        again = model.iteration_cells(a).apply_range(rounds).apply_range(model.iteration_cells(b).reverse())
        early = ordering.unordered(again, a.site, b.site, order)
        if not early.is_empty():
            return _race(model, obj, a, b, early, exact=a.exact and b.exact, reason=a.reason or b.reason)
    if not order.by_proxy and b.relation.order.by_proxy:
        met = in_turn if rounds is None else in_turn.union(ordering.in_turn(again, a.site, b.site))
        if isinstance(obj, Tensor) and not met.is_empty():
            return _proxy_in_tensor(obj, a, b)
        if isinstance(obj, Shared):
            unfenced = ordering.without_proxy_fence(met, a.site, b.site, order)
            if not unfenced.is_empty():
                return _proxy(model, obj, a, b, unfenced)
    tensor = isinstance(obj, Tensor)
    behind = ordering.behind(in_turn, a.site, b.site, order, tensor) if ordering.turns else loose
    if loose.is_empty() and behind.is_empty():
        return None
    same_cell = a.map.apply_range(b.map.reverse())
    pairs = _different_threads(model, a, b, _at_iterations(model, same_cell, loose, a, b))
    if ordering.turns:
        pairs = pairs.union(_behind(model, a, b, _at_iterations(model, same_cell, behind, a, b)))
    if pairs.is_empty() and asynchronous:
        # The issuing thread itself must have waited for its copy.
        pairs = _at_iterations(model, same_cell, ordering.uncompleted(conflict, a.site, b.site, order), a, b)
    if pairs.is_empty():
        return None
    return _race(model, obj, a, b, pairs, exact=a.exact and b.exact, reason=a.reason or b.reason)


def conflicts(model: Model, a: Cells, b: Cells) -> Map:
    """Return {iteration of a -> iteration of b} that access one cell.

    For tensors, only pairs in the same program: two programs of a block count as two blocks (`_across_blocks`).
    """
    pairs = model.iteration_cells(a).apply_range(model.iteration_cells(b).reverse())
    if model.persistent and isinstance(model.kernel.object(a.relation.obj), Tensor):
        return pairs.equate(isl.dim_type.in_, 0, isl.dim_type.out, 0)
    return pairs


def _proxy(model: Model, obj: Shared, a: Cells, b: Cells, pairs: Map) -> Finding:
    text = f"{_verb(a)} and asynchronous {_verb(b)} of shared tile '{obj.name}' without a proxy fence between them"
    help = "put al.proxy_fence() after the first, before the barrier or arrival that orders the two"
    span = b.site.stmt.span
    if not (a.exact and b.exact):
        return unknown("races-unknown", "races", span, f"cannot exclude: {text}", help)
    point, notes = smallest(pairs.range()), (Note(f"first: {_verb(a)}", a.site.stmt.span),)
    place = place_of(model.kernel, point, b.site)
    label = "goes through the asynchronous proxy"
    return Finding(
        "missing-proxy-fence", "races", Verdict.REFUTED, text, span, label=label, notes=notes, help=help, place=place
    )


def _proxy_in_tensor(obj: Tensor, a: Cells, b: Cells) -> Finding:
    """Report a mix of proxies in a tensor: proxy fences order shared memory only (fence.proxy.async.shared::cta)."""
    text = f"{_verb(a)} and, by the copy engine, {_verb(b)} of tensor '{obj.name}': no fence orders them in a tensor"
    help = "let both be ordinary accesses, or both the copy engine's, or make two kernels of it"
    return unknown("races-unknown", "races", b.site.stmt.span, f"cannot exclude: {text}", help)


def _self_conflict(model: Model, a: Cells, b: Cells) -> bool:
    """Return True if two elements of one run of a statement access one cell."""
    if a is not b:
        return True
    same_cell = a.map.apply_range(a.map.reverse())
    once = isl.Map.identity(model.iteration_schedule(a.site).domain().identity().get_space())
    together = _at_iterations(model, same_cell, once, a, a)
    return not together.subtract(isl.Map.identity(together.get_space())).is_empty()


def _at_iterations(model: Model, pairs: Map, iterations: Map, a: Cells, b: Cells) -> Map:
    """Return the instance pairs that belong to the pairs of iterations."""
    left, right = model.iterations(a.site), model.iterations(b.site)
    return pairs.intersect(left.apply_range(iterations).apply_range(right.reverse()))


def _different_threads(model: Model, a: Cells, b: Cells, pairs: Map) -> Map:
    """Return the pairs of instances that are executed by different threads.

    All pairs are kept if the second access is a load to LDS, because it is not ordered even with the accesses of its
    own wave's lanes.
    """
    if b.relation.order is Order.VMCNT:
        return pairs
    threads_a, threads_b = thread_map(model, a), thread_map(model, b)
    if threads_a is None or threads_b is None:
        return pairs
    different = threads_a.apply_range(unequal(threads_a.get_space().range())).apply_range(threads_b.reverse())
    return pairs.intersect(different)


def _behind(model: Model, a: Cells, b: Cells, pairs: Map) -> Map:
    """Return the pairs whose first instance is executed by the half of the waves that is behind, and whose second one
    is executed by the other half."""
    first = first_behind(model.kernel)
    for cells, late in ((a, True), (b, False)):
        threads = thread_map(model, cells)
        if threads is not None:
            half = model.points(Tuple(("t",)), f"t {'>=' if late else '<'} {first}")
            own = threads.intersect_range(half).domain()
            pairs = pairs.intersect_domain(own) if late else pairs.intersect_range(own)
    return pairs


def thread_map(model: Model, cells: Cells) -> Map | None:
    """Return {instance -> thread} for the threads that make an access; None if any thread may make it."""
    relation, site = cells.relation, cells.site
    if relation.layout is None:
        return None
    first = 0 if site.role is None else site.role.first_warp * model.kernel.warp_size
    coords = model.coords(len(relation.shape))
    text = holder_condition(relation.layout, coords, "t", primary=relation.holders is Holders.PRIMARY)
    result = model.relation(model.instance(site, coords), Tuple(("t",)), text)
    if relation.holders is Holders.WARP:
        result = result.apply_range(same_group(model.kernel.warp_size))
    for guard in site.guards:
        try:
            condition = model.translator.condition(guard, coords)
        except NonAffine:
            continue
        if any(isinstance(e, Thread) for e in walk(guard)):
            own = model.relation(model.instance(site, coords), Tuple((THREAD,)), condition)
            result = result.intersect(own)
    return result.apply_range(shift(first))


_COMPLETION = {
    Order.ASYNC_GROUP: "al.cp_async_commit(), al.cp_async_wait(...) and al.barrier() belong between the copy and this",
    Order.VMCNT: "al.s_waitcnt(vmcnt=n), with n no more than the loads issued since, and then a barrier belong between "
    "the load and this; an al.s_barrier() only after al.s_waitcnt(lgkmcnt=0)",
    Order.ASYNC_BULK: "a wait for the phase that counts the copy's bytes belongs between the copy and this",
    Order.ASYNC_MMA: "a wait for the product's group belongs between the product and this",
    Order.BULK_READ: "a wait for the store's group, and then a barrier, belong between the store and this",
    Order.BULK_WRITE: "a wait for the store's group, and then a barrier, belong between the store and this",
}
"""Advice for each ordering class of asynchronous accesses: the statements that make an access complete for others."""


def _race(
    model: Model, obj: Shared | Tensor, a: Cells, b: Cells, pairs: Map, exact: bool, reason: str
) -> Finding | None:
    kinds = f"{_verb(a)} and {_verb(b)}"
    space = "shared tile" if isinstance(obj, Shared) else "tensor"
    message = f"{kinds} of {space} '{obj.name}' by two threads with no order between them"
    help = "put al.barrier() between the two"
    if a.site is b.site and not a.site.iterators and a.relation.mode is not Mode.READ:
        help = "this one statement gives an element to several threads, and no barrier can stand between them: "
        help += "let its index give each element a place of its own"
        help += ", or add up by al.atomic_add" if space == "tensor" else ""
    if a.relation.order is not Order.SYNC:
        message = f"asynchronous {kinds} of {space} '{obj.name}': nothing makes the copy complete and visible first"
        help = _COMPLETION[a.relation.order]
    if a.site.role is not b.site.role:
        names = [c.site.role.name if c.site.role is not None else "the block" for c in (a, b)]
        message = f"{kinds} of {space} '{obj.name}': nothing orders role '{names[0]}' before role '{names[1]}' here"
        help = "an arrival on an mbarrier after the first, and a wait for that phase before the second, order them"
        if not model.kernel.barriers and rank_of(names[0]) != rank_of(names[1]):
            help = 'let the blocks of the cluster meet between the two: al.barrier(scope="cluster")'
    if not exact:
        if never_meet(model, a, b, blocks=False) or _at_equal_elements(model, a, b, pairs).is_empty():
            return None
        help = axes_help(model.kernel) or help
        return unknown("races-unknown", "races", b.site.stmt.span, f"cannot exclude: {message} ({reason})", help)
    point = smallest(pairs.range())
    return Finding(
        "data-race",
        "races",
        Verdict.REFUTED,
        message,
        b.site.stmt.span,
        label=f"second: {_verb(b)}",
        notes=(Note(f"first: {_verb(a)}", a.site.stmt.span),),
        help=help,
        place=place_of(model.kernel, point, b.site),
    )


def _at_equal_elements(model: Model, a: Cells, b: Cells, pairs: Map) -> Map:
    """Restrict the pairs to equal iterations and elements, if the two accesses can only meet at those."""
    alike = a.site.loops == b.site.loops and a.site.shape == b.site.shape
    if not alike or not never_meet(model, a, b, blocks=False, at_others=True):
        return pairs
    for position in range(pairs.dim(isl.dim_type.in_)):
        pairs = pairs.equate(isl.dim_type.in_, position, isl.dim_type.out, position)
    return pairs


def _verb(cells: Cells) -> str:
    return {Mode.READ: "read", Mode.WRITE: "write", Mode.ACCUMULATE: "atomic update"}[cells.relation.mode]


# ---------------------------------------------------------------------------- across blocks


def by_block(touched: Set, axes: int) -> Map:
    """Return {[pid0, pid1, ...] -> element}: turn the program ids of a set of elements from parameters into
    dimensions."""
    result = isl.Map.from_range(touched)
    for axis in range(axes):
        position = result.find_dim_by_name(isl.dim_type.param, f"pid{axis}")
        if position < 0:
            result = result.add_dims(isl.dim_type.param, 1)
            position = result.dim(isl.dim_type.param) - 1
            result = result.set_dim_name(isl.dim_type.param, position, f"pid{axis}")
        result = result.move_dims(isl.dim_type.in_, axis, isl.dim_type.param, position, 1)
    return result


def without(values: Map, names: list[str]) -> Map:
    """Project some parameters out of `values`."""
    for name in names:
        position = values.find_dim_by_name(isl.dim_type.param, name)
        if position >= 0:
            values = values.project_out(isl.dim_type.param, position, 1)
    return values


def _touched(model: Model, cells: Cells) -> tuple[Map, bool]:
    """Return {program ids -> cells that a block touches}, and True if that may be too many cells.

    It is an over-approximation if cells depend on numbers that a block loads, or computes from its program ids by a
    formula that is not affine.
    """
    varying = model.varying(cells.map)
    return without(by_block(cells.map.range(), len(model.kernel.program_ids)), varying), bool(varying)


def _across_blocks(model: Model, obj: Tensor, a: Cells, b: Cells) -> Finding | None:
    (cells_a, more_a), (cells_b, more_b) = _touched(model, a), _touched(model, b)
    pairs = cells_a.apply_range(cells_b.reverse())
    pairs = pairs.subtract(isl.Map.identity(pairs.get_space()))
    if pairs.is_empty():
        return None
    message = f"{_verb(a)} and {_verb(b)} of tensor '{obj.name}' by two blocks"
    help = axes_help(model.kernel) or "give each block its own part of the tensor, or use al.atomic_add"
    if model.kernel.grid is None:
        help = f"say how many programs there are by `i = al.grid(...)`: else they may have three axes. Or {help}"
    if never_meet(model, a, b, blocks=True):
        return None
    opaque = any(involves(c.map, model.translator.opaque.values()) for c in (a, b))
    if not (a.exact and b.exact) or opaque or more_a or more_b:
        reason = a.reason or b.reason or "an index is not affine in the program ids, or depends on what a block loads"
        text = f"cannot exclude: {message} ({reason})"
        return unknown("block-races-unknown", "races", b.site.stmt.span, text, help)
    flat: Set = pairs.wrap().flatten()
    point = smallest(flat)
    kernel = model.kernel
    every = len(kernel.program_ids)
    other, block = point.values[:every], point.values[every:]
    differing = max(axis for axis in range(every) if other[axis] != block[axis]) + 1
    axes = differing if kernel.grid is None else len(kernel.grid)
    place = FailurePlace(
        sizes={n: point.parameters.get(identifier(n), 1) for n in integer_parameters(kernel)},
        block=block[:axes],
        other_block=other[:axes],
    )
    return Finding(
        "block-race",
        "races",
        Verdict.REFUTED,
        message,
        b.site.stmt.span,
        label="blocks meet here",
        help=help,
        place=place,
    )
