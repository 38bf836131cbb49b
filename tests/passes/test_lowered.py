"""The steps that policies become, read off the text of the lowered kernel."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from argus import compile
from argus.frontend import Options
from argus.ir.nodes import AssertTags, Barrier, Copy, For, Kernel, Mma, Stmt, Tag
from argus.ir.text import print_kernel
from argus.ir.visit import rewrite_body, walk
from argus.passes import lower
from argus.source import SourceFile
from tests.passes import kernels


def steps(kernel: Kernel) -> list[str]:
    """The body, one short line a statement: indices and layouts left out."""
    text = print_kernel(kernel)
    lines = text[text.index("body {") :].splitlines()[1:-1]
    short = []
    for line in lines:
        indent, rest = re.match(r"( *)(.*)", line).groups()  # type: ignore[union-attr]
        via = re.search(r" via (\S+)", rest)
        word = rest.split("[")[0] if rest.startswith(("copy", "map", "accumulate", "mma")) else rest
        short.append(indent[2:] + word + (f" {via[1]}" if via else ""))
    return short


def asynchronous(stmt: Stmt) -> bool:
    return isinstance(stmt, Copy) and stmt.instr == "cp.async"


def test_asynchronous_pipeline() -> None:
    assert steps(lower(kernels.gemm(stages=3), "sm_80"))[2:28] == [
        "copy at cp.async",
        "copy bt cp.async",
        "commit_group",
        "copy at cp.async",
        "copy bt cp.async",
        "commit_group",
        "for k0 in 0 .. K step 32 {",
        "  wait_group 1",
        "  barrier",
        "  assert (i, j, k) in 64x64x32 {at[k0 // 32 % 3, c0, c2].k == k0 + c2}",
        "  copy at_a ldmatrix",
        "  copy bt_b ldmatrix",
        "  copy at cp.async",
        "  mma acc mma_m16n8k16",
        "  copy at_a ldmatrix",
        "  copy bt_b ldmatrix",
        "  copy bt cp.async",
        "  commit_group",
        "  mma acc mma_m16n8k16",
        "}",
        "wait_group 0",
        "map ct",
        "copy ct_scratch st.shared",
        "barrier",
        "copy ct_rows ld.shared",
        "copy c st.global",
    ]


def test_copies_of_two_stages_are_issued_at_once() -> None:
    body = steps(lower(kernels.gemm(stages=2), "sm_80"))
    start = body.index("  wait_group 0")
    assert body[start : start + 5] == [
        "  wait_group 0",
        "  barrier",
        "  copy at cp.async",
        "  copy bt cp.async",
        "  commit_group",
    ]


def test_large_copies_are_cut_to_spread_them() -> None:
    kernel = lower(kernels.gemm((128, 256, 64), 4, num_warps=8), "sm_90a")
    loop = next(s for s in kernel.body if isinstance(s, For))
    steps_of_loop = [
        "mma" if isinstance(s, Mma) else "copy" for s in loop.body if isinstance(s, Mma) or asynchronous(s)
    ]
    assert " ".join(steps_of_loop) == "copy copy mma copy mma copy copy mma copy mma"
    copied = sum(s.layout.size for s in loop.body if isinstance(s, Copy) and asynchronous(s) and s.layout)
    assert copied == (128 + 256) * 64


def test_tags_change_no_step() -> None:
    tagged = lower(kernels.gemm((128, 256, 64), 4, num_warps=8), "sm_90a")
    plain = kernels.gemm((128, 256, 64), 4, num_warps=8)
    without = replace(plain, body=rewrite_body(plain.body, lambda s: () if isinstance(s, Tag | AssertTags) else None))
    stripped = rewrite_body(tagged.body, lambda s: () if isinstance(s, Tag | AssertTags) else None)
    assert lower(without, "sm_90a") == replace(tagged, body=stripped)


SQUARES = """
import argus
import argus.language as al


@argus.kernel(num_warps=1)
def squares(x: al.Tensor[al.bfloat16, "M N"], out: al.Tensor[al.float32, "M"], ROWS: al.constexpr):
    M, N = x.shape
    first = al.grid(al.cdiv(M, ROWS)) * ROWS
    total = al.zeros((ROWS,), al.float32)
    for k0 in al.pipelined(0, N, 8, stages=3):
        tile = al.load(al.stage(x[first : first + ROWS, k0 : k0 + 8], boundary_check=(0, 1))).to(al.float32)
        total += al.sum(tile * tile, axis=1)
    al.store(out[first : first + ROWS], total, boundary_check=(0,))
"""


def test_a_tile_of_less_than_a_run_goes_through_registers() -> None:
    def remarks(rows: int) -> list[str]:
        options = Options(target="gfx942", constexprs={"ROWS": rows})
        kernel = compile.lower(compile.elaborate(SourceFile("squares.py", SQUARES), "squares", options), "gfx942")
        return [f"{r.message}; {r.help}" for r in kernel.remarks]

    (remark,) = remarks(1)
    assert "runs of 256 bytes" in remark and "the tile a multiple" in remark
    assert not remarks(16)


def test_pipeline_through_registers() -> None:
    kernel = lower(kernels.gemm((64, 64, 16), stages=3, warp_size=64, alignment=2), "gfx942")
    assert [r.code for r in kernel.remarks] == ["policy-not-applied"] * 2
    assert "a is not known to be aligned for that" in kernel.remarks[0].message
    assert steps(kernel)[2:21] == [
        "if 0 < K {",
        "  copy at_next buffer_load",
        "  copy at ds_write",
        "  copy bt_next buffer_load",
        "  copy bt ds_write",
        "}",
        "for k0 in 0 .. K step 16 {",
        "  barrier",
        "  copy at_next buffer_load",
        "  copy bt_next buffer_load",
        "  assert (i, j, k) in 64x64x16 {at[k0 // 16 % 2, c0, c2].k == k0 + c2}",
        "  copy at_a ds_read",
        "  copy bt_b ds_read",
        "  mma acc mfma_f32_32x32x8_t",
        "  copy at_a ds_read",
        "  copy bt_b ds_read",
        "  mma acc mfma_f32_32x32x8_t",
        "  copy at ds_write",
        "  copy bt ds_write",
    ]


def test_pipeline_of_loads_to_lds() -> None:
    """Two loads of each lane an iteration for each tile: those of one later iteration may be open."""
    kernel = lower(kernels.gemm((64, 64, 16), stages=3, warp_size=64), "gfx942")
    assert not kernel.remarks
    assert steps(kernel)[2:19] == [
        "copy at global_load_lds",
        "copy bt global_load_lds",
        "copy at global_load_lds",
        "copy bt global_load_lds",
        "for k0 in 0 .. K step 16 {",
        "  s_waitcnt vmcnt 4",
        "  barrier",
        "  copy at global_load_lds",
        "  copy bt global_load_lds",
        "  assert (i, j, k) in 64x64x16 {at[k0 // 16 % 3, c0, c2].k == k0 + c2}",
        "  copy at_a ds_read",
        "  copy bt_b ds_read",
        "  mma acc mfma_f32_32x32x8_t",
        "  copy at_a ds_read",
        "  copy bt_b ds_read",
        "  mma acc mfma_f32_32x32x8_t",
        "}",
    ]


def test_buffers_beyond_shared_memory_go_through_registers() -> None:
    narrow, wide = (lower(kernels.gemm((128, 128, 32), s, warp_size=64), "gfx942") for s in (3, 4))
    assert not narrow.remarks
    assert [r.message for r in wide.remarks] == [
        f"{tile} goes through registers, with two buffers: "
        "the buffers of all tiles would take 67520 bytes, and a block has 65536"
        for tile in ("at", "bt")
    ]


def test_one_stage_shares_barriers() -> None:
    assert steps(lower(kernels.gemm(stages=1), "sm_80"))[2:9] == [
        "for k0 in 0 .. K step 32 {",
        "  barrier",
        "  copy at cp.async",
        "  copy bt cp.async",
        "  commit_group",
        "  wait_group 0",
        "  barrier",
    ]


def test_a_tile_staged_once_needs_one_barrier() -> None:
    body = steps(lower(kernels.attention(), "sm_80"))
    assert body[:4] == ["copy qt cp.async", "commit_group", "wait_group 0", "barrier"]


@pytest.mark.parametrize(("rows", "barriers"), [(1, 2), (16, 0)])
def test_reductions_inside_of_a_warp_need_no_barrier(rows: int, barriers: int) -> None:
    body = lower(kernels.softmax(rows, 128), "sm_80").body
    assert sum(isinstance(s, Barrier) for s in walk(body)) == barriers


def test_attention_keeps_its_scores_in_registers() -> None:
    kernel = lower(kernels.attention(), "sm_80")
    loop = next(s for s in kernel.body if isinstance(s, For))
    assert sum(isinstance(s, Barrier) for s in walk(loop.body)) == 1
    assert {s.warps for s in walk(loop.body) if isinstance(s, Mma)} == {(4, 1)}
    assert all(s.dst.obj in ("kt", "vt") for s in walk(loop.body) if isinstance(s, Copy) and s.instr == "cp.async")
    assert not any(s.instr == "st.shared" for s in walk(loop.body) if isinstance(s, Copy))


def test_tiles_of_different_times_share_memory_only_when_they_must() -> None:
    small = lower(kernels.gemm((128, 128, 32), 4, num_warps=8), "sm_90a")
    large = lower(kernels.gemm((128, 256, 64), 4, num_warps=8), "sm_90a")
    offsets = {k.name: [s.offset for s in k.shared] for k in (small,)}
    assert offsets["gemm"] == [0, 32768, 65536]
    assert [s.offset for s in large.shared] == [0, 65536, 0]
    after = large.body[next(i for i, s in enumerate(large.body) if isinstance(s, For)) + 1 :]
    first = next(i for i, s in enumerate(after) if isinstance(s, Copy))
    assert isinstance(after[first - 1], Barrier)
