"""What the model expects of kernels that were measured on an H200, and what it counts in them."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations
from pathlib import Path

import pytest

from argus import compile
from argus.frontend import Options
from argus.ir.nodes import Copy, Kernel, Tensor
from argus.ir.visit import walk
from argus.kernels.product_tile import ProductShape, Tile
from argus.kernels.tile_times import estimated
from argus.knowledge import rewrite
from argus.knowledge.draft import Draft
from argus.knowledge.rewrites.constants import set_constants
from argus.source import SourceFile
from argus.tuning.model import MODELS, Estimate, estimate
from argus.tuning.registers import exceeded, held_registers
from argus.tuning.requests import active, lines
from argus.tuning.work import work_of

KERNELS = Path(__file__).parents[2] / "argus" / "knowledge" / "kernels"
PRODUCT = {"M": 4096, "N": 4096, "K": 4096}
ATTENTION = {"B": 2, "H": 32, "M": 4096, "N": 4096}
SPECIALISED = ("stage_operands", "deeper_tile", "pipeline_loop", "producer_warps", "persistent_grid")
TALL = {"BLOCK_M": 128, "BLOCK_N": 256, "num_warps": 8, "BLOCK_K": 32}
WIDE = {"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 4, "BLOCK_K": 32}
SPILLED = {"BLOCK_M": 256, "BLOCK_N": 256, "num_warps": 16, "BLOCK_K": 32}
MEASURED = (
    ("product", (), {}, 2354.1),
    ("product", SPECIALISED, {}, 377.3),
    ("product", ("stage_operands",), {}, 619.0),
    ("product", (), TALL, 1220.9),
    ("product", (), WIDE, 1196.7),
    ("product", (), SPILLED, 15721.8),
    ("product", (), {**SPILLED, "num_warps": 32, "BLOCK_K": 64}, 8749.6),
    ("product", (), {**WIDE, "num_warps": 32, "BLOCK_K": 128}, 13089.0),
    ("attention", (), {}, 9739.9),
    ("attention", ("stage_operands",), {}, 2047.1),
    ("attention", ("more_warps",), {}, 12535.0),
    ("attention", (), {"BLOCK_M": 256, "BLOCK_N": 64, "num_warps": 32}, 45520.8),
)
"""Kernel, rewrites, constants, and microseconds on an H200."""


@lru_cache(maxsize=64)
def explicit(name: str, steps: tuple[str, ...], constants: tuple[tuple[str, int], ...]) -> Kernel:
    text = (KERNELS / f"{name}.py").read_text()
    changed = rewrite(text, name, *steps) if steps else text
    assert changed is not None
    draft = Draft.of(changed, name)
    set_constants(draft, **dict(constants))
    source = SourceFile(f"{name}.py", draft.result() if draft.edits else changed)
    return compile.lower(compile.elaborate(source, name, Options(target="sm_90a")), "sm_90a")


def expected(name: str, steps: tuple[str, ...], constants: dict[str, int]) -> Estimate:
    kernel = explicit(name, steps, tuple(constants.items()))
    sizes = {**(PRODUCT if name == "product" else ATTENTION), "scale": 0.125}
    return estimate(work_of(kernel, sizes), MODELS["sm_90a"])


def test_the_model_orders_what_was_measured() -> None:
    """Of two kernels of which one takes 1.25 times the other's time, the model names the faster.

    What does not fit the registers is refused.
    """
    found = [(name, expected(name, steps, constants), us) for name, steps, constants, us in MEASURED]
    ran = [(name, e.seconds, us) for name, e, us in found if math.isfinite(e.seconds)]
    clear = [(a, b) for a, b in combinations(ran, 2) if a[0] == b[0] and abs(math.log(a[2] / b[2])) > math.log(1.25)]
    wrong = [(a, b) for a, b in clear if (a[1] < b[1]) != (a[2] < b[2])]
    assert not wrong
    finite = [(e.seconds * 1e6, us) for _, e, us in found if math.isfinite(e.seconds)]
    assert len(finite) >= 7 and all(0.75 < model / us < 1.3 for model, us in finite)
    assert {us for _, e, us in found if not math.isfinite(e.seconds)} == {15721.8, 8749.6, 13089.0, 45520.8}


@pytest.mark.parametrize(("columns", "stages"), [(256, 4), (256, 3), (192, 4), (192, 3)])
def test_a_text_is_expected_to_take_what_its_tile_takes(columns: int, stages: int) -> None:
    """The library chooses tiles of products by formulas that were fitted to measurements; counting gives the same."""
    constants = {"BLOCK_M": 128, "BLOCK_N": columns, "num_warps": 8, "STAGES": stages}
    found = expected("product", (*SPECIALISED, "rows_apart"), constants).seconds
    shape = ProductShape(4096, 4096, 4096, 1, 16, 16, "sm_90a", True)
    tiled = estimated(shape, Tile(128, columns, 64, stages, 8, 4), MODELS["sm_90a"]).seconds
    assert 0.9 < found / tiled < 1.1


def test_warps_ask_for_the_same_lines() -> None:
    """Of a tile of 64 x 32, each warp asks for 32 rows: 16 requests of 8 lines, and there are 4 warps."""
    kernel = explicit("product", (), ())
    copy = next(s for s in walk(kernel.body) if isinstance(s, Copy) and s.src.obj == "a")
    tensor = kernel.object("a")
    assert isinstance(tensor, Tensor)
    assert lines(copy, copy.src, tensor, PRODUCT, 32) == 4 * 16 * 8
    store = next(s for s in walk(kernel.body) if isinstance(s, Copy) and s.dst.obj == "c")
    out = kernel.object("c")
    assert isinstance(out, Tensor)
    assert lines(store, store.dst, out, PRODUCT, 32) == 64  # 128 bytes of each row at a time


def test_a_single_element_is_one_line_of_each_warp() -> None:
    kernel = explicit("row_sum", (), ())
    copy = next(s for s in walk(kernel.body) if isinstance(s, Copy) and s.dst.obj == "out")
    out = kernel.object("out")
    assert isinstance(out, Tensor) and copy.shape == ()
    assert lines(copy, copy.dst, out, {"M": 64, "N": 512}, 32) == kernel.num_warps
    assert work_of(kernel, {"M": 64, "N": 512}).requests > 0


def test_masked_elements_do_not_move() -> None:
    kernel = explicit("rmsnorm", (), ())
    copy = next(s for s in walk(kernel.body) if isinstance(s, Copy) and s.src.obj == "x")
    assert active(copy, {"M": 64, "N": 8192}) == 1.0
    assert active(copy, {"M": 64, "N": 2048}) == 0.25


def test_registers_are_those_that_live_together() -> None:
    """Accumulators of 64 x 64 on 4 warps are 32 registers, the operands of a step 16 each; the result comes after."""
    assert held_registers(explicit("product", (), ())) == 32 + 16 + 16
    tall = tuple({"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 4}.items())
    specialised = explicit("product", SPECIALISED, tall)
    assert exceeded(specialised, 8) == "" and "128 of its 240" in exceeded(specialised, 150)
