"""Index tiles that two layouts need: loaded again in the other one, instead of moved through shared memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus.compile import elaborate
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.ir.nodes import Copy, Kernel
from argus.ir.visit import walk
from argus.passes import lower
from argus.source import SourceFile
from argus.verify import verify

TEXT = Path("examples/gathered_matmul.py").read_text(encoding="utf-8")
STORE = "    al.store(out[place"


def lowered(text: str) -> Kernel:
    return lower(elaborate(SourceFile("kernel.py", text), "gathered_matmul", Options("gfx942")), "gfx942")


def loads(kernel: Kernel) -> int:
    return sum(isinstance(s, Copy) and s.src.obj == "token" for s in walk(kernel.body))


def moves(kernel: Kernel) -> int:
    return sum("scratch" in tile.name for tile in kernel.shared)


def test_threads_that_share_a_row_load_its_number_again() -> None:
    kernel = lowered(TEXT)
    assert (loads(kernel), moves(kernel)) == (2, 0)


def test_what_the_kernel_writes_is_moved() -> None:
    """Once, after the load, although the loop and the branch before it both need it."""
    written = TEXT.replace(STORE, "    al.store(token[place], rows, mask=live)\n" + STORE)
    kernel = lowered(written)
    assert (loads(kernel), moves(kernel)) == (1, 1)


@pytest.mark.nightly
def test_the_example_is_proved() -> None:
    assert verify(lowered(TEXT)).verdict is Verdict.PROVED
