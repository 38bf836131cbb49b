"""Axes of the grid that program ids are decoded to: proved, and the same blocks as before."""

from __future__ import annotations

import numpy as np
import pytest

from argus.compile import elaborate, lower, verify
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.frontend.axes import separate_axes
from argus.ir.nodes import Kernel
from argus.ir.text import print_expr
from argus.simulate import simulate
from argus.source import SourceFile

TEXT = """
import argus
import argus.language as al

@argus.kernel(num_warps=1)
def scale(x: al.Tensor[al.float32, "A B C N"], out: al.Tensor[al.float32, "A B C N"], BLOCK: al.constexpr = 32):
    A, B, C, N = x.shape
    al.spec(out, lambda a, b, c, n: x[a, b, c, n] * 2.0)
    tiles = al.cdiv(N, BLOCK)
    {decode}
    n = t * BLOCK + al.arange(BLOCK)
    al.store(out[a, b, c, n], al.load(x[a, b, c, n], mask=n < N) * 2.0, mask=n < N)
"""

SEPARATED = {
    "quotients of quotients": (
        "p, t = al.grid(A * B * C, tiles); a = p // C // B; b = p // C % B; c = p % C", "C, B, A, tiles"),
    "quotients by products": (
        "p, t = al.grid(A * B * C, tiles); a = p // (C * B); b = p // C % B; c = p % (B * C) % C", "C, B, A, tiles"),
    "differences": (
        "t, p = al.grid(tiles, A * B * C); a = p // (B * C); r = p - a * (B * C); b = r // C; c = r - C * b",
        "tiles, C, B, A"),
    "the last factor counts slowest": (
        "t, p = al.grid(tiles, A * B * C); a = p % A; b = p // A % B; c = p // (A * B)", "tiles, A, B, C"),
    "two axes": (
        "q, p = al.grid(C * tiles, A * B); a = p // B; b = p % B; t = q % tiles; c = q // tiles", "tiles, C, B, A"),
    "a part stays together": (
        "p, c, q = al.grid(A * B * tiles, C, 1); t = p % tiles; a = p // tiles // B; b = p // tiles % B",
        "tiles, B, A, C, 1"),
}  # fmt: skip


def tile_ir(decode: str) -> Kernel:
    text = TEXT.replace("{decode}", decode.replace("; ", "\n    "))
    return elaborate(SourceFile("scale.py", text), "scale", Options(target="sm_80", default_alignment=4))


def axes(kernel: Kernel) -> str:
    return ", ".join(print_expr(e) for e in kernel.grid or ()).replace("(N + 31) // 32", "tiles")


@pytest.mark.parametrize("name", SEPARATED)
def test_an_axis_for_each_part_of_a_program_id(name: str) -> None:
    decode, grid = SEPARATED[name]
    separated = tile_ir(decode)
    assert separated.flat
    assert axes(separated) == grid
    assert separate_axes(separated) is separated
    explicit = lower(separated, "sm_80")
    assert explicit.flat and explicit.grid == separated.grid
    assert verify(explicit).verdict is Verdict.PROVED
    x = np.random.default_rng(3).standard_normal((2, 3, 5, 33)).astype(np.float32)
    outcome = simulate(explicit, {"x": x, "out": np.zeros_like(x)})
    assert outcome.ok, outcome.violations
    np.testing.assert_array_equal(outcome.tensors["out"], x * 2)


KEPT = {
    "the id itself is used, too": "t, c, p = al.grid(tiles, C, A * B); a = p // B; b = p - a",
    "another divisor": "t, c, p = al.grid(tiles, C, A * B); a = p // C; b = p % C",
    "constants alone": "t, c, p = al.grid(tiles, C, A * 4); a = p // 4; b = p % 4",
    "its blocks run in groups": "p, c = al.grid(A * B * tiles, C, group=2); t = p % tiles; a = p // tiles // B\n"
    "    b = p // tiles % B",
}


@pytest.mark.parametrize("name", KEPT)
def test_an_axis_that_stays(name: str) -> None:
    kernel = tile_ir(KEPT[name])
    assert not kernel.flat and len(kernel.grid or ()) == KEPT[name].split("al.grid(")[0].count(",") + 1


def test_a_divided_program_id_is_met_with_advice() -> None:
    report = verify(lower(tile_ir(KEPT["another divisor"]), "sm_80"))
    assert report.verdict is not Verdict.PROVED
    (found,) = (d for d in report.diagnostics if d.code == "block-races-unknown")
    assert "declare an axis of the grid for each part" in found.help


def test_ids_of_programs_that_nobody_counted_are_met_with_advice() -> None:
    text = """
import argus
import argus.language as al

@argus.kernel
def k(x: al.Tensor[al.float32, "R"], out: al.Tensor[al.float32, "R"]):
    r = al.program_id(0)
    al.store(out[r], al.load(x[r]))
"""
    source = SourceFile("k.py", text)
    report = verify(lower(elaborate(source, "k", Options(target="sm_80", default_alignment=4)), "sm_80"))
    found = [d for d in report.diagnostics if d.code == "out-of-bounds"]
    assert found and all("al.grid" in d.help for d in found)
