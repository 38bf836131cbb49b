"""The text itself: golden files, zero cost of tags, names, and what the emitter refuses."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argus.backend.device_api import FUNCTIONS, TYPES, mma_function
from argus.backend.emit import emit
from argus.diagnostic import ArgusError
from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Op, Param, coords, op
from argus.ir.instruction import MMA
from argus.ir.nodes import (
    Access,
    AssertTags,
    Copy,
    For,
    Fragment,
    If,
    Kernel,
    Map,
    Share,
    Spec,
    Stage,
    Stmt,
    Tag,
    TagEqual,
    TagField,
    ThreadCopy,
)
from argus.ir.types import bfloat16, float32, int32
from argus.layout import parse_fragment
from argus.passes.lower import lower
from argus.source import SourceFile, Span
from tests.backend import emit_kernels as kernels
from tests.backend import hopper_kernels
from tests.conftest import Golden
from tests.passes import kernels as tiles
from tests.simulate.kernels import parse
from tests.simulate.test_persistent import COPY


def lowered(target: str) -> Kernel:
    return lower(tiles.gemm(warp_size=64 if target == "gfx942" else 32), target)


@pytest.mark.parametrize("name", ["gemm", "histogram", "gather_loop"])
def test_golden(name: str, golden: Golden) -> None:
    golden(f"{name}.cpp", emit(getattr(kernels, name)()))


def test_a_reduction_golden(golden: Golden) -> None:
    layout = parse_fragment("[16x16 | t 2@1*4 2@_ 2@1*8 4@0*2 2@0*8 | v 4@1 2@0]")
    golden("row_sums.cpp", emit(kernels.row_sums(layout, "maximum", True)))


def test_a_matrix_instruction_of_amd_golden(golden: Golden) -> None:
    text = emit(kernels.one_mma("mfma_f32_32x32x8", bfloat16, "buffer_load", "buffer_store"))
    golden("mfma.cpp", text)


MARKS: tuple[Stmt, ...] = (
    Tag("acc", (Const(64), Const(64)), (("m", Coord(0)), ("n", Coord(1)))),
    AssertTags((4,), ("i",), (TagEqual(TagField(Elem("acc", (Coord(0), Const(0)), float32), "m"), Coord(0)),)),
    Spec("c", ("m", "n"), Const(0.0, float32)),
)  # fmt: skip


def marked(body: tuple[Stmt, ...], choices: list[int]) -> tuple[Stmt, ...]:
    """`body` with tags, assertions and specifications strewn in, at every depth, and other spans."""
    span = Span(SourceFile("other.py", "x"), 7, 1, 7, 2)
    result: list[Stmt] = []
    for stmt in body:
        if choices:
            result += MARKS[: choices.pop()]
        match stmt:
            case For(body=inner):
                stmt = replace(stmt, body=marked(inner, choices))
            case If(then=then, orelse=orelse):
                stmt = replace(stmt, then=marked(then, choices), orelse=marked(orelse, choices))
            case _:
                pass
        result.append(replace(stmt, span=span))
    return tuple(result)


GEMM = kernels.gemm()


@given(st.lists(st.integers(0, 3), min_size=30, max_size=30))
@settings(max_examples=10, deadline=None)
def test_tags_cost_nothing(choices: list[int]) -> None:
    assert emit(replace(GEMM, body=marked(GEMM.body, choices))) == emit(GEMM)


def grouped(kernel: Kernel, group: int) -> Kernel:
    """The product over 64 x 64 tiles, on its grid of two axes."""
    rows, columns = (op("floordiv", op("add", Param(size), Const(63)), Const(64)) for size in "MN")
    return replace(kernel, grid=(rows, columns), group=group)


def test_groups_of_one_row_leave_no_trace(golden: Golden) -> None:
    golden("gemm.cpp", emit(grouped(GEMM, 1)))


def test_grouped_blocks_change_where_ids_come_from_alone() -> None:
    lines, plain = emit(grouped(GEMM, 8)).splitlines(), emit(GEMM).splitlines()
    call = "    const auto [block0, block1] = argus::grouped_block_ids<8>((M + 63) / 64, (N + 63) / 64);"
    assert [line for line in lines if line not in plain] == [call]
    assert [line for line in plain if line not in lines] == [
        "    const int block0 = argus::block_id<0>();", "    const int block1 = argus::block_id<1>();",
    ]  # fmt: skip
    assert lines.index(call) < lines.index("    const int thread = argus::thread_id();")


def test_roles_share_grouped_ids() -> None:
    """Computed once, in front of the roles."""
    text, plain = emit(grouped(hopper_kernels.gemm(), 8)), emit(hopper_kernels.gemm())
    assert plain.count("argus::block_id<0>()") == 2
    assert text.count("argus::grouped_block_ids<8>") == 1
    assert "argus::block_id" not in text
    assert text.index("argus::grouped_block_ids<8>") < text.index("const int warp")


def test_programs_of_three_axes_in_groups() -> None:
    """The number of a program gives a row, made of all axes but the last, and the last one's column."""
    copy = parse(COPY)
    grid = (Param("M"), Const(3), op("floordiv", Param("K"), Const(5)))
    lines = emit(replace(copy, grid=grid, group=4)).splitlines()
    plain = emit(replace(copy, grid=grid)).splitlines()
    assert [line.strip() for line in lines if line not in plain] == 2 * [
        "const auto [program_row, block2] = argus::grouped_program<4>(program, M * 3, (K / 5));",
        "const int block0 = program_row % M;",
        "const int block1 = program_row / M;",
    ]


def test_every_call_is_of_the_device_library() -> None:
    known = {f.name for f in FUNCTIONS} | {mma_function(row).name for row in MMA.values()}
    known |= {t.removeprefix("argus::") for t in TYPES.values()}
    more = (lowered("gfx942"), lowered("sm_90a"), grouped(GEMM, 8))
    for kernel in (GEMM, kernels.histogram(), kernels.gather_loop(), *more):
        assert set(re.findall(r"argus::(\w+)", emit(kernel))) <= known


OF_THE_EMITTER = {"aligned", "amid", "moved", "wide", "words"}
NAMES = (
    "int",
    "int_",
    "v0",
    "t1",
    "p2",
    "block0",
    "smem",
    "thread",
    "a.b",
    "a_b",
    "x__y",
    "EOF",
    "argus",
    "ok",
    *OF_THE_EMITTER,
)


@given(st.permutations(NAMES))
@settings(max_examples=20, deadline=None)
def test_names_never_collide(names: list[str]) -> None:
    layout = parse_fragment("[32 | t 32@0 | v]")
    fragments = tuple(Fragment(n, int32, (32,), layout) for n in names)
    body = tuple(Map(Access(n, coords(1)), Coord(0), (32,), layout, "thread") for n in names)
    text = emit(kernels.kernel("names", (), body, fragments))
    declared = [line.split()[2].partition("[")[0] for line in text.splitlines() if "alignas" in line]
    assert len(set(declared)) == len(names)
    reserved = {"int", "v0", "t0", "t1", "p2", "block0", "smem", "thread", "EOF", "argus"} | OF_THE_EMITTER
    assert not set(declared) & reserved
    assert not any("__" in name for name in declared)
    assert "ok" in declared


# ---------------------------------------------------------------------------- what has no C++

LAYOUT = parse_fragment("[64 | t 32@0 | v 2@0*32]")
VECTOR = parse_fragment("[64 | t 32@0*2 | v 2@0]")


def load(**changes: object) -> Copy:
    """An accepted load of 64 floats, two at a time."""
    stmt = ThreadCopy(Access("f", coords(1)), Access("x", coords(1)), (64,), None, None, VECTOR, "ld.global", 2)
    return replace(stmt, **changes)  # type: ignore[arg-type]


def holding(stmt: Stmt, layout: object = VECTOR) -> Kernel:
    fragments = (Fragment("f", float32, (64,), layout), Fragment("g", float32, (64,), VECTOR))  # type: ignore[arg-type]
    return kernels.kernel("k", (kernels.tensor("x", float32, "N"),), (stmt,), fragments, sizes=("N",))


@pytest.mark.parametrize(
    ("code", "kernel"),
    [
        ("not-explicit", holding(load(layout=None))),
        ("not-explicit", holding(load(), None)),
        ("not-explicit", holding(Stage("s", Access("x", coords(1)), (64,)))),
        ("not-explicit", holding(Share("s", Access("f", coords(1)), (64,)))),
        ("not-explicit", holding(For("k", Const(0), Param("N"), 1, (), "pipelined"))),
        ("vector-not-contiguous", holding(load(src=Access("x", (op("mul", Coord(0), Const(2)),))))),
        ("vector-not-contiguous", holding(load(layout=LAYOUT), LAYOUT)),
        ("vector-registers", holding(load(dst=Access("f", (op("xor", Coord(0), Const(1)),))))),
        ("register-missing", holding(load(layout=LAYOUT, vector=1))),
        ("register-dynamic", holding(load(dst=Access("f", (op("add", Coord(0), Param("N")),))))),
        ("copy-unsupported", holding(load(dst=Access("x", coords(1))))),
        ("shuffle-form", holding(Map(Access("f", coords(1)), Op("neg", (Elem("g", coords(1), float32),), float32),
                                     (64,), VECTOR, "warp"))),
        ("element-not-register", holding(Map(Access("f", coords(1)), Elem("x", coords(1), float32), (64,), VECTOR,
                                             "thread"))),
        ("coordinate-outside", holding(For("k", Coord(0), Param("N"), 1, ()))),
    ],
)  # fmt: skip
def test_refused(code: str, kernel: Kernel) -> None:
    with pytest.raises(ArgusError) as caught:
        emit(kernel)
    assert [d.code for d in caught.value.diagnostics] == [code]


def test_the_accepted_twin() -> None:
    assert "argus::load_global<2>(x, p0, &f[0]);" in emit(holding(load()))


def test_matrix_moves_refused() -> None:
    row = MMA["mma_m16n8k16"]
    gemm = kernels.gemm()
    loops = (s for f in gemm.body if isinstance(f, For) for s in f.body)
    move = next(s for s in loops if isinstance(s, Copy) and s.instr == "ldmatrix")
    masked = replace(move, mask=op("lt", Coord(0), Const(3)))
    across = replace(move, src=Access("as", (Const(0), Coord(1), Coord(0))), shape=(16, 16), layout=row.a)
    for stmt, code in ((masked, "matrix-move-masked"), (across, "vector-not-contiguous")):
        with pytest.raises(ArgusError) as caught:
            emit(replace(gemm, body=(For("k", Const(0), Param("K"), 32, (stmt,)),)))
        assert caught.value.diagnostics[0].code == code


def test_registers_do_not_suit_the_matrix_instruction() -> None:
    kernel = kernels.one_mma("mma_m16n8k16", bfloat16)
    wrong = tuple(
        replace(f, layout=parse_fragment("[16x16 | t 4@1*4 8@0 | v 4@1 2@0*8]")) if f.name == "af" else f
        for f in kernel.fragments
    )
    body = tuple(s for s in kernel.body if not (isinstance(s, Copy) and s.dst.obj == "af"))
    with pytest.raises(ArgusError, match="mma-layout"):
        emit(replace(kernel, fragments=wrong, body=body))
    emit(replace(kernel, body=body))


def test_division_is_plain_only_where_nothing_can_be_negative() -> None:
    def text(dividend: Expr) -> str:
        quotient = Op("floordiv", (dividend, Const(3)), int32)
        loop = For("i", Const(0), quotient, 1, ())
        return emit(kernels.kernel("k", (kernels.tensor("x", float32, "N"),), (loop,), sizes=("N",)))

    assert "i < N / 3;" in text(Param("N"))
    assert "i < (N + 2) / 3;" in text(op("add", Param("N"), Const(2)))
    assert "argus::floordiv(N - 1, 3)" in text(op("sub", Param("N"), Const(1)))


def test_a_loop_counter_may_be_negative() -> None:
    def text(start: int) -> str:
        half = For("j", Const(0), Op("floordiv", (LoopVar("i"), Const(2)), int32), 1, ())
        body = (For("i", Const(start), Param("N"), 1, (half,)),)
        return emit(kernels.kernel("k", (kernels.tensor("x", float32, "N"),), body, sizes=("N",)))

    assert "j < i / 2" in text(0)
    assert "argus::floordiv(i, 2)" in text(-1)
