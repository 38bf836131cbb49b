"""Attention in roles: keys and values in rings of their own, products in flight during the softmax."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from argus.frontend import Options, check, parse
from argus.ir.nodes import (
    Copy,
    For,
    If,
    Kernel,
    Map,
    MbarrierArrive,
    MbarrierWait,
    Mma,
    MmaCommit,
    MmaWait,
    Role,
    Roles,
)
from argus.ir.text import print_kernel
from argus.ir.visit import walk
from argus.ir.wellformed import check_explicit
from argus.passes import lower
from argus.passes.lower import for_target
from argus.passes.specialise import specialise
from argus.source import SourceFile
from tests.conftest import Golden

FILE = Path(__file__).parents[2] / "argus" / "kernels" / "attention.py"


@cache
def lowered(target: str = "sm_90a", **constexprs: object) -> Kernel:
    module = parse(SourceFile(FILE.name, FILE.read_text(encoding="utf-8")))
    return lower(check(module, "attention_forward", Options(target=target, constexprs=constexprs)), target)


def roles(kernel: Kernel) -> dict[str, Role]:
    return {r.name: r for s in kernel.body if isinstance(s, Roles) for r in s.roles}


def test_golden(golden: Golden) -> None:
    golden("attention_roles.txt", print_kernel(lowered()))


@pytest.mark.parametrize("options", [{}, {"CAUSAL": True}, {"D": 64}, {"D": 64, "GROUP": 4, "CAUSAL": True}])
@pytest.mark.parametrize("target", ["sm_90a", "sm_80", "cpu"])
def test_every_target_has_a_lowered_form(target: str, options: dict[str, object]) -> None:
    kernel = lowered(target, BLOCK_N=128 if target == "sm_90a" else 64, **options)
    assert not check_explicit(kernel)
    assert bool(roles(kernel)) == (target == "sm_90a")


def test_what_is_in_flight_during_the_softmax() -> None:
    compute = roles(lowered(SCHEDULE="cooperative"))["compute"]
    loop = next(s for s in walk(compute.body) if isinstance(s, For) and s.var == "n0")
    steps: list[str] = []
    for stmt in loop.body:
        match stmt:
            case MmaWait(pending=pending):
                steps.append(f"wait {pending}")
            case Mma(d=d) | Map(dst=d) if d.obj in ("s", "acc", "p", "w"):
                steps.append(f"{type(stmt).__name__} {d.obj}")
            case MbarrierWait(barrier=name) | MbarrierArrive(barrier=name):
                steps.append(name)
            case If(then=then, orelse=(MmaCommit(),)):
                steps += [f"if {type(s).__name__} {s.d.obj}" for s in then if isinstance(s, Mma)]
                assert isinstance(then[-1], MmaCommit)
            case If(then=(MbarrierArrive(barrier=name), *_)) | If(then=(MmaWait(), MbarrierArrive(barrier=name))):
                steps.append(f"if {name}")
            case _:
                pass
    assert steps == [
        "Map s",
        "full1", "Mma s", "full2", "if Mma acc",
        "wait 1", "if empty", "empty1", "wait 0", "empty2", "Map acc", "Map w", "Map p",
    ]  # fmt: skip


def test_nothing_is_moved_between_the_products() -> None:
    compute = roles(lowered(SCHEDULE="cooperative"))["compute"]
    copied = {name for s in walk(compute.body) if isinstance(s, Copy) for name in (s.dst.obj, s.src.obj)}
    assert copied == {"o_tile", "o_tile_panels", "o", "lse_tile", "lse"}


def test_tiles_outside_of_the_loop_are_handed_over_once_a_program() -> None:
    text = print_kernel(lowered(SCHEDULE="cooperative"))
    assert text.count("counter program wrap 2") == 2
    for name in ("full", "full3"):
        assert text.count(f"mbarrier_wait {name}[program % 1] parity program // 1 % 2") == 1
    for name in ("empty", "empty3"):
        assert text.count(f"mbarrier_wait {name}[program % 1] parity (program // 1 + 1) % 2") == 1
    last, never = "if n0 + 128 >= maximum(N, 1)", "if maximum(N, 1) <= 0"
    for cond in (last, never):  # the loop's last iteration, or after a loop of none
        assert re.search(re.escape(cond) + r" \{\s+mbarrier_arrive empty\[program % 1\]\s+\}", text)
    assert text.count("mbarrier_arrive empty[program % 1]") == 2
    assert text.count("mbarrier_arrive empty3[program % 1]") == 1


def test_tiles_outside_of_the_loop_are_loaded_once_where_a_block_has_one_program() -> None:
    text = FILE.read_text(encoding="utf-8").replace(", persistent=True", "")
    kernel = check(parse(SourceFile(FILE.name, text)), "attention_forward", Options(target="sm_90a"))
    text = print_kernel(lower(kernel, "sm_90a"))
    assert "programs {" not in text and "for once" not in text
    assert "mbarrier full count 1 arrivals 1" in text and text.count("mbarrier_wait full[0] parity 0") == 1


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            "            acc = al.mma(p, al.trans(vt), acc)\n        if CAP",
            "            acc = al.mma(p, al.trans(vt), acc)\n"
            "        else:\n            acc = acc * 2.0\n        if CAP",
            "branch",
        ),
        (
            "            acc = al.mma(p, al.trans(vt), acc)\n        if CAP",
            "            acc = al.mma(p, al.trans(vt), acc)\n"
            "            al.assert_tags(lambda i, j: p[i, j].m == m0 + i)\n        if CAP",
            "claim",
        ),
    ],
)
def test_branches_with_products_that_fit_no_role(old: str, new: str, why: str) -> None:
    """The other way does nothing, and what is claimed there would be said of products in flight."""
    text = FILE.read_text(encoding="utf-8")
    assert text.count(old) == 1
    kernel = check(parse(SourceFile(FILE.name, text.replace(old, new))), "attention_forward", Options(target="sm_90a"))
    refused = specialise(for_target(kernel, "sm_90a"))
    assert not roles(refused)
    assert len(refused.remarks) == 1 and why in refused.remarks[0].message
