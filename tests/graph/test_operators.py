"""The operator table against PyTorch: every row, evaluated as an index expression, on random inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from argus.graph.operators import TABLE, arguments, elements, name_of, row_of  # noqa: E402
from argus.graph.precise import split  # noqa: E402
from argus.graph.row import COMPARISONS, NotExpressible, Operand, Result, Site  # noqa: E402
from argus.graph.scans import cumsum_backwards  # noqa: E402
from argus.graph.smooth import tanh_softplus  # noqa: E402
from argus.graph.terms import Flat, Load, Var  # noqa: E402
from argus.graph.turned import convolution_in_turns  # noqa: E402
from argus.graph.turns import in_turns  # noqa: E402
from tests.graph.evaluator import evaluate  # noqa: E402

aten = torch.ops.aten


def tensor(*shape: int, dtype: Any = torch.float32, seed: int = 0, positive: bool = False) -> Any:
    generator = torch.Generator().manual_seed(seed + len(shape))
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if not dtype.is_floating_point:
        return torch.randint(-4, 5, shape, generator=generator).to(dtype)
    x = torch.randn(shape, generator=generator)
    return (x.abs() + 0.1 if positive else x).to(dtype)


def meanings(op: Any, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """What PyTorch computes, and what the table says, of an operator on these arguments."""
    row = row_of(op)
    assert row is not None, f"{op} has no row"
    outputs = op(*args, **kwargs)
    outputs = tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)
    tensors: dict[object, Any] = {}

    def operand(value: Any) -> Any:
        if isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
            return [operand(v) for v in value]
        if not isinstance(value, torch.Tensor):
            return value
        key = len(tensors)
        tensors[key] = value
        dtype = str(value.dtype).removeprefix("torch.")
        return Operand(tuple(value.shape), dtype, lambda i: Load(key, i, dtype), lambda d: (value.shape[d],))

    given_ = tuple(operand(a) for a in arguments(op, args, kwargs))
    results = tuple(Result(tuple(o.shape), str(o.dtype).removeprefix("torch.")) for o in outputs)
    found = []
    for result, element in zip(results, elements(row, Site(results), given_), strict=True):
        if element is None:
            found.append(None)
            continue
        index = tuple(Var(f"i{d}", size) for d, size in enumerate(result.shape))
        term = element(tuple(Flat((v,)) for v in index))
        found.append(evaluate(term, tensors, index, result.shape))
    return outputs, tuple(found)


def agree(op: Any, *args: Any, **kwargs: Any) -> None:
    for wanted, found in zip(*meanings(op, *args, **kwargs), strict=True):
        if found is None:
            continue
        assert found.dtype == wanted.dtype, f"{op}: {found.dtype} instead of {wanted.dtype}"
        tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(wanted.dtype, 2e-5)
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)


UNARY = ["abs", "ceil", "cos", "erf", "exp", "exp2", "floor", "gelu", "hardsigmoid", "hardswish", "hardtanh",
         "leaky_relu", "elu", "neg", "reciprocal", "relu", "sigmoid", "silu", "sin", "square", "tanh", "expm1",
         "clone"]  # fmt: skip
POSITIVE = ["log", "log2", "sqrt", "rsqrt", "log1p"]
BINARY = ["add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "maximum.default", "minimum.default", "eq.Tensor",
          "ne.Tensor", "lt.Tensor", "le.Tensor", "gt.Tensor", "ge.Tensor"]  # fmt: skip


def overload(name: str) -> Any:
    packet, _, kind = name.partition(".")
    return getattr(getattr(aten, packet), kind or "default")


@st.composite
def shapes(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that broadcast to one another."""
    full = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    kept = full[draw(st.integers(0, len(full))) :]
    return full, tuple(1 if draw(st.booleans()) else size for size in kept)


def strided(x: Any, way: int) -> Any:
    """The same elements in memory of another order."""
    match way % 3:
        case 0:
            return x
        case 1:
            order = list(reversed(range(x.ndim)))
            return x.permute(order).contiguous().permute(order)
        case _:
            return torch.stack([x, x + 1], -1)[..., 0]


@pytest.mark.parametrize("name", [*UNARY, *POSITIVE])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_unary(name: str, dtype: Any) -> None:
    for way in range(3):
        agree(overload(name), strided(tensor(3, 4, 2, dtype=dtype, positive=name in POSITIVE), way))


@pytest.mark.parametrize("name", BINARY)
@given(
    shapes=shapes(), way=st.integers(0, 8), dtypes=st.tuples(*[st.sampled_from((torch.float32, torch.bfloat16))] * 2)
)
@settings(max_examples=12, deadline=None)
def test_binary(name: str, shapes: Any, way: int, dtypes: Any) -> None:
    x, y = (strided(tensor(*s, dtype=d, seed=n), w) for n, (s, d, w) in
            enumerate(zip(shapes, dtypes, (way % 3, way // 3), strict=True)))  # fmt: skip
    agree(overload(name), x, y)
    agree(overload(name), y, x)


FULL = ("sum", "mean", "max", "min", "prod")
x, y, z = tensor(3, 4), tensor(3, 4, seed=1), tensor(4, seed=2)
p = tensor(3, 4, positive=True)
half = tensor(3, 4, dtype=torch.bfloat16)
mask = tensor(3, 4, dtype=torch.bool)


def turns() -> Any:
    in_turns(tensor(1, 1, 1, 1), [0], [1], [0], [1])  # makes the operator known
    return torch.ops.argus_graph.in_turns.default


def from_the_end() -> Any:
    cumsum_backwards(tensor(1), 0)  # makes the operator known
    return torch.ops.argus_graph.cumsum_backwards.default


def turned() -> Any:
    convolution_in_turns(tensor(1, 1, 2), tensor(1, 1, 1), [1], [0], [1])  # makes the operator known
    return torch.ops.argus_graph.convolution_in_turns.default


def smoothed() -> Any:
    tanh_softplus(tensor(1))  # makes the operator known
    return torch.ops.argus_graph.tanh_softplus.default


def parts() -> Any:
    split(tensor(1, 1, 1), [0])  # makes the operator known
    return torch.ops.argus_graph.split.default


cube = tensor(2, 3, 4)
image, filters = tensor(2, 4, 6, 5), tensor(6, 4, 3, 3)
places = torch.tensor([2, 0, 1, 1])

CASES: dict[str, Callable[[], None]] = {
    "add scaled": lambda: agree(aten.add.Tensor, x, y, alpha=2.5),
    "add number": lambda: agree(aten.add.Tensor, half, 1.5),
    "add scalar": lambda: agree(aten.add.Scalar, x, 2),
    "add integers": lambda: agree(aten.add.Tensor, places, places),
    "sub scaled": lambda: agree(aten.sub.Tensor, x, z, alpha=3),
    "sub from a number": lambda: agree(aten.sub.Tensor, 1, x),
    "mul of a number": lambda: agree(aten.mul.Tensor, 3, x),
    "sub scalar": lambda: agree(aten.sub.Scalar, x, 2),
    "rsub": lambda: agree(aten.rsub.Scalar, x, 2.0, 3),
    "mul number": lambda: agree(aten.mul.Tensor, x, 3),
    "mul scalar": lambda: agree(aten.mul.Scalar, x, 3),
    "div integers": lambda: agree(aten.div.Tensor, places, places + 5),
    "div scalar": lambda: agree(aten.div.Scalar, x, 3),
    "div mode": lambda: agree(aten.div.Tensor_mode, x, p, rounding_mode=None),
    "rank 0": lambda: agree(aten.mul.Tensor, x, torch.tensor(2.0)),
    **{f"pow {e}": lambda e=e: agree(aten.pow.Tensor_Scalar, p, e) for e in (1, 2, 3, 4, 0.5, -0.5, -1, -2)},
    "gelu tanh": lambda: agree(aten.gelu.default, x, approximate="tanh"),
    "gelu backward": lambda: agree(aten.gelu_backward.default, y, x),
    "gelu backward tanh": lambda: agree(aten.gelu_backward.default, y, x, approximate="tanh"),
    "silu backward": lambda: agree(aten.silu_backward.default, y, x),
    "sigmoid backward": lambda: agree(aten.sigmoid_backward.default, y, x),
    "tanh backward": lambda: agree(aten.tanh_backward.default, y, x),
    "threshold backward": lambda: agree(aten.threshold_backward.default, y, x, 0),
    "elu": lambda: agree(aten.elu.default, x, 0.5, 1.5, 2.0),
    "leaky": lambda: agree(aten.leaky_relu.default, x, 0.2),
    "hardtanh": lambda: agree(aten.hardtanh.default, x, -0.3, 0.7),
    "clamp": lambda: agree(aten.clamp.default, x, -0.5, 0.5),
    "clamp below": lambda: agree(aten.clamp.default, x, None, 0.5),
    "clamp tensor": lambda: agree(aten.clamp.Tensor, x, y, y + 1),
    "clamp_min": lambda: agree(aten.clamp_min.default, x, 0.1),
    "clamp_max": lambda: agree(aten.clamp_max.default, x, 0.1),
    "addcmul": lambda: agree(aten.addcmul.default, x, y, z, value=2),
    "addcdiv": lambda: agree(aten.addcdiv.default, x, y, p, value=2),
    "lerp": lambda: agree(aten.lerp.Scalar, x, y, 0.3),
    "where": lambda: agree(aten.where.self, mask, x, z),
    "isnan": lambda: agree(aten.isnan.default, torch.where(mask, x, float("nan"))),
    "where promotes": lambda: agree(aten.where.self, mask, half, x),
    **{f"{op} scalar": lambda op=op: agree(overload(f"{op}.Scalar"), x, 0) for op in sorted(COMPARISONS)},
    "eq integers": lambda: agree(aten.eq.Scalar, places, 1),
    "logical_not": lambda: agree(aten.logical_not.default, places),
    "bitwise_not": lambda: agree(aten.bitwise_not.default, mask),
    "logical_and": lambda: agree(aten.logical_and.default, mask, x),
    "bitwise_and": lambda: agree(aten.bitwise_and.Tensor, mask, ~mask),
    "logical_or": lambda: agree(aten.logical_or.default, mask, x),
    "bitwise_or": lambda: agree(aten.bitwise_or.Tensor, mask, ~mask),
    "convert": lambda: agree(aten._to_copy.default, x, dtype=torch.bfloat16),
    "convert to integers": lambda: agree(aten._to_copy.default, x * 10, dtype=torch.int32),
    "copy": lambda: agree(aten.copy.default, x, z),
    "full": lambda: agree(aten.full.default, [3, 2], 1.5),
    "full_like": lambda: agree(aten.full_like.default, x, 2),
    "zeros_like": lambda: agree(aten.zeros_like.default, x),
    "ones_like": lambda: agree(aten.ones_like.default, mask),
    "scalar_tensor": lambda: agree(aten.scalar_tensor.default, 2.5),
    # reductions
    **{f"{op} all": lambda op=op: agree(overload(f"{op}.default"), cube) for op in FULL},
    "sum dims": lambda: agree(aten.sum.dim_IntList, cube, [0, -1], False),
    "sum kept": lambda: agree(aten.sum.dim_IntList, cube, [1], True),
    "sum of half": lambda: agree(aten.sum.dim_IntList, half, [1], dtype=torch.float32),
    "sum of nothing named": lambda: agree(aten.sum.dim_IntList, cube, []),
    "mean": lambda: agree(aten.mean.dim, cube, [1, 2], True),
    "amax": lambda: agree(aten.amax.default, cube, [1]),
    "amin": lambda: agree(aten.amin.default, cube, [-1], True),
    "prod": lambda: agree(aten.prod.dim_int, cube, 1),
    "var": lambda: agree(aten.var.correction, cube, [1, 2]),
    "var uncorrected": lambda: agree(aten.var.correction, cube, [1], correction=0, keepdim=True),
    "var_mean": lambda: agree(aten.var_mean.correction, cube, [2], correction=1, keepdim=True),
    "norm": lambda: agree(aten.linalg_vector_norm.default, cube, 2, [1]),
    "norm 1": lambda: agree(aten.linalg_vector_norm.default, cube, 1),
    "norm inf": lambda: agree(aten.linalg_vector_norm.default, cube, float("inf"), [2]),
    "layer norm": lambda: agree(aten.native_layer_norm.default, cube, [4], z, z + 1, 1e-5),
    "layer norm of two": lambda: agree(aten.native_layer_norm.default, cube, [3, 4], x, y, 1e-5),
    "layer norm bare": lambda: agree(aten.native_layer_norm.default, cube, [4], None, None, 1e-5),
    "softmax": lambda: agree(aten._softmax.default, cube, -1, False),
    "softmax inside": lambda: agree(aten._softmax.default, cube, 1, False),
    "log softmax": lambda: agree(aten._log_softmax.default, cube, 1, False),
    "softmax backward": lambda: agree(aten._softmax_backward_data.default, y, x.softmax(1), 1, torch.float32),
    "log softmax backward": lambda: agree(
        aten._log_softmax_backward_data.default, y, x.log_softmax(0), 0, torch.float32),
    "mm": lambda: agree(aten.mm.default, x, y.T),
    "mm half": lambda: agree(aten.mm.default, half, half.T.contiguous()),
    "bmm": lambda: agree(aten.bmm.default, cube, cube.transpose(1, 2)),
    "addmm": lambda: agree(aten.addmm.default, tensor(3), x, y.T),
    "addmm scaled": lambda: agree(aten.addmm.default, tensor(3, 1), x, y.T, beta=2, alpha=0.5),
    "addmm without": lambda: agree(aten.addmm.default, tensor(3, 1), x, y.T, beta=0),
    "baddbmm": lambda: agree(aten.baddbmm.default, tensor(2, 3, 3), cube, cube.transpose(1, 2), beta=3),
    "embedding backward": lambda: agree(
        aten.embedding_dense_backward.default, tensor(2, 4, 3), torch.stack([places, places + 1]), 5, -1, False),
    # views
    "alias": lambda: agree(aten.alias.default, x),
    "detach": lambda: agree(aten.detach.default, x),
    "view": lambda: agree(aten.view.default, cube, [6, 4]),
    "view across": lambda: agree(aten.view.default, cube, [4, 6]),
    "view with ones": lambda: agree(aten.view.default, cube, [1, 2, 1, 12]),
    "unsafe view": lambda: agree(aten._unsafe_view.default, cube, [24]),
    "reshape": lambda: agree(aten.reshape.default, cube.transpose(0, 2), [4, 6]),
    "permute": lambda: agree(aten.permute.default, cube, [2, 0, -2]),
    "transpose": lambda: agree(aten.transpose.int, cube, 0, -1),
    "t": lambda: agree(aten.t.default, x),
    "t of a vector": lambda: agree(aten.t.default, z),
    "expand": lambda: agree(aten.expand.default, tensor(3, 1), [2, 3, 4]),
    "unsqueeze": lambda: agree(aten.unsqueeze.default, x, -1),
    "squeeze": lambda: agree(aten.squeeze.default, tensor(1, 3, 1)),
    "squeeze dim": lambda: agree(aten.squeeze.dim, tensor(1, 3, 1), -1),
    "squeeze no dim": lambda: agree(aten.squeeze.dim, tensor(1, 3, 1), 1),
    "squeeze dims": lambda: agree(aten.squeeze.dims, tensor(1, 3, 1), [0, 1]),
    "slice": lambda: agree(aten.slice.Tensor, cube, 2, 1, 4, 2),
    "slice from the end": lambda: agree(aten.slice.Tensor, cube, 1, -2),
    "select": lambda: agree(aten.select.int, cube, 1, -1),
    "tangent of softplus": lambda: agree(smoothed(), tensor(3, 4) * 20),
    "phases in turns": lambda: agree(turns(), tensor(2, 1, 2, 3, 3, 4), [1, 0], [1, 3], [0, 1], [5, 11]),
    "convolution in turns": lambda: agree(turned(), image, tensor(6, 4, 2, 3), [1, 2], [1, 1], [4, 5]),
    "convolution of lines in turns": lambda: agree(turned(), tensor(2, 3, 7), tensor(6, 3, 2), [3], [2], [15]),
    "phases of lines in turns": lambda: agree(turns(), tensor(2, 3, 2, 4), [2], [1], [0], [9]),
    "parts of TF32": lambda: agree(parts(), tensor(2, 3, 4), [1, 0, 1]),
    "lower triangle": lambda: agree(aten.tril.default, cube),
    "lower triangle, moved": lambda: agree(aten.tril.default, cube, -1),
    "upper triangle": lambda: agree(aten.triu.default, cube, 1),
    "windows": lambda: agree(aten.unfold.default, cube, 1, 2, 1),
    "windows with steps": lambda: agree(aten.unfold.default, cube, 2, 2, 3),
    "split": lambda: agree(aten.split.Tensor, cube, 2, 1),
    "split sizes": lambda: agree(aten.split_with_sizes.default, cube, [1, 2], 1),
    "unbind": lambda: agree(aten.unbind.int, cube, 1),
    "running sum": lambda: agree(aten.cumsum.default, cube, 1),
    "running sum from the end": lambda: agree(from_the_end(), cube, 1),
    "running sum of half precision": lambda: agree(aten.cumsum.default, x.to(torch.bfloat16), -1),
    "running product": lambda: agree(aten.cumprod.default, cube, -1),
    "running product of one": lambda: agree(aten.cumprod.default, tensor(3, 1), 1),
    "place of the maximum": lambda: agree(aten.argmax.default, cube, 1),
    "place of the maximum of a vector": lambda: agree(aten.argmax.default, z),
    "place of the minimum": lambda: agree(aten.argmin.default, cube, -1, True),
    "place of the minimum among equals": lambda: agree(aten.argmin.default, cube.round(), 0),
    "flip": lambda: agree(aten.flip.default, cube, [0, 2]),
    "cat": lambda: agree(aten.cat.default, [cube, tensor(2, 1, 4), cube], 1),
    "pad": lambda: agree(aten.constant_pad_nd.default, cube, [1, 2, 0, 1], 3.0),
    "crop": lambda: agree(aten.constant_pad_nd.default, cube, [-1, 2], 3.0),
    "embedding": lambda: agree(aten.embedding.default, x, torch.tensor([[2, 0], [1, 1]])),
    "index_select": lambda: agree(aten.index_select.default, cube, 1, places),
    "gather": lambda: agree(aten.gather.default, x, 1, torch.tensor([[3, 0], [1, 1], [2, 2]])),
    "index": lambda: agree(aten.index.Tensor, cube, [None, torch.tensor([[2, -1], [0, -3]])]),
    "index of the last": lambda: agree(aten.index.Tensor, x, [None, places]),
    "slice scatter": lambda: agree(aten.slice_scatter.default, cube, tensor(2, 3, 2), 2, 1, -1),
    "slice scatter with steps": lambda: agree(aten.slice_scatter.default, cube, tensor(2, 2, 4), 1, 0, 9, 2),
    "slice scatter of all": lambda: agree(aten.slice_scatter.default, x, tensor(3, 4, seed=1)),
    "slice scatter of another dtype": lambda: agree(aten.slice_scatter.default, half, tensor(1, 4), 0, 1, 2),
    "select scatter": lambda: agree(aten.select_scatter.default, cube, tensor(2, 4), 1, -1),
    "average": lambda: agree(aten.avg_pool2d.default, image, [3, 2], [2, 1], [1, 0]),
    "average square": lambda: agree(aten.avg_pool2d.default, image, [2]),
    "average divided": lambda: agree(aten.avg_pool2d.default, image, [2, 2], [1, 1], [0, 0], False, True, 3),
    "maximum pool": lambda: agree(aten.max_pool2d_with_indices.default, image, [3, 3], [2, 2], [1, 1], [1, 1]),
    "average inside": lambda: agree(aten.avg_pool2d.default, image, [3, 3], [2, 2], [1, 1], False, False),
    "average rounded up": lambda: agree(aten.avg_pool2d.default, image, [3, 2], [2, 2], [1, 1], True, True),
    "average rounded up inside": lambda: agree(aten.avg_pool2d.default, image, [3, 2], [2, 2], [1, 1], True, False),
    "average of lines": lambda: agree(aten.avg_pool1d.default, cube, [2], [1], [1]),
    "average of volumes": lambda: agree(aten.avg_pool3d.default, image, [2, 3, 2], [1, 2, 2], [1, 1, 0]),
    "average to a size": lambda: agree(aten._adaptive_avg_pool2d.default, image, [3, 1]),
    "average to an uneven size": lambda: agree(aten._adaptive_avg_pool2d.default, image, [4, 3]),
    "maximum of volumes": lambda: agree(aten.max_pool3d_with_indices.default, image, [2, 2, 3], [1, 2, 2], [1, 0, 1]),
    "maximum rounded up": lambda: agree(
        aten.max_pool2d_with_indices.default, image, [3, 3], [2, 2], [0, 0], [1, 1], True),
    "maximum dilated": lambda: agree(aten.max_pool2d_with_indices.default, image, [2, 2], [1, 1], [0, 0], [2, 2]),
    "convolution": lambda: agree(
        aten.convolution.default, image, filters, tensor(6), [2, 1], [1, 0], [1, 1], False, [0, 0], 1),
    "convolution dilated": lambda: agree(
        aten.convolution.default, image, filters, None, [1, 1], [2, 2], [2, 2], False, [0, 0], 1),
    "convolution grouped": lambda: agree(
        aten.convolution.default, image, tensor(8, 2, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 2),
    "convolution of lines": lambda: agree(
        aten.convolution.default, tensor(2, 3, 7), tensor(5, 3, 2), None, [1], [0], [1], False, [0], 1),
    "convolution of channels": lambda: agree(
        aten.convolution.default, image, tensor(8, 1, 3, 3), tensor(8), [1, 2], [1, 1], [1, 1], False, [0, 0], 4),
    "convolution transposed": lambda: agree(
        aten.convolution.default, image, tensor(4, 3, 3, 2), tensor(3), [2, 3], [1, 0], [1, 1], True, [1, 0], 1),
    "convolution transposed and dilated": lambda: agree(
        aten.convolution.default, image, tensor(4, 3, 3, 2), None, [2, 1], [1, 0], [2, 3], True, [0, 0], 1),
    "convolution transposed in groups": lambda: agree(
        aten.convolution.default, image, tensor(4, 3, 2, 2), None, [2, 2], [0, 0], [1, 1], True, [0, 0], 2),
    "convolution of volumes": lambda: agree(
        aten.convolution.default, tensor(1, 2, 3, 3, 3), tensor(2, 2, 2, 2, 2), None, [1] * 3, [0] * 3, [1] * 3,
        False, [0] * 3, 1),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_case(case: str) -> None:
    CASES[case]()


def test_every_row_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = {name for base in (*UNARY, *POSITIVE) for name in (f"{base}.default",)} | set(BINARY)
    monkeypatch.setitem(globals(), "agree", lambda op, *args, **kwargs: seen.add(name_of(op)))
    for case in CASES.values():
        case()
    assert set(TABLE) <= seen, f"rows without a test: {sorted(set(TABLE) - seen)}"


def test_a_wrong_meaning_is_seen() -> None:
    with pytest.raises(AssertionError):
        wanted, found = meanings(aten.sub.Tensor, x, y)[0], meanings(aten.sub.Tensor, y, x)[1]
        torch.testing.assert_close(wanted[0], found[0])


@pytest.mark.parametrize(
    "use",
    [
        lambda: meanings(aten.pow.Tensor_Scalar, p, 2.7),
        lambda: meanings(aten.div.Tensor_mode, x, p, rounding_mode="floor"),
        lambda: meanings(aten.linalg_vector_norm.default, x, 3),
    ],
    ids=["power", "rounded division", "norm"],
)
def test_what_has_no_meaning_says_so(use: Callable[[], Any]) -> None:
    with pytest.raises(NotExpressible, match=" "):
        use()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_numbers_are_rounded_before_they_are_compared(name: str, dtype: Any) -> None:
    """0.1 is no number of 16 bits: PyTorch compares with the nearest one."""
    near = torch.tensor([0.1, 0.2, -0.3], dtype=dtype)
    agree(overload(f"{name}.Scalar"), near, 0.1)
    agree(overload(f"{name}.Scalar"), near, -0.3)


@pytest.mark.parametrize("name", ["bitwise_and.Tensor", "bitwise_or.Tensor"])
def test_bits_of_integers_are_no_truth_values(name: str) -> None:
    agree(overload(name), mask, ~mask)
    for dtype in (torch.int32, torch.uint8):
        with pytest.raises(NotExpressible):
            agree(overload(name), tensor(3, dtype=dtype), tensor(3, dtype=dtype, seed=1))
    agree(aten.bitwise_not.default, mask)
    with pytest.raises(NotExpressible):
        agree(aten.bitwise_not.default, tensor(3, dtype=torch.int32))


def test_a_comparison_with_a_number_that_the_dtype_cannot_hold() -> None:
    small = torch.tensor([1, 44, 255], dtype=torch.uint8)
    agree(aten.lt.Scalar, small, 44)
    for number in (300, -1):
        with pytest.raises(NotExpressible):
            agree(aten.lt.Scalar, small, number)


@pytest.mark.parametrize("correction", [0, 1, 2, 4, 6])
def test_variances_without_freedom(correction: int) -> None:
    agree(aten.var.correction, tensor(3, 4), [1], correction=correction)
    agree(aten.var_mean.correction, tensor(3, 4), [-1], correction=correction, keepdim=True)


def test_a_number_may_select() -> None:
    for dim in (0, 1, -1):
        agree(aten.index_select.default, tensor(3, 4), dim, torch.tensor(1))
    agree(aten.index_select.default, tensor(4), 0, torch.tensor(2))


def test_factors_of_integers_are_integers() -> None:
    c, a, b = (tensor(*s, dtype=torch.int32) for s in ((3, 1), (2, 3, 4), (2, 4, 5)))
    agree(aten.baddbmm.default, c, a, b, beta=0.5, alpha=2)
    agree(aten.baddbmm.default, c, a, b, beta=3, alpha=2.5)


def test_statistics_of_a_layer_norm_are_not_rounded_on_their_way() -> None:
    """With weights of 32 bits, the mean of 16-bit rows has 32 bits."""
    agree(aten.native_layer_norm.default, tensor(3, 5, dtype=torch.bfloat16), [5], tensor(5), tensor(5), 1e-5)
    agree(aten.native_layer_norm.default, tensor(3, 5), [5], tensor(5), None, 1e-5)
