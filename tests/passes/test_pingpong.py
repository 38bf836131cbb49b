"""Ping-pong: two groups of computing warps take turns on the programs of a persistent kernel."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from argus.backend.cpu.toolchain import find_compiler
from argus.frontend import Options, check, parse
from argus.ir.cluster import unite
from argus.ir.nodes import BarrierArrive, BarrierSync, Kernel, Programs, Roles
from argus.ir.text import print_kernel
from argus.ir.visit import walk
from argus.passes import lower
from argus.simulate import replay
from argus.source import SourceFile
from tests.backend.host import from_bfloat16, run, to_bfloat16
from tests.conftest import Golden
from tests.reject.case import ROOT

pytestmark = pytest.mark.slow

FILE = ROOT / "examples" / "gemm_pingpong.py"
TEXT = FILE.read_text(encoding="utf-8")


@cache
def lowered(text: str = TEXT, target: str = "sm_90a", **constants: int) -> Kernel:
    blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "STAGES": 3} | constants
    options = Options(target=target, constexprs=blocks)
    return lower(check(parse(SourceFile("gemm_pingpong.py", text)), "gemm_pingpong", options), target)


def roles(kernel: Kernel) -> Roles:
    return next(s for s in kernel.body if isinstance(s, Roles))


def test_golden(golden: Golden) -> None:
    golden("gemm_pingpong.txt", print_kernel(lowered()))


def test_two_groups_take_turns() -> None:
    found = roles(lowered()).roles
    programs = [next(s for s in r.body if isinstance(s, Programs)) for r in found]
    assert [(r.name, r.num_warps) for r in found] == [("producer", 1), ("compute", 4), ("compute1", 4)]
    assert [(p.turns, p.turn) for p in programs] == [(1, 0), (2, 0), (2, 1)]
    assert lowered().num_warps == 12 and lowered().schedule == "cooperative", "the policy is carried out"


def test_a_tile_outside_of_the_loop_is_shared_by_all() -> None:
    """Then the kernel is as it is without the policy, and says so."""
    first = "    acc = al.zeros"
    stage = "    at = al.stage(a[m0 : m0 + BLOCK_M, 0:BLOCK_K], boundary_check=(0, 1))\n"
    lines = [line for line in TEXT.splitlines(keepends=True) if "at = al.stage" not in line and "tags" not in line]
    text = "".join(lines).replace(first, stage + first)
    text = text[: text.index("        lambda i, j: acc")] + text[text.index("    al.store") :]
    text = text.replace("    al.spec(c, lambda m, n: al.sum(lambda k: a[m, k] * b[n, k]))\n", "")
    kernel = lowered(text)
    assert len(roles(kernel).roles) == 2
    assert any("taking turns" in r.message or "share each program" in r.message for r in kernel.remarks), kernel.remarks


def test_other_targets_have_no_groups() -> None:
    kernel = lowered(target="sm_80")
    assert not any(isinstance(s, Roles | BarrierSync | BarrierArrive) for s in walk(kernel.body))
    assert not kernel.remarks


SIZES = [(64, 64, 0), (64, 64, 8), (200, 130, 72), (330, 70, 200), (40, 264, 520)]


@pytest.mark.product
@pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_on_the_host(sizes: tuple[int, int, int], eager: bool) -> None:
    """Two blocks have all programs of the grid: up to three for each group."""
    m, n, k = sizes
    rng = np.random.default_rng(3)
    a, b = (to_bfloat16(rng.standard_normal(shape).astype(np.float32)) for shape in ((m, k), (n, k)))
    c = np.full((m, n), 0x7FC0, np.uint16)
    named: dict[str, Any] = {"a": a, "b": b, "c": c, "M": m, "N": n, "K": k}
    run(lowered(), (-(-m // 64), -(-n // 64)), eager, **named)
    expected = from_bfloat16(a) @ from_bfloat16(b).T
    np.testing.assert_allclose(from_bfloat16(c), expected, rtol=2**-7, atol=2e-3)


@pytest.mark.product
@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize("k", [0, 8, 264])
def test_simulated(cluster: int, k: int) -> None:
    """Every schedule, with several programs for each group."""
    assert not replay(unite(lowered(CLUSTER=cluster)), {"M": 200, "N": 72, "K": k}, None)
