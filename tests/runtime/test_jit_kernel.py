"""Calls of a kernel: how arguments find their parameters, what is built when, and what a launch gets."""

import ctypes
import shutil
import subprocess
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from argus.backend.launch.signature import Signature, TensorParam, signature
from argus.diagnostic import ArgusError, LaunchError
from argus.frontend.options import Options
from argus.runtime.executable import CONSTEXPR, SCALAR, TENSOR, Executable, Parameter, unaligned
from argus.runtime.jit_kernel import JitKernel
from tests.backend.launch.samples import gather, gemm


class HandMade:
    """The `gemm` sample, "compiled" by the C compiler; every build has a number."""

    # Writes what it was launched with into c: grid, M, N, K, threads, the build's number, alpha.
    TEXT = r"""
    int argus_cpu_launch(void** a, const int* grid, int threads, int shared, int workers, char* message, int n) {
        unsigned short* c = *(unsigned short**)a[2];
        c[0] = grid[0]; c[1] = grid[1]; c[2] = *(int*)a[3]; c[3] = *(int*)a[5]; c[4] = *(int*)a[4];
        c[5] = threads; c[6] = NUMBER; c[7] = (unsigned short)*(float*)a[9];
        return 0;
    }
    """

    def __init__(self, folder: Any, s: Signature | None = None) -> None:
        self.folder = folder
        self.signature = s or signature(gemm())
        self.built: list[Options] = []

    def parameters(self) -> tuple[Parameter, ...]:
        kinds = [(p.name, TENSOR if isinstance(p, TensorParam) else SCALAR) for p in self.signature.params]
        return tuple(Parameter(*p) for p in (*kinds, ("BLOCK", CONSTEXPR)))

    def interface(self, options: Options) -> Signature:
        return replace(unaligned(self.signature), constexprs=(("BLOCK", options.constexprs.get("BLOCK", 64)),))

    def executable(self, options: Options) -> Executable:
        self.built.append(options)
        source, library = self.folder / f"{len(self.built)}.c", self.folder / f"{len(self.built)}.so"
        source.write_text(self.TEXT.replace("NUMBER", str(len(self.built))))
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            pytest.skip("needs a C compiler")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
        params = tuple(
            replace(p, alignment=options.alignment.get(p.name, 16)) if isinstance(p, TensorParam) else p
            for p in self.signature.params
        )
        threads = 32 * (options.num_warps or 4)
        s = replace(self.signature, params=params, num_threads=threads)
        return Executable(s, options.target, "gemm", "", library.read_bytes(), None, (), {})


@pytest.fixture
def source(tmp_path: Any) -> HandMade:
    return HandMade(tmp_path)


@pytest.fixture
def kernel(source: HandMade) -> JitKernel:
    return JitKernel("gemm", source)


def numpy_operands(m: int = 100, n: int = 70, k: int = 128) -> list[Any]:
    return [np.zeros(shape, np.uint16) for shape in ((m, k), (n, k), (m, n))]


def torch_operands(m: int = 100, n: int = 70, k: int = 128) -> list[Any]:
    torch = pytest.importorskip("torch")
    return [torch.zeros(shape, dtype=torch.bfloat16) for shape in ((m, k), (n, k), (m, n))]


OPERANDS = pytest.mark.parametrize("operands", [numpy_operands, torch_operands])


def report(c: Any) -> list[int]:
    """What the kernel wrote: grid 0, grid 1, M, N, K, threads, number of the build, alpha."""
    address = c.ctypes.data if isinstance(c, np.ndarray) else c.data_ptr()
    return list((ctypes.c_uint16 * 8).from_address(address))


@OPERANDS
def test_a_call_runs_on_the_declared_grid(kernel: JitKernel, operands: Any) -> None:
    for alpha in (3.0, 4.0, 5.0):
        a, b, c = operands()
        kernel(a, b, c, alpha)
        assert report(c) == [2, 2, 100, 70, 128, 128, 1, int(alpha)]


@OPERANDS
def test_ways_to_say_the_same(kernel: JitKernel, source: HandMade, operands: Any) -> None:
    a, b, c = operands()
    calls = [
        lambda: kernel(a, b, c, 1.0),
        lambda: kernel(a, b, c, alpha=1.0),
        lambda: kernel(alpha=1.0, c=c, b=b, a=a),
        lambda: kernel[2, 2](a, b, c, 1.0),
        lambda: kernel[2, 2, 1](a, b, c, 1.0),
        lambda: kernel[[2, 2]](a, b, c, 1.0),
        lambda: kernel[lambda constants: (128 // constants["BLOCK"], 2)](a, b, c, 1.0),
    ]
    for call in (*calls, *calls):
        c[...] = 0
        call()
        assert report(c) == [2, 2, 100, 70, 128, 128, 1, 1]
    assert len(source.built) == 1


@OPERANDS
def test_shapes_do_not_build_and_constants_do(kernel: JitKernel, source: HandMade, operands: Any) -> None:
    for m in (100, 8, 100, 8):
        a, b, c = operands(m)
        kernel(a, b, c, 1.0)
        assert report(c)[:3] == [-(-m // 64), 2, m]
    assert len(source.built) == 1
    for block in (32, 64, 32):
        kernel(a, b, c, 1.0, BLOCK=block)
    kernel(a, b, c, 1.0, 64)
    assert [o.constexprs for o in source.built] == [{}, {"BLOCK": 32}, {"BLOCK": 64}]
    kernel(a, b, c, 1.0, num_warps=8)
    assert report(c)[5:7] == [256, 4]


@OPERANDS
def test_constants_that_python_confuses_are_built_apart(kernel: JitKernel, source: HandMade, operands: Any) -> None:
    a, b, c = operands()
    for value in (1, True, 1.0, 0.0, -0.0, (1,), (True,), 1):
        kernel(a, b, c, 1.0, BLOCK=value)
        kernel(a, b, c, 1.0, value)
    assert len(source.built) == 7


@OPERANDS
def test_alignment_chooses_the_build(kernel: JitKernel, source: HandMade, operands: Any) -> None:
    a, b, c = operands(n=72)
    wide = operands(k=136)[0]
    for left in (a, wide[:, :128], wide[:, 4:132], wide[:, 1:129], a):
        kernel(left, b, c, 1.0)
    assert [o.alignment["a"] for o in source.built] == [16, 8, 2]
    assert all((o.alignment["b"], o.alignment["c"]) == (16, 16) for o in source.built)
    assert report(c)[6] == 1


@OPERANDS
def test_checks_hold_on_the_fast_way_too(kernel: JitKernel, operands: Any) -> None:
    a, b, c = operands()
    kernel(a, b, c, 1.0)
    kernel(a, b, c, 1.0)
    square = operands(n=128)
    kernel(*square, 1.0)
    bad = [
        ("overlapping-output", lambda: kernel(square[2], square[1], square[2], 1.0)),
        ("precondition-failed", lambda: kernel(a, b, c, -1.0)),
        ("scalar-argument", lambda: kernel(a, b, c, 1e60)),
        ("scalar-argument", lambda: kernel(a, b, c, "1")),
        ("shape-mismatch", lambda: kernel(a, b[:, :64], c, 1.0)),
        ("precondition-failed", lambda: kernel(a[:, :100], b[:, :100], c, 1.0)),
        ("grid-mismatch", lambda: kernel[3, 2](a, b, c, 1.0)),
        ("argument-type", lambda: kernel([1], b, c, 1.0)),
    ]
    for code, call in (*bad, *bad):
        with pytest.raises(LaunchError) as caught:
            call()
        assert caught.value.diagnostics[0].code == code
        assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_wrong_numbers_of_arguments(kernel: JitKernel) -> None:
    a, b, c = numpy_operands()
    bad = [
        ("misses `alpha`", lambda: kernel(a, b, c)),
        ("misses `a`; misses `b`", lambda: kernel(c=c, alpha=1.0)),
        ("takes 5 arguments, 6", lambda: kernel(a, b, c, 1.0, 64, 7)),
        ("no parameter `BLOK`", lambda: kernel(a, b, c, 1.0, BLOK=64)),
        ("got `c` twice", lambda: kernel(a, b, c, 1.0, c=c)),
    ]
    for words, call in (*bad, *bad):
        with pytest.raises(LaunchError, match=words) as caught:
            call()
        assert caught.value.diagnostics[0].code == "argument-count"


@pytest.mark.parametrize("grid", ["2", 1.5, None, (1, "2"), (1, [2])])
def test_what_is_no_grid(kernel: JitKernel, grid: Any) -> None:
    with pytest.raises(LaunchError) as caught:
        kernel[grid](*numpy_operands(), 1.0)
    assert caught.value.diagnostics[0].code == "grid-mismatch"


def test_wrong_arguments_cost_no_build(kernel: JitKernel, source: HandMade) -> None:
    a, b, c = numpy_operands()
    with pytest.raises(LaunchError):
        kernel(a, b, c[:5], 1.0)
    assert source.built == []


def test_empty_work_is_no_launch(kernel: JitKernel) -> None:
    a, b, c = numpy_operands(m=0)
    kernel(a, b, c, 1.0)
    torch_a, torch_b, torch_c = torch_operands(n=0)
    for _ in range(3):
        kernel(torch_a, torch_b, torch_c, 1.0)


def test_k_of_zero_runs(kernel: JitKernel) -> None:
    for operands in (numpy_operands, torch_operands):
        for _ in range(3):
            a, b, c = operands(k=0)
            kernel(a, b, c, 1.0)
            assert report(c)[4] == 0


def test_index_tensors_are_looked_into_on_request(tmp_path: Any) -> None:
    kernel = JitKernel("gather", HandMade(tmp_path, signature(gather())))
    x, index = np.zeros((9, 4), np.float32), np.array([0, 9], np.int32)
    out, hits = np.zeros((2, 4), np.float32), np.zeros(9, np.float32)
    with pytest.raises(LaunchError) as caught:
        kernel[1](x, index, out, hits, check_index_tensors=True)
    assert caught.value.diagnostics[0].code == "index-out-of-range"


def test_build_proves_and_compiles_without_a_launch(kernel: JitKernel, source: HandMade) -> None:
    built = kernel.build("sm_90a", alignment={"a": 8}, num_warps=8, BLOCK=32)
    assert built.signature.num_threads == 256
    (options,) = source.built
    assert (options.target, options.constexprs) == ("sm_90a", {"BLOCK": 32})
    assert options.alignment == {"a": 8} and options.default_alignment == 16
    assert kernel.build("sm_90a", alignment={"c": 16, "a": 8}, num_warps=8, BLOCK=32) is built
    assert kernel.build("sm_90a", alignment={"a": 4}, num_warps=8, BLOCK=32) is not built


def test_tensors_without_memory_are_refused(kernel: JitKernel) -> None:
    a, b, c = torch_operands()
    kernel(a, b, c, 1.0)
    kernel(a, b, c, 1.0)
    for other in (a.to("meta"), a.to_sparse()):
        for _ in range(2):
            with pytest.raises(LaunchError) as caught:
                kernel(other, b, c, 1.0)
            assert caught.value.diagnostics[0].code in ("argument-type", "device-mismatch")


def test_tensors_of_a_transformation_are_refused(kernel: JitKernel) -> None:
    torch = pytest.importorskip("torch")
    a, b, c = torch_operands()

    def call(row: Any) -> Any:
        kernel(row, b, c, 1.0)
        return row

    with pytest.raises(LaunchError) as caught:
        torch.vmap(call)(torch.zeros(2, 100, 128, dtype=torch.bfloat16))
    assert caught.value.diagnostics[0].code == "argument-type"
    kernel(a, b, c, 1.0)


def test_parameters_and_requires_grad_are_plain_tensors(kernel: JitKernel) -> None:
    torch = pytest.importorskip("torch")
    a, b, c = torch_operands()
    for _ in range(3):
        kernel(torch.nn.Parameter(a), b, c, 1.0)
    assert report(c)[0] == 2


def test_constants_are_found_by_value_when_their_objects_go(kernel: JitKernel, source: HandMade) -> None:
    """An address that another object had before is no proof that the constant is the same."""
    a, b, c = torch_operands()
    for _ in range(3):
        for block in range(1000, 1020):
            kernel(a, b, c, 1.0, BLOCK=int(str(block)))
            assert source.built[report(c)[6] - 1].constexprs == {"BLOCK": block}
    assert len(source.built) == 20


def test_what_could_change_is_never_found_by_its_object(kernel: JitKernel, source: HandMade) -> None:
    a, b, c = torch_operands()
    block = [0]
    for block[0] in (1, 2, 3):
        kernel(a, b, c, 1.0, BLOCK=block)
    assert len(source.built) == 3


def test_negated_views_are_refused_on_the_fast_way_too(kernel: JitKernel) -> None:
    torch = pytest.importorskip("torch")
    a, b, c = torch_operands()
    for other in (a, torch._neg_view(a), a, torch._neg_view(a)):
        if other is a:
            kernel(other, b, c, 1.0)
            continue
        with pytest.raises(LaunchError, match="negated"):
            kernel(other, b, c, 1.0)


def test_shapes_in_turns_and_threads(kernel: JitKernel) -> None:
    """More shapes than a site keeps at hand, from several threads: every launch gets its own sizes."""
    sets = [torch_operands(m) for m in range(1, 8)]
    wrong: list[Any] = []

    def work(first: int) -> None:
        mine = [torch_operands(m) for m in range(1, 8)]
        for i in range(70):
            m = (first + i) % 7
            kernel(*mine[m], 1.0)
            if report(mine[m][2])[2] != m + 1:
                wrong.append((m + 1, report(mine[m][2])))

    for operands in sets:
        kernel(*operands, 1.0)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    ("target", "alignment", "code"),
    [("sm_70", None, "unknown-target"), (None, None, "unknown-target"), ("cpu", 16, "bad-option"),
     ("cpu", ["x"], "bad-option"), ("cpu", {"z": 16}, "bad-option"), ("cpu", {"x": "a"}, "bad-option"),
     ("cpu", {"x": 3}, "bad-option")],
)  # fmt: skip
def test_options_of_a_build_that_do_not_exist(target: Any, alignment: Any, code: str) -> None:
    from examples.vector_add import vector_add

    with pytest.raises(ArgusError) as raised:
        vector_add.build(target, alignment=alignment)
    (found,) = raised.value.diagnostics
    assert found.code == code and found.help
