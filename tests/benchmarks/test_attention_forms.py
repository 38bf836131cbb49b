"""The benchmark of attention's forms: what it counts, and that its sides agree with float64 where no GPU is needed."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from benchmarks.attention_forms import CASES, OURS, Case, error_of, operands_of, sides_of, uneven  # noqa: E402

ROUNDED = 8 * 2 * 2**-9
"""Weights and results are rounded to bfloat16, and the row of one key has elements of 8 times the root mean square."""


def test_pairs_are_those_that_are_seen() -> None:
    case = Case("window", (70, 9), 3, 1, 64, window=20)
    seen = sum(1 for n in case.lengths for i in range(n) for j in range(n) if 0 <= i - j < case.window)
    assert case.operations == 4 * 3 * 64 * seen
    assert replace(case, causal=False, window=0).operations == 4 * 3 * 64 * (70 * 70 + 9 * 9)
    assert Case("decode", (32, 16), 4, 2, 64, page=16).bytes_read == 2 * 2 * 2 * 64 * 48


def test_uneven_lengths_are_all_tokens() -> None:
    for case in CASES:
        assert min(case.lengths) > 0
    lengths = uneven(16, 4096, 1)
    assert sum(lengths) == 4096 and max(lengths) > 20 * min(lengths)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        Case("window", (70, 70), 2, 1, 64, window=20),
        Case("soft cap", (40,), 1, 1, 64, cap=2.0),
        Case("packed", (70, 9, 33), 2, 1, 64),
        Case("decode", (32, 32), 4, 2, 64, page=16),
    ],
    ids=str,
)
def test_ours_is_what_is_compared(case: Case, require_tool: object, granted: None) -> None:
    require_tool("g++", "clang++", "c++")  # type: ignore[operator]
    torch.manual_seed(0)
    operands = operands_of("cpu", case)
    found = sides_of(case)[OURS]()(*operands)
    assert error_of(case, found, operands) < ROUNDED
    assert error_of(case, 1.1 * found, operands) > 2 * ROUNDED
