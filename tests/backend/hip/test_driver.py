"""The launcher for AMD GPUs against a stand-in for the HIP runtime, compiled by the C compiler.

The stand-in declares the runtime's functions as its header does, and notes what reaches them. No AMD GPU has run this.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import argus
from argus.backend.hip import driver as module
from argus.backend.hip.driver import Runtime, mapped
from argus.backend.hip.function import HipFunction
from argus.backend.hip.toolchain import find_compiler
from argus.backend.launch.array import array
from argus.backend.launch.bind import Described, bind
from argus.backend.launch.plan import LaunchPlan
from argus.diagnostic import LaunchError, ToolchainError
from argus.ir.types import bfloat16
from argus.runtime import device, planner
from tests.backend.launch.test_plan import GEMM, operands, persistent, values
from tests.conftest import require

CODE = b"\x7fELF and so on"
SETTINGS = {"fail_next_launch": 0, "max_threads": 1024, "devices": 2, "current": 0, "arguments": 4}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    compiler = require(shutil.which("gcc") or shutil.which("cc") or shutil.which("clang"), "a C compiler")
    path = tmp_path_factory.mktemp("driver") / "libamdhip64.so"
    source = Path(__file__).parent / "fake_runtime.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", path, source], check=True)
    return ctypes.CDLL(str(path))


@pytest.fixture
def runtime(library: Any) -> Iterator[Runtime]:
    for name, value in SETTINGS.items():
        ctypes.c_int.in_dll(library, name).value = value
    (ctypes.c_char * 4096).in_dll(library, "calls").value = b""
    yield Runtime(library)
    assert ctypes.c_int.in_dll(library, "current").value == 0, "the current device is the caller's"


def state(runtime: Runtime, name: str, kind: Any = ctypes.c_int) -> Any:
    return kind.in_dll(runtime.library, name)


def triple(runtime: Runtime, name: str) -> list[int]:
    return list(state(runtime, name, ctypes.c_uint * 3))


def function(runtime: Runtime, **overrides: Any) -> HipFunction:
    given = {"binary": CODE, "entry": "gemm", "device": 0, "stream": lambda: 0, "current_device": None}
    return HipFunction(runtime, **(given | overrides))


def plan(function: HipFunction, tensors: list[Any], signature: Any = GEMM) -> LaunchPlan:
    arrays = {n: array(n, t) for n, t in zip("abc", tensors, strict=True)}
    return LaunchPlan(signature, bind(signature, arrays, {"alpha": 1.0}, None), function)


def test_a_launch_reaches_the_runtime_whole(runtime: Runtime) -> None:
    tensors = operands()
    plan(function(runtime, stream=lambda: 2**63 + 5), tensors).run(values(tensors))
    assert state(runtime, "calls", ctypes.c_char * 4096).value == b"load find launch "
    assert state(runtime, "asked_entry", ctypes.c_char * 256).value == b"gemm"
    assert (triple(runtime, "last_grid"), triple(runtime, "last_block")) == ([2, 2, 1], [128, 1, 1])
    assert state(runtime, "last_stream", ctypes.c_uint64).value == 2**63 + 5
    passed = state(runtime, "last_values", ctypes.c_uint64 * 16)
    assert list(passed[:4]) == [*(t.ctypes.data for t in tensors), 100]


def test_no_dynamic_memory_is_asked_for(runtime: Runtime) -> None:
    """The code object declares its LDS: as much again, asked for at the launch, would not fit."""
    f = function(runtime)
    launcher = f.prepare((3, 1, 1), 256, 65536)
    room = (ctypes.c_uint64 * 8)()
    room[:4] = [ctypes.addressof(room) + 32] * 4
    launcher.launch(room)
    assert state(runtime, "last_shared", ctypes.c_uint).value == 0
    assert triple(runtime, "last_grid") == [3, 1, 1]
    assert state(runtime, "last_stream", ctypes.c_uint64).value == 0


def test_the_stream_is_asked_on_every_call(runtime: Runtime) -> None:
    tensors, streams = operands(), iter([3, 4])
    p = plan(function(runtime, stream=lambda: next(streams)), tensors)
    for expected in (3, 4):
        p.run(values(tensors))
        assert state(runtime, "last_stream", ctypes.c_uint64).value == expected


def test_blocks_that_run_at_once(runtime: Runtime) -> None:
    """Two of each of 304 compute units; one if it has many threads."""
    assert function(runtime).resident(256, 1000, 1) == 608
    assert function(runtime).resident(1024, 1000, 1) == 304


def test_a_persistent_kernel(runtime: Runtime) -> None:
    tensors = operands()
    plan(function(runtime), tensors, persistent()).run(values(tensors))
    assert triple(runtime, "last_grid") == [4, 1, 1]


def test_what_the_device_cannot_run_is_refused(runtime: Runtime) -> None:
    f = function(runtime)
    with pytest.raises(LaunchError, match=r"65537 bytes of LDS; device 0 has 65536"):
        f.prepare((1, 1, 1), 128, 65537)
    with pytest.raises(LaunchError, match=r"16777216 blocks of 256 threads.*first axis"):
        f.prepare((2**24, 1, 1), 256, 0)
    f.prepare((2**24 - 1, 1, 1), 256, 65536)
    state(runtime, "max_threads").value = 64
    with pytest.raises(LaunchError, match=r"128 threads.*at most 64"):
        f.prepare((1, 1, 1), 128, 0)


def test_another_current_device(runtime: Runtime) -> None:
    """A launch is on the kernel's device, and the caller's is again the current one."""
    tensors = operands()
    p = plan(function(runtime, device=1, current_device=lambda: state(runtime, "current").value), tensors)
    p.run(values(tensors))
    assert (state(runtime, "launched_on").value, state(runtime, "current").value) == (1, 0)
    state(runtime, "current").value = 1
    p.run(values(tensors))
    assert (state(runtime, "launched_on").value, state(runtime, "current").value) == (1, 1)
    state(runtime, "current").value = 0


def test_a_failed_launch_is_said_in_words(runtime: Runtime) -> None:
    tensors = operands()
    p = plan(function(runtime), tensors)
    state(runtime, "fail_next_launch").value = 700
    with pytest.raises(LaunchError, match=r"an illegal memory access.*hipErrorIllegalAddress") as caught:
        p.run(values(tensors))
    assert caught.value.diagnostics[0].code == "launch-refused"
    p.run(values(tensors))


@pytest.mark.parametrize("wrong", [{"binary": b"text"}, {"entry": "absent"}, {"device": 5}])
def test_what_cannot_be_loaded(runtime: Runtime, wrong: dict[str, Any]) -> None:
    with pytest.raises(ToolchainError, match="rocminfo") as caught:
        function(runtime, **wrong)
    assert caught.value.diagnostics[0].code == "driver-failed"


def test_a_code_object_for_another_architecture(runtime: Runtime) -> None:
    with pytest.raises(ToolchainError, match="the code object is not for this GPU") as caught:
        function(runtime, binary=b"of another GPU")
    assert "gfx942" in (caught.value.diagnostics[0].help or "")


def test_there_are_no_tensor_maps(runtime: Runtime) -> None:
    with pytest.raises(LaunchError, match="tensor-map-refused"):
        function(runtime).describe(Described("a_map0", "a", 0, bfloat16, (8, 8), (16, 2), (8, 8), 128))


# ---------------------------------------------------------------------------- the library


MAPS = """\
55d0a000-55d0b000 r--p 00000000 08:01 1234    /usr/bin/python3
7f1000000000-7f1000001000 rw-p 00000000 00:00 0
7f2000000000-7f2000400000 r-xp 00000000 08:01 5678    /opt/my env/torch/lib/libamdhip64.so.6
7ffe00000000-7ffe00021000 rw-p 00000000 00:00 0    [stack]
"""


def test_the_copy_that_pytorch_has_loaded_is_used(
    library: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert mapped(MAPS) == "/opt/my env/torch/lib/libamdhip64.so.6"
    assert mapped(MAPS.replace("libamdhip64", "libamdhip65")) is None
    (tmp_path / "maps").write_text(MAPS.replace("/opt/my env/torch/lib/libamdhip64.so.6", library._name))
    monkeypatch.setattr(module, "_MAPPED", tmp_path / "maps")
    module.runtime.cache_clear()
    assert module.runtime().library._handle == library._handle
    module.runtime.cache_clear()


def test_a_machine_without_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LIBRARY", "libamdhip64-that-is-not-there.so")
    module.runtime.cache_clear()
    with pytest.raises(ToolchainError) as caught:
        module.runtime()
    assert caught.value.diagnostics[0].code == "driver-missing"


# ---------------------------------------------------------------------------- tensors of PyTorch for ROCm


def rocm(monkeypatch: pytest.MonkeyPatch, *architectures: str) -> None:
    """A PyTorch for ROCm with such devices, as far as Argus asks it."""
    cuda = SimpleNamespace(
        get_device_properties=lambda index: SimpleNamespace(gcnArchName=architectures[index]),
        device_count=lambda: len(architectures),
    )
    streams = SimpleNamespace(_cuda_getCurrentRawStream=lambda index: 40 + index, _cuda_getDevice=lambda: 0)
    fake = SimpleNamespace(version=SimpleNamespace(hip="6.4"), cuda=cuda, _C=streams, Tensor=type("Tensor", (), {}))
    monkeypatch.setitem(sys.modules, "torch", fake)


def test_the_target_of_an_amd_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    rocm(monkeypatch, "gfx942:sramecc+:xnack-", "gfx942", "gfx90a:sramecc+:xnack-", "gfx1100")
    assert device.target_of("cuda:0") == device.target_of("cuda:1") == "gfx942"
    for index, name in ((2, "gfx90a"), (3, "gfx1100")):
        with pytest.raises(LaunchError, match=rf"cuda:{index}, an AMD GPU of architecture {name}") as caught:
            device.target_of(f"cuda:{index}")
        assert caught.value.diagnostics[0].code == "unsupported-device"


def test_kernels_for_gfx942_are_loaded_by_the_hip_runtime(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    rocm(monkeypatch, "gfx942", "gfx942")
    monkeypatch.setattr(module, "runtime", lambda: runtime)
    built = SimpleNamespace(target="gfx942", binary=CODE, entry="gemm")
    tensors = operands()
    loaded = device.load(built, "cuda:1")  # type: ignore[arg-type]
    assert isinstance(loaded, HipFunction)
    plan(loaded, tensors).run(values(tensors))
    assert state(runtime, "launched_on").value == 1
    assert state(runtime, "last_stream", ctypes.c_uint64).value == 41


def test_tensors_on_two_gpus() -> None:
    arrays = {n: replace(array(n, x), device=f"cuda:{n == 'c':d}") for n, x in zip("abc", operands(), strict=True)}
    with pytest.raises(LaunchError, match="`b` on cuda:0, `c` on cuda:1") as caught:
        bind(GEMM, arrays, {"alpha": 1.0}, None)
    assert [d.code for d in caught.value.diagnostics] == ["device-mismatch"]
    alike = {n: replace(x, device="cuda:1") for n, x in arrays.items()}
    assert bind(GEMM, alike, {"alpha": 1.0}, None).device == "cuda:1"


SCALE = """
import argus
import argus.language as al

@argus.kernel(num_warps=4)
def scale(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"]):
    N = x.shape[0]
    places = al.grid(al.cdiv(N, 256)) * 256 + al.arange(256)
    al.store(y[places], al.load(x[places], mask=places < N, other=0.0) * 2.0, mask=places < N)
"""


def test_a_call_is_proved_built_and_launched(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """From arguments to the runtime, with the real compiler; arrays of the host stand for tensors of the device."""
    require(find_compiler(), "clang 17 or newer")
    monkeypatch.setattr(planner, "target_of", lambda _device: "gfx942")
    monkeypatch.setattr(
        planner, "load", lambda built, _device: function(runtime, binary=built.binary, entry=built.entry)
    )
    state(runtime, "arguments").value = 2
    x, y = np.ones(1000, np.float32), np.zeros(1000, np.float32)
    argus.from_text(SCALE)["scale"](x, y)
    assert state(runtime, "asked_entry", ctypes.c_char * 256).value == b"argus_scale"
    assert (triple(runtime, "last_grid"), triple(runtime, "last_block")) == ([4, 1, 1], [256, 1, 1])
    assert list(state(runtime, "last_values", ctypes.c_uint64 * 16)[:2]) == [x.ctypes.data, y.ctypes.data]
    assert ctypes.string_at(state(runtime, "image", ctypes.c_void_p).value, 4) == b"\x7fELF"
