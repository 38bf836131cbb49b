"""Copies of 16-bit floats in float32 are made by the kernels that read them, and tiles of short rows are filled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from argus.graph.backend import Backend, Survey  # noqa: E402
from argus.graph.group import Group  # noqa: E402
from argus.graph.space import Space  # noqa: E402
from argus.graph.widened import is_for_readers, widen_where_read  # noqa: E402

aten = torch.ops.aten

HALF = torch.bfloat16


def texts(model: Any, *shapes: tuple[int, ...]) -> list[str]:
    """Return the kernels of a function of bfloat16 tensors, for sm_90a."""
    torch._dynamo.reset()
    backend = Backend(survey=Survey("sm_90a", prove=False))
    with FakeTensorMode() as mode, torch.no_grad():
        call = torch.compile(model, backend=backend, dynamic=False, options={"fallback": "eager"})
        call(*(mode.from_tensor(torch.empty(shape, dtype=HALF)) for shape in shapes))
    rows = backend.report(call).rows
    assert all(row["compared"] == "same" for row in rows)
    return [Path(row["path"]).read_text(encoding="utf-8") for row in rows]


def norm(h: Any) -> Any:
    wide = h.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(h.dtype)


def residual(x: Any, a: Any, b: Any) -> Any:
    h = x + norm(x) @ a
    return h + norm(h) @ b


def viewed(x: Any, a: Any) -> Any:
    h = x @ a
    return h, norm(h.float().view(32, 2, 64).to(HALF)), h.float().view(64, 8, 8).softmax(-1).to(HALF)


@pytest.mark.parametrize(
    ("model", "shapes"),
    [(residual, ((64, 128), (128, 128), (128, 128))), (viewed, ((64, 128), (128, 64)))],
    ids=["residual", "viewed"],
)
def test_kernels_store_16_bits_and_widen_what_they_read(model: Any, shapes: tuple[tuple[int, ...], ...]) -> None:
    found = texts(model, *shapes)
    assert len(found) > 2 and all("al.float32," not in text for text in found)


def returned(x: Any, a: Any) -> Any:
    h = (x @ a).float()
    return h, h.softmax(-1)


def test_a_copy_that_the_caller_gets_is_stored_once() -> None:
    first, second = texts(returned, (64, 128), (128, 64))
    assert first.count("y0: al.Tensor[al.float32") == 1 and "y1" not in first and "x0: al.Tensor[al.float32" in second


@pytest.mark.parametrize(("width", "height"), [(32, 4), (256, 64)])
def test_short_rows_are_continued_along_the_longer_of_two_axes(width: int, height: int) -> None:
    """Patches of 4 x 4 pixels: rows of a patch are short, and so are its columns. An image's row has more patches."""
    (text,) = texts(
        lambda x: x.view(2, 3, 8, 4, width // 4, 4).permute(0, 2, 4, 1, 3, 5).contiguous(), (2, 3, 32, width)
    )
    assert "WIDTH: al.constexpr = 4," in text and f"HEIGHT: al.constexpr = {height}," in text


def concatenated(x: Any, t: Any) -> Any:
    wide = t.float()
    left, right = x.float().chunk(2, -1)
    return torch.cat((left * wide, right * wide), -1).to(HALF), torch.cat((right * wide, left), -1).to(HALF)


def test_parts_of_a_concatenation_widen_what_they_read() -> None:
    assert texts(concatenated, (64, 64), (64, 32))


def test_a_copy_that_no_reader_takes_goes_back_to_what_it_reads() -> None:
    """Each copy of the traced graph is looked at once: a copy that is alone in its kernel is not copied again."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    made = graph.call_function(aten.relu.default, (x,))
    wide = graph.call_function(aten._to_copy.default, (made,), {"dtype": torch.float32})
    read = graph.call_function(aten.exp.default, (wide,))
    graph.output((read,))
    for node, dtype in ((x, HALF), (made, HALF), (wide, torch.float32), (read, torch.float32)):
        node.meta["val"] = torch.empty(4, dtype=dtype)
    before = [Group([made, wide], Space(), outputs=((wide, 0),)), Group([read], Space(), outputs=((read, 0),))]
    assert widen_where_read(graph, before)
    own = read.args[0]
    assert is_for_readers(own) and own.args == (made,) and wide not in graph.nodes
    after = [Group([n], Space(), outputs=((n, 0),)) for n in (made, own, read)]
    assert widen_where_read(graph, after) and not is_for_readers(own)
    assert not widen_where_read(graph, after)
