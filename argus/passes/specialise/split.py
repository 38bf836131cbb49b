"""Split a pipelined loop into roles: a loop with `producer_warps` becomes two roles, on targets that have bulk copies.

    map acc = 0                                       role producer:
    for k in pipelined(lo, hi, step), stages S            for k in range(lo, hi, step):
        stage at <- a[.., k ..]                               wait empty[i % S]; expect full[i % S] bytes
        stage bt <- b[.., k ..]                               at[i % S] <~ a[.., k ..];  bt[i % S] <~ b[.., k ..]
        mma acc += at * bt                      ->    role compute:
    epilogue                                              map acc = 0
                                                          for k in range(lo, hi, step):
                                                              wait full[i % S]
                                                              mma acc += at[i % S] * bt[i % S];  commit
                                                              wait for all products but the last
                                                              if k >= lo + step: arrive empty[(i - 1) % S]
                                                              if k + step >= hi: wait for them all; arrive empty[i % S]
                                                          wait for all products; epilogue

where i counts the iterations. Tiles that one product reads share a ring of buffers. Tiles that are read separately,
like keys and values, have separate rings, so that work begins as soon as the first tile has arrived. Tiles that are
staged before or after the loop have one buffer, filled once for each program. The producer is one of the
`producer_warps` that are added; the others are idle, because they could miss a phase. With the schedule "rows", every
computing warpgroup is a role (`apart`). With "turns", these roles multiply one after another (`turns`). With
"pingpong", two roles take turns on programs (`pingpong`). If the copies or products break a rule of `tma.load` or
`wgmma`, the kernel is left unchanged for the pass `pipeline`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from argus.ir.beginning import initialisation
from argus.ir.instruction import BULK_LOADS, INSTRUCTIONS, WGMMA
from argus.ir.instruction.limits import BUDGET_UNIT, registers_at_first
from argus.ir.machine import WARPGROUP
from argus.ir.nodes import BulkCopy, Kernel, Mma, Role, Roles, Spec, Stage, Stmt, Tag, Tensor
from argus.ir.visit import walk as statements
from argus.ir.wellformed.engine import bulk_copy
from argus.ir.wellformed.products import asynchronous_product
from argus.passes.fresh import Fresh
from argus.passes.report import Unfit
from argus.passes.specialise.addresses import in_own_registers, with_addresses
from argus.passes.specialise.loads import budget, load
from argus.passes.specialise.pingpong import take_turns
from argus.passes.specialise.plan import RolePlan, differs, plan
from argus.passes.specialise.products import computing
from argus.passes.specialise.rings import Ring, buffers, counted, fill, in_panels, once_a_program, tiles_of
from argus.passes.specialise.turns import in_turns

_PRODUCER_REGISTERS = 24  # registers of a thread: enough for addresses and a loop
_MOST_REGISTERS = 240  # registers of a thread: a multiple of the budget's unit that leaves some of 255 to the compiler


def specialise(kernel: Kernel) -> Kernel:
    """Return the kernel with its pipelined loop split into roles. If the loop cannot be split, return the kernel with a
    remark that says why."""
    cooperative = replace(kernel, schedule="cooperative")
    try:
        match kernel.schedule:
            case "pingpong":
                return take_turns(specialise(cooperative))
            case "rows" | "turns":
                found = plan(cooperative, kernel.num_warps // WARPGROUP)
                done = _specialised(cooperative, found)
                return in_turns(done, found) if found is not None and kernel.schedule == "turns" else done
            case _:
                pass
    except Unfit as unfit:
        done = specialise(cooperative)
        if not any(isinstance(s, Roles) for s in done.body):
            return done  # The remark that says why is there already.
        return replace(done, remarks=(*done.remarks, unfit.remark("all computing warps share each program")))
    try:
        return _specialised(kernel, plan(kernel, 1))
    except Unfit as unfit:
        remark = unfit.remark("the loop has no producer warps of its own")
        return replace(kernel, remarks=(*kernel.remarks, remark))


def _specialised(kernel: Kernel, found: RolePlan | None) -> Kernel:
    """Split `kernel` according to the plan `found`. Raises `Unfit`."""
    if found is None:
        return kernel
    split = _split(found)
    refused = _refused(split)
    if refused:
        split = _split(found.loading(refused))
    _check_products(split)
    return split


def _split(found: RolePlan) -> Kernel:
    fresh, loop = Fresh(found.kernel), found.loop
    warps = found.kernel.num_warps
    together = warps + loop.producer_warps
    roles, taken = [], 0
    if found.engines:
        body = _producing(fresh, found, lambda r: r.by_engine, lambda ring: fill(found.kernel, ring))
        taken = (loop.producer_warps - found.loaders) * _PRODUCER_REGISTERS
        first = warps + found.loaders
        roles.append(Role("producer", first, 1, _PRODUCER_REGISTERS, _counted(found, body), loop.span))
    if found.loaders:
        registers = budget(found.parts, found.loaders, together - warps - found.loaders, taken, loop.span)
        body = _producing(
            fresh, found, lambda r: r.by_threads, lambda ring: load(fresh, ring, found.loaders, registers)
        )
        taken += found.loaders * registers
        roles.append(Role("loader", warps, found.loaders, registers, _counted(found, body), loop.span))
    left = (together * registers_at_first(together * found.kernel.warp_size) - taken) // warps
    left = min(_MOST_REGISTERS, left - left % BUDGET_UNIT)
    for number, part in enumerate(found.parts):
        work = tuple(s for s in part.body if not _on_tensors(part, s))
        body = _counted(found, computing(found.part(part), work, left))
        name = f"compute{number or ''}"
        roles.append(Role(name, number * part.num_warps, part.num_warps, left, body, loop.span))
    return _assembled(found, fresh.finish(found.kernel.body), Roles(tuple(roles), span=loop.span))


def _assembled(found: RolePlan, kernel: Kernel, roles: Roles) -> Kernel:
    """Return the kernel with these roles, and with the buffers and mbarriers of the rings."""
    position = kernel.body.index(found.loop)
    before = tuple(s for s in kernel.body[:position] if _on_tensors(kernel, s))
    after = tuple(s for s in kernel.body[position:] if _on_tensors(kernel, s))
    rings = tiles_of(found.rings)
    tiles = tuple(buffers(s, rings[s.name]) if s.name in rings else s for s in kernel.shared)
    counts = {name: (2,) if name in found.twice else () for name in found.made}
    tiles = tuple(in_panels(s, (*counts[s.name], *s.shape)) if s.name in counts else s for s in tiles)
    barriers = tuple(b for ring in found.rings for b in ring.barriers(found.loaders, found.consumers(ring)))
    kernel = _in_clusters(found, kernel)
    return replace(
        kernel,
        num_warps=kernel.num_warps + found.loop.producer_warps,
        shared=tiles,
        barriers=barriers,
        body=(*before, *initialisation(barriers, found.loop.span, kernel.cluster), roles, *after),
    )


def _in_clusters(found: RolePlan, kernel: Kernel) -> Kernel:
    """Return the kernel. If the blocks of its clusters share nothing, the clusters are removed with a remark."""
    if kernel.cluster == 1 or any(ring.shared for ring in found.rings):
        return kernel
    why = "no tile that the copy engine brings is the same in all its blocks"
    if differs(found.loop):
        why = "its blocks go through the loop in different steps"
    help = "let tiles and the loop's bounds not depend on the first program id, or leave out `cluster`"
    remark = Unfit(why, found.loop.span, help).remark("the kernel has no clusters")
    return replace(kernel, cluster=1, remarks=(*kernel.remarks, remark))


def _counted(found: RolePlan, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return a role's program, with a counter of programs if its rings continue from one program to the next."""
    if found.program is None:
        return body
    return once_a_program(found.kernel, found.program, body, found.loop.span)


def _producing(
    fresh: Fresh,
    found: RolePlan,
    brought: Callable[[Ring], tuple[Stage, ...]],
    bring: Callable[[Ring], tuple[Stmt, ...]],
) -> tuple[Stmt, ...]:
    """Fill every ring by `bring`, in the order in which the first tiles are staged. `brought` lists the tiles of a ring
    that this role fills."""
    heads = {ring.stages[0].id: ring for ring in found.rings}
    stages = [stage for ring in found.rings for stage in brought(ring)]
    addresses, names = with_addresses(fresh, found.kernel.body, found.loop, stages)

    def filled(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        result: list[Stmt] = []
        for stmt in body:
            result += bring(heads[stmt.id]) if stmt.id in heads else (stmt,) if stmt.id in addresses else ()
        return tuple(result)

    result: list[Stmt] = []
    for stmt in found.kernel.body:
        looped = stmt is found.loop
        result += (counted(found.loop, found.turn, filled(found.loop.body)),) if looped else filled((stmt,))
    return in_own_registers(tuple(result), names)


def _on_tensors(kernel: Kernel, stmt: Stmt) -> bool:
    """Return True if `stmt` only makes a statement about tensors. Such a statement belongs to no role."""
    return isinstance(stmt, Spec) or (isinstance(stmt, Tag) and isinstance(kernel.object(stmt.obj), Tensor))


def _refused(kernel: Kernel) -> frozenset[str]:
    """Return the tiles that the copy engine cannot load."""
    copies = [s for s in statements(kernel.body) if isinstance(s, BulkCopy) and s.instr in BULK_LOADS]
    return frozenset(s.dst.obj for s in copies if any(bulk_copy(s, INSTRUCTIONS[s.instr], kernel)))


def _check_products(kernel: Kernel) -> None:
    """Check that products keep the rules of their instructions."""
    roles = next(s for s in kernel.body if isinstance(s, Roles)).roles
    for role in roles:
        part = replace(kernel, num_warps=role.num_warps)
        for stmt in statements(role.body):
            if isinstance(stmt, Mma):
                for problem, span in asynchronous_product(stmt, WGMMA[stmt.instr or ""], part):
                    raise Unfit(problem, span, "keep the rules of products of warpgroups: see al.pipelined")
