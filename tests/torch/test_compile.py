"""Kernels inside of torch.compile, modules and fake tensors: what PyTorch code does with any callable."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus import kernels  # noqa: E402
from argus.diagnostic import LaunchError  # noqa: E402
from argus.runtime import Call, Function, Work, from_text  # noqa: E402
from tests.torch.kernels import affine, double  # noqa: E402


@pytest.fixture(autouse=True)
def compiler(require_tool: Any) -> None:
    require_tool("g++", "clang++", "c++")


@pytest.mark.parametrize("dynamic", [False, True])
def test_kernels_are_called_in_one_graph(dynamic: bool) -> None:
    def model(x: Any, shift: Any) -> Any:
        outs = [torch.empty_like(x) for _ in range(4)]
        double(x, outs[0])
        double[-(-x.shape[0] // 64)](x, outs[1], BLOCK=64)
        affine(x, None, outs[2], 3.0)
        affine(x, shift, out=outs[3], factor=3.0)
        return [out + 1 for out in outs]

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for size in (300, 70):
        x, shift = torch.rand(size), torch.rand(size)
        for got, wanted in zip(compiled(x, shift), (2 * x, 2 * x, 3 * x, 3 * x + shift), strict=True):
            torch.testing.assert_close(got, wanted + 1)


def test_a_computed_grid_breaks_the_graph_and_runs() -> None:
    def model(x: Any) -> Any:
        out = torch.empty_like(x)
        double[lambda k: (-(-300 // k["BLOCK"]),)](x, out)
        return out + 1

    x = torch.rand(300)
    assert torch.equal(torch.compile(model, backend="aot_eager")(x), 2 * x + 1)


COLD = """
import torch
from tests.torch.kernels import double

@torch.compile(backend="aot_eager")
def model(x):
    out = torch.empty_like(x)
    double(x, out)
    return out

x = torch.rand(300)
assert torch.equal(model(x), 2 * x)
"""


def test_the_first_call_may_be_a_traced_one(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGUS_CACHE_DIR", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", COLD], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _work(tensors: Any, _numbers: Any) -> Work:
    out = torch.empty_like(tensors[0])
    return Work((Call(double, (tensors[0], out)),), (out,))


doubled = Function(_work)


class Doubling(torch.nn.Module):
    """A module that holds a kernel, a function of its own and one of the library."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel, self.function, self.product = double, doubled, kernels.matmul
        self.weight = torch.nn.Parameter(torch.ones(300))

    def forward(self, x: Any) -> Any:
        """`2 x`."""
        out = torch.empty_like(x)
        self.kernel(x, out)
        return out


def saved(module: Any) -> Any:
    """Return the module that `torch.save` wrote, after reading it back."""
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), saved])
def test_modules_with_kernels_are_copied_and_pickled(copied: Any) -> None:
    module, x = Doubling(), torch.rand(300)
    module(x), module.function((x,))
    other = copied(module)
    assert other.kernel.__name__ == "double" and torch.equal(other(x), 2 * x)
    assert torch.equal(other.function((x,)), 2 * x)
    assert other.function is doubled and other.product is kernels.matmul  # a copy would be another operator


def test_a_function_without_a_name_is_not_pickled() -> None:
    with pytest.raises(pickle.PicklingError, match="no variable of the module"):
        pickle.dumps(Function(lambda tensors, _: _work(tensors, _)))


def test_modules_with_kernels_are_exported() -> None:
    file, x = io.BytesIO(), torch.rand(300)
    torch.export.save(torch.export.export(Doubling(), (x,)), file)
    file.seek(0)
    assert torch.equal(torch.export.load(file).module()(x), 2 * x)


def test_a_pickle_holds_the_text_and_runs_none_of_it() -> None:
    lines = [
        "raise SystemExit",
        "import argus",
        "import argus.language as al",
        "@argus.kernel",
        "def empty(n: al.int32):",
    ]
    (kernel,) = from_text("\n".join([*lines, "    al.grid(n)\n"])).values()
    other = pickle.loads(pickle.dumps(kernel))
    assert other is not kernel and other.source == kernel.source and "SystemExit" in other.source.text.file.text


def test_optional_tensors_may_be_left_out() -> None:
    x, shift = torch.rand(300), torch.rand(300)
    for _ in range(3):
        out = torch.empty(300)
        for call in (
            lambda: affine(x, None, out, 2.0),
            lambda: affine(x, shift=None, out=out, factor=2.0),
            lambda: affine(x, out=out, factor=2.0),
        ):
            out.zero_()
            call()
            assert torch.equal(out, 2 * x)
        affine(x, shift, out, 2.0)
        torch.testing.assert_close(out, 2 * x + shift)
    with pytest.raises(LaunchError, match="misses `x`"):
        affine(shift=shift, out=out, factor=2.0)
    with pytest.raises(LaunchError, match="NoneType"):
        affine(None, shift, out, 2.0)


def test_writes_are_counted() -> None:
    x, out = torch.rand(300), torch.empty(300)
    for count in range(1, 4):
        double(x, out)
        assert (x._version, out._version) == (0, count)
    y = torch.rand(300, requires_grad=True)
    product = y * out
    double(x, out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()
    with torch.inference_mode():
        free = torch.empty(300)
    for _ in range(3):
        double(x, free)
    assert torch.equal(free, 2 * x)


def test_tensors_without_memory_are_refused_in_words() -> None:
    out = torch.empty(300)
    with pytest.raises(LaunchError, match="a meta tensor, which has a shape and no elements"):
        double(torch.empty(300, device="meta"), out)
    for size in (16, 0):
        x = torch.rand(300)
        if size == 0:
            double(x, out)  # a launch that is ready does not reach freed memory either
        x.untyped_storage().resize_(size)
        with pytest.raises(LaunchError, match="argument-type"):
            (double if size == 0 else pickle.loads(pickle.dumps(double)))(x, out)


def test_empty_tensors_are_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    none, out = torch.empty(0), torch.empty(0)
    for _ in range(3):
        double(none, out)
    monkeypatch.setattr(double, "_call_slowly", lambda *_: pytest.fail("a call like earlier ones was prepared again"))
    double(none, out)


def test_fake_tensors_launch_nothing() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x, out = torch.empty(300), torch.empty(300)
        assert double(x, out) is None
        with pytest.raises(LaunchError, match="`N` is 300"):
            double(x, torch.empty(200))
