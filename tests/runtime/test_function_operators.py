"""Functions as operators: the arguments that are passed on, what PyTorch must refuse, and what a first call imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from argus.diagnostic import LaunchError
from argus.runtime.function import Function, Operator, operator_of
from argus.runtime.work import Call, Work, _allocations
from tests.runtime.test_function import Recorder, addresses, scaled

torch = pytest.importorskip("torch")


def halved(recorder: Recorder) -> Any:
    """An operator of a tensor, one that may be None, a number of which the kernel takes the half, and a list."""

    def work(tensors: tuple[Any, ...], numbers: tuple[Any, ...], sizes: tuple[int, ...], alone: bool) -> Work:
        kernel: Any = recorder
        result = torch.empty(sizes)
        return Work((Call(kernel, (tensors[0], tensors[-1], result, *numbers), {"ALONE": alone}),), (result,))

    def joined(tensors: tuple[Any, ...], numbers: tuple[Any, ...], way: tuple[Any, ...]) -> tuple[Any, ...]:
        sizes, alone = way
        return tensors[0], list(sizes), None if alone else tensors[1], 2 * numbers[0] if numbers else None

    def split(x: Any, sizes: Any, y: Any, number: Any) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
        tensors = (x,) if y is None else (x, y)
        return tensors, () if number is None else (number / 2,), (tuple(sizes), y is None)

    schema = "argus_tests::halved(Tensor x, int[] sizes, Tensor? y=None, float? number=None) -> Tensor"
    fake = lambda x, sizes, y, number: x.new_empty(sizes)  # noqa: E731
    return operator_of(Function(work, Operator(schema, fake, join=joined, split=split)))


def test_an_operator_passes_what_its_call_leaves_out_and_what_it_converts() -> None:
    """Each call comes twice: the second finds the launch that the first prepared."""
    recorder = Recorder((0, 1), (2,))
    operator = halved(recorder)
    x, y = torch.zeros(4), torch.zeros(5)
    calls: list[tuple[tuple[Any, ...], tuple[Any, ...]]] = [
        ((x, [3]), (x, x)), ((x, [6]), (x, x)), ((x, [3], y), (x, y)), ((x, [3], y, 4.0), (x, y, 2.0)),
        ((x, [3], None, 8.0), (x, x, 4.0)),
    ]  # fmt: skip
    for given, passed in calls * 2:
        result = operator(*given)
        assert result.shape == tuple(given[1])
        assert recorder.ran[-1] == (*addresses(*passed[:2], result), *passed[2:])
    assert len(recorder.prepared) == len(calls) and not recorder.called


def test_an_operator_that_returns_nothing_launches_on_its_arguments() -> None:
    recorder = Recorder((0,), (1,))

    def work(tensors: tuple[Any, ...], numbers: tuple[Any, ...]) -> Work:
        kernel: Any = recorder
        return Work((Call(kernel, (*tensors, *numbers)),), ())

    schema = "argus_tests::into(Tensor x, Tensor(a!) out, float number=1.5) -> ()"
    function = Function(work, Operator(schema, lambda x, out, number: None))
    operator, x, out = operator_of(function), torch.zeros(4), torch.zeros(4)
    for number in (1.5, 2.5, 1.5):
        assert function((x, out), (number,)) is None and operator(x, out, number) is None
        assert recorder.ran[-2:] == [(*addresses(x, out), number)] * 2
    assert operator(x, out) is None and recorder.ran[-1] == (*addresses(x, out), 1.5)
    assert out._version == 7 and len(recorder.prepared) == 1


def test_derivatives_in_forward_mode_are_refused() -> None:
    """A call that only launches is refused too, once forward mode follows its tensors."""
    recorder = Recorder((0, 1), (2,))
    operator, x = halved(recorder), torch.zeros(4)
    for _ in range(3):
        operator(x, [3])
    with torch.autograd.forward_ad.dual_level():
        operator(x, [3])
        dual = torch.autograd.forward_ad.make_dual(x, x)
        with pytest.raises(LaunchError, match="no derivative in forward mode"):
            operator(dual, [3])
    assert len(recorder.ran) == 4


def test_a_tensor_with_a_tangent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first level of forward mode imports much of PyTorch, so one tensor stands for a dual one."""
    operator, x, dual = halved(Recorder((0, 1), (2,))), torch.zeros(4), torch.zeros(4)
    for _ in range(2):
        operator(x, [3])
    forward = torch.autograd.forward_ad
    monkeypatch.setattr(forward, "_current_level", 0)
    monkeypatch.setattr(forward, "unpack_dual", lambda t: SimpleNamespace(tangent=t if t is dual else None))
    operator(x, [3])
    with pytest.raises(LaunchError, match="no derivative in forward mode"):
        operator(dual, [3])


def test_gradients_by_torch_func_are_refused() -> None:
    operator = halved(Recorder((0, 1), (2,)))
    with pytest.raises(LaunchError, match=r"no gradient for `torch\.func`"):
        torch.func.grad(lambda x: operator(x, [3])[0])(torch.zeros(4))


def test_arguments_that_are_no_tensors_are_named() -> None:
    function = scaled(Recorder())
    with pytest.raises(LaunchError, match="tensor number 2 of the call is of type list"):
        function((torch.zeros(2, 8), [1.0]))


ALONE = """
import sys
import torch
from argus import kernels
kernels.softmax(torch.rand(4, 20))
assert not {"sympy", "torch._dynamo"} & set(sys.modules)
"""


def test_a_first_call_does_not_import_the_compiler_of_pytorch(tmp_path: Path, require_tool: Any) -> None:
    require_tool("g++", "clang++", "c++")
    own = os.environ | {"ARGUS_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", ALONE], env=own, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr


def test_recording_calls_pytorch_without_its_compiler() -> None:
    assert not hasattr(type(_allocations()).__torch_dispatch__, "__wrapped__"), "the first use imports torch._dynamo"
