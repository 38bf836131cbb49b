"""The host's device library: complete, exact, and never hanging."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from argus.backend import process
from argus.backend.cpu import toolchain
from argus.backend.cpu.run import run_cpu
from argus.backend.device_api import functions
from argus.diagnostic import LaunchError
from argus.ir.expr import Const, Param
from argus.ir.nodes import Kernel, Scalar, Shared, Tensor
from argus.ir.types import DType, float16, float32, int32, uint8
from argus.layout import row_major
from tests.backend import every_function
from tests.conftest import require

NVIDIA = every_function.source("cuda", ("sm_80", "sm_89", "sm_90a"), host=True)
AMD = every_function.source("hip", ("gfx942",))


def signature(
    tensors: dict[str, DType], scalars: tuple[str, ...] = (), warps: int = 1, shared: int = 0, warp_size: int = 32
) -> Kernel:
    """A kernel of which only the calling convention matters."""
    params = (
        *(Tensor(name, dtype, (Param("N"),), (Const(1),), 1) for name, dtype in tensors.items()),
        *(Scalar(name, int32) for name in scalars),
    )
    tile = Shared("s", uint8, (max(shared, 1),), row_major((max(shared, 1),)), 0)
    return Kernel("k", params, (), (), None, warps, warp_size, (), (tile,) if shared else (), (), ())


@cache
def compiled(source: str, entry: str, warp_size: int = 32) -> bytes:
    require(toolchain.find_compiler(), "a C++ compiler")
    return toolchain.compile(source, entry, warp_size)[0]


@pytest.mark.parametrize(("source", "warp_size"), [(NVIDIA, 32), (AMD, 64)], ids=["nvidia", "amd"])
def test_every_function_compiles(source: str, warp_size: int, tmp_path: Path) -> None:
    """Without optimisation, which takes most of the time and refuses nothing."""
    tool = require(toolchain.find_compiler(), "a C++ compiler")
    (tmp_path / "kernel.cpp").write_text(toolchain.header() + source, encoding="utf-8")
    include = [f"-I{directory}" for directory in toolchain.INCLUDE]
    plain = ["-std=c++17", "-O0", "-c", "-Wno-unknown-pragmas", f"-DARGUS_WARP_SIZE={warp_size}"]
    process.run("C++ compiler", [tool, *plain, *include, "kernel.cpp"], cwd=tmp_path)


def test_every_function_is_used_by_that_text() -> None:
    text = NVIDIA + AMD
    assert not {f.name for f in functions("cpu") if not re.search(rf"argus::{f.name}\b", text)}


CASTS = """
ARGUS_KERNEL(casts, 32)(
    const float* ARGUS_RESTRICT x, argus::f16* ARGUS_RESTRICT h, float* ARGUS_RESTRICT back, int* ARGUS_RESTRICT i,
    int n
) {
    for (int at = argus::thread_id(); at < n; at += 32) {
        h[at] = argus::cast<argus::f16>(x[at]);
        back[at] = argus::cast<float>(h[at]);
        i[at] = argus::cast<int>(x[at]);
    }
}
"""


def test_half_precision_and_integers() -> None:
    high = np.arange(1 << 19, dtype=np.uint32) << 13
    x = np.concatenate([high, high | 1, high | 0xFFF, high | 0x1000, high | 0x1001]).view(np.float32)
    x = x[~np.isnan(x)]
    h, back, i = np.zeros(x.size, np.float16), np.zeros_like(x), np.zeros(x.size, np.int32)
    kernel = signature({"x": float32, "h": float16, "back": float32, "i": int32}, ("n",))
    run_cpu(compiled(CASTS, "casts"), kernel, [x, h, back, i, x.size], (1,), 1)
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16)
    np.testing.assert_array_equal(h.view(np.uint16), expected.view(np.uint16))
    np.testing.assert_array_equal(back, expected.astype(np.float32))
    clamped = np.clip(np.trunc(x.astype(np.float64)), -(2**31), 2**31 - 1)
    np.testing.assert_array_equal(i, clamped.astype(np.int32))


FAULTS = """
ARGUS_KERNEL(faults, 64)(float* ARGUS_RESTRICT x, int fault) {
    ARGUS_SHARED(smem, 256);
    const int thread = argus::thread_id();
    alignas(16) float r[4] = {};
    if (fault == 1 && thread < 40) argus::barrier();
    if (fault == 2 && thread < 16) x[thread] = argus::shuffle_xor(x[thread], 1);
    if (fault == 3) {
        if (thread % 2) argus::shuffle_xor(x[thread], 1);
        else argus::barrier();
    }
    if (fault == 4) argus::store_shared<4>(smem, thread * 16 + 4, r);
    if (fault == 5) argus::load_global<4>(x, thread, r);
    if (fault == 6) argus::ldmatrix_x1(smem, thread * 8, r);
    argus::barrier();
    x[thread] = argus::shuffle(x[thread], 31 - thread % 32);
}
"""


def faults(fault: int, blocks: int = 1) -> NDArray[np.float32]:
    x = np.arange(64 * 4, dtype=np.float32)
    start = -(x.ctypes.data % 16) // 4 % 4
    x = x[start : start + 64]
    run_cpu(compiled(FAULTS, "faults"), signature({"x": float32}, ("fault",), 2, 256), [x, fault], (blocks,), 1)
    return x


def test_no_fault() -> None:
    x = faults(0)
    np.testing.assert_array_equal((x - x[0])[:32], -np.arange(32))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (1, "for ever: 40 of 64 threads wait at a barrier; 24 lanes of warp 1 wait at shuffle; 0 threads"),
        (2, "for ever: 48 of 64 threads wait at a barrier; 16 lanes of warp 0 wait at shuffle_xor; 0 threads"),
        (3, "for ever: 32 of 64 threads wait at a barrier; 16 lanes of warp 0 wait at shuffle_xor; 16 lanes"),
        (4, "block \\(0, 0, 0\\): thread 0: store_shared: the address is no multiple of 16 bytes"),
        (5, "thread 1: load_global: the address is no multiple of 16 bytes"),
        (6, "thread 1: ldmatrix_x1: the address is no multiple of 16 bytes"),
    ],
)
def test_faults_end_the_launch_with_a_message(fault: int, message: str) -> None:
    with pytest.raises(LaunchError, match=message) as caught:
        faults(fault)
    assert caught.value.diagnostics[0].code == "kernel-failed"


def test_an_access_outside_of_shared_memory() -> None:
    source = FAULTS.replace("thread * 16 + 4", "thread * 16").replace("faults", "outside")
    x = np.zeros(64, np.float32)
    with pytest.raises(LaunchError, match="thread 16: store_shared: byte 256 is outside of the block's 256 bytes"):
        run_cpu(compiled(source, "outside"), signature({"x": float32}, ("fault",), 2, 256), [x, 4], (1,), 1)


WAVES = """
ARGUS_KERNEL(waves, 128)(const float* ARGUS_RESTRICT x, float* ARGUS_RESTRICT y, int scattered) {
    ARGUS_SHARED(smem, 1024);
    const int thread = argus::thread_id(), wave = thread / 64 * 256;
    alignas(16) float zero[1] = {}, r[1];
    argus::store_shared<1>(smem, thread * 4, zero);
    argus::store_shared<1>(smem, 512 + thread * 4, zero);
    argus::load_to_lds(smem, scattered && thread % 64 ? 0 : wave + thread % 64 * 4, x, thread);
    argus::load_to_lds_or_zero(smem, 512 + wave + thread % 64 * 4, x, 128 + thread, thread % 2 == 0);
    argus::wait_counts<1, 0>();
    argus::wave_barrier();
    argus::load_shared<1>(smem, (127 - thread) * 4, r);
    y[thread] = r[0];
    argus::load_shared<1>(smem, 512 + (127 - thread) * 4, r);
    y[128 + thread] = r[0];
    argus::wave_barrier();
    argus::wait_counts<0, -1>();
    argus::wave_barrier();
    argus::load_shared<1>(smem, 512 + (127 - thread) * 4, r);
    y[256 + thread] = r[0];
}
"""


@pytest.mark.parametrize("scattered", [0, 1])
def test_loads_to_lds_come_as_late_as_their_wait_and_where_lane_0_points(scattered: int) -> None:
    x, y = np.arange(1, 257, dtype=np.float32), np.zeros(384, np.float32)
    kernel = signature({"x": float32, "y": float32}, ("scattered",), 2, 1024, 64)
    run_cpu(compiled(WAVES, "waves", 64), kernel, [x, y, scattered], (1,), 1)
    second = np.where(np.arange(128) % 2 == 0, x[128:], 0)
    np.testing.assert_array_equal(y[:128], x[127::-1])
    np.testing.assert_array_equal(y[128:256], 0)
    np.testing.assert_array_equal(y[256:], second[::-1])
