"""Convolutions and pooling as kernels, on the CPU target: values beside PyTorch's, and what is proved of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from argus.graph.backend import Backend, Survey  # noqa: E402
from argus.graph.columns import has_columns  # noqa: E402
from argus.graph.convolution_tiles import _fewest_turns  # noqa: E402
from argus.graph.convolved import convolution  # noqa: E402
from argus.graph.prove import ProofRequest  # noqa: E402
from argus.runtime.executable import CachedSource  # noqa: E402
from tests.graph.compiled import compiled, left, same, taken  # noqa: E402

nn = torch.nn
CASES: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "strided": (lambda: nn.Conv2d(3, 5, 3, stride=2, padding=1), (2, 3, 9, 10)),
    "groups, dilated": (lambda: nn.Conv2d(4, 6, 3, groups=2, dilation=2), (2, 4, 9, 10)),
    "depthwise": (lambda: nn.Conv2d(4, 4, (3, 1), groups=4, padding=(1, 0)), (2, 4, 9, 10)),
    "depthwise, strided": (lambda: nn.Conv2d(5, 5, (3, 5), stride=(2, 1), groups=5, padding=2), (2, 5, 9, 21)),
    "depthwise, dilated": (lambda: nn.Conv2d(4, 4, 3, groups=4, dilation=(1, 2)), (2, 4, 9, 40)),
    "depthwise lines": (lambda: nn.Conv1d(6, 6, 5, groups=6, padding=2, bias=False), (3, 6, 37)),
    "one row of pixels": (lambda: nn.Conv2d(3, 4, (3, 3), padding=1), (2, 3, 1, 7)),
    "volumes": (lambda: nn.Conv3d(3, 4, (2, 3, 3), padding=1), (1, 3, 4, 5, 6)),
    "lines": (lambda: nn.Conv1d(3, 4, 3, stride=3, dilation=2), (2, 3, 20)),
    "transposed, groups": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=3, groups=2), (2, 4, 5, 6)),
    "transposed, groups, dilated": (lambda: nn.ConvTranspose1d(4, 4, 5, stride=2, dilation=3, groups=2), (2, 4, 7)),
    "transposed, groups, common factor": (
        lambda: nn.ConvTranspose1d(4, 4, 5, stride=4, dilation=2, padding=1, groups=2), (2, 4, 7)),
    "transposed, one by one": (lambda: nn.ConvTranspose2d(3, 4, 2, padding=1), (2, 3, 5, 6)),
    "maximum": (lambda: nn.MaxPool2d(3, 2, 1), (2, 3, 9, 11)),
    "maximum of volumes": (lambda: nn.MaxPool3d(2, dilation=2), (2, 3, 5, 6, 7)),
    "average": (lambda: nn.AvgPool2d(3, 2, 1), (2, 3, 9, 11)),
    "average inside": (lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), (2, 3, 9, 11)),
    "average rounded up": (lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True), (2, 3, 9, 10)),
    "maximum of a line": (lambda: nn.MaxPool1d(4, 1, 2, dilation=3), (2, 3, 20)),
    "average of a line": (lambda: nn.AvgPool1d(4, 1, 2), (2, 3, 20)),
    "average to a size": (lambda: nn.AdaptiveAvgPool2d((3, 2)), (2, 3, 6, 8)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_window_with_what_follows(case: str) -> None:
    torch.manual_seed(1)
    make, shape = CASES[case]
    report = same(nn.Sequential(make(), nn.ReLU()).eval(), torch.randn(shape))
    assert len(taken(report)) == 1
    assert not left(report)


def test_depthwise_with_channels_last() -> None:
    torch.manual_seed(1)
    images = torch.randn(2, 6, 9, 10).to(memory_format=torch.channels_last)
    report = same(nn.Sequential(nn.Conv2d(6, 6, 3, padding=1, groups=6), nn.Tanh()).eval(), images)
    assert taken(report) == ["clone", "convolution_tanh"]  # filters are laid out like the channels
    assert not left(report)


def test_depthwise_convolution_whose_result_has_channels_last() -> None:
    """A tile is turned in shared memory where images and results are contiguous along different axes."""
    torch.manual_seed(1)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Conv2d(6, 6, 3, padding=1, groups=6)

        def forward(self, x: Any) -> Any:
            return self.inner(x).permute(0, 2, 3, 1).contiguous() * 2.0

    report = same(Model().eval(), torch.randn(2, 6, 9, 10))
    path = next(row["path"] for row in report.rows if row["kernel"].startswith("convolution"))
    assert "al.trans" in Path(path).read_text(encoding="utf-8")
    assert not left(report)


LARGE_WINDOWS: dict[str, tuple[Callable[[], Any], tuple[int, ...], int]] = {
    "maximum": (lambda: nn.MaxPool2d(4, 1, 1), (2, 3, 12, 13), 2),
    "maximum, dilated": (lambda: nn.MaxPool2d((5, 4), (2, 3), (2, 1), dilation=(1, 2)), (2, 3, 19, 22), 2),
    "maximum, rounded up": (lambda: nn.MaxPool2d(5, 3, ceil_mode=True), (2, 3, 12, 13), 2),
    "average": (lambda: nn.AvgPool2d((5, 6)), (2, 3, 16, 25), 2),
    "average with its border": (lambda: nn.AvgPool2d(5, 2, 2), (2, 3, 16, 17), 2),
    "average of what is inside": (lambda: nn.AvgPool2d(5, 2, 2, count_include_pad=False), (2, 3, 16, 17), 1),
    "average, rounded up": (lambda: nn.AvgPool2d(5, 3, ceil_mode=True), (2, 3, 12, 13), 1),
    "average by another number": (lambda: nn.AvgPool2d(5, divisor_override=7), (2, 3, 16, 17), 1),
    "a line": (lambda: nn.AvgPool2d((1, 20)), (2, 3, 4, 41), 1),
}


@pytest.mark.parametrize("case", LARGE_WINDOWS)
def test_large_windows_are_pooled_by_rows_and_then_by_columns(case: str) -> None:
    torch.manual_seed(1)
    make, shape, kernels = LARGE_WINDOWS[case]
    report = same(make(), torch.randn(shape))
    assert len(taken(report)) == kernels
    assert not left(report)


@pytest.mark.parametrize(
    ("make", "channels"),
    [
        (lambda: nn.Conv2d(16, 24, 3, padding=1), 16),
        (lambda: nn.Conv2d(32, 24, 3, padding=1), 32),
    ],
    ids=["rows of pixels", "rows of channels"],
)
def test_implicit_product(make: Callable[[], Any], channels: int) -> None:
    torch.manual_seed(1)
    report = same(make().bfloat16(), torch.randn(2, channels, 9, 10).bfloat16(), tolerance=2e-2)
    assert {row["verdict"] for row in report.rows} == {"proved"}
    path = next(row["path"] for row in report.rows if row["kernel"].startswith("convolution"))
    with open(path, encoding="utf-8") as file:
        assert "al.mma" in file.read()


FLAT: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "dilated": (lambda: nn.Conv2d(64, 24, 3, dilation=2), (1, 64, 11, 12)),
    "volumes": (lambda: nn.Conv3d(64, 16, (2, 3, 3), padding=(1, 1, 0)), (1, 64, 2, 12, 13)),
    "transposed, grown": (lambda: nn.ConvTranspose1d(64, 24, 7, padding=2, dilation=2, output_padding=1), (2, 64, 9)),
}


@pytest.mark.parametrize("case", FLAT)
def test_convolution_without_strides_reads_boxes(case: str) -> None:
    """Values, strides of the result, and the proof of implicit products over runs of places."""
    torch.manual_seed(1)
    make, shape = FLAT[case]
    model, x = nn.Sequential(make(), nn.ReLU()).bfloat16(), torch.randn(shape).bfloat16()
    report = same(model, x, tolerance=3e-2)
    assert {row["verdict"] for row in report.rows} == {"proved"}
    path = next(row["path"] for row in report.rows if row["kernel"].startswith("convolution"))
    with open(path, encoding="utf-8") as file:
        assert "moved : moved + WIDTH" in file.read()


@pytest.mark.parametrize("last", [True, False], ids=["last", "first"])
def test_pixels_are_rows_of_a_tile_where_results_have_channels_last(last: bool) -> None:
    """Otherwise results would be turned in shared memory, which has no room for that beside the factors."""
    torch._dynamo.reset()
    backend, model = Backend(survey=Survey("sm_90a", prove=False)), nn.Conv2d(64, 128, 3).bfloat16()
    form = torch.channels_last if last else torch.contiguous_format
    with torch.no_grad():
        x = torch.randn(1, 64, 10, 12).bfloat16().to(memory_format=form)
        torch.compile(model, backend=backend, dynamic=False)(x)
    row = next(row for row in backend.report(model).rows if row["kernel"].startswith("convolution"))
    text = Path(row["path"]).read_text(encoding="utf-8")
    assert ("al.mma(windows, filters, total)" in text) == last


@pytest.mark.parametrize("make", [lambda: nn.Conv2d(64, 24, 3, padding=1), lambda: nn.Conv2d(64, 24, (3, 1), (2, 1))])
def test_convolutions_between_images_with_channels_last(make: Callable[[], Any]) -> None:
    torch.manual_seed(1)
    x = torch.randn(2, 64, 9, 20).bfloat16().to(memory_format=torch.channels_last)
    report = same(nn.Sequential(make(), nn.ReLU()).bfloat16(), x, tolerance=3e-2)
    assert {row["verdict"] for row in report.rows} == {"proved"}
    path = next(row["path"] for row in report.rows if row["kernel"].startswith("convolution"))
    assert "al.mma(windows, filters, total)" in Path(path).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("turned", "taps", "dtype", "width"),
    [(True, 2, torch.bfloat16, 128), (False, 2, torch.bfloat16, 256), (False, 1, torch.float32, 128)],
)
def test_tensors_that_are_turned_behind_products_have_room_in_shared_memory(
    turned: bool, taps: int, dtype: Any, width: int
) -> None:
    """A tensor with channels last is added, and the result has its channels first. With one tap, results are one run of
    memory, which the copy engine stores."""
    torch._dynamo.reset()
    backend, convolution = Backend(survey=Survey("sm_90a", prove=False)), nn.Conv2d(64, 128, (taps, 1)).to(dtype)

    def model(x: Any, y: Any) -> Any:
        made = convolution(x) + y
        return made.contiguous() if turned else made

    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        sizes = ((64, 127 + taps), (128, 128))
        x, y = (torch.randn(16, n, h, 128).to(dtype).to(memory_format=torch.channels_last) for n, h in sizes)
        call = torch.compile(model, backend=backend, dynamic=False)
        call(x, y)
    row = next(row for row in backend.report(call).rows if row["kernel"].startswith("convolution"))
    assert f"WIDTH: al.constexpr = {width}" in Path(row["path"]).read_text(encoding="utf-8")


@pytest.mark.parametrize(("places", "tile"), [(1 << 16, (128, 256)), (49, (64, 64))])
def test_few_places_have_small_tiles(places: int, tile: tuple[int, int]) -> None:
    """One image of 512 filters, which large tiles would spread over few multiprocessors."""
    assert _fewest_turns(512, places, ()) == tile


COLUMNS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "border": (lambda: nn.Conv2d(64, 24, (3, 5), padding=1), (2, 64, 9, 10)),
    "lines": (lambda: nn.Conv1d(64, 72, 7, stride=2, padding=3), (2, 64, 20)),
    "volumes": (lambda: nn.Conv3d(64, 32, (2, 3, 3), stride=(1, 2, 1), padding=(1, 1, 0)), (2, 64, 3, 5, 6)),
    "part of a row of channels": (lambda: nn.Conv2d(40, 104, 3, stride=2), (2, 40, 6, 9)),
    "transposed": (lambda: nn.ConvTranspose2d(64, 24, 3, padding=1, dilation=2), (2, 64, 6, 7)),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_convolution_with_strides_or_a_border_reads_pixels_in_the_order_of_windows(case: str) -> None:
    torch.manual_seed(1)
    make, shape = COLUMNS[case]
    report = same(nn.Sequential(make(), nn.ReLU()).bfloat16(), torch.randn(shape).bfloat16(), tolerance=3e-2)
    assert {row["verdict"] for row in report.rows} == {"proved"}
    path = next(row["path"] for row in report.rows if row["kernel"].startswith("convolution"))
    with open(path, encoding="utf-8") as file:
        assert "pixel = run * WIDTH" in file.read()


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last], ids=["first", "last"])
@pytest.mark.parametrize("further", [(0, 0), (1, 2)])
def test_a_transposed_convolution_with_one_tap_spreads_products(further: tuple[int, int], form: Any) -> None:
    torch.manual_seed(1)
    x = torch.randn(2, 6, 4, 5, dtype=torch.float64).to(memory_format=form)
    weight, steps = torch.randn(6, 3, 1, 1, dtype=torch.float64), ([2, 3], [0, 0], [1, 1], True, list(further), 1)
    found = convolution(x, weight, None, *steps)
    torch.testing.assert_close(found, torch.ops.aten.convolution(x, weight, None, *steps))
    assert found.stride(1) == 1 or form is torch.contiguous_format


def test_windows_beyond_the_limits_of_the_copy_engine_are_no_columns() -> None:
    assert has_columns((9, 10), (3, 5), (1, 1), (1, 1), (1, 1))
    assert not has_columns((300, 10), (3, 300), (1, 1), (0, 150), (1, 1))  # corners beyond 128
    assert not has_columns((40, 9), (3, 3), (9, 1), (1, 1), (1, 1))
    assert not has_columns((3, 9), (3, 3), (1, 1), (0, 0), (1, 1))  # one place
    assert not has_columns((5, 5, 5, 5), (1,) * 4, (2,) * 4, (0,) * 4, (1,) * 4)


PHASES: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "images": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), (2, 4, 5, 6)),
    "dilated": (lambda: nn.ConvTranspose1d(3, 4, 5, stride=2, dilation=3), (2, 3, 7)),
    "common factor": (lambda: nn.ConvTranspose1d(3, 4, 5, stride=4, dilation=2, padding=1), (2, 3, 7)),
}


@pytest.mark.parametrize("case", PHASES)
def test_transposed_convolutions_with_strides_are_proved_by_phases(case: str) -> None:
    torch.manual_seed(1)
    make, shape = PHASES[case]
    report = same(nn.Sequential(make(), nn.ReLU()).eval(), torch.randn(shape))
    assert {row["verdict"] for row in report.rows} == {"proved"}


ROWS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "few channels": (lambda: nn.Conv2d(8, 24, 3, padding=1), (1, 8, 6, 40)),
    "strides": (lambda: nn.Conv2d(3, 24, 7, stride=2, padding=3), (1, 3, 9, 40)),
    "strides of volumes": (lambda: nn.Conv3d(16, 48, 3, stride=2, dilation=(2, 1, 1)), (1, 16, 7, 5, 44)),
}


@pytest.mark.parametrize("case", ROWS)
def test_joined_taps_are_read_by_boxes(case: str) -> None:
    """Values, and the proof of implicit products over pixels of a row, whose windows overlap in memory."""
    torch.manual_seed(1)
    make, shape = ROWS[case]
    report = same(nn.Sequential(make(), nn.ReLU()).bfloat16(), torch.randn(shape).bfloat16(), tolerance=3e-2)
    assert {row["verdict"] for row in report.rows} == {"proved"}
    path = next(row["path"] for row in report.rows if row["kernel"].startswith("convolution"))
    assert ": at" in Path(path).read_text(encoding="utf-8")


@pytest.mark.parametrize("grown", [0, 1], ids=["cut off", "whole phases"])
def test_phases_of_a_transposed_convolution_are_filters(grown: int) -> None:
    """The convolution's kernel puts results in turns, also if places of the last phase are missing."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.ConvTranspose2d(32, 16, 3, stride=2, padding=1, output_padding=grown), nn.ReLU())
    report = same(model.bfloat16(), torch.randn(2, 32, 5, 6).bfloat16(), tolerance=3e-2)
    assert {row["verdict"] for row in report.rows} == {"proved"}
    assert "convolution_in_turns_add_relu" in taken(report)


TURNED: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "by rows": (lambda: nn.ConvTranspose2d(6, 24, 3, stride=2, padding=1), (1, 6, 5, 40)),
    "volumes": (lambda: nn.ConvTranspose3d(32, 5, 3, stride=2, padding=1, output_padding=1), (1, 32, 3, 5, 4)),
    "before the first place": (lambda: nn.ConvTranspose2d(32, 8, 4, stride=(2, 3), padding=2), (2, 32, 6, 7)),
    "images of short rows": (lambda: nn.ConvTranspose2d(32, 20, (3, 4), stride=(3, 2), padding=(1, 2)), (3, 32, 5, 20)),
    "no tap meets some": (lambda: nn.ConvTranspose1d(32, 32, 3, stride=2, padding=1, dilation=2), (2, 32, 9)),
}


@pytest.mark.parametrize("case", TURNED)
def test_phases_are_stored_in_turns(case: str) -> None:
    torch.manual_seed(1)
    make, shape = TURNED[case]
    model = nn.Sequential(make(), nn.Hardtanh(-0.5, 0.5)).bfloat16()
    report = same(model, torch.randn(shape).bfloat16(), tolerance=3e-2)
    assert {row["verdict"] for row in report.rows} == {"proved"}
    assert "convolution_in_turns_add_hardtanh" in taken(report)


def test_result_of_a_convolution_is_laid_out_as_in_eager() -> None:
    torch.manual_seed(1)
    model = nn.Conv2d(64, 32, 3, padding=1).bfloat16()
    for x in (torch.randn(2, 64, 6, 7), torch.randn(2, 64, 6, 7).to(memory_format=torch.channels_last)):
        call, _ = compiled(model)
        with torch.no_grad():
            assert call(x.bfloat16()).stride() == model(x.bfloat16()).stride()


@pytest.mark.parametrize("transposed", [False, True], ids=["", "transposed"])
def test_on_hopper_rows_of_channels_are_multiplied_asynchronously(transposed: bool) -> None:
    torch._dynamo.reset()
    backend = Backend(survey=Survey("sm_90a", prove=False))
    model = (nn.ConvTranspose2d if transposed else nn.Conv2d)(64, 128, 3, stride=2, padding=1)
    with torch.no_grad():
        torch.compile(model, backend=backend, dynamic=False)(torch.randn(1, 64, 16, 16))
    path = next(row["path"] for row in backend.report(model).rows if row["kernel"].startswith("convolution"))
    with open(path, encoding="utf-8") as file:
        assert "producer_warps" in file.read()


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Conv1d(64, 128, 3), (1, 64, 40)),
        (lambda: nn.ConvTranspose3d(8, 8, 3, stride=2, padding=1, groups=4), (1, 8, 4, 6, 5)),
        (lambda: nn.Conv2d(64, 128, 3).to(memory_format=torch.channels_last), (1, 64, 40, 40)),
    ],
    ids=["whole lines of results", "grid of many axes", "channels last"],
)
def test_convolutions_are_proved_for_hopper(make: Callable[[], Any], shape: tuple[int, ...]) -> None:
    """Shared memory is enough, and a grid has as many axes as the language allows."""
    torch._dynamo.reset()
    backend, model = Backend(survey=Survey("sm_90a")), make().bfloat16()
    with torch.no_grad():
        torch.compile(model, backend=backend, dynamic=False, options={"workers": 1})(torch.randn(shape).bfloat16())
    assert {row["verdict"] for row in backend.report(model).rows} == {"proved"}


@pytest.mark.parametrize(("width", "together"), [(16, True), (15, False)])
def test_pixels_of_a_line_are_stored_together(width: int, together: bool) -> None:
    """Results of a convolution leave by pairs, if lines begin at even places in the image and in memory."""
    torch._dynamo.reset()
    backend, model = Backend(survey=Survey("sm_90a")), nn.Conv2d(64, 64, 3).bfloat16()
    with torch.no_grad():
        call = torch.compile(model, backend=backend, dynamic=False, options={"workers": 1})
        call(torch.randn(1, 64, 8, width).bfloat16())
    row = next(r for r in backend.report(model).rows if r["kernel"].startswith("convolution"))
    text = Path(row["path"]).read_text(encoding="utf-8")
    order = ProofRequest(row["kernel"], text, "sm_90a", {"y0": 4 if together else 2})
    emitted = CachedSource(order.source()).executable(order.options).source
    assert ("store_global_if<2>" in emitted) == together


def test_uneven_windows_are_left() -> None:
    report = same(nn.AdaptiveAvgPool2d((4, 3)), torch.randn(2, 3, 6, 8))
    assert left(report) == ["_adaptive_avg_pool2d.default"]
    assert "windows of different sizes" in report.rows[0]["reason"]


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Conv2d(16, 8, 1), (2, 16, 1, 1)),
        (lambda: nn.Conv2d(4, 8, 3, stride=2, dilation=2), (2, 4, 6, 5)),
        (lambda: nn.Conv1d(16, 8, 2, bias=False), (3, 16, 2)),
    ],
    ids=["one tap", "part of an image", "a line"],
)
def test_a_convolution_with_one_pixel_is_a_product(make: Callable[[], Any], shape: tuple[int, ...]) -> None:
    report = same(make(), torch.randn(shape))
    assert "convolution" not in "".join(taken(report)) and not left(report)


def test_a_convolution_with_one_pixel_of_few_channels_is_no_product() -> None:
    """Products may round float32 to TF32, and convolutions of few channels may not."""
    report = same(nn.Conv2d(4, 8, 1), torch.randn(2, 4, 1, 1))
    assert "convolution" in taken(report) and not left(report)


def test_the_mean_of_one_pixel_is_the_pixel() -> None:
    assert not left(same(lambda x: torch.relu(x).mean((2, 3)), torch.randn(2, 16, 1, 1)))


def test_places_of_maxima_are_left() -> None:
    report = same(nn.MaxPool2d(2, return_indices=True), torch.randn(2, 3, 6, 8))
    assert left(report) == ["max_pool2d_with_indices.default"]


def test_survey_runs_nothing() -> None:
    torch._dynamo.reset()
    backend = Backend(survey=Survey("sm_90a", prove=False))
    model = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU())
    with torch.no_grad():
        torch.compile(model, backend=backend, dynamic=False)(torch.randn(1, 16, 8, 8))
    rows = backend.report(model).rows
    assert {(row["verdict"], row["by"]) for row in rows} == {("generated", "argus")}
    row = next(row for row in rows if "convolution.default" in row["operators"])
    with open(row["path"], encoding="utf-8") as file:
        assert "tfloat32" in file.read()
