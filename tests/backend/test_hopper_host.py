"""mbarriers, bulk copies, asynchronous products and roles on the host: small texts, and whole products by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from argus.backend.abi import entry
from argus.backend.cpu.run import run_cpu
from argus.backend.cpu.toolchain import find_compiler
from argus.backend.emit import emit
from argus.diagnostic import ArgusError, LaunchError
from argus.ir import visit
from argus.ir.instruction import WGMMA
from argus.ir.nodes import Copy, Kernel, MbarrierArrive, MbarrierExpect, MmaWait, Stmt
from argus.ir.types import DType, bfloat16, float8_e4m3fn, float8_e5m2, float16, tfloat32
from argus.layout import Swizzle, SwizzledLayout
from tests.backend import hopper_bodies as bodies
from tests.backend.hopper_kernels import gemm
from tests.backend.host import compiled, from_bfloat16, run, to_bfloat16
from tests.conftest import Golden

RNG = np.random.default_rng(0)
host = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
SMALL = partial(gemm, (128, 64), 3, 64)


@host
def test_parity() -> None:
    bodies.check_parity(bodies.run_on_host)


@host
@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("corner", bodies.CORNERS)
def test_boxes(corner: tuple[int, ...], eager: bool) -> None:
    bodies.check_box(partial(bodies.run_on_host, eager=eager), corner)


@host
@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("column", bodies.COLUMNS)
def test_columns_of_pixels(column: tuple[Any, ...], eager: bool) -> None:
    bodies.check_pixels(partial(bodies.run_on_host, eager=eager), *column)


def case(name: str, *dtypes: DType, **how: object) -> bodies.Product:
    return bodies.Product(WGMMA[name], dtypes[0], dtypes[-1], **how)  # type: ignore[arg-type]


PRODUCTS = (
    case("wgmma_m64n8k16", bfloat16),
    case("wgmma_m64n64k16", float16, step=1),
    case("wgmma_m64n248k16", bfloat16, step=3),
    case("wgmma_m64n128k16", bfloat16, across=(False, True), step=2),
    case("wgmma_m64n40k16", float16, across=(True, False), step=1),
    case("wgmma_m64n192k16", bfloat16, across=(True, True)),
    case("wgmma_m64n96k16", bfloat16, across=(False, True), registers=True, step=3),
    case("wgmma_m64n16k16", float16, registers=True),
    case("wgmma_m64n24k8", tfloat32, step=2),
    case("wgmma_m64n32k8", tfloat32, registers=True),
    case("wgmma_m64n32k32", float8_e4m3fn, float8_e5m2, step=1),
    case("wgmma_m64n16k32", float8_e5m2, float8_e4m3fn, registers=True),
    case("wgmma_m64n64k16", bfloat16, step=1, narrow=True),
    case("wgmma_m64n32k32", float8_e4m3fn, step=1, narrow=True),
)


@host
@pytest.mark.parametrize("product", PRODUCTS, ids=str)
def test_products(product: bodies.Product) -> None:
    bodies.check_product(bodies.run_on_host, product)


# ---------------------------------------------------------------------------- whole products


def product(kernel: Kernel, block: tuple[int, int], sizes: tuple[int, int, int], eager: bool = False) -> float:
    """The largest error of c = a @ b.T, in units of what rounding to bfloat16 may cost."""
    m, n, k = sizes
    a, b = to_bfloat16(RNG.standard_normal((m, k))), to_bfloat16(RNG.standard_normal((n, k)))
    c = np.full((m, n), 0x7FC0, np.uint16)
    run(kernel, (-(-m // block[0]), -(-n // block[1])), eager, a=a, b=b, c=c, M=m, N=n, K=k)
    expected = from_bfloat16(a) @ from_bfloat16(b).T
    return float((np.abs(from_bfloat16(c) - expected) / (2**-7 * np.abs(expected) + 1e-3)).max())


@pytest.mark.product
@host
@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("sizes", [(128, 64, 192), (136, 72, 456), (1, 8, 8), (200, 64, 0)])
def test_gemm(sizes: tuple[int, int, int], eager: bool) -> None:
    assert product(SMALL(), (128, 64), sizes, eager) < 1


@host
@pytest.mark.parametrize("warps", [(4, 1), (4, 2), (8, 1)])
def test_warpgroups_share_a_tile(warps: tuple[int, int]) -> None:
    """Rows and columns go to warpgroups, and what is left is repeated."""
    assert product(gemm((128, 32), 2, 16, warps), (128, 32), (130, 40, 136)) < 1


def changed(kernel: Kernel, change: Callable[[Stmt], tuple[Stmt, ...] | None]) -> Kernel:
    return replace(kernel, body=visit.rewrite_body(kernel.body, change))


@host
@pytest.mark.parametrize("without", ["full", "mma"])
def test_a_missing_wait_shows(without: str) -> None:
    """What is asynchronous comes as late as it may: without a wait there are NaNs, or products are missing."""
    assert not product(SMALL(without=without), (128, 64), (128, 64, 64)) < 1


@host
def test_a_wait_for_too_few_products_shows() -> None:
    def weaken(stmt: Stmt) -> tuple[Stmt, ...] | None:
        return (MmaWait(1),) if isinstance(stmt, MmaWait) else None

    assert not product(changed(SMALL(), weaken), (128, 64), (128, 64, 64)) < 1


@host
@pytest.mark.parametrize(("right", "wrong"), [("", ""), (" 2 * v0)", " v0)"), ("4 * 1024", "4 * 1024 + 64")])
def test_a_wrong_descriptor_shows(right: str, wrong: str) -> None:
    """Products read where their descriptors say, in the swizzle that they say."""
    kernel = gemm((128, 64), 4, 64)
    a, b = (to_bfloat16(RNG.standard_normal(shape)) for shape in ((128, 256), (64, 256)))
    c = np.zeros((128, 64), np.uint16)
    text = emit(kernel)
    assert right in text
    binary = compiled(text.replace(right, wrong) if right else text, entry(kernel), 32, False)
    run_cpu(binary, kernel, [a, b, c, 128, 256, 64, 256, 256, 64], (1, 1), 1)
    same = np.allclose(from_bfloat16(c), from_bfloat16(a) @ from_bfloat16(b).T, rtol=2**-7, atol=1e-2)
    assert same == (not right)


@host
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (MbarrierArrive, "wait at the mbarrier at byte 73752, whose phase 0 lacks 8 of 8 arrivals and 0 bytes"),
        (MbarrierExpect, "wait at the mbarrier at byte 73728, whose phase 0 lacks 1 of 1 arrivals and -24576 bytes"),
        (Copy, "wait at the mbarrier at byte 73728, whose phase 0 lacks 0 of 1 arrivals and 24576 bytes"),
    ],
)
def test_a_deadlock_names_the_mbarrier(kind: type, message: str) -> None:
    def drop(stmt: Stmt) -> tuple[Stmt, ...] | None:
        return () if isinstance(stmt, kind) and getattr(stmt, "instr", "tma.load") == "tma.load" else None

    with pytest.raises(LaunchError, match=message):
        product(changed(SMALL(), drop), (128, 64), (128, 64, 640))


# ---------------------------------------------------------------------------- text


def test_golden(golden: Golden) -> None:
    golden("gemm_hopper.cpp", emit(gemm()))


@pytest.mark.parametrize("swizzle", [Swizzle(2, 3, 3), Swizzle(3, 3, 4)])
@pytest.mark.parametrize("tile", ["at", "bt"])
def test_another_swizzle_is_refused(tile: str, swizzle: Swizzle) -> None:
    kernel = SMALL()
    shared = []
    for s in kernel.shared:
        if s.name == tile and isinstance(s.layout, SwizzledLayout):
            s = replace(s, layout=replace(s.layout, swizzle=swizzle))
        shared.append(s)
    with pytest.raises(ArgusError) as caught:
        emit(replace(kernel, shared=tuple(shared)))
    assert caught.value.diagnostics[0].code == "mma-operand"
