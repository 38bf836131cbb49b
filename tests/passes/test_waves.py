"""Loads to LDS in lowering: tiles laid out for them, layouts that follow, and copies that cannot be."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import argus
from argus import compile
from argus.diagnostic import ArgusError, Verdict
from argus.frontend import Options
from argus.ir.expr import Const, Coord, Param
from argus.ir.nodes import Access, Barrier, Copy, Kernel, Shared, ThreadCopy, WaitCounts
from argus.ir.types import float32
from argus.ir.visit import walk
from argus.ir.waves import counted, in_lane_order, loads_to_lds
from argus.layout import AnyLayout, Layout, parse, parse_fragment, table
from argus.layout.analysis import is_injective
from argus.passes import lower
from argus.passes.report import LoweringError
from argus.passes.tiles import wave_layout
from argus.source import SourceFile
from argus.verify import verify
from tests.passes import kernels

SHAPES = [(64, 16), (64, 32), (128, 64), (64, 128), (32, 256), (128, 512)]


@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
@pytest.mark.parametrize("itemsize", [1, 2, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_tiles_are_runs_of_256_bytes(shape: tuple[int, int], itemsize: int, order: tuple[int, int]) -> None:
    layout = wave_layout(shape, itemsize, order)
    assert layout is not None and is_injective(layout)
    places = np.sort(table(layout, shape).reshape(-1)) * itemsize
    runs = places.reshape(-1, 256 // itemsize)
    assert (runs == runs[:, :1] + np.arange(0, 256, itemsize)).all()
    assert (runs[:, 0] == np.arange(len(runs)) * 264).all()


@pytest.mark.parametrize(("shape", "itemsize"), [((64, 24), 2), ((3, 32), 2), ((8, 8), 4 // 2)])
def test_other_tiles_have_none(shape: tuple[int, int], itemsize: int) -> None:
    assert wave_layout(shape, itemsize, (1, 0)) is None


@pytest.mark.parametrize("depth", [32, 64, 128])
def test_reads_of_a_product_are_free_of_conflicts(depth: int) -> None:
    """16 lanes read 8 bytes each of consecutive rows: 128 bytes, once from every bank."""
    layout = wave_layout((64, depth), 2, (1, 0))
    assert layout is not None
    rows = table(layout, (64, depth))[:, 0] * 2
    for first in range(0, 64, 16):
        banks = {(byte + part) // 4 % 32 for byte in rows[first : first + 16] for part in (0, 4)}
        assert len(banks) == 32


def product(stages: int, **options: object) -> Kernel:
    return lower(kernels.gemm((64, 64, 32), stages, warp_size=64, **options), "gfx942")  # type: ignore[arg-type]


@pytest.mark.parametrize("stages", [3, 4])
def test_waits_leave_the_loads_of_later_iterations(stages: int) -> None:
    kernel = product(stages)
    loads = [s for s in walk(kernel.body) if counted(s)]
    assert {loads_to_lds(s) for s in loads} == {4}
    waits = [s.vm for s in walk(kernel.body) if isinstance(s, WaitCounts)]
    assert waits == [8 * (stages - 2), 0]
    assert verify(kernel, 120).verdict is Verdict.PROVED


def test_a_wait_counts_no_further_than_its_field() -> None:
    """12 stages would leave 80 loads open: a wait for all but 63 is the next stronger one."""
    kernel = lower(kernels.gemm((32, 32, 32), 12, num_warps=1, warp_size=64), "gfx942")
    loads = [s for s in walk(kernel.body) if counted(s)]
    per_iteration = sum(map(loads_to_lds, loads[-2:]))
    assert per_iteration * 10 > 63
    assert [s.vm for s in walk(kernel.body) if isinstance(s, WaitCounts)] == [63, 0]
    assert verify(kernel, 120).verdict is Verdict.PROVED


@pytest.mark.parametrize("by_columns", [False, True])
def test_lanes_follow_the_tile(by_columns: bool) -> None:
    kernel = product(3, b_by_columns=by_columns)
    for copy in (s for s in walk(kernel.body) if isinstance(s, Copy) and counted(s)):
        tile = kernel.object(copy.dst.obj)
        assert isinstance(tile, Shared) and isinstance(tile.layout, Layout) and copy.layout is not None
        inner = table(tile.layout, tile.shape)[0]
        coordinates = copy.layout.coordinates()
        places = inner[coordinates[..., 0], coordinates[..., 1]] * tile.dtype.bytes
        assert in_lane_order(places[None, :, :: copy.vector], 64).all()


# ---------------------------------------------------------------------------- copies that authors name


def named(layout: AnyLayout, spread: str, other: float | None = 0.0, masked: bool = True) -> Kernel:
    """256 elements straight to LDS, by four waves."""
    c0, n = Coord(0), Param("N")
    mask = kernels.lt(c0, n) if masked else None
    fill = None if other is None or not masked else Const(other, float32)
    domain = parse_fragment(spread)
    copy = ThreadCopy(Access("s", (c0,)), Access("x", (c0,)), (512,), mask, fill, domain, "global_load_lds")
    back = ThreadCopy(Access("r", (c0,)), Access("s", (c0,)), (512,))
    kernel = kernels.kernel(
        "named", (kernels.vector("x", float32, n),), (copy, WaitCounts(0), Barrier(), back), warp_size=64,
        shared=(Shared("s", float32, (512,), layout),),
    )  # fmt: skip
    return replace(kernel, fragments=(kernels.Fragment("r", float32, (512,)),))


STRAIGHT, ALL = parse("512:1"), "[512 | t 256@0 | v 2@0*256]"


def test_a_straight_copy_is_lowered() -> None:
    copy = next(s for s in walk(lower(named(STRAIGHT, ALL), "gfx942").body) if counted(s))
    assert loads_to_lds(copy) == 2


@pytest.mark.parametrize(
    ("code", "kernel"),
    [
        ("instruction-layout", named(STRAIGHT, "[512 | t 256@0*2 | v 2@0]")),
        ("instruction-layout", named(STRAIGHT, "[512 | t 128@0 2@_ | v 4@0*128]")),
        ("instruction-layout", named(parse("Sw<2,0,3> o 0 o 512:1"), ALL)),
        ("instruction-layout", named(parse("((256,2)):((2,1))"), ALL)),
        ("instruction-fill", named(STRAIGHT, ALL, other=1.0)),
        ("instruction-fill", named(STRAIGHT, ALL, other=None)),
    ],
)
def test_other_copies_are_refused(code: str, kernel: Kernel) -> None:
    with pytest.raises(LoweringError) as error:
        lower(kernel, "gfx942")
    assert [d.code for d in error.value.diagnostics] == [code]
    assert error.value.diagnostics[0].help


COPIED = """
import argus
import argus.language as al


@argus.kernel
def copied(x: al.Tensor[al.bfloat16, "64 32"], out: al.Tensor[al.bfloat16, "64 32"], SPREAD: al.constexpr):
    block = al.grid(1)
    tile = al.shared((64, 32), al.bfloat16)
    al.copy(tile, x[:, :], instruction="global_load_lds", layout=al.fragment_layout(SPREAD))
    al.s_waitcnt(vmcnt=0)
    al.barrier()
    al.store(out[:, :], al.load(tile))
"""


def test_the_layout_that_the_page_names_is_one_that_lowers() -> None:
    page = (Path(argus.__file__).parent / "docs" / "errors" / "instruction-layout.md").read_text(encoding="utf-8")
    (spread,) = re.findall(r'al\.fragment_layout\("([^"]+)"\)`', page)

    def lowered(layout: str) -> Kernel:
        options = Options(target="gfx942", constexprs={"SPREAD": layout})
        return compile.lower(compile.elaborate(SourceFile("copied.py", COPIED), "copied", options), "gfx942")

    assert any(counted(s) for s in walk(lowered(spread).body))
    with pytest.raises(ArgusError) as error:
        lowered("[64x32 | t 16@1*2 4@0*16 4@0 | v 2@1 4@0*4]")
    assert [d.code for d in error.value.diagnostics] == ["instruction-layout"]
    assert "layout=al.fragment_layout" in (error.value.diagnostics[0].help or "")
