"""A generator that is broken on purpose: its kernels are refused, and the model still computes what PyTorch does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from argus.graph.kernel import statements  # noqa: E402
from tests.graph.compiled import same, taken  # noqa: E402

Edit = Callable[[list[str]], list[str]]


def broken(edit: Edit) -> Any:
    """The generator with its statements edited; fails where an edit changes nothing."""
    changed: list[bool] = []

    def generator(*arguments: Any) -> Any:
        lines, *rest = statements(*arguments)
        after = edit(lines)
        changed.append(after != lines)
        return after, *rest

    generator.changed = changed  # type: ignore[attr-defined]
    return generator


def replacing(old: str, new: str) -> Edit:
    return lambda lines: [line.replace(old, new) for line in lines]


def dropping(text: str) -> Edit:
    return lambda lines: [line for line in lines if text not in line]


def norm(x: Any, w: Any) -> Any:
    return F.layer_norm(x, (33,), w, None, 1e-3)


def scores(x: Any, w: Any) -> Any:
    return torch.softmax(x * 0.5, -1)


def chain(x: Any, w: Any) -> Any:
    return torch.tanh(x * 2.0 + w)


def columns(x: Any, w: Any) -> Any:
    y = torch.cat([x] * 8)  # more rows than registers hold
    return (y * y).sum(0)


def project(x: Any, w: Any) -> Any:
    return x @ x.T.contiguous() * 0.5


AT = torch.tensor([-1, 3, -40])


def rows_at(x: Any, w: Any) -> Any:
    return x[AT] + w


def a_part(x: Any, w: Any) -> Any:
    return F.pad(x, (0, 7)).slice_scatter(w.expand(40, -1), 1, 7) * 2.0


CASES = {
    "a place that does not wrap": (rows_at, replacing("% 40", "* 0 + 39")),
    "a part at another place": (a_part, replacing("- 7", "- 6")),
    "a mask of a sum": (norm, replacing("al.where(inside, v3 * v3, 0.0)", "v3 * v3")),
    "padding that counts": (scores, replacing("0.0), axis=1", "1.0), axis=1")),
    "a wrong constant": (norm, replacing("0.001", "0.01")),
    "another factor": (chain, replacing("* 2.0", "* 2.5")),
    "another function": (chain, replacing("al.tanh", "al.sigmoid")),
    "the bounds of a store": (chain, replacing("& (b < B)", "& (b <= B)")),
    "the wrong axis": (norm, replacing("axis=1, keep_dims=True", "axis=0, keep_dims=True")),
    "a neighbour's element": (chain, replacing("x1[b]", "x1[al.maximum(b - 1, 0)]")),
    "a tile too few": (chain, replacing("al.cdiv(A, HEIGHT)", "(A // HEIGHT)")),
    "a loop that ends early": (columns, replacing("range(0, B, HEIGHT)", "range(0, B - 1, HEIGHT)")),
    "rows that count twice": (columns, replacing("range(0, B, HEIGHT)", "range(0, B, HEIGHT // 2)")),
    "one term too few": (project, replacing("range(0, C)", "range(1, C)")),
    "the other factor's row": (project, replacing("x1[c, b]", "x1[c, a]")),
}
TWINS = [norm, scores, chain, columns, project, rows_at, a_part]


@pytest.mark.parametrize("case", CASES)
def test_what_a_wrong_generator_makes_is_not_taken(case: str) -> None:
    model, edit = CASES[case]
    generator = broken(edit)
    report = same(model, torch.randn(40, 33), torch.randn(33), generator=generator, tolerance=1e-4)
    assert any(generator.changed), "the edit changes nothing"
    wrong = [row for row in report.rows if row["verdict"] in ("refuted", "unknown")]
    assert wrong and all(row["reason"] for row in wrong)


@pytest.mark.parametrize("model", TWINS, ids=lambda m: m.__name__)
def test_the_twins_are_taken(model: Any) -> None:
    report = same(model, torch.randn(40, 33), torch.randn(33), tolerance=1e-4)
    assert taken(report) and all(row["verdict"] == "proved" for row in report.rows)


def test_statements_that_vanish() -> None:
    report = same(chain, torch.randn(40, 33), torch.randn(33), generator=broken(dropping("al.store")))
    assert not taken(report)
