"""Matrix products with the measured table of tiles and without it, where the model alone chooses, in one run.

Only products have a measured table (`argus/kernels/tiles.json`). A row says whether its class of shapes is in the
table, and whether the two choices differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from argus.kernels.gemm import gemm as kernel
from argus.kernels.matmul import Matmul
from argus.kernels.product_tile import ProductShape, Tile
from argus.kernels.table import shape_class, shipped, tile_for
from argus.kernels.tile_times import ranked
from benchmarks import gemm, measure
from benchmarks.gemm import Case, Product
from benchmarks.table import Results

ALONE = "the model alone"


def run(cases: Sequence[Case], batches: int) -> Results:
    """One row a case, and the geometric means. Needs a GPU."""
    import torch

    measure.needs_gpu("tiles")
    torch.set_float32_matmul_precision("high")  # tf32

    def rows_for(case: Case) -> tuple[list[measure.Row], list[str]]:
        seen: list[ProductShape] = []
        products = {**gemm.products(torch, "cuda", case, ()), ALONE: _alone(torch, case, seen)}
        rows, problems = gemm.rows_of(torch, "cuda", case, products, batches, measure.batch)
        with_table, without = rows
        names = ("M", "N", "K", "dtype", "layout", "library us")
        row = {name: with_table[name] for name in names}
        found = tile_for(seen[0])
        row |= {"in the table": "yes" if shape_class(seen[0]) in shipped() else "no"}
        row |= {"tiles": "same" if found == model_tile(seen[0]) else "differ"}
        for name, one in (("with", with_table), ("without", without)):
            row |= {f"{name} us": one["us"], f"{name} / library": one["speed / library"]}
        return [row], problems

    def told(row: measure.Row) -> str:
        return f"{row['with / library']} of the library with the table, {row['without / library']} without"

    rows, notes = measure.through(cases, rows_for, told)
    means = {k: v for name in ("with", "without") for k, v in measure.means(rows, f"{name} / library").items()}
    return Results("products with and without the table of tiles", rows, (measure.manner(batches), *notes), means)


def model_tile(problem: ProductShape) -> Tile:
    """Return the tile that the model expects to be fastest."""
    return ranked(problem)[0][0]


def _alone(torch: Any, case: Case, seen: list[ProductShape]) -> Product:
    """Return the product whose tile the model chooses; the problems that it chose for are appended to `seen`."""

    def choose(problem: ProductShape) -> Tile:
        seen.append(problem)
        return model_tile(problem)

    product, one = Matmul(kernel, choose), torch.ones(1, device="cuda")
    scales = {"scale_a": one, "scale_b": one} if case.dtype == "fp8" else {}

    def ours(a: Any, b: Any, c: Any) -> None:
        product(a, b.t(), out=c, **scales)

    return ours
