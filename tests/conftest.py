"""What all tests share: golden files and their one flag, and the rules for tests that need a GPU or a tool."""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from argus.backend.cpu import toolchain
from argus.environment import find_tool, variable
from tests.costs import Costs
from tests.long import LONG, left_out, stale
from tests.results import device, granted
from tests.slow import SLOW

__all__ = ["device", "granted"]

T = TypeVar("T")

# How fast the machine is must not decide a test.
settings.register_profile("argus", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("argus")
Golden = Callable[[str, str], None]

STALE = pytest.StashKey[list[str]]()
"""What tests/night lists and is no longer there."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing")
    parser.addoption("--prove-results", action="store_true", help="prove each kernel that a test of results runs")
    parser.addoption("--seed", type=int, help="of what GPU tests draw at random; another one every time if left out")
    parser.addoption("--costs", metavar="FILE", help="print CPU seconds of each folder, and write those of each test")
    parser.addoption("--calls", type=int, default=160, help="how many calls of the library are drawn at random")


def pytest_configure(config: pytest.Config) -> None:
    """Prepare what all workers share: they inherit the environment, and are told the seed."""
    if config.option.costs:
        config.pluginmanager.register(Costs(Path(config.option.costs)))
    if "not nightly" in config.option.markexpr and not config.option.prove_results:
        toolchain.OPTIMISATION = "-Og"  # takes g++ half the time; the night compiles as users do
    if hasattr(config, "workerinput"):
        config.option.seed = config.workerinput["seed"]
        return
    if config.option.seed is None:
        config.option.seed = Random().getrandbits(31)
    # What a user has built before must not decide a test, so a run has a cache of its own.
    folder = tempfile.mkdtemp(prefix="argus-cache-")
    os.environ["ARGUS_CACHE_DIR"] = str(Path(folder) / "cache")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    # Each worker has a core: more threads and compiling processes of PyTorch would only wait for one another.
    for name in ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"):
        os.environ.setdefault(name, "1")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker the seed."""
    node.workerinput["seed"] = node.config.option.seed


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let each worker begin to import elsewhere: what one compiles for the first time, the others then only load."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    files = [file for name in session.config.args for file in sorted(Path(name).resolve().rglob("test_*.py"))]
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for file in files[len(files) * number // count :] if number else ():
        with suppress(Exception, pytest.skip.Exception):  # collecting the file says what is wrong
            importlib.import_module(".".join(file.relative_to(session.config.rootpath).with_suffix("").parts))


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.option.seed}"


def pytest_collection_finish() -> None:
    """Keep what was imported and collected out of every later garbage collection, and collect seldom: proofs make many
    objects and hardly a circle of them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _has_gpu() -> bool:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is nightly
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not any("::" in name for name in config.args):  # what is named by its id runs, however long it takes
        for item in left_out(items):
            item.add_marker(pytest.mark.nightly)
        for item in items:
            if item.nodeid.startswith(LONG):
                item.add_marker(pytest.mark.nightly)
        config.stash[STALE] = stale(items)
    for item in items:
        if item.nodeid.partition("::")[0] in SLOW:
            item.add_marker(pytest.mark.slow)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not _has_gpu():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """Return the seed of everything that may be drawn anew in every run."""
    return int(pytestconfig.getoption("seed"))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(name, text)` compares `text` with the file `golden/<name>` beside the test."""
    folder = Path(str(request.node.path)).parent / "golden"

    def compare(name: str, text: str) -> None:
        path = folder / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path} does not exist: run pytest with --update-golden and read what it writes"
        assert text == path.read_text(encoding="utf-8")

    return compare


def require(found: T | None, what: str) -> T:
    """`found`, or if it is None the test is skipped with the reason "needs <what>".

    Under `CI=true` it fails instead, so that a green run of the continuous integration means that the test ran.
    """
    if found is not None:
        return found
    if variable("CI") == "true":
        pytest.fail(f"needs {what}")
    pytest.skip(f"needs {what}")


@pytest.fixture(scope="session")
def require_tool() -> Callable[..., str]:
    """`require_tool("clang-19", "clang")`: the path of the first program found; see `require`."""
    return lambda *names: require(find_tool(names), f"{' or '.join(names)} on PATH")


NVIDIA_EXAMPLES = frozenset({"gemm_explicit", "gemm_hopper", "gemm_pingpong"})
"""Examples that name instructions of NVIDIA, or have tiles for its shared memory."""
AMD_EXAMPLES = frozenset({"gemm_waves", "gemm_turns"})
"""Examples that name instructions of AMD."""

CLUSTER_EXAMPLES = frozenset({"cluster_softmax"})
"""Examples of clusters, which only some targets have, or run as one block."""


HOPPER_EXAMPLES = frozenset({"grouped_matmul", "gathered_matmul"})
"""Examples of the copy engine, of which other targets make kernels whose proofs take longer than tests should."""


def example_runs(stem: str, target: str) -> bool:
    """Whether the example is for the target; NVIDIA's are for the CPU, too."""
    if stem in HOPPER_EXAMPLES:
        return target == "sm_90a"
    if stem in CLUSTER_EXAMPLES:
        return target in ("cpu", "sm_90a")
    return stem not in (NVIDIA_EXAMPLES if target == "gfx942" else AMD_EXAMPLES)


def example_target(stem: str) -> str:
    """A target that the example is for."""
    return next(target for target in ("sm_80", "gfx942", "sm_90a") if example_runs(stem, target))
