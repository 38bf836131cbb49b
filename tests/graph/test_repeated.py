"""Enlarged images are views and one copy."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from argus.graph.repeated import repeat_pixels  # noqa: E402
from tests.graph.compiled import left, same_gradients, taken  # noqa: E402


def traced(model: Any, *inputs: Any) -> Any:
    found: list[Any] = []

    def backend(gm: Any, _: Any) -> Any:
        repeat_pixels(gm)
        found.append(gm)
        return gm.forward

    torch._dynamo.reset()
    made = torch.compile(model, backend=backend, dynamic=False)(*inputs)
    return made, any(n.target is F.interpolate for n in found[0].graph.nodes)


@pytest.mark.parametrize(
    ("shape", "given", "replaced"),
    [
        ((2, 3, 4, 5), {"scale_factor": 2.0}, True),
        ((2, 3, 4, 5), {"size": (16, 5), "mode": "nearest"}, True),
        ((2, 3, 5), {"scale_factor": 4}, True),
        ((2, 3, 2, 3, 4), {"size": (4, 6, 8)}, True),
        ((2, 3, 4, 5), {"scale_factor": 3.0}, False),
        ((2, 3, 4, 5), {"size": (7, 10)}, False),
        ((2, 3, 4, 6), {"size": (2, 3)}, False),
        ((2, 3, 4, 5), {"scale_factor": 2.0, "mode": "bilinear"}, False),
    ],
)  # fmt: skip
def test_enlarged_images_are_what_pytorch_makes_of_them(shape: tuple[int, ...], given: Any, replaced: bool) -> None:
    x = torch.randn(shape)
    for image in (x, x.to(memory_format=torch.channels_last)) if x.ndim == 4 else (x,):
        made, kept = traced(lambda x: F.interpolate(x, **given), image)
        wanted = F.interpolate(image, **given)
        assert kept != replaced and made.stride() == wanted.stride()
        torch.testing.assert_close(made, wanted, rtol=0, atol=0)


class Enlarged(nn.Module):
    def forward(self, x: Any) -> Any:
        return (F.interpolate(x * 2.0, scale_factor=2.0) + 1.0).square().sum()


def test_an_enlarged_image_and_its_gradient_are_kernels() -> None:
    report = same_gradients(Enlarged(), torch.randn(2, 3, 4, 8))
    assert taken(report) and not [name for name in left(report) if "index" in name]
