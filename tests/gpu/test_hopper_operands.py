"""Every asynchronous product by width, types, majors and place of its operands on the hardware; whole kernels that read
slices of tensors in panels. Texts are compiled side by side first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from random import Random

import numpy as np
import pytest

from argus.backend.cuda import toolchain
from argus.backend.emit import emit
from argus.ir.nodes import Kernel
from tests.backend import hopper_bodies as bodies
from tests.backend import hopper_operands as operands

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

from tests.gpu.device import architecture, function, launch  # noqa: E402
from tests.gpu.placed import CLUSTERS, Draw, elsewhere  # noqa: E402
from tests.gpu.test_hopper import run_loaded  # noqa: E402

WIDTHS = range(8, 257, 8)


@cache
def products(n: int, seed: int) -> tuple[tuple[bodies.Product, bodies.Prepared], ...]:
    """Each in a cluster and somewhere in shared memory."""
    draw, made = Draw(Random(f"{seed}.{n}")), []
    for i, case in enumerate(bodies.every_product(n)):
        case = replace(case, blocks=draw.number(*CLUSTERS), base=draw.base(bodies.prepared(case, "").shared))
        made.append((case, bodies.prepared(case, f"argus_k{i}")))
    return tuple(made)


@cache
def kernel(name: str, seed: int) -> Kernel:
    """A case, in clusters and somewhere in shared memory."""
    return elsewhere(operands.kernel({**operands.CASES, **operands.DTYPES}[name]), Draw(Random(f"{seed}.{name}")))


def texts(seed: int) -> Iterator[str]:
    for n in reversed(WIDTHS):
        yield "\n".join(made.source for _, made in products(n, seed))
    for name in (*operands.CASES, *operands.DTYPES):
        yield emit(kernel(name, seed))


@pytest.fixture(scope="module")
def cubins(seed: int) -> dict[str, bytes]:
    if architecture() != "sm_90a":
        pytest.skip("needs sm_90a")
    sources = list(texts(seed))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = pool.map(lambda source: toolchain.compile(source, "sm_90a")[0], sources)
        return dict(zip(sources, built, strict=True))


@pytest.mark.parametrize("n", WIDTHS)
def test_products(n: int, cubins: dict[str, bytes], seed: int) -> None:
    """D = C + A B^T of small integers is exact, for all types, majors and places of operands."""
    cubin = cubins["\n".join(made.source for _, made in products(n, seed))]
    for i, (case, made) in enumerate(products(n, seed)):
        got = run_loaded(function(cubin, f"argus_k{i}"), made.values, made.shared, case.blocks)[1]
        np.testing.assert_array_equal(got, made.expected, err_msg=str(case))


def blocks(kernel: Kernel, first: int, *rest: int) -> tuple[int, ...]:
    """The grid of so many blocks, in whole clusters."""
    return -(-first // kernel.cluster) * kernel.cluster, *rest


@pytest.mark.parametrize("sizes", [(128, 128, 128), (136, 200, 264), (1000, 520, 1032), (8, 8, 8)])
@pytest.mark.parametrize("name", operands.CASES)
def test_slices(name: str, sizes: tuple[int, int, int], cubins: dict[str, bytes], seed: int) -> None:
    """Products of slices of tensors of four dimensions; sizes that no tile divides."""
    case, (m, n, k), made_by = operands.CASES[name], sizes, kernel(name, seed)
    generator = torch.Generator(device="cuda").manual_seed(0)
    made = [torch.randn(2, 3, rows, k, device="cuda", generator=generator).bfloat16() for rows in (m, n)]
    given = [x.transpose(2, 3).contiguous() if across else x for x, across in zip(made, case.across, strict=True)]
    c = torch.full((2, 3, m, n), float("nan"), device="cuda", dtype=torch.bfloat16 if case.store else torch.float32)
    tensors = {"a": given[0], "b": given[1], "c": c}
    grid = blocks(made_by, -(-m // case.block[0]), -(-n // case.block[1]), 6)
    launch(made_by, cubins[emit(made_by)], tensors, grid)
    expected = made[0].double() @ made[1].double().transpose(2, 3)
    torch.testing.assert_close(c.float(), expected.float(), rtol=2**-7 if case.store else 1e-3, atol=1e-2)


@pytest.mark.parametrize("name", operands.DTYPES)
def test_dtypes(name: str, cubins: dict[str, bytes], seed: int) -> None:
    """Products of small integers are exact."""
    case, (m, n, k), made_by = operands.DTYPES[name], (208, 144, 528), kernel(name, seed)
    dtype = torch.float32 if case.dtype.name == "tfloat32" else getattr(torch, case.dtype.name)
    made = [torch.randint(-4, 5, (2, 3, rows, k), device="cuda").float() for rows in (m, n)]
    given = [x.transpose(2, 3).contiguous() if across else x for x, across in zip(made, case.across, strict=True)]
    c = torch.full((2, 3, m, n), float("nan"), device="cuda")
    grid = blocks(made_by, -(-m // case.block[0]), -(-n // case.block[1]), 6)
    launch(made_by, cubins[emit(made_by)], {"a": given[0].to(dtype), "b": given[1].to(dtype), "c": c}, grid)
    torch.testing.assert_close(c, made[0] @ made[1].transpose(2, 3), rtol=0, atol=0)
