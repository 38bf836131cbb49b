"""Facts about the contents of index tensors: what is proved with each of them, and not without it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus import compile
from argus.diagnostic import SourceError, Verdict
from argus.frontend import Options
from argus.ir.contents import ARRANGEMENTS, offence, outside
from argus.ir.nodes import Kernel
from argus.ir.text import print_kernel
from argus.ir.text_parser import parse_kernel
from argus.simulate.index_contents import Declared, drawn
from argus.source import SourceFile
from argus.verify import Report, verify

HEAD = """
import argus
import argus.language as al

@argus.kernel
def kernel(x: al.Tensor[al.float32, "N 128"], index: al.Tensor[al.int32, "T"]):
    N, T = x.shape[0], index.shape[0]
"""
ROWS = """
    al.requires(al.in_range(index, 0, N))
    at = al.load(index[al.grid(T)])
    al.store(x[at, :], al.load(x[at, :]) * 2.0)
"""
TILES = """
    al.requires(al.in_range(index, 0, N))
    t = al.grid(al.cdiv(T, 32)) * 32 + al.arange(32)
    at = al.load(index[t], mask=t < T)
    live = (t < T)[:, None]
    al.store(x[at, :], al.load(x[at, :], mask=live) * 2.0, mask=live)
"""
SEGMENTS = """
    al.requires((T > 0) & (N < 2**30))
    al.requires(al.in_range(index, 0, N + 1))
    s = al.grid(T - 1)
    lo, hi = al.load(index[s]), al.load(index[s + 1])
    for r in range(lo, hi):
        al.store(x[r, :], al.load(x[r, :]) * 2.0)
"""
FACTS = [
    (ROWS, "al.distinct(index)"),
    (TILES, "al.distinct(index)"),
    (ROWS.replace("    al.requires(al.in_range(index, 0, N))\n", "    al.requires(T == N)\n"), "al.permutation(index)"),
    (SEGMENTS, "al.sorted(index)"),
    (SEGMENTS.replace("    al.requires(al.in_range(index, 0, N + 1))\n", ""), "al.offsets(index, N)"),
]


def lowered(text: str, target: str = "sm_80") -> Kernel:
    source = SourceFile("kernel.py", text)
    return compile.lower(compile.elaborate(source, "kernel", Options(target=target)), target)


def proved(text: str) -> Report:
    return verify(lowered(text))


@pytest.mark.parametrize(("body", "fact"), FACTS)
def test_a_fact_decides(body: str, fact: str) -> None:
    stated = f"{HEAD}    al.requires({fact})\n{body}"
    assert proved(stated).verdict is Verdict.PROVED
    assert proved(HEAD + body).verdict is Verdict.REFUTED


EVERY_ROW = """
    al.requires(T == N)
    al.requires(al.distinct(index))
    al.requires(al.in_range(index, 0, N))
    at = al.load(index[al.grid(T)])
    al.store(x[at, :], al.zeros((128,), al.float32))
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("T == N", "T <= N"),
        ("index, 0, N)", "index, 0, N + 1)"),
        ("distinct", "sorted"),
        ("al.grid(T)", "al.grid(T - 1)"),
    ],
)
def test_as_many_distinct_numbers_as_rows_are_all_rows(before: str, after: str) -> None:
    assert before in EVERY_ROW
    assert proved(HEAD + EVERY_ROW).verdict is Verdict.PROVED
    assert proved((HEAD + EVERY_ROW).replace(before, after)).verdict is not Verdict.PROVED


@pytest.mark.parametrize("place", ["i // 2", "0 * i"])
def test_two_blocks_that_read_one_place_are_refuted(place: str) -> None:
    text = f"{HEAD}    al.requires(al.distinct(index))\n{ROWS}"
    text = text.replace("    at = al.load(index[al.grid(T)])", "    i = al.grid(T)\n    at = al.load(index[i])")
    assert proved(text).verdict is Verdict.PROVED
    assert proved(text.replace("index[i]", f"index[{place}]")).verdict is not Verdict.PROVED


def test_segments_one_row_too_long_are_refuted() -> None:
    text = f"{HEAD}    al.requires(al.offsets(index, N))\n{SEGMENTS}"
    assert proved(text).verdict is Verdict.PROVED
    assert proved(text.replace("range(lo, hi)", "range(lo, al.minimum(hi + 1, N))")).verdict is Verdict.REFUTED


def test_the_longest_segment_bounds_what_is_in_one() -> None:
    longest = SEGMENTS.replace(
        "    for r in range(lo, hi):\n        al.store(x[r, :], al.load(x[r, :]) * 2.0)\n",
        """
    al.store(x[hi - lo, :], al.zeros((1, 128), al.float32))
""",
    ).replace("x[hi - lo, :]", "x[hi - lo : hi - lo + 1, :]")
    fact = "    al.requires(al.offsets(index, N, longest=N - 1))\n"
    bounds = {d.property for d in proved(HEAD + fact + longest).diagnostics}
    assert "bounds" not in bounds
    assert "bounds" in {d.property for d in proved(HEAD + fact.replace(", longest=N - 1", "") + longest).diagnostics}


# ---------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "facts",
    [
        ("al.offsets(index, N - 9)", "N < 9"),
        ("al.in_range(index, 0, 3)", "T == 4", "al.distinct(index)"),
        ("al.offsets(index, 5, longest=0)",),
        ("T == 1", "N == 2", "al.offsets(index, N)"),
    ],
)
def test_contradictory_facts(facts: tuple[str, ...]) -> None:
    body = "".join(f"    al.requires({fact})\n" for fact in facts)
    report = proved(HEAD + body + "    al.store(x[al.grid(N), :], al.zeros((128,), al.float32))\n")
    assert report.verdict is Verdict.REFUTED
    (found,) = (d for d in report.diagnostics if d.code == "contradictory-requires")
    assert found.span.line == HEAD.count("\n") + len(facts)


@pytest.mark.parametrize(
    ("fact", "message"),
    [
        ("al.sorted(x)", "about a whole integer tensor"),
        ("al.distinct(index[0])", "about a whole integer tensor"),
        ("al.offsets(index, 0.5)", "cannot become int32"),
        ("al.permutation(table)", "a tensor of 1 dimension"),
    ],
)
def test_what_is_no_fact(fact: str, message: str) -> None:
    head = HEAD.replace('"T"])', '"T"], table: al.Tensor[al.int32, "T T"])')
    with pytest.raises(SourceError) as caught:
        lowered(f"{head}    al.requires({fact})\n{ROWS}")
    assert message in caught.value.diagnostics[0].message


def test_text_form() -> None:
    facts = ("al.sorted(index)", "al.distinct(index)", "al.permutation(index)", "al.offsets(index, N, longest=T)")
    kernel = lowered(HEAD + "".join(f"    al.requires({fact})\n" for fact in facts) + ROWS)
    assert parse_kernel(print_kernel(kernel)) == kernel


# ---------------------------------------------------------------------------- concrete contents


@pytest.mark.parametrize(
    ("how", "values", "message"),
    [
        ("sorted", [[0, 0, 3], [5, 7, 6]], "[1, 2] is less than [1, 1]"),
        ("distinct", [[4, 2], [1, 4]], "[0, 0] and [1, 1] are both 4"),
        ("permutation", [2, 0, 2], "[0] and [2] are both 2"),
        ("offsets", [1, 2, 9], "[0] is 1, and must be 0"),
        ("offsets", [0, 2, 8], "[2] is 8, and must be 9"),
        ("offsets", [0, 4, 2, 9], "[2] is less than [1]"),
        ("offsets", [0, 1, 7, 9], "[2] is more than 5 above [1]"),
        ("offsets", [], "has no elements, and offsets begin with 0"),
    ],
)
def test_the_first_offence_is_named(how: str, values: list[object], message: str) -> None:
    assert offence(how, np.array(values, np.int32), 9, 5) == message


def test_what_keeps_its_facts() -> None:
    assert outside(np.array([[3, 1], [0, 2]]), 0, 3) == "[0, 0] is 3, and must be in [0, 3)"
    assert outside(np.array([], np.int32), 0, 3) is None
    kept = {"sorted": [[1, 1], [0, 9]], "distinct": [[3, 0]], "permutation": [1, 0], "offsets": [0, 4, 9]}
    for how, values in kept.items():
        assert offence(how, np.array(values), 9, 5) is None
    assert offence("distinct", np.array([], np.int32)) is None


@given(
    how=st.sets(st.sampled_from(ARRANGEMENTS), max_size=1),
    count=st.integers(0, 9),
    high=st.integers(0, 12),
    longest=st.none() | st.integers(0, 4),
    pins=st.dictionaries(st.integers(0, 8), st.integers(0, 12), max_size=2),
    seed=st.integers(0, 99),
)
def test_contents_are_drawn_as_declared(
    how: set[str], count: int, high: int, longest: int | None, pins: dict[int, int], seed: int
) -> None:
    """What is drawn keeps the facts, and holds what was asked for; without wishes it is found where there is any."""
    what = Declared(0, high + ("offsets" in how), frozenset(how), high, longest)
    noise = np.random.default_rng(seed)
    wishes = {place: value for place, value in pins.items() if place < count}
    found = drawn(what, (count,), lambda n: noise.integers(0, 2**60, n).astype(np.uint64), wishes)
    if found is None:
        assert wishes or not what.possible((count,))
        return
    assert what.kept(found) and all(found[place] == value for place, value in wishes.items())
