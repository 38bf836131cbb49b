"""The gradients of attention in one kernel: results of its text on the host against float64, proofs, wrong twins."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from argus.backend.build import build  # noqa: E402
from argus.backend.cuda.toolchain import find_compiler  # noqa: E402
from argus.compile import elaborate, lower, prove  # noqa: E402
from argus.diagnostic import Verdict  # noqa: E402
from argus.frontend import Options  # noqa: E402
from argus.ir.nodes import Kernel  # noqa: E402
from argus.kernels import attention  # noqa: E402
from argus.kernels.attention_backward_fused import ORDERS, STEPS  # noqa: E402
from argus.source import SourceFile  # noqa: E402
from tests.backend.host import run  # noqa: E402
from tests.conftest import require  # noqa: E402
from tests.kernels.common import assert_proved, source_of  # noqa: E402
from tests.kernels.test_attention_backward import LOG2E, accept, exact, gradients, operands, wanted  # noqa: E402

pytestmark = pytest.mark.slow

FILE, NAME = "attention_backward_fused", "attention_backward_blocks"


def tile(size: int) -> dict[str, Any]:
    return {"D": size, "STEP": STEPS[size], "SUMS": f"B H GROUP {ORDERS[size]}"}


def element(x: Any) -> Any:
    """The element of a head that row x of the sums holds."""
    return x // 8 * 8 + x % 2 * 4 + x % 8 // 2


def lowered(size: int, **constants: Any) -> Kernel:
    options = Options("sm_90a", 8, {**tile(size), **constants})
    return lower(elaborate(source_of(FILE), NAME, options), "sm_90a")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(2, 4, 2, 68, 65, 64), (1, 2, 1, 200, 140, 128)])
def test_results(sizes: tuple[int, ...], causal: bool, require_tool: Any) -> None:
    """The text for sm_90a, run on the host; sums begin with zeros, in rows of 16 bytes' multiples."""
    require_tool("g++", "clang++", "c++")
    batch, heads, shared, m, n, d = sizes
    q, k, v, dy = operands(sizes, "bfloat16", "cpu")
    y, lse = exact(q.double(), k.double(), v.double(), causal)
    arrays = {name: x.view(torch.uint16).numpy() for name, x in (("q", q), ("k", k), ("v", v), ("dy", dy))}
    arrays |= {"lse": lse.float().numpy(), "delta": (dy.double() * y).sum(-1).float().numpy()}
    for name in ("q", "dy", "lse", "delta"):
        arrays[name] = arrays[name].reshape(batch, shared, 2, *arrays[name].shape[2:])
    made = {name: np.full((batch, shared, n, d), 0x7FC0, np.uint16) for name in ("dk", "dv")}
    columns = ORDERS[d] == "D M"
    sums = np.zeros((batch, shared, 2, *((d, m) if columns else (m, d))), np.float32)
    grid = (shared, batch, -(-n // 128)) if causal else (-(-n // 128), shared, batch)
    named = {"B": batch, "H": shared, "M": m, "N": n, "scale": d**-0.5 * LOG2E}
    run(lowered(d, CAUSAL=causal, GROUP=2), grid, eager=causal, **arrays, sums=sums, **made, **named)
    order = np.argsort(element(np.arange(d)))
    rows = np.ascontiguousarray(sums[:, :, :, order].swapaxes(3, 4) if columns else sums)
    total = torch.from_numpy(rows.reshape(batch, heads, m, d)) * d**-0.5
    both = (torch.from_numpy(x).view(torch.bfloat16) for x in made.values())
    accept((total.bfloat16(), *both), wanted(q, k, v, dy, causal))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "sizes", [(1, 3, 1, 134, 130, 128), (1, 2, 2, 69, 200, 128), (1, 4, 2, 333, 401, 128), (1, 4, 2, 333, 401, 64)]
)
def test_results_on_a_gpu(sizes: tuple[int, ...], causal: bool, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through autograd, with rows of q that are no multiples of 16 bytes; elsewhere, the form without atomics."""
    monkeypatch.setattr(import_module("argus.kernels.attention_backward"), "FUSED_KEYS", 0)
    *tensors, dy = operands(sizes, "bfloat16", device)
    found = gradients(tuple(tensors), lambda *x: attention(*x, causal=causal, return_lse=True), dy)
    accept(found, wanted(*tensors, dy, causal))


@pytest.mark.parametrize(
    ("size", "causal"),
    [
        (64, False),
        (128, False),
        pytest.param(64, True, marks=pytest.mark.nightly),
        pytest.param(128, True, marks=pytest.mark.nightly),
    ],
)
def test_proved(size: int, causal: bool) -> None:
    assert_proved(FILE, NAME, "sm_90a", num_warps=8, CAUSAL=causal, **tile(size))


@pytest.mark.parametrize("size", [64, 128])
def test_scaling_is_proved(size: int) -> None:
    assert_proved(FILE, "attention_backward_scaled", "sm_90a", D=size, SUMS=f"B H {ORDERS[size]}")


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("slopes = (p * ", "slopes = (s * "),
        ("(g - mean[None, :])", "(g + mean[None, :])"),
        ("first + STEP], part, bound", "first + STEP], 2.0 * part, bound"),
    ],
)
def test_wrong_twins_are_not_proved(right: str, wrong: str) -> None:
    text = source_of(FILE).text
    assert right in text
    options = Options("sm_80", 4, {"D": 64, "BLOCK": 64, "STEP": 16})
    report = prove(SourceFile("wrong.py", text.replace(right, wrong)), NAME, options)
    assert report.verdict is not Verdict.PROVED


@pytest.mark.parametrize(("size", "causal"), [(64, True), (128, False)])
def test_no_product_waits_and_nothing_spills(size: int, causal: bool) -> None:
    """Heads of 64 elements without a mask spill 44 bytes a thread."""
    require(find_compiler(), "NVRTC or nvcc")
    artifact = build(lowered(size, CAUSAL=causal), "sm_90a")
    assert artifact.resources is not None
    assert (artifact.resources.spill_bytes, artifact.remarks) == (0, ())
