"""Batch invariance: proved where a row is computed alike in every launch, refuted with two calls where it is not."""

from __future__ import annotations

import pytest

from argus import compile
from argus.diagnostic import SourceError, Verdict
from argus.frontend import Options
from argus.source import SourceFile
from argus.verify import Report

HEADER = "import argus\nimport argus.language as al\n\n\n@argus.kernel(num_warps=4)\n"

SOFTMAX = """def k(x: al.Tensor[al.float32, "M N"], y: al.Tensor[al.float32, "M N"], BLOCK: al.constexpr = 512):
    M, N = x.shape
    al.requires(N <= BLOCK)
    al.invariant(y, M)
    m = al.grid(M)
    n = al.arange(BLOCK)
    v = al.load(x[m, n], mask=n < N, other=float("-inf"))
    e = al.exp(v - al.max(v, axis=0))
    al.store(y[m, n], e / al.sum(e, axis=0), mask=n < N)
"""

ONLINE = """def k(x: al.Tensor[al.float32, "M N"], y: al.Tensor[al.float32, "M"], BLOCK: al.constexpr = 128):
    M, N = x.shape
    al.invariant(y, M)
    m = al.grid(M)
    top, total = al.full((), -1e30, al.float32), al.zeros((), al.float32)
    for n0 in range(0, N, BLOCK):
        n = n0 + al.arange(BLOCK)
        v = al.load(x[m, n], mask=n < N, other=float("-inf"))
        new = al.maximum(top, al.max(v, axis=0))
        total = total * al.exp(top - new) + al.sum(al.exp(v - new), axis=0)
        top = new
    al.store(y[m], top + al.log(total))
"""

PRODUCT = """def k(a: al.Tensor[al.bfloat16, "M K"], b: al.Tensor[al.bfloat16, "N K"], c: al.Tensor[al.bfloat16, "M N"],
      BLOCK_M: al.constexpr = 64, BLOCK_N: al.constexpr = 64, BLOCK_K: al.constexpr = 32):
    M, K = a.shape
    N = b.shape[0]
    al.invariant(c, M)
    pid_m, pid_n = al.grid(al.cdiv(M, BLOCK_M), al.cdiv(N, BLOCK_N))
    m0, n0 = pid_m * BLOCK_M, pid_n * BLOCK_N
    acc = al.zeros((BLOCK_M, BLOCK_N), al.float32)
    for k0 in al.pipelined(0, K, BLOCK_K, stages=3):
        at = al.stage(a[m0 : m0 + BLOCK_M, k0 : k0 + BLOCK_K], boundary_check=(0, 1))
        bt = al.stage(b[n0 : n0 + BLOCK_N, k0 : k0 + BLOCK_K], boundary_check=(0, 1))
        acc = al.mma(at, bt, acc)
    al.store(c[m0 : m0 + BLOCK_M, n0 : n0 + BLOCK_N], acc.to(al.bfloat16), boundary_check=(0, 1))
"""

GATHER = """def k(table: al.Tensor[al.float32, "V D"], ids: al.Tensor[al.int32, "M"], y: al.Tensor[al.float32, "M D"],
      BLOCK: al.constexpr = 128):
    V, D = table.shape
    M = ids.shape[0]
    al.requires(al.in_range(ids, 0, V))
    al.requires(D <= BLOCK)
    al.invariant(y, M)
    m = al.grid(M)
    d = al.arange(BLOCK)
    row = al.load(ids[m])
    al.store(y[m, d], al.load(table[row, d], mask=d < D) * 2.0, mask=d < D)
"""

SUMS = """def k(a: al.Tensor[al.float32, "M K"], c: al.Tensor[al.float32, "M"], BLOCK: al.constexpr = 32):
    M, K = a.shape
    al.requires(M <= 1000)
    al.requires(K <= 100000)
    al.invariant(c, M)
    m = al.grid(M)
    n = al.arange(BLOCK)
    first, second = al.zeros((BLOCK,), al.float32), al.zeros((BLOCK,), al.float32)
    middle = al.minimum(64, K)
    for k in range(0, middle, BLOCK):
        first = first + al.load(a[m, k + n], mask=k + n < middle)
    for k in range(middle, K, BLOCK):
        second = second + al.load(a[m, k + n], mask=k + n < K)
    al.store(c[m], al.sum(first, axis=0) + al.sum(second, axis=0))
"""

RAGGED = """def k(x: al.Tensor[al.float32, "M N"], first: al.Tensor[al.int32, "H"], lens: al.Tensor[al.int32, "M"],
      y: al.Tensor[al.float32, "H M"], BLOCK: al.constexpr = 32):
    M, N, H = x.shape[0], x.shape[1], first.shape[0]
    al.requires(N < 2**20)
    al.requires(al.in_range(first, 0, N))
    al.requires(al.in_range(lens, 0, N + 1))
    al.invariant(y, M)
    h, m = al.grid(H, M)
    start, length = al.load(first[h]), al.load(lens[m])
    total = al.zeros((BLOCK,), al.float32)
    for n0 in range(start, al.minimum(length, start + 64), BLOCK):
        n = n0 + al.arange(BLOCK)
        total += al.load(x[m, n], mask=n < length)
    al.store(y[h, m], al.sum(total, axis=0))
"""

TILES = """def k(x: al.Tensor[al.float32, "M N"], y: al.Tensor[al.float32, "M"], BLOCK: al.constexpr = 128):
    M, N = x.shape
    al.requires((M <= 1000) & (N <= BLOCK))
    al.invariant(y, M)
    m, n = al.grid(M), al.arange(BLOCK)
    width = al.minimum(8 * M, N)
    first = al.sum(al.load(x[m, n], mask=n < width), axis=0)
    al.store(y[m], first + al.sum(al.load(x[m, n], mask=(n >= width) & (n < N)), axis=0))
"""

ROWWISE = """def k(x: al.Tensor[al.float32, "M N"], y: al.Tensor[al.float32, "M N"], BLOCK: al.constexpr = 128):
    M, N = x.shape
    al.invariant(y, M)
    m, j = al.grid(M, al.cdiv(N, BLOCK))
    n = j * BLOCK + al.arange(BLOCK)
    al.store(y[m, n], al.load(x[m, n], mask=n < N) + 1.0, mask=n < N)
"""

COUNTED = """def k(x: al.Tensor[al.DTYPE, "M N"], y: al.Tensor[al.DTYPE, "M"], BLOCK: al.constexpr = 128):
    M, N = x.shape
    al.invariant(y, M)
    m, j = al.grid(M, al.cdiv(N, BLOCK))
    n = j * BLOCK + al.arange(BLOCK)
    al.OPERATION(y[m], REDUCED(al.load(x[m, n], mask=n < N, other=OTHER), axis=0))
"""


def counted(dtype: str, operation: str, reduced: str, other: str) -> str:
    text = COUNTED.replace("al.DTYPE", f"al.{dtype}").replace("OPERATION", operation)
    return text.replace("REDUCED", reduced).replace("OTHER", other)


def report(text: str, target: str = "sm_80") -> Report:
    kernel = compile.lower(compile.elaborate(SourceFile("k.py", HEADER + text), "k", Options(target=target)), target)
    return compile.verify(kernel)


PROVED = {
    "a row in one block": SOFTMAX,
    "a row in an online loop": ONLINE,
    "a product": PRODUCT,
    "rows that data choose": GATHER,
    "two sums, split at a constant": SUMS,
    "tiles of columns": ROWWISE,
    "a length of the row, and a start that no row has": RAGGED,
}


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx942"])
@pytest.mark.parametrize("case", PROVED)
def test_rows_that_are_computed_alike_are_proved(case: str, target: str) -> None:
    found = report(PROVED[case], target)
    assert not [d.message for d in found.diagnostics if d.property == "invariance"]
    assert found.verdict is Verdict.PROVED, [d.message for d in found.diagnostics]


REFUTED = {
    "a split that the batch decides": SUMS.replace("al.minimum(64, K)", "al.minimum(M * 32, K)"),
    "a split that the host decides": SUMS.replace("BLOCK:", "parts: al.int32, BLOCK:")
    .replace("(c, M)", "(c, M, parts)")
    .replace("requires(M <=", "requires((0 <= parts) & (parts <= 1000) & (M <=")
    .replace("<= 1000)\n", "<= 1000))\n", 1)
    .replace("minimum(64, K)", "minimum(parts * 32, K)"),
    "a tile that the batch decides": TILES,
    "atomic sums of floats": counted("float32", "atomic_add", "al.sum", "0.0"),
    "a scale by the batch": ROWWISE.replace("+ 1.0", "/ M.to(al.float32)"),
    "the first row": ROWWISE.replace("+ 1.0", "+ al.load(x[M - 1, n], mask=n < N)"),
    "a mask of the batch": ROWWISE.replace("+ 1.0", "+ al.where(n < M, 1.0, 2.0)"),
}


@pytest.mark.parametrize("case", REFUTED)
def test_rows_that_are_not_are_refuted_with_two_calls(case: str) -> None:
    found = report(REFUTED[case])
    wrong = [d for d in found.diagnostics if d.code == "not-invariant"]
    assert found.verdict is Verdict.REFUTED and len(wrong) == 1
    witness = wrong[0].witness
    assert witness is not None and witness.replayed and witness.other is not None
    assert witness.arrived.split()[0] != witness.expected.split()[0].strip(",")
    assert [note.message.split(":")[0] for note in wrong[0].notes] == ["first call", "second call"]


def test_another_row_is_never_proved() -> None:
    """The value is the same in every call that has the same first row, and still that of another row."""
    found = report(ROWWISE.replace("+ 1.0", "+ al.load(x[0, n], mask=n < N)"))
    assert found.verdict is not Verdict.PROVED
    assert any("reads other rows of 'x'" in d.message for d in found.diagnostics)


def test_the_length_of_another_row_is_never_proved() -> None:
    found = report(RAGGED.replace("lens[m]", "lens[0]"))
    assert any(d.code in ("invariance-unknown", "not-invariant") for d in found.diagnostics)


def test_extrema_that_several_blocks_contribute_to_are_unknown() -> None:
    """They have no order, but which blocks contribute is not compared."""
    found = report(counted("int32", "atomic_max", "al.max", "-7"))
    assert [d.code for d in found.diagnostics] == ["invariance-unknown"]


def test_integers_may_be_added_in_any_order() -> None:
    text = ROWWISE.replace("al.store(y[m, n], al.load(x[m, n], mask=n < N) + 1.0, mask=n < N)",
                           "al.atomic_add(y[m, n], al.load(x[m, n], mask=n < N), mask=n < N)")  # fmt: skip
    assert report(text).verdict is not Verdict.PROVED
    whole = report(text.replace("al.float32", "al.int32"))
    assert not [d.message for d in whole.diagnostics if d.property == "invariance"]


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("al.invariant(y, M)", "al.invariant(y, 4)", "bad-invariant"),
        ("al.invariant(y, M)", "al.invariant(y, M + 1)", "bad-invariant"),
        ("al.invariant(y, M)", "al.invariant(y, x.stride(0))", "bad-invariant"),
        ("al.invariant(y, M)", "al.invariant(y[0:4, 0:4], M)", "bad-invariant"),
    ],
)
def test_what_is_no_batch_is_one_message(old: str, new: str, code: str) -> None:
    with pytest.raises(SourceError) as error:
        report(ROWWISE.replace(old, new))
    assert [d.code for d in error.value.diagnostics] == [code]


def test_without_any_row_the_promise_holds() -> None:
    found = report(ROWWISE.replace("    al.invariant", "    al.requires(N == 0)\n    al.invariant"))
    assert not [d.message for d in found.diagnostics if d.property == "invariance"]
