"""Proofs are made once, kept on disk, and never taken from a damaged entry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.graph import prove  # noqa: E402
from argus.graph.prove import ProofRequest, prove_all  # noqa: E402
from argus.graph.provers import Answer, Provers  # noqa: E402
from tests.graph.compiled import compiled, taken  # noqa: E402

TEXT = """
import argus
import argus.language as al


@argus.kernel
def double(x: al.Tensor[al.float32, "A"], y: al.Tensor[al.float32, "A"], WIDTH: al.constexpr = 128):
    al.spec(y, lambda a: x[a] * 2.0)
    a = al.grid(al.cdiv(A, WIDTH)) * WIDTH + al.arange(WIDTH)
    al.store(y[a], al.load(x[a], mask=a < A) * 2.0, mask=a < A)
"""


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARGUS_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of kernels that are proved, and not found."""
    names: list[str] = []
    real = prove.prove

    def counting(order: ProofRequest) -> Any:
        names.append(order.name)
        return real(order)

    monkeypatch.setattr(prove, "prove", counting)
    return names


def order(text: str = TEXT) -> ProofRequest:
    return ProofRequest("double", text, "cpu", {})


def test_a_proof_is_made_once(own_cache: Path, counted: list[str]) -> None:
    first = prove_all([order(), order()], 1)
    assert [o.verdict for o in first] == ["proved", "proved"]
    assert prove_all([order()], 1) == first[:1]
    assert counted == ["double"]


def test_a_refusal_is_kept_with_its_reason(own_cache: Path, counted: list[str]) -> None:
    wrong = order(TEXT.replace("mask=a < A) * 2.0", "mask=a < A) * 3.0"))
    (first,), (second,) = prove_all([wrong], 1), prove_all([wrong], 1)
    assert first == second and first.verdict == "refuted" and "spec-mismatch" in first.reason
    assert counted == ["double"]


def test_damaged_entries_are_proved_anew(own_cache: Path, counted: list[str]) -> None:
    prove_all([order()], 1)
    for path in own_cache.iterdir():
        if path.is_file():
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(bytes(content))
    assert prove_all([order()], 1)[0].verdict == "proved"
    assert counted == ["double", "double"]


def test_processes_of_their_own_say_the_same(own_cache: Path) -> None:
    texts = [TEXT.replace("2.0", f"{factor}.0") for factor in (2, 3, 4)]
    texts.append(TEXT.replace("mask=a < A) * 2.0", "mask=a < A) * 3.0"))
    outcomes = prove_all([order(text) for text in texts], 2)
    assert [o.verdict for o in outcomes] == ["proved", "proved", "proved", "refuted"]


def test_kernels_of_a_process_that_died_are_proved_one_by_one(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One kernel of three makes the process die. The others are proved nevertheless."""
    asked: list[list[ProofRequest]] = []

    def ask(_: Provers, orders: Sequence[ProofRequest]) -> None:
        asked.append(list(orders))

    def answers(_: Provers, number: int) -> Iterator[Answer]:
        if not any("3.0" in order.text for order in asked[-1]):
            yield 0, "proved", ""

    monkeypatch.setattr(Provers, "ask", ask)
    monkeypatch.setattr(Provers, "answers", answers)
    outcomes = prove_all([order(TEXT.replace("2.0", f"{factor}.0")) for factor in (2, 3, 4)], 2)
    assert [o.verdict for o in outcomes] == ["proved", "unknown", "proved"] and "ended early" in outcomes[1].reason
    assert [len(orders) for orders in asked] == [3, 1, 1, 1]


def test_a_process_that_dies_ends_the_answers_and_another_one_is_started(own_cache: Path) -> None:
    with Provers(2) as provers:
        provers.start()
        first = provers.process
        assert first is not None
        first.kill()
        assert list(provers.answers(1)) == [] and provers.process is None
        provers.ask([order()])
        assert list(provers.answers(1)) == [(0, "proved", "")]
        second = provers.process
        provers.ask([order()])
        assert list(provers.answers(1)) == [(0, "proved", "")] and provers.process is second
    assert second is not None and second.poll() is not None and provers.process is None


def test_processes_start_before_they_are_needed_only_if_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Provers, "start", lambda self: setattr(self, "process", "started"))
    found = {}
    for workers in (1, 2, 3, 16):
        provers = Provers(workers)
        provers.start_early()
        found[workers] = provers.process is not None
    assert found == {1: False, 2: False, 3: True, 16: True}


def test_layers_of_the_same_structure_share_a_proof(own_cache: Path, counted: list[str]) -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(20, 36), torch.nn.Linear(36, 24))
    call, backend = compiled(layers, dynamic=False)
    with torch.no_grad():
        call(torch.randn(4, 20))
    assert taken(backend.report(call)) == ["addmm", "addmm"]
    assert counted == ["addmm"]
    text = Path(backend.report(call).rows[0]["path"]).read_text(encoding="utf-8")
    assert "20" not in text and "24" not in text
