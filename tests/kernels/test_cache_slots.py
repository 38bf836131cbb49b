"""Slots of new tokens in a paged cache: results, full sequences, proofs, wrong twins."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from argus.compile import prove  # noqa: E402
from argus.diagnostic import Verdict  # noqa: E402
from argus.frontend import Options  # noqa: E402
from argus.kernels.cache_slots import next_slots  # noqa: E402
from argus.source import SourceFile  # noqa: E402
from tests.kernels.common import assert_proved, source_of  # noqa: E402


def test_slots(device: str) -> None:
    """Across pages, of an empty sequence, and beyond the last page, where tokens share the last slot."""
    table = torch.tensor([[3, 0, 7], [1, 4, 2]], dtype=torch.int32, device=device)
    for lens, wanted in (
        ([0, 15], [[48, 49, 50], [31, 64, 65]]),
        ([46, 48], [[126, 127, 127], [47, 47, 47]]),
    ):
        slots = table.new_empty(2, 3)
        next_slots(torch.tensor(lens, dtype=torch.int32, device=device), table, slots, PAGE=16)
        assert slots.tolist() == wanted


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx942"])
def test_proved(target: str) -> None:
    assert_proved("cache_slots", "next_slots", target, num_warps=1, alignment=4)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("page * PAGE + place % PAGE, mask", "page * PAGE + m % PAGE, mask"),
        ("al.load(lens[b]), L", "al.load(lens[0]), L"),
    ],
)
def test_wrong_twins_are_not_proved(old: str, new: str) -> None:
    """Places that start at a page's first, the first sequence's tokens for all."""
    whole = source_of("cache_slots")
    assert whole.text.count(old) == 1
    options = Options("sm_80", 1, default_alignment=4)
    report = prove(SourceFile(whole.path, whole.text.replace(old, new)), "next_slots", options)
    assert report.verdict is not Verdict.PROVED
