"""Specifications beside PyTorch on small tensors: wrong rows of the operator table are found, and right ones pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from argus.graph import compare  # noqa: E402
from argus.graph.backend import Backend, Survey  # noqa: E402
from argus.graph.compare import Different  # noqa: E402
from argus.graph.operators import TABLE  # noqa: E402
from argus.graph.pointwise import ROWS  # noqa: E402
from argus.graph.row import Row  # noqa: E402
from tests.graph.compiled import left, same  # noqa: E402


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: Any) -> None:
    """A row that is changed for a test must not meet what was found for the right one."""
    monkeypatch.setattr(compare, "_kept", lambda key: None)
    monkeypatch.setattr(compare, "_keep", lambda key, found: found)


def surveyed(model: Callable[..., Any], *inputs: Any, target: str = "sm_90a", **options: Any) -> Any:
    """Report on a model whose kernels are generated and compared, but not proved."""
    torch._dynamo.reset()
    backend = Backend(survey=Survey(target, prove=False))
    call = torch.compile(model, backend=backend, dynamic=False, options=options)
    call(*inputs)
    return backend.report(call)


def results(report: Any) -> list[str]:
    return [row["compared"] for row in report.rows if row["by"] == "argus" and row["kernel"] != "split_clone"]


def attend(x: Any, w: Any) -> Any:
    q, k, v = (x @ w).view(2, 48, 3, 4, 16).permute(2, 0, 3, 1, 4).unbind(0)
    return (torch.softmax(q @ k.transpose(-1, -2) * 0.25, -1) @ v).transpose(1, 2).reshape(2, 48, 64)


def window(x: Any, w: Any) -> Any:
    return F.max_pool2d(F.relu(F.conv2d(x, w, stride=2, padding=1)), 3, 2, 1)


def in_groups(x: Any, w: Any) -> Any:
    return F.silu(F.conv2d(x, w, padding=2, dilation=2, groups=x.shape[1] // w.shape[1]))


def transposed(x: Any, w: Any) -> Any:
    return F.conv_transpose2d(x, w, stride=2, padding=1)


def norm(x: Any, w: Any) -> Any:
    return F.gelu(F.layer_norm(x, (65,), w)) + x.sum(0)


def looked_up(x: Any, w: Any) -> Any:
    return torch.cat([w[x], w[x].flip(-1)], 1).tril()


def denied(x: Any, w: Any) -> Any:
    return torch.where((x.amax(-1, keepdim=True) == 1.0).logical_not(), x, w)


RIGHT: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "attention": (attend, torch.randn(2, 48, 64), torch.randn(64, 192)),
    "convolution": (window, torch.randn(2, 3, 97, 61), torch.randn(40, 3, 7, 7)),
    "groups": (in_groups, torch.randn(2, 24, 33, 40), torch.randn(48, 4, 3, 3)),
    "depthwise": (in_groups, torch.randn(2, 24, 33, 40), torch.randn(24, 1, 3, 3)),
    "transposed": (transposed, torch.randn(2, 64, 20, 24), torch.randn(64, 32, 3, 3)),
    "norm": (norm, torch.randn(70, 65).bfloat16(), torch.randn(65).bfloat16()),
    "denied": (denied, torch.randn(40, 33), torch.randn(33)),
    "indices": (looked_up, torch.randint(0, 300, (5, 33)), torch.randn(300, 66)),
}


@pytest.mark.parametrize("case", RIGHT)
def test_right_rows_are_compared(case: str) -> None:
    model, x, w = RIGHT[case]
    found = results(surveyed(model, x, w))
    assert found and set(found) == {"same"}


def _edited(name: str, **arguments: Any) -> Row:
    """The row of an operator, with some of its arguments replaced."""
    row = TABLE[name]

    def meaning(site: Any, *given: Any) -> Any:
        return row.meaning(site, *(arguments.get(f"a{n}", value) for n, value in enumerate(given)))

    return Row(row.kind, meaning, row.left, row.places)


WRONG: dict[str, tuple[str, Callable[[], Row], str]] = {
    "another function": ("gelu.default", lambda: _edited("gelu.default", a1="tanh"), "norm"),
    "another axis": ("sum.dim_IntList", lambda: _edited("sum.dim_IntList", a1=[0, 1]), "norm"),
    "another epsilon": ("native_layer_norm.default", lambda: _edited("native_layer_norm.default", a4=0.1), "norm"),
    "another border": ("convolution.default", lambda: _edited("convolution.default", a4=[1, 2]), "depthwise"),
    "another dilation": ("convolution.default", lambda: _edited("convolution.default", a5=[1, 1]), "groups"),
    "another window": (
        "max_pool2d_with_indices.default", lambda: _edited("max_pool2d_with_indices.default", a1=[2, 3]), "convolution"
    ),
    "another diagonal": ("tril.default", lambda: _edited("tril.default", a1=-1), "indices"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_rows_are_found(case: str, monkeypatch: Any) -> None:
    name, wrong, on = WRONG[case]
    row = wrong()
    monkeypatch.setitem(TABLE, name, row)
    model, x, w = RIGHT[on]
    report = surveyed(model, x, w)
    assert [r["kernel"] for r in report.rows if "differs from PyTorch" in r["reason"]] == [name]


def test_a_wrong_row_leaves_its_operator_and_the_result_is_right(monkeypatch: Any) -> None:
    monkeypatch.setitem(TABLE, "tanh.default", ROWS["sigmoid.default"])
    report = same(lambda x: torch.tanh(x) * 2.0, torch.randn(5, 7))
    assert left(report) == ["tanh.default"]


def test_a_difference_raises_on_request(monkeypatch: Any) -> None:
    monkeypatch.setitem(TABLE, "tanh.default", ROWS["sigmoid.default"])
    with pytest.raises(Exception, match="tanh: the specification differs from PyTorch: y0\\[") as caught:
        surveyed(lambda x: torch.tanh(x), torch.randn(5, 7), target="cpu", differences="raise")
    assert isinstance(caught.value, Different) or "Different" in str(caught.value)


def test_what_is_not_compared_is_told() -> None:
    report = surveyed(*RIGHT["convolution"])
    assert any("without rounding" in row["compared"] for row in report.rows)
    assert "specifications that were not compared with PyTorch: split_clone (" in str(report)


def test_an_expanded_factor_is_compared_whose_size_a_later_tensor_has() -> None:
    """A convolution with one tap: the same filters for each image."""
    x, weight = torch.randn(3, 24, 4, 4).bfloat16(), torch.randn(16, 24, 1, 1).bfloat16()
    report = surveyed(lambda x, w: F.conv2d(x, w), x, weight)
    assert results(report) == ["same"]
