"""Bounds by name: what minima and maxima that bound loops are replaced by, and what is proved all the same."""

from __future__ import annotations

from argus.diagnostic import Verdict
from argus.ir.expr import Op, walk
from argus.ir.nodes import For, If, Kernel, Requires
from argus.ir.text import parse_kernel, print_expr
from argus.ir.visit import walk as statements
from argus.verify import verify
from argus.verify.model.isl import Set
from argus.verify.model.relations import Model
from argus.verify.model.resolving import differs_by_block
from argus.verify.reductions.named import named
from tests.verify.test_persistent import GEMM
from tests.verify.test_window import TEXT


def bounds(kernel: Kernel) -> list[str]:
    """The operators in the bounds of loops and in branches."""
    found = [e for s in statements(kernel.body) if isinstance(s, For) for e in (s.start, s.stop)]
    found += [s.cond for s in statements(kernel.body) if isinstance(s, If)]
    return [e.op for bound in found for e in walk(bound) if isinstance(e, Op)]


def test_each_has_one_name_with_what_convex_sets_can_say_of_it() -> None:
    kernel = parse_kernel(TEXT)
    assert {"minimum", "maximum"} <= set(bounds(kernel))
    weaker = named(kernel)
    assert not {"minimum", "maximum"} & set(bounds(weaker.kernel))
    added = [p.cond for p in weaker.kernel.preconditions[len(kernel.preconditions) :] if isinstance(p, Requires)]
    assert [print_expr(c) for c in added] == [
        "`bound of block 0` <= K",
        "`bound of block 0` <= program_id(0) * 64 + 64",
        "`bound of block 1` >= `bound of block 0`",
        "`bound of block 1` >= 1",
    ]
    assert [print_expr(d) for d in weaker.definitions] == [
        "`bound of block 0` == minimum(K, program_id(0) * 64 + 64)",
        "`bound of block 1` == maximum(`bound of block 0`, 1)",
    ]
    assert all(differs_by_block(d) for d in weaker.definitions)


def test_kernels_without_any_are_as_they_were() -> None:
    kernel = parse_kernel(GEMM)
    assert named(kernel).kernel is kernel
    assert named(kernel).definitions == ()


def test_what_takes_the_exact_bound_is_proved_of_the_kernel_as_it_is() -> None:
    """All of K is summed up only because the bound is no less than the smaller of the two."""
    stop = "maximum(minimum(K, K + 64), 1)"
    text = TEXT.replace("maximum(minimum(K, program_id(0) * 64 + 64), 1)", stop)
    text = text.replace("once(0, minimum(K, program_id(0) * 64 + 64))", "once(0, K)")
    assert named(parse_kernel(text)).definitions
    assert verify(parse_kernel(text), 240.0).verdict is Verdict.PROVED


def test_fewer_facts_hold_what_rounded_masks_need() -> None:
    """Only where the row length is even does a mask by pairs select its elements, and nothing needs more of it."""
    rounded = parse_kernel(GEMM.replace("k0 + c1 < K", "k0 + (c1 - c1 % 2) < K"))
    odd = Set("[p_K] -> { : p_K mod 2 = 1 }")
    by_eight = Set("[p_K] -> { : p_K mod 8 = 0 }")
    assert not Model(parse_kernel(GEMM), lean=True).context.set.intersect(odd).is_empty()
    facts = Model(rounded, lean=True).context.set
    assert facts.intersect(odd).is_empty()
    assert not facts.is_subset(by_eight)
    assert Model(rounded).context.set.is_subset(by_eight)


def test_a_bound_that_is_too_small_is_refuted_at_sizes_that_exist() -> None:
    stop = "maximum(minimum(K, 128), 1)"
    text = TEXT.replace("maximum(minimum(K, program_id(0) * 64 + 64), 1)", stop)
    text = text.replace("once(0, minimum(K, program_id(0) * 64 + 64))", "once(0, K)")
    report = verify(parse_kernel(text), 240.0)
    assert report.verdict is Verdict.REFUTED
    assert any(d.code == "tag-mismatch" for d in report.diagnostics)
