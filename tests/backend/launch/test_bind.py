"""Preconditions at launch: each failure beside the call that passes."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus.backend.launch.arguments import alignment
from argus.backend.launch.array import Array, array
from argus.backend.launch.bind import Apart, Binding, bind, check_apart, check_conditions, check_contents
from argus.backend.launch.signature import Signature, signature, signature_from_json, signature_to_json
from argus.diagnostic import LaunchError
from argus.ir.expr import Const
from argus.ir.types import MAX_EXTENT
from argus.source import SourceFile
from tests.backend.launch.samples import REQUIRES_SPAN, SOURCE, bulk_gemm, gather, gemm, tensor

GEMM = signature(gemm(alignment=2))
GATHER = signature(gather())
BULK = signature(bulk_gemm())


def bf16(*shape: int) -> Any:
    return np.zeros(shape, np.uint16)


def call(s: Signature = GEMM, grid: tuple[int, ...] | None = None, alpha: float = 1.0, **tensors: Any) -> Binding:
    if s is GEMM:
        tensors = {"a": bf16(100, 128), "b": bf16(70, 128), "c": bf16(100, 70)} | tensors
    else:
        defaults = {
            "x": np.zeros((9, 4), np.float32),
            "index": np.zeros(5, np.int32),
            "out": np.zeros((5, 4), np.float32),
            "hits": np.zeros(9, np.float32),
        }
        tensors = defaults | tensors
    return bind(s, {n: array(n, t) for n, t in tensors.items()}, {"alpha": alpha} if s is GEMM else {}, grid)


def fails(code: str, *words: str, **arguments: Any) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        call(**arguments)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == code
    assert diagnostic.property == "launch"
    assert diagnostic.help
    for word in words:
        assert word in diagnostic.message
    return caught.value


# ---------------------------------------------------------------------------- signatures


def test_a_signature_knows_what_is_read_and_written() -> None:
    assert [(t.name, t.read, t.written) for t in GEMM.tensors] == [
        ("a", True, False),
        ("b", True, False),
        ("c", False, True),
    ]
    assert [(t.name, t.read, t.written) for t in GATHER.tensors if t.name != "index"] == [
        ("x", True, False),
        ("out", False, True),
        ("hits", True, True),
    ]


def test_the_calling_convention_is_the_abis() -> None:
    assert [(s.name, s.kind) for s in GEMM.slots] == [
        *((n, "pointer") for n in "abc"),
        *((n, "size") for n in "MKN"),
        *((f"{n}.stride0", "stride") for n in "abc"),
        ("alpha", "scalar"),
    ]


@pytest.mark.parametrize("s", [GEMM, GATHER, BULK])
def test_json_keeps_a_signature(s: Signature) -> None:
    back = signature_from_json(json.loads(json.dumps(signature_to_json(s))), SOURCE)
    assert back == s
    assert [c.span for c in back.conditions] == [c.span for c in s.conditions]


def test_a_span_follows_a_file_that_moved() -> None:
    back = signature_from_json(signature_to_json(GEMM), SourceFile("moved.py", SOURCE.text))
    assert str(REQUIRES_SPAN) == "gemm.py:2:5"
    assert str(back.conditions[0].span) == "moved.py:2:5"


# ---------------------------------------------------------------------------- what passes


def test_sizes_strides_and_grid_are_bound() -> None:
    binding = call()
    assert binding.values == {
        "M": 100, "K": 128, "N": 70, "a.stride0": 128, "b.stride0": 128, "c.stride0": 70,
    }  # fmt: skip
    assert binding.grid == (2, 2, 1)
    assert binding.device == "cpu"
    assert [names.expr for names in binding.scalar_conditions] == [GEMM.conditions[1].expr]


def test_views_broadcast_inputs_and_k_of_zero_pass() -> None:
    assert call(a=bf16(100, 256)[:, :128]).values["a.stride0"] == 256
    assert call(a=np.broadcast_to(bf16(1, 128), (100, 128))).values["a.stride0"] == 0
    assert call(a=bf16(100, 0), b=bf16(70, 0)).values["K"] == 0
    assert call(a=bf16(0, 128), c=bf16(0, 70)).grid == (0, 2, 1)


def test_the_declared_grid_may_be_repeated() -> None:
    assert call(grid=(2, 2)).grid == call(grid=(2, 2, 1)).grid == (2, 2, 1)
    assert call(GATHER, grid=(7,)).grid == (7, 1, 1)


def test_the_same_input_twice_passes() -> None:
    x = bf16(70, 128)
    assert call(a=x, b=x, c=bf16(70, 70)).values["M"] == 70


# ---------------------------------------------------------------------------- what does not


def test_dtype() -> None:
    fails("dtype-mismatch", "`a` holds float32", "bfloat16", a=np.zeros((100, 128), np.float32))
    fails("dtype-mismatch", "`x` holds float64", s=GATHER, grid=(1,), x=np.zeros((9, 4)))


def test_rank_and_sizes() -> None:
    fails("shape-mismatch", "`b` has 1 dimensions", b=bf16(128))
    fails("shape-mismatch", "`K` is 128 in `a.shape[1]`", "64 in `b.shape[1]`", b=bf16(70, 64))
    fails("shape-mismatch", "`x.shape[1]` is 3", s=GATHER, grid=(1,), x=np.zeros((9, 4), np.float32)[:, :3])


def test_every_failure_is_reported() -> None:
    with pytest.raises(LaunchError) as caught:
        call(a=np.zeros((100, 128), np.int8), b=bf16(70), c=bf16(10, 10))
    assert [d.code for d in caught.value.diagnostics] == [
        "dtype-mismatch",
        "shape-mismatch",
        "shape-mismatch",
    ]


def test_extents_stay_below_the_limit() -> None:
    def rows(extent: int) -> dict[str, Any]:
        return {"a": np.broadcast_to(bf16(1, 128), (extent, 128)), "c": bf16(extent, 0), "b": bf16(0, 128)}

    with pytest.raises(LaunchError) as caught:
        call(**rows(MAX_EXTENT + 1))
    assert [d.code for d in caught.value.diagnostics] == ["extent-too-large"] * 2
    assert call(**rows(MAX_EXTENT)).values["M"] == MAX_EXTENT


def test_fixed_strides() -> None:
    fails("stride-mismatch", "dimension 1 of `a` has stride 100", a=bf16(128, 100).T)
    fails("stride-mismatch", "dimension 0 of `x` has stride 8", s=GATHER, grid=(1,),
          x=np.zeros((9, 8), np.float32)[:, :4])  # fmt: skip
    one = np.zeros((1, 8), np.float32)[:, :4]
    assert call(GATHER, grid=(1,), x=one, hits=np.zeros(1, np.float32)).values["V"] == 1


def test_a_named_stride_is_shared() -> None:
    kernel = gather()
    params = (tensor("x", kernel.tensors[0].dtype, "V 4", "ldo 1"), *kernel.params[1:])
    s = signature(replace(kernel, params=params))
    wide = np.zeros((9, 8), np.float32)[:, :4]
    fails("shape-mismatch", "`ldo` is 8 in `x.stride(0)`", s=s, grid=(1,), x=wide)
    assert call(s, grid=(1,), x=wide, out=np.zeros((5, 8), np.float32)[:, :4]).values["ldo"] == 8


def test_outputs_have_an_address_for_each_element() -> None:
    fails("output-overlaps-itself", "`c`", c=np.lib.stride_tricks.as_strided(bf16(100, 70), (100, 70), (2, 2)))
    assert call(c=np.lib.stride_tricks.as_strided(bf16(100, 80), (100, 70), (160, 2)))


def test_read_only_outputs() -> None:
    c = bf16(100, 70)
    c.flags.writeable = False
    fails("read-only-output", "`c`", c=c)
    a = bf16(100, 128)
    a.flags.writeable = False
    assert call(a=a)


def test_outputs_overlap_nothing() -> None:
    pool = bf16(100 * 128 + 100 * 70)
    a, c = pool[: 100 * 128].reshape(100, 128), pool[100 * 128 :].reshape(100, 70)
    assert call(a=a, c=c)
    shifted = pool[100 * 128 - 1 : -1].reshape(100, 70)
    fails("overlapping-output", "`c`", "`a`", a=a, c=shifted)


def test_preconditions() -> None:
    error = fails("precondition-failed", "`(K % 64) == 0`", "K = 100", a=bf16(100, 100), b=bf16(70, 100))
    assert error.diagnostics[0].span.file is SOURCE
    fails("precondition-failed", "`alpha > 0.0`", "alpha = -1.0", alpha=-1.0)
    check_conditions(GEMM.conditions, {"K": 64, "alpha": 1.0})


def test_alignment_that_was_compiled_for() -> None:
    aligned = signature(gemm(alignment=16))
    with pytest.raises(LaunchError) as caught:
        call_aligned(aligned, np.zeros((8, 200), np.uint16)[:, 1:65])
    assert caught.value.diagnostics[0].code == "misaligned-argument"
    assert call_aligned(aligned, np.zeros((8, 64), np.uint16))


def call_aligned(s: Signature, a: Any) -> Binding:
    arrays = {"a": array("a", a), "b": array("b", bf16(64, 64)), "c": array("c", bf16(8, 64))}
    return bind(s, arrays, {"alpha": 1.0}, None)


def test_strides_that_the_copy_engine_takes() -> None:
    def described(stride: int) -> tuple[int, ...]:
        def view(rows: int, row: int) -> Array:
            return Array("bfloat16", 2, (rows, 64), (row, 1), 1 << 40, "cpu", True, None)

        out = Array("bfloat16", 2, (9, 72), (72, 1), 1 << 60, "cpu", True, None)
        arrays = {"a": view(9, stride), "b": view(72, 64), "c": out}
        return bind(BULK, arrays, {"alpha": 1.0}, None).described[0].strides_bytes

    assert described(0) == (0, 2)
    assert described(2**39 - 8) == (2**40 - 16, 2)
    for bad in (2**39, -64):
        with pytest.raises(LaunchError) as caught:
            described(bad)
        (diagnostic,) = caught.value.diagnostics
        assert diagnostic.code == "tensor-map-refused"
        assert f"dimension 0 of `a` has a stride of {2 * bad} bytes" in diagnostic.message


def test_what_another_type_becomes() -> None:
    def help(**tensors: Any) -> str | None:
        return fails("dtype-mismatch", **tensors).diagnostics[0].help

    assert help(a=np.zeros((100, 128), np.float32)) == "NumPy has no bfloat16: pass `a` as uint16 with the same bits"
    assert "torch.view_as_real(x)" in str(help(s=GATHER, x=np.zeros((9, 4), np.complex64)))
    assert help(s=GATHER, index=np.zeros(5, np.int64)) == "pass `index` as int32"


def test_grids() -> None:
    fails("grid-mismatch", "(3, 2)", "(2, 2)", grid=(3, 2))
    fails("grid-mismatch", "not one to 3", grid=(1, 1, 1, 1))
    fails("grid-mismatch", "not one to 3", s=GATHER, grid=(-1,))
    fails("grid-missing", s=GATHER)
    fails("grid-too-large", "axis 1", s=GATHER, grid=(1, 65536))
    assert call(GATHER, grid=(65536, 65535)).grid == (65536, 65535, 1)


def test_one_axis_of_the_hardware_counts_a_flat_grid() -> None:
    flat = replace(GATHER, grid=tuple(Const(e) for e in (2, 3, 1, 40000, 5)), flat=True)
    assert signature_from_json(signature_to_json(flat), SOURCE).flat
    joined = ((2, 3, 1, 40000, 5), (6, 1, 40000, 5), (2, 3, 200000), (1200000,), (6, 200000, 1))
    assert {call(flat, grid=grid).grid for grid in (None, *joined)} == {(1200000, 1, 1)}
    for grid in ((3, 2, 1, 40000, 5), (5, 240000), (2, 3, 1, 40000), (6, 200000, 2)):
        fails("grid-mismatch", "(2, 3, 1, 40000, 5)", s=flat, grid=grid)
    assert call(replace(flat, grid=(*flat.grid[:4], Const(0))), grid=(240000, 0)).grid[0] == 0
    fails("grid-too-large", "12000000000 programs", s=replace(flat, grid=(*flat.grid[:4], Const(50000))))


def test_contents_of_index_tensors() -> None:
    def check(values: list[int]) -> None:
        check_contents(GATHER, {"index": array("index", np.array(values, np.int32))}, {"V": 9})

    check([0, 8, 3])
    check([])
    for bad in ([0, 9], [-1, 0]):
        with pytest.raises(LaunchError) as caught:
            check(bad)
        assert caught.value.diagnostics[0].code == "index-out-of-range"
        assert "[0, 9)" in caught.value.diagnostics[0].message


@pytest.mark.parametrize("value", [[1, 2], 3, "text", None, np.zeros(3, ">f4"), np.zeros(3, object)])
def test_what_is_no_array(value: object) -> None:
    with pytest.raises(LaunchError) as caught:
        array("a", value)
    assert caught.value.diagnostics[0].code == "argument-type"


def test_strides_between_elements_are_refused() -> None:
    packed = np.zeros(4, np.dtype([("a", "i1"), ("b", "f4")]))["b"]
    with pytest.raises(LaunchError, match="item size"):
        array("a", packed)


# ---------------------------------------------------------------------------- laws


@st.composite
def strided(draw: st.DrawFn) -> Array:
    rank = draw(st.integers(0, 3))
    shape = tuple(draw(st.integers(0, 4)) for _ in range(rank))
    strides = tuple(draw(st.integers(-9, 9)) for _ in range(rank))
    return Array("float32", 4, shape, strides, draw(st.integers(0, 64)) * 4 + 4096, "cpu", True, None)


def addresses(x: Array) -> list[int]:
    return [x.pointer + 4 * sum(i * s for i, s in zip(index, x.strides, strict=True)) for index in np.ndindex(x.shape)]


@given(strided())
def test_what_is_called_injective_is(x: Array) -> None:
    if x.injective():
        cells = addresses(x)
        assert len(set(cells)) == len(cells)


@given(st.permutations([1, 2, 3]), st.lists(st.integers(1, 4), min_size=3, max_size=3))
def test_dense_tensors_in_any_order_of_dimensions_are_injective(order: list[int], extents: list[int]) -> None:
    strides, reach = {}, 1
    for axis in order:
        strides[axis - 1] = reach
        reach *= extents[axis - 1]
    assert Array("float32", 4, tuple(extents), tuple(strides[i] for i in range(3)), 0, "cpu", True, None).injective()


@given(strided())
def test_the_extent_is_the_bytes_touched(x: Array) -> None:
    cells = addresses(x)
    low, high = x.extent()
    if cells:
        assert (x.pointer + low, x.pointer + high) == (min(cells), max(cells) + 4)
    else:
        assert (low, high) == (0, 0)


@given(strided(), strided())
def test_the_overlap_rule_is_exact_on_ranges(x: Array, y: Array) -> None:
    (low1, high1), (low2, high2) = x.extent(), y.extent()
    if low1 == high1 or low2 == high2:
        return
    overlap = bool(set(range(x.pointer + low1, x.pointer + high1)) & set(range(y.pointer + low2, y.pointer + high2)))
    row = Apart(0, 1, low2 - high1, high2 - low1)
    try:
        check_apart(GATHER, [Apart(2, 0, row.low, row.high)], [y.pointer, 0, x.pointer])
        found = False
    except LaunchError:
        found = True
    assert found == overlap


@given(st.integers(0, 15), st.integers(0, 40), st.integers(0, 40))
def test_alignment_is_the_largest_that_divides_everything(byte: int, extent: int, stride: int) -> None:
    param = GEMM.tensors[0]
    x = Array("bfloat16", 2, (3, extent), (stride, 1), 4096 + byte, "cpu", True, None)
    have = alignment(param, x)
    divides = [a for a in (1, 2, 4, 8, 16) if all(q % a == 0 for q in (byte, 2 * stride, 2 * extent))]
    assert have == divides[-1]
