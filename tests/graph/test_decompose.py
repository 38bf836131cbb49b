"""Decompositions against the operators that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus.graph import decompose, two_steps  # noqa: E402
from tests.graph.compiled import same  # noqa: E402

aten = torch.ops.aten


def agree(op: Any, *args: Any, **kwargs: Any) -> None:
    """The decomposition is one, and gives what the operator does."""
    found = decompose.decompositions()[op](*args, **kwargs)
    assert found is not NotImplemented
    torch.testing.assert_close(found, op(*args, **kwargs), rtol=1e-4, atol=1e-4, equal_nan=True)


def stays(op: Any, *args: Any, **kwargs: Any) -> None:
    assert decompose.decompositions()[op](*args, **kwargs) is NotImplemented


def image(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


def whole(*shape: int) -> Any:
    """Whole numbers in 16 bits, whose sums do not depend on their order."""
    return image(*shape).round().to(torch.bfloat16)


def masked() -> Any:
    """Long rows: one of which a whole part is masked, one with everything masked, one with an infinity."""
    x = image(4, 3 * 8192)
    x[0, 8192 : 2 * 8192] = -float("inf")
    x[1] = -float("inf")
    x[2, 5] = float("inf")
    return x


def repeated(*shape: int) -> Any:
    """Few different numbers, so that extrema repeat, and a NaN."""
    x = image(*shape).round()
    x.view(-1)[x.numel() // 2] = float("nan")
    return x


TALL = image(16, 4, 32, 32)
CASES: dict[str, Callable[[], None]] = {
    "sum of channels": lambda: agree(aten.sum.dim_IntList, TALL, [0, 2, 3]),
    "sum of channels, kept": lambda: agree(aten.sum.dim_IntList, TALL, [0, 2, 3], True),
    "sum of columns": lambda: agree(aten.sum.dim_IntList, image(8192, 6), [0]),
    "sum of everything": lambda: agree(aten.sum.default, TALL),
    "gradients of a convolution": lambda: agree(
        aten.convolution_backward.default, image(2, 6, 4, 5), image(2, 3, 8, 9), image(6, 3, 3, 2), [6],
        [2, 2], [1, 1], [1, 2], False, [0, 0], 1, [True] * 3),
    "rows of an embedding, one of which pads": lambda: agree(
        aten.embedding_dense_backward.default, image(6, 5), torch.tensor([1, 2, 2, 0, 6, 1]), 7, 2, False),
    "rows added at places": lambda: agree(
        aten.index_put.default, image(4, 6, 5), [None, torch.tensor([[1, -1], [1, 0]])], image(4, 2, 2, 5), True),
    "one row added at places": lambda: agree(
        aten.index_put.default, image(6, 5), [torch.tensor([1, -1, 1])], image(5), True),
    "places of two tensors": lambda: agree(
        aten.index_put.default, image(4, 3, 5), [None, torch.tensor([[0], [-1]]), torch.tensor([2, 2, 4])],
        image(4, 2, 3), True),
    "places of two tensors apart": lambda: agree(
        aten.index_put.default, image(4, 3, 5), [torch.tensor([0, -1, 0]), None, torch.tensor([2, 2, 2])],
        image(3, 3), True),
    "rows scattered": lambda: agree(
        aten.scatter_add.default, image(4, 5), 0, torch.tensor([[3], [0], [3]]).expand(3, 5), image(6, 5)),
    "columns scattered": lambda: agree(
        aten.scatter_add.default, image(4, 5), -1, torch.tensor([4, 0]).expand(4, 2), image(4, 2)),
    "an encoder layer": lambda: agree(
        aten._transformer_encoder_layer_fwd.default, image(2, 3, 8), 8, 2, image(24, 8), image(24), image(8, 8),
        image(8), False, True, 1e-5, *(image(8) for _ in range(4)), image(12, 8), image(12), image(8, 12), image(8)),
    "other strides of single elements": lambda: agree(aten.as_strided.default, image(4, 6, 1), [4, 6, 1], [6, 1, 6]),
    "a tensor written as a whole": lambda: agree(
        aten.as_strided_scatter.default, image(4, 6), image(3, 8), [3, 8], [8, 1]),
    "sum of half": lambda: agree(aten.sum.dim_IntList, image(6, 8192, dtype=torch.bfloat16), [1], dtype=torch.float32),
    "mean of columns": lambda: agree(aten.mean.dim, image(8192, 6), [0], True),
    "mean of everything": lambda: agree(aten.mean.default, TALL),
    "maximum": lambda: agree(aten.amax.default, image(8192, 6), [0]),
    "minimum": lambda: agree(aten.amin.default, image(8192, 6), [0], True),
    "maximum of everything": lambda: agree(aten.max.default, TALL),
    "minimum of everything": lambda: agree(aten.min.default, TALL),
    "variance": lambda: agree(aten.var.correction, image(3, 4 * 8192), [1]),
    "variance and mean": lambda: agree(aten.var_mean.correction, TALL, [0, 2, 3], correction=0, keepdim=True),
    "variance of images": lambda: agree(aten.var_mean.correction, image(2, 3, 128, 130), [2, 3], correction=1),
    "norm": lambda: agree(aten.linalg_vector_norm.default, image(8192, 6), 2, [0]),
    "norm of everything": lambda: agree(aten.linalg_vector_norm.default, TALL, 1),
    "layer norm": lambda: agree(
        aten.native_layer_norm.default, image(2, 4, 64, 64), [4, 64, 64], image(4, 64, 64), image(4, 64, 64), 1e-5),
    "softmax": lambda: agree(aten._softmax.default, image(3, 5 * 8192), -1, False),
    "softmax of masked rows": lambda: agree(aten._softmax.default, masked(), 1, False),
    "logarithm of softmax": lambda: agree(aten._log_softmax.default, image(3, 5 * 8192), 1, False),
    "group norm": lambda: agree(aten.native_group_norm.default, image(2, 6, 5), image(6), image(6), 2, 6, 5, 3, 1e-5),
    "batch norm": lambda: agree(
        aten._native_batch_norm_legit_no_training.default, image(2, 6, 5), image(6), image(6), image(6),
        image(6).square(), 0.1, 1e-5),
    "batch norm without parameters": lambda: agree(
        aten._native_batch_norm_legit_no_training.default, image(2, 6, 5), None, None, image(6), image(6).square(),
        0.1, 1e-5),
    "matrix and vector": lambda: agree(aten.mm.default, image(5, 7), image(7, 1)),
    "vector and matrix": lambda: agree(aten.mm.default, image(1, 7), image(7, 4)),
    "product": lambda: agree(aten.mm.default, image(128, 132), image(132, 128)),
    "product of a turned factor": lambda: agree(aten.mm.default, image(128, 128).T, image(128, 128).T),
    "batched product": lambda: agree(aten.bmm.default, image(2, 128, 128), image(2, 128, 160)),
    "added product": lambda: agree(
        aten.addmm.default, image(130), image(128, 132), image(132, 130), beta=2, alpha=3),
    "filters": lambda: agree(
        aten.convolution.default, image(1, 4, 6, 6), image(8, 4, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    "one tap, channels last": lambda: agree(
        aten.convolution.default, whole(2, 16, 4, 3).to(memory_format=torch.channels_last), whole(24, 16, 1, 1),
        whole(24), [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    "one tap, channels last, transposed": lambda: agree(
        aten.convolution.default, whole(2, 16, 4, 3).to(memory_format=torch.channels_last), whole(16, 24, 1, 1), None,
        [1, 1], [0, 0], [1, 1], True, [0, 0], 1),
    "convolution with a border": lambda: agree(
        aten.convolution.default, image(1, 32, 6, 7), image(24, 32, 3, 3), image(24), [1, 1], [1, 2], [1, 2], False,
        [0, 0], 1),
    "transposed convolution": lambda: agree(
        aten.convolution.default, image(2, 32, 6, 7), image(32, 24, 3, 3), None, [1, 1], [1, 0], [1, 2], True,
        [0, 0], 1),
    "transposed convolution, grown": lambda: agree(
        aten.convolution.default, image(2, 32, 9), image(32, 48, 4), image(48), [1], [7], [2], True, [1], 1),
    "strides": lambda: agree(
        aten.convolution.default, image(1, 16, 9, 40), image(24, 16, 3, 5), image(24), [3, 2], [1, 2], [2, 1], False,
        [0, 0], 1),
    "few channels": lambda: agree(
        aten.convolution.default, image(1, 9, 6, 20), image(24, 9, 3, 3), None, [1, 1], [1, 0], [1, 1], False,
        [0, 0], 1),
    "few channels in parts": lambda: agree(
        aten.convolution.default, image(1, 9, 6, 20), image(64, 9, 3, 3), None, [1, 2], [1, 0], [1, 1], False,
        [0, 0], 1),
    "strides without taps": lambda: agree(
        aten.convolution.default, image(2, 32, 9, 20), image(24, 32, 1, 3), None, [2, 1], [1, 0], [1, 2], False,
        [0, 0], 1),
    "phases": lambda: agree(
        aten.convolution.default, image(2, 5, 4, 3), image(5, 6, 3, 4), image(6), [2, 3], [1, 0], [1, 2], True,
        [1, 1], 1),
    "phases that no tap meets": lambda: agree(
        aten.convolution.default, image(2, 5, 9), image(5, 6, 3), image(6), [2], [1], [2], True, [0], 1),
    "phases of groups": lambda: agree(
        aten.convolution.default, image(2, 32, 4, 3), image(32, 5, 3, 3), image(10), [2, 2], [1, 1], [1, 1], True,
        [0, 1], 2),
    "phases with a common factor": lambda: agree(
        aten.convolution.default, image(2, 5, 4, 3), image(5, 6, 3, 5), image(6), [2, 4], [1, 3], [2, 6], True,
        [0, 3], 1),
    "product of many terms": lambda: agree(aten.mm.default, image(20, 8192) / 90, image(8192, 24)),
    "added product of many terms": lambda: agree(
        aten.addmm.default, image(24), image(20, 8192) / 90, image(8192, 24), beta=2, alpha=3),
    "product of many terms of 16 bits": lambda: agree(aten.mm.default, whole(20, 8192), whole(8192, 24)),
    "added product of many terms of 16 bits": lambda: agree(
        aten.addmm.default, whole(24), whole(8192, 20).T, whole(24, 8192).T, beta=2, alpha=3),
    "product of few terms": lambda: agree(aten.mm.default, image(128, 32), image(32, 128)),
    "product of rows of odd length": lambda: agree(aten.mm.default, image(129, 131), image(131, 130)),
    "maximum and place": lambda: agree(aten.max.dim, image(4, 5), 1),
    "minimum and place": lambda: agree(aten.min.dim, image(4, 5), 0, True),
    "place of a maximum": lambda: agree(aten.argmax.default, repeated(4, 768, 5), 1, True),
    "place of a minimum": lambda: agree(aten.argmin.default, repeated(768, 6), 0),
    "place of a maximum of a long row": lambda: agree(aten.argmax.default, repeated(2, 3 * 8192), -1),
    "any": lambda: agree(aten.any.default, image(4, 5) > 2),
    "any of a row": lambda: agree(aten.any.dim, image(4, 5) > 1, -1, True),
    "any of several dimensions": lambda: agree(aten.any.dims, image(4, 5, 6) > 2, [0, 2]),
    "constant": lambda: agree(aten.lift_fresh_copy.default, image(3)),
}  # fmt: skip


@pytest.fixture(autouse=True)
def tf32() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.parametrize("case", CASES)
def test_decomposition(case: str) -> None:
    CASES[case]()


@pytest.mark.parametrize(
    "use",
    [
        lambda: stays(aten.sum.dim_IntList, image(4096, 4096), [1]),
        lambda: stays(aten.scatter_add.default, image(4), 0, torch.tensor([3, 0, 3]), image(3)),
        lambda: stays(aten.scatter_add.default, image(4, 2), 0, torch.tensor([[3, 0]]), image(1, 2)),
        lambda: stays(aten.index_put.default, image(6), [torch.tensor([1, -1, 1])], image(3), True),
        lambda: stays(aten.index_put.default, image(6, 5), [torch.tensor([1, 2])], image(2, 5)),
        lambda: stays(aten.index_put.default, image(2, 5), [torch.tensor([True, False])], image(5), True),
        lambda: stays(aten.sum.dim_IntList, image(64, 64), [0]),
        lambda: stays(aten.sum.default, torch.ones(10**5, dtype=torch.int64)),
        lambda: stays(aten.var_mean.correction, image(600, 4096), [1]),
        lambda: stays(aten._softmax.default, image(3, 8192), 1, False),
        lambda: stays(aten.mm.default, image(5, 7), image(7, 2)),
        lambda: stays(aten.argmax.default, image(4, 128, 5), 1),
        lambda: stays(aten.argmin.default, image(3, 8192), 1),
        lambda: stays(aten.mm.default, image(128, 128), image(128, 128).T),
        lambda: stays(aten.mm.default, image(20, 2048), image(2048, 24)),
        lambda: stays(aten.mm.default, image(20, 2048, dtype=torch.bfloat16), image(2048, 24, dtype=torch.bfloat16)),
        lambda: stays(aten.mm.default, whole(20, 8196), whole(8196, 24)),
        lambda: stays(aten.mm.default, image(128, 128, dtype=torch.bfloat16), image(128, 128, dtype=torch.bfloat16)),
        lambda: stays(
            aten.convolution.default, image(1, 4, 6, 6), image(8, 4, 1, 1), None, [1], [0], [1], False, [0], 1),
        lambda: stays(  # of 16 places of the result, one in each dimension has taps
            aten.convolution.default, image(1, 4, 6, 6), image(4, 8, 1, 1), image(8), [4, 4], [0, 0], [1, 1], True,
            [0, 0], 1),
    ],
)  # fmt: skip
def test_what_one_kernel_does_well_stays(use: Callable[[], None]) -> None:
    use()


@pytest.mark.parametrize(
    ("shape", "dims", "view", "first"),
    [
        ((32, 56, 56, 128), [0, 1, 2], (32, 28, 2, 56, 128), [2, 3]),  # and not each row by itself
        ((32, 14, 14, 512), [0, 1, 2], (32, 2, 7, 14, 512), [2, 3]),
        ((100352, 512), [0], (196, 512, 512), [1]),
        ((64, 4096, 8), [1], (64, 128, 32, 8), [2]),
        ((64, 64, 112, 112), [0, 2, 3], (64, 64, 112, 112), [2, 3]),
    ],
)
def test_parts_of_a_reduction_fill_a_gpu_and_are_few(
    shape: tuple[int, ...], dims: list[int], view: tuple[int, ...], first: list[int]
) -> None:
    found = two_steps.in_programs(torch.empty(shape, device="meta"), dims)
    assert found is not None
    assert (tuple(found[0].shape), found[1]) == (view, first)


def test_own_decompositions_are_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[Any] = set()
    monkeypatch.setitem(globals(), "agree", lambda op, *args, **kwargs: seen.add(op))
    for case in CASES.values():
        case()
    assert set(decompose.OWN) == seen


@pytest.mark.parametrize(
    "model",
    [
        lambda x: x.sum((0, 2, 3)),
        lambda x: (x - x.mean((0, 2, 3), keepdim=True)).abs(),
        lambda x: x.var((2, 3)),
        lambda x: x.reshape(4, -1).softmax(1),
        lambda x: x.norm(),
    ],
    ids=["sum", "centred", "variance", "softmax", "norm"],
)
def test_parts_are_proved(model: Callable[..., Any]) -> None:
    report = same(model, TALL, tolerance=1e-4)
    assert {row["verdict"] for row in report.rows} == {"proved"}


WHOLE = torch.arange(24.0).reshape(2, 12)


@pytest.mark.parametrize(
    ("x", "size", "stride", "offset", "whole"),
    [
        (WHOLE, (4, 6), (6, 1), 0, True),
        (WHOLE, (2, 12, 1, 1), (12, 1, 12, 12), None, True),
        (WHOLE, (6, 4), (1, 6), 0, False),
        (WHOLE, (2, 11), (12, 1), 0, False),
        (WHOLE[:, 1:], (2, 11), (12, 1), 1, False),
        (WHOLE.flatten()[4:], (4, 5), (5, 1), 4, False),
    ],
)
def test_a_tensor_with_other_strides_is_itself_only_as_a_whole(
    x: Any, size: tuple[int, ...], stride: tuple[int, ...], offset: int | None, whole: bool
) -> None:
    """The gradient of a pooled image with channels last is written to all of a tensor."""
    source = torch.randn(size)
    seen = decompose._restrided(x, size, stride, offset)
    written = decompose._restrided_scatter(x, source, size, stride, offset)
    assert (written is not NotImplemented) == whole
    if whole:
        torch.testing.assert_close(seen, x.as_strided(size, stride, offset))
        torch.testing.assert_close(written, torch.as_strided_scatter(x, source, size, stride, offset))
