"""Generated kernels: their emitted text is CUDA that the compiler has nothing to say about."""

from __future__ import annotations

import re

import pytest

from argus.backend.cuda import toolchain
from argus.backend.cuda.nvrtc_worker import Nvrtc
from argus.ir.nodes import Kernel
from argus.ir.target import TARGETS
from tests import computations, strategies
from tests.backend.emitted import examples, numbered
from tests.conftest import require

UNUSED = "177,550"
"""A tile that a kernel declares and never uses, or sets and never uses, which is the generator's doing."""


def diagnosed(text: str, arch: str) -> str:
    """What NVRTC says of a text."""
    nvrtc = Nvrtc(require(toolchain.find_nvrtc(), "NVRTC"))
    nvrtc.create(f'#include "argus_cuda.h"\n{text}'.encode(), b"kernels.cu")
    include = [f"-I{directory}" for directory in toolchain.INCLUDE]
    options = [f"--gpu-architecture={arch}", "--std=c++17", f"--diag-suppress={UNUSED}", *include]
    compiled = nvrtc.compile([option.encode() for option in options])
    assert compiled, nvrtc.log()
    return nvrtc.log()


def taken(kernels: list[Kernel], arch: str) -> list[Kernel]:
    """Those that are for the machine, or for an older one."""
    later = TARGETS[arch].architectures
    return [k for k in kernels if k.target in later and k.warp_size == TARGETS[arch].warp_size]


@pytest.fixture(scope="module")
def kernels() -> list[Kernel]:
    """Kernels of all families."""
    computing = [kernel for kernel, _ in examples(computations.cases(), 6, 4711)]
    return [*examples(strategies.kernels(), 6, 4711), *computing]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_generated_kernels_compile_without_a_word(kernels: list[Kernel], arch: str) -> None:
    texts = [text for _, text in numbered(taken(kernels, arch)).values()]
    assert len(texts) > 4
    log = diagnosed("\n".join(texts), arch)
    assert not re.search(r"\b(warning|error)\b", log), log


DEFECTS = """ARGUS_KERNEL(wrong, 32)(int* x) {
    int y;
    const unsigned z = -1;
    x[0] = y + 70000 * 70000 + z;
}"""


def test_defects_are_told() -> None:
    log = diagnosed(DEFECTS, "sm_80")
    assert "is used before its value is set" in log
    assert "integer operation result is out of range" in log
    assert "resulted in a change of sign" in log
