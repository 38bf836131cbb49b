"""Calls through the whole pipeline on the host: results, refusals, and what the cache saves and does not."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import argus.backend.standby
import argus.compile
from argus.backend.cache import DiskCache
from argus.diagnostic import LaunchError, SourceError, VerificationError
from argus.frontend.decorator import KernelSource
from argus.runtime import JitKernel, jit
from argus.source import SourceFile
from tests.runtime import kernels

TEXT = SourceFile(kernels.__file__, Path(kernels.__file__).read_text())


@pytest.fixture(autouse=True)
def compiler(require_tool: Any) -> None:
    require_tool("g++", "clang++", "c++")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The kernels that were proved and built during a test, by name."""
    made: list[str] = []
    compile = argus.compile.compile

    def counted(source: SourceFile, name: str, *args: Any, **kwargs: Any) -> Any:
        made.append(name)
        return compile(source, name, *args, **kwargs)

    monkeypatch.setattr(argus.compile, "compile", counted)
    yield made


def kernel(name: str, folder: Path, text: SourceFile = TEXT) -> JitKernel:
    return jit(KernelSource(name, text), DiskCache(folder))


def check_scale(k: JitKernel, n: int = 1000) -> None:
    x, out = np.arange(n, dtype=np.float32), np.full(n, np.nan, np.float32)
    k(x, out, 0.5)
    assert np.array_equal(out, 3 * x + np.float32(0.5))


def test_more_heads_than_a_second_axis_of_the_hardware_has(folder: Path) -> None:
    k = kernel("scale_heads", folder)
    x = np.random.default_rng(0).standard_normal((300, 219, 4)).astype(np.float32)
    factor, out = x[:, :, 0].copy(), np.zeros_like(x)
    for call in (k, k[1, 300 * 219], k[1, 219, 300]):
        out[:] = 0
        call(x, factor, out)
        np.testing.assert_array_equal(out, x * factor[:, :, None])
    with pytest.raises(LaunchError, match="grid-mismatch"):
        k[1, 300, 219](x, factor, out)


def test_a_kernel_computes_for_numpy_and_pytorch(folder: Path) -> None:
    k = kernel("scale", folder)
    for n in (1000, 4, 0, 256):
        check_scale(k, n)
    torch = pytest.importorskip("torch")
    for n in (1000, 4, 0, 256, 256):
        x, out = torch.rand(n), torch.full((n,), float("nan"))
        k(x, out, 2.0)
        assert torch.equal(out, 3 * x + 2.0)


def test_the_decorated_function_is_that_kernel() -> None:
    assert kernels.scale.__name__ == "scale"
    assert kernels.scale.__doc__ == "out = 3 x + shift."
    assert [p.name for p in kernels.scale.declaration().params] == ["x", "out", "shift"]


def test_a_proof_is_made_once(folder: Path, proofs: list[str], tmp_path: Path) -> None:
    for _ in range(2):
        k = kernel("scale", tmp_path)
        for _ in range(2):
            check_scale(k)
    assert proofs == ["scale"]
    check_scale(kernel("scale", tmp_path, SourceFile(TEXT.path, TEXT.text.replace("FACTOR = 3", "FACTOR = 3.0"))))
    check_scale(kernel("scale", tmp_path, SourceFile("moved.py", TEXT.text)))
    assert proofs == ["scale", "scale"]


def test_a_compiler_stands_by_for_what_is_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there before the kernel is read, and ended with the build, proved or refuted."""
    seen: list[str] = []

    @contextmanager
    def noted(target: str) -> Iterator[None]:
        seen.append(target)
        try:
            yield None
        finally:
            seen.append("ended")

    monkeypatch.setattr(argus.backend.standby, "standby", noted)
    for _ in range(2):
        kernel("scale", tmp_path).build("cpu")
        assert seen == ["cpu", "ended"]
    with pytest.raises(VerificationError):
        kernel("unmasked", tmp_path).build("cpu")
    assert seen == ["cpu", "ended"] * 2


def test_a_changed_constant_of_the_module_is_another_kernel(folder: Path) -> None:
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    kernel("scale", folder, SourceFile(TEXT.path, TEXT.text.replace("FACTOR = 3", "FACTOR = 5")))(x, out, 0.0)
    assert out.tolist() == [5.0] * 8


def test_damaged_entries_are_rebuilt(tmp_path: Path, proofs: list[str]) -> None:
    check_scale(kernel("scale", tmp_path))
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    check_scale(kernel("scale", tmp_path))
    assert proofs == ["scale", "scale"]


def test_an_unproved_kernel_is_not_built(folder: Path, proofs: list[str]) -> None:
    x, out, refused = np.zeros(300, np.float32), np.zeros(300, np.float32), kernel("unmasked", folder)
    for _ in range(2):
        with pytest.raises(VerificationError) as caught:
            refused(x, out)
        assert caught.value.diagnostics[0].property == "bounds"
        assert caught.value.diagnostics[0].notes == ()
    assert proofs == ["unmasked"]
    with pytest.raises(VerificationError) as caught:
        refused(x[:3], out[:3])
    assert caught.value.diagnostics[0].notes[-1].message.endswith("`x` to 4, `out` to 4")
    with pytest.raises(SourceError, match="arrange"):
        kernel("misspelt", folder)(x, out)


def test_preconditions_of_a_real_kernel(folder: Path) -> None:
    k = kernel("scale", folder)
    x = np.zeros(12, np.float32)
    with pytest.raises(LaunchError, match="precondition-failed") as caught:
        k(x[:3], np.zeros(3, np.float32), 0.0)
    assert caught.value.diagnostics[0].span.line == TEXT.text[: TEXT.text.index("al.requires")].count("\n") + 1
    with pytest.raises(LaunchError, match="overlapping-output"):
        k(x[:8], x[4:], 0.0)
    for wrong in ({"BLOCK": [64]}, {"num_warps": np.zeros(1)}):
        with pytest.raises(LaunchError, match="constexpr-argument"):
            k(x, np.zeros_like(x), 0.0, **wrong)
    with pytest.raises(LaunchError, match="grid-mismatch"):
        k[7](x, np.zeros_like(x), 0.0)


def test_index_tensors(folder: Path) -> None:
    k = kernel("take", folder)
    table, out = np.arange(10, dtype=np.float32), np.zeros(3, np.float32)
    k(table, np.array([9, 0, 4], np.int32), out, check_index_tensors=True)
    assert out.tolist() == [9, 0, 4]
    with pytest.raises(LaunchError, match="index-out-of-range"):
        k(table, np.array([9, 10, 4], np.int32), out, check_index_tensors=True)


def test_an_executable_carries_its_report(folder: Path) -> None:
    built = kernel("scale", folder).build("cpu")
    assert built.report["verdict"] == "proved"
    assert built.report["assumptions"] == []
    assert all(seconds >= 0 for _property, _engine, seconds in built.report["timings"])
    assert built.entry in built.source
    assert built.resources is not None


_CACHED = """
import json, sys, time
import numpy as np
start = time.perf_counter()
import argus
imported = time.perf_counter()
after_import = set(sys.modules)
from tests.runtime.kernels import scale
x, out = np.arange(1000, dtype=np.float32), np.empty(1000, np.float32)
scale(x, out, 0.5)
assert np.array_equal(out, 3 * x + np.float32(0.5))
heavy = ["lark", "z3", "islpy", "torch", "rich", "argus.compile", "argus.ir.nodes", "argus.verify"]
print(json.dumps({"seconds": time.perf_counter() - imported, "heavy": [m for m in heavy if m in sys.modules]}))
"""


def test_a_cached_kernel_needs_no_compiler_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGUS_CACHE_DIR", str(tmp_path))
    root = Path(__file__).parents[2]
    runs = [
        json.loads(subprocess.run([sys.executable, "-c", _CACHED], check=True, capture_output=True, cwd=root).stdout)
        for _ in range(2)
    ]
    assert "argus.verify" in runs[0]["heavy"]
    assert runs[1]["heavy"] == []
    assert runs[1]["seconds"] < 1.0  # about 0.03 on a quiet machine
