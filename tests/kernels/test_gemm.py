"""matmul: its values on the CPU target against float64, for all layouts, dtypes and epilogues; proofs for GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import argus
import argus.language as al
from argus.diagnostic import LaunchError
from argus.kernels import matmul, operands
from argus.kernels.gemm import gelu, gemm
from argus.kernels.matmul import Matmul
from argus.kernels.operands import arguments, request
from argus.kernels.product_tile import Tile
from tests.kernels.common import TARGETS, assert_proved, random

EIGHT, SIXTEEN = torch.float8_e4m3fn, torch.bfloat16
SMALL = Tile(32, 32, 32, 2, 1, 0)
swapped = Matmul(gemm, lambda problem: Tile(32, 32, 32, 2, 1, 0, swapped=True))
halved = Matmul(gemm, lambda problem: Tile(32, 32, 32, 2, 1, 0, shift=8))


@argus.func
def shifted(x):
    return al.maximum(x + 1.5, 0.0)


def near(got: torch.Tensor, exact: torch.Tensor, eps: float = 2.0**-7) -> None:
    """Within the rounding of the result, and of products and sums in float32 of operands of 10 bits and more."""
    assert got.shape == exact.shape
    torch.testing.assert_close(got.double(), exact, rtol=eps, atol=eps)


def numbers(*shape: int, dtype: torch.dtype = SIXTEEN, device: str = "cpu", seed: int = 0) -> torch.Tensor:
    """Of about 1 as the dtype rounds them; scaled so that sums over the last dimension are of about 1."""
    return (random(*shape, seed=seed) / 4).to(dtype).to(device)


def exact(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.double() @ b.double()


def test_misaligned_operands_of_odd_sizes_with_bias_and_an_epilogue(device: str) -> None:
    a, b, bias = (numbers(*s, device=device, seed=i) for i, s in enumerate(((37, 45), (45, 41), (41,))))
    near(matmul(a, b, bias=bias, epilogue="gelu"), torch.nn.functional.gelu(exact(a, b) + bias.double()))


def test_transposed_operands_a_residual_and_another_dtype_of_the_result(device: str) -> None:
    a, b = numbers(72, 40, dtype=torch.float16, device=device), numbers(48, 72, dtype=torch.float16, device=device)
    residual = numbers(40, 48, device=device, seed=2)
    got = matmul(a.T, b.T, residual=residual, out_dtype=torch.float32)
    assert got.dtype == torch.float32
    near(got, exact(a.T, b.T) + residual.double(), 1e-5)


def test_float8_with_a_scale_for_each_row(device: str) -> None:
    a, b = numbers(33, 64, dtype=EIGHT, device=device), numbers(48, 64, dtype=EIGHT, device=device, seed=1)
    rows, columns = torch.rand(33).to(device) + 0.5, torch.rand(48).to(device) + 0.5
    got = matmul(a, b.T, scale_a=rows, scale_b=columns)
    assert got.dtype == SIXTEEN
    near(got, exact(a.float(), b.T.float()) * rows[:, None] * columns)


def test_batches_of_float32_into_a_transposed_result(device: str) -> None:
    a, b = (
        numbers(2, 20, 36, dtype=torch.float32, device=device),
        numbers(2, 36, 24, dtype=torch.float32, device=device),
    )
    out = torch.full((2, 24, 20), float("nan"), device=device).mT
    assert matmul(a, b, out=out) is out
    near(out, exact(a, b), 2e-3)


def test_a_batch_times_a_matrix_is_one_product(device: str) -> None:
    a, b, residual = (numbers(*s, device=device) for s in ((3, 7, 40), (40, 48), (3, 7, 48)))
    near(matmul(a, b, residual=residual), exact(a, b) + residual.double())
    apart = numbers(3, 9, 40, device=device)[:, :7]  # rows of batches at uneven distances: no one matrix
    near(matmul(apart, b), exact(apart, b))


def test_the_transposed_product_is_the_same_product(device: str) -> None:
    a, b, bias = (numbers(*s, device=device, seed=i) for i, s in enumerate(((1, 64), (64, 40), (40,))))
    scale = torch.rand(40).to(device)
    near(swapped(a, b, bias=bias, scale_b=scale, epilogue=shifted),
         (exact(a, b) * scale + bias.double() + 1.5).clamp(min=0))  # fmt: skip


@pytest.mark.parametrize("k", [40, 64])
def test_even_and_odd_rows_are_two_batches(device: str, k: int) -> None:
    """The terms of odd rows begin at -8: the last ones need a step more where k is 64."""
    shapes = ((70, k), (k, 24), (24,), (70, 24))
    a, b, bias, residual = (numbers(*shape, device=device, seed=i) for i, shape in enumerate(shapes))
    out = torch.full((70, 24), float("nan"), dtype=SIXTEEN, device=device)
    near(halved(a, b, bias=bias, residual=residual, out=out), exact(a, b) + bias.double() + residual.double())


@pytest.mark.parametrize(("rows", "k", "halves"), [(70, 40, True), (71, 40, False), (70, 48, False)])
def test_every_other_row_of_a_may_split_sectors(
    monkeypatch: pytest.MonkeyPatch, rows: int, k: int, halves: bool
) -> None:
    monkeypatch.setattr(operands, "target_of", lambda device: "sm_90a")
    a, b, c = numbers(rows, k), numbers(24, k), torch.empty(rows, 24)
    assert operands.problem(request(a, b.t(), c, *[None] * 5)).halves == halves
    scale, bias = torch.ones(rows), torch.ones(rows)
    assert not operands.problem(request(a, b.t(), c, None, None, scale, None, None)).halves
    across = operands.turned(request(b, a.t(), c.t(), bias, None, None, None, None))
    assert not operands.problem(across).halves


def test_operands_without_a_dimension_of_stride_1(device: str) -> None:
    a = numbers(40, 80, device=device)[::2, ::2]
    b = numbers(40, 5, device=device).expand(40, 5)[:, :1].expand(40, 6)
    near(matmul(a, b), exact(a, b))


def test_nothing_to_add_up_and_nothing_to_write(device: str) -> None:
    a, b, bias = numbers(5, 0, device=device), numbers(0, 8, device=device), numbers(8, device=device)
    near(matmul(a, b, bias=bias, epilogue=shifted), (bias.double() + 1.5).clamp(min=0).expand(5, 8))
    assert matmul(numbers(0, 8, device=device), numbers(8, 8, device=device)).shape == (0, 8)


@pytest.mark.parametrize(
    ("shape", "strides", "names", "of_strides"),
    [
        ((4, 8), (8, 1), "M K", "lda 1"),
        ((4, 8), (1, 4), "K M", "lda 1"),
        ((8, 1), (1, 8), "K M", "lda 1"),  # one row of 8, transposed: its elements are consecutive
        ((1, 8), (8, 1), "M K", "lda 1"),
        ((4, 1), (3, 5), "M K", "lda 1"),
        ((1, 4), (3, 5), "K M", "lda 1"),
        ((4, 8), (20, 2), "M K", "lda sa"),
        ((2, 4, 8), (99, 1, 4), "Z K M", "za lda 1"),
    ],
)
def test_operands_are_described_as_memory_has_them(
    shape: tuple[int, ...], strides: tuple[int, ...], names: str, of_strides: str
) -> None:
    a = torch.zeros(400, dtype=SIXTEEN).as_strided(shape, strides)
    b, c = numbers(shape[-1], 8), torch.empty(*shape[:-1], 8)
    (first, *_), constants = arguments(request(a, b, c, *[None] * 5), False, torch.ones(1))
    assert (constants["A"], constants["A_STRIDES"]) == (names, of_strides)
    assert first.shape == (a.shape if names.endswith("K") else a.mT.shape)


def test_a_second_call_prepares_nothing() -> None:
    prepared: list[object] = []

    class Plan:
        read, written = (0, 1, 3, 4, 5, 6), (2,)

        def run(self, values: tuple[int, ...]) -> None:
            prepared.append(values)

    class Kernel:
        def prepare(self, *tensors: torch.Tensor, **constants: object) -> Plan:
            prepared.append(constants)
            return Plan()

    product = Matmul(Kernel(), lambda problem: SMALL)  # type: ignore[arg-type]
    a, b = numbers(8, 16), numbers(16, 8)
    for _ in range(3):
        product(a, b)
    assert [type(p) for p in prepared] == [dict, tuple, tuple, tuple]
    assert prepared[1][:2] == (a.data_ptr(), b.data_ptr())  # type: ignore[index]
    product(a, b, epilogue="relu")
    product(a.clone(), b)
    product(numbers(9, 16)[1:], b)
    product(a, numbers(8, 16).T)
    assert [type(p) for p in prepared[4:]] == [dict, tuple, tuple, tuple, dict, tuple]


Call = Callable[[torch.Tensor, torch.Tensor], Any]


def _eights(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return a.to(dtype), b.to(dtype)


REFUSED: dict[str, tuple[Call, str]] = {
    "extents": (lambda a, b: matmul(a, a), "shape-mismatch"),
    "ranks": (lambda a, b: matmul(a[0], b), "shape-mismatch"),
    "dtypes": (lambda a, b: matmul(a, b.float()), "dtype-mismatch"),
    "integers": (lambda a, b: matmul(a.int(), b.int()), "dtype-mismatch"),
    "a bias": (lambda a, b: matmul(a, b, bias=a[0]), "shape-mismatch"),
    "a scale": (lambda a, b: matmul(a, b, scale_a=a[0, :1]), "dtype-mismatch"),
    "a format of another machine": (lambda a, b: matmul(*_eights(a, b, torch.float8_e4m3fnuz)), "dtype-mismatch"),
    "exact float32": (lambda a, b: matmul(a.float(), b.float(), tf32=False), "no-matrix-instruction"),
    "an epilogue": (lambda a, b: matmul(a, b, epilogue="tanh"), "argument-type"),
    "a result": (lambda a, b: matmul(a, b, out=a), "shape-mismatch"),
    "a dtype of the result": (lambda a, b: matmul(a, b, out_dtype=torch.int8), "dtype-mismatch"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_product_is_refused(case: str) -> None:
    call, code = REFUSED[case]
    with pytest.raises(LaunchError) as caught:
        call(numbers(4, 8), numbers(8, 12))
    assert [d.code for d in caught.value.diagnostics] == [code]


BATCHED = {"A": "Z M K", "B": "Z N K", "C": "Z M N", "A_STRIDES": "za lda 1", "B_STRIDES": "zb ldb 1"}
PROOFS: dict[str, dict[str, Any]] = {
    "rows": {},
    "columns": {"A": "K M", "B": "K N"},
    "batches": BATCHED,
    "float8": {"IN": "float8_e4m3fn", "SCALED": True, "SCALE_A": "M", "BLOCK_K": 128},
    "tfloat32": {"IN": "tfloat32", "OUT": "float32", "BLOCK_K": 32, "BLOCK_N": 128},
    "few rows": {"BLOCK_M": 64, "BLOCK_N": 16, "BLOCK_K": 128, "STAGES": 3, "C": "N M", "BIAS": "M", "num_warps": 4},
    "few rows, 192 of weights": {"BLOCK_M": 192, "BLOCK_N": 80, "STAGES": 5, "C": "N M", "num_warps": 12},
    "rows in halves": {"A": "Z M K", "A_STRIDES": "za lda 1", "C": "Z M N", "SHIFT": 8, "BLOCK_N": 192},
    "192 rows": {"BLOCK_M": 192, "BLOCK_N": 136, "CLUSTER": 2, "ACROSS": 2, "num_warps": 12},
    "epilogue": {"BIAS": "N", "RESIDUAL": "M N", "RESIDUAL_TYPE": "bfloat16", "EPILOGUE": gelu},
}


QUICK = ("rows", "columns", "few rows", "rows in halves")


@pytest.mark.parametrize("case", [c if c in QUICK else pytest.param(c, marks=pytest.mark.slow) for c in PROOFS])
def test_proved_for_hopper(case: str) -> None:
    constants = {"num_warps": 8, "STAGES": 2, **PROOFS[case]}
    assert_proved("gemm", "gemm", "sm_90a", **{"MULTIPLY": constants.get("IN", "bfloat16"), **constants})


PLAIN = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "STAGES": 3, "PRODUCERS": 0}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("alignment", "more"),
    [(16, {"A": "K M"}), (2, {}), (2, {"A_STRIDES": "lda sa"}), (1, {"IN": "float8_e4m3fn", "MULTIPLY": "float16"})],
)
def test_proved_without_the_copy_engine(target: str, alignment: int, more: dict[str, Any]) -> None:
    assert_proved("gemm", "gemm", target, num_warps=4, alignment=alignment, **PLAIN, **more)
