"""The gradients of attention of packed sequences: against float64, through autograd, proofs and wrong twins."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.compile import prove  # noqa: E402
from argus.diagnostic import LaunchError, Verdict  # noqa: E402
from argus.frontend import Options  # noqa: E402
from argus.kernels import attention_varlen, attention_varlen_backward  # noqa: E402
from argus.source import SourceFile  # noqa: E402
from tests.kernels.common import assert_proved, random, source_of  # noqa: E402
from tests.kernels.test_attention_backward import ALONE, ELSEWHERE, HOPPER, accept, exact, gradients  # noqa: E402
from tests.kernels.test_attention_varlen import packed  # noqa: E402

FILE = "attention_varlen_backward"


def apart(q: Any, k: Any, v: Any, rows: Any, keys: Any, causal: bool) -> tuple[Any, Any]:
    """Each sequence by itself, in float64: results `[T, H, D]` and log-sum-exps `[H, T]`."""
    results, levels = [], []
    for b in range(len(rows) - 1):
        own, seen = slice(int(rows[b]), int(rows[b + 1])), slice(int(keys[b]), int(keys[b + 1]))
        one = (x.transpose(0, 1)[None] for x in (q[own], k[seen], v[seen]))
        y, level = exact(*one, causal) if seen.stop > seen.start else (q[None, own].transpose(1, 2) * 0.0, None)
        results.append(y[0].transpose(0, 1))
        levels.append(level[0] if level is not None else q[own].sum(-1).T * 0.0)
    return torch.cat(results), torch.cat(levels, 1)


SIZES = [
    ((2, 1, 64), [70, 0, 1, 33], [70, 5, 3, 20]),
    ((2, 2, 128), [5, 130], [0, 131]),
    ((4, 2, 64), [3] * 11, [5] * 11),
    ((1, 1, 64), [0, 0, 9, 0], [1, 0, 9, 4]),
]


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("heads", "queries", "keys"), SIZES)
def test_results(device: str, heads: tuple[int, int, int], queries: list[int], keys: list[int], causal: bool) -> None:
    *tensors, rows, places = packed(heads, queries, keys, "bfloat16", device)
    dy = random(*tensors[0].shape, dtype="bfloat16", device=device, seed=9)
    way = {"causal": causal, "return_lse": True}
    found = gradients(tuple(tensors), lambda *x: attention_varlen(*x, rows, places, **way), dy)
    doubled = tuple(x.double() for x in tensors)
    accept(found, gradients(doubled, lambda *x: apart(*x, rows, places, causal), dy.double()))


@pytest.mark.slow
def test_a_scale_and_a_gradient_of_the_log_sum_exp(device: str) -> None:
    *tensors, rows, places = packed((2, 1, 64), [20, 7], [20, 9], "float16", device)
    dy, dlse = random(27, 2, 64, dtype="float16", device=device, seed=8), random(2, 27, device=device, seed=7)
    way = {"scale": 64**-0.5, "return_lse": True}
    found = gradients(tuple(tensors), lambda *x: attention_varlen(*x, rows, places, **way), dy, dlse)
    doubled = tuple(x.double() for x in tensors)
    accept(found, gradients(doubled, lambda *x: apart(*x, rows, places, False), dy.double(), dlse.double()))


def test_nothing_to_attend_to(device: str) -> None:
    *tensors, rows, places = packed((2, 1, 64), [3, 2], [0, 0], "bfloat16", device)
    found = gradients(tuple(tensors), lambda *x: attention_varlen(*x, rows, places, return_lse=True), tensors[0])
    assert [x.shape for x in found] == [x.shape for x in tensors] and not found[0].any()


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        (0, lambda x: x[:4], "`dy` has the shape"),
        (6, lambda x: x.bfloat16(), "`y` is a tensor of bfloat16"),
        (7, lambda x: x.half(), "`lse` is a tensor of float16"),
        (8, lambda x: x[:1], "`dlse` has the shape"),
    ],
)
def test_wrong_arguments_are_refused(place: int, change: Any, message: str) -> None:
    q, k, v, rows, keys = packed((2, 1, 64), [3, 2], [4, 1], "float16", "cpu")
    tensors = [q, q, k, v, rows, keys, q, torch.zeros(2, 5), torch.zeros(2, 5)]
    tensors[place] = change(tensors[place])
    with pytest.raises(LaunchError, match=message):
        attention_varlen_backward(*tensors)


@pytest.mark.product
@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("target", "size", "tiles"), [("sm_90a", 128, HOPPER), ("sm_80", 64, ELSEWHERE), ("gfx942", 64, ALONE)]
)
@pytest.mark.parametrize("kernel", ["keys", "queries"])
def test_proved(target: str, size: int, tiles: dict[str, int], kernel: str, causal: bool) -> None:
    constants: dict[str, Any] = {"D": size, **tiles}
    if kernel == "queries":
        constants["CAUSAL"] = causal
    elif not causal:
        constants["shift"] = None
    assert_proved(FILE, f"attention_packed_{kernel}", target, **constants)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "right", "wrong"),
    [
        ("keys", "w = al.where((p < ends)[None, :], w, 0.0)", "pass"),
        ("queries", "w = al.where((j0 + al.arange(STEP) < ends)[None, :], w, 0.0)", "pass"),
    ],
)
def test_rows_and_keys_of_other_sequences_are_not_proved(kernel: str, right: str, wrong: str) -> None:
    """Twins of the kernels that `test_proved` accepts."""
    text = source_of(FILE).text
    assert text.count(right) == 1
    constants = {"D": 64, "BLOCK": 64, "STEP": 16, **({"shift": None} if kernel == "keys" else {})}
    source = SourceFile("wrong.py", text.replace(right, wrong))
    report = prove(source, f"attention_packed_{kernel}", Options("sm_80", 4, constants))
    assert report.verdict is not Verdict.PROVED
