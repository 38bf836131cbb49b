"""Operands of asynchronous products in registers and by columns, in several panels, of slices of tensors: the emitted
text on the host against NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from argus.backend.cpu.toolchain import find_compiler
from argus.backend.emit import emit
from argus.diagnostic import ArgusError
from argus.ir.wellformed import check_explicit
from tests.backend.hopper_bodies import encoded
from tests.backend.hopper_operands import CASES, DTYPES, Case, kernel
from tests.backend.host import from_bfloat16, run, to_bfloat16
from tests.conftest import Golden

RNG = np.random.default_rng(0)
host = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")


def error(case: Case, sizes: tuple[int, int, int], eager: bool = False) -> float:
    """The largest error of the products of slices, in units of what adding up in float32, and rounding, may cost."""
    m, n, k = sizes
    a, b = (to_bfloat16(RNG.standard_normal((2, 3, rows, k))) for rows in (m, n))
    given = [x.swapaxes(2, 3).copy() if across else x for x, across in zip((a, b), case.across, strict=True)]
    c = np.full((2, 3, m, n), 0x7FC0, np.uint16) if case.store else np.full((2, 3, m, n), np.nan, np.float32)
    grid = (-(-m // case.block[0]), -(-n // case.block[1]), 6)
    run(kernel(case), grid, eager, a=given[0], b=given[1], c=c, S=2, T=3, M=m, N=n, K=k)
    got = from_bfloat16(c) if case.store else c
    expected = from_bfloat16(a) @ from_bfloat16(b).swapaxes(2, 3)
    tolerance = 2**-8 if case.store else 1e-4
    return float((np.abs(got - expected) / (1e-3 + tolerance * np.abs(expected))).max())


@pytest.mark.parametrize("name", [*CASES, *DTYPES])
def test_kernels_are_well_formed(name: str) -> None:
    assert check_explicit(kernel({**CASES, **DTYPES}[name])) == ()


@host
@pytest.mark.parametrize("name", DTYPES)
def test_dtypes(name: str) -> None:
    """Products of small integers are exact; sizes are multiples of 16 bytes of the operands' type."""
    case, (m, n, k) = DTYPES[name], (80, 144, 272)
    a, b = (RNG.integers(-4, 5, (2, 3, rows, k)) for rows in (m, n))
    given = [encoded(x.swapaxes(2, 3).copy() if y else x, case.dtype) for x, y in zip((a, b), case.across, strict=True)]
    c = np.full((2, 3, m, n), np.nan, np.float32)
    grid = (-(-m // case.block[0]), -(-n // case.block[1]), 6)
    run(kernel(case), grid, a=given[0], b=given[1], c=c, S=2, T=3, M=m, N=n, K=k)
    np.testing.assert_array_equal(c, a @ b.swapaxes(2, 3))


@host
@pytest.mark.parametrize("name", CASES)
def test_operands(name: str) -> None:
    assert error(CASES[name], (136, 200, 264)) < 1


@host
def test_eager_products() -> None:
    assert error(CASES["registers by n"], (128, 128, 512), True) < 1


def test_golden(golden: Golden) -> None:
    golden("hopper_operands.cpp", emit(kernel(CASES["registers by n"])))


@pytest.mark.parametrize(
    "case",
    [
        Case(across=(False, True), n=96, block=(64, 192), warps=(4, 1)),
        Case(across=(False, True), n=48, block=(64, 192), warps=(4, 1)),
    ],
    ids=str,
)
def test_products_across_panels_are_refused(case: Case) -> None:
    """The accepted twin reads 64 columns at a time."""
    with pytest.raises(ArgusError, match="reads across panels"):
        emit(kernel(case))
    emit(kernel(replace(case, n=64)))
