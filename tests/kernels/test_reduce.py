"""Reductions along any dimension: results against float64, parts, special values, strides, proofs."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.diagnostic import LaunchError  # noqa: E402
from argus.kernels import reduce  # noqa: E402
from argus.kernels.reduce_cuts import across_rows, along_rows  # noqa: E402
from tests.kernels.common import DTYPE_NAMES, TARGETS, assert_proved, random  # noqa: E402

pytestmark = pytest.mark.slow


def exact(x: torch.Tensor, op: str, dim: int | None, keepdim: bool) -> Any:
    dims = tuple(range(x.ndim)) if dim is None else dim
    function = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax}[op]
    return function(x.double(), dim=dims, keepdim=keepdim)


def close(got: torch.Tensor, wanted: torch.Tensor, terms: int) -> None:
    assert got.shape == wanted.shape
    eps = torch.finfo(got.dtype).eps
    torch.testing.assert_close(got.double(), wanted, rtol=eps, atol=1e-6 * max(1, terms), equal_nan=True)


@pytest.mark.product
@pytest.mark.parametrize("op", ["sum", "mean", "max"])
@pytest.mark.parametrize("dtype", DTYPE_NAMES)
@pytest.mark.parametrize(
    ("shape", "dim"),
    [((5,), 0), ((3, 7), 1), ((3, 7), 0), ((2, 3, 5), -2), ((2, 3, 5), None), ((1, 1), 1), ((2, 9), 0)],
)
def test_results(device: str, shape: tuple[int, ...], dim: int | None, dtype: str, op: str) -> None:
    x = random(*shape, dtype=dtype, device=device)
    for keepdim in (False, True):
        close(reduce(x, op, dim, keepdim), exact(x, op, dim, keepdim), x.numel())


@pytest.mark.product
@pytest.mark.parametrize(("shape", "dim"), [((70001,), 0), ((2, 70000), 1), ((70001, 3), 0), ((2, 33000, 5), 1)])
def test_long_reductions_are_cut_into_parts(device: str, shape: tuple[int, ...], dim: int) -> None:
    x = random(*shape, device=device)
    for op in ("sum", "max"):
        close(reduce(x, op, dim), exact(x, op, dim, False), shape[dim])


def test_short_rows_leave_few_lanes_idle() -> None:
    for length in range(8, 257, 8):
        cut = along_rows(100000, length, 8, 2).constants
        held = cut["EACH"] * cut["BLOCK"]
        assert held >= length and held - length < cut["BLOCK"] <= 64 and cut["EACH"] <= 4
        assert cut["ROWS"] * cut["BLOCK"] % (128 * 8) == 0


def test_rows_are_cut_where_that_pays_for_a_second_launch() -> None:
    """By what was measured: 128 x 30592 takes 6.7 microseconds in one launch, 15 to 16 in two."""
    whole = [(128, 30592), (354, 30592), (264, 131072), (1000, 16384), (150, 20001), (16384, 4096)]
    assert [along_rows(*shape, 8, 2).parts for shape in whole] == [1] * len(whole)
    assert all(along_rows(rows, 1 << 20, 8, 2).parts > 1 for rows in (1, 8, 128))


def test_rows_of_odd_lengths(device: str) -> None:
    wide = random(9, 1010, dtype="bfloat16", device=device)
    odd = wide.flatten()[: 9 * 1001].view(9, 1001)
    for x in (odd, odd[1:], wide[:, :1001], wide[:, 1:1000]):
        for op in ("sum", "max"):
            close(reduce(x, op, -1), exact(x, op, -1, False), 1001)
    x = random(9, 2001, dtype="bfloat16", device=device)
    for op in ("sum", "mean", "max"):
        close(reduce(x, op, -1), exact(x, op, -1, False), 2001)


@pytest.mark.parametrize(("width", "itemsize"), [(8, 2), (1, 2), (4, 4), (1, 4)])
def test_columns_are_cut_into_whole_turns_and_joined_at_once(width: int, itemsize: int) -> None:
    for length in (1, 300, 4097, 65536, 1000003):
        for columns in (1, 64, 777, 3000, 100001):
            cut = across_rows(1, length, columns, width, itemsize)
            assert (cut.parts - 1) * cut.length < length <= cut.parts * cut.length
            assert cut.parts == 1 or cut.length % (cut.constants["EACH"] * cut.constants["ROWS"]) == 0
            assert cut.parts == 1 or across_rows(1, cut.parts, columns, 4, 4).parts == 1


def test_nothing_to_reduce(device: str) -> None:
    x = torch.zeros(3, 0, 2, device=device)
    assert reduce(x, "sum", 1).tolist() == [[0, 0]] * 3
    assert bool(reduce(x, "mean", 1).isnan().all())
    assert reduce(x, "sum", 0).shape == (0, 2) and reduce(x, "max", 2).shape == (3, 0)


def test_special_values(device: str) -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[0.0, nan, 1.0], [inf, -inf, 1.0], [-inf, -inf, -inf]], device=device)
    for dim in (0, 1):
        for op in ("sum", "mean", "max"):
            close(reduce(x, op, dim), exact(x, op, dim, False), 3)


def test_any_strides(device: str) -> None:
    wide = random(6, 40, dtype="bfloat16", device=device)
    for x in (wide[:, 3:20], wide[::2, :8], wide.t(), wide[:, ::3], wide[0], wide[:, :33].repeat(50, 1), wide[:, :0]):
        for dim in range(x.ndim):
            close(reduce(x, "sum", dim), exact(x, "sum", dim, False), 40)


def test_wrong_arguments_are_refused() -> None:
    x = torch.zeros(3, 0)
    for op, dim, message in (("min", 0, "no reduction `min`"), ("sum", 2, "no dimension 2"), ("max", 1, "no elements")):
        with pytest.raises(LaunchError, match=message):
            reduce(x, op, dim)


@pytest.mark.product
@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.parametrize("target", TARGETS)
def test_proved(target: str, op: str) -> None:
    assert_proved("reduce", "reduce_last", target, OP=op)
    assert_proved("reduce", "reduce_last", target, OP=op, DTYPE="float32", ROWS=1, BLOCK=1024, alignment=4)
    assert_proved("reduce", "reduce_last", target, OP=op, EACH=3, ROWS=128, BLOCK=8, alignment=2)
    assert_proved("reduce", "reduce_last", target, OP=op, EACH=3, ROWS=32, BLOCK=32)
    assert_proved("reduce", "reduce_last", target, OP=op, STEP=5, WIDTH=8, alignment=2)
    assert_proved("reduce", "reduce_odd_rows", target, OP=op, FROM=3072, alignment=2, num_warps=6)
    assert_proved("reduce", "reduce_inner", target, OP=op)
    assert_proved("reduce", "reduce_inner", target, OP=op, OUT="float32", ROWS=8, BLOCK=128)
    assert_proved("reduce", "reduce_inner", target, OP=op, ROWS=128, BLOCK=8, alignment=2)
    assert_proved("reduce", "reduce_inner", target, OP=op, DTYPE="float32", CUT=False, ROWS=64, BLOCK=16, num_warps=8)
    assert_proved("reduce", "join_parts", target, OP=op)
    assert_proved("reduce", "join_parts", target, OP=op, DTYPE="float32", ROWS=1024, BLOCK=1, alignment=4, num_warps=8)


def test_prepared_calls_follow_the_tensor(device: str) -> None:
    """Later calls of a shape run what the first prepared: on other data, elsewhere, and after other shapes."""
    room = random(3, 20002, device=device)
    part = room[:, :6002]
    for turn in range(2):
        for x in (room, part, part[:, 1:], part[:, :6000], part[1:, 1:], part.t(), part[:, ::2], part[:0]):
            for dim in (0, 1, None):
                keepdim = (turn + x.shape[0]) % 2 == 0
                close(reduce(x, "sum", dim, keepdim), exact(x, "sum", dim, keepdim), x.numel())
        room += 1


def test_what_could_not_be_prepared_is_still_refused(device: str) -> None:
    x = random(4, 8, device=device)
    for other in (x.to(torch.float64), x.to(torch.int32)):
        reduce(x, "sum", 1)
        with pytest.raises(LaunchError):
            reduce(other, "sum", 1)
    close(reduce(torch._neg_view(x), "sum", 1), -x.double().sum(1), 8)
