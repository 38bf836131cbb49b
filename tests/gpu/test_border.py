"""Functions and operators on the GPU: graphs, streams, devices, gradients, torch.compile."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus import kernels  # noqa: E402
from tests.runtime.kernels import scale  # noqa: E402

pytestmark = pytest.mark.gpu
_numbers = count()


def rows() -> Any:
    return torch.randn(64, 1000, device="cuda", dtype=torch.bfloat16)


def near(got: Any, wanted: Any) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-2, atol=1e-2)


def test_a_graph_captures_functions() -> None:
    x, weight = rows(), rows()[0]
    for _ in range(2):
        kernels.softmax(kernels.rmsnorm(x, weight))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = kernels.softmax(kernels.rmsnorm(x, weight))
    for _ in range(2):
        x.copy_(rows())
        graph.replay()
        torch.cuda.synchronize()
        near(y, torch.nn.functional.rms_norm(x, (1000,), weight, 1e-6).softmax(-1))


def test_a_graph_captures_operators() -> None:
    op = scale.as_torch_op(f"argus_test::border{next(_numbers)}", functional=True)
    x = torch.rand(1000, device="cuda")
    op(x, 1.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = op(x, 1.0)
    x.fill_(2.0)
    graph.replay()
    torch.cuda.synchronize()
    assert bool((out == 7.0).all())


def test_functions_follow_the_current_stream() -> None:
    stream, x = torch.cuda.Stream(), rows()
    kernels.softmax(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.fill_(1.0)
        y = kernels.softmax(x)
    stream.synchronize()
    near(y, torch.full_like(x, 1e-3))


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients(compiled: bool) -> None:
    def model(a: Any, b: Any, up: Any) -> Any:
        return kernels.silu_mul(kernels.matmul(a, b), up)

    def reference(a: Any, b: Any, up: Any) -> Any:
        return torch.nn.functional.silu(a @ b) * up

    call = torch.compile(model, fullgraph=True) if compiled else model
    shapes, found = ((64, 128), (128, 256), (64, 256)), []
    for function in (call, reference):
        torch.manual_seed(0)
        made = [torch.randn(s, device="cuda", dtype=torch.bfloat16).div(8).requires_grad_() for s in shapes]
        found.append(torch.autograd.grad(function(*made).sum(), made))
    torch.testing.assert_close(*found, rtol=5e-2, atol=5e-2)


def test_reduced_overhead_captures_functions() -> None:
    call = torch.compile(lambda x: kernels.softmax(x) + 1, mode="reduce-overhead", fullgraph=True)
    for _ in range(3):
        x = rows()
        near(call(x), x.softmax(-1) + 1)


def test_another_device_than_the_current_one() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two NVIDIA GPUs")
    for device in ("cuda:1", "cuda:0", "cuda:1"):
        x = rows().to(device)
        with torch.cuda.device(0):
            y = kernels.softmax(x)
        assert y.device == x.device
        near(y, x.softmax(-1))
        x, out = torch.rand(1000, device=device), torch.empty(1000, device=device)
        scale(x, out, 1.0)
        torch.testing.assert_close(out, 3 * x + 1)
