"""The shipped kernels under NVIDIA's compute-sanitizer: accesses, races, barriers, memory that nobody wrote."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from argus.environment import cuda_directories, find_tool

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
pytest.importorskip("torch")

from tests.gpu.shipped import UNSEEN  # noqa: E402

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "tests.gpu.shipped"]


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """With an allocation of its own for every tensor, whose end is then the end of what may be touched."""
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )


@pytest.fixture(scope="module")
def built() -> None:
    """The results are right, and the builds are kept, so that no compiler runs under a tool."""
    done = run(PROGRAM)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck", "initcheck"])
def test_clean(tool: str) -> None:
    sanitizer = find_tool(["compute-sanitizer"], directories=cuda_directories())
    if sanitizer is None:
        pytest.skip("needs compute-sanitizer")
    options, left_out = ["--tool", tool, "--error-exitcode", "9", "--target-processes", "application-only"], []
    if tool == "initcheck":  # what bulk stores wrote counts as unwritten, in copies to the host as in kernels
        options += ["--check-api-memory-access", "no"]
        left_out = ["0", "1", UNSEEN]
    done = run([sanitizer, *options, "--kernel-regex", "kns=argus_", *PROGRAM, *left_out])
    assert done.returncode == 0 and "all right" in done.stdout, done.stdout[-6000:]
