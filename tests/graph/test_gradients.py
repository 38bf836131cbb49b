"""Gradients of convolutions and embeddings: by operators that have kernels, beside PyTorch's own."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from argus.graph.backend import Backend, Survey  # noqa: E402
from argus.graph.gradients import convolution_backward  # noqa: E402
from tests.graph.compiled import left, same_gradients, taken  # noqa: E402

SIZE, TAPS, CHANNELS, FILTERS = (9, 8, 7), (3, 2, 4), 4, 8


def _agree(dims: int, stride: int, padding: int, dilation: int, groups: int, transposed: bool) -> None:
    shape = (CHANNELS, FILTERS // groups) if transposed else (FILTERS, CHANNELS // groups)
    x = torch.randn(3, CHANNELS, *SIZE[:dims], dtype=torch.float64)
    weight = torch.randn(*shape, *TAPS[:dims], dtype=torch.float64)
    further = int(transposed and max(stride, dilation) > 1)
    steps = [[n] * dims for n in (stride, padding, dilation)]
    arguments = (*steps, transposed, [further] * dims, groups)
    gradient = torch.randn_like(torch.ops.aten.convolution(x, weight, None, *arguments))
    wanted = torch.ops.aten.convolution_backward(gradient, x, weight, [FILTERS], *arguments, [True] * 3)
    found = convolution_backward(gradient, x, weight, [FILTERS], *arguments, [True] * 3)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_gradients_are_pytorchs(dims: int, transposed: bool) -> None:
    torch.manual_seed(0)
    for stride, padding, dilation, groups in product((1, 2), (0, 2), (1, 2), (1, 2, CHANNELS)):
        _agree(dims, stride, padding, dilation, groups, transposed)


def test_taps_that_no_remainder_meets() -> None:
    torch.manual_seed(0)
    for stride, dilation in ((3, 1), (3, 2), (3, 3), (2, 3)):
        _agree(2, stride, 2, dilation, 1, False)


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_tap_is_a_product_of_what_lies_in_memory(dtype: Any, form: Any) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, CHANNELS, 4, 6, dtype=dtype).to(memory_format=form)
    weight = torch.randn(FILTERS, CHANNELS, 1, 1, dtype=dtype)
    arguments = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    gradient = torch.randn(3, FILTERS, 4, 6, dtype=dtype).to(memory_format=form)
    mask = [False, True, False]
    wanted = torch.ops.aten.convolution_backward(gradient, x, weight, None, *arguments, mask)
    found = convolution_backward(gradient, x, weight, None, *arguments, mask)
    torch.testing.assert_close(found[1], wanted[1], rtol=1e-2, atol=1e-1 if dtype is torch.bfloat16 else 1e-4)


def test_a_tensor_that_is_padded_inside_of_a_sum_is_read_at_its_places_alone() -> None:
    """The gradient of depthwise filters with one place: a kernel that pads, multiplies and adds up."""
    torch._dynamo.reset()
    backend, wanted = Backend(survey=Survey("sm_90a", prove=False)), [False, True, False]
    arguments = (torch.randn(2, 6, 1, 1), torch.randn(2, 6, 3, 3), torch.randn(6, 1, 3, 3), None)
    steps = ([2, 2], [0, 0], [1, 1], False, [0, 0], 6)

    def gradient(*tensors: Any) -> Any:
        return torch.ops.aten.convolution_backward(*tensors, *steps, wanted)[1]

    call = torch.compile(gradient, backend=backend, dynamic=False)
    call(*arguments)
    assert "constant_pad_nd_mul_sum" in [row["kernel"] for row in backend.report(call).rows]


class Image(nn.Module):
    """Convolutions with a stride, in groups, and by channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, 2, 1)
        self.grouped = nn.Conv2d(16, 16, 3, padding=1, groups=2)
        self.each = nn.Conv2d(16, 16, 3, padding=1, groups=16)

    def forward(self, x: Any) -> Any:
        return (self.each(self.grouped(F.relu(self.first(x)))) ** 2).mean()


class Words(nn.Module):
    """Two embeddings, one of which has a row that pads, at places along two dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(37, 40, padding_idx=3), nn.Embedding(9, 40)

    def forward(self, words: Any) -> Any:
        return ((self.words(words) + self.places(torch.arange(words.shape[1]))) ** 2).sum()


def test_rows_of_embeddings_are_added_by_a_proved_kernel() -> None:
    torch.manual_seed(0)
    report = same_gradients(Words(), torch.randint(0, 37, (3, 9)))
    assert taken(report).count("embedding_dense_backward") == 2


def test_where_sums_must_have_an_order_rows_are_left() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        report = same_gradients(Words(), torch.randint(0, 37, (3, 9)))
    finally:
        torch.use_deterministic_algorithms(False)
    assert left(report).count("embedding_dense_backward.default") == 2


@pytest.mark.nightly
def test_a_models_gradients_are_those_of_proved_kernels() -> None:
    torch.manual_seed(0)
    assert not left(same_gradients(Image(), torch.randn(2, 3, 11, 10)))


class Placed(nn.Module):
    """Rows of a table, with those of their places added, as a language model begins."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places, self.last = nn.Embedding(9, 8), nn.Embedding(64, 8), nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        return (self.last(self.tokens(x) + self.places(torch.arange(x.shape[1]))) ** 2).mean()


def test_gradients_of_a_length_that_is_known_only_when_it_runs() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, x = Placed(), torch.randint(0, 9, (2, 7))
    call = torch.compile(model, backend=Backend(survey=Survey("cpu", prove=False)), dynamic=True)
    wanted = torch.autograd.grad(model(x), list(model.parameters()))
    found = torch.autograd.grad(call(x), list(model.parameters()))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_no_gradient_of_a_convolution_is_left() -> None:
    torch._dynamo.reset()
    backend = Backend(survey=Survey("sm_90a", prove=False))
    model = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1))
    call = torch.compile(model, backend=backend, dynamic=False)
    call(torch.randn(8, 32, 28, 28)).sum().backward()
    report = backend.report(call)
    assert {row["graph"] for row in report.rows} == {"forward", "backward"} and not left(report)
    assert "convolution_backward" not in str(report)
