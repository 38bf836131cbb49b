"""Persistent grids: the programs of each role, or a block for every program."""

from __future__ import annotations

from dataclasses import replace

import pytest

from argus.ir.nodes import BulkCommit, BulkWait, Kernel, Programs, Role, Roles
from argus.ir.visit import walk
from argus.ir.wellformed import check_explicit, check_tile
from argus.passes import PASSES, lower
from argus.passes.lower import for_target
from tests.passes.test_specialise import gemm, roles


def persistent(**fields: object) -> Kernel:
    return replace(gemm(**fields), persistent=True)  # type: ignore[arg-type]


def test_each_role_goes_through_its_programs() -> None:
    kernel = for_target(persistent(), "sm_90a")
    for run in PASSES:
        kernel = run(kernel)
        assert not check_tile(kernel), run.__name__
    assert not check_explicit(kernel)
    assert kernel.persistent
    assert all(isinstance(r.body[0], Programs) for r in roles(kernel).values())
    assert lower(kernel, "sm_90a") == kernel


@pytest.mark.parametrize("target", ["cpu", "sm_80"])
def test_targets_without_roles_have_a_block_for_every_program(target: str) -> None:
    assert lower(persistent(), target) == lower(gemm(), target)


def test_a_kernel_that_is_not_specialised_has_a_block_for_every_program() -> None:
    assert lower(persistent(stages=1), "sm_90a") == lower(gemm(stages=1), "sm_90a")


def after_the_programs(kernel: Kernel, *more: BulkWait | BulkCommit) -> Kernel:
    def longer(role: Role) -> Role:
        return replace(role, body=(*role.body, *more)) if role.name == "compute" else role

    body = tuple(
        replace(s, roles=tuple(longer(r) for r in s.roles)) if isinstance(s, Roles) else s for s in kernel.body
    )
    return replace(kernel, body=body)


def test_only_waits_follow_the_programs() -> None:
    kernel = lower(persistent(), "sm_90a")
    assert not check_explicit(after_the_programs(kernel, BulkWait(0)))
    (found,) = check_explicit(after_the_programs(kernel, BulkCommit()))
    assert "programs are all that a kernel, or each of its roles, runs" in found.message


def test_programs_of_one_role_alone() -> None:
    kernel = lower(persistent(), "sm_90a")
    inside = next(s for s in walk(kernel.body) if isinstance(s, Programs))
    body = tuple(
        replace(s, roles=(replace(s.roles[0], body=inside.body), *s.roles[1:])) if isinstance(s, Roles) else s
        for s in kernel.body
    )
    (found,) = check_explicit(replace(kernel, body=body))
    assert "programs are all" in found.message
