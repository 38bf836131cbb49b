"""One statement that writes a cell twice: refused in every memory, and on every target, unless the values agree."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from argus import compile
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.ir.text import parse_kernel
from argus.source import SourceFile
from argus.verify import Report, verify

HEAD = "import argus\nimport argus.language as al\n\n\n@argus.kernel\n"
CODE = "cell-written-twice"


@dataclass(frozen=True, slots=True)
class Twins:
    """A kernel with `EDIT` where the elements of a statement share cells with other values, or do not."""

    name: str
    text: str
    right: str
    wrong: str
    target: str = "sm_90a"


def _staged(fill: str, result: str, spec: str = "x[i * 4 + 2]", size: int = 512) -> str:
    return f"""
def k(x: al.Tensor[al.float32, "512"], out: al.Tensor[al.float32, "128"]):
    al.spec(out, lambda i: {spec})
    p = al.grid(1)
    s = al.shared(({size},), al.float32)
    c = al.arange(512)
    i = al.arange(128)
    {fill}
    al.barrier()
    al.store(out[i], al.load(s[{result}]))
"""


FOURS = 'layout=al.fragment_layout("[512 | t 128@0*4 | v 4@0]")'
TURNED = 'layout=al.fragment_layout("[512 | t 128@0*4 | v 2@0*2 2@0]")'
TWINS = (
    Twins(
        "a synchronous copy to shared memory",
        _staged(f"al.copy(s[EDIT], x[c], {TURNED})", "i * 4 + 2"),
        "c",
        "c - c % 4 // 3",
    ),
    Twins(
        "asynchronous copies to shared memory, which are not ordered among themselves",
        _staged(
            f'al.copy(s[EDIT], x[c], instruction="cp.async", {FOURS})\n'
            "    al.cp_async_commit()\n    al.cp_async_wait(0)",
            "i * 4 + 2",
        ),
        "c",
        "c - c % 4 // 3",
    ),
    Twins(
        "a store of registers, against an axis of the tile that the cell does not depend on",
        _staged(f"al.store(s[c // 4], al.load(x[EDIT], {FOURS}))", "i"),
        "c // 4 * 4 + 2",
        "c // 4 * 4 + c % 4 // 2 + 1",
        "sm_80",
    ),
    Twins(
        "a choice between two elements",
        _staged(f"al.store(s[c // 4], al.where(c % 4 < EDIT, al.load(x[c // 4 * 4 + 2], {FOURS}), 0.0))", "i"),
        "4",
        "3",
        "sm_80",
    ),
    Twins(
        "a mask that leaves one element of each cell",
        _staged(f"al.store(s[c // 4], al.load(x[c], {FOURS}), mask=c % 4 EDIT 2)", "i"),
        "==",
        "<=",
    ),
    Twins(
        "numbers that are computed from coordinates",
        _staged(f"al.store(s[c // 4], (EDIT).to(al.float32) * al.load(x[c // 4], {FOURS}))", "i", "i * x[i]"),
        "c // 4",
        "(c + 1) // 4",
        "sm_80",
    ),
    Twins(
        "shared memory of AMD's",
        _staged(f"al.store(s[EDIT], al.load(x[c], {TURNED}))", "i * 4 + 2"),
        "c",
        "c - c % 4 // 3",
        "gfx942",
    ),
    Twins(
        "shared memory of the CPU's",
        _staged(f"al.store(s[EDIT], al.load(x[c], {TURNED}))", "i * 4 + 2"),
        "c",
        "c - c % 4 // 3",
        "cpu",
    ),
    Twins(
        "a tensor that is read too",
        """
def k(x: al.Tensor[al.float32, "512"], w: al.Tensor[al.float32, "512"], out: al.Tensor[al.float32, "128"]):
    p = al.grid(1)
    c = al.arange(512)
    i = al.arange(128)
    al.store(w[EDIT], al.load(x[c], layout=al.fragment_layout("[512 | t 128@0*4 | v 2@0*2 2@0]")))
    al.barrier()
    al.store(out[i], al.load(w[i * 4 + 2]))
""",
        "c",
        "c - c % 4 // 3",
    ),
)


def _verdict(twins: Twins, edit: str) -> Report:
    text = HEAD + twins.text.replace("EDIT", edit).lstrip("\n")
    warps = 2 if twins.target == "gfx942" else 4  # 128 threads
    return compile.prove(SourceFile("k.py", text), "k", Options(target=twins.target, num_warps=warps))


@pytest.mark.parametrize("twins", TWINS, ids=lambda t: t.name)
def test_cells_are_written_once(twins: Twins) -> None:
    assert _verdict(twins, twins.right).verdict is Verdict.PROVED
    wrong = _verdict(twins, twins.wrong)
    assert wrong.verdict is Verdict.REFUTED
    assert CODE in {d.code for d in wrong.diagnostics if d.verdict is Verdict.REFUTED}


REGISTERS = """
kernel turn
target sm_80
warps 1 of 32
tensor x: float32[64] strides [1:int64] align 16
tensor out: float32[64] strides [1:int64] align 16
grid [1]
fragment a: float32 64 layout [64 | t 32@0*2 | v 2@0]
fragment b: float32 64 layout [64 | t 32@0*2 | v 2@0]
body {
  copy a[c0] <- x[c0] shape 64 layout [64 | t 32@0*2 | v 2@0] via ld.global
  map b[c0] = 0.0 shape 64 layout [64 | t 32@0*2 | v 2@0] scope thread
  MOVE shape 64 layout [64 | t 32@0*2 | v 2@0]TO
  copy out[c0] <- b[c0] shape 64 layout [64 | t 32@0*2 | v 2@0] via st.global
}
"""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("map b[c0 // 2 * 2] = a[c0 // 2 * 2] + 1.0", "map b[c0 // 2 * 2] = a[c0] + 1.0"),
        ("map b[c0] = a[c0 // 2 * 2]", "map b[c0 // 2 * 2 + 1] = a[c0]"),
        ("copy b[c0] <- x[c0]", "copy b[c0 // 2 * 2] <- x[c0]"),
    ],
)
def test_registers_are_written_once(right: str, wrong: str) -> None:
    """As explicit IR: an author's statements write each register of a tile once."""

    def report(move: str) -> Report:
        to = " via ld.global" if move.startswith("copy") else " scope thread"
        return verify(parse_kernel(REGISTERS.replace("MOVE", move).replace("TO", to)))

    assert report(right).verdict is Verdict.PROVED
    refused = report(wrong)
    assert refused.verdict is Verdict.REFUTED and CODE in {d.code for d in refused.diagnostics}


def test_a_cell_that_is_written_to_by_the_data_is_not_proved() -> None:
    text = _staged(f"al.store(s[al.load(y[c], {FOURS})], al.load(x[c], {FOURS}))", "i", "x[i]")
    text = text.replace("out: ", 'y: al.Tensor[al.int32, "512"], out: ')
    text = text.replace("    p = al.grid(1)", "    al.requires(al.in_range(y, 0, 511))\n    p = al.grid(1)")
    report = compile.prove(SourceFile("k.py", HEAD + text.lstrip("\n")), "k", Options(target="sm_90a"))
    assert report.verdict is not Verdict.PROVED
