"""Fixtures of tests of results: the device that a kernel runs on, and whether its variants are proved for the host.

Such a test compares results with those of float64. To prove each variant of a kernel for the host takes several times
as long as the rest of the test. `make test` therefore takes the verdicts on the kernels that ship for granted there.
`tests/kernels/test_on_the_host.py` proves each of them once for the host, the tests of proofs prove them for the GPUs,
and `make nightly` proves every variant, by the option `--prove-results`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import argus
from argus.diagnostic import Verdict
from argus.environment import cache_directory

if TYPE_CHECKING:
    from argus.compile import ExplicitKernel
    from argus.verify.report import Report

SHIPPED = Path(argus.__file__).parent / "kernels"


def ships(kernel: ExplicitKernel) -> bool:
    """Return True if the kernel's text is one of argus/kernels."""
    file = kernel.span.file
    return file is not None and Path(file.path).parent == SHIPPED


@pytest.fixture
def granted(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Grant verdicts during a test, unless every kernel shall be proved."""
    if not pytestconfig.getoption("--prove-results"):
        grant(monkeypatch)


def grant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build the kernels that ship for the host without their proofs, and keep these builds apart from proved ones."""
    from argus import compile  # imported late: most tests need neither it nor the solvers
    from argus.verify.report import Report

    verify = compile.verify

    def verdict(explicit: ExplicitKernel, *limit: float, **how: bool) -> Report:
        if explicit.target == "cpu" and ships(explicit):
            return Report(explicit.name, Verdict.PROVED, (), (), 0.0, ())
        return verify(explicit, *limit, **how)

    monkeypatch.setattr(compile, "verify", verdict)
    folder = str(cache_directory()).removesuffix("-granted")  # a process that such a test starts inherits it
    monkeypatch.setenv("ARGUS_CACHE_DIR", f"{folder}-granted")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest, require_tool: Any) -> str:
    """Return PyTorch's name of the device to run on: the CPU target, and a GPU if there is one."""
    if request.param == "cpu":
        require_tool("g++", "clang++", "c++")
        request.getfixturevalue("granted")
    return str(request.param)
