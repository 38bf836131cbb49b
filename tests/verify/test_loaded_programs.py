"""Programs of one block whose loops are as long as what they load says."""

from __future__ import annotations

import re

from argus.compile import elaborate, lower, prove, read, verify
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.ir.text import print_kernel
from argus.source import SourceFile

KERNEL = """
import argus
import argus.language as al


@argus.kernel(num_warps=4)
def grouped(
    x: al.Tensor[al.bfloat16, "T K"],
    first: al.Tensor[al.int32, "L1"],
    expert: al.Tensor[al.int32, "L1"],
    w: al.Tensor[al.bfloat16, "E N K"],
    out: al.Tensor[al.bfloat16, "T N"],
    BM: al.constexpr = 64,
    BN: al.constexpr = 64,
    BK: al.constexpr = 64,
):
    T, K = x.shape
    E, N = w.shape[0], w.shape[1]
    L = first.shape[0] - 1
    al.requires((first.shape[0] >= 1) & (T < 2**30) & (K > 0) & (E > 0))
    al.requires(al.in_range(expert, 0, E))
    al.requires(al.offsets(first, T, longest=BM))
    al.covers(out, at=lambda i, t, n: (t, n), where=lambda i, t, n: (first[i] <= t) & (t < first[i + 1]))
    al.spec(out, lambda i, t, n: al.sum(lambda k: x[t, k] * w[expert[i], n, k]))
    pid_n, i = al.grid(al.cdiv(N, BN), L, persistent=True)
    m0, end, e = al.load(first[i]), al.load(first[i + 1]), al.load(expert[i])
    n0 = pid_n * BN
    row = m0 + al.arange(BM)
    deep = al.where(m0 < end, K, 1)
    acc = al.zeros((BM, BN), al.float32)
    for k0 in al.pipelined(0, deep, BK, stages=2, producer_warps=4):
        xt = al.stage(x[m0 : m0 + BM, k0 : k0 + BK], boundary_check=(0, 1))
        wt = al.stage(w[e, n0 : n0 + BN, k0 : k0 + BK], boundary_check=(0, 1))
        acc = al.mma(xt, wt, acc)
    al.store(out[row, n0 : n0 + BN], acc.to(al.bfloat16), mask=(row < end)[:, None], boundary_check=(1,))
"""


def verdict_of(text: str) -> tuple[Verdict, list[str]]:
    report = prove(SourceFile("grouped.py", text), "grouped", Options("sm_90a"))
    return report.verdict, [d.message for d in report.diagnostics]


def test_a_loop_of_a_loaded_length_is_proved() -> None:
    verdict, messages = verdict_of(KERNEL)
    assert verdict is Verdict.PROVED, messages


def test_programs_that_take_no_turn_are_not() -> None:
    wrong = KERNEL.replace("al.where(m0 < end, K, 1)", "al.where(m0 < end, K, 0)")
    assert wrong != KERNEL
    verdict, messages = verdict_of(wrong)
    assert verdict is Verdict.UNKNOWN and any("a program may take no turn" in m for m in messages)


def test_programs_of_another_expert_are_refuted_or_unknown() -> None:
    """The number that one program loads is not that of the next."""
    wrong = KERNEL.replace("al.load(expert[i])", "al.load(expert[0])")
    assert wrong != KERNEL
    assert verdict_of(wrong)[0] is not Verdict.PROVED


IN_TURNS = KERNEL.replace("persistent=True", 'persistent=True, schedule="pingpong"').replace("0, deep, BK", "0, K, BK")


def test_groups_in_turns_are_proved() -> None:
    verdict, messages = verdict_of(IN_TURNS)
    assert verdict is Verdict.PROVED, messages


def test_a_group_that_stores_nothing_is_not() -> None:
    """Each program is run by one of two groups, so it does not help that the other would store.

    Each group has a store by the copy engine and one by its threads.
    """
    options = Options("sm_90a")
    text = print_kernel(lower(elaborate(SourceFile("grouped.py", IN_TURNS), "grouped", options), "sm_90a"))
    stores = list(re.finditer(r"^ *copy out\[.*\n", text, re.MULTILINE))
    assert len(stores) == 4
    for store in stores:
        wrong = text[: store.start()] + text[store.end() :]
        report = verify(read(SourceFile("grouped.ir", wrong)))
        assert report.verdict is not Verdict.PROVED
        assert any("'out' that the kernel covers is never written" in d.message for d in report.diagnostics)
