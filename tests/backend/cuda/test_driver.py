"""The launcher against a stand-in for libcuda, compiled by the C compiler: structures, contexts, errors."""

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from argus.backend.cuda import driver as module
from argus.backend.cuda.driver import Driver
from argus.backend.cuda.function import CudaFunction
from argus.backend.launch.array import array
from argus.backend.launch.bind import Described, bind
from argus.backend.launch.plan import LaunchPlan
from argus.diagnostic import LaunchError, ToolchainError
from argus.ir.types import DType, bfloat16, float32, tfloat32
from tests.backend.launch.test_plan import BULK, GEMM, bulk_operands, operands, values


class Config(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_uint64),
        ("attributes", ctypes.c_uint64),
        ("number", ctypes.c_uint),
    ]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    path = tmp_path_factory.mktemp("driver") / "libcuda.so"
    source = Path(__file__).parent / "fake_driver.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", path, source], check=True)
    return ctypes.CDLL(str(path))


@pytest.fixture
def driver(library: Any) -> Iterator[Driver]:
    yield Driver(library)
    for name, value in (("fail_next_launch", 0), ("capability", 9), ("max_threads", 1024), ("shared_limit", 232448)):
        ctypes.c_int.in_dll(library, name).value = value


def state(driver: Driver, name: str, kind: Any = ctypes.c_int) -> Any:
    return kind.in_dll(driver.library, name)


def function(driver: Driver, **overrides: Any) -> CudaFunction:
    arguments = {"binary": b"ELF", "entry": "gemm", "device": 0, "stream": lambda: 0, "current_device": None}
    return CudaFunction(driver, **(arguments | overrides))


def plan(function: CudaFunction, tensors: list[Any]) -> LaunchPlan:
    arrays = {n: array(n, t) for n, t in zip("abc", tensors, strict=True)}
    return LaunchPlan(GEMM, bind(GEMM, arrays, {"alpha": 1.0}, None), function)


def test_a_launch_reaches_the_driver_whole(driver: Driver) -> None:
    tensors = operands()
    plan(function(driver, stream=lambda: 2**63 + 5), tensors).run(values(tensors))
    last = state(driver, "last", Config)
    assert list(last.grid) == [2, 2, 1]
    assert list(last.block) == [128, 1, 1]
    assert (last.shared, last.stream) == (0, 2**63 + 5)
    assert state(driver, "last_pointer", ctypes.c_uint64).value == tensors[0].ctypes.data
    assert state(driver, "last_size").value == 100
    assert state(driver, "depth", ctypes.c_long).value == 0


@pytest.mark.parametrize(("capability", "attributes"), [(8, 0), (9, 1)])
def test_launches_overlap_where_the_machine_can(driver: Driver, capability: int, attributes: int) -> None:
    """CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, 6, is set for kernels that wait for it."""
    state(driver, "capability").value = capability
    tensors = operands()
    plan(function(driver), tensors).run(values(tensors))
    assert state(driver, "last", Config).number == attributes
    attribute = state(driver, "last_attribute", ctypes.c_int * 18)
    assert (attribute[0], attribute[2]) == (6, 1) or not attributes


def test_the_stream_is_asked_on_every_call(driver: Driver) -> None:
    tensors, streams = operands(), iter([3, 4])
    p = plan(function(driver, stream=lambda: next(streams)), tensors)
    for expected in (3, 4):
        p.run(values(tensors))
        assert state(driver, "last", Config).stream == expected


def test_shared_memory_is_claimed(driver: Driver) -> None:
    function(driver).prepare((1, 1, 1), 128, 100_000)
    assert state(driver, "shared_claimed").value == 100_000


def test_blocks_that_run_at_once(driver: Driver) -> None:
    """Two of a multiprocessor, of which there are three; one if it takes much shared memory."""
    assert function(driver).resident(128, 1000, 1) == 6
    assert function(driver).resident(128, 200_000, 1) == 3
    assert state(driver, "shared_claimed").value == 200_000


def test_too_much_shared_memory_and_too_many_threads(driver: Driver) -> None:
    with pytest.raises(LaunchError, match=r"232449 bytes of shared memory; device 0 has 232448"):
        function(driver).prepare((1, 1, 1), 128, 232449)
    state(driver, "max_threads").value = 64
    with pytest.raises(LaunchError, match=r"128 threads.*at most 64"):
        function(driver).prepare((1, 1, 1), 128, 0)


def test_another_current_device(driver: Driver) -> None:
    tensors, current = operands(), [0]
    p = plan(function(driver, device=1, current_device=lambda: current[0]), tensors)
    before = state(driver, "launches", ctypes.c_long).value
    for current[0] in (0, 1):
        p.run(values(tensors))
    assert state(driver, "launches", ctypes.c_long).value == before + 2
    assert state(driver, "depth", ctypes.c_long).value == 0


def test_a_threads_first_call_selects_the_device(driver: Driver) -> None:
    tensors = operands()
    p = plan(function(driver, device=1), tensors)
    state(driver, "fail_next_launch").value = 201
    p.run(values(tensors))
    assert state(driver, "current", ctypes.c_long).value == 101
    assert state(driver, "last_pointer", ctypes.c_uint64).value == tensors[0].ctypes.data


def test_a_failed_launch_is_said_in_words(driver: Driver) -> None:
    tensors = operands()
    p = plan(function(driver), tensors)
    state(driver, "fail_next_launch").value = 700
    with pytest.raises(LaunchError, match=r"an illegal memory access.*ILLEGAL_ADDRESS") as caught:
        p.run(values(tensors))
    assert caught.value.diagnostics[0].code == "launch-refused"
    p.run(values(tensors))


@pytest.mark.parametrize("wrong", [{"binary": b"text"}, {"entry": "other"}, {"device": 5}])
def test_what_cannot_be_loaded(driver: Driver, wrong: dict[str, Any]) -> None:
    with pytest.raises(ToolchainError) as caught:
        function(driver, **wrong)
    assert caught.value.diagnostics[0].code == "driver-failed"
    assert state(driver, "depth", ctypes.c_long).value == 0


def test_a_machine_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LIBRARY", "libcuda-that-is-not-there.so")
    module.driver.cache_clear()
    with pytest.raises(ToolchainError) as caught:
        module.driver()
    assert caught.value.diagnostics[0].code == "driver-missing"


# ---------------------------------------------------------------------------- tensor maps


def words(made: Any) -> list[int]:
    return [int.from_bytes(bytes(made)[i : i + 8], "little") for i in range(0, 128, 8)]


def encode(
    f: CudaFunction, address: int, extents: tuple[int, ...], strides: tuple[int, ...], dtype: DType = bfloat16
) -> list[int]:
    box = (1, 128, 64)[-len(extents) :]
    room = ctypes.create_string_buffer(128 + 64)
    start = -ctypes.addressof(room) % 64
    write = f.describe(Described("a_map0", "a", 0, dtype, extents, strides, box, 128))
    write(address, ctypes.addressof(room) + start)
    return words(room.raw[start : start + 128])


def test_a_tensor_map_is_described_innermost_dimension_first(driver: Driver) -> None:
    made = encode(function(driver), 4096, (3, 100, 200), (50000, 400, 2))
    assert made == [9, 3, 4096, 3, 200, 64, 1, 100, 128, 1, 3, 1, 1, 400, 50000, 0]


def test_only_numbers_of_tf32_are_converted_on_their_way(driver: Driver) -> None:
    """CUtensorMapDataType: 7 is float32, denormals and all; 11 tf32."""
    kinds = [encode(function(driver), 4096, (128, 64), (256, 4), dtype)[0] for dtype in (float32, tfloat32)]
    assert kinds == [7, 11]


def test_an_empty_tensor_is_described_as_a_zero(driver: Driver) -> None:
    f, zeros = function(driver), state(driver, "zeros", ctypes.c_uint64 * 8)
    zeros[:] = [1] * 8
    made = [encode(f, 0, extents, (128, 2)) for extents in ((128, 0), (0, 64))]
    place = (made[0][2] - ctypes.addressof(zeros)) // 8
    assert made == [[9, 2, ctypes.addressof(zeros) + 8 * place, 3, 1, 64, 1, 1, 128, 1, 16, *[0] * 5]] * 2
    assert [i for i, word in enumerate(zeros) if word == 0] == [place, place + 1]
    assert state(driver, "depth", ctypes.c_long).value == 0


def test_a_refused_tensor_map_is_an_error(driver: Driver) -> None:
    with pytest.raises(LaunchError, match=r"no tensor `a`.*\[128, 64\].*\[128, 2\] bytes: an error") as caught:
        encode(function(driver), 4098, (128, 64), (128, 2))
    assert caught.value.diagnostics[0].code == "tensor-map-refused"


@pytest.fixture
def maps_at(driver: Driver) -> Iterator[None]:
    slots = state(driver, "map_slots", ctypes.c_int * 2)
    slots[:] = [i for i, slot in enumerate(BULK.slots) if slot.kind == "tensormap"]
    yield
    slots[:] = [-1, -1]


@pytest.mark.usefixtures("maps_at")
def test_a_launch_passes_its_maps_and_encodes_none_twice(driver: Driver) -> None:
    first, second = bulk_operands(2)
    arrays = {n: array(n, t) for n, t in zip("abc", first, strict=True)}
    p = LaunchPlan(BULK, bind(BULK, arrays, {"alpha": 1.0}, None), function(driver))
    encodings = state(driver, "encodings", ctypes.c_long)
    before = encodings.value
    for number, tensors in enumerate((first, first, second, first, second)):
        p.run(values(tensors))
        a, b = map(words, state(driver, "last_maps", ctypes.c_uint64 * 16 * 2))
        assert a == [9, 2, tensors[0].ctypes.data, 3, 128, 64, 1, 100, 128, 1, 256, *[0] * 5]
        assert b == [9, 2, tensors[1].ctypes.data, 3, 128, 64, 1, 72, 256, 1, 256, *[0] * 5]
        assert encodings.value - before == (2 if number < 2 else 4)


@pytest.mark.usefixtures("maps_at")
def test_products_of_no_terms_are_launched(driver: Driver) -> None:
    (tensors,) = bulk_operands()
    tensors = [tensors[0][:, :0], tensors[1][:, :0], tensors[2]]
    arrays = {n: array(n, t) for n, t in zip("abc", tensors, strict=True)}
    p = LaunchPlan(BULK, bind(BULK, arrays, {"alpha": 1.0}, None), function(driver))
    launches = state(driver, "launches", ctypes.c_long)
    before = launches.value
    p.run(values(tensors))
    assert launches.value == before + 1
    zeros = ctypes.addressof(state(driver, "zeros", ctypes.c_uint64 * 8))
    places = {words(m)[2] - zeros for m in state(driver, "last_maps", ctypes.c_uint64 * 16 * 2)}
    assert len(places) == 2 and places < {0, 16, 32, 48}, "what is stored to one empty tensor is in no other"
