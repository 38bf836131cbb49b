"""Tiles that the copy engine cannot bring: a role of threads loads them, and the proof goes on as before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from argus.diagnostic import Verdict
from argus.ir.expr import Const, Coord, op
from argus.ir.nodes import Copy, Kernel, MbarrierArrive, MbarrierWait, Mma, ProxyFence, Roles, Stage, Stmt, Tensor
from argus.ir.text import print_kernel
from argus.ir.visit import rewrite_body, walk
from argus.ir.wellformed import check_explicit, check_tile
from argus.passes import PASSES, lower
from argus.passes.lower import for_target
from argus.verify import verify
from tests.conftest import Golden
from tests.passes.test_specialise import column_major, edited, gemm, masked_by_parity, roles


def aligned(kernel: Kernel, **bytes: int) -> Kernel:
    """The kernel with these alignments of its tensors."""
    params = (
        replace(p, alignment=bytes.get(p.name, p.alignment)) if isinstance(p, Tensor) else p for p in kernel.params
    )
    return replace(kernel, params=tuple(params))


LOADED: dict[str, Callable[[], Kernel]] = {
    "tensors of two bytes": lambda: gemm(alignment=2),
    "tensors of eight bytes": lambda: gemm(alignment=8),
    "rows that no box holds": lambda: gemm(tile=(64, 320, 64), stages=2),
    "rows of stride 1": lambda: column_major(gemm()),
}


def instructions(kernel: Kernel, role: str) -> list[str | None]:
    return [s.instr for s in walk(roles(kernel)[role].body) if isinstance(s, Copy)]


def test_golden(golden: Golden) -> None:
    golden("gemm_loads.txt", print_kernel(lower(aligned(gemm(8), a=2), "sm_90a")))


@pytest.mark.parametrize("case", LOADED)
def test_threads_load_what_the_copy_engine_cannot(case: str) -> None:
    kernel = for_target(LOADED[case](), "sm_90a")
    for run in PASSES:
        kernel = run(kernel)
        assert not check_tile(kernel), run.__name__
    assert not check_explicit(kernel)
    assert set(roles(kernel)) == {"loader", "compute"} and roles(kernel)["loader"].num_warps == 4
    assert set(instructions(kernel, "loader")) <= {"ld.global", "ld.global.unaligned", "st.shared", "stmatrix"}
    assert verify(kernel).verdict is Verdict.PROVED


def test_a_mask_that_is_not_the_tensors_edge() -> None:
    kernel = lower(edited(gemm(), Stage, masked_by_parity), "sm_90a")
    assert set(roles(kernel)) == {"loader", "compute"} and not check_explicit(kernel)
    assert verify(kernel).verdict is Verdict.REFUTED  # half of each row is not multiplied


def test_only_the_operand_that_the_copy_engine_cannot_bring_is_loaded() -> None:
    kernel = lower(aligned(gemm(8), a=2), "sm_90a")
    found = roles(kernel)
    assert {name: (r.first_warp, r.num_warps) for name, r in found.items()} == {
        "loader": (4, 4),
        "producer": (8, 1),
        "compute": (0, 4),
    }
    assert instructions(kernel, "producer") == ["tma.load"]
    assert [b.arrivals for b in kernel.barriers] == [5, 4]
    assert verify(kernel).verdict is Verdict.PROVED


def test_four_warps_load_both_operands_if_they_load_one() -> None:
    found = roles(lower(aligned(gemm(4), a=2), "sm_90a"))
    assert set(found) == {"loader", "compute"}


@pytest.mark.parametrize(
    ("alignment", "instr", "vector"),
    [(2, "ld.global.unaligned", 8), (4, "ld.global.unaligned", 8), (8, "ld.global", 4)],
)
def test_rows_of_any_alignment_are_loaded_in_vectors(alignment: int, instr: str, vector: int) -> None:
    kernel = lower(gemm(alignment=alignment), "sm_90a")
    copies = [s for s in walk(roles(kernel)["loader"].body) if isinstance(s, Copy)]
    assert {(s.instr, s.vector) for s in copies if s.dst.obj.startswith(("at_in", "bt_in"))} == {(instr, vector)}


def test_rows_that_are_not_contiguous_are_loaded_element_by_element() -> None:
    kernel = lower(LOADED["rows of stride 1"](), "sm_90a")
    loads = [s for s in walk(roles(kernel)["loader"].body) if isinstance(s, Copy) and s.src.obj == "a"]
    assert loads and all(s.instr == "ld.global" for s in loads)


def test_threads_that_cannot_share_out_vectors_load_element_by_element() -> None:
    kernel = lower(gemm(12, alignment=2), "sm_90a")
    assert roles(kernel)["loader"].num_warps == 12
    assert set(instructions(kernel, "loader")) == {"ld.global", "st.shared"}
    assert verify(kernel).verdict is Verdict.PROVED


def test_a_mask_that_does_not_end_a_vector_is_refused() -> None:
    """The instruction fills with zeros from one place on: a mask with holes is another one's."""
    kernel = lower(gemm(alignment=2), "sm_90a")
    odd = op("eq", op("mod", Coord(1), Const(2)), Const(0))

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if isinstance(stmt, Copy) and stmt.instr == "ld.global.unaligned":
            return (replace(stmt, mask=odd if stmt.mask is None else op("and", stmt.mask, odd)),)
        return None

    report = verify(replace(kernel, body=rewrite_body(kernel.body, change)))
    assert report.verdict is Verdict.REFUTED
    assert "misaligned-vector" in {d.code for d in report.diagnostics}


def without(kind: type[Stmt]) -> Callable[[Kernel], Kernel]:
    def edit(kernel: Kernel) -> Kernel:
        def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
            match stmt:
                case Roles(roles=parts):
                    done = (replace(r, body=_dropped(r.body, kind)) if r.name == "loader" else r for r in parts)
                    return (replace(stmt, roles=tuple(done)),)
                case _:
                    return None

        return replace(kernel, body=tuple(new for s in kernel.body for new in change(s) or (s,)))

    return edit


def _dropped(body: tuple[Stmt, ...], kind: type[Stmt]) -> tuple[Stmt, ...]:
    return rewrite_body(body, lambda s: () if isinstance(s, kind) else None)


def late_fence(kernel: Kernel) -> Kernel:
    """The fence after the arrival: the tensor cores may read what is not there yet."""

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        match stmt:
            case ProxyFence():
                return ()
            case MbarrierArrive(barrier="full"):
                return (stmt, ProxyFence(span=stmt.span))
            case _:
                return None

    return replace(kernel, body=rewrite_body(kernel.body, change))


WRONG: dict[str, tuple[Callable[[Kernel], Kernel], str]] = {
    "no fence between the stores and the products": (without(ProxyFence), "missing-proxy-fence"),
    "a fence after the arrival": (late_fence, "missing-proxy-fence"),
    "buffers that are filled while they are read": (without(MbarrierWait), "data-race"),
    "no arrival": (without(MbarrierArrive), "arrival-count"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_loading_role_that_is_wrong_is_refuted(case: str) -> None:
    edit, code = WRONG[case]
    kernel = lower(gemm(alignment=2), "sm_90a")
    assert any(isinstance(s, Mma) for s in walk(kernel.body))
    report = verify(edit(kernel))
    assert report.verdict is Verdict.REFUTED
    assert code in {d.code for d in report.diagnostics}
