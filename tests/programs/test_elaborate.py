"""What programs may not say, each with its message; and the text of programs."""

import pytest

import argus.language as al
from argus import program
from argus.diagnostic import SourceError
from argus.frontend import Options
from argus.programs.elaborate import elaborate
from argus.programs.text import print_program
from argus.source import SourceFile
from tests.programs.shipped import scale
from tests.programs.texts import TEXT
from tests.programs.texts import program as lowered

HEAD = TEXT[: TEXT.index("@argus.program")]
FORM = (
    '@argus.program\ndef p(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"], n: al.int32, a: al.float32):\n'
)


def refused(body: str) -> tuple[str, str]:
    text = HEAD + FORM + "".join(f"    {line}\n" for line in body.split("\n"))
    with pytest.raises(SourceError) as caught:
        elaborate(SourceFile("p.py", text), "p", Options("cpu"))
    first = caught.value.diagnostics[0]
    return first.code, first.message


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("scale(x, y)", "bad-launch", "`scale` lacks its argument `a`"),
        ("scale(x, y, 1.0, 2, 3)", "bad-launch", "`scale` takes 4 arguments, and 5 are given"),
        ("scale(x, y, 1.0, blok=2)", "bad-launch", "`scale` has no argument `blok`"),
        ("scale(x, 3, 1.0)", "bad-launch", "`y` is a tensor, and this is the constant 3"),
        ("h = al.empty((N,), al.int32)\nscale(x, h, 1.0)", "bad-launch", "`y` of `scale` holds float32"),
        ("h = al.empty((N, N), al.float32)\nscale(x, h, 1.0)", "bad-launch", "has 1 dimensions"),
        ("scale(x, y, n)", "bad-launch", "`a` is of float32, and this is a scalar of int32"),
        ("scale(x, y, a * 2.0)", "bad-launch", "`a` is computed in floats"),
        ("scale(x, y, 1.0, BLOCK=n)", "bad-launch", "`BLOCK` is a constant of the kernel"),
        ("scale(x, y, 1.0, BLOCK=3000000)", "bad-shape", "has more than 1048576 elements"),
        ("scale(x, y, 1.0, stream=x)", "bad-launch", "`stream` is the tensor `x`"),
        ("scale[(4,)](x, y, 1.0)", "bad-launch", "`scale` declares its grid"),
        ("z = scale(x, y, 1.0)", "bad-program", "a launch has no value"),
        ("z = x[0:4:2]", "bad-index", "a part has no step"),
        ("z = x[0, 1]", "bad-index", "1 dimensions, and 2 indices"),
        ("z = al.load(x[0:4])", "bad-program", "`al.load` computes on a device"),
        ("al.empty((N,), al.float32)", "bad-program", "a buffer has a name"),
        ("h = al.empty(N, al.float32)", "bad-shape", "the shape of a buffer is a tuple of sizes"),
        ("for i in range(n):\n    h = al.empty((N,), al.float32)", "conditional-declaration", "a buffer"),
        ("for i in range(n):\n    s = al.stream()", "conditional-declaration", "a stream"),
        ("z = x\nfor i in range(n):\n    z = y", "bad-program", "`z` cannot change in this block"),
        ("for i in range(n):\n    z = x\nscale(z, y, 1.0)", "undefined-after-block", "`z` is not defined here"),
        ("s = al.stream()\ns.wait(x)", "wrong-arguments", "a stream waits for an event"),
        ("s = al.stream()\ns.record()", "bad-program", "an event has a name"),
        ("s = al.stream()\ne = s.record(1)", "wrong-arguments", "`.record` takes 0 arguments"),
        ("if x[0] > 0:\n    scale(x, y, 1.0)", "type-mismatch", "is in memory, not in registers"),
        ("return 3", "bad-program", "a program returns nothing"),
        ("N = 4", "shadowed-size", "`N` is the symbolic size"),
        ("n + 1", "unused-value", "does nothing with it"),
        ("h = al.empty((N,), al.float32)\nal.spec(h, lambda i: x[i])", "bad-program", "`h` is a buffer"),
        ("while n:\n    pass", "unsupported-syntax", "`while`"),
    ],
)  # fmt: skip
def test_a_mistake_has_its_message(body, code, words):
    found = refused(body)
    assert found[0] == code
    assert words in found[1]


def test_a_kernel_has_no_buffers_of_programs():
    text = 'import argus\nimport argus.language as al\n@argus.kernel\ndef k(x: al.Tensor[al.float32, "N"]):\n'
    from argus.compile import elaborate as of_kernel

    with pytest.raises(SourceError) as caught:
        of_kernel(SourceFile("k.py", text + "    s = al.stream()\n"), "k", Options("cpu"))
    assert caught.value.diagnostics[0].code == "bad-program"


def test_an_unknown_program_is_named():
    with pytest.raises(SourceError) as caught:
        elaborate(SourceFile("p.py", TEXT), "twise", Options("cpu"))
    assert caught.value.diagnostics[0].code == "unknown-program"
    assert "did you mean `twice`?" in caught.value.diagnostics[0].help


def test_a_nested_program_sees_kernels_around_it():
    factor = 7.0

    @program
    def local(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"]):
        scale(x, y, factor)

    found = elaborate(local.text.file, "local", Options("cpu"))
    assert "launch scale#0(x = x[0 +: N], y = y[0 +: N], a = 7.0) on main" in print_program(found)


def test_the_text_of_a_program(golden):
    golden("program_ring.txt", print_program(lowered("ring")) + print_program(lowered("picked")))
