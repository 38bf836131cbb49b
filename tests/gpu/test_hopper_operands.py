"""Every asynchronous product by width, types, majors and place of its operands on the hardware; whole kernels that read
slices of tensors in panels. Texts are compiled side by side first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import pytest

from argus.backend.abi import entry
from argus.backend.cuda import toolchain
from argus.backend.emit import emit
from argus.backend.launch.array import array
from argus.backend.launch.bind import bind
from argus.backend.launch.plan import Plan
from argus.backend.launch.signature import signature
from argus.ir.nodes import Kernel
from tests.backend import hopper_bodies as bodies
from tests.backend import hopper_operands as operands

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

from tests.gpu.device import architecture  # noqa: E402
from tests.gpu.test_hopper import function, run_loaded  # noqa: E402

WIDTHS = range(8, 257, 8)


@cache
def products(n: int) -> tuple[tuple[bodies.Product, bodies.Prepared], ...]:
    return tuple((case, bodies.prepared(case, f"argus_k{i}")) for i, case in enumerate(bodies.every_product(n)))


def texts() -> Iterator[str]:
    for n in reversed(WIDTHS):
        yield "\n".join(made.source for _, made in products(n))
    for case in (*operands.CASES.values(), *operands.DTYPES.values()):
        yield emit(operands.kernel(case))


@pytest.fixture(scope="module")
def cubins() -> dict[str, bytes]:
    if architecture() != "sm_90a":
        pytest.skip("needs sm_90a")
    sources = list(texts())
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = pool.map(lambda source: toolchain.compile(source, "sm_90a")[0], sources)
        return dict(zip(sources, built, strict=True))


@pytest.mark.parametrize("n", WIDTHS)
def test_products(n: int, cubins: dict[str, bytes]) -> None:
    """D = C + A B^T of small integers is exact, for all types, majors and places of operands."""
    cubin = cubins["\n".join(made.source for _, made in products(n))]
    for i, (case, made) in enumerate(products(n)):
        got = run_loaded(function(cubin, f"argus_k{i}"), made.values, made.shared)[1]
        np.testing.assert_array_equal(got, made.expected, err_msg=str(case))


def launch(kernel: Kernel, tensors: dict[str, Any], grid: tuple[int, ...], cubins: dict[str, bytes]) -> None:
    called = signature(kernel)
    binding = bind(called, {name: array(name, tensor) for name, tensor in tensors.items()}, {}, grid)
    addresses = tuple(t.data_ptr() for t in tensors.values())
    Plan(called, binding, function(cubins[emit(kernel)], entry(kernel))).run(addresses)


@pytest.mark.parametrize("sizes", [(128, 128, 128), (136, 200, 264), (1000, 520, 1032), (8, 8, 8)])
@pytest.mark.parametrize("name", operands.CASES)
def test_slices(name: str, sizes: tuple[int, int, int], cubins: dict[str, bytes]) -> None:
    """Products of slices of tensors of four dimensions; sizes that no tile divides."""
    case, (m, n, k) = operands.CASES[name], sizes
    kernel = operands.kernel(case)
    generator = torch.Generator(device="cuda").manual_seed(0)
    made = [torch.randn(2, 3, rows, k, device="cuda", generator=generator).bfloat16() for rows in (m, n)]
    given = [x.transpose(2, 3).contiguous() if across else x for x, across in zip(made, case.across, strict=True)]
    c = torch.full((2, 3, m, n), float("nan"), device="cuda", dtype=torch.bfloat16 if case.store else torch.float32)
    tensors = {"a": given[0], "b": given[1], "c": c}
    grid = (-(-m // case.block[0]), -(-n // case.block[1]), 6)
    launch(kernel, tensors, grid, cubins)
    expected = made[0].double() @ made[1].double().transpose(2, 3)
    torch.testing.assert_close(c.float(), expected.float(), rtol=2**-7 if case.store else 1e-3, atol=1e-2)


@pytest.mark.parametrize("name", operands.DTYPES)
def test_dtypes(name: str, cubins: dict[str, bytes]) -> None:
    """Products of small integers are exact."""
    case, (m, n, k) = operands.DTYPES[name], (208, 144, 528)
    dtype = torch.float32 if case.dtype.name == "tfloat32" else getattr(torch, case.dtype.name)
    made = [torch.randint(-4, 5, (2, 3, rows, k), device="cuda").float() for rows in (m, n)]
    given = [x.transpose(2, 3).contiguous() if across else x for x, across in zip(made, case.across, strict=True)]
    c = torch.full((2, 3, m, n), float("nan"), device="cuda")
    grid = (-(-m // case.block[0]), -(-n // case.block[1]), 6)
    launch(operands.kernel(case), {"a": given[0].to(dtype), "b": given[1].to(dtype), "c": c}, grid, cubins)
    torch.testing.assert_close(c, made[0] @ made[1].transpose(2, 3), rtol=0, atol=0)
