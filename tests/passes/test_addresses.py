"""Producer warps read for themselves where their copies start and how often their loop runs."""

from __future__ import annotations

import pytest

from argus import compile
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.ir.expr import Elem
from argus.ir.nodes import Copy, For, Kernel, Role, Roles
from argus.ir.text import print_kernel
from argus.ir.text_parser import parse_kernel
from argus.ir.visit import walk
from argus.source import SourceFile
from argus.verify import verify

EXPERT = """
import argus
import argus.language as al

@argus.kernel(num_warps=4)
def product(x: al.Tensor[al.bfloat16, "B 64 K"], expert: al.Tensor[al.int32, "B"], w: al.Tensor[al.bfloat16, "E N K"],
            out: al.Tensor[al.bfloat16, "B 64 N"]):
    B, K = x.shape[0], x.shape[2]
    E, N = w.shape[0], w.shape[1]
    al.requires(al.in_range(expert, 0, E))
    al.spec(out, lambda p, i, n: al.sum(lambda k: x[p, i, k] * w[expert[p], n, k]))
    b, pid_n = al.grid(B, al.cdiv(N, 64))
    n0 = pid_n * 64
    e = al.load(expert[b])
    acc = al.zeros((64, 64), al.float32)
    for k0 in al.pipelined(0, K, 64, stages=3, producer_warps=4):
        at = al.stage(x[b, :, k0 : k0 + 64], boundary_check=(1,))
        gt = al.stage(w[e, n0 : n0 + 64, k0 : k0 + 64], boundary_check=(0, 1))
        acc = al.mma(at, gt, acc)
    al.store(out[b, :, n0 : n0 + 64], acc.to(al.bfloat16), boundary_check=(1,))
"""
CAPACITY = """
import argus
import argus.language as al

@argus.kernel(num_warps=4)
def product(x: al.Tensor[al.bfloat16, "E CAP K"], count: al.Tensor[al.int32, "E"],
            w: al.Tensor[al.bfloat16, "E N K"], out: al.Tensor[al.bfloat16, "E CAP N"]):
    E, CAP, K = x.shape
    N = w.shape[1]
    al.spec(out, lambda e, m, n: al.sum(lambda k: al.where(m // 64 * 64 < count[e], x[e, m, k] * w[e, n, k], 0.0)))
    b, pid_n, e = al.grid(al.cdiv(CAP, 64), al.cdiv(N, 64), E)
    m0, n0 = b * 64, pid_n * 64
    live = al.load(count[e])
    acc = al.zeros((64, 64), al.float32)
    deep = al.where(m0 < live, K, 0)
    for k0 in al.pipelined(0, deep, 64, stages=3, producer_warps=4):
        at = al.stage(x[e, m0 : m0 + 64, k0 : k0 + 64], boundary_check=(0, 1))
        bt = al.stage(w[e, n0 : n0 + 64, k0 : k0 + 64], boundary_check=(0, 1))
        acc = al.mma(at, bt, acc)
    al.store(out[e, m0 : m0 + 64, n0 : n0 + 64], acc.to(al.bfloat16), boundary_check=(0, 1))
"""
ROLES = """
import argus
import argus.language as al

@argus.kernel(num_warps=8)
def product(x: al.Tensor[al.bfloat16, "B 64 K"], expert: al.Tensor[al.int32, "B"], w: al.Tensor[al.bfloat16, "E N K"],
            out: al.Tensor[al.bfloat16, "B 64 N"]):
    B, K = x.shape[0], x.shape[2]
    E, N = w.shape[0], w.shape[1]
    al.requires(al.in_range(expert, 0, E))
    al.spec(out, lambda b, m, n: al.sum(lambda k: x[b, m, k] * w[expert[b], n, k]))
    b, pid_n = al.grid(B, al.cdiv(N, 64))
    sa = al.shared((3, 64, 64), al.bfloat16, layout=al.swizzle(3, 3, 3))
    sb = al.shared((3, 64, 64), al.bfloat16, layout=al.swizzle(3, 3, 3))
    full = al.mbarrier(3, 1)
    empty = al.mbarrier(3, 4)
    al.role(multiply, (sa, sb, out, b, pid_n * 64, full, empty, K), num_warps=4, registers=240)
    al.role(bring, (x, expert, w, sa, sb, b, pid_n * 64, full, empty), num_warps=1, registers=40)


@argus.func
def bring(x, expert, w, sa, sb, b, n0, full, empty):
    e = al.load(expert[b])
    for k0 in range(0, x.shape[2], 64):
        i = k0 // 64
        empty[i % 3].wait((i // 3 + 1) % 2)
        full[i % 3].expect(128 * 64 * 2)
        al.copy(sa[i % 3, :, :], x[b, :, k0 : k0 + 64], boundary_check=(1,),
                instruction="tma.load", signal=full[i % 3])
        al.copy(sb[i % 3, :, :], w[e, n0 : n0 + 64, k0 : k0 + 64], boundary_check=(0, 1),
                instruction="tma.load", signal=full[i % 3])


@argus.func
def multiply(sa, sb, out, b, n0, full, empty, deep):
    acc = al.zeros((64, 64), al.float32)
    for k0 in range(0, deep, 64):
        i = k0 // 64
        full[i % 3].wait(i // 3 % 2)
        al.mma_fence()
        acc = al.mma(sa[i % 3, :, :], sb[i % 3, :, :], acc, instruction="wgmma_m64n64k16")
        al.mma_commit()
        al.mma_wait(0)
        empty[i % 3].arrive()
    al.store(out[b, :, n0 : n0 + 64], acc.to(al.bfloat16), boundary_check=(1,))
"""


def explicit(text: str) -> Kernel:
    source = SourceFile("product.py", text)
    return compile.lower(compile.elaborate(source, "product", Options(target="sm_90a")), "sm_90a")


def roles(kernel: Kernel) -> dict[str, Role]:
    return {r.name: r for s in kernel.body if isinstance(s, Roles) for r in s.roles}


def test_the_producer_loads_where_its_copies_start() -> None:
    kernel = explicit(EXPERT)
    assert not kernel.remarks and set(roles(kernel)) == {"producer", "compute"}
    loads = [s for s in walk(roles(kernel)["producer"].body) if isinstance(s, Copy) and s.src.obj == "expert"]
    assert len(loads) == 1
    assert "turn % 3 * 8 + 57344, w_map1, k0, block1 * 64, e1[0])" in compile.emit(kernel)
    assert verify(kernel).verdict is Verdict.PROVED


@pytest.mark.parametrize("place", ["0", "B - 1 - program_id(0)"])
def test_a_producer_that_loads_another_place_is_refuted(place: str) -> None:
    text = print_kernel(explicit(EXPERT))
    edited = text.replace("copy e1[] <- expert[program_id(0)]", f"copy e1[] <- expert[{place}]")
    assert edited != text
    report = verify(parse_kernel(edited))
    assert report.verdict is Verdict.REFUTED
    assert "spec-mismatch" in {d.code for d in report.diagnostics}


def test_a_loaded_trip_count() -> None:
    kernel = explicit(CAPACITY)
    assert not kernel.remarks and set(roles(kernel)) == {"producer", "compute"}
    bounds = [s.stop for role in roles(kernel).values() for s in role.body if isinstance(s, For)]
    assert len(bounds) == 2 and all(isinstance(e, Elem) for e in bounds) and bounds[0] != bounds[1]
    assert "= argus::uniform(" in compile.emit(kernel)
    assert verify(kernel).verdict is Verdict.PROVED


def test_roles_whose_loops_run_to_other_lengths_are_not_proved() -> None:
    text = print_kernel(explicit(CAPACITY))
    edited = text.replace("map deep1[] = where(program_id(0) * 64 <", "map deep1[] = where(program_id(0) * 65 <")
    assert edited != text
    assert verify(parse_kernel(edited), 5.0).verdict is not Verdict.PROVED


def test_roles_of_the_author_read_index_tensors() -> None:
    assert verify(explicit(ROLES)).verdict is Verdict.PROVED
    wrong = verify(explicit(ROLES.replace("al.load(expert[b])", "al.load(expert[0])")))
    assert wrong.verdict is Verdict.REFUTED


def test_starts_that_depend_on_products_have_no_producer() -> None:
    text = EXPERT.replace("w[e, n0 : n0 + 64, k0", "w[e + acc0, n0 : n0 + 64, k0").replace(
        "    for k0", "    acc0 = al.sum(al.load(expert[al.arange(64)], mask=al.arange(64) < B)) % 1\n    for k0"
    )
    kernel = explicit(text)
    (remark,) = kernel.remarks
    assert remark.code == "policy-not-applied" and "cannot compute for itself" in remark.message
