"""Roles that are alike: which are proved as one, what that one is, and that nothing wrong is proved so."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pytest

import argus
from argus.compile import elaborate, lower
from argus.diagnostic import Severity, Verdict
from argus.frontend import Options
from argus.ir.cluster import unite
from argus.ir.expr import Expr, Param, walk
from argus.ir.nodes import Copy, Kernel, MbarrierExpect, Requires, Roles
from argus.ir.text import parse_kernel, print_expr, print_kernel
from argus.ir.visit import walk as statements
from argus.source import SourceFile
from argus.verify import verify
from argus.verify.model.program import NUMBER
from argus.verify.reductions.alike import alone
from tests.passes.test_apart import TEXT, lowered
from tests.verify.test_apart import attention

pytestmark = pytest.mark.slow


@cache
def product(groups: int = 2) -> str:
    return print_kernel(lowered(BLOCK_M=64 * groups))


def roles(kernel: Kernel) -> list[str]:
    return [role.name for s in kernel.body if isinstance(s, Roles) for role in s.roles]


def rows(kernel: Kernel) -> set[str]:
    """The rows of tensors that copies touch."""
    copies = [s for s in statements(kernel.body) if isinstance(s, Copy)]
    tensors = {t.name for t in kernel.tensors}
    return {print_expr(a.index[0]) for s in copies for a in (s.dst, s.src) if a.obj in tensors and a.obj != "b"}


def numbered(expr: Expr) -> bool:
    return any(isinstance(e, Param) and e.name.startswith(NUMBER) for e in walk(expr))


@pytest.mark.parametrize("groups", [2, 3])
def test_one_role_stands_for_all_with_its_share_of_what_they_have_in_common(groups: int) -> None:
    kernel = parse_kernel(product(groups))
    one = alone(kernel)
    assert roles(one) == ["producer", "compute"]
    assert {b.name: b.arrivals for b in one.barriers} == {"full": 1, "empty": 4}
    assert [s.name for s in one.shared] == ["at", "bt", "c_tile_panels"]
    assert [f.name for f in one.fragments] == ["acc", "c_tile"]
    (told,) = (s.bytes for s in statements(one.body) if isinstance(s, MbarrierExpect))
    assert told == 2 * 64 * 64 * 2, "its own rows of one operand, and the other operand"
    number = f"`{NUMBER}compute`"
    assert rows(one) == {f"program_id(0) * {64 * groups} + c0 + {number} * 64"}
    added = [p.cond for p in one.preconditions[len(kernel.preconditions) :] if isinstance(p, Requires)]
    assert [print_expr(c) for c in added] == [f"{number} >= 0", f"{number} < {groups}"]


def test_tiles_that_a_role_has_for_itself_are_filled_for_one() -> None:
    kernel = parse_kernel(attention())
    one = alone(kernel)
    assert roles(one) == ["producer", "compute"]
    assert len(one.barriers) == len(kernel.barriers) - 2
    assert not {"qt1", "o_tile1_panels"} & {s.name for s in one.shared}


def test_copies_that_stand_together_stand_in_any_order() -> None:
    turned = re.sub(COPIES, r"\2\1", product())
    assert turned != product()
    assert roles(alone(parse_kernel(turned))) == ["producer", "compute"]


def test_each_block_of_a_cluster_of_four_has_its_own_set_of_roles() -> None:
    """Of 2 x 2 blocks, two bring a tile for one another: what is brought for a role stands between the others'."""
    file = Path(argus.__file__).parent / "kernels" / "gemm.py"
    options = Options(target="sm_90a", constexprs={"CLUSTER": 4, "ACROSS": 2})
    tile = elaborate(SourceFile(str(file), file.read_text(encoding="utf-8")), "gemm", options)
    one = alone(unite(lower(tile, "sm_90a")))
    assert roles(one) == [f"{n}.{rank}" for rank in range(4) for n in ("producer", "compute")]


def test_each_block_of_a_cluster_has_its_own_set_of_roles() -> None:
    kernel = unite(lowered(TEXT, CLUSTER=2))
    assert roles(kernel) == [f"{n}.{rank}" for rank in (0, 1) for n in ("producer", "compute", "compute1")]
    one = alone(kernel)
    assert roles(one) == [f"{n}.{rank}" for rank in (0, 1) for n in ("producer", "compute")]
    assert {b.name: b.arrivals for b in one.barriers} == {"full.0": 1, "empty.0": 8, "full.1": 1, "empty.1": 8}


def test_kernels_without_such_roles_are_as_they_were() -> None:
    for text in (TEXT.replace('"rows"', '"cooperative"'), TEXT.replace('"rows"', '"pingpong"')):
        kernel = lowered(text)
        assert alone(kernel) is kernel


STEP = "            mbarrier_arrive empty[(turn + 2) % 3]\n"
ROW = "program_id(0) * 128 + 64 + c0"
SECOND = f"{ROW}, program_id(1) * 64 + c1] <~ c_tile1_panels[0, c0, c1] shape 64x64 if ({ROW}"
FIRST = SECOND.replace(" + 64 + c0", " + c0")
OUT = "        bulk_wait_read 0\n"
LOAD = "        copy {0}[c0, c1] <- c[program_id(0) * 128 + c0, c1] shape 64x64 layout {1} via ld.global\n"
SPREAD = "[64x64 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 8@1*8]"
COPIES = "(.* at\\[turn.*full.*\n)(.* at1\\[turn.*\n)"
FREE = "          mbarrier_wait empty[turn % 3] parity (turn // 3 + 1) % 2\n"
WAIT, EXPECT = r"( +mbarrier_wait empty1?\[program % 1\].*\n)", r"( +mbarrier_expect full1?\[program % 1\].*\n)"


def twice(text: str, old: str, new: str) -> str:
    """The second role's, which comes last in the text."""
    place = text.rindex(old)
    return text[:place] + new + text[place + len(old) :]


@cache
def unlike() -> dict[str, str]:
    """Kernels whose roles look alike and are not, or do to each other what one alone does not show."""
    two, three = product(), product(3)
    producer, *computing = two.partition("    role compute warps")
    both = "".join(computing)
    return {
        "rows are not evenly apart": three.replace("192 + 128 + c0", "192 + 120 + c0"),
        "one hands another buffer back": twice(two, STEP, STEP.replace("+ 2", "+ 1")),
        "one does not hand buffers back": twice(two, STEP, ""),
        "one waits for another phase": twice(two, "parity turn // 3 % 2", "parity (turn // 3 + 1) % 2"),
        "one loop is longer": twice(two, "in 0 .. K step", "in 0 .. K + 64 step"),
        "one multiplies the other's rows": twice(two, "+= at1[", "+= at["),
        "the tile is of another size": two.replace("at1: bfloat16 3x64x64", "at1: bfloat16 3x72x64"),
        "both write one tile": two.replace("c_tile1_panels[", "c_tile_panels["),
        "their tiles share bytes": two.replace("at 49152", "at 24576"),
        "what they write is read": producer + both.replace(OUT, LOAD.format("c_tile", SPREAD) + OUT, 1)[::-1].replace(
            OUT[::-1], (LOAD.format("c_tile1", SPREAD) + OUT)[::-1], 1)[::-1],
        "their rows are filled before they are free": re.sub(f"{WAIT}{EXPECT}", r"\2\1", attention()),
        "a wait stands between their tiles": re.sub(COPIES, r"\1" + FREE + r"\2", two),
        "bytes are announced twice": re.sub("( +mbarrier_expect full.*\n)", r"\1\1", two),
        "they meet at a barrier": two.replace(OUT, "        barrier_sync 5 count 256\n" + OUT),
        "they take turns": two.replace("      programs {", "      programs turn 0 of 2 {"),
    }  # fmt: skip


UNLIKE = (
    "rows are not evenly apart", "one hands another buffer back", "one does not hand buffers back",
    "one waits for another phase", "one loop is longer", "one multiplies the other's rows",
    "the tile is of another size", "both write one tile", "their tiles share bytes", "what they write is read",
    "their rows are filled before they are free", "a wait stands between their tiles", "bytes are announced twice",
    "they meet at a barrier", "they take turns",
)  # fmt: skip


def test_each_of_them_is_named() -> None:
    assert tuple(unlike()) == UNLIKE


@pytest.mark.parametrize("name", UNLIKE)
def test_roles_that_are_not_alike_stay(name: str) -> None:
    text = unlike()[name]
    assert text not in (product(), product(3), attention())
    kernel = parse_kernel(text)
    assert alone(kernel) is kernel


WRONG: dict[str, Callable[[], str]] = {
    "both write one tile": lambda: unlike()["both write one tile"],
    "their rows are filled before they are free": lambda: unlike()["their rows are filled before they are free"],
    "both store the same rows": lambda: product().replace(SECOND, FIRST),
    "none waits for its products": lambda: product().replace("          mma_wait 1\n", ""),
    "none hands its last buffer back": lambda: product().replace("            mbarrier_arrive empty[turn % 3]\n", ""),
    "no row is waited for": lambda: re.sub(" +mbarrier_wait full1?\\[program.*\n", "", attention()),
}
"""With roles that are alike and without: all are wrong."""


@pytest.mark.parametrize("name", WRONG)
def test_rejected(name: str) -> None:
    text = WRONG[name]()
    assert text not in (product(), attention())
    report = verify(parse_kernel(text), 120.0)
    refuted = [d for d in report.diagnostics if d.severity is Severity.ERROR and d.verdict is Verdict.REFUTED]
    assert report.verdict is Verdict.REFUTED, report.diagnostics
    assert refuted and all(d.witness is not None and d.witness.replayed for d in refuted), refuted


@pytest.mark.parametrize("made", [partial(product, 3), attention], ids=["product", "attention"])
def test_accepted(made: Callable[[], str]) -> None:
    text = made()
    assert verify(parse_kernel(text), 120.0).verdict is Verdict.PROVED


def test_an_assertion_that_says_nothing_in_one_of_the_roles_says_nothing() -> None:
    """Where all rows are in the first role's half, the second's assertions speak of no element."""
    kernel = parse_kernel(re.sub(r"(grid .*\n)", r"\1requires M <= 64\n", product()))
    assert roles(alone(kernel)) == ["producer", "compute"]
    report = verify(kernel, 120.0)
    assert report.verdict is not Verdict.PROVED
    assert all("says nothing" in d.message for d in report.diagnostics if d.severity is Severity.ERROR)
