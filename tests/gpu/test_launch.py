"""Launches on the GPU: streams, threads, graphs, alignment, operators, and errors in words."""

from __future__ import annotations

import threading
from itertools import count
from typing import Any

import pytest

from argus.diagnostic import LaunchError
from tests.runtime.kernels import scale, take

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

_numbers = count()


def operands(n: int = 100_000, offset: int = 0) -> tuple[Any, Any]:
    x = torch.rand(n + offset, device="cuda")[offset:]
    return x, torch.full((n,), float("nan"), device="cuda")


def check(x: Any, out: Any, shift: float) -> None:
    torch.testing.assert_close(out, 3 * x + shift, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n", [4, 256, 100_000, 0, 1_000_004])
def test_results(n: int) -> None:
    for shift in (0.5, -1.0, 2.0):
        x, out = operands(n)
        scale(x, out, shift)
        check(x, out, shift)


@pytest.mark.parametrize("offset", [0, 1, 2, 4])
def test_addresses_of_any_alignment(offset: int) -> None:
    for _ in range(3):
        x, out = operands(1000, offset)
        scale(x, out, 1.0)
        check(x, out, 1.0)


def test_the_current_stream_is_used() -> None:
    stream = torch.cuda.Stream()
    x, out = operands()
    scale(x, out, 0.0)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.fill_(2.0)
        scale(x, out, 1.0)
    stream.synchronize()
    assert bool((out == 7.0).all())


def test_a_graph_captures_and_replays() -> None:
    x, out = operands()
    scale(x, out, 1.0)  # builds and loads, which a capture forbids
    scale(x, out, 1.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        scale(x, out, 2.0)
    x.fill_(1.0)
    graph.replay()
    torch.cuda.synchronize()
    assert bool((out == 5.0).all())


def test_threads_with_streams_of_their_own() -> None:
    sets = [operands(50_000) for _ in range(4)]
    failures: list[BaseException] = []

    def work(i: int) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(100):
                    scale(*sets[i], float(i))
                torch.cuda.current_stream().synchronize()
        except BaseException as error:
            failures.append(error)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for i, (x, out) in enumerate(sets):
        check(x, out, float(i))


def test_every_device() -> None:
    for device in range(torch.cuda.device_count()):
        x = torch.rand(1000, device=f"cuda:{device}")
        for _ in range(3):
            out = torch.full_like(x, float("nan"))
            scale(x, out, 1.0)
            check(x, out, 1.0)


def test_devices_are_not_mixed() -> None:
    x, out = operands(1000)
    for _ in range(2):
        with pytest.raises(LaunchError, match="device-mismatch"):
            scale(x.cpu(), out, 1.0)


def test_index_tensors_are_looked_into_on_request() -> None:
    table, out = torch.rand(10, device="cuda"), torch.zeros(3, device="cuda")
    index = torch.tensor([9, 0, 4], device="cuda", dtype=torch.int32)
    take(table, index, out, check_index_tensors=True)
    assert torch.equal(out, table[index.long()])
    index[1] = 10
    with pytest.raises(LaunchError, match="index-out-of-range"):
        take(table, index, out, check_index_tensors=True)


def test_operators() -> None:
    mutating = scale.as_torch_op(f"argus_gpu_test::m{next(_numbers)}")
    functional = scale.as_torch_op(f"argus_gpu_test::f{next(_numbers)}", functional=True)
    x, out = operands(1000)
    torch.library.opcheck(mutating, (x, out, 0.5))
    torch.library.opcheck(functional, (x, 0.5))
    compiled = torch.compile(lambda x: functional(x, 0.5) * 2, backend="aot_eager", fullgraph=True)
    check(x, compiled(x) / 2, 0.5)
