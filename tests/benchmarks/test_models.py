"""Whole models: what needs neither a GPU nor transformers."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from benchmarks import model_case as models  # noqa: E402


def test_a_survey_says_what_is_taken() -> None:
    row = models.surveyed(models.Case("unet", training=False, small=True), proves=False)
    assert row["model"] == "unet" and isinstance(row["kernels"], int) and row["kernels"] > 5
    assert isinstance(row["taken"], float) and row["taken"] > 0.8
    assert row["proved"] == 0.0  # nothing was asked to be proved


def test_a_training_step_returns_the_gradients_of_all_parameters() -> None:
    model, arguments = models.Case("unet", training=True, small=True).made()
    grads = models._step(model, model, arguments, training=True)
    assert [g.shape for g in grads] == [p.shape for p in model.parameters()]


def test_errors_are_relative_and_a_wrong_shape_is_infinitely_wrong() -> None:
    exact = [torch.tensor([3.0, 4.0]), torch.tensor([10.0])]
    assert models._error(exact, exact) == 0.0
    assert models._error([exact[0] * 1.1, exact[1]], exact) == pytest.approx(0.1 / 2**0.5)
    assert models._error([exact[0]], exact) == float("inf")
    assert models._error([exact[0], torch.zeros(2)], exact) == float("inf")


def test_what_is_zero_but_for_rounding_does_not_count_as_an_error() -> None:
    exact = [torch.ones(2), torch.full((2,), 1e-9)]
    assert models._error([torch.ones(2), torch.full((2,), 1e-3)], exact) == 0.0
    assert models._error([torch.zeros(2), torch.full((2,), 1e-9)], exact) == 1.0


def test_copies_share_their_weights() -> None:
    model = torch.nn.Linear(2, 2)
    assert models.with_same_weights(model).weight is model.weight


def test_results_are_found_in_mappings_and_tuples() -> None:
    x, y = torch.ones(2), torch.zeros(3)
    assert [t.shape for t in models._tensors({"a": x, "b": (y, None, torch.tensor(1))})] == [(2,), (3,)]
