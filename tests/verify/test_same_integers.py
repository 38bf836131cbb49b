"""Integers in addresses and conditions are compared in one form: quotients by sizes, index data, sums of these."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus.compile import ExplicitKernel, elaborate, lower
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.source import SourceFile
from argus.verify import Report, verify
from argus.verify.model.isl import isl
from argus.verify.model.translator import NonAffine
from argus.verify.values.bits import simplified
from argus.verify.values.integers import added, function, scaled
from argus.verify.values.terms import Apply, Index, Load, starts_at

BLUR = """
import argus.language as al

@argus.kernel
def blur(x: al.Tensor[al.float32, "H W"], k: al.Tensor[al.float32, "3"], out: al.Tensor[al.float32, "H W"]):
    H, W = x.shape
    al.requires((H < 2**15) & (W < 2**15) & (W > 0))
    al.spec(out, lambda h, w: al.sum(lambda s: al.where((w + s >= 1) & (w + s <= W), k[s] * x[h, w + s - 1], 0.0)))
    p = al.grid(al.cdiv(H * W, 64)) * 64 + al.arange(64)
    row, col = p // W, p % W
    acc = al.zeros((64,), al.float32)
    for s in al.static_range(3):
        c = col + s - 1
        acc += al.load(k[s]) * al.load(x[row, c], mask=(p < H * W) & (c >= 0) & (c < W))
    al.store(out[row, col], acc, mask=p < H * W)
"""
BESIDE = """
import argus.language as al

@argus.kernel
def beside(x: al.Tensor[al.float32, "N"], at: al.Tensor[al.int32, "M"], out: al.Tensor[al.float32, "M"]):
    N, M = x.shape[0], out.shape[0]
    al.requires(al.in_range(at, 0, N - 2))
    al.spec(out, lambda i: x[2 + at[i]] - x[at[i]])
    i = al.grid(al.cdiv(M, 64)) * 64 + al.arange(64)
    first = al.load(at[i], mask=i < M)
    second = first + 1
    al.store(out[i], al.load(x[second + 1], mask=i < M) - al.load(x[first], mask=i < M), mask=i < M)
"""
STEPS = """
import argus.language as al

@argus.kernel
def steps(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "M"], step: al.int32):
    N, M = x.shape[0], out.shape[0]
    al.requires((step >= 1) & (step <= 4) & (M * 4 <= N) & (N < 2**29))
    al.spec(out, lambda i: x[i * step])
    i = al.grid(al.cdiv(M, 64)) * 64 + al.arange(64)
    al.store(out[i], al.load(x[step * i], mask=i < M), mask=i < M)
"""
SAME = """
import argus.language as al

@argus.kernel
def same(t: al.Tensor[al.int32, "N"], out: al.Tensor[al.float32, "N K"]):
    N, K = out.shape
    al.spec(out, lambda n, k: al.where(t[n] - 1 < k, 1.0, 0.0))
    n, b = al.grid(N, al.cdiv(K, 64))
    k = b * 64 + al.arange(64)
    al.store(out[n, k], (k >= al.load(t[n])).to(al.float32), mask=k < K)
"""
LARGE = """
import argus.language as al

@argus.kernel
def large(x: al.Tensor[al.int64, "N"], out: al.Tensor[al.int64, "N"]):
    N = x.shape[0]
    al.spec(out, lambda i: x[i] ^ 6364136223846793005)
    i = al.grid(al.cdiv(N, 64)) * 64 + al.arange(64)
    al.store(out[i], 6364136223846793005 ^ al.load(x[i], mask=i < N), mask=i < N)
"""
KERNELS = {"blur": BLUR, "beside": BESIDE, "steps": STEPS, "same": SAME, "large": LARGE}


def lowered(text: str) -> ExplicitKernel:
    name = text.split("def ")[1].split("(")[0]
    return lower(elaborate(SourceFile(f"{name}.py", text), name, Options()), "sm_80")


def report(text: str) -> Report:
    return verify(lowered(text))


@pytest.mark.parametrize("text", KERNELS.values(), ids=list(KERNELS))
def test_proved(text: str) -> None:
    found = report(text)
    assert found.verdict is Verdict.PROVED, found.diagnostics


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        (BLUR, "(c >= 0)", "(c > 0)"),
        (BLUR, "c = col + s - 1", "c = col + s"),
        (BESIDE, "x[second + 1]", "x[second]"),
        (BESIDE, "x[2 + at[i]]", "x[2 + at[i] * 1 - 1]"),
        (STEPS, "x[step * i]", "x[step + i]"),
        (SAME, "t[n] - 1 < k", "t[n] < k"),
        (LARGE, "out[i], 6364136223846793005", "out[i], 6364136223846793004"),
    ],
)
def test_refuted(text: str, before: str, after: str) -> None:
    assert before in text
    assert report(text.replace(before, after)).verdict is Verdict.REFUTED


def test_a_sum_does_not_depend_on_its_spelling() -> None:
    x, y, one = (isl.UnionMap(f"{{ S[i] -> {t} }}") for t in ("data_x[i, 0]", "data_y[i + 1, 0]", "[1]"))
    assert added(added(x, one), y, -2).is_equal(added(scaled(y, -2), added(one, x)))
    assert not added(added(x, one), y, -2).is_equal(added(added(y, one), x, -2))
    assert added(added(x, one), one, -1).is_equal(x)
    assert scaled(x, 0).is_equal(isl.UnionMap("{ S[i] -> [0] }"))
    assert not function("floordiv", [x, y]).is_equal(function("floordiv", [y, x]))


ROUTED = """
import argus.language as al

@argus.kernel
def routed(x: al.Tensor[al.float32, "T E"], out: al.Tensor[al.float32, "T 2"]):
    T, E = x.shape
    al.requires((2 <= E) & (E <= 64))
    al.spec(out, lambda t, r: al.exp(al.topk(lambda e: x[t, e], 2)[0][r]) / al.exp(al.topk(lambda e: x[t, e], 2)[0][0]))
    t = al.grid(T)
    e = al.arange(64)
    v, p = al.topk(al.load(x[t, e], mask=e < E, other=-float("inf")), 2, 0, mask=e < E)
    al.store(out[t, :], al.exp(v - al.max(v, axis=0, keep_dims=True)))
"""


def test_numbers_that_were_ordered_do_not_overflow_in_a_replay() -> None:
    assert report(ROUTED).verdict is not Verdict.REFUTED


GATED = """
import argus.language as al

@argus.kernel
def gated(x: al.Tensor[al.float32, "H W"], out: al.Tensor[al.float32, "W H"]):
    H, W = x.shape
    al.requires((H < 2**15) & (W < 2**15) & (W > 0))
    al.spec(out, lambda w, h: al.where(w <= h, x[h, w], -1.0))
    p = al.grid(al.cdiv(H * W, 64)) * 64 + al.arange(64)
    h, w = p // W, p % W
    v = al.load(x[h, w], mask=(p < H * W) & (h >= w), other=-1.0)
    al.store(out[w, h], v, mask=p < H * W)
"""


def test_a_quotient_and_a_remainder_are_compared() -> None:
    """The axes of `out` are joined in the opposite order to those of `x`, which keep their order."""
    assert report(GATED).verdict is Verdict.PROVED
    assert report(GATED.replace("(h >= w)", "(h > w)")).verdict is Verdict.REFUTED
    assert report(GATED.replace("out[w, h], v", "out[w, h], v * 1.5")).verdict is Verdict.REFUTED


MASKED = """
import argus.language as al

@argus.kernel
def masked(x: al.Tensor[al.float32, "N"], keep: al.Tensor[al.int32, "N"], out: al.Tensor[al.float32, "N"]):
    N = x.shape[0]
    al.spec(out, lambda i: al.where(keep[i] > 0, x[i], -1.0))
    i = al.grid(al.cdiv(N, 64)) * 64 + al.arange(64)
    flag = al.load(keep[i], mask=i < N)
    al.store(out[i], al.load(x[i], mask=(i < N) & (flag >= 1), other=-1.0), mask=i < N)
"""


def test_a_loaded_mask_of_a_plain_load() -> None:
    assert report(MASKED).verdict is Verdict.PROVED
    assert report(MASKED.replace("flag >= 1", "flag >= 0")).verdict is Verdict.REFUTED
    assert report(MASKED.replace("al.load(x[i]", "al.load(x[N - 1 - i]")).verdict is Verdict.REFUTED


NIBBLES = """
import argus.language as al

@argus.kernel
def nibbles(w: al.Tensor[al.uint8, "N H"], scale: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "N K"]):
    N, H = w.shape
    K = out.shape[1]
    al.requires((K == 2 * H) & (H < 2**29))
    al.spec(out, lambda n, k: (((w[n, k // 2].to(al.int32) >> (4 * (k % 2))) & 15) - 8).to(al.float32) * scale[n])
    n, b = al.grid(N, al.cdiv(H, 64))
    h = b * 64 + al.arange(64)
    v = al.load(w[n, h], mask=h < H).to(al.int32)
    al.store(out[n, 2 * h], ((v & 15) - 8).to(al.float32) * al.load(scale[n]), mask=h < H)
    al.store(out[n, 2 * h + 1], ((v >> 4) - 8).to(al.float32) * al.load(scale[n]), mask=h < H)
"""


def test_two_numbers_in_a_byte() -> None:
    assert report(NIBBLES).verdict is Verdict.PROVED
    for before, after in (("v & 15", "v & 7"), ("v >> 4", "v >> 3"), ("out[n, 2 * h + 1]", "out[n, 2 * h]")):
        assert report(NIBBLES.replace(before, after)).verdict is Verdict.REFUTED
    signed = NIBBLES.replace("al.uint8", "al.int8")  # v >> 4 of a negative number is negative
    assert report(signed).verdict is Verdict.REFUTED
    assert report(signed.replace("(v >> 4)", "((v >> 4) & 15)")).verdict is Verdict.PROVED


@pytest.mark.parametrize("op", ["shr", "shl"])
def test_only_a_shift_by_no_bits_is_left_out(op: str) -> None:
    """An index is the number that it is at all instances of the path, and terms are compared by their form."""
    kernel = lowered(NIBBLES)
    path, byte = isl.UnionMap("{ R[i] -> S[i] : 0 <= i < 8 }"), Load("w", isl.UnionMap("{ S[i] -> w[i] }"))
    by = {n: Apply(op, (byte, Index(isl.UnionMap(f"{{ S[i] -> [{n}] }}")))) for n in ("0", "4", "i")}
    assert simplified(by["0"], path, kernel) is byte
    found = simplified(by["4"], path, kernel)
    assert isinstance(found, Apply) and found.args[0] is byte and starts_at(found.args[1], 4.0)
    assert simplified(by["i"], path, kernel) is by["i"]


@pytest.mark.parametrize(("name", "verdict"), [("dropout", Verdict.PROVED), ("dropout_rejected", Verdict.REFUTED)])
def test_random_numbers_have_terms_alone(name: str, verdict: Verdict) -> None:
    """Each round uses the numbers of the round before twice and more, so their form would be 2^20 operations long."""
    file = Path("examples", *(["rejected"] if "rejected" in name else []), "dropout.py")
    source = SourceFile(str(file), file.read_text(encoding="utf-8"))
    assert verify(lower(elaborate(source, name, Options("sm_80")), "sm_80")).verdict is verdict


def test_an_integer_of_too_many_operations_has_no_form() -> None:
    """A name is as long as all operations together, whether they are functions or additions."""
    x = isl.UnionMap("{ S[i] -> data_x[i, 0] }")
    for combined in (lambda a: function("xor", [a, a]), lambda a: added(a, a)):
        found = combined(x)
        with pytest.raises(NonAffine, match="too many operations"):
            for _ in range(20):
                found = combined(found)


COUNTED = """
import argus.language as al

@argus.kernel
def counted(x: al.Tensor[al.float32, "N"], low: al.Tensor[al.int32, "N"], out: al.Tensor[al.float32, "M"]):
    N, M = x.shape[0], out.shape[0]
    al.requires((N < 2**20) & (M < 2**20))
    al.spec(out, lambda m: al.sum(lambda n: al.where((low[n] <= m) & (n >= 3), x[n], 0.0)))
    m = al.grid(al.cdiv(M, 32)) * 32 + al.arange(32)
    acc = al.zeros((32,), al.float32)
    for n0 in range(0, N, 32):
        n = n0 + al.arange(32)
        v, begin = al.load(x[n], mask=n < N), al.load(low[n], mask=n < N)
        own = (n < N)[None, :] & (begin[None, :] <= m[:, None]) & (n >= 3)[None, :]
        acc += al.sum(al.where(own, v[None, :], 0.0), axis=1)
    al.store(out[m], acc, mask=m < M)
"""
OWN = "(n < N)[None, :] & (begin[None, :] <= m[:, None]) & (n >= 3)[None, :]"


@pytest.mark.parametrize("text", [COUNTED, COUNTED.replace("where(own", f"where({OWN}")], ids=["named", "inline"])
def test_a_mask_may_have_a_name(text: str) -> None:
    """The mask has conditions on indices and on data, which count apart whether the mask has a name or not."""
    assert report(text).verdict is Verdict.PROVED
    for before, after in (("(n >= 3)[None", "(n >= 2)[None"), ("begin[None, :] <= m", "begin[None, :] < m")):
        assert report(text.replace(before, after)).verdict is Verdict.REFUTED
