"""Float8 with scales of blocks: quantisation and products against float64, odd sizes, wrong arguments, proofs."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.compile import prove  # noqa: E402
from argus.diagnostic import LaunchError, Verdict  # noqa: E402
from argus.frontend import Options  # noqa: E402
from argus.kernels import matmul_blocks, quantize_blocks, rmsnorm_quantize  # noqa: E402
from argus.kernels.matmul_blocks import tile_of  # noqa: E402
from argus.source import SourceFile  # noqa: E402
from tests.kernels.common import assert_proved, random, source_of  # noqa: E402


def scales_of(x: torch.Tensor) -> torch.Tensor:
    """In float64: the largest magnitude of each 128 elements of a row, over 448."""
    padded = torch.nn.functional.pad(x.double(), (0, -x.shape[-1] % 128))
    return padded.unflatten(-1, (-1, 128)).abs().amax(-1).clamp_min(1e-12) / 448


def spread(scale: torch.Tensor, columns: int) -> torch.Tensor:
    return scale.double().repeat_interleave(128, -1)[..., :columns]


@pytest.mark.parametrize("shape", [(1, 1), (3, 128), (5, 300), (2, 3, 1000)])
def test_quantized(device: str, shape: tuple[int, ...]) -> None:
    x = random(*shape, dtype="bfloat16", device=device)
    values, scale = quantize_blocks(x)
    assert values.shape == x.shape and scale.shape == (*shape[:-1], -(-shape[-1] // 128))
    torch.testing.assert_close(scale.double(), scales_of(x), rtol=3e-7, atol=0)
    exact = x.double() / spread(scale, shape[-1])
    torch.testing.assert_close(values.double(), exact, rtol=2**-4 + 1e-6, atol=2**-10)


def test_blocks_of_zeros(device: str) -> None:
    x = torch.zeros(2, 256, dtype=torch.bfloat16, device=device)
    x[1, 200] = 3
    values, scale = quantize_blocks(x)
    assert float(values.float().abs().sum()) == 448 and float(scale[0, 0]) == pytest.approx(1e-12 / 448)


def test_quantized_norm(device: str) -> None:
    x, weight = random(5, 300, dtype="float16", device=device), random(300, dtype="float16", device=device, seed=1)
    values, scale = rmsnorm_quantize(x, weight, 1e-5)
    exact = torch.nn.functional.rms_norm(x.double(), (300,), weight.double(), 1e-5)
    torch.testing.assert_close(scale.double(), scales_of(exact), rtol=1e-5, atol=0)
    torch.testing.assert_close(values.double(), exact / spread(scale, 300), rtol=2**-4 + 1e-4, atol=2**-9)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (5, 200, 384), (70, 130, 300)])
def test_products(device: str, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    a, scale_a = quantize_blocks(random(m, k, dtype="bfloat16", device=device))
    b = random(n, k, device=device, seed=1).to(torch.float8_e4m3fn)
    scale_b = torch.rand(-(-n // 128), -(-k // 128), generator=torch.Generator().manual_seed(0)).to(device)
    got = matmul_blocks(a, b, scale_a, scale_b, out_dtype=torch.float32)
    rows = spread(scale_b, k).repeat_interleave(128, 0)[:n]
    exact = (a.double() * spread(scale_a, k)) @ (b.double() * rows).T
    assert float((got.double() - exact).norm()) <= 1e-3 * float(exact.norm())


def test_wrong_arguments_are_refused() -> None:
    a, scale_a = quantize_blocks(random(3, 256, dtype="bfloat16"))
    b, scale_b = random(130, 256).to(torch.float8_e4m3fn), torch.ones(2, 2)
    wrong: list[tuple[tuple[Any, ...], str]] = [
        ((a[:, :100], b, scale_a, scale_b), "`b` has the shape"),
        ((a, b, scale_a[:, :1], scale_b), "`scale_a` has the shape"),
        ((a, b, scale_a, scale_b[:1]), "`scale_b` has the shape"),
        ((a.float(), b, scale_a, scale_b), "`a` is a tensor of float32"),
        ((a, b, scale_a.half(), scale_b), "`scale_a` is a tensor of float16"),
    ]
    for given, message in wrong:
        with pytest.raises(LaunchError, match=message):
            matmul_blocks(*given)
    with pytest.raises(LaunchError, match="the result cannot be"):
        matmul_blocks(a, b, scale_a, scale_b, out_dtype=torch.int8)
    with pytest.raises(LaunchError, match="rows of `x` have 40000"):
        quantize_blocks(random(1, 40000, dtype="bfloat16"))


@pytest.mark.parametrize("weight", [{}, {"weight": None}])
def test_quantisation_is_proved(weight: dict[str, Any]) -> None:
    assert_proved("blockwise", "quantized_blocks", "sm_90a", **weight)


def test_tiles_are_halved_or_shared_by_their_number() -> None:
    assert tile_of("sm_90a", 64, 7168, True)["COLUMNS"] == tile_of("sm_90a", 128, 7168, True)["COLUMNS"] == 64
    assert not {"COLUMNS", "CLUSTER"} & tile_of("sm_90a", 4096, 4096, True).keys()
    assert tile_of("sm_90a", 8192, 8192, True)["CLUSTER"] == 2


def test_products_are_proved() -> None:
    assert_proved("blockwise", "product_of_blocks", "sm_90a", num_warps=8)
    assert_proved("blockwise", "product_of_blocks", "sm_90a", num_warps=8, CLUSTER=2)
    assert_proved("blockwise", "product_of_blocks", "sm_90a", num_warps=4, ROWS=64, COLUMNS=64, STAGES=5)
    way = {"PRODUCERS": 0, "ROWS": 64, "COLUMNS": 64, "STAGES": 2, "MULTIPLY": "float16", "SCHEDULE": "cooperative"}
    for target in ("sm_80", "gfx942"):
        assert_proved("blockwise", "product_of_blocks", target, **way)


@pytest.mark.parametrize(
    ("kernel", "old", "new"),
    [
        ("product_of_blocks", "al.load(scale_b[n0 // SIDE, g]", "al.load(scale_b[n0 // SIDE, 0]"),
        ("product_of_blocks", "acc += more * second", "acc += more * first"),
        ("product_of_blocks", "        second = rows_after * columns_after\n", ""),
        ("quantized_blocks", "al.max(blocks, axis=2), LEAST", "al.max(blocks, axis=2), 0.0"),
    ],
)
def test_wrong_twins_are_not_proved(kernel: str, old: str, new: str) -> None:
    """The first scale for all k, the scales of the block before, those of the first blocks, a scale of zero."""
    whole = source_of("blockwise")
    assert whole.text.count(old) == 1
    report = prove(SourceFile(whole.path, whole.text.replace(old, new)), kernel, Options("sm_90a", 8))
    assert report.verdict is not Verdict.PROVED
