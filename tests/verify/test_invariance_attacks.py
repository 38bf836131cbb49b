"""Kernels whose rows depend on the batch in devious ways are never proved; what only looks so is never refuted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from argus.compile import elaborate, lower
from argus.frontend import Options
from argus.source import SourceFile
from argus.verify.checks import invariance
from argus.verify.model.relations import Model
from argus.verify.values.data_flow import DataFlow

HEADER = "import argus\nimport argus.language as al\n\n\n@argus.kernel(num_warps=4)\n"
X = 'x: al.Tensor[al.float32, "M N"]'
ONE = f"""def k({X}, y: al.Tensor[al.float32, "M"], BLOCK: al.constexpr = 128, ROWS: al.constexpr = 4):
    M, N = x.shape
    al.invariant(y, M)
    n = al.arange(BLOCK)
"""
EACH = ONE.replace('"M"]', '"M N"]').replace("    al.inv", "    al.requires(N <= BLOCK)\n    al.inv")
SUM = """    acc = al.zeros((BLOCK,), al.float32)
    for n0 in range(0, N, BLOCK):
        acc = acc + al.load(x[m, n0 + n], mask=n0 + n < N)
    al.store(y[m], al.sum(acc, axis=0))
"""
TILE = """    rows = al.grid(al.cdiv(M, ROWS)) * ROWS + al.arange(ROWS)
    live = (rows < M)[:, None] & (n < N)
    v = al.load(x[rows[:, None], n], mask=live, other=0.0)
"""
SCALAR = ONE.replace("BLOCK: al", "parts: al.int32, BLOCK: al")

WRONG = {
    "a loop bound of the batch": ONE + "    m = al.grid(M)\n" + SUM.replace("(0, N,", "(0, al.minimum(N, M * 8),"),
    "a step of the batch": ONE + "    m = al.grid(M)\n" + SUM.replace("n0 + n < N", "(n0 + n < N) & (n < M)"),
    "a sum that begins at the batch": ONE + "    m = al.grid(M)\n" + SUM.replace("n0 + n", "(n0 + n + M) % N"),
    "a branch on the batch": EACH + "    m = al.grid(M)\n    v = al.load(x[m, n], mask=n < N)\n"
    "    if M > 64:\n        v = v * 3.0\n    al.store(y[m, n], v, mask=n < N)\n",
    "a sum along the wrong axis": EACH + TILE + "    al.store(y[rows[:, None], n], v - al.sum(v, axis=0), mask=live)\n",
    "a maximum of several rows": EACH + TILE + "    e = al.exp(v - al.max(al.max(v, axis=1), axis=0))\n"
    "    al.store(y[rows[:, None], n], e / al.sum(e, axis=1)[:, None], mask=live)\n",
    "a sum carried from row to row": ONE + """    first = al.grid(al.cdiv(M, ROWS)) * ROWS
    acc = al.zeros((BLOCK,), al.float32)
    for m in range(first, al.minimum(first + ROWS, M), 1):
        acc = acc + al.load(x[m, n], mask=n < N)
        al.store(y[m], al.sum(acc, axis=0))
""",
    "a scan over rows": EACH + TILE + "    al.store(y[rows[:, None], n], al.cumsum(v, axis=0), mask=live)\n",
    "how many rows the tile has": EACH + TILE
    + "    al.store(y[rows[:, None], n], al.where((rows < M - 1)[:, None], v, v * 3.0), mask=live)\n",
    "the number of programs": EACH + "    m = al.grid(M)\n    v = al.load(x[m, n], mask=n < N)\n"
    "    al.store(y[m, n], v * al.num_programs(0).to(al.float32), mask=n < N)\n",
    "the stride of a tensor by columns": EACH.replace('"M N"], y', '"M N", "1 ld"], y') + "    m = al.grid(M)\n"
    "    v = al.load(x[m, n], mask=n < N)\n    al.store(y[m, n], v * x.stride(1).to(al.float32), mask=n < N)\n",
    "a random number by the place in the batch": EACH + "    m = al.grid(M)\n    v = al.load(x[m, n], mask=n < N)\n"
    "    al.store(y[m, n], v * (n * M + m).to(al.float32), mask=n < N)\n",
    "a second name for the batch": EACH.replace('"M N"], y', '"P N"], y').replace("M, N = x", "P, N = x")
    .replace("    al.requires(", "    M = y.shape[0]\n    al.requires(P == M)\n    al.requires(")
    + "    m = al.grid(M)\n    al.store(y[m, n], al.load(x[P - 1 - m, n], mask=n < N), mask=n < N)\n",
    "atomic sums over blocks of columns": ONE + "    m, j = al.grid(M, al.cdiv(N, BLOCK))\n    at = j * BLOCK + n\n"
    "    al.atomic_add(y[m], al.sum(al.load(x[m, at], mask=at < N), axis=0))\n",
    "parts that the host counts": SCALAR.replace("(y, M)", "(y, M, parts)").replace(
        "    n = al.arange", "    al.requires((0 < parts) & (parts < 64))\n    n = al.arange")
    + "    m = al.grid(M)\n" + SUM.replace("(0, N,", "(0, al.minimum(N, parts * 8),"),
    "the length of the row before": ONE.replace(", y:", ', lens: al.Tensor[al.int32, "M"], y:').replace(
        "    n = al.arange", "    al.requires(al.in_range(lens, 0, N + 1))\n    n = al.arange")
    + "    m = al.grid(M)\n    length = al.load(lens[al.maximum(m - 1, 0)])\n"
    + SUM.replace("N, BLOCK", "length, BLOCK"),
}  # fmt: skip

RIGHT = {
    "rows from last to first": ONE + "    m = M - 1 - al.grid(M)\n" + SUM,
    "several rows, each its own": EACH + TILE
    + "    al.store(y[rows[:, None], n], v - al.sum(v, axis=1)[:, None], mask=live)\n",
    "a sum begun anew for each row": ONE + """    first = al.grid(al.cdiv(M, ROWS)) * ROWS
    for m in range(first, al.minimum(first + ROWS, M), 1):
        acc = al.zeros((BLOCK,), al.float32) + al.load(x[m, n], mask=n < N)
        al.store(y[m], al.sum(acc, axis=0))
""",
    "programs that share blocks": ONE + "    m = al.grid(M, persistent=True)\n" + SUM,
    "a scan along the row": EACH + TILE + "    al.store(y[rows[:, None], n], al.cumsum(v, axis=1), mask=live)\n",
    "the number of the row": EACH + "    m = al.grid(M)\n    v = al.load(x[m, n], mask=n < N)\n"
    "    al.store(y[m, n], v * (m * N + n).to(al.float32), mask=n < N)\n",
    "tiles by columns first": EACH + "    j, m = al.grid(al.cdiv(N, BLOCK), M)\n    at = j * BLOCK + n\n"
    "    al.store(y[m, at], al.load(x[m, at], mask=at < N), mask=at < N)\n",
    "a mask of the batch that is always true": EACH + "    m = al.grid(M)\n    v = al.load(x[m, n], mask=n < N)\n"
    "    al.store(y[m, n], al.where(m < M, v, 0.0), mask=n < N)\n",
    "parts that change no sum": SCALAR.replace("(y, M)", "(y, M, parts)") + "    m = al.grid(M)\n" + SUM,
    "the length of the row": ONE.replace(", y:", ', lens: al.Tensor[al.int32, "M"], y:').replace(
        "    n = al.arange", "    al.requires(al.in_range(lens, 0, N + 1))\n    n = al.arange")
    + "    m = al.grid(M)\n    length = al.load(lens[m])\n" + SUM.replace("N, BLOCK", "length, BLOCK"),
    "a stride beside the values": EACH.replace('"M N"], y', '"M N", "1 ld"], y') + "    m = al.grid(M)\n"
    "    al.store(y[m, n], al.load(x[m, n], mask=n < N), mask=n < N)\n",
}  # fmt: skip


def reasons(text: str) -> list[str]:
    kernel = lower(elaborate(SourceFile("k.py", HEADER + text), "k", Options(target="sm_80")), "sm_80")
    return [finding.message for finding in invariance.check(DataFlow(Model(kernel)))]


@pytest.mark.parametrize("case", WRONG)
def test_devious_dependence_on_the_batch_is_never_proved(case: str) -> None:
    assert reasons(WRONG[case])


@pytest.mark.parametrize("case", RIGHT)
def test_what_only_looks_like_it_is_proved(case: str) -> None:
    assert reasons(RIGHT[case]) == []


def test_the_kernels_of_the_table_promise_invariance() -> None:
    text = Path("docs/soundness.md").read_text(encoding="utf-8")
    table = text.split("### Which kernels promise it")[1].split("These promise nothing")[0]
    first = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("|"))
    names = re.findall(r"`(\w+_(?:rows|tiles|blocks|last|parts)|rotated)`", first)
    assert len(names) > 20
    kernels = "".join(path.read_text(encoding="utf-8") for path in Path("argus/kernels").glob("*.py"))
    bodies = {part.split("(")[0]: part for part in re.split(r"\n@argus\.\w+.*\ndef ", kernels)}
    assert [name for name in names if "al.invariant(" not in bodies[name]] == []
