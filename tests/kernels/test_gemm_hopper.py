"""What matmul runs on Hopper, emitted for sm_90a and run on the host: roles, copy engine, wgmma, bulk stores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from argus.backend.emit import emit
from argus.frontend import Options, check, parse
from argus.ir.nodes import Kernel, Roles
from argus.kernels import operands
from argus.kernels.product_tile import Tile
from argus.passes import lower
from tests.backend.host import run
from tests.kernels.common import random, source_of

TILE = Tile(64, 64, 64, 2, 4, 4)
EIGHT = torch.float8_e4m3fn
Case = tuple[Tile, tuple[int, int, int], torch.dtype, str, dict[str, Any]]
CASES: dict[str, Case] = {
    "rows": (TILE, (72, 136, 200), torch.bfloat16, "nt", {"bias": True, "residual": True}),
    "columns": (TILE, (72, 136, 104), torch.float16, "tn", {}),
    "few rows, two panels deep": (Tile(64, 8, 128, 2, 4, 4, True), (5, 136, 200), torch.bfloat16, "nt", {"bias": True}),
    "float8": (Tile(64, 64, 128, 2, 4, 4), (72, 72, 208), EIGHT, "nt", {"scaled": True}),
    "tfloat32": (Tile(64, 64, 32, 2, 4, 4), (72, 72, 84), torch.float32, "nt", {}),
    "two warpgroups": (
        Tile(128, 64, 64, 2, 8, 4),
        (136, 72, 104),
        torch.bfloat16,
        "nt",
        {"bias": True, "residual": True},
    ),
    "in turns": (
        Tile(128, 72, 64, 2, 4, 4, schedule="pingpong"),
        (136, 152, 104),
        torch.bfloat16,
        "nt",
        {"bias": True, "residual": True},
    ),
    "in turns, swapped": (
        Tile(128, 40, 64, 2, 4, 4, True, schedule="pingpong"),
        (72, 136, 104),
        torch.bfloat16,
        "nt",
        {"bias": True},
    ),
    "256 rows": (Tile(256, 24, 64, 2, 8, 4), (264, 40, 72), torch.bfloat16, "nt", {}),
    "two warpgroups, columns": (Tile(128, 64, 64, 2, 8, 4), (136, 72, 104), torch.float16, "tn", {}),
    "two warpgroups, odd rows": (
        Tile(128, 64, 64, 2, 8, 4),
        (131, 69, 67),
        torch.bfloat16,
        "nt",
        {"alignments": {"a": 2, "b": 2, "c": 2}},
    ),
    "odd rows": (TILE, (67, 69, 131), torch.bfloat16, "nt", {"bias": True, "alignments": {"a": 2, "b": 2, "c": 2}}),
    "odd columns": (TILE, (67, 69, 80), torch.float16, "tn", {"alignments": {"a": 2, "b": 2, "c": 2}}),
    "one odd operand": (
        Tile(64, 64, 64, 2, 4, 8),
        (67, 72, 80),
        torch.bfloat16,
        "tt",
        {"alignments": {"a": 2, "b": 16}},
    ),
    "odd float8": (Tile(64, 64, 128, 2, 4, 4), (65, 66, 135), EIGHT, "nt", {"alignments": {"a": 1, "b": 1, "c": 4}}),
}


def array(x: torch.Tensor) -> Any:
    """The elements of a dense tensor as the host's runner takes them."""
    names = {torch.bfloat16: (torch.int16, np.uint16), EIGHT: (torch.uint8, np.uint8)}
    if x.dtype not in names:
        return x.numpy()
    same_bits, numpy_dtype = names[x.dtype]
    return x.view(same_bits).numpy().view(numpy_dtype)


def lowered(tile: Tile, constants: dict[str, object], alignments: dict[str, int]) -> Kernel:
    chosen = {name: value for name, value in tile.constants.items() if name != "num_warps"}
    options = Options("sm_90a", tile.num_warps, {**constants, **chosen}, alignments)
    return lower(check(parse(source_of("gemm")), "gemm", options), "sm_90a")


def test_warpgroups_that_do_alike_are_emitted_once() -> None:
    """Half of the text to compile; `test_values` runs it."""
    constants: dict[str, object] = {"A": "M K", "B": "N K", "C": "M N"}
    text = emit(lowered(CASES["256 rows"][0], constants, {}))
    assert "const int role_number = warp / 4;" in text and text.count("argus::wgmma_fence();") == 1
    assert emit(lowered(CASES["in turns"][0], constants, {})).count("argus::wgmma_fence();") == 2


@pytest.mark.parametrize("case", CASES)
def test_values(case: str, require_tool: Any) -> None:
    require_tool("g++", "clang++", "c++")
    tile, (m, n, k), dtype, layout, more = CASES[case]
    shapes = ((k, m) if layout[0] == "t" else (m, k), (k, n) if layout[1] == "n" else (n, k))
    a, b = ((random(*shape, seed=i) / 4).to(dtype) for i, shape in enumerate(shapes))
    a, b = a.t() if layout[0] == "t" else a, b if layout[1] == "n" else b.t()
    c = torch.full((m, n), float("nan"), dtype=torch.bfloat16 if dtype is EIGHT else dtype)
    bias = random(n, seed=3) if "bias" in more else None
    residual = random(m, n, seed=4).to(torch.bfloat16) if "residual" in more else None
    scale = (torch.rand(m) + 0.5, torch.rand(n) + 0.5) if "scaled" in more else (None, None)
    request = operands.request(a, b, c, bias, residual, *scale, None)
    passed, constants = operands.arguments(operands.turned(request) if tile.swapped else request, True, torch.ones(1))
    kernel = lowered(tile, {**constants, "A_ONCE": tile.swapped}, more.get("alignments", {}))
    assert any(isinstance(s, Roles) for s in kernel.body)
    named = dict(zip((t.name for t in kernel.tensors), map(array, passed), strict=True))
    rows, columns = (n, m) if tile.swapped else (m, n)
    sizes = {"M": rows, "N": columns, "K": k, "lda": passed[0].stride(0), "ldb": passed[1].stride(0)}
    run(kernel, (-(-rows // tile.block_m), -(-columns // tile.block_n)), **named, **sizes)
    exact = a.double() @ b.double() if dtype is not EIGHT else a.float().double() @ b.float().double()
    if scale[0] is not None and scale[1] is not None:
        exact = exact * scale[0][:, None] * scale[1]
    exact = exact + (0 if bias is None else bias.double()) + (0 if residual is None else residual.double())
    eps = 2e-2 if dtype is not torch.float32 else 5e-3
    torch.testing.assert_close(c.double(), exact, rtol=eps, atol=eps)
