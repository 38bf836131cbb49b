"""Roles, mbarriers, bulk copies and asynchronous products: each broken kernel is one edit away from an accepted one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from argus.ir.expr import Const, Coord, LoopVar, Thread, op
from argus.ir.nodes import (
    Access,
    Barrier,
    BulkCopy,
    Counter,
    For,
    If,
    Kernel,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierInit,
    MbarrierWait,
    Mma,
    MmaWait,
    Role,
    Roles,
    Stmt,
    ThreadCopy,
)
from argus.ir.types import bfloat16, float32
from argus.ir.wellformed import check_explicit
from argus.layout import blocked, parse, row_major
from tests.ir.kernels import C0, C1, M, lt, roles_gemm
from tests.ir.test_wellformed import on

Edit = Callable[[Kernel], Kernel]


def role(which: int, **fields: object) -> Edit:
    """The `which`th role with other fields."""

    def edit(stmt: Roles) -> Stmt:
        changed: list[Role] = list(stmt.roles)
        changed[which] = replace(changed[which], **fields)  # type: ignore[arg-type]
        return Roles(tuple(changed))

    return on(Roles, edit)


def beside(**fields: object) -> Edit:
    """Another role in the producer's warpgroup, directly behind the producer."""

    def edit(kernel: Kernel) -> Kernel:
        stmt = next(s for s in kernel.body if isinstance(s, Roles))
        added = replace(stmt.roles[0], name="sender", first_warp=stmt.roles[0].first_warp + 1, body=())
        done = Roles((*stmt.roles, replace(added, **fields)))  # type: ignore[arg-type]
        return replace(on(Roles, lambda s: done)(kernel), num_warps=12)

    return edit


def tile(which: int, **fields: object) -> Edit:
    def edit(kernel: Kernel) -> Kernel:
        shared = list(kernel.shared)
        shared[which] = replace(shared[which], **fields)  # type: ignore[arg-type]
        return replace(kernel, shared=tuple(shared))

    return edit


def barrier(which: int, **fields: object) -> Edit:
    def edit(kernel: Kernel) -> Kernel:
        barriers = list(kernel.barriers)
        barriers[which] = replace(barriers[which], **fields)  # type: ignore[arg-type]
        return replace(kernel, barriers=tuple(barriers))

    return edit


def tensor(**fields: object) -> Edit:
    return lambda k: replace(k, params=(replace(k.params[0], **fields), *k.params[1:]))  # type: ignore[arg-type]


def copy(**fields: object) -> Edit:
    return on(BulkCopy, lambda s: replace(s, **fields))


def product(**fields: object) -> Edit:
    return on(Mma, lambda s: replace(s, **fields))


COUNTED = For("i", Const(0), Const(4), 1, (), counter=Counter("n", 4))

BROKEN: dict[str, tuple[Edit, str]] = {
    "roles in a branch": (
        lambda k: replace(k, body=(If(lt(Const(0), M), k.body[-2:-1]),)), "roles stand at the top level"),
    "statement after roles": (lambda k: replace(k, body=(*k.body, Barrier())), "nothing runs after them"),
    "roles twice": (lambda k: replace(k, body=(k.body[-2], k.body[-2])), "once, and nothing"),
    "mbarriers initialised twice": (
        lambda k: replace(k, body=(MbarrierInit("full"), *k.body)), "is initialised 2 times"),
    "mbarriers initialised in a loop": (
        lambda k: replace(k, body=(For("i", Const(0), Const(1), 1, k.body[1:4]), *k.body[4:])),
        "outside of loops, branches and programs"),
    "an mbarrier that is not there": (
        lambda k: replace(k, body=(MbarrierInit("ready"), *k.body)), "no mbarrier `ready`"),
    "one running count for two loops": (role(0, body=(COUNTED, COUNTED)), "2 loops have the"),
    "warps shared": (role(0, first_warp=0), "share warps"),
    "warps that are not there": (role(0, first_warp=8), "takes warps 8 to 8 of 8"),
    "role inside of a warpgroup": (role(0, first_warp=5), "inside of a warpgroup"),
    "role beside a role of another budget": (beside(registers=48), "inside of a warpgroup"),
    "role that reaches into the next warpgroup": (beside(num_warps=4), "inside of a warpgroup"),
    "role apart from the first of its warpgroup": (beside(first_warp=6), "inside of a warpgroup"),
    "one name for two roles": (role(0, name="compute"), "two roles have one name"),
    "odd budget": (role(0, registers=41), "cannot have 41 registers"),
    "budget beyond the hardware": (role(0, registers=264), "cannot have 264 registers"),
    "budgets of some": (role(0, registers=None), "some have none"),
    "budgets beyond the block": (
        lambda k: replace(role(1, num_warps=8, registers=240)(role(0, first_warp=8)(k)), num_warps=12),
        "take 66560 registers"),
    "producer of a warpgroup": (role(0, num_warps=4), "issues bulk copies with 4 warps"),
    "budget of a part of a warpgroup": (lambda k: replace(k, num_warps=5), "that the block does not have"),
    "no such mbarrier": (on(MbarrierArrive, lambda s: replace(s, barrier="zz")), "no mbarrier `zz`"),
    "mbarrier of the thread": (on(MbarrierWait, lambda s: replace(s, index=Thread())), "is not one integer"),
    "parity of a float": (on(MbarrierWait, lambda s: replace(s, parity=Const(0.0, float32))), "the parity"),
    "expression of another loop": (on(MbarrierWait, lambda s: replace(s, index=LoopVar("j"))), "no enclosing loop"),
    "name of a tile and an mbarrier": (barrier(0, name="at"), "declared 2 times"),
    "no arrivals": (barrier(0, arrivals=0), "of 0 arrivals"),
    "mbarrier without a place": (barrier(0, offset=None), "cannot stand at byte None"),
    "mbarrier at an odd place": (barrier(0, offset=24580), "cannot stand at byte"),
    "mbarrier over a tile": (barrier(0, offset=24568), "shares bytes with `bt`"),
    "mbarriers over one another": (barrier(1, offset=24584), "shares bytes with `full`"),
    "bytes that no copy brings": (on(MbarrierExpect, lambda s: replace(s, bytes=100)), "expects 100 bytes"),
    "negative wait": (on(MmaWait, lambda s: replace(s, pending=-1)), "cannot wait"),
    "target without bulk copies": (lambda k: replace(k, target="sm_80"), "sm_80 has no bulk copies"),
    "registers of two roles": (
        role(0, body=(ThreadCopy(Access("c", (C0, C1)), Access("acc", (C0, C1)), (64, 32), None, None,
                           blocked((64, 32), 128), "st.global"),)),
        "belongs to threads of two roles"),
    "layout of the whole block": (
        lambda k: replace(k, fragments=(replace(k.fragments[0], layout=blocked((64, 32), 256)),)),
        "is for 256 threads, not 128"),
    "bulk copy by an instruction of threads": (copy(instr="cp.async"), "is not an instruction of the copy engine"),
    "bulk copy without a signal": (copy(signal=None), "signals no mbarrier"),
    "copy of threads by the copy engine": (
        on(ThreadCopy, lambda s: replace(s, instr="tma.store")), "is not a copy instruction of threads"),
    "bulk copy of rows of the thread": (
        copy(src=Access("a", (op("add", Thread(), C0), C1)), mask=None, other=None), "these indices do not"),
    "bulk copy of the transpose": (
        copy(src=Access("a", (C1, C0)), mask=None, other=None), "these indices do not"),
    "bulk copy from inside of a swizzle on": (
        copy(dst=Access("at", (Const(0), op("add", C0, Const(4)), C1))), "rows of a panel"),
    "bulk copy to a stage of the element": (copy(dst=Access("at", (C0, C0, C1))), "rows of a panel"),
    "box of another shape": (copy(shape=(64, 32)), "moves boxes of at"),
    "multicast without a cluster": (copy(instr="tma.load.multicast"), "the kernel has none"),
    "arrival in no cluster": (on(MbarrierArrive, lambda s: replace(s, scope="cluster")), "the kernel has none"),
    "cluster of a grid of any extent": (lambda k: replace(k, cluster=2), "not written as a multiple"),
    "cluster of many": (lambda k: replace(k, cluster=16), "a cluster has 1 to 8 blocks"),
    "unaligned tensor": (tensor(alignment=8), "aligned to 16 bytes"),
    "tensor of strided rows": (tensor(strides=(Const(1, M.dtype), Const(2, M.dtype))), "of stride 1"),
    "mask of something else": (copy(mask=lt(C0, Const(5))), "masks nothing but"),
    "fill with ones": (copy(other=Const(1.0, bfloat16)), "fills with zeros"),
    "no fill": (copy(other=None), "fills with zeros"),
    "plain layout": (tile(0, layout=parse("(2,64,64):(4096,64,1)")), "swizzled by 128 bytes"),
    "narrow swizzle": (tile(0, layout=parse("Sw<2,3,3> o 0 o (2,64,64):(4096,64,1)")), "swizzled by 128 bytes"),
    "columns": (tile(0, layout=parse("Sw<3,3,3> o 0 o (2,64,64):(4096,1,64)")), "swizzled by 128 bytes"),
    "tile between swizzles": (tile(0, offset=512), "at a multiple of 1024"),
    "operand of floats": (
        lambda k: replace(
            product(a=Access("x", (Const(0), C0, Coord(2))), b=Access("x", (Const(0), C1, Coord(2))))(k),
            shared=(*k.shared, replace(k.shared[0], name="x", dtype=float32, offset=65536))),
        "does not take float32"),
    "operand in registers": (
        product(a=Access("acc", (C0, Coord(2))), b=Access("acc", (C1, Coord(2)))), "from where it is"),
    "operand across": (product(b=Access("bt", (Const(0), C0, C1))), "by rows and depth"),
    "layout of no instruction": (
        lambda k: replace(k, fragments=(replace(k.fragments[0], layout=blocked((64, 32), 128)),)),
        "is not wgmma_m64n32k16's"),
    "instruction too wide": (product(instr="wgmma_m64n64k16"), "takes steps of 64 x 64"),
    "warps of half a warpgroup": (product(warps=(2, 2)), "as warpgroups"),
    "warps of another role": (product(warps=(8, 1)), "does not take the 4 warps"),
    "depth that no instruction has": (product(shape=(64, 32, 24)), "does not divide"),
    "producers of a plain loop": (on(For, lambda s: replace(s, producer_warps=4)), "4 producer warps is none"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_rules(case: str) -> None:
    edit, message = BROKEN[case]
    found = check_explicit(edit(roles_gemm()))
    assert any(message in d.message for d in found), found


def test_what_the_broken_kernels_are_edits_of() -> None:
    assert check_explicit(roles_gemm()) == ()


def test_a_dimension_may_be_inside_without_a_mask() -> None:
    unmasked = copy(mask=None, other=None)(roles_gemm())
    assert check_explicit(unmasked) == ()


def row_of_a(k: Any, row: int = 64, offset: int = 65536, start: Any = C0, **changes: Any) -> Any:
    """The kernel, whose copy brings one row of `a`, without a swizzle."""
    tile = replace(k.shared[0], name="x", shape=(2, row), layout=row_major((2, row)), offset=offset)
    tile = replace(tile, **changes)
    source = Access("a", (Const(3), C0))
    k = copy(dst=Access("x", (Const(0), start)), src=source, shape=(64,), mask=None, other=None)(k)
    return replace(k, shared=(*k.shared, tile))


def test_the_copy_engine_loads_a_row_without_a_swizzle() -> None:
    found = check_explicit(row_of_a(roles_gemm()))
    assert not any("row" in d.message for d in found), found


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"row": 128}, "a whole row of `x`"),
        ({"start": op("add", C0, Const(8))}, "a whole row of `x`"),
        ({"offset": 65536 + 64}, "at multiples of 128 bytes"),
        ({"layout": parse("(2,64):(1,2)")}, "at multiples of 128 bytes"),
    ],
)
def test_rows_that_the_copy_engine_does_not_load(changes: dict[str, Any], message: str) -> None:
    """Twins of the row that the test above accepts."""
    found = check_explicit(row_of_a(roles_gemm(), **changes))
    assert any(message in d.message for d in found), found


def test_roles_may_share_a_warpgroup() -> None:
    """The accepted twin of roles inside of a warpgroup."""
    assert not list(check_explicit(beside()(roles_gemm())))
