"""Autotuning without a GPU: what is dropped and why, what is built and kept, with a timer that is told what to say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import argus
import argus.language as al
from argus.backend.cache import DiskCache
from argus.diagnostic import LaunchError
from argus.frontend import Options
from argus.frontend.decorator import KernelSource, file_of
from argus.runtime import jit
from argus.tuning.autotuner import Autotuner, size_class
from argus.tuning.bench import do_bench
from argus.tuning.build import BuildRequest, build_all, in_a_process


@argus.kernel
def double(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"], BLOCK: al.constexpr = 128):
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    al.store(y[i], al.load(x[i], mask=i < N) * 2.0, mask=i < N)


CONFIGS = (
    argus.Config({"BLOCK": 64}, num_warps=1),
    argus.Config({"BLOCK": 256}, num_warps=2),
    argus.Config({"BLOCK": 2**21}),
)


class Timer:
    """Says the milliseconds of a call by its constants; counts what it was asked."""

    def __init__(self, milliseconds: dict[int, float]) -> None:
        self.milliseconds, self.asked = milliseconds, list[int]()

    def __call__(self, call: Any, device: str) -> float:
        call()
        block = call.keywords["BLOCK"]
        self.asked.append(block)
        if self.milliseconds[block] < 0:
            raise RuntimeError("out of luck\nand more")
        return self.milliseconds[block]


def tuner(
    directory: Path, bench: Timer, configs: Any = CONFIGS, build: Callable[[BuildRequest], str] = lambda order: ""
) -> Autotuner:
    text = KernelSource("double", file_of(test_the_fastest_is_chosen_and_outputs_are_untouched))
    return Autotuner(jit(text, DiskCache(directory)), configs, ("N",), bench=bench, build=build)


def arguments(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(n, dtype=torch.float32), torch.zeros(n)


@pytest.fixture
def compiler(require_tool: Any) -> None:
    require_tool("g++", "clang++", "c++")


def test_the_fastest_is_chosen_and_outputs_are_untouched(tmp_path: Path, compiler: None) -> None:
    timer = Timer({64: 2.0, 256: 1.0})
    found = tuner(tmp_path, timer)
    x, y = arguments(1000)
    assert found.best(x, y) is CONFIGS[1] and timer.asked == [64, 256] and not y.any()
    found(x, y)
    assert torch.equal(y, 2 * x)
    (trials,) = found.trials.values()
    assert [t.milliseconds for t in trials] == [2.0, 1.0, None]
    assert "more than 1048576 elements" in trials[2].reason


def test_a_class_of_sizes_is_measured_once_and_kept_on_disk(tmp_path: Path, compiler: None) -> None:
    timer = Timer({64: 1.0, 256: 2.0})
    found = tuner(tmp_path, timer)
    for n in (1000, 1024, 600):
        found(*arguments(n))
    assert timer.asked == [64, 256]
    found(*arguments(1025))
    assert timer.asked == 2 * [64, 256]
    again = Timer({})
    assert tuner(tmp_path, again).best(*arguments(1024)) is CONFIGS[0] and not again.asked
    x = np.ones(900, np.float32)
    y = np.zeros_like(x)
    tuner(tmp_path, again)(x, y)  # of other strides or dtypes nothing is known, of these all
    assert (y == 2).all() and not again.asked


def test_damage_and_other_configurations_are_measured_again(tmp_path: Path, compiler: None) -> None:
    tuner(tmp_path, Timer({64: 1.0, 256: 2.0})).best(*arguments(8))
    for path in tmp_path.rglob("*.entry"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(bytes(content))
    timer = Timer({64: 2.0, 256: 1.0})
    assert tuner(tmp_path, timer).best(*arguments(8)) is CONFIGS[1] and timer.asked == [64, 256]
    timer = Timer({64: 1.0, 256: 2.0})
    assert tuner(tmp_path, timer, CONFIGS[:2]).best(*arguments(8)) is CONFIGS[0] and timer.asked == [64, 256]


def test_configurations_that_fail_to_build_or_to_run_say_why(tmp_path: Path, compiler: None) -> None:
    found = tuner(tmp_path, Timer({64: 1.0, 256: -1.0}))
    assert found.best(*arguments(8)) is CONFIGS[0]
    ((_, failed, _),) = found.trials.values()
    assert str(failed) == "BLOCK=256, num_warps=2: out of luck"
    with pytest.raises(LaunchError) as caught:
        tuner(tmp_path / "other", Timer({}), build=lambda order: f"no {order.options.constexprs['BLOCK']}").best(
            *arguments(8)
        )
    (problem,) = caught.value.diagnostics
    assert problem.code == "no-configuration"
    assert [note.message for note in problem.notes][:2] == [
        "BLOCK=64, num_warps=1: no 64",
        "BLOCK=256, num_warps=2: no 256",
    ]


def test_what_a_key_or_a_list_cannot_be() -> None:
    with pytest.raises(LaunchError, match="no configurations"):
        argus.autotune(configs=[])
    with pytest.raises(LaunchError, match="`M` of the key is no size"):
        argus.autotune(configs=CONFIGS, key=["M"])(double).best(*arguments(8))


def test_kernels_are_built_side_by_side_in_the_order_in_which_they_finish(tmp_path: Path) -> None:
    orders = [BuildRequest(KernelSource(str(i), file_of(size_class)), Options(), None) for i in range(5)]
    assert sorted(build_all(orders, lambda order: order.kernel.name * 2, workers=2)) == [
        (i, str(i) * 2) for i in range(5)
    ]


def test_a_process_builds_into_the_cache_or_says_why_not(tmp_path: Path, compiler: None) -> None:
    found = tuner(tmp_path, Timer({64: 1.0}), CONFIGS[:1], in_a_process)
    assert found.best(*arguments(8)) is CONFIGS[0]
    kernel = KernelSource("double", file_of(test_the_fastest_is_chosen_and_outputs_are_untouched))
    wrong = BuildRequest(kernel, Options("cpu", 1, {"BLOCKS": 1}), tmp_path)
    assert in_a_process(wrong) == "unknown-constexpr: `double` has no constant `BLOCKS`"


def test_classes_of_sizes() -> None:
    assert [size_class(n) for n in (0, 1, 2, 3, 1000, 1024, 1025)] == [0, 1, 2, 4, 1024, 1024, 2048]
    assert size_class(1.5) == 1.5


def test_timing_on_the_host() -> None:
    calls: list[int] = []
    assert do_bench(lambda: calls.append(1), warmup=0.1, rep=0.1, device="cpu") >= 0 and len(calls) >= 3


def test_what_is_no_configuration_or_no_kernel_is_refused() -> None:
    with pytest.raises(LaunchError, match="a dict is no configuration"):
        argus.autotune(configs=[{"BLOCK": 64}])  # type: ignore[list-item]
    with pytest.raises(LaunchError, match="it is no kernel"):
        argus.autotune(configs=CONFIGS)(lambda x: x)  # type: ignore[arg-type]


def test_a_constant_is_chosen_once(tmp_path: Path, compiler: None) -> None:
    found = tuner(tmp_path, Timer({64: 2.0, 256: 1.0}))
    with pytest.raises(LaunchError, match="`BLOCK` is given by the call"):
        found.best(*arguments(8), BLOCK=64)
    assert found.best(*arguments(8)) is CONFIGS[1]
