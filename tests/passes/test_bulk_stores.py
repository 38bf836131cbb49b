"""Results by bulk stores: panels in shared memory, as many as there is room for; and what the threads store instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from argus import compile
from argus.backend.abi import tensor_maps
from argus.backend.cpu.toolchain import find_compiler
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.ir.expr import Const, Coord, coords, op
from argus.ir.instruction import INSTRUCTIONS
from argus.ir.nodes import Access, BulkCommit, BulkWait, Copy, If, Kernel, Map, ProxyFence, Shared, Stmt
from argus.ir.text import print_expr, print_kernel
from argus.ir.types import DType, bfloat16, float8_e4m3fn, float16, float32
from argus.ir.visit import map_accesses, walk
from argus.ir.wellformed import check_explicit
from argus.layout import FragmentLayout, parse, parse_fragment
from argus.passes import lower
from argus.passes.bulk_stores import panel_layout
from argus.passes.moves import matrix_width
from argus.source import SourceFile
from argus.verify import verify
from tests.backend.host import from_bfloat16, run, to_bfloat16
from tests.conftest import Golden
from tests.passes.test_specialise import edited, gemm


def storing(dtype: DType, **fields: object) -> Kernel:
    """The policy product, its result of another type."""
    kernel = gemm(**fields)  # type: ignore[arg-type]
    result, tile = kernel.params[-1], next(f for f in kernel.fragments if f.name == "ct")
    kernel = edited(kernel, Map, lambda s: s if s.dst.obj != "ct" else replace(s, value=cast(s.value, dtype)))
    return replace(
        kernel,
        params=(*kernel.params[:-1], replace(result, dtype=dtype)),  # type: ignore[union-attr]
        fragments=tuple(replace(f, dtype=dtype) if f is tile else f for f in kernel.fragments),
    )


def cast(value: object, dtype: DType) -> object:
    (inner,) = value.args  # type: ignore[attr-defined]
    return inner if dtype is float32 else replace(value, dtype=dtype)  # type: ignore[type-var]


def copies(kernel: Kernel, instr: str) -> list[Copy]:
    return [s for s in walk(kernel.body) if isinstance(s, Copy) and s.instr == instr]


def panels(kernel: Kernel) -> tuple[int, ...]:
    return next(s.shape for s in kernel.shared if s.name == "ct_panels")


def test_golden(golden: Golden) -> None:
    kernel = replace(gemm(tile=(128, 256, 64), num_warps=8, stages=4), persistent=True)
    golden("gemm_persistent.txt", print_kernel(lower(kernel, "sm_90a")))


@pytest.mark.parametrize(
    ("dtype", "width", "instr"),
    [
        (bfloat16, 64, "stmatrix"),
        (float16, 64, "stmatrix"),
        (float32, 32, "st.shared"),
        (float8_e4m3fn, 128, "st.shared"),
    ],
)
def test_the_rows_of_a_panel_have_128_bytes(dtype: DType, width: int, instr: str) -> None:
    kernel = lower(storing(dtype, tile=(64, 256, 64)), "sm_90a")
    assert not check_explicit(kernel) and not kernel.remarks
    assert panels(kernel) == (256 // width, 64, width)
    assert {s.shape for s in copies(kernel, "tma.store")} == {(64, width)}
    assert len(copies(kernel, "tma.store")) == len(copies(kernel, instr)) == 256 // width


@pytest.mark.parametrize(
    ("columns", "widths"),
    [(16, [16]), (96, [64, 32]), (112, [64, 32, 16]), (160, [64, 64, 32]), (208, [64, 64, 64, 16])],
)
def test_columns_that_are_left_over_have_narrower_panels(columns: int, widths: list[int]) -> None:
    kernel = lower(replace(gemm(tile=(128, columns, 64), stages=2, num_warps=8), persistent=True), "sm_90a")
    assert not check_explicit(kernel) and not kernel.remarks
    assert [s.shape for s in copies(kernel, "tma.store")] == [(128, width) for width in widths]
    assert [m.swizzle_bytes for m in tensor_maps(kernel) if m.tensor == "c"] == [2 * w for w in dict.fromkeys(widths)]
    report = verify(kernel)
    assert report.verdict is Verdict.PROVED and not report.diagnostics


@pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("sizes", [(128, 112, 64), (100, 152, 72)])
def test_narrower_panels_on_the_host(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(k)
    a, b = to_bfloat16(rng.standard_normal((m, k))), to_bfloat16(rng.standard_normal((n, k)))
    c = np.full((m, n), 0x7FC0, np.uint16)
    kernel = lower(gemm(tile=(64, 112, 64), stages=2), "sm_90a")
    run(kernel, (-(-m // 64), -(-n // 112)), False, a=a, b=b, c=c, M=m, N=n, K=k)
    expected = from_bfloat16(a) @ from_bfloat16(b).T
    assert (np.abs(from_bfloat16(c) - expected) <= 2**-7 * np.abs(expected) + 1e-3).all()


@pytest.mark.parametrize(("stages", "buffers"), [(2, 4), (3, 4), (4, 2)])
def test_as_many_panels_as_the_stages_leave_room_for(stages: int, buffers: int) -> None:
    kernel = lower(gemm(tile=(128, 256, 64), num_warps=8, stages=stages), "sm_90a")
    assert panels(kernel) == (buffers, 128, 64)


@pytest.mark.parametrize(("stages", "pendings"), [(3, []), (4, [1, 1])])
def test_a_panel_is_written_again_when_it_has_been_read(stages: int, pendings: list[int]) -> None:
    kernel = gemm(tile=(128, 256, 64), num_warps=8, stages=stages)
    once, again = lower(kernel, "sm_90a"), lower(replace(kernel, persistent=True), "sm_90a")
    assert [(s.pending, s.read) for s in walk(once.body) if isinstance(s, BulkWait)] == [
        *((n, True) for n in pendings), (0, False),
    ]  # fmt: skip
    assert [(s.pending, s.read) for s in walk(again.body) if isinstance(s, BulkWait)] == [
        (0, True), *((n, True) for n in pendings), (0, False),
    ]  # fmt: skip


@pytest.mark.parametrize("persistent", [False, True])
def test_proved_without_bank_conflicts(persistent: bool) -> None:
    kernel = replace(gemm(tile=(128, 128, 64), stages=2, num_warps=8), persistent=persistent)
    report = verify(lower(kernel, "sm_90a"))
    assert report.verdict is Verdict.PROVED
    assert not report.diagnostics


def test_columns_that_are_no_whole_panel_leave_by_narrower_ones() -> None:
    """Of 64, 32, 16 and 8 elements a row, the last in no swizzle."""
    kernel = lower(gemm(tile=(64, 120, 64)), "sm_90a")
    assert not check_explicit(kernel) and not kernel.remarks
    assert [s.shape for s in copies(kernel, "tma.store")] == [(64, 64), (64, 32), (64, 16), (64, 8)]
    assert [m.swizzle_bytes for m in tensor_maps(kernel) if m.tensor == "c"] == [128, 64, 32, 0]


def half(stmt: Copy) -> Stmt:
    """The store under a mask of its own."""
    return replace(stmt, mask=op("lt", Coord(1), Const(32))) if stmt.dst.obj == "c" else stmt


def shifted(stmt: Copy) -> Stmt:
    def to_column_of_row(access: Access) -> Access:
        row, column = access.index
        return Access("c", (row, op("add", column, Coord(0)))) if access.obj == "c" else access

    return map_accesses(stmt, to_column_of_row) if stmt.dst.obj == "c" else stmt


def with_residual(kernel: Kernel) -> Kernel:
    """The result added to what the tensor held."""
    store = next(s for s in kernel.body if isinstance(s, Copy) and s.dst.obj == "c")
    tile = next(f for f in kernel.fragments if f.name == "ct")
    load = replace(store, dst=store.src, src=store.dst, other=Const(0.0, bfloat16))
    body = tuple(new for s in kernel.body for new in ((load, s) if s is store else (s,)))
    return replace(kernel, body=body, fragments=(*(f for f in kernel.fragments if f is not tile), tile))


BY_THREADS: dict[str, tuple[Callable[[], Kernel], str]] = {
    "a mask of its own": (lambda: edited(gemm(), Copy, half), "masks nothing but what is outside of `c`"),
    "a slanted box": (lambda: edited(gemm(), Copy, shifted), "a box of `c` begins at one place in each dimension"),
    "a tensor that is read as well": (lambda: with_residual(gemm()), "c is used elsewhere in the kernel"),
    "an unaligned tensor": (
        lambda: replace(gemm(), params=(*gemm().params[:-1], replace(gemm().params[-1], alignment=2))),  # type: ignore[call-arg]
        "tma.store needs `c` aligned to 16 bytes",
    ),
}


@pytest.mark.parametrize("case", BY_THREADS)
def test_what_the_threads_store(case: str) -> None:
    make, why = BY_THREADS[case]
    kernel = lower(make(), "sm_90a")
    assert not check_explicit(kernel) and not copies(kernel, "tma.store") and copies(kernel, "st.global")
    (remark,) = kernel.remarks
    assert remark.code == "policy-not-applied"
    assert remark.message.startswith("c is stored by the threads, not by the copy engine: ") and why in remark.message


def test_kernels_without_roles_store_by_threads_and_say_nothing() -> None:
    for target in ("sm_80", "cpu"):
        assert not lower(gemm(), target).remarks
    assert not lower(gemm(0), "sm_90a").remarks


@pytest.mark.parametrize(
    ("tile", "panel"),
    [
        ("[64x256 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 32@1*8]", "[64x64 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 8@1*8]"),
        ("[64x64 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 8@1*8]", "[64x64 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 8@1*8]"),
        ("[64x128 | t 4@1*32 32@0 | v 2@0*32 32@1]", None),
        ("[64x192 | t 64@0 | v 48@1 4@1*48]", None),
    ],
)
def test_the_layout_of_a_panel(tile: str, panel: str | None) -> None:
    expected: FragmentLayout | None = None if panel is None else parse_fragment(panel)
    assert panel_layout(parse_fragment(tile), 64) == expected


@pytest.mark.parametrize(("columns", "vector"), [(16, 8), (48, 8), (64, 8), (192, 8)])
def test_matrices_move_together_as_far_as_digits_go(columns: int, vector: int) -> None:
    kernel = lower(gemm(tile=(64, columns, 64)), "sm_90a")
    assert {s.vector for s in copies(kernel, "stmatrix")} == {vector}


def test_matrices_move_together_only_as_far_as_digits_go() -> None:
    layout = parse_fragment("[64x24 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 3@1*8]")
    tile = Shared("tile", bfloat16, (64, 24), parse("(64,24):(24,1)"))
    assert matrix_width(tile, coords(2), layout, INSTRUCTIONS["stmatrix"]) == 4
    even = parse_fragment("[64x32 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 4@1*8]")
    tile = Shared("tile", bfloat16, (64, 32), parse("(64,32):(32,1)"))
    assert matrix_width(tile, coords(2), even, INSTRUCTIONS["stmatrix"]) == 8


@pytest.mark.parametrize(("stages", "groups"), [(3, 1), (4, 4)])
def test_one_barrier_does_for_panels_that_all_have_room(stages: int, groups: int) -> None:
    kernel = lower(gemm(tile=(128, 256, 64), num_warps=8, stages=stages), "sm_90a")
    assert sum(isinstance(s, BulkCommit) for s in walk(kernel.body)) == groups
    assert sum(isinstance(s, ProxyFence) for s in walk(kernel.body)) == groups
    assert len(copies(kernel, "tma.store")) == 4


ENDED = """
import argus
import argus.language as al


@argus.kernel(num_warps=4)
def segments(
    x: al.Tensor[al.bfloat16, "T K"],
    first: al.Tensor[al.int32, "L1"],
    w: al.Tensor[al.bfloat16, "N K"],
    out: al.Tensor[al.bfloat16, "T N"],
):
    T, K, N, L = x.shape[0], x.shape[1], w.shape[0], first.shape[0] - 1
    i, column = al.grid(L, al.cdiv(N, 64))
    m0, end, n0 = al.load(first[i]), al.load(first[i + 1]), column * 64
    p = m0 + al.arange(64)
    acc = al.zeros((64, 64), al.float32)
    for k0 in al.pipelined(0, K, 64, stages=2, producer_warps=4):
        xt = al.stage(x[m0 : m0 + 64, k0 : k0 + 64], boundary_check=(0, 1))
        wt = al.stage(w[n0 : n0 + 64, k0 : k0 + 64], boundary_check=(0, 1))
        acc = al.mma(xt, wt, acc)
    al.store(out[p, n0 : n0 + 64], acc.to(al.bfloat16), mask=MASK, boundary_check=(1,))
"""
"""A product of rows whose tiles end where their segments end."""


def segments(mask: str) -> Kernel:
    source = SourceFile("segments.py", ENDED.replace("MASK", mask))
    return compile.lower(compile.elaborate(source, "segments", Options("sm_90a")), "sm_90a")


def test_rows_that_end_early_are_stored_by_threads_and_whole_tiles_by_the_copy_engine() -> None:
    kernel = segments("(p < end)[:, None]")
    assert not check_explicit(kernel) and not kernel.remarks
    (bulk,), (own,) = copies(kernel, "tma.store"), copies(kernel, "st.global")
    assert print_expr(bulk.dst.index[0]) == "where(first_tile[] + 64 <= first_tile_1[], first_tile[], T) + c0"
    (branch,) = (s for s in walk(kernel.body) if isinstance(s, If) and own in s.then)
    assert print_expr(branch.cond) == "~(first_tile[] + 64 <= first_tile_1[])"


@pytest.mark.parametrize("mask", ["(p <= end)[:, None]", "(p < end)[:, None] & (p < T - i)[:, None]"])
def test_other_masks_stay_with_the_threads(mask: str) -> None:
    kernel = segments(mask)
    assert not copies(kernel, "tma.store") and [r.code for r in kernel.remarks] == ["policy-not-applied"]
