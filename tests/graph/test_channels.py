"""The layout of images between convolutions, and convolutions that are products of patches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from argus.graph.backend import Backend, Survey  # noqa: E402
from argus.graph.channels import keep_channels_last  # noqa: E402
from argus.graph.convolved import convolution  # noqa: E402
from tests.graph.compiled import compiled, left, taken  # noqa: E402


def traced(model: Any, *inputs: Any) -> tuple[Any, Any]:
    """Return what Dynamo traces of a model, and what becomes of it."""
    found: list[Any] = []
    torch._dynamo.reset()
    torch.compile(model, backend=lambda gm, _: found.append((gm, keep_channels_last(gm))) or gm.forward, dynamic=False)(
        *inputs
    )
    return found[0]  # type: ignore[no-any-return]


def asked(gm: Any) -> int:
    return sum(n.op == "call_method" and "memory_format" in n.kwargs for n in gm.graph.nodes)


class Two(nn.Module):
    """Two convolutions with `between` in their middle."""

    def __init__(self, between: Any) -> None:
        super().__init__()
        self.first, self.second, self.between = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 3), between

    def forward(self, x: Any) -> Any:
        return self.second(self.between(self.first(x)))


class Fork(nn.Module):
    """Two convolutions of one image."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(3, 8, 3)

    def forward(self, x: Any) -> Any:
        return self.first(x) + self.second(x)


def test_convolutions_of_one_image_share_its_layout() -> None:
    _, after = traced(Fork(), torch.randn(2, 3, 6, 6))
    assert asked(after) == 1


def test_parameters_are_still_known_as_parameters() -> None:
    before, after = traced(Fork(), torch.randn(2, 3, 6, 6))
    sources = [[n._dynamo_source for n in gm.graph.find_nodes(op="placeholder")] for gm in (before, after)]
    assert sources[0] == sources[1] and len(sources[0]) == 5
    assert after is not before and after.meta == before.meta and "dynamo_compile_id" in after.meta
    assert after._param_name_to_source == before._param_name_to_source


def test_results_of_few_channels_have_the_layout_of_their_image() -> None:
    """The first convolution of a network joins its taps with the channels, and the next one reads its result."""
    x = torch.randn(2, 3, 16, 24, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    weight = torch.randn(64, 3, 3, 3, dtype=torch.bfloat16)
    found = convolution(x, weight, None, [2, 1], [1, 1], [1, 1], False, [0, 0], 1)
    assert found is not NotImplemented and found.is_contiguous(memory_format=torch.channels_last)
    assert convolution(x.contiguous(), weight, None, [2, 1], [1, 1], [1, 1], False, [0, 0], 1).is_contiguous()


@pytest.mark.parametrize(
    ("between", "changed"),
    [
        (F.relu, True),
        (lambda x: x.view(x.shape[0], 8, -1).view(x.shape), True),
        (lambda x: x.view(-1).view(x.shape), False),  # no view with channels last
        (lambda x: x.as_strided(x.shape, x.stride()), False),
    ],
)
def test_layouts_change_only_where_nothing_else_does(between: Any, changed: bool) -> None:
    x = torch.randn(2, 3, 6, 6)
    model = Two(between)
    before, after = traced(model, x)
    assert (after is not before) == changed and asked(after) == 2 * changed
    if changed:
        inputs = [n.meta["example_value"] for n in before.graph.nodes if n.op == "placeholder"]
        real = {tuple(p.shape): p for p in (x, *model.parameters())}
        given = [real[tuple(i.shape)].detach() for i in inputs]
        (wanted,), (found,) = before(*given), after(*given)
        torch.testing.assert_close(found, wanted)
        assert found.stride() == wanted.stride()


@pytest.mark.parametrize(
    ("convolution", "shape", "replaced"),
    [
        (nn.Conv2d(3, 8, 4, stride=4), (2, 3, 8, 12), True),
        (nn.Conv1d(3, 8, 5, stride=5, bias=False), (2, 3, 20), True),
        (nn.Conv3d(2, 4, (1, 2, 2), stride=(1, 2, 2)), (2, 2, 3, 4, 6), True),
        (nn.Conv2d(3, 8, 4, stride=4), (2, 3, 9, 12), False),
        (nn.Conv2d(3, 8, 4, stride=2), (2, 3, 8, 12), False),
        (nn.Conv2d(3, 8, 2, stride=2, padding=1), (2, 3, 8, 12), False),
        (nn.Conv2d(3, 8, 1), (2, 3, 8, 12), False),
        (nn.Conv2d(4, 8, 2, stride=2, groups=2), (2, 4, 8, 12), False),
    ],
)
def test_windows_that_divide_the_image_are_patches(convolution: Any, shape: tuple[int, ...], replaced: bool) -> None:
    model, x = convolution.bfloat16(), torch.randn(shape).bfloat16()
    before, after = traced(model, x)
    assert (after is not before) == replaced
    if replaced:
        given = {tuple(p.shape): p.detach() for p in (x, *model.parameters())}
        inputs = [n.meta["example_value"] for n in before.graph.nodes if n.op == "placeholder"]
        (found,) = after(*(given[tuple(i.shape)] for i in inputs))
        wanted = model(x)
        torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)
        assert found.stride() == wanted.stride()


def test_patches_are_a_proved_product_with_its_gradients() -> None:
    model = nn.Conv2d(3, 8, 4, stride=4).bfloat16()
    call, backend = compiled(model, dynamic=False)
    x = torch.randn(2, 3, 8, 8).bfloat16()
    grads = []
    for run in (model, call):
        model.zero_grad()
        run(x).float().square().mean().backward()
        grads.append([p.grad.clone() for p in model.parameters()])
    for own, right in zip(*grads, strict=True):
        torch.testing.assert_close(own, right, rtol=3e-2, atol=3e-3)
    report = backend.report(call)
    assert any("mm" in name for name in taken(report)) and not left(report)


def texts(model: Any, *inputs: Any) -> list[str]:
    """Return the texts of the kernels that a model would become on Hopper."""
    torch._dynamo.reset()
    backend = Backend(survey=Survey("sm_90a", prove=False))
    with torch.no_grad():
        torch.compile(model, backend=backend, dynamic=False)(*inputs)
    rows = backend.report(model).rows
    return [Path(row["path"]).read_text(encoding="utf-8") for row in rows if row["by"] == "argus"]


@pytest.mark.parametrize("first", [True, False])
def test_a_copy_that_turns_an_image_goes_through_shared_memory(first: bool) -> None:
    """Loads and stores access whole lines, whichever of two dimensions comes first."""
    form = (torch.channels_last, torch.contiguous_format)
    x = torch.randn(2, 40, 6, 9).to(memory_format=form[first])
    (text,) = texts(lambda x: x.clone(memory_format=form[not first]), x)
    assert "al.trans(turnedy0)" in text


def test_digits_of_channels_are_made_from_one_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is inside whichever digit an element has, so the load needs no condition on it."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    found = texts(nn.Conv2d(3, 64, 11, stride=4), torch.randn(1, 3, 224, 224))
    digits = [text for text in found if "split.default" in text.splitlines()[0]]
    assert digits and all(text.count("al.load(x0") == 1 for text in digits)
