"""A GEMM in clusters of two blocks: proved, refuted after every single edit, and right under every schedule tried."""

from __future__ import annotations

import numpy as np
import pytest

from argus.diagnostic import Severity, Verdict
from argus.ir.cluster import unite
from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel, print_kernel
from argus.ir.types import bfloat16
from argus.ir.wellformed import check_explicit
from argus.simulate import simulate
from argus.simulate.numeric import round_to
from argus.verify import verify
from tests.conftest import Golden
from tests.verify.test_persistent import GEMM

pytestmark = pytest.mark.slow

_PLAIN = "copy bt[turn % 2, c0, c1] <~ b[program_id(1) * 64 + c0, k0 + c1] shape 64x64 if (program_id(1) * 64 + c0 < N)"
_START = "program_id(0) % 2 * 32"
_SHARE = (
    f"copy bt[turn % 2, {_START} + c0, c1] <~ b[program_id(1) * 64 + {_START} + c0, k0 + c1] shape 32x64"
    f" if (program_id(1) * 64 + {_START} + c0 < N)"
)
CLUSTERS = (
    GEMM.replace("grid [(M + 63) // 64, (N + 63) // 64]", "grid [(M + 127) // 128 * 2, (N + 63) // 64] cluster 2")
    .replace("mbarrier empty count 2 arrivals 4", "mbarrier empty count 2 arrivals 8")
    .replace(_PLAIN, _SHARE)
    .replace("via tma.load signal full[turn % 2]\n        }", "via tma.load.multicast signal full[turn % 2]\n        }")
    .replace("mbarrier_arrive empty[(turn + 1) % 2]", "mbarrier_arrive empty[(turn + 1) % 2] scope cluster")
    .replace("mbarrier_arrive empty[turn % 2]", "mbarrier_arrive empty[turn % 2] scope cluster")
    .replace("  barrier\n  roles", "  barrier scope cluster\n  roles")
)
_OWN = CLUSTERS[CLUSTERS.index("a[program_id(0)") : CLUSTERS.index("via tma.load signal")]
_READY = "mbarrier_wait empty[turn % 2] parity (turn // 2 + 1) % 2\n          "
EDITS = {
    "only the own block is told of free buffers": ("empty[(turn + 1) % 2] scope cluster", "empty[(turn + 1) % 2]"),
    "the last buffers are told to the own block": ("empty[turn % 2] scope cluster", "empty[turn % 2]"),
    "nobody waits for free buffers": (_READY, ""),
    "nobody waits for the other block's mbarriers": ("  barrier scope cluster\n", ""),
    "the share reaches one block": ("tma.load.multicast", "tma.load"),
    "both blocks bring the same rows": (f"bt[turn % 2, {_START} + c0, c1]", "bt[turn % 2, c0, c1]"),
    "both blocks bring the first rows": (f"program_id(1) * 64 + {_START} + c0", "program_id(1) * 64 + c0"),
    "one block's arrivals make a phase": ("mbarrier empty count 2 arrivals 8", "mbarrier empty count 2 arrivals 4"),
    "what only one block has reaches both": (
        "else 0.0:bfloat16 via tma.load signal", "else 0.0:bfloat16 via tma.load.multicast signal"),
    "blocks of a cluster have one tile": (_OWN, _OWN.replace("program_id(0)", "program_id(0) // 2")),
}  # fmt: skip


def cluster_gemm(text: str = CLUSTERS) -> Kernel:
    """The kernel, well-formed."""
    kernel = parse_kernel(text)
    assert not check_explicit(kernel)
    return kernel


def test_text_survives() -> None:
    kernel = cluster_gemm()
    assert parse_kernel(print_kernel(kernel)) == kernel


def test_united(golden: Golden) -> None:
    golden("cluster.ir", print_kernel(unite(cluster_gemm())))


def test_a_kernel_without_clusters_is_its_own_union() -> None:
    kernel = parse_kernel(GEMM)
    assert unite(kernel) is kernel


def test_proved() -> None:
    report = verify(cluster_gemm(), limit_s=240)
    assert report.verdict is Verdict.PROVED, [d.message for d in report.diagnostics]


def test_blocks_of_a_cluster_meet_before_their_roles() -> None:
    (found,) = check_explicit(parse_kernel(CLUSTERS.replace("barrier scope cluster", "barrier")))
    assert "before the roles of a cluster, all of its blocks meet at a barrier" in found.message


@pytest.mark.slow
@pytest.mark.parametrize("edit", EDITS)
def test_refuted(edit: str) -> None:
    old, new = EDITS[edit]
    assert CLUSTERS.count(old) >= 1
    report = verify(cluster_gemm(CLUSTERS.replace(old, new)), limit_s=240)
    errors = [d for d in report.diagnostics if d.severity is Severity.ERROR]
    assert report.verdict is Verdict.REFUTED, [d.message for d in errors]
    assert any(d.witness is not None and d.witness.replayed for d in errors)


SCHEDULES = ("program", "reverse", "lazy", "eager-producer.0", "eager-producer.1", "random(3)")


@pytest.mark.product
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("sizes", [(1, 64, 8), (130, 200, 72), (192, 328, 64), (65, 0, 8)], ids=str)
def test_values(sizes: tuple[int, int, int], schedule: str) -> None:
    m, k, n = sizes
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((m, k), (n, k)))
    c = np.zeros((m, n), np.float32)
    outcome = simulate(cluster_gemm(), {"a": a, "b": b, "c": c}, schedule=schedule, tags=True)
    assert outcome.ok, outcome.violations
    np.testing.assert_array_equal(outcome.tensors["c"], round_to(a @ b.T, bfloat16))
