"""Attention of float32, and layers that PyTorch runs as one operator, written out."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from argus.graph.backend import Backend, Survey  # noqa: E402
from argus.graph.encoder import is_written_out  # noqa: E402
from tests.graph.compiled import left  # noqa: E402


def surveyed(model: Any) -> tuple[Any, Backend]:
    torch._dynamo.reset()
    backend = Backend(survey=Survey("sm_90a", prove=False))
    return torch.compile(model, backend=backend, dynamic=False), backend


@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_layer_is_written_out(norm_first: bool) -> None:
    torch.manual_seed(0)
    activation = "gelu" if norm_first else "relu"
    model = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True, norm_first=norm_first, activation=activation).eval()
    call, backend = surveyed(model)
    x = torch.randn(3, 7, 32)
    with torch.no_grad():
        torch.testing.assert_close(call(x), model(x))
    assert not left(backend.report(call))


def attend(q: Any) -> Any:
    return F.scaled_dot_product_attention(q, q * 2, q + 1, is_causal=True).square().sum()


def test_attention_of_float32_and_its_gradient_are_written_out() -> None:
    torch.manual_seed(0)
    call, backend = surveyed(attend)
    q = torch.randn(2, 3, 7, 8, requires_grad=True)
    exact = q.detach().double().requires_grad_()
    wanted, found = (torch.autograd.grad(run(x), x)[0] for run, x in ((attend, exact), (call, q)))
    torch.testing.assert_close(found, wanted.float(), rtol=1e-5, atol=1e-4)
    assert not left(backend.report(call))


def test_scores_that_fill_the_cache_are_not_written_out() -> None:
    few, many = (torch.empty(2, 8, n, 64, device="meta") for n in (256, 2048))
    assert is_written_out(few, few, few)
    assert not is_written_out(many, many, many)
    assert not is_written_out(few.half(), few.half(), few.half())


def test_a_view_with_other_strides_of_single_elements_is_no_operator() -> None:
    def pooled(x: Any) -> Any:
        return F.adaptive_avg_pool2d(x.contiguous(memory_format=torch.channels_last).relu(), 1).flatten(1)

    call, backend = surveyed(pooled)
    x = torch.randn(2, 8, 5, 6)
    torch.testing.assert_close(call(x), pooled(x))
    assert not left(backend.report(call))
