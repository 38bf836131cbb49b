"""Texts that would hang, exhaust memory or end in an internal error: each gets one message and exit code 2.

The limits count words, digits and items, so these tests depend on no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from argus import environment
from argus.cli import main
from argus.frontend import parser

HEAD = "import argus\nimport argus.language as al\n"
KERNEL = HEAD + """
@argus.kernel
def {name}(x: al.Tensor[al.float32, "{size}"], out: al.Tensor[al.float32, "{size}"], BLOCK: al.constexpr = {block}):
    i = al.grid(al.cdiv(x.shape[0], BLOCK)) * BLOCK + al.arange(BLOCK)
    {before}
    al.store(out[i], al.load(x[i], mask=i < x.shape[0]) * {factor}, mask=i < x.shape[0])
"""


def kernel(name: str = "double", size: str = "N", block: str = "128", before: str = "pass", factor: str = "2.0") -> str:
    return KERNEL.format(name=name, size=size, block=block, before=before, factor=factor)


def many(count: int) -> str:
    return HEAD + "".join(kernel(f"k{i}").removeprefix(HEAD) for i in range(count))


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def run(text: str, *flags: str, name: str = "k.py", only: str = "") -> tuple[int, str]:
        (tmp_path / name).write_text(text, encoding="utf-8")
        code = main(["check", *flags, f"{tmp_path / name}{only}"])
        captured = capsys.readouterr()
        assert "internal-error" not in captured.out + captured.err
        return code, captured.out + captured.err

    return run


def doubled(first: str, times: int) -> str:
    """Tuples in tuples, of which the last would have 2 ** times items."""
    return "\n    ".join([f"t = {first}", *["t = (t, t)"] * times])


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (kernel(before=doubled("(1,)", 40)), "bad-constant", "more than 4096 items"),
        (kernel(before=doubled("(i,)", 40)), "bad-constant", "more than 4096 items"),
        (kernel(factor="0x" + "f" * 4300), "syntax-error", "more than 4096 bits"),
        (kernel(name="d\u043euble"), "syntax-error", "CYRILLIC SMALL LETTER O"),
        (kernel(before="\u00d1 = 1"), "syntax-error", "LATIN CAPITAL LETTER N WITH TILDE"),
        (kernel(size="\u00d1"), "bad-annotation", "neither a name nor a number"),
        (kernel(size="N\\ud800"), "syntax-error", "half of a character"),
        (kernel(before="\n    ".join(["j = i"] * 20_000)), "unreadable-file", "at most 40000"),
        (HEAD + ";" * 1_300_000, "unreadable-file", "more than 1200000 words"),
        (kernel() + "C = 1\n" * 5100, "unreadable-file", "more than 5000 constants"),
    ],
    ids=["constant tuples", "tuples of tiles", "hexadecimal", "homoglyph", "name", "size", "surrogate", "statements",
         "words", "constants"],
)  # fmt: skip
def test_one_message(text: str, code: str, said: str, check: Callable[..., tuple[int, str]]) -> None:
    status, output = check(text)
    assert status == 2
    assert f"error[{code}]" in output and said in output


@pytest.mark.parametrize(
    "text",
    [
        kernel(before=doubled("(1,)", 8)),
        kernel(factor="0x" + "f" * 5),
        kernel(before="\n    ".join(["j = i"] * 200)),
    ],
    ids=["tuples", "hexadecimal", "statements"],
)
def test_below_the_limits(text: str, check: Callable[..., tuple[int, str]]) -> None:
    assert check(text)[0] == 0


def test_a_tuple_bomb_of_module_constants(check: Callable[..., tuple[int, str]]) -> None:
    chain = "A0 = (1, 1)\n" + "".join(f"A{i} = (A{i - 1}, A{i - 1})\n" for i in range(1, 40))
    status, output = check(chain + kernel(block="A39"))
    assert status == 2 and output.count("error[bad-constant]") == 1


def test_one_kernel_of_many_is_read_alone(
    check: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    original = parser._Reader.function
    monkeypatch.setattr(parser._Reader, "function", lambda self: read.append(self.first_line) or original(self))
    text = many(3000)
    assert check(text, only="::k1500")[0] == 0
    assert len(read) == 1
    status, output = check(text)
    assert status == 2 and "FILE::k0" in output
    assert len(read) == 1


def test_one_kernel_is_read_with_what_it_uses(check: Callable[..., tuple[int, str]]) -> None:
    helper = "\nTWO = 2.0\nFACTOR = TWO\n@argus.func\ndef twice(x):\n    return x * FACTOR\n"
    wrong = kernel("broken").removeprefix(HEAD).replace("i = al", "i = = al")
    right = kernel(before="pass", factor="1.0").replace("al.load(", "twice(al.load(").replace("* 1.0", ")")
    right = right.replace("mask=i < x.shape[0]) )", "mask=i < x.shape[0]))")
    assert check(right + helper + wrong, only="::double")[0] == 0
    assert check(right + helper + wrong)[0] == 2


IR = """kernel fill
target cpu
warps 1 of 32
size N
tensor x: float32[N] strides [1:int64] align 4
grid [N]
fragment r: float32 32 layout {layout}
body {{
  map r[c0] = {value} shape 32 layout {layout} scope thread
  copy x[c0] <- r[c0] shape 32 if c0 < N layout {layout} via st.global vector 1
}}
"""


@pytest.mark.parametrize(
    ("value", "layout", "said"),
    [
        ("0.0", "[32 | t 2147483648@_ 32@0 | v]", "too large"),
        ("9" * 5000 + ".0", "[32 | t 32@0 | v]", "more than 40 digits"),
        ("@exp(x[c0]) + 1.0", "[32 | t 32@0 | v]", "where an expression belongs"),
    ],
)
def test_explicit_kernels(value: str, layout: str, said: str, check: Callable[..., tuple[int, str]]) -> None:
    status, output = check(IR.format(value=value, layout=layout), name="k.ir")
    assert status == 2 and "error[ir-syntax]" in output and said in output


@pytest.mark.parametrize(
    "notation",
    ["(" * 3000 + "1" + ")" * 3000, "(" * 40 + "1" + ")" * 40, "9" * 30 + ":1", "(1048576,1048576):(1,1)",
     "[4 | t 2147483648@_ | v 4@0]", "Sw<3,3,3> o 0 o 1073741824:1", "Sw<3,999999999999,3> o 0 o 4:1"],
)  # fmt: skip
def test_layouts(notation: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layout", notation]) == 2
    assert capsys.readouterr().err.count("error[bad-layout]") == 1


@pytest.mark.parametrize("flags", [["--limit", "1e300"], ["-D", "BLOCK=" + "(1," * 1500 + ")" * 1500]])
def test_flags(flags: list[str], check: Callable[..., tuple[int, str]]) -> None:
    try:
        status, _ = check(kernel(), *flags)
    except SystemExit as stop:
        status = int(str(stop.code))
    assert status == 2


def test_a_huge_constant_on_the_command_line(check: Callable[..., tuple[int, str]]) -> None:
    status, output = check(kernel(), "-D", "BLOCK=0x" + "f" * 5000)
    assert status == 2 and "error[bad-constexpr]" in output


@pytest.mark.parametrize(("value", "level"), [("\u00b2", 0), ("9" * 5000, 0), ("3", 3), ("7", 5), ("-1", 0)])
def test_the_debug_level(value: str, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGUS_DEBUG", value)
    assert environment.debug_level() == level
