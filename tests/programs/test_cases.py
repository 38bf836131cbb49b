"""Tensors that several launches wrote in parts are compared with a specification by cases."""

import pytest

from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.programs.pipeline import lower
from argus.programs.prove.prove import prove
from argus.source import SourceFile
from argus.verify.report import Report
from tests.programs.texts import TEXT

MORE = """

@argus.program
def halves(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"]):
    m = N // 2
    scale(x[0:m], y[0:m], 2.0)
    scale(x[m:N], y[m:N], 2.0)
    al.spec(y, lambda i: x[i] * 2.0)

@argus.program
def joined(a: al.Tensor[al.float32, "M"], b: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "K"]):
    al.requires(K == M + N)
    h = al.empty((M + N,), al.float32)
    scale(a, h[0:M], 1.0)
    scale(b, h[M : M + N], 3.0)
    scale(h, y, 2.0)
    al.spec(y, lambda i: al.where(i < M, 2.0 * a[i], 6.0 * b[i - M]))

@argus.program
def overwritten(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"]):
    al.requires(N > 40)
    scale(x, y, 3.0)
    scale(x[2:5], y[2:5], 2.0)
    al.spec(y, lambda n: x[n] * al.where((n >= 2) & (n < 5), 2.0, 3.0))

@argus.program
def first_last(x: al.Tensor[al.float32, "N M"], y: al.Tensor[al.float32, "N M"]):
    al.requires(N > 0)
    for k in range(1, N):
        scale(x[k, :], y[k, :], 2.0)
    scale(x[0, :], y[0, :], 3.0)
    al.spec(y, lambda n, m: x[n, m] * al.where(n == 0, 3.0, 2.0))

@argus.program
def first_first(x: al.Tensor[al.float32, "N M"], y: al.Tensor[al.float32, "N M"]):
    al.requires(N > 0)
    scale(x[0, :], y[0, :], 3.0)
    for k in range(1, N):
        scale(x[k, :], y[k, :], 2.0)
    al.spec(y, lambda n, m: x[n, m] * al.where(n > 0, 2.0, 3.0))

@argus.program
def summed(a: al.Tensor[al.float32, "M K"], b: al.Tensor[al.float32, "K N"], y: al.Tensor[al.float32, "M N"]):
    al.requires(K > 1)
    h = al.empty((K, N), al.float32)
    for k in range(1, K):
        scale(b[k, :], h[k, :], 2.0)
    scale(b[0, :], h[0, :], 3.0)
    product(a, h, y)
    al.spec(y, lambda m, n: al.sum(lambda k: a[m, k] * b[k, n] * al.where(k == 0, 3.0, 2.0)))
"""


def report(name: str, old: str = "", new: str = "") -> Report:
    head, mark, body = (TEXT + MORE).partition(f"def {name}(")
    assert old in body
    text = head + mark + body.replace(old, new, 1)
    return prove(lower(SourceFile("shipped.py", text), name, Options("cpu")))


@pytest.mark.parametrize("name", ["halves", "joined", "overwritten", "first_last", "first_first", "summed"])
def test_parts_are_put_together(name: str) -> None:
    found = report(name)
    assert (found.verdict, found.diagnostics) == (Verdict.PROVED, ())


WRONG = [
    ("halves", "y[m:N], 2.0", "y[m:N], 2.5"),
    ("joined", "i < M, 2.0", "i <= M, 2.0"),
    ("joined", "b[i - M]))", "b[i - M + 0 * i] * 1.5))"),
    ("overwritten", "    scale(x, y, 3.0)\n    scale(x[2:5], y[2:5], 2.0)\n",
     "    scale(x[2:5], y[2:5], 2.0)\n    scale(x, y, 3.0)\n"),
    ("overwritten", "n < 5", "n <= 5"),
    ("first_last", "n == 0", "n <= 1"),
    ("first_first", "range(1, N)", "range(0, N)"),
    ("summed", "k == 0", "k <= 1"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new"), WRONG, ids=lambda v: str(v)[:20])
def test_a_wrong_part_is_refuted(name: str, old: str, new: str) -> None:
    found = report(name, old, new)
    assert [d.code for d in found.diagnostics if d.verdict is Verdict.REFUTED] == ["spec-mismatch"]


def test_a_reduction_without_its_terms_in_place_is_not_known() -> None:
    found = report(
        "summed", "a[m, k] * b[k, n] * al.where(k == 0, 3.0, 2.0)", "2.0 * a[m, k] * b[k, n]) + (a[m, 0] * b[0, n]"
    )
    assert found.verdict is Verdict.UNKNOWN
