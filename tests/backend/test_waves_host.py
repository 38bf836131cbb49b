"""Emitted text of counted loads on the host's 64 lanes, where data lands at the wait that covers it and no earlier: a
second implementation of the law that proofs rest on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from argus.backend.cpu.toolchain import find_compiler
from argus.diagnostic import Verdict
from argus.ir.nodes import Kernel, Stmt, WaitCounts
from argus.ir.visit import rewrite_body, walk
from argus.ir.waves import counted
from argus.passes import lower
from argus.verify import verify
from tests.backend.host import from_bfloat16, run, to_bfloat16
from tests.passes import kernels
from tests.verify.waves import ring

host = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")


def rows_arrive(kernel: Kernel, rows: int = 5) -> bool:
    """Whether every row came through the ring, reversed."""
    x = np.arange(1, rows * 256 + 1, dtype=np.float32).reshape(rows, 256)
    y = np.zeros_like(x)
    run(kernel, (1,), x=x, y=y, N=rows)
    return bool((y == x[:, ::-1]).all())


@host
@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_the_weakest_wait_that_is_proved_is_the_weakest_that_works(ahead: int) -> None:
    for open_loads in range(2 * ahead + 1):
        kernel = ring(f"s_waitcnt vmcnt {open_loads}", ahead=ahead)
        assert rows_arrive(kernel) == (verify(kernel, 120).verdict is Verdict.PROVED) == (open_loads <= 2 * (ahead - 1))


@host
def test_a_bare_barrier() -> None:
    assert rows_arrive(ring("s_waitcnt vmcnt 2 lgkmcnt 0", "s_barrier"))
    assert not rows_arrive(ring("s_waitcnt vmcnt 3 lgkmcnt 0", "s_barrier"))


def weakened(kernel: Kernel) -> Kernel:
    """Waits that leave one load more on its way."""

    def change(s: Stmt) -> tuple[Stmt, ...] | None:
        return (replace(s, vm=s.vm + 1),) if isinstance(s, WaitCounts) and s.vm is not None else None

    return replace(kernel, body=rewrite_body(kernel.body, change))


@host
@pytest.mark.parametrize("stages", [3, 4])
def test_a_product_of_the_pipeline(stages: int) -> None:
    kernel = lower(kernels.gemm((64, 64, 32), stages, warp_size=64), "gfx942")
    assert any(counted(s) for s in walk(kernel.body))
    m, n, k = 70, 66, 104
    rng = np.random.default_rng(stages)
    a, b = (to_bfloat16(rng.standard_normal((rows, k)).astype(np.float32)) for rows in (m, n))
    expected = from_bfloat16(a) @ from_bfloat16(b).T

    def close(tried: Kernel) -> bool:
        c = np.zeros((m, 72), np.uint16)[:, :n]
        run(tried, (2, 2), a=a, b=b, c=c, M=m, N=n, K=k)
        return bool(np.allclose(from_bfloat16(c), expected, rtol=2**-7, atol=1e-2))

    assert close(kernel)
    assert not close(weakened(kernel))
