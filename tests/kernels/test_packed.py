"""Products with weights of 4 and 8 bits: results against float64, packing, odd sizes, wrong arguments, proofs."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.compile import prove  # noqa: E402
from argus.diagnostic import LaunchError, Verdict  # noqa: E402
from argus.frontend import Options  # noqa: E402
from argus.kernels import matmul_int4, matmul_int8  # noqa: E402
from argus.kernels.matmul_packed import pack_weights  # noqa: E402
from argus.source import SourceFile  # noqa: E402
from tests.kernels.common import assert_proved, random, source_of  # noqa: E402

PRODUCTS = {4: matmul_int4, 8: matmul_int8}


def layer(
    tokens: int, rows: int, depth: int, bits: int, group: int, device: str, dtype: str = "bfloat16"
) -> tuple[torch.Tensor, ...]:
    """x, integer weights, scales and zeros."""
    generator = torch.Generator().manual_seed(rows + depth)
    groups = -(-depth // group)
    weights = torch.randint(0, 2**bits, (rows, depth), generator=generator).to(device)
    zeros = torch.randint(0, 2**bits, (rows, groups), generator=generator).to(getattr(torch, dtype)).to(device)
    scales = (torch.rand(rows, groups, generator=generator) / depth**0.5).to(zeros)
    return random(tokens, depth, dtype=dtype, device=device), weights, scales, zeros


def by_definition(
    x: torch.Tensor, weights: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | int, group: int
) -> torch.Tensor:
    """In float64, rounded nowhere."""
    of_group = torch.arange(x.shape[-1], device=x.device) // group
    less = zeros if isinstance(zeros, int) else zeros.double()[:, of_group]
    return x.double() @ ((weights.double() - less) * scales.double()[:, of_group]).T


def assert_near(got: torch.Tensor, exact: torch.Tensor) -> None:
    assert got.shape == exact.shape and bool(got.isfinite().all())
    assert float((got.double() - exact).norm()) <= torch.finfo(got.dtype).eps * float(exact.norm())


@pytest.mark.product
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("tokens", "rows", "depth"), [(1, 1, 1), (3, 37, 200), (17, 64, 128), (5, 33, 384)])
def test_results(device: str, bits: int, tokens: int, rows: int, depth: int) -> None:
    x, weights, scales, zeros = layer(tokens, rows, depth, bits, 128, device)
    got = PRODUCTS[bits](x, pack_weights(weights, bits), scales, zeros)
    assert_near(got, by_definition(x, weights, scales, zeros, 128))


@pytest.mark.parametrize(("bits", "group"), [(4, 32), (4, 64), (4, 256), (8, 16), (8, 64), (8, 128)])
def test_groups(device: str, bits: int, group: int) -> None:
    x, weights, scales, zeros = layer(4, 40, 300, bits, group, device, "float16")
    got = PRODUCTS[bits](x, pack_weights(weights, bits), scales, zeros, group=group)
    assert_near(got, by_definition(x, weights, scales, zeros, group))


@pytest.mark.parametrize("bits", [4, 8])
def test_without_zeros(device: str, bits: int) -> None:
    """Zeros are the middle number; tokens may have several dimensions."""
    x, weights, scales, _ = layer(6, 40, 256, bits, 128, device)
    got = PRODUCTS[bits](x.view(2, 3, 256), pack_weights(weights, bits), scales)
    assert_near(got, by_definition(x, weights, scales, 2 ** (bits - 1), 128).view(2, 3, 40))


@pytest.mark.parametrize("bits", [4, 8])
def test_zeros_that_are_not_whole(device: str, bits: int) -> None:
    """A quarter is held exactly beside weights of four bits; beside eight bits a difference is rounded."""
    x, weights, scales, zeros = layer(4, 40, 256, bits, 128, device)
    got = PRODUCTS[bits](x, pack_weights(weights, bits), scales, zeros + 0.25)
    of_group = torch.arange(256, device=x.device) // 128
    less = weights.double() - (zeros + 0.25).double()[:, of_group]
    exact = x.double() @ (less.to(x.dtype).double() * scales.double()[:, of_group]).T
    assert_near(got, exact)


@pytest.mark.parametrize("bits", [4, 8])
def test_packing(bits: int) -> None:
    """Every weight stands where the packing's description says."""
    weights = torch.randint(0, 2**bits, (5, 300), generator=torch.Generator().manual_seed(0))
    packed, each = pack_weights(weights, bits), 1024 // bits
    assert packed.shape == (-(-300 // each), 5, 32)
    for k in range(300):
        p = k % each
        word = packed[k // each, :, p // (128 // bits) * 4 + p % 8 // 2].long()
        place = p % (128 // bits) // 8 * bits + p % 2 * 16
        assert torch.equal(word >> place & (2**bits - 1), weights[:, k])


def test_wrong_arguments_are_refused() -> None:
    x, weights, scales, zeros = layer(3, 40, 256, 4, 128, "cpu")
    packed = pack_weights(weights, 4)
    wrong: list[tuple[tuple[Any, ...], str]] = [
        ((x.repeat(1, 2), packed, scales, zeros), "`packed` has the shape"),
        ((x, packed, scales[:, :1], zeros), "`scales` has the shape"),
        ((x, packed, scales, zeros[:7]), "`zeros` has the shape"),
        ((x.float(), packed, scales, zeros), "`x` is a tensor of float32"),
        ((x, packed.float(), scales, zeros), "`packed` is a tensor of float32"),
        ((x, packed, scales, zeros.int()), "`zeros` is a tensor of int32"),
    ]
    for given, message in wrong:
        with pytest.raises(LaunchError, match=message):
            matmul_int4(*given)
    with pytest.raises(LaunchError, match="groups of 48"):
        matmul_int4(x, packed, scales, zeros, group=48)
    with pytest.raises(LaunchError, match="`bits` is 3"):
        pack_weights(weights, 3)


def test_no_gradient() -> None:
    x, weights, scales, zeros = layer(3, 40, 256, 4, 128, "cpu")
    with pytest.raises(LaunchError, match="no gradient"):
        matmul_int4(x.requires_grad_(), pack_weights(weights, 4), scales, zeros).sum().backward()


WAYS: dict[str, dict[str, Any]] = {
    "int4": {},
    "int8": {"BITS": 8, "DTYPE": "float16"},
    "small groups": {"GROUP": 32},
    "no zeros": {"zeros": None},
    "wide": {"ROWS": 128, "TOKENS": 64, "num_warps": 8},
    "producers": {"PRODUCERS": 4},
    "many warps": {"PRODUCERS": 4, "ROWS": 256, "STAGES": 3, "num_warps": 16, "SCHEDULE": "rows"},
    "producers, int8": {"PRODUCERS": 4, "BITS": 8, "TOKENS": 8},
}


@pytest.mark.parametrize("name", WAYS)
def test_proved(name: str) -> None:
    assert_proved("packed", "product_of_packed", "sm_90a", **WAYS[name])


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_proved_elsewhere(target: str) -> None:
    assert_proved("packed", "product_of_packed", target)
    assert_proved("packed", "unpacked_weights", target)


def test_parts_are_proved() -> None:
    assert_proved("packed", "product_of_packed", "sm_90a", DEPTH=1024, OUT="float32", OUT_SHAPE="S M N")


@pytest.mark.parametrize(
    ("kernel", "old", "new"),
    [
        ("product_of_packed", "acc += sums * s0", "acc += sums + s0"),
        ("product_of_packed", "z0, z1 = columns", "z1, z0 = columns"),
        ("unpacked_weights", "word_of(k - b * SPAN, BITS)], mask", "word_of(k - b * SPAN + 1, BITS)], mask"),
    ],
)
def test_wrong_twins_are_not_proved(kernel: str, old: str, new: str) -> None:
    """A scale that is added, the zeros of the other part, the next weight."""
    whole = source_of("packed")
    assert whole.text.count(old) == 1
    constants = {"GROUP": 32} if kernel == "product_of_packed" else {}
    report = prove(SourceFile(whole.path, whole.text.replace(old, new)), kernel, Options("sm_90a", 4, constants))
    assert report.verdict is not Verdict.PROVED
