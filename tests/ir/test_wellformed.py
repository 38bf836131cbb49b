"""Each broken kernel is one edit away from a kernel that is accepted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from argus.ir.descriptor import STATEMENTS
from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Op, Param, ProgramId
from argus.ir.instruction import MMA
from argus.ir.nodes import (
    Access,
    Accumulate,
    Barrier,
    CommitGroup,
    Copy,
    For,
    Fragment,
    Kernel,
    Map,
    Mma,
    Requires,
    Share,
    Spec,
    SpecReduce,
    Stage,
    Stmt,
    Tag,
    WaitGroup,
)
from argus.ir.types import boolean, float32, int32
from argus.ir.visit import rewrite_body
from argus.ir.wellformed import check, check_explicit, check_tile
from argus.layout import blocked, parse, parse_fragment, replicate, tile
from tests.ir.kernels import C0, C1, explicit_reduce, tile_gemm
from tests.verify.waves import kernel as waves

Edit = Callable[[Stmt], Stmt]


def on(kind: type, edit: Callable[..., Stmt], nth: int = 0) -> Callable[[Kernel], Kernel]:
    """Applies `edit` to the `nth` statement of a kind."""

    def apply(kernel: Kernel) -> Kernel:
        left = nth

        def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
            nonlocal left
            if not isinstance(stmt, kind):
                return None
            left -= 1
            return (edit(stmt),) if left == -1 else None

        return replace(kernel, body=rewrite_body(kernel.body, change))

    return apply


def value(expr: Expr) -> Callable[[Kernel], Kernel]:
    return on(Map, lambda s: replace(s, value=expr))


TILE: dict[str, tuple[Callable[[Kernel], Kernel], str]] = {
    "unknown parameter": (value(Op("cast", (Param("Q"),), float32)), "`Q` is neither a size"),
    "parameter of another type": (value(Param("M", float32)), "`M` is a parameter of type int32"),
    "coordinate outside the domain": (value(Op("cast", (Coord(2),), float32)), "coordinate c2"),
    "loop not open": (value(Op("cast", (LoopVar("k0"),), float32)), "no enclosing loop"),
    "too many indices": (value(Elem("acc", (C0, C1, C0), float32)), "has 2 dimensions, but 3"),
    "element of another type": (value(Elem("out", (C0, C1), float32)), "holds bfloat16"),
    "element of a tensor": (value(Elem("a", (C0, C1), float32)), "cannot be read in an expression"),
    "float index": (value(Elem("acc", (Const(0.0, float32), C1), float32)), "indices are integers"),
    "value of another type": (value(Const(1)), "has type int32, not float32"),
    "constant out of range": (value(Op("cast", (Const(2**31),), float32)), "not a value of int32"),
    "wrong arity": (value(Op("exp", (Const(1.0, float32),) * 2, float32)), "takes 1 arguments"),
    "mixed types": (value(Op("add", (Const(1), Const(1.0, float32)), float32)), "different types"),
    "integer division of floats": (
        value(Op("floordiv", (Const(1.0, float32),) * 2, float32)), "does not work on float32"),
    "division by the constant 0": (
        value(Op("cast", (Op("mod", (C0, Const(0)), int32),), float32)), "`mod` by 0 has no value"),
    "wrong result type": (value(Op("cast", (Op("lt", (C0, C1), int32),), float32)), "gives bool"),
    "unknown operator": (value(Op("sinh", (Const(1.0, float32),), float32)), "not an operator"),
    "unknown object": (on(Mma, lambda s: replace(s, a=Access("zz", (C0, C1)))), "no memory object `zz`"),
    "tensor as operand": (on(Mma, lambda s: replace(s, a=Access("a", (C0, C1)))), "cannot stand here"),
    "staging into registers": (on(Stage, lambda s: replace(s, dst="acc")), "not a shared tile"),
    "padding of another type": (on(Stage, lambda s: replace(s, other=Const(0))), "padding of type int32"),
    "sharing of another type": (
        lambda k: replace(k, body=(*k.body, Share("sa", Access("acc", (C0, C1)), (64, 32)))), "does not convert"),
    "mask that is no condition": (on(Stage, lambda s: replace(s, mask=C0)), "a mask has type int32"),
    "step 0": (on(For, lambda s: replace(s, step=0)), "with step 0"),
    "counter twice": (
        on(For, lambda s: replace(s, body=(For("k0", Const(0), Const(1), 1, ()),))), "the same counter"),
    "copy that converts": (on(Copy, lambda s: replace(s, src=Access("acc", (C0, C1)))), "does not convert"),
    "tag of fewer dimensions": (on(Tag, lambda s: replace(s, shape=(Param("M"),))), "of 1 dimensions"),
    "tag field twice": (on(Tag, lambda s: replace(s, fields=(("m", C0), ("m", C1)))), "two fields of one name"),
    "bound variable twice": (
        on(Spec, lambda s: replace(s, value=SpecReduce("add", 0, Param("K"), Const(1), int32))), "bound already"),
    "unknown reduction": (
        on(Spec, lambda s: replace(s, value=SpecReduce("sub", 2, Param("K"), Const(1), int32))), "not a reduction"),
    "precondition on the block": (
        lambda k: replace(k, preconditions=(Requires(Op("lt", (ProgramId(0), Const(1)), boolean)),)),
        "program id 0 has no meaning"),
    "name twice": (lambda k: replace(k, fragments=(*k.fragments, k.fragments[0])), "`acc` is declared 2 times"),
    "grid of four axes": (lambda k: replace(k, grid=(Const(1),) * 4), "1 to 3 axes"),
    "group of no rows": (lambda k: replace(k, group=0), "not walked 0 rows at a time"),
    "group of more rows than an int32": (lambda k: replace(k, group=2**31), "not walked"),
    "size called like a tensor": (lambda k: replace(k, sizes=(*k.sizes, k.params[0].name)), "is declared 2 times"),
    "size that is declared twice": (lambda k: replace(k, sizes=(*k.sizes, k.sizes[0])), "is declared 2 times"),
    "extent that is computed": (
        lambda k: replace(k, params=(replace(k.tensors[0], shape=(Op("neg", (Const(1),), int32),) * 2), *k.params[1:])),
        "are numbers or sizes",
    ),
    "grid in floats": (
        lambda k: replace(k, grid=(Op("cast", (Op("cast", (Const(3),), float32),), int32),)), "computed in floats"
    ),
    "flat grid of nine axes": (lambda k: replace(k, grid=(Const(1),) * 9, flat=True), "1 to 8 axes"),
    "group of a grid of one axis": (lambda k: replace(k, grid=(Const(1),), group=8), "not walked 8 rows at a time"),
    "group of a grid of three axes": (lambda k: replace(k, grid=(Const(1),) * 3, group=8), "not walked 8 rows"),
    "group of no grid": (lambda k: replace(k, grid=None, group=8), "not walked 8 rows at a time"),
    "unknown target": (lambda k: replace(k, target="sm_1"), "no target"),
    "warp of 16": (lambda k: replace(k, warp_size=16), "make no block"),
    "alignment 3": (lambda k: replace(k, params=(replace(k.params[0], alignment=3), *k.params[1:])), "aligned to 3"),
}  # fmt: skip


@pytest.mark.parametrize("case", TILE)
def test_tile_rules(case: str) -> None:
    edit, message = TILE[case]
    assert check_tile(tile_gemm()) == ()
    found = check_tile(edit(tile_gemm()))
    assert any(message in d.message for d in found), found
    assert {d.code for d in found} == {"ill-formed-ir"}


TWO_WARPS = parse_fragment("[32 | t 16@0 2@_ 2@0*16 | v]")
DOMAIN = blocked((32, 64), 64, vector=4)


def layout(text_or_none: object) -> Callable[[Kernel], Kernel]:
    return lambda k: replace(k, fragments=(replace(k.fragments[0], layout=text_or_none), *k.fragments[1:]))


EXPLICIT: dict[str, tuple[Callable[[Kernel], Kernel], str]] = {
    "no target": (lambda k: replace(k, target=None), "no target"),
    "warps of another machine": (lambda k: replace(k, target="gfx942"), "gfx942 has 64"),
    "no layout": (layout(None), "has no layout yet"),
    "layout of another shape": (layout(blocked((32, 32), 64)), "does not have its shape"),
    "layout for other threads": (layout(replicate((32, 64), 32)), "is for 32 threads, not 64"),
    "layout with holes": (layout(parse_fragment("[32x64 | t 64@1 | v 16@0*2]")), "leaves elements to no thread"),
    "no place in shared memory": (
        lambda k: replace(k, shared=(replace(k.shared[0], offset=None), k.shared[1])), "has no place yet"),
    "shared layout of another shape": (
        lambda k: replace(k, shared=(replace(k.shared[0], layout=parse("(64,32):(32,1)")), k.shared[1])),
        "does not have its shape"),
    "element before the tile": (
        lambda k: replace(k, shared=(k.shared[0], replace(k.shared[1], layout=parse("64:-1")))), "before the tile"),
    "offset inside an element": (
        lambda k: replace(k, shared=(k.shared[0], replace(k.shared[1], offset=8190))), "cannot begin at byte"),
    "policy left": (on(Barrier, lambda s: For("i", Const(0), Const(1), 1, (), "pipelined", 2)), "still a policy"),
    "unknown instruction": (on(Copy, lambda s: replace(s, instr="memcpy")), "not a copy instruction"),
    "instruction of other spaces": (on(Copy, lambda s: replace(s, instr="ld.global")), "copies global to fragment"),
    "instruction of another machine": (on(Copy, lambda s: replace(s, instr="ds_read"), 1), "has no ds_read"),
    "vector too wide": (on(Copy, lambda s: replace(s, vector=8)), "does not move 8 elements"),
    "domain without layout": (on(Map, lambda s: replace(s, layout=None)), "has no layout yet"),
    "domain of another shape": (on(Map, lambda s: replace(s, shape=(32, 32))), "does not have its shape"),
    "map of unknown scope": (on(Map, lambda s: replace(s, scope="block")), "has the scope block"),
    "another thread's registers": (
        on(Map, lambda s: replace(s, value=Elem("x", (C0, Op("xor", (C1, Const(32)), int32)), float32))),
        "in registers that are not its own"),
    "another thread's registers written": (
        on(Map, lambda s: replace(s, layout=blocked((32, 64), 64))), "in registers that are not its own"),
    "copy into another thread's registers": (
        on(Copy, lambda s: replace(s, layout=blocked((32, 64), 64), vector=1), 1), "registers that are not its own"),
    "shuffle of a computed value": (
        on(Map, lambda s: replace(s, scope="warp")), "reads more than one element"),
    "shuffle out of the warp": (
        on(Map, lambda s: replace(s, scope="warp", value=Elem("y", (C0,), float32)), 1),
        "in registers that are not its warp's"),
    "reduction by part of a cell's warps": (
        on(Accumulate, lambda s: replace(s, layout=TWO_WARPS), 1), "totals a cell of `r` without element"),
    "atomic on nothing": (on(Accumulate, lambda s: replace(s, instr=None)), "does not accumulate into global"),
}  # fmt: skip


def with_shuffle(kernel: Kernel) -> Kernel:
    """A second register tile whose elements are split between the warps."""
    y = Fragment("y", float32, (32,), TWO_WARPS)
    return replace(kernel, fragments=(*kernel.fragments, y))


@pytest.mark.parametrize("case", EXPLICIT)
def test_explicit_rules(case: str) -> None:
    edit, message = EXPLICIT[case]
    kernel = with_shuffle(explicit_reduce())
    assert check_explicit(kernel) == ()
    found = check_explicit(edit(kernel))
    assert any(message in d.message for d in found), found


def test_a_shuffle_within_the_warp_is_accepted() -> None:
    partner = Op("xor", (C1, Const(4)), int32)
    shuffle = Map(Access("x", (C0, C1)), Elem("x", (C0, partner), float32), (32, 64), DOMAIN, "warp")
    assert check_explicit(replace(explicit_reduce(), body=(shuffle,))) == ()
    own = replace(shuffle, scope="thread")
    assert len(check_explicit(replace(explicit_reduce(), body=(own,)))) == 1


def test_matrix_instructions() -> None:
    """A lane map that is not the instruction's, a shape that it does not divide, a type that it does not take."""
    row = MMA["mma_m16n8k16"]
    m, n, k = row.shape
    kernel = replace(
        explicit_reduce(),
        num_warps=1,
        shared=(),
        fragments=(
            Fragment("a", row.operands[0], (m, 2 * k), tile(row.a, (1, 1), (m, 2 * k))),
            Fragment("b", row.operands[0], (n, 2 * k), tile(row.b, (1, 1), (n, 2 * k))),
            Fragment("d", row.accumulator, (m, n), tile(row.c, (1, 1), (m, n))),
        ),
        params=(),
        grid=None,
        body=(
            Mma(
                Access("d", (C0, C1)),
                Access("a", (C0, Coord(2))),
                Access("b", (C1, Coord(2))),
                (m, n, 2 * k),
                row.name,
                (1, 1),
            ),
        ),
    )
    assert check_explicit(kernel) == ()

    def messages(changed: Kernel) -> str:
        return "\n".join(d.message for d in check_explicit(changed))

    def with_a(fragment: Fragment) -> Kernel:
        return replace(kernel, fragments=(fragment, *kernel.fragments[1:]))

    a = kernel.fragments[0]
    assert "is not made of" in messages(with_a(replace(a, layout=blocked(a.shape, 32))))
    assert "does not divide" in messages(on(Mma, lambda s: replace(s, shape=(m, n, k + 1)))(kernel))
    assert "does not take float32" in messages(
        replace(kernel, fragments=tuple(replace(f, dtype=float32) if f.name != "d" else f for f in kernel.fragments))
    )
    assert "warps are not the block's" in messages(on(Mma, lambda s: replace(s, warps=(2, 1)))(kernel))
    assert "not a matrix instruction" in messages(on(Mma, lambda s: replace(s, instr="dot"))(kernel))


def test_a_kernel_is_checked_once_and_every_other_again(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Kernel] = []
    rules = check.problems
    monkeypatch.setattr(check, "problems", lambda k, explicit: [checked.append(k), *rules(k, explicit)][1:])
    kernel = explicit_reduce()
    assert check_explicit(kernel) == () and check_explicit(kernel) == ()
    assert checked == [kernel]
    again = replace(kernel, name="another")
    assert not again.well_formed and check_explicit(again) == ()
    broken = replace(kernel, target="none")
    assert check_explicit(broken) and check_explicit(broken)
    assert len(checked) == 4


def test_every_kind_of_statement_has_its_rules() -> None:
    assert set(check.RULES) == set(STATEMENTS)


def test_groups_of_copies_are_for_targets_that_have_such_copies() -> None:
    (found,) = check_explicit(waves(["commit_group"]))
    assert "gfx942 has no cp.async" in found.message
    assert len(check_explicit(waves(["wait_group 0"]))) == 1
    assert check_explicit(waves(["s_waitcnt vmcnt 0"])) == ()
    assert check_explicit(replace(explicit_reduce(), body=(CommitGroup(), WaitGroup(0)))) == ()
