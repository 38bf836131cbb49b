"""Prepared launches: what reaches the entry point, and what is checked on every call."""

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from argus.backend.launch.array import array
from argus.backend.launch.bind import bind
from argus.backend.launch.plan import Arguments, Plan
from argus.backend.launch.signature import Signature, signature
from argus.diagnostic import LaunchError
from tests.backend.launch.samples import gemm

GEMM = signature(gemm(alignment=2))
TYPES = {"pointer": ctypes.c_uint64, "size": ctypes.c_int32, "stride": ctypes.c_int64, "scalar": ctypes.c_float}


class Recorder:
    """A function that notes what it is launched with."""

    def __init__(self, s: Signature = GEMM) -> None:
        self.signature = s
        self.prepared: list[tuple[tuple[int, int, int], int, int]] = []
        self.calls: list[dict[str, float]] = []

    def prepare(
        self, arguments: Arguments, grid: tuple[int, int, int], threads: int, shared_bytes: int
    ) -> Callable[[], None]:
        self.prepared.append((grid, threads, shared_bytes))

        def go() -> None:
            slots = zip(self.signature.slots, arguments, strict=True)
            self.calls.append({s.name: TYPES[s.kind].from_address(p).value for s, p in slots})

        return go


def operands(m: int = 100, n: int = 70, k: int = 128) -> list[Any]:
    return [np.zeros(shape, np.uint16) for shape in ((m, k), (n, k), (m, n))]


def plan(tensors: list[Any], recorder: Recorder, alpha: float = 1.0) -> Plan:
    arrays = {n: array(n, t) for n, t in zip("abc", tensors, strict=True)}
    return Plan(GEMM, bind(GEMM, arrays, {"alpha": alpha}, None), recorder)


def values(tensors: list[Any], alpha: Any = 1.0) -> tuple[Any, ...]:
    return (*(t.ctypes.data for t in tensors), alpha)


def test_the_entry_point_gets_every_argument_in_its_type() -> None:
    tensors, recorder = operands(), Recorder()
    plan(tensors, recorder).run(values(tensors, 0.5))
    assert recorder.prepared == [((2, 2, 1), 128, 0)]
    assert recorder.calls == [
        {
            **{n: t.ctypes.data for n, t in zip("abc", tensors, strict=True)},
            "M": 100,
            "K": 128,
            "N": 70,
            "a.stride0": 128,
            "b.stride0": 128,
            "c.stride0": 70,
            "alpha": 0.5,
        }
    ]


def test_later_calls_change_addresses_and_scalars_only() -> None:
    first, second, recorder = operands(), operands(), Recorder()
    p = plan(first, recorder)
    p.run(values(first, 1.0))
    p.run(values(second, 2))
    changed = {name for name in recorder.calls[0] if recorder.calls[0][name] != recorder.calls[1][name]}
    assert changed == {"a", "b", "c", "alpha"}
    assert recorder.calls[1]["alpha"] == 2.0


def test_overlap_is_checked_on_every_call() -> None:
    tensors, recorder = operands(), Recorder()
    p = plan(tensors, recorder)
    a, _, c = (t.ctypes.data for t in tensors)
    with pytest.raises(LaunchError) as caught:
        p.run((a, a, a + 100 * 128 * 2 - 2, 1.0))
    assert caught.value.diagnostics[0].code == "overlapping-output"
    assert recorder.calls == []
    p.run((a, a, c, 1.0))
    assert len(recorder.calls) == 1


def test_conditions_over_scalars_are_checked_on_every_call() -> None:
    tensors, recorder = operands(), Recorder()
    p = plan(tensors, recorder)
    with pytest.raises(LaunchError) as caught:
        p.run(values(tensors, -1.0))
    assert caught.value.diagnostics[0].code == "precondition-failed"
    p.run(values(tensors, 1.0))
    assert len(recorder.calls) == 1


def test_conditions_see_a_scalar_as_the_kernel_does() -> None:
    # 1e-50 is positive, and 0 as a float32.
    tensors, recorder = operands(), Recorder()
    p = plan(tensors, recorder)
    for call in (lambda: p.run(values(tensors, 1e-50)), lambda: plan(tensors, recorder, 1e-50)):
        with pytest.raises(LaunchError, match=r"alpha = 0\.0"):
            call()


@pytest.mark.parametrize("bad", [1e39])
def test_scalars_that_do_not_fit(bad: Any) -> None:
    tensors, recorder = operands(), Recorder()
    p = plan(tensors, recorder)
    with pytest.raises(LaunchError) as caught:
        p.run(values(tensors, bad))
    assert caught.value.diagnostics[0].code == "scalar-argument"
    assert recorder.calls == []


def test_an_empty_grid_is_checked_and_not_launched() -> None:
    tensors, recorder = operands(m=0), Recorder()
    p = plan(tensors, recorder)
    p.run(values(tensors))
    assert recorder.prepared == recorder.calls == []
    with pytest.raises(LaunchError):
        p.run(values(tensors, -1.0))


def test_threads_do_not_mix_their_arguments() -> None:
    recorder = Recorder()
    sets = [operands() for _ in range(4)]
    p = plan(sets[0], recorder)

    def work(i: int) -> None:
        for _ in range(200):
            p.run(values(sets[i], i + 1))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(recorder.calls) == 800
    for call in recorder.calls:
        assert call["a"] == sets[int(call["alpha"]) - 1][0].ctypes.data
