"""The benchmark of attention with more terms: what it counts, and that ours agrees with float64 without a GPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from benchmarks.attention_added import OURS, Case, error_of, operands_of, sides_of  # noqa: E402

ROUNDED = 8 * 2 * 2**-9
"""Weights and results are rounded to bfloat16, and the row of one key has elements of 8 times the root mean square."""


def test_what_is_counted() -> None:
    case = Case("192/128", 2, 70, 3, 1, 192, 128, window=20)
    seen = sum(1 for i in range(70) for j in range(70) if 0 <= i - j < 20)
    assert case.operations == 2 * 2 * 3 * (192 + 128) * seen
    assert Case("decode", 2, 32, 4, 2, 64, 64, page=16, cache="int8").bytes_read == 2 * 32 * 2 * 2 * 64
    assert Case("latent", 2, 32, 4, 1, 576, 512, page=16).bytes_read == 2 * 32 * 576 * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        Case("sinks", 1, 70, 2, 1, 64, 64, window=20),
        Case("bias", 1, 40, 2, 2, 64, 64),
        Case("decode", 2, 32, 4, 2, 64, 64, page=16, cache="int8"),
        Case("latent", 2, 32, 16, 1, 576, 512, page=16),
    ],
    ids=lambda case: case.form,
)
def test_ours_is_what_is_compared(case: Case, require_tool: object, granted: None) -> None:
    require_tool("g++", "clang++", "c++")  # type: ignore[operator]
    torch.manual_seed(0)
    operands = operands_of("cpu", case)
    found = sides_of(case)[OURS]()(*operands)
    assert error_of(case, found, operands) < ROUNDED
    assert error_of(case, 1.1 * found, operands) > 2 * ROUNDED
