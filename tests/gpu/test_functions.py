"""Library functions as prepared launches on the GPU: streams, graphs, shapes in turns, freed memory, gradients off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

from torch.nn import functional as F  # noqa: E402

from argus import kernels  # noqa: E402


def some(*shape: int) -> Any:
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)


Case = tuple[Callable[..., Any], Callable[..., Any], Callable[[], list[Any]]]

CASES: dict[str, Case] = {
    "softmax": (kernels.softmax, lambda x: F.softmax(x, -1), lambda: [some(64, 512)]),
    "rmsnorm": (kernels.rmsnorm, lambda x, w: F.rms_norm(x, w.shape, w, 1e-6), lambda: [some(64, 512), some(512)]),
    "transpose": (kernels.transpose, lambda x: x.t().contiguous(), lambda: [some(64, 512)]),
    "matmul": (kernels.matmul, torch.matmul, lambda: [some(128, 64), some(64, 256)]),
    "sum of parts": (
        lambda x: kernels.reduce(x, "sum", 0),
        lambda x: x.float().sum(0).bfloat16(),
        lambda: [some(16384, 8)],
    ),
    "attention": (kernels.attention, F.scaled_dot_product_attention, lambda: [some(1, 4, 256, 128) for _ in range(3)]),
}
FUNCTIONS = pytest.mark.parametrize("name", CASES)


def near(got: Any, wanted: Any) -> None:
    torch.testing.assert_close(got, wanted, rtol=0.03, atol=0.03 * float(wanted.float().std()))


@FUNCTIONS
def test_prepared_calls_follow_their_tensors(name: str) -> None:
    """Others of the same kind, and memory that was freed and given to something else."""
    ours, theirs, make = CASES[name]
    kept = []
    for turn in range(6):
        tensors = make()
        kept.append((ours(*tensors), theirs(*tensors)))
        if turn % 2:
            del tensors
    for got, wanted in kept:
        near(got, wanted)


@FUNCTIONS
def test_the_current_stream_is_used(name: str) -> None:
    ours, theirs, make = CASES[name]
    tensors, others = make(), make()
    ours(*tensors)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        for tensor, other in zip(tensors, others, strict=True):
            tensor.copy_(other)
        got = ours(*tensors)
    stream.synchronize()
    near(got, theirs(*others))


@FUNCTIONS
def test_a_graph_captures_and_replays(name: str) -> None:
    ours, theirs, make = CASES[name]
    tensors, others = make(), make()
    ours(*tensors)  # builds and loads, which a capture forbids
    ours(*tensors)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = ours(*tensors)
    before = ours(*tensors)  # launches between capture and replay leave the graph's addresses alone
    for tensor, other in zip(tensors, others, strict=True):
        tensor.copy_(other)
    graph.replay()
    torch.cuda.synchronize()
    near(got, theirs(*others))
    assert before.data_ptr() != got.data_ptr()
