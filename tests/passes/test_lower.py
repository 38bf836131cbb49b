"""The whole of lowering: every pass keeps the kernel well-formed, on every target."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from argus.ir.nodes import Kernel
from argus.ir.target import TARGETS
from argus.ir.wellformed import check_explicit, check_tile
from argus.passes import PASSES, LoweringError, lower
from argus.passes.lower import for_target
from tests.passes import kernels

MAKERS: dict[str, Callable[..., Kernel]] = {
    "add": kernels.add,
    "softmax of a row": kernels.softmax,
    "softmax of rows": lambda **rest: kernels.softmax(16, 128, **rest),
    "gemm": kernels.gemm,
    "gemm of b by columns": lambda **rest: kernels.gemm(b_by_columns=True, **rest),
    "gemm of unaligned rows": lambda **rest: kernels.gemm(alignment=2, **rest),
    "gemm of one stage": lambda **rest: kernels.gemm(stages=1, **rest),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MAKERS)
def test_every_pass_keeps_the_kernel_well_formed(name: str, target: str) -> None:
    kernel = for_target(MAKERS[name](warp_size=TARGETS[target].warp_size), target)
    assert not check_tile(kernel)
    for run in PASSES:
        kernel = run(kernel)
        assert not check_tile(kernel), run.__name__
    assert not check_explicit(kernel)


def test_lowering_again_changes_nothing() -> None:
    explicit = lower(kernels.gemm(), "sm_80")
    assert lower(explicit, "sm_80") == explicit


@pytest.mark.parametrize(
    ("target", "warp_size", "num_warps", "code"),
    [("sm_100", 32, 4, "unknown-target"), ("gfx942", 32, 4, "warp-size"), ("sm_80", 32, 64, "block-size")],
)
def test_a_target_that_cannot_run_the_kernel(target: str, warp_size: int, num_warps: int, code: str) -> None:
    with pytest.raises(LoweringError) as error:
        lower(kernels.add(8192, num_warps, warp_size), target)
    assert [d.code for d in error.value.diagnostics] == [code]
