"""Kernels' parameters: tensors and their alignment, scalars, constants, warps."""

import pytest

from argus.diagnostic import SourceError
from argus.frontend import Options, check, parse
from argus.frontend.decorator import FuncSource
from argus.ir.expr import Const, Op, Param
from argus.ir.nodes import Map
from argus.ir.types import float16, float32, int32, int64
from argus.source import SourceFile


def kernel_of(params, decorator="@argus.kernel", body="pass", **options):
    text = f"import argus\nimport argus.language as al\nWARPS = 2\n{decorator}\ndef k({params}):\n    {body}\n"
    return check(parse(SourceFile("f.py", text)), "k", Options(**options))


def rejected(params, **options):
    with pytest.raises(SourceError) as caught:
        kernel_of(params, **options)
    return [(d.code, d.message) for d in caught.value.diagnostics]


def test_tensors_scalars_and_sizes():
    kernel = kernel_of('x: al.Tensor[al.float16, "M K"], y: al.Tensor[al.float16, "K 8"], n: al.int64')
    x, y, n = kernel.params
    assert kernel.sizes == ("M", "K")
    assert x.shape == (Param("M"), Param("K")) and y.shape == (Param("K"), Const(8))
    assert x.strides == (Param("x.stride0", int64), Const(1, int64))
    assert n.dtype is int64


def test_strides_may_be_named_fixed_or_sizes():
    kernel = kernel_of('x: al.Tensor[al.float16, "M K", "ldx 1"], y: al.Tensor[al.float16, "M K", "1 M"]')
    x, y = kernel.params
    assert x.strides == (Param("ldx", int64), Const(1, int64))
    assert y.strides == (Const(1, int64), Param("M", int32))
    assert kernel.sizes == ("M", "K")


def test_a_constant_may_be_an_extent():
    kernel = kernel_of('x: al.Tensor[al.float16, "M D"], D: al.constexpr = 64', constexprs={"D": 128})
    assert kernel.params[0].shape == (Param("M"), Const(128)) and kernel.constexprs == (("D", 128),)


def test_a_constant_may_be_a_shape_and_a_dtype():
    params = 'x: al.Tensor[T, "Z S"], T: al.constexpr = al.float16, S: al.constexpr = "M K", Z: al.constexpr = 4'
    (x,) = kernel_of(params, constexprs={"S": "K 8"}).params
    assert x.dtype is float16 and x.shape == (Const(4), Param("K"), Const(8))


def test_a_constant_that_is_no_shape_is_not_read_as_one():
    found = rejected('x: al.Tensor[al.float32, "S"], S: al.constexpr = None')
    assert found == [("bad-annotation", "`S` is a parameter, and a symbolic size as well")]


HELPERS = """\
import argus
import argus.language as lang
HALF = 0.5
@argus.func
def half(x, by=HALF):
    return x * by
"""
CALLER = "x = al.zeros((8,), al.float32)\n    if F is not None:\n        x = F(x)\n    HALF = 1"


def test_a_helper_of_another_file_may_be_given_as_a_constant():
    half = FuncSource("half", SourceFile("g.py", HELPERS))
    kernel = kernel_of("F: al.constexpr = None", body=CALLER, constexprs={"F": half})
    halved = [s for s in kernel.body if isinstance(s, Map)][-1]
    assert isinstance(halved.value, Op) and halved.value.args[1] == Const(0.5, float32)
    assert halved.span.file is not None and halved.span.file.path == "f.py" and kernel.constexprs == (("F", "half"),)
    assert len(kernel_of("F: al.constexpr = None", body=CALLER).body) == 1


def test_a_helper_of_the_same_file_may_be_a_default():
    text = HELPERS + "@argus.kernel\ndef k(F: lang.constexpr = half):\n    x = F(lang.zeros((8,), lang.float32))\n"
    assert check(parse(SourceFile("g.py", text)), "k", Options()).constexprs == (("F", "half"),)


def test_mistakes_in_a_helper_that_is_given_are_reported_where_they_are():
    missing = FuncSource("third", SourceFile("g.py", HELPERS))
    found = rejected("F: al.constexpr = None", constexprs={"F": missing})
    assert found == [("bad-constexpr", "`F` is given `third`, which is not defined in g.py")]
    wrong = FuncSource("half", SourceFile("g.py", HELPERS.replace("x * by", "x * wrong")))
    with pytest.raises(SourceError) as caught:
        kernel_of("F: al.constexpr = None", body=CALLER, constexprs={"F": wrong})
    (problem,) = caught.value.diagnostics
    assert problem.code == "unknown-name" and problem.span.file is not None and problem.span.file.path == "g.py"


def test_helpers_that_are_given_are_told_apart_by_their_text():
    first, second = (FuncSource("half", SourceFile("g.py", text)) for text in (HELPERS, HELPERS + "X = 1\n"))
    assert repr(first) != repr(second) and len(repr(first)) < 120


@pytest.mark.parametrize(
    ("annotation", "options", "alignment"),
    [
        ('al.float16, "M K"', {}, 16),
        ('al.float16, "M K"', {"default_alignment": 4}, 4),
        ('al.float16, "M K"', {"alignment": {"x": 8}}, 8),
        ('al.float16, "M 6"', {}, 4),
        ('al.float16, "M 3"', {}, 2),
        ('al.float16, "M K", "12 1"', {}, 8),
        ('al.float32, "M K"', {"default_alignment": 1}, 4),
        ('al.int64, "M 3", "1 M"', {}, 16),
    ],
)
def test_alignment_is_what_constant_extents_can_keep(annotation, options, alignment):
    assert kernel_of(f"x: al.Tensor[{annotation}]", **options).params[0].alignment == alignment


@pytest.mark.parametrize(
    ("value", "default"),
    [(True, "False"), (3, "1"), (0.5, "1.0"), ("relu", '"silu"'), ((1, 2), "()"), (float16, "al.float32")],
)
def test_constants_of_every_kind(value, default):
    kernel = kernel_of(f"c: al.constexpr = {default}", constexprs={"c": value})
    assert kernel.constexprs == (("c", value),)


@pytest.mark.parametrize(
    ("decorator", "options", "warps"),
    [
        ("@argus.kernel", {}, 4),
        ("@argus.kernel(num_warps=8)", {}, 8),
        ("@argus.kernel(num_warps=WARPS * 2)", {}, 4),
        ("@argus.kernel(num_warps=8)", {"num_warps": 2}, 2),
    ],
)
def test_warps(decorator, options, warps):
    assert kernel_of("", decorator, **options).num_warps == warps


def test_the_warp_size_is_the_target_s():
    body = "assert al.num_threads() == al.num_warps() * al.warp_size() == 256"
    kernel = kernel_of("", body=body, target="gfx942")
    assert kernel.warp_size == 64 and kernel.target is None


@pytest.mark.parametrize(
    ("params", "options", "code", "says"),
    [
        ("x", {}, "bad-annotation", "no annotation"),
        ("x: int", {}, "bad-annotation", "no annotation of a kernel's parameter"),
        ("x: al.float16", {}, "bad-annotation", "not float16"),
        ("x: al.tensor", {}, "bad-annotation", "no annotation of a kernel's parameter"),
        ("x: al.Tensor[al.float32]", {}, "bad-annotation", "a dtype and a shape"),
        ("x: al.Tensor[al.float32, M]", {}, "bad-annotation", "string of names"),
        ('x: al.Tensor[al.float32, "M+1"]', {}, "bad-annotation", "neither a name nor a number"),
        ('x: al.Tensor[al.float32, "M K", "1"]', {}, "bad-annotation", "1 strides for 2"),
        ('x: al.Tensor[al.float32, "n"], n: al.int32', {}, "bad-annotation", "a symbolic size as well"),
        ('x: al.Tensor[al.float32, "0"]', {}, "bad-shape", "not 0"),
        ('x: al.Tensor[al.float31, "N"]', {}, "unknown-function", "no `float31`"),
        ('x: al.Tensor["float32", "N"]', {}, "unknown-dtype", "'float32'"),
        ("eps: al.float32 = 1e-6", {}, "bad-annotation", "has a default"),
        ("B: al.constexpr", {}, "missing-constexpr", "no value"),
        ("B: al.constexpr = 1", {"constexprs": {"C": 2}}, "unknown-constexpr", "no constant `C`"),
        ("B: al.constexpr = 1", {"constexprs": {"B": [2]}}, "bad-constexpr", "given a list"),
        ("num_warps: al.constexpr = 4", {}, "num-warps-parameter", "no parameter"),
        ("", {"num_warps": 64}, "bad-option", "1 to 32 warps"),
        ("", {"num_warps": 2.5}, "bad-option", "1 to 32 warps"),
        ("", {"num_warps": "4"}, "bad-option", "1 to 32 warps"),
        ("", {"target": "sm_70"}, "bad-option", "no target 'sm_70'"),
        ('x: al.Tensor[al.float32, "N"]', {"default_alignment": 3}, "bad-option", "alignment"),
    ],
)
def test_rejected_parameters(params, options, code, says):
    found = rejected(params, **options)
    assert [c for c, _ in found] == [code]
    assert says in found[0][1]


def test_errors_of_all_parameters_are_reported():
    assert [code for code, _ in rejected("x, y: int, B: al.constexpr")] == [
        "bad-annotation", "bad-annotation", "missing-constexpr",
    ]  # fmt: skip


def test_an_unknown_kernel_names_those_there_are():
    with pytest.raises(SourceError) as caught:
        check(parse(SourceFile("f.py", "import argus\n@argus.kernel\ndef gemm():\n    pass\n")), "gem", Options())
    (found,) = caught.value.diagnostics
    assert found.code == "unknown-kernel" and "`gemm`" in found.help
