"""Turns: roles that have rows apart multiply one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from argus.backend.cpu.toolchain import find_compiler
from argus.ir.nodes import BarrierArrive, BarrierSync, For, Kernel, MbarrierWait, MmaFence, MmaWait, Roles
from argus.ir.text import parse_kernel, print_kernel
from argus.ir.visit import walk
from argus.ir.wellformed import check_explicit
from argus.simulate import replay
from tests.backend.host import from_bfloat16, run, to_bfloat16
from tests.passes.test_apart import STORE, TEXT, lowered

TURNS = TEXT.replace('schedule="rows"', 'schedule="turns"')
ALONE = TURNS.replace(", persistent=True", "")


def comes(kernel: Kernel) -> dict[str, list[tuple[str, int, int]]]:
    """What each role does at named barriers, in order: kind, number, threads."""
    roles = next(s for s in kernel.body if isinstance(s, Roles)).roles
    comes = (BarrierSync, BarrierArrive)
    return {
        r.name: [(type(s).__name__, s.number, s.count) for s in walk(r.body) if isinstance(s, comes)] for r in roles
    }


@pytest.mark.parametrize("text", [TURNS, ALONE], ids=["persistent", "one program"])
@pytest.mark.parametrize("groups", [2, 3])
def test_each_hands_its_turn_to_the_next_and_the_first_begins(groups: int, text: str) -> None:
    kernel = lowered(text, BLOCK_M=64 * groups)
    assert not check_explicit(kernel) and not kernel.remarks and kernel.schedule == "cooperative"
    assert parse_kernel(print_kernel(kernel)) == kernel
    first, expected = groups + 2, dict[str, list[tuple[str, int, int]]](producer=[])
    for number in range(groups):
        following = first + (number + 1) % groups
        turn = [("BarrierSync", first + number, 256), ("BarrierArrive", following, 256)]
        begins = [("BarrierArrive", first, 256)] if number == groups - 1 else []
        expected[f"compute{number or ''}"] = begins + turn
    assert comes(kernel) == expected
    *_, last = next(s for s in kernel.body if isinstance(s, Roles)).roles
    assert isinstance(last.body[0], BarrierArrive), "before the first program"


def test_a_turn_is_from_the_first_product_to_the_last_wait() -> None:
    for role in next(s for s in lowered(TURNS).body if isinstance(s, Roles)).roles[1:]:
        (loop,) = (s for s in walk(role.body) if isinstance(s, For))
        kinds = [type(s) for s in loop.body]
        begin, end = kinds.index(BarrierSync), kinds.index(BarrierArrive)
        assert kinds[begin + 1] is MmaFence and kinds[end + 1] is MmaWait and kinds[end + 2 :].count(MmaWait) == 0
        assert MbarrierWait in kinds[:begin]


def test_one_warpgroup_has_no_turns_to_take() -> None:
    kernel = lowered(TURNS, BLOCK_M=64)
    assert comes(kernel) == {"producer": [], "compute": []} and not kernel.remarks


def test_rows_that_meet_take_no_turns() -> None:
    plain = "".join(line for line in TURNS.splitlines(True) if "al.spec" not in line)
    kernel = lowered(plain.replace(STORE, "    al.barrier()\n" + STORE))
    assert list(comes(kernel)) == ["producer", "compute"]
    (remark,) = kernel.remarks
    assert remark.code == "policy-not-applied" and "share each program" in remark.message


def test_products_of_some_iterations_have_no_turns() -> None:
    product = next(line for line in TURNS.splitlines(True) if "al.mma(" in line)
    branched = f"        if k0 >= 0:\n    {product}"
    kernel = lowered(TURNS.replace(product, branched))
    assert list(comes(kernel)) == ["producer", "compute"]
    assert any("no product is one of every iteration" in r.message for r in kernel.remarks)


@pytest.mark.parametrize("target", ["sm_80", "cpu"])
def test_other_targets_have_no_roles(target: str) -> None:
    kernel = lowered(TURNS, target, BLOCK_M=64)
    assert not any(isinstance(s, Roles) for s in walk(kernel.body)) and not kernel.remarks


@pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("sizes", [(200, 130, 72), (330, 70, 264)])
def test_on_the_host(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(3)
    a, b = (to_bfloat16(rng.standard_normal(shape).astype(np.float32)) for shape in ((m, k), (n, k)))
    c = np.full((m, n), 0x7FC0, np.uint16)
    named: dict[str, Any] = {"a": a, "b": b, "c": c, "M": m, "N": n, "K": k}
    run(lowered(TURNS), (-(-m // 128), -(-n // 64)), True, **named)
    expected = from_bfloat16(a) @ from_bfloat16(b).T
    np.testing.assert_allclose(from_bfloat16(c), expected, rtol=2**-7, atol=2e-3)


def test_simulated() -> None:
    """Every schedule, with several programs for each block, of several turns."""
    assert not replay(lowered(TURNS), {"M": 200, "N": 72, "K": 136}, None)
