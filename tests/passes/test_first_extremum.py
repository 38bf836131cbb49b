"""`al.argmax` and `al.argmin` are PyTorch's: the first of equals, the first NaN; proved, simulated and run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import argus.language as al
from argus.compile import elaborate, lower, verify
from argus.diagnostic import SourceError, Verdict
from argus.frontend import Options
from argus.frontend.decorator import kernel
from argus.ir.nodes import Kernel
from argus.simulate import simulate
from argus.source import SourceFile

Array = NDArray[Any]


@kernel(num_warps=2)
def rows(
    x: al.Tensor[al.float32, "R C"], most: al.Tensor[al.int32, "R"], least: al.Tensor[al.int32, "R"],
    BLOCK: al.constexpr = 64,
):  # fmt: skip
    R, C = x.shape
    al.requires(C <= BLOCK)
    r = al.grid(al.cdiv(R, 4)) * 4 + al.arange(4)
    c = al.arange(BLOCK)
    inside = (r[:, None] < R) & (c[None, :] < C)
    al.store(most[r], al.argmax(al.load(x[r[:, None], c], mask=inside, other=-float("inf")), 1), mask=r < R)
    al.store(least[r], al.argmin(al.load(x[r[:, None], c], mask=inside, other=float("inf")), 1), mask=r < R)


@kernel(num_warps=2)
def whole(x: al.Tensor[al.int32, "6 20"], out: al.Tensor[al.int32, "2"], columns: al.Tensor[al.int32, "1 20"]):
    p = al.grid(1)
    tile = al.load(x[:, :])
    al.store(out[p], al.argmax(tile))
    al.store(out[p + 1], al.argmin(-tile))
    al.store(columns[:, :], al.argmin(tile, 0, keep_dims=True))


def explicit(source: Any, target: str) -> Kernel:
    options = Options(target=target, default_alignment=4)
    return lower(elaborate(source.file, source.name, options), target)


def awkward() -> Array:
    """Rows of few different values, of infinities, with one NaN and with several."""
    x = np.random.default_rng(1).integers(0, 5, (11, 39)).astype(np.float32)
    x[2], x[3], x[4, 0], x[4, 1] = np.inf, -np.inf, 0.0, -0.0
    x[5, 7] = x[6, 3] = x[6, 30] = x[7, 0] = np.nan
    return x


def first(x: Array, extremum: Callable[[Array, Array], Array]) -> Array:
    """The definition: the first element that is NaN, or that no other one is beyond."""
    places = []
    for row in x:
        best = 0
        for place, value in enumerate(row):
            if not np.isnan(row[best]) and (np.isnan(value) or extremum(value, row[best])):
                best = place
        places.append(best)
    return np.array(places, np.int32)


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_places_of_rows(target: str) -> None:
    kernel, x = explicit(rows, target), awkward()
    assert verify(kernel).verdict is Verdict.PROVED
    empty = np.full(len(x), -1, np.int32)
    outcome = simulate(kernel, {"x": x, "most": empty, "least": empty.copy()})
    assert outcome.ok, outcome.violations
    np.testing.assert_array_equal(outcome.tensors["most"], first(x, np.greater))
    np.testing.assert_array_equal(outcome.tensors["least"], first(x, np.less))


def test_places_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    x = awkward()
    np.testing.assert_array_equal(first(x, np.greater), torch.from_numpy(x).argmax(1).numpy())
    np.testing.assert_array_equal(first(x, np.less), torch.from_numpy(x).argmin(1).numpy())


def test_places_in_a_whole_tile_and_in_columns() -> None:
    kernel = explicit(whole, "sm_80")
    assert verify(kernel).verdict is Verdict.PROVED
    x = np.random.default_rng(2).integers(-9, 9, (6, 20)).astype(np.int32)
    arguments = {"x": x, "out": np.zeros(2, np.int32), "columns": np.zeros((1, 20), np.int32)}
    outcome = simulate(kernel, arguments)
    assert outcome.ok, outcome.violations
    np.testing.assert_array_equal(outcome.tensors["out"], [x.argmax(), x.argmax()])
    np.testing.assert_array_equal(outcome.tensors["columns"], x.argmin(0)[None])


@pytest.mark.parametrize(
    ("value", "code"), [("al.argmax(p)", "bad-shape"), ("al.argmin(al.arange(4) < 2)", "type-mismatch")]
)
def test_what_has_no_extremum(value: str, code: str) -> None:
    text = f"""
import argus
import argus.language as al

@argus.kernel
def k(out: al.Tensor[al.int32, "1"]):
    p = al.grid(1)
    al.store(out[p], {value})
"""
    with pytest.raises(SourceError) as error:
        elaborate(SourceFile("k.py", text), "k", Options(target="sm_80"))
    assert [d.code for d in error.value.diagnostics] == [code]
    elaborate(SourceFile("k.py", text.replace(value, "al.argmax(al.arange(4))")), "k", Options(target="sm_80"))


def test_a_specification_does_not_order_computed_numbers() -> None:
    text = """
import argus
import argus.language as al

@argus.kernel
def k(x: al.Tensor[al.float32, "R 4"], out: al.Tensor[al.int32, "R"]):
    al.spec(out, lambda r: al.argmax(lambda c: x[r, c] * 3.0))
    r = al.grid(x.shape[0])
    al.store(out[r], al.argmax(al.load(x[r, :])))
"""
    with pytest.raises(SourceError, match="rounding would decide"):
        elaborate(SourceFile("k.py", text), "k", Options(target="sm_80"))
    elaborate(SourceFile("k.py", text.replace(" * 3.0", "")), "k", Options(target="sm_80"))
