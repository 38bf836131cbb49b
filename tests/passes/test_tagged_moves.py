"""A tile that is tagged and then moved to another layout is moved with its tag, and the code is that without it."""

from __future__ import annotations

import pytest

from argus import compile
from argus.backend.emit import emit
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.ir.nodes import Copy, Kernel, Tag
from argus.ir.visit import walk
from argus.source import SourceFile
from argus.verify import verify

TAG = "    al.tag(y, lambda i, j: dict(m=i, k=j))\n"
TEXT = f"""
import argus
import argus.language as al


@argus.kernel(num_warps=4)
def product(a: al.Tensor[al.float32, "64 32"], b: al.Tensor[al.bfloat16, "64 32"], c: al.Tensor[al.float32, "64 64"]):
    one = al.grid(1)
    al.tag(b, lambda n, k: (n, k))
    x = al.load(a[al.arange(64)[:, None], al.arange(32)])
    bt = al.stage(b[0:64, 0:32])
    y = (x * x).to(al.bfloat16)
{TAG}    acc = al.mma(y, bt, al.zeros((64, 64), al.float32))
    al.assert_tags(lambda i, j: acc[i, j] == (i, j, al.once(0, 32)))
    al.store(c[0:64, 0:64], acc)
"""


def lowered(target: str, text: str = TEXT) -> Kernel:
    source = SourceFile("product.py", text)
    return compile.lower(compile.elaborate(source, "product", Options(target=target)), target)


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_the_moved_tile_has_the_tag(target: str) -> None:
    kernel = lowered(target)
    body = list(walk(kernel.body))
    tag = next(n for n, s in enumerate(body) if isinstance(s, Tag) and s.obj == "y")
    moves = [n for n, s in enumerate(body) if isinstance(s, Copy) and s.src.obj == "y"]
    assert all(tag < n for n in moves)
    assert verify(kernel, 60.0).verdict is Verdict.PROVED


def test_a_tag_that_says_otherwise_is_refuted() -> None:
    assert verify(lowered("gfx942", TEXT.replace("k=j)", "k=j // 2)")), 60.0).verdict is Verdict.REFUTED


def test_the_emitted_code_is_that_without_tags() -> None:
    bare = "".join(line for line in TEXT.splitlines(True) if "al.tag(" not in line and "assert_tags" not in line)
    for target in ("sm_80", "gfx942"):
        assert emit(lowered(target)) == emit(lowered(target, bare))
