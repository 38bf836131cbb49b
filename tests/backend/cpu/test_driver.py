"""Host libraries: loaded, launched, and their failures in words."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from argus.backend.cpu.driver import CpuFunction
from argus.backend.launch.array import array
from argus.backend.launch.bind import bind
from argus.backend.launch.plan import LaunchPlan
from argus.diagnostic import LaunchError, ToolchainError
from tests.backend.launch.test_plan import GEMM, operands, values

TEXT = r"""
#include <stdio.h>
int argus_cpu_launch(void** a, const int* grid, int threads, int shared, int workers, char* message, int n) {
    unsigned short* c = *(unsigned short**)a[2];
    c[0] = grid[0]; c[1] = grid[1]; c[2] = threads; c[3] = *(int*)a[3]; c[4] = workers;
    if (*(float*)a[9] == 7) { snprintf(message, n, "block (0, 0, 0): out of range"); return 1; }
    return 0;
}
"""


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder: Path = tmp_path_factory.mktemp("library")
    (folder / "k.c").write_text(TEXT)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "k.so", folder / "k.c"], check=True)
    return (folder / "k.so").read_bytes()


def plan(binary: bytes, tensors: list[Any]) -> LaunchPlan:
    arrays = {n: array(n, t) for n, t in zip("abc", tensors, strict=True)}
    return LaunchPlan(GEMM, bind(GEMM, arrays, {"alpha": 1.0}, None), CpuFunction(binary, workers=3))


def test_a_launch_runs(binary: bytes) -> None:
    tensors = operands()
    plan(binary, tensors).run(values(tensors))
    assert tensors[2][0, :5].tolist() == [2, 2, 128, 100, 3]


def test_a_kernel_that_stops_says_why(binary: bytes) -> None:
    tensors = operands()
    p = plan(binary, tensors)
    with pytest.raises(LaunchError, match="out of range") as caught:
        p.run(values(tensors, 7.0))
    assert caught.value.diagnostics[0].code == "kernel-failed"
    p.run(values(tensors))


@pytest.mark.parametrize("content", [b"", b"not a library"])
def test_what_is_no_library(content: bytes) -> None:
    with pytest.raises(ToolchainError) as caught:
        CpuFunction(content)
    assert caught.value.diagnostics[0].code == "module-not-loaded"
