"""Prepared launches: what reaches the entry point, and what is checked on every call."""

import ctypes
import threading
from dataclasses import replace
from math import copysign
from typing import Any

import numpy as np
import pytest

from argus.backend.launch import plan as module
from argus.backend.launch.array import array
from argus.backend.launch.bind import Described, bind
from argus.backend.launch.plan import Arguments, Encode, Launcher, LaunchPlan
from argus.backend.launch.signature import Signature, signature
from argus.diagnostic import Diagnostic, LaunchError
from argus.ir.expr import Const, Op, Param
from argus.ir.types import float32, int32
from tests.backend.launch.samples import bulk_gemm, gemm

GEMM = signature(gemm(alignment=2))
BULK = signature(bulk_gemm())
TYPES = {"pointer": ctypes.c_uint64, "size": ctypes.c_int32, "stride": ctypes.c_int64, "scalar": ctypes.c_float}


class Recorder:
    """A function that notes what it is launched with."""

    def __init__(self, s: Signature = GEMM) -> None:
        self.signature = s
        self.prepared: list[tuple[tuple[int, int, int], int, int]] = []
        self.calls: list[dict[str, Any]] = []
        self.described: list[Described] = []
        self.encoded: list[tuple[str, int]] = []
        self.refused: int | None = None
        self.stream, self.streams = 0, list[int]()
        self.status = 0

    def describe(self, tensor: Described) -> Encode:
        """Maps hold the tensor's address, 16 times."""
        self.described.append(tensor)

        def encode(address: int, place: int) -> None:
            if address == self.refused:
                raise LaunchError(Diagnostic("tensor-map-refused", "refused", property="launch"))
            assert place % 64 == 0
            self.encoded.append((tensor.argument, address))
            (ctypes.c_uint64 * 16).from_address(place)[:] = [address] * 16

        return encode

    def resident(self, threads: int, shared_bytes: int, cluster: int) -> int:
        return 3

    def prepare(self, grid: tuple[int, int, int], threads: int, shared_bytes: int) -> Launcher:
        self.prepared.append((grid, threads, shared_bytes))

        def start(arguments: Arguments, stream: int) -> int:
            slots = zip(self.signature.slots, pointers(arguments, self.signature), strict=True)
            self.calls.append({s.name: self.value(s.kind, p) for s, p in slots})
            self.streams.append(stream)
            return self.status

        def failed(status: int, bound: tuple[Any, ...]) -> None:
            raise LaunchError(Diagnostic("launch-refused", f"{status}", property="launch"))

        return Launcher(lambda: self.stream, lambda arguments, stream: (arguments, stream), start, failed)

    def value(self, kind: str, place: int) -> Any:
        if kind == "tensormap":
            words = set((ctypes.c_uint64 * 16).from_address(place))
            assert place % 64 == 0 and len(words) == 1
            return words.pop()
        return TYPES[kind].from_address(place).value


def pointers(arguments: Arguments, s: Signature) -> Any:
    return (ctypes.c_void_p * len(s.slots)).from_buffer(arguments)


def operands(m: int = 100, n: int = 70, k: int = 128) -> list[Any]:
    return [np.zeros(shape, np.uint16) for shape in ((m, k), (n, k), (m, n))]


def plan(tensors: list[Any], recorder: Recorder, alpha: float = 1.0) -> LaunchPlan:
    arrays = {n: array(n, t) for n, t in zip("abc", tensors, strict=True)}
    s = recorder.signature
    return LaunchPlan(s, bind(s, arrays, {"alpha": alpha}, None), recorder)


def values(tensors: list[Any], alpha: Any = 1.0) -> tuple[Any, ...]:
    return (*(t.ctypes.data for t in tensors), alpha)


def without_scalars(s: Signature) -> Signature:
    slots = tuple(slot for slot in s.slots if slot.kind != "scalar")
    return replace(s, params=s.tensors, slots=slots, conditions=())


def persistent() -> Signature:
    return replace(GEMM, persistent=True)


def test_a_persistent_kernel_gets_no_more_blocks_than_run_at_once() -> None:
    """Of 2 x 2 and 1 x 1 programs; without persistence each gets a block."""
    for m, blocks, grid in ((100, (3, 1, 1), (2, 2, 1)), (10, (2, 1, 1), (1, 2, 1))):
        recorder, plain = Recorder(persistent()), Recorder()
        plan(operands(m), recorder)
        plan(operands(m), plain)
        assert recorder.prepared == [(blocks, 128, 0)]
        assert plain.prepared == [(grid, 128, 0)]


def test_a_grid_over_scalars_is_that_of_each_call() -> None:
    alpha = Param("alpha", float32)
    tensors, recorder = operands(), Recorder(replace(GEMM, grid=(Op("cast", (alpha,), int32), Const(2))))
    launch = plan(tensors, recorder, 3.0)
    for number in (3.0, 5.0, 3.0):
        launch.run(values(tensors, number))
    assert [grid for grid, *_ in recorder.prepared] == [(3, 2, 1), (5, 2, 1)]
    assert [call["alpha"] for call in recorder.calls] == [3.0, 5.0, 3.0]
    with pytest.raises(LaunchError, match="alpha"):
        launch.run(values(tensors, -1.0))
    arrays = {n: array(n, t) for n, t in zip("abc", tensors, strict=True)}
    told = LaunchPlan(recorder.signature, bind(recorder.signature, arrays, {"alpha": 3.0}, (3, 2)), recorder)
    told.run(values(tensors, 3.5))
    with pytest.raises(LaunchError, match="grid-mismatch"):
        told.run(values(tensors, 4.0))


def test_programs_are_counted_in_32_bits() -> None:
    large = replace(persistent(), grid=(Const(2**16), Const(2**15 - 2**5)))
    arrays = {n: array(n, t) for n, t in zip("abc", operands(), strict=True)}
    assert bind(large, arrays, {"alpha": 1.0}, None).grid == (2**16 * (2**15 - 2**5), 1, 1)
    with pytest.raises(LaunchError, match="grid-too-large"):
        bind(replace(large, grid=(Const(2**16), Const(2**15))), arrays, {"alpha": 1.0}, None)


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


def test_scalars_that_are_equal_and_not_the_same() -> None:
    tensors, recorder = operands(), Recorder(replace(GEMM, conditions=()))
    p = plan(tensors, recorder)
    for alpha in (0.0, -0.0, 0.0):
        p.run(values(tensors, alpha))
    assert [copysign(1, call["alpha"]) for call in recorder.calls] == [1, -1, 1]


def test_a_refused_call_is_not_taken_for_done() -> None:
    """The addresses of a call that was refused are checked again, and those before it are written again."""
    tensors, recorder = operands(), Recorder(without_scalars(GEMM))
    p = plan(tensors, recorder)
    good = values(tensors)[:3]
    bad = (good[0], good[1], good[0])
    for _ in range(2):
        p.run(good)
        for _ in range(2):
            with pytest.raises(LaunchError):
                p.run(bad)
    p.run(good)
    p.run(good)
    assert [call["c"] for call in recorder.calls] == [good[2]] * 4


@pytest.mark.parametrize("scalar", [True, False])
def test_every_stream_gets_launches_of_its_own(scalar: bool) -> None:
    tensors, recorder = operands(), Recorder(GEMM if scalar else without_scalars(GEMM))
    p = plan(tensors, recorder)
    for recorder.stream in (3, 4, 3, 4, 2**63 + 5):
        p.run(values(tensors)[: None if scalar else 3])
    assert recorder.streams == [3, 4, 3, 4, 2**63 + 5]
    assert all(call == recorder.calls[0] for call in recorder.calls)


@pytest.mark.parametrize("scalar", [True, False])
def test_a_failed_launch_is_an_error_and_the_next_one_runs(scalar: bool) -> None:
    tensors, recorder = operands(), Recorder(GEMM if scalar else without_scalars(GEMM))
    p = plan(tensors, recorder)
    given = values(tensors)[: None if scalar else 3]
    for recorder.status in (0, 7, 0):
        if recorder.status:
            with pytest.raises(LaunchError, match="7"):
                p.run(given)
        else:
            p.run(given)
    assert len(recorder.calls) == 3


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


def test_numbers_that_can_change_are_checked_again() -> None:
    """The same object passes without another check only if nothing can change it."""
    tensors, recorder = operands(), Recorder()
    launch = plan(tensors, recorder)
    changing: Any = np.array(2.0)
    for _ in range(2):
        launch.run(values(tensors, changing))
    changing[...] = -1.0
    with pytest.raises(LaunchError, match="alpha"):
        launch.run(values(tensors, changing))
    number = 3.0
    for alpha, passes in ((number, True), (number, True), (-3.0, False), (number, True), (-0.0, False)):
        if passes:
            launch.run(values(tensors, alpha))
            assert recorder.calls[-1]["alpha"] == alpha
        else:
            with pytest.raises(LaunchError, match="alpha"):
                launch.run(values(tensors, alpha))


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


@pytest.mark.parametrize("s", [GEMM, BULK])
def test_threads_do_not_mix_their_arguments(s: Signature) -> None:
    recorder = Recorder(s)
    sets = bulk_operands(4)
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
        assert call["a"] == sets[int(call["alpha"]) - 1][0].ctypes.data == call.get("a_map0", call["a"])


# ---------------------------------------------------------------------------- tensor maps


def bulk_operands(count: int = 1) -> list[list[Any]]:
    """Operands of `BULK`, aligned to 16 bytes, all in memory of their own."""

    def aligned(rows: int, columns: int) -> Any:
        room = np.zeros(rows * columns + 8, np.uint16)
        start = -room.ctypes.data % 16 // 2
        return room[start : start + rows * columns].reshape(rows, columns)

    return [[aligned(100, 128), aligned(72, 128), aligned(100, 72)] for _ in range(count)]


def test_a_map_says_what_the_tensor_is() -> None:
    (tensors,), recorder = bulk_operands(), Recorder(BULK)
    plan(tensors, recorder).run(values(tensors))
    a, b = recorder.described
    assert (a.argument, a.name, a.position, a.dtype.name) == ("a_map0", "a", 0, "bfloat16")
    assert (a.extents, a.strides_bytes, a.box, a.swizzle_bytes) == ((100, 128), (256, 2), (128, 64), 128)
    assert (b.argument, b.position, b.extents, b.box) == ("b_map1", 1, (72, 128), (256, 64))


def test_maps_are_encoded_once_for_an_address() -> None:
    (first, second), recorder = bulk_operands(2), Recorder(BULK)
    p = plan(first, recorder)
    mixed = [first[0], second[1], first[2]]
    for tensors in (first, first, mixed, second, first, second, second):
        p.run(values(tensors))
        call = recorder.calls[-1]
        assert (call["a_map0"], call["b_map1"]) == (call["a"], call["b"]) == values(tensors)[:2]
        assert (call["c"], call["M"], call["alpha"]) == (tensors[2].ctypes.data, 100, 1.0)
    assert recorder.encoded == [
        ("a_map0", first[0].ctypes.data),
        ("b_map1", first[1].ctypes.data),
        ("b_map1", second[1].ctypes.data),
        ("a_map0", second[0].ctypes.data),
    ]


def test_maps_of_a_model_s_layers_are_kept() -> None:
    (tensors,), recorder = bulk_operands(), Recorder(BULK)
    p = plan(tensors, recorder)
    for _ in range(3):
        for layer in range(100):
            p.run(((1 << 20) + (layer << 16), *values(tensors)[1:]))
            assert recorder.calls[-1]["a_map0"] == (1 << 20) + (layer << 16)
    assert len(recorder.encoded) == 100 + 1  # b's is one


@pytest.mark.parametrize("scalar", [True, False])
def test_a_full_memory_begins_anew(scalar: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 4)
    (tensors,), recorder = bulk_operands(), Recorder(BULK if scalar else without_scalars(BULK))
    p = plan(tensors, recorder)
    base, others = 1 << 20, values(tensors)[1 : None if scalar else 3]

    def encodings(*numbers: int) -> int:
        before = len(recorder.encoded)
        for number in numbers:
            p.run((base + (number << 16), *others))
            call = recorder.calls[-1]
            assert call["a_map0"] == call["a"] == base + (number << 16) and call["b_map1"] == others[0]
        return len(recorder.encoded) - before

    assert encodings(0, 1, 2, 3) == 4 + 1  # b's is one
    assert encodings(0, 1, 2, 3, 3, 0) == 0
    assert encodings(4, 4) == 1
    assert encodings(*range(4), *range(4)) == 7  # 3 began anew


def test_a_refused_map_is_not_launched_with() -> None:
    (first, second), recorder = bulk_operands(2), Recorder(BULK)
    p = plan(first, recorder)
    recorder.refused = first[0].ctypes.data
    for _ in range(10):  # more often than there are places
        with pytest.raises(LaunchError, match="tensor-map-refused"):
            p.run(values(first))
    assert recorder.calls == []
    recorder.refused = second[0].ctypes.data
    p.run(values(first))
    with pytest.raises(LaunchError, match="tensor-map-refused"):
        p.run(values(second))
    p.run(values(first))
    assert [call["a_map0"] for call in recorder.calls] == [first[0].ctypes.data] * 2


def test_an_empty_grid_needs_no_maps() -> None:
    (tensors,), recorder = bulk_operands(), Recorder(BULK)
    tensors = [tensors[0][:0], tensors[1], tensors[2][:0]]
    plan(tensors, recorder).run(values(tensors))
    assert recorder.described == recorder.encoded == recorder.calls == []
