"""Device functions in every place where they can stand: on the hardware, and in the simulator, which says whether what
is expected is right. `--seed` repeats a run."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from argus.backend.cuda import toolchain
from argus.backend.emit import emit
from argus.ir.expr import Const
from argus.ir.nodes import Kernel
from argus.ir.wellformed import check_explicit
from argus.simulate import simulate
from argus.simulate.numeric import carrier
from tests.gpu.placed import FAMILIES, placed

torch = pytest.importorskip("torch")

from tests.gpu.device import architecture, launch  # noqa: E402

DRAWN = 40
"""Kernels of each family."""
TOGETHER = 8
"""Kernels that are compiled in one text."""


@pytest.mark.parametrize("family", FAMILIES)
def test_in_the_simulator(family: str) -> None:
    for one in placed(family, 0, 6):
        assert check_explicit(one.kernel) == ()
        arguments = {t.name: one.tensors[t.name].astype(carrier(t.dtype)) for t in one.kernel.tensors}
        outcome = simulate(one.kernel, arguments)
        assert outcome.ok, outcome.violations[0]
        for name, wanted in one.expected.items():
            np.testing.assert_array_equal(outcome.tensors[name].astype(np.float64), wanted, one.kernel.name)


@pytest.fixture(scope="module")
def cubins(seed: int) -> dict[str, bytes]:
    """The code of every kernel, by its name. Texts are compiled side by side."""
    if architecture() != "sm_90a":
        pytest.skip("needs sm_90a")
    kernels = [one.kernel for family in FAMILIES for one in placed(family, seed, DRAWN)]
    parts = [kernels[i : i + TOGETHER] for i in range(0, len(kernels), TOGETHER)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = list(pool.map(compiled, parts))
    return {kernel.name: cubin for part, cubin in zip(parts, built, strict=True) for kernel in part}


def compiled(kernels: list[Kernel]) -> bytes:
    return toolchain.compile("\n".join(map(emit, kernels)), "sm_90a")[0]


@pytest.mark.gpu
@pytest.mark.parametrize("family", FAMILIES)
def test_on_the_hardware(family: str, seed: int, cubins: dict[str, bytes]) -> None:
    for one in placed(family, seed, DRAWN):
        kernel = one.kernel
        tensors = {
            t.name: torch.from_numpy(one.tensors[t.name]).cuda().to(getattr(torch, t.dtype.name))
            for t in kernel.tensors
        }
        grid = tuple(int(e.value) for e in kernel.grid or () if isinstance(e, Const))
        launch(kernel, cubins[kernel.name], tensors, grid)
        torch.cuda.synchronize()
        for name, wanted in one.expected.items():
            np.testing.assert_array_equal(tensors[name].double().cpu().numpy(), wanted, f"{kernel.name} of {seed}")
