"""Programs run on the CPU target: from NumPy and PyTorch, with collectives, and with wrong arguments."""

import pickle
from contextlib import contextmanager

import numpy as np
import pytest
import torch

import argus
from argus.diagnostic import LaunchError, VerificationError
from argus.programs import from_text
from argus.programs.call import Plan
from tests.programs import shipped
from tests.programs.texts import TEXT


def test_two_launches_and_a_buffer_on_numpy_arrays():
    x = np.arange(1000, dtype=np.float32)
    y = np.empty_like(x)
    shipped.twice(x, y)
    assert np.array_equal(y, 6 * x)


def test_a_loop_over_rows_of_pytorch_tensors_with_strides():
    x, y = torch.randn(6, 40)[:, :20], torch.zeros(6, 32)[:, :20]
    shipped.rows(x, y)
    assert torch.equal(y, (x * 2) * 3)


def test_streams_and_events_are_in_order_on_the_cpu():
    x = torch.randn(7, 33)
    y = torch.empty_like(x)
    shipped.ring(x, y)
    assert torch.equal(y, (x * 2) * 3)


def test_a_condition_and_numbers_are_those_of_each_call():
    x, index = torch.randn(50), torch.randint(0, 50, (30,), dtype=torch.int32)
    for a, deep in ((0.5, 1), (0.25, 1), (0.25, 0)):
        y = torch.empty(30)
        shipped.picked(x, index, y, a, deep)
        expected = x[index.long()] * (a if deep else 1.0)
        torch.testing.assert_close(y, expected * 2 + expected, rtol=0, atol=0)


def test_a_network_of_two_products():
    x, w1, w2 = (torch.randint(-3, 4, shape).float() for shape in ((33, 40), (40, 48), (48, 24)))
    y = torch.empty(33, 24)
    shipped.mlp(x, w1, w2, y)
    assert torch.equal(y, (x @ w1).relu() @ w2)


@pytest.mark.parametrize("make", [lambda: np.ones(64, np.float32), lambda: torch.ones(64)], ids=["numpy", "torch"])
def test_a_collective_is_the_callers_function(make):
    x, y = make(), make()
    seen = []

    def all_reduce(reads, writes):
        seen.append((tuple(reads[0].shape), tuple(writes[0].shape)))
        writes[0][...] = 4 * reads[0]

    shipped.reduced(x, y, collectives={"all_reduce": all_reduce})
    assert seen == [((64,), (64,))] and float(y.min()) == float(y.max()) == 4.0
    with pytest.raises(LaunchError, match='the program calls "all_reduce"'):
        shipped.reduced(x, y)


def test_wrong_arguments_launch_nothing():
    x, y = np.ones(64, np.float32), np.zeros(33, np.float32)
    for given, code in (
        ((x, y), "shape-mismatch"),
        ((x, x), "overlapping-output"),
        ((x,), "argument-count"),
        ((x, np.zeros(64, np.int32)), "dtype-mismatch"),
        ((x, "y"), "argument-type"),
    ):
        with pytest.raises(LaunchError) as caught:
            shipped.twice(*given)
        assert caught.value.diagnostics[0].code == code
    assert not y.any() and (x == 1).all()
    with pytest.raises(LaunchError) as caught:
        shipped.chunks(np.ones(33, np.float32), y)
    assert caught.value.diagnostics[0].code == "precondition-failed"
    assert not y.any()


def test_contents_of_index_tensors_are_checked_on_request():
    x, y, index = torch.ones(4), torch.zeros(2), torch.tensor([0, 4], dtype=torch.int32)
    with pytest.raises(LaunchError) as caught:
        shipped.picked(x, index, y, 1.0, 1, check_index_tensors=True)
    assert caught.value.diagnostics[0].code == "index-out-of-range"
    assert not y.any()
    shipped.picked(x, index - 1 + torch.tensor([1, 0], dtype=torch.int32), y, 1.0, 1, check_index_tensors=True)
    assert y.tolist() == [3.0, 3.0]


def test_a_wrong_program_is_not_run():
    wrong = from_text(TEXT.replace("    scale(x, half, 2.0)\n", ""))["twice"]
    x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
    with pytest.raises(VerificationError) as caught:
        wrong(x, y)
    assert caught.value.diagnostics[0].code == "program-uninitialised"
    assert not y.any()


def test_a_program_is_pickled_as_its_text():
    copy = pickle.loads(pickle.dumps(shipped.twice))
    assert isinstance(copy, argus.JitProgram)
    x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
    copy(x, y)
    assert (y == 6).all()


def test_a_cuda_graph_needs_a_gpu():
    with pytest.raises(LaunchError, match="a CUDA graph records work on a GPU"):
        shipped.twice.graph(np.ones(8, np.float32), np.ones(8, np.float32))


def test_overlapping_tensors_are_refused_in_every_call():
    room = torch.ones(96)
    x, y = room[:32], room[64:]
    shipped.twice(x, y)
    with pytest.raises(LaunchError) as caught:
        shipped.twice(x, room[16:48])
    assert caught.value.diagnostics[0].code == "overlapping-output"
    assert room[16:32].tolist() == [1.0] * 16


DECIDES = """
@argus.program
def decides(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"], a: al.float32):
    al.requires(a > 0.0)
    if a > 1.0:
        scale(x, y, 2.0)
    else:
        scale(x, y, a)
"""


def test_a_float_that_decides_is_read_in_every_call():
    decides = from_text(TEXT + DECIDES)["decides"]
    x, y = torch.ones(8), torch.zeros(8)
    for a, expected in ((1.5, 2.0), (0.5, 0.5), (0.25, 0.25), (7.0, 2.0)):
        decides(x, y, a)
        assert y.tolist() == [expected] * 8
    with pytest.raises(LaunchError) as caught:
        decides(x, y, -1.0)
    assert caught.value.diagnostics[0].code == "precondition-failed"


class _Recorded:
    """Streams that note what is done on them, in place of a GPU's."""

    def __init__(self):
        self.seen, self.stream, self.events = [], None, 0

    @contextmanager
    def on(self, stream):
        self.seen.append(f"launch on {stream}")
        yield

    def event(self):
        self.events += 1
        return self.events

    def record(self, stream, event):
        self.seen.append(f"record {event} on {stream}")

    def wait(self, stream, event):
        self.seen.append(f"wait {stream} for {event}")


def test_work_events_and_waits_are_queued_in_the_order_of_the_text(monkeypatch):
    streams = _Recorded()
    monkeypatch.setattr(Plan, "_streams", lambda plan: streams)
    forked = from_text(TEXT)["forked"]
    x, y = torch.arange(32.0), torch.zeros(32)
    expected = [
        "record 1 on main", "wait side for 1", "launch on main", "launch on side", "record 2 on side",
        "wait main for 2", "launch on main",
    ]  # fmt: skip
    forked(x, y, 0.5)
    assert streams.seen == expected and torch.equal(y, 3.5 * x)
    streams.seen, streams.events = [], 0
    forked(x, y, a=0.25)  # by name: not from what is kept
    assert streams.seen == expected and torch.equal(y, 3.25 * x)


class _Layer(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        torch.ops.argus_programs.twice(x, y)
        return y + 1


def test_a_program_is_an_operator_that_compile_and_export_trace():
    op = shipped.twice.as_torch_op("argus_programs::twice")
    assert [a.alias_info is not None and a.alias_info.is_write for a in op._schema.arguments] == [False, True]
    x = torch.arange(40.0)
    assert torch.equal(torch.compile(_Layer(), backend="aot_eager", fullgraph=True)(x), 6 * x + 1)
    exported = torch.export.export(_Layer(), (x,))
    assert torch.equal(exported.module()(2 * x), 12 * x + 1)
    again = shipped.chunks.as_torch_op("argus_programs::chunks", CHUNK=8)
    y = torch.empty(40)
    again(x, y)
    assert torch.equal(y, 6 * x)
    with pytest.raises(LaunchError, match="does not name an operator"):
        shipped.twice.as_torch_op("twice")
