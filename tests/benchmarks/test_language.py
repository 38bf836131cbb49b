"""The cases beside open kernels: names, rows, and the inverse of packing, which the errors of int4 rest on."""

import pytest

torch = pytest.importorskip("torch")

from argus.kernels.matmul_packed import pack_weights  # noqa: E402
from benchmarks import language, language_attention  # noqa: E402
from benchmarks.language_products import _unpacked  # noqa: E402


def test_cases_have_names_of_their_own_and_ours_first() -> None:
    cases = language.cases()
    assert len({str(case) for case in cases}) == len(cases) > 60
    assert all(next(iter(case.sides)) == language.OURS for case in cases)
    assert all(len(case.sides) > 1 or case.read for case in cases), "nothing to compare with"


def test_a_row_compares_with_the_best_peer_and_with_reading() -> None:
    case = language.Case("area", "name", lambda: (), {}, lambda found: 0.0, operations=4e6, read=100)
    seconds = {"argus": 2e-6, "slow": 4e-6, "fast": 1e-6, language.READ: 1.5e-6}
    row = language._row(case, seconds, dict.fromkeys(seconds, 0.5))
    assert (row["best peer"], row["speed / best"], row["of read"]) == ("fast", 0.5, 0.75)
    assert row["TFLOP/s"] == pytest.approx(2.0)
    assert "slow 4" in str(row["peers: us, error"]) and "best peer" in row and language._row(case, {}, {})["us"] is None


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_some_rows_are_those_of_all(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = language_attention.Shape(1, 4, 2, 40, 16, causal)
    heads = (4, 4, 2, 2)
    dy, q, k, v = (torch.randn(1, h, 40, 16, dtype=torch.float64, requires_grad=True) for h in heads)
    attend = torch.nn.functional.scaled_dot_product_attention
    found = torch.autograd.grad(attend(q, k, v, is_causal=causal, enable_gqa=True), (q, k, v), dy)
    q, k, v, dy = (x.detach() for x in (q, k, v, dy))
    for longest in (4096, 8):
        monkeypatch.setattr(language_attention, "_LONG", longest)
        assert language_attention._gradient_error(shape, found, dy, q, k, v) < 1e-12
        assert language_attention._gradient_error(shape, [1.5 * x for x in found], dy, q, k, v) > 0.1


def test_packed_weights_are_found_again() -> None:
    weights = torch.randint(0, 16, (5, 512))
    assert torch.equal(_unpacked(pack_weights(weights, 4)), weights)
