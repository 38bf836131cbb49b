"""Producer warps: the roles that a pipelined loop becomes, and when it stays one program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from argus.diagnostic import Severity, Verdict
from argus.ir.expr import Const, Coord, Elem, Param, coords, op
from argus.ir.nodes import (
    Access,
    AssertTags,
    BulkCopy,
    Copy,
    Counter,
    For,
    If,
    Kernel,
    MbarrierExpect,
    Mma,
    Role,
    Roles,
    Stage,
    Stmt,
    TagEqual,
    TagField,
    ThreadCopy,
)
from argus.ir.text import print_kernel
from argus.ir.types import DType, bfloat16, float8_e4m3fn, float16, float32, int32, tfloat32
from argus.ir.visit import rewrite_body, walk
from argus.ir.wellformed import check_explicit, check_tile
from argus.passes import PASSES, LoweringError, lower
from argus.passes.lower import for_target
from argus.verify import verify
from tests.conftest import Golden
from tests.passes import kernels

Edit = Callable[[Stmt], Stmt]


def gemm(producer_warps: int = 4, **rest: object) -> Kernel:
    """The policy product of the other tests, its loop with producer warps."""
    fields: dict[str, object] = {"tile": (128, 64, 64), "num_warps": 4, **rest}
    kernel = kernels.gemm(**fields)  # type: ignore[arg-type]
    return edited(kernel, For, lambda s: replace(s, producer_warps=producer_warps))


def edited(kernel: Kernel, kind: type, edit: Callable[..., Stmt]) -> Kernel:
    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        return (edit(stmt),) if isinstance(stmt, kind) else None

    return replace(kernel, body=rewrite_body(kernel.body, change))


def roles(kernel: Kernel) -> dict[str, Role]:
    return {r.name: r for s in kernel.body if isinstance(s, Roles) for r in s.roles}


def test_golden(golden: Golden) -> None:
    golden("gemm_roles.txt", print_kernel(lower(gemm(), "sm_90a")))


@pytest.mark.parametrize("tile", [(64, 8, 64), (128, 192, 64), (256, 64, 64)])
def test_every_pass_keeps_roles_well_formed(tile: tuple[int, int, int]) -> None:
    kernel = for_target(gemm(tile=tile, stages=2), "sm_90a")
    for run in PASSES:
        kernel = run(kernel)
        assert not check_tile(kernel), run.__name__
    assert not check_explicit(kernel)
    assert set(roles(kernel)) == {"producer", "compute"}
    assert lower(kernel, "sm_90a") == kernel


@pytest.mark.parametrize(("columns", "width"), [(64, 64), (256, 256), (200, 200), (24, 24), (8, 8)])
def test_the_widest_instruction_that_divides_the_columns(columns: int, width: int) -> None:
    kernel = lower(gemm(tile=(64, columns, 64)), "sm_90a")
    (product,) = (s for s in walk(kernel.body) if isinstance(s, Mma))
    assert (product.instr, product.warps) == (f"wgmma_m64n{width}k16", (4, 1))


@pytest.mark.parametrize(("dtype", "depth"), [(float16, 16), (bfloat16, 16), (tfloat32, 8), (float8_e4m3fn, 32)])
def test_the_instruction_of_the_operands_type(dtype: DType, depth: int) -> None:
    kernel = lower(gemm(tile=(64, 64, 4 * depth), dtype=dtype), "sm_90a")
    (product,) = (s for s in walk(kernel.body) if isinstance(s, Mma))
    assert product.instr == f"wgmma_m64n64k{depth}"


@pytest.mark.parametrize(("warps", "budget"), [(4, 240), (8, 240), (12, 160)])
def test_registers_that_the_producer_leaves(warps: int, budget: int) -> None:
    found = roles(lower(gemm(tile=(16 * warps, 64, 64), num_warps=warps), "sm_90a"))
    assert (found["compute"].num_warps, found["compute"].registers) == (warps, budget)
    assert (found["producer"].first_warp, found["producer"].num_warps, found["producer"].registers) == (warps, 1, 24)


def test_the_producer_expects_what_its_copies_bring() -> None:
    producer = roles(lower(gemm(), "sm_90a"))["producer"]
    (expect,) = (s for s in walk(producer.body) if isinstance(s, MbarrierExpect))
    assert expect.bytes == (128 + 64) * 64 * 2
    assert all(s.instr == "tma.load" for s in walk(producer.body) if isinstance(s, Copy))


def test_what_is_read_once_is_so_for_the_copy_engine() -> None:
    """And the proof has nothing to do with it."""
    hinted = edited(gemm(), Stage, lambda s: replace(s, once=s.dst == "at"))
    plain, once = (lower(kernel, "sm_90a") for kernel in (gemm(), hinted))
    copies = [s for s in walk(roles(once)["producer"].body) if isinstance(s, Copy)]
    assert {s.src.obj for s in copies if s.once} == {"a"} and {s.src.obj for s in copies if not s.once} == {"b"}
    assert edited(once, BulkCopy, lambda s: replace(s, once=False)) == plain


def test_a_loop_that_does_not_begin_at_zero() -> None:
    kernel = edited(gemm(), For, lambda s: replace(s, start=Const(64)))
    text = print_kernel(lower(kernel, "sm_90a"))
    assert "for k0 in 64 .. K step 64 counter turn wrap 6 {" in text
    assert "mbarrier_wait empty[turn % 3] parity (turn // 3 + 1) % 2" in text
    assert "if k0 >= 128 {" in text


def test_names_that_the_kernel_has_already() -> None:
    kernel = gemm()
    renamed = replace(kernel, fragments=(*kernel.fragments, replace(kernel.fragments[0], name="full")))
    assert [b.name for b in lower(renamed, "sm_90a").barriers] == ["full1", "empty"]


def test_a_count_of_a_name_that_the_kernel_has_already() -> None:
    kernel = gemm()
    renamed = replace(kernel, fragments=(*kernel.fragments, replace(kernel.fragments[0], name="turn")))
    loops = [s for s in walk(lower(renamed, "sm_90a").body) if isinstance(s, For)]
    assert {s.counter for s in loops} == {Counter("turn1", 6)}


def masked_by_parity(stage: Stage) -> Stmt:
    return replace(stage, mask=op("eq", op("mod", Coord(0), Const(2)), Const(0)))


def column_major(kernel: Kernel) -> Kernel:
    first = kernel.params[0]
    return replace(kernel, params=(replace(first, strides=first.strides[::-1]), *kernel.params[1:]))  # type: ignore[union-attr]


def tag_of_the_accumulator(loop: For) -> Stmt:
    acc = next(s.d for s in loop.body if isinstance(s, Mma))
    field = TagField(Elem(acc.obj, acc.index, float32), "m")
    claim = AssertTags((128, 64), ("i", "j"), (TagEqual(field, Coord(0)),))
    return replace(loop, body=(*loop.body, claim))


def reading(loop: For) -> Stmt:
    stage = next(s for s in loop.body if isinstance(s, Stage))
    back = ThreadCopy(Access(stage.src.obj, stage.src.index), Access(stage.dst, coords(2)), stage.shape)
    return replace(loop, body=(*loop.body, back))


KEPT: dict[str, Callable[[], Kernel]] = {
    "part of a warpgroup": lambda: gemm(2),
    "one buffer": lambda: gemm(stages=1),
    "rows of 192 bytes": lambda: gemm(tile=(128, 64, 96)),
    "operands that no wgmma takes": lambda: gemm(dtype=float32, tile=(128, 64, 32)),
    "rows of half a warpgroup": lambda: gemm(tile=(32, 64, 64)),
    "computing warps of no warpgroup": lambda: gemm(tile=(128, 64, 64), num_warps=2),
    "a product in either branch": lambda: edited(
        gemm(), Mma, lambda s: If(op("lt", Const(0), Param("M", int32)), (s,), (s,))
    ),
    "a tile that is read by hand": lambda: edited(gemm(), For, reading),
    "a loop around": lambda: replace(
        gemm(), body=tuple(For("i", Const(0), Const(2), 1, (s,)) if isinstance(s, For) else s for s in gemm().body)
    ),
    "accumulators that leave no registers to load with": lambda: gemm(8, tile=(128, 256, 64), num_warps=8, alignment=2),
    "an instruction that the author chose": lambda: edited(gemm(), Mma, lambda s: replace(s, instr="mma_m16n8k16")),
    "a claim on the accumulator": lambda: edited(gemm(), For, tag_of_the_accumulator),
    "a product before its tile": lambda: edited(gemm(), For, lambda s: replace(s, body=s.body[::-1])),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_stays_one_program(case: str) -> None:
    kernel = for_target(KEPT[case](), "sm_90a")
    kept = PASSES[0](kernel)
    assert kept == kernel
    (remark,) = kept.remarks
    assert (remark.code, remark.severity) == ("policy-not-applied", Severity.WARNING)
    assert remark.message.startswith("the loop has no producer warps of its own: ") and remark.help


def test_a_loop_without_producer_warps_asks_for_nothing() -> None:
    kernel = for_target(gemm(0), "sm_90a")
    assert PASSES[0](kernel) is kernel


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("part of a warpgroup", "producer_warps is 2, and roles are made of warpgroups"),
        ("one buffer", "one buffer cannot be filled while it is read"),
        (
            "accumulators that leave no registers to load with",
            "the accumulators leave no registers to threads that would load what the copy engine cannot",
        ),
        ("a loop around", "the loop stands inside of another loop or branch"),
        ("a product before its tile", "a tile is read before it is staged"),
    ],
)
def test_why_it_stays_one_program(case: str, why: str) -> None:
    (remark,) = PASSES[0](for_target(KEPT[case](), "sm_90a")).remarks
    assert remark.message == f"the loop has no producer warps of its own: {why}"


def test_remarks_come_with_the_verdict() -> None:
    report = verify(lower(gemm(2, tile=(64, 64, 32), stages=2), "sm_90a"))
    assert report.verdict is Verdict.PROVED
    assert [d.code for d in report.diagnostics] == ["policy-not-applied"]


def test_other_targets_ignore_producer_warps() -> None:
    for target in ("sm_80", "cpu"):
        kernel = lower(gemm(), target)
        assert not roles(kernel) and kernel.num_warps == 4
        assert kernel == lower(gemm(0), target)


def test_a_loop_that_is_not_specialised_is_pipelined() -> None:
    kernel = lower(gemm(stages=1), "sm_90a")
    assert not roles(kernel) and not check_explicit(kernel)
    assert kernel == lower(gemm(0, stages=1), "sm_90a")


def test_buffers_that_leave_no_room_for_the_result() -> None:
    big = {"tile": (128, 256, 64), "num_warps": 8}
    assert roles(lower(gemm(stages=4, **big), "sm_90a"))
    with pytest.raises(LoweringError) as error:
        lower(gemm(tile=(128, 64, 64), stages=9), "sm_90a")
    (found,) = error.value.diagnostics
    assert found.code == "shared-memory"
    assert "needs 237712 bytes of shared memory, and sm_90a has 232448" in found.message
    assert "fewer stages" in found.help
    assert [n.message.split(":")[0] for n in found.notes] == ["at", "bt", "ct_panels"]


def test_registers_of_a_role() -> None:
    with pytest.raises(LoweringError) as error:
        lower(gemm(tile=(256, 128, 64), stages=2), "sm_90a")
    (found,) = error.value.diagnostics
    assert found.code == "register-budget" and "role compute has 240" in found.message
