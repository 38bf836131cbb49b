"""Masks that preconditions answer are not asked, and what is asked of the others stays right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import argus
import argus.language as al
from argus.backend.cpu.toolchain import find_compiler
from argus.backend.emit import emit
from argus.backend.emit.registers import counters, digits
from argus.backend.emit.scope import Domain
from argus.compile import elaborate, lower
from argus.frontend import Options
from argus.layout import parse_fragment
from argus.source import NO_SPAN


@argus.kernel
def doubled(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "N"], FROM: al.constexpr = 0):
    N = x.shape[0]
    al.grid(1)
    al.requires((FROM <= N <= 1024) & (FROM - 1 < N) & (N > -1) & (N % 1 == 0))
    cols = al.arange(1024)
    al.store(out[cols], al.load(x[cols], mask=cols < N) * 2.0, mask=cols < N)


def text(least: int, alignment: int = 4) -> str:
    options = Options("sm_80", None, {"FROM": least}, {"x": alignment, "out": alignment})
    source = doubled.source.text
    return emit(lower(elaborate(source.file, source.name, options), "sm_80"))


@pytest.mark.parametrize(
    ("least", "alignment", "asked"),
    [
        (0, 4, "(t0 + v0 * 128 < N,"),
        (127, 4, "(t0 + v0 * 128 < N,"),
        (128, 4, "(v0 < 1 || t0 + v0 * 128 < N,"),
        (1000, 4, "(v0 < 7 || t0 + v0 * 128 < N,"),
        (1024, 4, "_global<1>("),
        (900, 16, "(v0 < 1 || t0 + v0 * 512 < N,"),
    ],
)
def test_what_a_precondition_says_is_not_asked(least: int, alignment: int, asked: str) -> None:
    assert text(least, alignment).count(asked) == 2


@pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
def test_elements_beyond_the_end_stay_outside() -> None:
    for size in (900, 901, 1023, 1024):
        x = np.arange(size, dtype=np.float32)
        out = np.full(size + 8, np.nan, np.float32)
        doubled(x, out[:size], FROM=900)
        np.testing.assert_array_equal(out[:size], 2 * x)
        assert np.isnan(out[size:]).all()


LAYOUTS = ("[1024 | t 128@0 | v 8@0*128]", "[1024 | t 32@0*4 | v 4@0 8@0*128]", "[1024 | t 8@0*128 4@0 | v 32@0*4]",
           "[4x64 | t 4@0 16@1*4 | v 4@1]", "[1024 | t 64@0 | v 2@0*512 8@0*64]")  # fmt: skip


@given(st.sampled_from(LAYOUTS), st.integers(-5, 1100), st.booleans())
def test_it_holds_of_every_thread_and_of_no_further_turn(notation: str, bound: int, written_out: bool) -> None:
    layout = parse_fragment(notation)
    dim, loops = layout.rank - 1, digits(layout)
    table = counters(loops)
    places = Domain(None, layout, loops, NO_SPAN).coordinates()[dim]  # type: ignore[arg-type]  # text needs a writer
    below = (places < bound).all(axis=0)
    if written_out:
        for i, every in enumerate(below):
            fixed = {name: int(column[i]) for name, column in table.items()}
            assert Domain(None, layout, loops, NO_SPAN, fixed).below(dim, bound) == ("true" if every else None)  # type: ignore[arg-type]
        return
    found = Domain(None, layout, loops, NO_SPAN).below(dim, bound)  # type: ignore[arg-type]
    far = max(loops, key=lambda d: d.stride)
    turns = [below[table[far.name] == turn].all() for turn in range(far.extent)]
    assert found == ("true" if all(turns) else f"{far.name} < {sum(turns)}" if turns[0] else None)
