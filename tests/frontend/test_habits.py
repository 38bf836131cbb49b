"""What authors of other languages write first, and what the message tells them to write."""

from __future__ import annotations

import pytest

from argus import compile
from argus.diagnostic import ArgusError
from argus.frontend import Options
from argus.source import SourceFile

HEAD = "import argus\nimport argus.language as al\nimport torch\n\n"
KERNEL = HEAD + """@argus.kernel
def scaled(x: al.Tensor[{dtype}, {shape}], BLOCK: al.constexpr = 128):
    N = x.shape[{axis}]
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    al.store(x[i], {value}, mask=i < N)
"""
RIGHT = {"dtype": "al.float32", "shape": '"N"', "axis": "0", "value": "al.exp(al.load(x[i], mask=i < N))"}


def said(**other: str) -> str:
    source = SourceFile("k.py", KERNEL.format(**{**RIGHT, **other}))
    with pytest.raises(ArgusError) as raised:
        compile.elaborate(source, "scaled", Options("cpu"))
    return " ".join(f"{d.message}: {d.help}" for d in raised.value.diagnostics)


def test_the_accepted_twin() -> None:
    compile.elaborate(SourceFile("k.py", KERNEL.format(**RIGHT)), "scaled", Options("cpu"))


@pytest.mark.parametrize(
    ("other", "remedy"),
    [
        ({"shape": '"N", "K"', "axis": "1"}, 'one string: `al.Tensor[al.float32, "M N"]`'),
        ({"dtype": "al.float64"}, "`al.float32` at most"),
        ({"value": "tl.exp(al.load(x[i], mask=i < N))"}, "write `al.` for `tl.`"),
        ({"value": "torch.exp(al.load(x[i], mask=i < N))"}, "such as `al.exp(x)`"),
    ],
)
def test_the_remedy(other: dict[str, str], remedy: str) -> None:
    assert remedy in said(**other)


def test_a_file_of_triton() -> None:
    with pytest.raises(ArgusError) as raised:
        compile.kernels(SourceFile("k.py", "import triton\n\n@triton.jit\ndef k(x):\n    pass\n"))
    assert "docs/guide/from-triton.md" in str(raised.value.diagnostics[0].help)
