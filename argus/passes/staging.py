"""Expand `Stage` outside of pipelines: copy, and wait until the tile is visible to the whole block.

    stage at <- a[...]                  ->  barrier              (only if a tile may still be read)
    stage bt <- b[...]                      at <~ a[...]; bt <~ b[...]
                                            commit; wait 0       (only if copies are asynchronous)
                                            barrier

The threads that hold a register tile (`Share`) copy it. Consecutive stages share the barriers. If other asynchronous
copies are in flight, the copies of a stage are synchronous, because a wait for them would also wait for the others.
"""

from __future__ import annotations

from itertools import groupby

from argus.ir.affine import Facts, facts
from argus.ir.nodes import Access, Barrier, Kernel, Share, Stage, Stmt
from argus.ir.visit import walk
from argus.passes.context import Enclosing, rewrite_bodies
from argus.passes.fresh import Fresh, touches, whole
from argus.passes.report import LoweringError, problem
from argus.passes.stages import asynchronous_copy, awaited, committed, padded, plain_copy, shared_copy
from argus.passes.turned import deposit, on_the_way, turned_axis


def stage_tiles(kernel: Kernel) -> Kernel:
    """Expand every remaining `Stage`, and every `Share`."""
    known, fresh = facts(kernel), Fresh(kernel)
    order = list(walk(kernel.body))

    def change(body: tuple[Stmt, ...], context: Enclosing) -> tuple[Stmt, ...]:
        result: list[Stmt] = []
        for staging, run in groupby(body, lambda s: isinstance(s, Stage | Share)):
            group = list(run)
            stages = [s for s in group if isinstance(s, Stage | Share)]
            result += _expand(fresh, order, stages, context, known) if staging else group
        return tuple(result)

    return fresh.finish(rewrite_bodies(kernel.body, change))


def _expand(
    fresh: Fresh, order: list[Stmt], stages: list[Stage | Share], context: Enclosing, known: Facts
) -> tuple[Stmt, ...]:
    kernel, span = fresh.kernel, stages[0].span
    if context.divergent:
        what = "staging a tile needs all threads of the block, but only some of them get here"
        raise LoweringError(problem("barrier-in-divergent-branch", what, span, "stage the tile before the branch"))
    tiles = {s.dst for s in stages}
    first = next(i for i, s in enumerate(order) if s is stages[0])
    again = bool(context.loops) or any(tiles & touches(s) for s in order[:first])
    before = (Barrier(span=span),) if again else ()
    copies: list[Stmt] = []
    wait: tuple[Stmt, ...] = ()
    for stage in stages:
        if isinstance(stage, Share):
            copies.append(shared_copy(stage))
            continue
        filled = padded(stage, kernel)
        place = whole(stage.dst, len(stage.shape))
        copy = None if context.in_flight else asynchronous_copy(kernel, filled, place, known)
        copies += _moved(fresh, filled, place) if copy is None else (copy,)
        wait = wait if copy is None else (*committed(kernel, span), awaited(kernel, (), 0, span))
    return (*before, *copies, *wait, Barrier(span=span))


def _moved(fresh: Fresh, stage: Stage, place: Access) -> tuple[Stmt, ...]:
    """Return the loads and stores that carry out `stage` into `place`."""
    if turned_axis(fresh.kernel, stage) is None:
        return (plain_copy(stage, place),)
    register, turned = on_the_way(fresh.kernel, fresh, stage)
    fetch = plain_copy(stage, whole(register, len(stage.shape)))
    return (fetch, *deposit(fresh.kernel, stage, place, register, turned))
