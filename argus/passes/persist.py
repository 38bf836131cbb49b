"""Expand persistent grids: each role runs the programs that are assigned to its block, one after another.

    role producer: for k in ...             ->  role producer: programs { for k in ... }
    role compute: map acc = 0; for k ...        role compute: programs { map acc = 0; for k ... }

Between programs, only the mbarriers of the rings synchronise the roles. The producer can therefore fill buffers for the
next program while the computing warps finish the current one. In a kernel without roles nothing can run ahead, so every
program gets its own block.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

from argus.ir.cluster import reaches_peers
from argus.ir.nodes import BarrierArrive, Kernel, Programs, Role, Roles, Stmt
from argus.ir.visit import walk
from argus.passes.moves import target_of
from argus.passes.report import Unfit


def persist(kernel: Kernel) -> Kernel:
    """Return a persistent kernel with its loop over programs written out. A kernel without roles becomes
    non-persistent, with a remark."""
    if kernel.cluster > 1 and not any(isinstance(s, Roles) for s in kernel.body) and not reaches_peers(kernel):
        # Without the specialised loop, blocks share nothing. A remark on the loop exists already.
        kernel = replace(kernel, cluster=1)
    if not kernel.persistent or any(isinstance(s, Programs) for s in walk(kernel.body)):
        return kernel
    position = next((i for i, s in enumerate(kernel.body) if isinstance(s, Roles)), None)
    if position is None:
        unfit = Unfit("none of its loops has producer warps", kernel.span, "give its loop producer_warps=4")
        told = bool(kernel.remarks) or "sm_90a" not in target_of(kernel).architectures
        remarks = () if told else (unfit.remark("every program has a block of its own"),)
        # With three axes, only persistent programs run in groups.
        group = kernel.group if len(kernel.grid or ()) == 2 else 1
        return replace(kernel, persistent=False, group=group, remarks=(*kernel.remarks, *remarks))
    found = kernel.body[position]
    assert isinstance(found, Roles)
    roles = tuple(replace(r, body=_in_programs(r)) for r in found.roles)
    body = (*kernel.body[:position], replace(found, roles=roles), *kernel.body[position + 1 :])
    return replace(kernel, body=body)


def _in_programs(role: Role) -> tuple[Stmt, ...]:
    """Return the program of a role: its body in a loop over programs, after the arrivals at named barriers with which
    it begins.

    The role makes these arrivals once, so it stays ahead by the same number of phases in all programs.
    """
    begun = tuple(takewhile(lambda s: isinstance(s, BarrierArrive), role.body))
    return (*begun, Programs(role.body[len(begun) :], span=role.span))
