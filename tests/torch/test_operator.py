"""Kernels as PyTorch operators: schemas, PyTorch's own checks, tracing."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from argus.backend.launch.signature import Signature, signature
from argus.diagnostic import LaunchError
from argus.ir.expr import Const
from argus.runtime.jit_kernel import JitKernel
from tests.backend.launch.samples import gather, gemm
from tests.runtime.test_jit_kernel import HandMade, report, torch_operands

torch = pytest.importorskip("torch")

_numbers: Iterator[int] = count()


def fresh() -> str:
    """A name that no operator has yet."""
    return f"argus_test::op{next(_numbers)}"


@pytest.fixture
def kernel(tmp_path: Any) -> JitKernel:
    return JitKernel("gemm", HandMade(tmp_path))


def gathering(tmp_path: Any, **changes: Any) -> JitKernel:
    s: Signature = replace(signature(gather()), **({"grid": (Const(1),)} | changes))
    return JitKernel("gather", HandMade(tmp_path, s))


def test_the_schema_says_what_is_written(kernel: JitKernel, tmp_path: Any) -> None:
    op = kernel.as_torch_op(fresh())
    assert str(op._schema).partition("(")[2] == "Tensor a, Tensor b, Tensor(a0!) c, float alpha) -> ()"
    op = gathering(tmp_path).as_torch_op(fresh())
    assert "Tensor(a0!) out, Tensor(a1!) hits) -> ()" in str(op._schema)
    op = kernel.as_torch_op(fresh(), functional=True)
    assert str(op._schema).partition("(")[2] == "Tensor a, Tensor b, float alpha) -> Tensor"


def test_a_call_launches_the_kernel(kernel: JitKernel) -> None:
    a, b, c = torch_operands()
    op = kernel.as_torch_op(fresh())
    op(a, b, c, 3.0)
    assert report(c) == [2, 2, 100, 70, 128, 128, 1, 3]
    c = kernel.as_torch_op(fresh(), functional=True, num_warps=8, BLOCK=32)(a, b, 4.0)
    assert (c.shape, c.dtype) == ((100, 70), torch.bfloat16)
    assert report(c) == [2, 2, 100, 70, 128, 256, 2, 4]


def test_a_shape_by_rule(kernel: JitKernel) -> None:
    a, b, _ = torch_operands()
    op = kernel.as_torch_op(fresh(), outputs={"c": lambda b, a: (a.shape[0], b.shape[0])})
    assert op(a, b, 1.0).shape == (100, 70)


def test_a_result_has_no_shape_without_its_operands_rank(kernel: JitKernel) -> None:
    a, b, _ = torch_operands()
    op = kernel.as_torch_op(fresh(), functional=True)
    with pytest.raises(LaunchError, match="`a` has 1 dimensions; the kernel takes 2"):
        op(a[0], b, 1.0)
    assert op(a, b, 1.0).shape == (100, 70)


def test_a_kernels_errors_reach_the_caller(kernel: JitKernel) -> None:
    a, b, c = torch_operands()
    op = kernel.as_torch_op(fresh())
    with pytest.raises(LaunchError, match="precondition-failed"):
        op(a, b, c, -1.0)


@pytest.mark.parametrize("functional", [False, True])
def test_pytorchs_own_checks_pass(tmp_path: Any, functional: bool) -> None:
    # The number of the build and whatever else a rebuilt kernel would write differently stay the same.
    op = JitKernel("gemm", ZeroFilled(tmp_path)).as_torch_op(fresh(), functional=functional)
    for m, n in ((100, 70), (64, 8)):
        a, b, c = torch_operands(m, n)
        torch.library.opcheck(op, (a, b, 1.0) if functional else (a, b, c, 1.0))


class ZeroFilled(HandMade):
    """A kernel that leaves no element of its output undefined, as PyTorch's checks compare whole tensors."""

    TEXT = r"""
    int argus_cpu_launch(void** a, const int* grid, int threads, int shared, int workers, char* message, int n) {
        unsigned short* c = *(unsigned short**)a[2];
        for (long i = 0; i < (long)*(int*)a[3] * *(int*)a[5]; ++i) c[i] = 0x3f80;
        return 0;
    }
    """


@pytest.mark.parametrize("dynamic", [False, True])
def test_both_forms_trace_whole(tmp_path: Any, dynamic: bool) -> None:
    kernel = JitKernel("gemm", ZeroFilled(tmp_path))
    mutating, functional = kernel.as_torch_op(fresh()), kernel.as_torch_op(fresh(), functional=True)

    def model(a: Any, b: Any, c: Any) -> Any:
        mutating(a, b, c, 1.0)
        return functional(a, b, 1.0) + c * 2

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for m in (100, 64):
        a, b, c = torch_operands(m)
        result = compiled(a, b, c)
        assert result.shape == (m, 70)
        assert torch.equal(result, torch.full((m, 70), 3.0, dtype=torch.bfloat16))
        assert torch.equal(c, torch.ones_like(c))


def test_what_cannot_be_an_operator(kernel: JitKernel, tmp_path: Any) -> None:
    bad: list[tuple[str, str, Any]] = [
        ("operator-name", "gemm", lambda: kernel.as_torch_op("gemm")),
        ("operator-name", "a::b::c", lambda: kernel.as_torch_op("a::b::c")),
        ("operator-grid", "no grid", lambda: gathering(tmp_path, grid=None).as_torch_op(fresh())),
        ("operator-output", "`hits` is read", lambda: gathering(tmp_path).as_torch_op(fresh(), functional=True)),
        ("operator-output", "asks for `d`", lambda: kernel.as_torch_op(fresh(), outputs={"c": lambda d: (1, 1)})),
        ("operator-output", "`a` is not written", lambda: kernel.as_torch_op(fresh(), outputs={"a": lambda b: (1, 1)})),
    ]
    for code, words, call in bad:
        with pytest.raises(LaunchError, match=words) as caught:
            call()
        assert caught.value.diagnostics[0].code == code
    renamed = replace(signature(gemm()), params=tuple(signature(gemm()).params[1:]))
    alone = JitKernel("gemm", HandMade(tmp_path, renamed))
    with pytest.raises(LaunchError, match="extent `M` of `c` is in no input"):
        alone.as_torch_op(fresh(), functional=True)


def test_a_compiled_kernel_passes_pytorchs_checks(require_tool: Any) -> None:
    require_tool("g++", "clang++", "c++")
    from tests.runtime.kernels import scale

    mutating, functional = scale.as_torch_op(fresh()), scale.as_torch_op(fresh(), functional=True, BLOCK=128)
    for n in (1000, 4):
        x = torch.rand(n)
        torch.library.opcheck(mutating, (x, torch.empty(n), 0.5))
        torch.library.opcheck(functional, (x, 0.5))
        assert torch.equal(functional(x, 0.5), 3 * x + 0.5)


def test_a_functional_operator_takes_a_gradient(require_tool: Any) -> None:
    require_tool("g++", "clang++", "c++")
    from tests.runtime.kernels import scale

    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 3, None

    op = scale.as_torch_op(fresh(), functional=True, backward=backward)
    x = torch.rand(40, requires_grad=True)
    op(x, 0.5).sum().backward()
    assert torch.equal(x.grad, torch.full((40,), 3.0))
    without = scale.as_torch_op(fresh(), functional=True)
    with pytest.raises(LaunchError, match="has no gradient"):
        without(x, 0.5).sum().backward()
    if torch.__version__ >= "2.12":  # before, an operator's own rule could not be replaced
        torch.library.register_autograd(without, backward)
        without(x, 0.5).sum().backward()
        assert torch.equal(x.grad, torch.full((40,), 6.0))
    with pytest.raises(LaunchError, match="writes to a tensor that needs a gradient"):
        scale.as_torch_op(fresh())(x, torch.empty(40, requires_grad=True), 0.5)


def test_copies_are_made_of_inputs_with_other_strides(require_tool: Any) -> None:
    require_tool("g++", "clang++", "c++")
    from tests.runtime.kernels import scale

    op, x = scale.as_torch_op(fresh(), functional=True), torch.rand(80)
    for given in (x[::2], x[:1].expand(40)):
        for _ in range(2):
            assert torch.equal(op(given, 0.5), 3 * given + 0.5)


def test_fake_tensors_are_checked(kernel: JitKernel) -> None:
    op = kernel.as_torch_op(fresh(), functional=True)
    a, b, _ = torch_operands()
    assert op(a.to("meta"), b.to("meta"), 1.0).shape == (100, 70)
    with pytest.raises(LaunchError, match="`K` is 128"):
        op(a.to("meta"), b[:, :64].to("meta"), 1.0)
    with pytest.raises(LaunchError, match="`a` holds float32"):
        op(a.float().to("meta"), b.to("meta"), 1.0)
