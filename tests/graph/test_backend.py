"""`torch.compile(backend="argus")` on the CPU target: what is computed, what is proved, and what is left to PyTorch."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import unset_fake_temporarily  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from argus.diagnostic import LaunchError  # noqa: E402
from argus.graph import capture, compile_report  # noqa: E402
from argus.graph.backend import Backend, Survey  # noqa: E402
from argus.graph.capture import Meta  # noqa: E402
from argus.graph.group import Group  # noqa: E402
from argus.graph.options import Options  # noqa: E402
from argus.graph.partition import narrowest  # noqa: E402
from argus.graph.report import contents  # noqa: E402
from argus.graph.space import Space  # noqa: E402
from tests.graph.compiled import compiled, left, same, same_gradients, taken  # noqa: E402


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def test_a_perceptron_is_two_kernels() -> None:
    model = nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.Linear(20, 5))
    report = same(model, torch.randn(7, 12))
    assert taken(report) == ["addmm_gelu", "addmm"]
    assert report.proved_share == pytest.approx(1.0)
    assert set(report.rows[0]) >= {"kernel", "share", "verdict", "specified", "reason", "equality", "path"}


def test_a_number_that_the_model_writes_down_is_written_in_the_kernel() -> None:
    report = same(lambda x: torch.minimum(x, torch.tensor(0.25)) + 1, torch.randn(4, 20))
    assert taken(report) == ["minimum_add"] and not left(report)
    assert "0.25" in Path(report.rows[0]["path"]).read_text(encoding="utf-8")


def test_half_precision_products_use_matrix_instructions() -> None:
    a, b = torch.randn(40, 24).bfloat16(), torch.randn(24, 33).bfloat16()
    report = same(lambda a, b: torch.tanh(a @ b) * 2, a, b, tolerance=2e-2)
    assert taken(report) == ["mm_tanh_mul"]
    text = Path(report.rows[0]["path"]).read_text(encoding="utf-8")
    assert "al.mma" in text and "al.spec" in text


@pytest.mark.parametrize(
    "model",
    [
        lambda x: x[:, None] - x[None],
        lambda x: x[:, None] >= x[None],
        lambda x: torch.where(x[:, None] > x[None], x[:, None], x[None]) + x,
        lambda x: (x[:, None] - x[None]).abs().sum(-1),
        lambda x: x.view(4, 5)[:, None] * x.view(4, 5)[None],
        lambda x: (x.view(20, 1) + torch.ones(20)) - (x.view(20, 1) + torch.ones(20)).t(),
    ],
)
def test_a_tensor_along_two_axes_at_once_is_read_twice(model: Any) -> None:
    """One reading would serve both axes only on the diagonal, and the rest of the result would stay unwritten."""
    report = same(model, torch.randn(20))
    assert taken(report) and not left(report)


def test_numbers_fill_tensors_of_sizes_that_are_known_when_they_run() -> None:
    def model(x: Any) -> Any:
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        return torch.where(mask, x, -1.0).relu() + torch.zeros(x.shape[0], x.shape[1])

    call, backend = compiled(model, dynamic=True)
    for size in (5, 9):
        x = torch.randn(size, size)
        torch.testing.assert_close(call(x), model(x))
    assert taken(backend.report(call))


def test_refused_launches_of_views_with_sizes_that_are_known_when_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise LaunchError.of("shape-mismatch", "refused by a test", "none")

    monkeypatch.setattr("argus.graph.launch.Kernel.seen", refuse)
    call, _ = compiled(lambda x: x.view(x.shape[0] * x.shape[1], -1).relu() + x.shape[0], dynamic=True)
    for size in (5, 9):
        x = torch.randn(size, 4, 3)
        torch.testing.assert_close(call(x), x.view(size * 4, -1).relu() + size)


def test_a_model_that_writes_its_inputs_writes_them() -> None:
    def model(x: Any, y: Any) -> Any:
        x.add_(1)
        y[0].zero_()
        return x.sum() + y.sum()

    call, _ = compiled(model, dynamic=False)
    given = [[torch.ones(4, 4), torch.ones(4, 5)] for _ in range(2)]
    with torch.no_grad():
        assert torch.equal(model(*given[0]), call(*given[1]))
    assert all(torch.equal(a, b) for a, b in zip(*given, strict=True))


def test_norms_with_their_surroundings_are_one_kernel() -> None:
    norm = nn.LayerNorm(40)
    report = same(lambda x, r: F.silu(norm(x + r)) * 2, torch.randn(3, 5, 40), torch.randn(3, 5, 40))
    assert taken(report) == ["add_native_layer_norm_sigmoid_mul"]


def test_rms_norm_from_its_parts() -> None:
    def norm(x: Any, w: Any) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w

    assert taken(same(norm, torch.randn(6, 33), torch.randn(33))) == ["pow_mean_add_rsqrt_mul"]


def test_softmax_is_one_kernel() -> None:
    def scores(x: Any, bias: Any) -> Any:
        return torch.softmax(x * 0.5 + bias, -1) * 3

    assert taken(same(scores, torch.randn(4, 3, 17), torch.randn(17))) == ["mul_add_softmax"]


def test_log_softmax_and_reductions() -> None:
    x = torch.randn(9, 21)
    assert taken(same(lambda x: torch.log_softmax(x, -1), x)) == ["log_softmax"]
    assert taken(same(lambda x: x.var(-1) + x.mean(-1), x)) == ["var_mean_add"]
    assert taken(same(lambda x: (x * x).sum(0), x)) == ["mul_sum"]
    assert taken(same(lambda x: x.amax(-1) - x.amin(-1), x)) == ["amax_amin_sub"]
    assert taken(same(lambda x, y: ((x - y) ** 2).mean(), x, torch.randn(9, 21))) == ["sub_pow_mean"]


def test_long_rows_are_read_piece_by_piece() -> None:
    x = torch.randn(2, 9001)
    report = same(lambda x: torch.softmax(x, -1), x)
    assert taken(report) == ["softmax"]
    assert "for b0 in range(0, B, WIDTH)" in Path(report.rows[0]["path"]).read_text(encoding="utf-8")


def test_attention_that_is_written_out() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(16, 48)
            self.out = nn.Linear(16, 16)

        def forward(self, x: Any) -> Any:
            b, t, d = x.shape
            q, k, v = (y.view(b, t, 2, 8).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
            weights = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1)
            return self.out((weights @ v).transpose(1, 2).reshape(b, t, d))

    report = same(Attention(), torch.randn(2, 6, 16))
    assert not left(report)


def test_gradients_of_a_perceptron_with_a_loss() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.norm, self.down = nn.Linear(6, 10), nn.LayerNorm(10), nn.Linear(10, 3)

        def forward(self, x: Any) -> Any:
            return self.down(torch.tanh(self.norm(self.up(x)))).pow(2).mean()

    report = same_gradients(Model(), torch.randn(8, 6))
    assert not left(report)
    assert {row["graph"] for row in report.rows} == {"forward", "backward"}


def test_a_convolution_net_is_taken() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.SiLU(), nn.Flatten(), nn.Linear(4 * 36, 5)).eval()
    report = same(model, torch.randn(2, 3, 8, 8))
    assert not left(report)
    assert report.proved_share == pytest.approx(1)


def test_a_net_is_left_where_kernels_end() -> None:
    report = same(lambda x: x.relu().sort().values + 1, torch.randn(4, 5))
    assert left(report) == ["sort.default"]
    assert "no row" in next(row["reason"] for row in report.rows if row["by"] == "eager")
    assert report.proved_share < 1


def test_sizes_may_be_symbolic() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU())
    call, backend = compiled(model, dynamic=True)
    with torch.no_grad():
        for rows in (5, 3, 70):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(call(x), model(x), rtol=1e-5, atol=1e-5)
    report = backend.report(call)
    assert len({row["kernel"] for row in report.rows}) == len(report.rows) == 2
    assert not any(row["reason"] for row in report.rows)


def test_what_is_written_in_place_and_what_shares_memory() -> None:
    def model(x: Any) -> Any:
        y = x[:, 1:]
        y.mul_(2.0)
        return x + y.sum(), y

    wanted = torch.randn(4, 6)
    found = wanted.clone()
    call, _ = compiled(model, dynamic=False)
    for a, b in zip(call(found), model(wanted), strict=True):
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(found, wanted)


def test_random_numbers_are_those_of_pytorch() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)).train()
    call, backend = compiled(model, dynamic=False)
    x = torch.randn(4, 8)
    with torch.no_grad():
        torch.manual_seed(7)
        found = call(x)
        torch.manual_seed(7)
        torch.testing.assert_close(found, model(x))
    assert any("rand" in row["reason"] or "dropout" in row["reason"] for row in backend.report(call).rows)


def test_graph_breaks_make_several_graphs() -> None:
    def model(x: Any) -> Any:
        y = torch.exp(x) + 1
        torch._dynamo.graph_break()
        return torch.log(y) * 2

    x = torch.randn(5, 6)
    call, backend = compiled(model, dynamic=False)
    with torch.no_grad():
        torch.testing.assert_close(call(x), model(x))
    assert len(backend.graphs) == 2


def test_gradients_of_relu_and_losses_of_differences_are_choices() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: Any, y: Any) -> Any:
            return F.huber_loss(self.inner(x), y)

    report = same_gradients(Loss(), torch.randn(5, 6), torch.randn(5, 3))
    assert {row["reason"] for row in report.rows} <= {"", "a kernel of one element"}


def test_what_is_reduced_may_decide() -> None:
    def model(x: Any) -> Any:
        total = x.sum(-1)
        return torch.where(total < 1.0, 0.0, total * 2)

    assert taken(same(model, torch.randn(9, 12))) == ["sum_lt_mul_where"]


def test_a_square_is_computed_where_it_is_summed() -> None:
    w = torch.randn(12, 12)

    def model(x: Any) -> Any:
        y = x @ w + x
        return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)

    assert taken(same(model, torch.randn(9, 12))) == ["mm_add", "pow_mean_add_rsqrt_mul"]


def test_the_package_names_the_backend() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    named = text.partition("[project.entry-points.torch_dynamo_backends]\n")[2].splitlines()[0]
    module, _, name = named.partition(" = ")[2].strip('"').partition(":")
    assert named.startswith("argus = ")
    assert isinstance(getattr(importlib.import_module(module), name), Backend)


def test_autocast_is_part_of_the_graph() -> None:
    linear = nn.Linear(16, 8)

    def model(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return torch.relu(linear(x))

    same(model, torch.randn(4, 16), tolerance=2e-2)


@pytest.mark.parametrize(
    "inputs",
    [
        (torch.randn(4, 5, dtype=torch.float64),),
        (torch.randint(0, 5, (4, 5)),),
        (torch.randn(4, 5, dtype=torch.complex64),),
        (torch.randn(0, 5),),
        (torch.randn(4, 5).to_sparse(),),
    ],
    ids=["float64", "integers", "complex", "empty", "sparse"],
)
def test_what_kernels_do_not_compute_is_left(inputs: Any) -> None:
    def model(x: Any) -> Any:
        return (x * x + x) if not x.is_sparse else x * 2

    call, backend = compiled(model, dynamic=False)
    found, wanted = call(*inputs), model(*inputs)
    if wanted.is_sparse:
        found, wanted = found.to_dense(), wanted.to_dense()
    torch.testing.assert_close(found, wanted)
    assert not any(entry.by == "argus" for graph in backend.graphs for entry in graph.entries)


def test_nan_and_infinities_come_out_as_in_pytorch() -> None:
    x = torch.tensor([[1.0, float("nan"), -2.0], [float("inf"), 1.0, 2.0], [-float("inf"), 0.0, 1.0]])
    same(lambda x: torch.relu(x) + x.clamp(-1, 1), x)
    same(lambda x: x.amax(-1), x)


def test_a_launch_that_is_refused_is_done_by_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    from argus.diagnostic import LaunchError
    from argus.graph.launch import Kernel

    call, backend = compiled(lambda x: torch.exp(x) * 2, dynamic=False)
    x = torch.randn(4, 5)
    call(x)

    def refuse(*_: Any) -> None:
        raise LaunchError.of("extent-too-large", "an extent is too large", "use smaller tensors")

    for graph in backend.graphs:
        for entry in graph.entries:
            assert isinstance(entry.call, Kernel)
            monkeypatch.setattr(entry.call, "run", refuse)
    torch.testing.assert_close(call(x), torch.exp(x) * 2)
    assert "extent is too large" in backend.report(call).rows[0]["reason"]


def test_a_kept_launch_is_for_tensors_like_the_first_ones() -> None:
    x, row = torch.randn(4, 12), torch.randn(12)
    call, backend = compiled(lambda x, row: torch.exp(x.transpose(0, 1)) * row[:, None], dynamic=False)
    call(x, row)
    (entry,) = [e for g in backend.graphs for e in g.entries]
    assert entry.call.run is not None
    shifted = torch.randn(49)[1:].view(4, 12)  # begins at a multiple of 4 bytes only
    for other in (torch.randn(4, 12), shifted, torch.randn(12, 4).T):
        torch.testing.assert_close(call(other, row), torch.exp(other.transpose(0, 1)) * row[:, None])
    assert not entry.refused


def test_a_model_that_was_not_compiled_has_no_report() -> None:
    with pytest.raises(ValueError, match="compile it with"):
        compile_report(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="not been called"):
        compile_report(torch.compile(nn.Linear(2, 2), backend="argus"))


def test_modes_are_those_of_inductor() -> None:
    assert Options.of(None, "reduce-overhead").cudagraphs and not Options.of(None, "default").cudagraphs
    assert not Options.of({"cudagraphs": False}, "max-autotune").cudagraphs
    with pytest.raises(ValueError, match="no mode 'fast'"):
        Options.of(None, "fast")


def test_without_a_gpu_the_report_says_that_no_cuda_graph_is_recorded() -> None:
    call, backend = compiled(lambda x: x * 2 + 1, cudagraphs=True)
    with torch.no_grad():
        assert torch.equal(call(torch.ones(3, 4)), torch.full((3, 4), 3.0))
    (note,) = backend.report(call).notes
    assert note == "inference: no CUDA graph: no tensor is on a GPU" and note in str(backend.report(call))


def test_products_for_which_pytorch_is_faster_are_left_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def why(own: Any, other: Any, metas: Any) -> str:
        with unset_fake_temporarily():  # the graph is being compiled
            tensors = [torch.randn(meta.shape) for meta in metas]
            torch.testing.assert_close(tuple(own(*tensors)), tuple(other(*tensors)), rtol=1e-5, atol=1e-5)
        return "PyTorch is faster here"

    monkeypatch.setattr("argus.graph.backend.why_left", why)
    a, b = torch.randn(8, 12), torch.randn(12, 20)
    reports = {}
    for prefer in ("proved", "auto", "fast"):
        torch._dynamo.reset()
        backend = Backend()
        options = {"fallback": "eager", "workers": 1, "prefer": prefer}
        call = torch.compile(lambda a, b: torch.tanh(a @ b), backend=backend, options=options)
        torch.testing.assert_close(call(a, b), torch.tanh(a @ b))
        reports[prefer] = backend.report(call)
    assert taken(reports["proved"]) == taken(reports["auto"]) == ["mm_tanh"] and taken(reports["fast"]) == ["tanh"]
    assert left(reports["fast"]) == ["mm.default"] and "PyTorch is faster here" in str(reports["fast"])


def test_convolutions_for_which_pytorch_is_faster_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("argus.graph.backend.why_left", lambda *_: "PyTorch is faster here")
    torch._dynamo.reset()
    backend, model = Backend(), nn.Sequential(nn.Conv1d(2, 3, 2, bias=False), nn.Tanh())
    call = torch.compile(model, backend=backend, options={"fallback": "eager", "workers": 1})
    with torch.no_grad():
        x = torch.randn(2, 2, 7)
        torch.testing.assert_close(call(x), model(x))
    assert left(backend.report(call)) == ["convolution.default"] and taken(backend.report(call)) == ["tanh"]


def test_options_are_checked() -> None:
    assert Options.of({"fallback": "eager"}).fallback == "eager"
    with pytest.raises(ValueError, match="no option 'fallbock'"):
        Options.of({"fallbock": "eager"})
    with pytest.raises(ValueError, match="'inductor' or 'eager'"):
        Options.of({"fallback": "triton"})


def test_inductor_takes_what_is_left() -> None:
    torch._dynamo.reset()
    backend = Backend()
    call = torch.compile(lambda x: torch.cumsum(x, -1) * 2, backend=backend, dynamic=False)
    x = torch.randn(4, 5)
    torch.testing.assert_close(call(x), torch.cumsum(x, -1) * 2)
    assert {row["by"] for row in backend.report(call).rows if row["verdict"] == "left"} <= {"inductor", "eager"}


def test_the_report_prints() -> None:
    call, backend = compiled(nn.Linear(3, 4), dynamic=False)
    with torch.no_grad():
        call(torch.randn(2, 3))
    text = str(backend.report(call))
    assert "addmm" in text and "proved" in text and "estimated" in text


def test_operators_that_are_left_may_read_views_of_each_other() -> None:
    """Indices of the loss are integers: what is made of them is left, with the view between two of the operators."""
    targets = torch.tensor([3, -100, 0, 8])
    report = same(lambda x: F.cross_entropy(x, targets), torch.randn(4, 9))
    assert "where.self" in left(report)


def test_a_softmax_is_not_written_for_elements_that_are_picked() -> None:
    places = torch.tensor([[3], [0], [8], [8]])
    report = same(lambda x: torch.log_softmax(x, 1).gather(1, places), torch.randn(4, 9))
    assert not any("log_softmax" in name for name in taken(report))
    whole = same(lambda x: torch.log_softmax(x, 1).gather(1, places[:2]), torch.randn(4, 9))
    assert any("log_softmax" in name for name in taken(whole))


def test_float32_products_are_left_to_the_library_of_a_gpu() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    for dtype, device, taken_here in ((torch.float32, "cuda", False), (torch.bfloat16, "cuda", True)):
        with FakeTensorMode():
            values = [torch.empty(8, 8, dtype=dtype, device=device) for _ in range(3)]
        graph = torch.fx.Graph()
        a, b = graph.placeholder("a"), graph.placeholder("b")
        product = graph.call_function(torch.ops.aten.mm.default, (a, b))
        for node, value in zip((a, b, product), values, strict=True):
            node.meta["val"] = value
        assert (capture.refusal(product) == "") is taken_here


def test_costly_functions_behind_a_product_are_a_kernel_of_their_own() -> None:
    linear = nn.Linear(4, 6)
    both = same(lambda x: F.gelu(linear(x)).tanh(), torch.randn(3, 4))
    assert [row["operators"][0] for row in both.rows] == ["addmm.default", "gelu.default"]
    mish = same(lambda x: F.mish(linear(x)), torch.randn(3, 4) * 20)
    assert [row["operators"] for row in mish.rows] == [("addmm.default", "tanh_softplus.default", "mul.Tensor")]
    silu = same(lambda x: F.silu(linear(x)), torch.randn(3, 4))
    assert len(silu.rows) == 1


def test_factors_of_a_batch_norm_are_part_of_the_kernel_that_uses_them() -> None:
    norm = nn.BatchNorm2d(4).eval()
    norm.running_mean, norm.running_var = torch.randn(4), torch.rand(4) + 0.5
    for before in (nn.Conv2d(3, 4, 3), nn.ReLU()):
        image = torch.randn(2, 3 + isinstance(before, nn.ReLU), 6, 6)
        model = nn.Sequential(before, norm, nn.ReLU()).eval()
        assert [row["verdict"] for row in same(model, image).rows] == ["proved"]


def test_factors_of_a_batch_norm_beside_a_large_image_are_a_kernel_of_their_own() -> None:
    for side, kernels in ((32, 1), (320, 2)):
        backend, norm = Backend(survey=Survey("sm_90a", prove=False)), nn.BatchNorm2d(64).eval()
        torch._dynamo.reset()
        with torch.no_grad():
            torch.compile(norm, backend=backend, dynamic=False, options={"workers": 1})(torch.empty(1, 64, side, side))
        assert len(backend.report(norm).rows) == kernels


def test_a_group_is_cut_where_the_fewest_values_cross() -> None:
    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    first = graph.call_function(torch.ops.aten.neg.default, (x,))
    factor = graph.call_function(torch.ops.aten.exp.default, (y,))
    scaled = graph.call_function(torch.ops.aten.mul.Tensor, (first, factor))
    last = graph.call_function(torch.ops.aten.add.Tensor, (scaled, factor))
    for node in (x, y, first, factor, scaled, last):
        node.meta["val"] = torch.empty(2, 3)
    assert narrowest(Group([first, factor, scaled, last], Space())) == 1
    assert narrowest(Group([first, scaled], Space())) == 1


@pytest.mark.parametrize(("terms", "dtype"), [(3, "float32"), (15, "float32"), (16, "tfloat32"), (64, "tfloat32")])
def test_products_of_few_terms_are_not_rounded_to_tf32(terms: int, dtype: str) -> None:
    backend = Backend(survey=Survey("sm_90a", prove=False))
    call = torch.compile(torch.bmm, backend=backend, dynamic=False, options={"workers": 1})
    torch._dynamo.reset()
    before, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, True
    try:
        call(torch.randn(4, 32, terms), torch.randn(4, terms, 48))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    (row,) = [row for row in backend.report(call).rows if row["kernel"] == "bmm"]
    text = Path(row["path"]).read_text(encoding="utf-8")
    assert f"x1: al.Tensor[al.{dtype}," in text


def test_a_mean_over_several_axes_is_one_kernel() -> None:
    report = same(lambda x: x.mean((0, 2)) * 2, torch.randn(3, 4, 5))
    assert [row["verdict"] for row in report.rows] == ["proved"]


@pytest.mark.parametrize(("shape", "strides"), [((2, 3), (3, 1)), ((4, 3), (0, 1)), ((5, 8), (2, 1)), ((0, 3), (3, 1))])
def test_contents_of_measured_tensors_may_overlap(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    made = contents(Meta(shape, strides, "float32", "cpu", False))
    assert (tuple(made.shape), made.stride()) == (shape, strides)
    assert bool(made.isfinite().all())
