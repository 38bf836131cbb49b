"""`al.device_print` and `al.device_assert`, from the language to the machine."""

from __future__ import annotations

import numpy as np
import pytest

from argus import compile as pipeline
from argus.backend.cpu import toolchain as cpu
from argus.backend.cpu.run import run_cpu
from argus.backend.cuda import toolchain as cuda
from argus.backend.emit import emit
from argus.backend.hip import toolchain as hip
from argus.diagnostic import LaunchError, SourceError, Verdict
from argus.frontend import Options
from argus.ir.nodes import DeviceAssert, Kernel
from argus.ir.text import parse_kernel, print_kernel
from argus.ir.visit import walk
from argus.ir.wellformed import check_explicit
from argus.mutate.mutation import mutations
from argus.simulate import simulate
from argus.source import SourceFile

SCALE = """
import argus
import argus.language as al

@argus.kernel
def scale(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "N"], PRINT: al.constexpr = True,
          ASSERT: al.constexpr = True):
    N, = x.shape
    i = al.grid(al.cdiv(N, 4))
    at = i * 4 + al.arange(4)
    v = al.load(x[at], boundary_check=(0,))
    if PRINT:
        al.device_print("50% of", v * 0.5, i)
    if ASSERT:
        al.device_assert(v < 100.0, "small")
        al.device_assert(N > 0)
    al.store(out[at], v + v, boundary_check=(0,))
"""
LINES = (
    "scale, program (0) element (0): 50% of [0] = 0.5",
    "scale, program (0) element (1): 50% of [0] = 1",
    "scale, program (0) element (2): 50% of [0] = 1.5",
    "scale, program (0) element (3): 50% of [0] = 2",
    "scale, program (0): 50% of [1] = 0",
    "scale, program (1) element (0): 50% of [0] = 2.5",
    "scale, program (1) element (1): 50% of [0] = 0",
    "scale, program (1) element (2): 50% of [0] = 0",
    "scale, program (1) element (3): 50% of [0] = 0",
    "scale, program (1): 50% of [1] = 1",
)
VALUES = np.arange(1, 6, dtype=np.float32)


def lowered(text: str, name: str, target: str = "cpu", **constexprs: object) -> pipeline.ExplicitKernel:
    source = SourceFile("folder/kernel.py", text)
    return pipeline.lower(
        pipeline.elaborate(source, name, Options(target=target, constexprs=constexprs, default_alignment=4)), target
    )


def run(kernel: Kernel, x: np.ndarray) -> np.ndarray:
    out = np.zeros_like(x)
    binary, _ = cpu.compile(emit(kernel), "argus_scale", kernel.warp_size)
    run_cpu(binary, kernel, [x, out, x.size], (-(-x.size // 4),), workers=1)
    return out


def test_the_text_form_is_read_back() -> None:
    kernel = lowered(SCALE, "scale", "sm_90a")
    assert parse_kernel(print_kernel(kernel)) == kernel
    assert [s.text for s in walk(kernel.body) if isinstance(s, DeviceAssert)] == [
        "kernel.py:15: al.device_assert failed: small",
        "kernel.py:16: al.device_assert failed: N > 0",
    ]


def test_the_simulator_prints_what_the_machine_prints(capfd: pytest.CaptureFixture[str]) -> None:
    kernel = lowered(SCALE, "scale")
    outcome = simulate(kernel, {"x": VALUES, "out": np.zeros_like(VALUES)})
    assert outcome.ok and outcome.complete
    assert sorted(outcome.printed) == sorted(LINES)
    np.testing.assert_array_equal(run(kernel, VALUES), VALUES + VALUES)
    assert sorted(capfd.readouterr().out.splitlines()) == sorted(LINES)


def test_a_failed_assertion_stops_the_kernel() -> None:
    kernel, bad = lowered(SCALE, "scale", PRINT=False), VALUES + 95
    text = "kernel.py:15: al.device_assert failed: small [scale, program (1) element (0)]"
    outcome = simulate(kernel, {"x": bad, "out": np.zeros_like(bad)})
    assert [(v.code, v.message) for v in outcome.violations] == [("device-assert", text)]
    assert not outcome.complete
    with pytest.raises(LaunchError) as caught:
        run(kernel, bad)
    assert (caught.value.diagnostics[0].code, caught.value.diagnostics[0].message) == ("device-assert", text)


def test_a_run_that_does_not_watch_goes_on() -> None:
    bad = VALUES + 95
    outcome = simulate(lowered(SCALE, "scale"), {"x": bad, "out": np.zeros_like(bad)}, watch=False)
    assert outcome.ok and outcome.complete and not outcome.printed
    np.testing.assert_array_equal(outcome.tensors["out"], bad + bad)


@pytest.mark.parametrize("target", ["cpu", "sm_80", "sm_90a", "gfx942"])
def test_without_them_the_emitted_text_is_that_of_the_plain_kernel(target: str) -> None:
    lines = SCALE.splitlines(keepends=True)
    plain = "".join(
        line for line in lines if "device_" not in line and "if PRINT" not in line and "if ASSERT" not in line
    )
    assert "device_" not in plain
    left_out = emit(lowered(SCALE, "scale", target, PRINT=False, ASSERT=False))
    assert left_out == emit(lowered(plain, "scale", target))
    assert left_out != emit(lowered(SCALE, "scale", target, PRINT=False))


BOUND = """
import argus
import argus.language as al

@argus.kernel
def first(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "4"]):
    N, = x.shape
    al.grid(1)
    {condition}
    al.store(out[0:4], al.load(x[0:4]))
"""


def test_a_condition_is_no_fact() -> None:
    """What an assertion says is not assumed; what `al.requires` says is."""
    for condition, verdict in (("al.device_assert(N >= 4)", Verdict.REFUTED), ("al.requires(N >= 4)", Verdict.PROVED)):
        report = pipeline.verify(lowered(BOUND.format(condition=condition), "first", "sm_80"))
        assert report.verdict is verdict, condition


def test_a_condition_is_no_obligation() -> None:
    text = BOUND.format(condition="al.requires(N >= 4)\n    al.device_assert(N < 0)")
    assert pipeline.verify(lowered(text, "first", "sm_80")).verdict is Verdict.PROVED


def test_unwritten_registers_are_not_printed() -> None:
    """A print is a use: the verifier asks that what it reads was written."""
    kernel = lowered(SCALE, "scale", "sm_80", ASSERT=False)
    text = print_kernel(kernel)
    broken = "".join(line for line in text.splitlines(keepends=True) if "map watched[" not in line)
    assert broken != text
    assert pipeline.verify(kernel).verdict is Verdict.PROVED
    report = pipeline.verify(pipeline.ExplicitKernel(parse_kernel(broken)))
    assert report.verdict is Verdict.REFUTED
    assert "uninitialised-read" in {d.code for d in report.diagnostics}


LOOP = """
import argus
import argus.language as al

@argus.kernel(num_warps=8)
def gemm(a: al.Tensor[al.bfloat16, "M K"], b: al.Tensor[al.bfloat16, "N K"], c: al.Tensor[al.bfloat16, "M N"]):
    M, K = a.shape
    N = b.shape[0]
    m, n = al.grid(al.cdiv(M, 128), al.cdiv(N, 128))
    acc = al.zeros((128, 128), al.float32)
    for k in al.pipelined(0, K, 64, stages=3, producer_warps=4):
        at = al.stage(a[m * 128 : m * 128 + 128, k : k + 64], boundary_check=(0, 1))
        bt = al.stage(b[n * 128 : n * 128 + 128, k : k + 64], boundary_check=(0, 1))
        acc = al.mma(at, bt, acc)
        al.device_print("acc", acc)
        al.device_assert(acc == acc)
    al.store(c[m * 128 : m * 128 + 128, n * 128 : n * 128 + 128], acc.to(al.bfloat16), boundary_check=(0, 1))
"""


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_products_in_flight_are_waited_for(target: str) -> None:
    """Accumulators of asynchronous products are printed by the warps that hold them, when they are complete."""
    assert pipeline.verify(lowered(LOOP, "gemm", target)).verdict is Verdict.PROVED


def test_watches_are_not_mutated() -> None:
    changed = [m for m in mutations(lowered(SCALE, "scale", "sm_80")) if "device_" in m.before + m.after]
    assert not changed


@pytest.mark.slow
def test_cuda_and_hip_compile_them() -> None:
    if cuda.find_compiler() is not None:
        assert cuda.compile(emit(lowered(SCALE, "scale", "sm_90a")), "sm_90a")[0]
    if hip.find_compiler() is not None:
        assert hip.compile(emit(lowered(SCALE, "scale", "gfx942", PRINT=False)), "gfx942")[0]


def test_characters_of_a_text_cannot_end_the_string() -> None:
    text = SCALE.replace('"small"', repr('"); x \\ ??/ %s é'))
    kernel = lowered(text, "scale", PRINT=False)
    bad = VALUES + 95
    with pytest.raises(LaunchError) as caught:
        run(kernel, bad)
    assert '"); x \\ ??/ %s é [scale, program (1)' in caught.value.diagnostics[0].message


@pytest.mark.parametrize(
    ("statement", "target", "code", "said"),
    [
        ('al.device_print("x")', "cpu", "wrong-arguments", "nothing is given to print"),
        ('al.device_print("x", x)', "cpu", "type-mismatch", "is in memory, not in registers"),
        ('al.device_print("a\\nb", v)', "cpu", "wrong-arguments", "one line of at most 200"),
        ("al.device_print(v, v)", "cpu", "wrong-arguments", "`text` of `al.device_print` is a string"),
        ("al.device_assert(v)", "cpu", "bad-condition", "is float32, not bool"),
        ('al.device_print("v", v)', "gfx942", "no-device-print", "kernels print nothing on gfx942"),
        ('al.device_print("v", al.thread_id())', "cpu", "thread-dependent", "takes part in a tile"),
    ],
)
def test_mistakes(statement: str, target: str, code: str, said: str) -> None:
    text = SCALE.replace("    if PRINT:", f"    {statement}\n    if PRINT:")
    with pytest.raises(SourceError) as caught:
        lowered(text, "scale", target, PRINT=False)
    found = caught.value.diagnostics[0]
    assert found.code == code and said in found.message


def test_texts_of_the_ir_are_checked() -> None:
    kernel = lowered(SCALE, "scale", "sm_80", PRINT=False)
    text = print_kernel(kernel)
    assert not check_explicit(parse_kernel(text))
    amd = text.replace("target sm_80", "target gfx942").replace("warps 4 of 32", "warps 2 of 64")
    wrong = {
        text.replace('"kernel.py:15: al.device_assert failed: small"', '"two\\nlines"'): "cannot be printed",
        text.replace("watched[c0] shape 4", "v[c0] shape 4"): "which is float32, not bool",
        amd.replace("device_assert", "device_print"): "kernels print nothing on gfx942",
    }  # fmt: skip
    for changed, said in wrong.items():
        assert changed != text
        assert any(said in d.message for d in check_explicit(parse_kernel(changed))), said
