"""Descriptors of statements: what is derived from the fields and the text form that a node declares."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from argus.ir.descriptor import STATEMENTS, Flag, Kind, Option, describe
from argus.ir.expr import Const, Coord
from argus.ir.nodes import Access, BulkCopy, BulkWait, For, If, Programs, Signal, WaitGroup
from argus.ir.text import print_kernel
from argus.ir.text_parser import parse_kernel, statement_rules
from argus.ir.visit import blocks, map_accesses, map_exprs
from argus.source import Span, span_field
from tests.ir.kernels import tile_gemm


@pytest.mark.parametrize("node", STATEMENTS)
def test_every_statement_has_a_form_with_all_of_its_fields(node: type) -> None:
    assert f"\n{describe(node).name}: " in statement_rules()


def test_a_field_that_the_form_leaves_out_is_a_mistake() -> None:
    @dataclass(frozen=True, slots=True)
    class Hint:
        FORM: ClassVar[str] = "hint {level}"
        level: int
        loud: bool = False
        span: Span = span_field()

    with pytest.raises(TypeError, match="the text form of Hint leaves out loud"):
        describe(Hint)


def test_an_option_of_a_node_is_a_field_and_its_place_in_the_form() -> None:
    @dataclass(frozen=True, slots=True)
    class Hint:
        FORM: ClassVar[str] = "hint {level}(? for {turns})(?loud: loud)"
        level: int
        turns: int | None = None
        loud: bool = False
        span: Span = span_field()

    found = describe(Hint)
    assert [f.kind for f in found.fields.values()] == [Kind.NUMBER, Kind.NUMBER, Kind.FLAG]
    assert [type(p) for p in found.form[2:]] == [Option, Flag]


def test_blocks_and_expressions_follow_from_the_types_of_fields() -> None:
    inner = (WaitGroup(0),)
    assert list(blocks(For("i", Const(0), Const(4), 1, inner))) == [inner]
    assert list(blocks(If(Const(True), inner, ()))) == [inner, ()]
    assert list(blocks(Programs(inner))) == [inner]
    to, source = Access("s", (Coord(0),)), Access("a", (Coord(0),))
    copy = BulkCopy(to, source, (4,), instr="tma.load", signal=Signal("full", Coord(0)))
    moved = map_exprs(copy, lambda e: Coord(1) if e == Coord(0) else None)
    assert moved.signal == Signal("full", Coord(1)) and moved.dst.index == moved.src.index == (Coord(1),)
    assert map_accesses(copy, lambda a: Access("t", a.index)).src.obj == "t"  # type: ignore[union-attr]


@pytest.mark.parametrize("wait", [BulkWait(1), BulkWait(0, True)])
def test_a_flag_may_be_part_of_a_word(wait: BulkWait) -> None:
    kernel = replace(tile_gemm(), body=(wait,))
    text = print_kernel(kernel)
    assert f"  bulk_wait{'_read' if wait.read else ''} {wait.pending}\n" in text
    assert parse_kernel(text) == kernel
