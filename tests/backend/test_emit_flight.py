"""Which register tiles the text holds, and where: those that ordinary code touches, and none that are in flight."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from argus.backend.emit import emit
from argus.backend.emit.flight import Flight, start
from argus.ir.expr import Const, coords, op
from argus.ir.nodes import Access, For, If, Map, Mma, MmaCommit, MmaFence, MmaWait, Stmt
from argus.ir.types import float32
from tests.backend.hopper_kernels import gemm
from tests.backend.hopper_operands import CASES, kernel

ZERO, USE = (Map(Access("acc", coords(2)), value, (64, 64)) for value in (Const(0.0, float32), Const(1.0, float32)))
PRODUCT = Mma(Access("acc", coords(2)), Access("held", coords(2)), Access("bt", coords(2)), (64, 64, 16),
              "wgmma_m64n64k16", (4, 1))  # fmt: skip
GROUP: tuple[Stmt, ...] = (MmaFence(), PRODUCT, MmaCommit())


def state(*body: Stmt) -> Flight:
    return start((*body, PRODUCT), ("acc", "held", "other")).through(body)


def loop(*body: Stmt) -> For:
    return For("k", Const(0), Const(4), 1, body)


def test_what_a_wait_gives_back_is_held_where_it_is_used() -> None:
    assert state(*GROUP, MmaWait(0)).held(USE) == {"acc"}
    assert state(*GROUP, MmaWait(1)).held(USE) == frozenset()
    assert state(*GROUP, MmaWait(0), USE).held(USE) == frozenset()


def test_what_is_written_is_held_in_front_of_the_fence() -> None:
    assert state(ZERO).held(MmaFence()) == {"acc"}
    assert state(ZERO, MmaFence()).held(MmaFence()) == frozenset()


def test_a_loop_of_products_holds_nothing_that_is_in_flight() -> None:
    """What was written before is held in front of the loop; inside, one group is always in flight."""
    body = (*GROUP, MmaWait(1))
    before = state(ZERO)
    assert before.held(loop(*body)) == {"acc"}
    inside = before.after(loop(*body))
    assert inside.held(MmaFence()) == frozenset()
    assert inside.after(MmaWait(0)).held(USE) == {
        "acc",
    }


@pytest.mark.parametrize("pending", [0, 1])
def test_a_wait_on_one_way_only(pending: int) -> None:
    """Behind the branch the tile may be in flight; the wait that follows gives it back on both ways."""
    behind = state(*GROUP, If(op("lt", Const(0), Const(1)), (MmaWait(0),)))
    assert behind.after(MmaWait(pending)).held(USE) == {"acc"}


def test_groups_are_told_apart() -> None:
    other = Mma(Access("other", coords(2)), PRODUCT.a, PRODUCT.b, PRODUCT.shape, PRODUCT.instr, PRODUCT.warps)
    two = start((PRODUCT, other), ("acc", "held", "other")).through((*GROUP, other, MmaCommit(), MmaWait(1)))
    assert two.held(USE) == {"acc"}
    assert two.held(Map(Access("other", coords(2)), Const(0.0, float32), (64, 64))) == frozenset()


def test_work_beside_products_is_told_from_other_work() -> None:
    """What ordinary code wrote since the latest group or wait, while products were in flight."""
    other = Map(Access("other", coords(2)), Const(1.0, float32), (64, 64))
    assert state(other).beside == frozenset()
    assert state(*GROUP, other).beside == {"other"}
    assert state(*GROUP, other, MmaWait(0)).beside == frozenset()
    assert state(*GROUP, MmaWait(0), other).beside == frozenset()
    assert state(*GROUP, other, *GROUP).beside == frozenset()


@pytest.mark.parametrize("name", ["gemm", *CASES])
def test_text(name: str) -> None:
    """No tile is held between a product and the next wait."""
    text = emit(gemm() if name == "gemm" else kernel(CASES[name]))
    steps = re.findall(r"argus::wgmma_(m64|hold|wait)", text)
    assert "hold" in steps
    assert ("m64", "hold") not in pairwise(steps)
