from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argus.diagnostic import SourceError
from argus.ir import text_parser
from argus.ir.expr import Const, Expr, LoopVar, Param, ProgramId, op
from argus.ir.nodes import (
    Access,
    BulkCopy,
    For,
    Kernel,
    Mbarrier,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierWait,
    MmaCommit,
    MmaFence,
    MmaWait,
    ProxyFence,
    Role,
    Roles,
    Signal,
    Stage,
    Stmt,
)
from argus.ir.text import parse_kernel, print_kernel
from tests.ir.kernels import KERNELS, roles_gemm, tile_gemm


@pytest.mark.parametrize("make", KERNELS)
def test_reads_back_what_it_prints(make: Callable[[], Kernel]) -> None:
    kernel = make()
    text = print_kernel(kernel)
    assert parse_kernel(text) == kernel
    assert print_kernel(parse_kernel(text)) == text


@given(st.integers(1, 2**31 - 1))
def test_reads_back_groups(group: int) -> None:
    kernel = replace(tile_gemm(), group=group)
    text = print_kernel(kernel)
    assert parse_kernel(text) == kernel
    assert ("grid [(M + 63) // 64, (N + 63) // 64] group" in text) == (group > 1)


@pytest.mark.parametrize("schedule", ["cooperative", "pingpong", "rows"])
def test_reads_back_schedules(schedule: str) -> None:
    kernel = replace(tile_gemm(), persistent=True, schedule=schedule)
    text = print_kernel(kernel)
    assert parse_kernel(text) == kernel
    assert (f"persistent {schedule}" in text) == (schedule != "cooperative")


def test_reads_back_flat_grids() -> None:
    kernel = replace(tile_gemm(), flat=True)
    assert "grid [(M + 63) // 64, (N + 63) // 64] flat\n" in print_kernel(kernel)
    assert parse_kernel(print_kernel(kernel)) == kernel


NAMES = st.sampled_from(["full", "empty", "parity", "signal", "once", "c0", "odd name", "mbarrier", "role"])
NUMBERS = st.integers(0, 1 << 20)
LEAVES = st.one_of(
    st.builds(Const, st.integers(-8, 64)),
    st.builds(LoopVar, NAMES),
    st.builds(Param, NAMES),
    st.builds(ProgramId, st.integers(0, 2)),
)
EXPRS: st.SearchStrategy[Expr] = st.recursive(
    LEAVES, lambda inner: st.builds(op, st.sampled_from(["add", "floordiv", "mod"]), inner, inner), max_leaves=4
)
PLAIN: st.SearchStrategy[Stmt] = st.one_of(
    st.builds(MmaFence),
    st.builds(MmaCommit),
    st.builds(ProxyFence),
    st.builds(MmaWait, NUMBERS),
    st.builds(MbarrierExpect, NAMES, EXPRS, NUMBERS),
    st.builds(MbarrierArrive, NAMES, EXPRS),
    st.builds(MbarrierWait, NAMES, EXPRS, EXPRS),
    st.builds(
        lambda index, signal, once: BulkCopy(
            Access("at", (index,)), Access("a", (index,)), (4,), None, None, "tma.load", signal, once
        ),
        EXPRS,
        st.none() | st.builds(Signal, NAMES, EXPRS),
        st.booleans(),
    ),
    st.builds(
        lambda index, once: Stage("at", Access("a", (index,)), (4,), once=once),
        EXPRS,
        st.booleans(),
    ),
)
BODIES = st.lists(
    st.recursive(
        PLAIN,
        lambda inner: st.builds(
            For,
            NAMES,
            EXPRS,
            EXPRS,
            NUMBERS,
            st.tuples(inner),
            st.just("pipelined"),
            st.integers(1, 9),
            st.integers(0, 9),
        ),
        max_leaves=2,
    ),
    max_size=3,
).map(tuple)
ROLES = st.builds(Role, NAMES, NUMBERS, NUMBERS, st.none() | NUMBERS, BODIES)


@given(
    st.lists(ROLES, max_size=3).map(tuple),
    st.lists(st.builds(Mbarrier, NAMES, NUMBERS, NUMBERS, st.none() | NUMBERS), max_size=3).map(tuple),
)
def test_reads_back_roles_and_mbarriers(roles: tuple[Role, ...], barriers: tuple[Mbarrier, ...]) -> None:
    kernel = replace(roles_gemm(), body=(Roles(roles),), barriers=barriers)
    assert parse_kernel(print_kernel(kernel)) == kernel


def test_says_where_the_text_is_wrong() -> None:
    with pytest.raises(SourceError) as caught:
        parse_kernel("kernel k\nwarps 1 of 32\nbody {\n  jump\n}\n")
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code, diagnostic.span.line, diagnostic.span.column) == ("ir-syntax", 4, 3)


@pytest.mark.parametrize("extent", ["(" * 3000 + "N" + ")" * 3000, " + ".join(["N"] * 3000), "-" * 3000 + "N"])
def test_what_is_nested_too_deep_is_refused(extent: str) -> None:
    text = "kernel k\ntarget sm_80\nwarps 1 of 32\nsize N\ngrid [{}]\nbody {{\n}}\n"
    with pytest.raises(SourceError) as caught:
        parse_kernel(text.format(extent))
    assert {d.code for d in caught.value.diagnostics} == {"nesting-too-deep"}
    assert parse_kernel(text.format(" + ".join(["N"] * 100))).sizes == ("N",)


def test_the_parser_is_small() -> None:
    """A rule has as many alternatives as its optional parts have combinations: one rule for a kernel took 13 s."""
    alternatives = Counter(str(rule.origin.name) for rule in text_parser._grammar().rules)
    assert max(alternatives.values()) <= 64
