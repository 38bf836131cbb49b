"""Clusters as text: what CUDA gets, and the united block on the host."""

from __future__ import annotations

import numpy as np
import pytest

from argus.backend.cpu.toolchain import find_compiler
from argus.backend.emit import emit
from argus.backend.launch.signature import signature, signature_from_json, signature_to_json
from argus.ir.cluster import unite
from argus.passes import lower
from argus.source import SourceFile
from tests.backend.host import from_bfloat16, run, to_bfloat16
from tests.conftest import Golden
from tests.passes.test_clusters import clustered
from tests.passes.test_persist import persistent


def test_text(golden: Golden) -> None:
    golden("gemm_cluster.cpp", emit(lower(clustered(), "sm_90a")))


def test_a_launch_knows_of_clusters() -> None:
    made = signature(lower(clustered(), "sm_90a"))
    assert made.cluster == 2
    assert signature_from_json(signature_to_json(made), SourceFile("kernel.py", "")).cluster == 2
    assert signature(lower(persistent(), "sm_90a")).cluster == 1


@pytest.mark.product
@pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("sizes", [(256, 64, 192), (136, 72, 456), (1, 8, 8), (300, 64, 0)])
def test_united_on_the_host(sizes: tuple[int, int, int], eager: bool) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(k)
    a, b = to_bfloat16(rng.standard_normal((m, k))), to_bfloat16(rng.standard_normal((n, k)))
    c = np.full((m, n), 0x7FC0, np.uint16)
    run(unite(lower(clustered(), "sm_90a")), (-(-m // 256), -(-n // 64)), eager, a=a, b=b, c=c, M=m, N=n, K=k)
    expected = from_bfloat16(a) @ from_bfloat16(b).T
    assert (np.abs(from_bfloat16(c) - expected) <= 2**-7 * np.abs(expected) + 1e-3).all()
