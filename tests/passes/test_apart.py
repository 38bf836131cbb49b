"""Rows apart: every computing warpgroup is a role with rows of its own."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from argus.backend.cpu.toolchain import find_compiler
from argus.frontend import Options, check, parse
from argus.ir.cluster import unite
from argus.ir.nodes import Copy, Kernel, MbarrierArrive, Mma, Roles
from argus.ir.text import parse_kernel, print_kernel
from argus.ir.visit import walk
from argus.ir.wellformed import check_explicit
from argus.passes import lower
from argus.simulate import replay
from argus.source import SourceFile
from tests.backend.host import from_bfloat16, run, to_bfloat16
from tests.reject.case import ROOT

PINGPONG = (ROOT / "examples" / "gemm_pingpong.py").read_text(encoding="utf-8")
TEXT = PINGPONG.replace('schedule="pingpong"', 'schedule="rows"')
STORE = "    al.store(c["


@cache
def lowered(text: str = TEXT, target: str = "sm_90a", **constants: int) -> Kernel:
    blocks = {"BLOCK_M": 128, "BLOCK_N": 64, "STAGES": 3} | constants
    warps = 4 if target == "cpu" else blocks["BLOCK_M"] // 16
    options = Options(target=target, num_warps=warps, constexprs=blocks)
    return lower(check(parse(SourceFile("gemm.py", text)), "gemm_pingpong", options), target)


def roles(kernel: Kernel) -> Roles:
    return next(s for s in kernel.body if isinstance(s, Roles))


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_every_warpgroup_is_a_role_with_64_rows(groups: int) -> None:
    kernel = lowered(BLOCK_M=64 * groups)
    assert not check_explicit(kernel) and not kernel.remarks
    assert kernel.schedule == "cooperative", "the policy is carried out"
    assert parse_kernel(print_kernel(kernel)) == kernel
    producer, *computing = roles(kernel).roles
    assert [(r.name, r.first_warp, r.num_warps) for r in computing] == [
        (f"compute{number or ''}", 4 * number, 4) for number in range(groups)
    ]
    assert sum(isinstance(s, Copy) for s in producer.body[0].body[0].body) == groups + 1  # type: ignore[union-attr]
    assert {b.name: b.arrivals for b in kernel.barriers} == {"full": 1, "empty": 4 * groups}
    for role in computing:
        (product,) = (s for s in walk(role.body) if isinstance(s, Mma))
        assert product.shape == (64, 64, 64) and product.warps == (4, 1)


def test_a_tile_of_rows_is_each_roles_own() -> None:
    """What the loop reads from outside of it goes back with the last iteration, from each role for itself."""
    path = ROOT / "argus" / "kernels" / "attention.py"
    module = parse(SourceFile(path.name, path.read_text(encoding="utf-8")))
    kernel = lower(check(module, "attention_forward", Options("sm_90a", 8)), "sm_90a")
    own = {s.name: s.shape for s in kernel.shared if s.name.startswith("qt")}
    assert own == {"qt": (64, 128), "qt1": (64, 128)}
    arrivals = {b.name: b.arrivals for b in kernel.barriers if b.name.startswith("empty")}
    assert arrivals == {"empty": 4, "empty1": 4, "empty2": 8, "empty3": 8, "empty4": 8}
    _, *computing = roles(kernel).roles
    given = [{s.barrier for s in walk(r.body) if isinstance(s, MbarrierArrive)} for r in computing]
    assert given == [{"empty", "empty2", "empty3", "empty4"}, {"empty1", "empty2", "empty3", "empty4"}]


TOGETHER = {
    "columns are summed up": ("    acc = acc + al.sum(acc, axis=0)[None, :]\n", "is made of all rows together"),
    "a vector of all columns is stored": (
        "    j = n0 + al.arange(BLOCK_N)\n    al.store(c[0, j], al.zeros((BLOCK_N,), al.bfloat16), mask=j < N)\n",
        "c is written for all rows together",
    ),
    "threads are told apart": ("    if al.thread_id() < 64:\n        acc = acc + 1.0\n", "depends on the thread"),
    "threads wait for one another": ("    al.barrier()\n", "wait for one another"),
}
APART = (
    "    acc = acc + al.sum(acc, axis=1)[:, None]\n",
    "    acc = acc + (m0 + al.arange(BLOCK_M)).to(al.float32)[:, None]\n",
    "    acc = acc + al.arange(BLOCK_N).to(al.float32)[None, :]\n",
    "    if n0 < 64:\n        acc = acc + 1.0\n",
)


def with_work(work: str) -> Kernel:
    """The product with some work on it before it is stored."""
    plain = "".join(line for line in TEXT.splitlines(True) if "al.spec" not in line)
    return lowered(plain.replace(STORE, work + STORE))


@pytest.mark.parametrize("case", TOGETHER)
def test_rows_that_meet_stay_together(case: str) -> None:
    work, why = TOGETHER[case]
    kernel = with_work(work)
    assert [r.name for r in roles(kernel).roles] == ["producer", "compute"]
    (remark,) = (r for r in kernel.remarks if "share each program" in r.message)
    assert why in remark.message and remark.code == "policy-not-applied"


@pytest.mark.parametrize("work", APART)
def test_work_on_single_rows_is_shared_out(work: str) -> None:
    kernel = with_work(work)
    assert [r.name for r in roles(kernel).roles] == ["producer", "compute", "compute1"]
    assert not kernel.remarks and not check_explicit(kernel)


def test_one_remark_tells_of_all_roles() -> None:
    """A result that is stored transposed has its rows along the columns of the tensor."""
    whole = STORE + "m0 : m0 + BLOCK_M, n0 : n0 + BLOCK_N], acc"
    across = "    c = al.trans(c)\n" + STORE + "n0 : n0 + BLOCK_N, m0 : m0 + BLOCK_M], al.trans(acc)"
    assert whole in TEXT
    kernel = lowered("".join(line for line in TEXT.replace(whole, across).splitlines(True) if "al.spec" not in line))
    assert [r.name for r in roles(kernel).roles] == ["producer", "compute", "compute1"]
    assert len(kernel.remarks) == 1 and "stored by the threads" in kernel.remarks[0].message


@pytest.mark.parametrize("target", ["sm_80", "cpu"])
def test_other_targets_have_no_roles(target: str) -> None:
    kernel = lowered(target=target, BLOCK_M=64)
    assert not any(isinstance(s, Roles) for s in walk(kernel.body)) and not kernel.remarks


@pytest.mark.product
@pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("sizes", [(64, 64, 0), (200, 130, 72), (330, 70, 264)])
def test_on_the_host(sizes: tuple[int, int, int], eager: bool) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(3)
    a, b = (to_bfloat16(rng.standard_normal(shape).astype(np.float32)) for shape in ((m, k), (n, k)))
    c = np.full((m, n), 0x7FC0, np.uint16)
    named: dict[str, Any] = {"a": a, "b": b, "c": c, "M": m, "N": n, "K": k}
    run(lowered(), (-(-m // 128), -(-n // 64)), eager, **named)
    expected = from_bfloat16(a) @ from_bfloat16(b).T
    np.testing.assert_allclose(from_bfloat16(c), expected, rtol=2**-7, atol=2e-3)


@pytest.mark.parametrize(("cluster", "k"), [(1, 0), (1, 72), (2, 72)])
def test_simulated(cluster: int, k: int) -> None:
    """Every schedule, with several programs for each block."""
    assert not replay(unite(lowered(CLUSTER=cluster)), {"M": 200, "N": 72, "K": k}, None)
