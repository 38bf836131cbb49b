"""Proofs by Z3 that two accesses at loaded places never touch one cell, from declarations about index tensors.

The affine engine knows nothing about loaded numbers except their names. Here two instances of statements are compared,
and each number that they load has the declared properties (`uses`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from argus.diagnostic import Verdict
from argus.ir.expr import Coord, Elem, Expr, LoopVar, Param, ProgramId, Thread, rewrite
from argus.ir.nodes import Tensor
from argus.verify.checks.launchable import launchable
from argus.verify.model.program import NUMBER, PROGRAM
from argus.verify.model.relations import Cells, Model
from argus.verify.model.resolving import BOUND_OF_BLOCK, LOADED
from argus.verify.model.solver import Solver, z3
from argus.verify.model.uses import Instance, Use, Uses, facts, programs
from argus.work import STEPS_PER_SECOND

_QUESTION = 2 * STEPS_PER_SECOND
"""The largest number of steps for one question to Z3."""
_OTHER = " of the other"
"""The suffix of names that belong to the second instance."""


def never_meet(model: Model, a: Cells, b: Cells, *, blocks: bool, at_others: bool = False) -> bool:
    """Return True if no two instances touch one cell of a tensor.

    `blocks`: the instances belong to two blocks; otherwise to one block. `at_others`: instances of one block are in
    different iterations or elements. Z3 is asked only about loaded numbers: ISL decides the other accesses.
    """
    if not isinstance(model.kernel.object(a.relation.obj), Tensor) or not model.kernel.grid:
        return False
    uses = Uses(model.kernel, model.sites)
    first, second = (Instance(uses, cells.site, cells.relation) for cells in (a, b))
    if not uses.found:
        return False
    own, others = _itself, _other(blocks)
    second_uses = [_changed(u, others) for u in uses.found.values()]
    solver = Solver(model.work, _QUESTION)
    for fact in launchable(model.kernel, solver):
        solver.assume(fact)
    for change, instance in ((own, first), (others, second)):
        for condition in (*programs(model.kernel), *instance.conditions):
            solver.assume(solver.condition(rewrite(condition, change)))
    known = {u.value: u for u in (*uses.found.values(), *second_uses)}
    for condition in facts(model.kernel, tuple(known.values())):
        solver.assume(solver.condition(condition))
    for i, j in zip(first.cell, second.cell, strict=True):
        solver.assume(solver.integer(i) == solver.integer(rewrite(j, others)))
    return solver.holds(z3.Not(_differ(model, solver, a, b, others, blocks, at_others))).verdict is Verdict.PROVED


Change = Callable[[Expr], Expr | None]


def _itself(expr: Expr) -> Expr | None:
    return None


def _other(blocks: bool) -> Change:
    """Rename the names that belong to the second instance; with `blocks`, also the program ids."""

    def change(e: Expr) -> Expr | None:
        match e:
            case ProgramId(axis=axis) if blocks:
                return Param(f"program {axis}{_OTHER}", e.dtype)
            case LoopVar(name=name):
                return LoopVar(name + _OTHER)
            case Coord(axis=axis):
                return Param(f"coordinate {axis}{_OTHER}", e.dtype)
            case Thread():
                return Param(f"thread{_OTHER}", e.dtype)
            case Elem(obj=obj):
                return replace(e, obj=obj + _OTHER)
            case Param(name=name) if name.startswith((LOADED, BOUND_OF_BLOCK, NUMBER)):
                return replace(e, name=name + _OTHER)
            case _:
                return None

    return change


def _changed(use: Use, change: Change) -> Use:
    value = rewrite(use.value, change)
    assert isinstance(value, Param)
    mask = None if use.mask is None else rewrite(use.mask, change)
    return Use(use.tensor, tuple(rewrite(e, change) for e in use.index), value, mask, use.other)


def _differ(
    model: Model, solver: Solver, a: Cells, b: Cells, others: Change, blocks: bool, at_others: bool
) -> z3.BoolRef:
    """Return the formula that the two instances differ."""
    if blocks:
        own: list[Expr] = list(model.kernel.program_ids)
    elif not at_others and (a.site is not b.site or a.number != b.number):
        return z3.BoolVal(True)
    else:
        own = [LoopVar(loop.var) for loop in a.site.loops if loop.var != PROGRAM]
        own += [Coord(axis) for axis in range(len(a.site.shape))]
    return z3.Or(*(solver.integer(e) != solver.integer(rewrite(e, others)) for e in own))
