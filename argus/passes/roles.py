"""Apply passes to kernels with roles: the program of each role is treated as a kernel of the role's warps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps

from argus.ir.nodes import Fragment, Kernel, Role, Roles
from argus.ir.visit import walk
from argus.passes.fresh import Fresh, names, renamed

Pass = Callable[[Kernel], Kernel]


def by_role(run: Pass) -> Pass:
    """Apply `run` to the program of every role that holds registers, or to the kernel if it has no roles.

    A role's program sees all shared tiles, and the register tiles that no other role holds. Roles without registers
    only issue copies, so no statement of theirs is spread over threads.
    """

    @wraps(run)
    def apply(kernel: Kernel) -> Kernel:
        position = next((i for i, s in enumerate(kernel.body) if isinstance(s, Roles)), None)
        if position is None:
            return run(kernel)
        found = kernel.body[position]
        assert isinstance(found, Roles)
        roles: list[Role] = list(found.roles)
        for place, role in enumerate(roles):
            if not _registers(kernel, role):
                continue
            elsewhere = {n for other in roles if other is not role for n in _registers(kernel, other)}
            mine = tuple(f for f in kernel.fragments if f.name not in elsewhere)
            others = tuple(f for f in kernel.fragments if f.name in elsewhere)
            done = run(replace(kernel, num_warps=role.num_warps, fragments=mine, body=role.body))
            # New tiles may have the same names as tiles of other roles.
            own = Fresh(replace(done, fragments=(*done.fragments, *others)))
            copies = {f.name: own.name(f.name) for f in done.fragments if f.name in elsewhere}
            made = tuple(replace(f, name=copies.get(f.name, f.name)) for f in done.fragments)
            roles[place] = replace(role, body=renamed(done.body, copies))
            kernel = replace(kernel, shared=done.shared, fragments=(*made, *others), remarks=done.remarks)
        body = (*kernel.body[:position], replace(found, roles=tuple(roles)), *kernel.body[position + 1 :])
        return replace(kernel, body=body)

    return apply


def _registers(kernel: Kernel, role: Role) -> set[str]:
    """Return the register tiles that the program of `role` names."""
    tiles: set[str] = {f.name for f in kernel.fragments if isinstance(f, Fragment)}
    return tiles & set().union(*(names(s) for s in walk(role.body)))
