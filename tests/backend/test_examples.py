"""Every accepted example compiles for every GPU, in registers."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus.backend.build import build
from argus.backend.cuda.toolchain import find_compiler as find_cuda
from argus.backend.hip.toolchain import find_compiler as find_hip
from argus.compile import elaborate
from argus.frontend import Options
from argus.ir.target import TARGETS
from argus.passes import lower
from argus.source import SourceFile
from tests.conftest import example_runs, require

pytestmark = pytest.mark.slow

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.product
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx942"])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, target: str) -> None:
    if not example_runs(path.stem, target):
        pytest.skip("names another vendor's instructions, or has tiles for its shared memory")
    if TARGETS[target].vendor == "nvidia":
        require(find_cuda(), "NVRTC or nvcc")
    else:
        require(find_hip(), "clang 17 or newer")
    source = SourceFile(str(path), path.read_text())
    kernel = lower(elaborate(source, path.stem, Options(target=target)), target)
    artifact = build(kernel, target)
    assert artifact.binary is not None
    assert artifact.binary[:4] == b"\x7fELF"
    assert artifact.resources is not None
    assert artifact.resources.spill_bytes == 0
    assert artifact.resources.registers in range(1, TARGETS[target].registers + 1)
