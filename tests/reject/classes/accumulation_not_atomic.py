"""Blocks add to one element without atomics (fla-org/flash-linear-attention#889)."""

from tests.reject.case import Case, Text

_C = "c[m0 : m0 + BLOCK_M, n0 : n0 + BLOCK_N]"
_INSIDE = "boundary_check=(0, 1))"

CASES = (
    Case(
        "examples/column_sum.py",
        Text("al.atomic_add(total[cols], part,", "al.store(total[cols], al.load(total[cols], mask=cols < N) + part,"),
        "block-race",
        "races",
    ),
    Case(
        "examples/split_k.py",
        Text(f"al.atomic_add({_C}, acc, {_INSIDE}", f"al.store({_C}, al.load({_C}, {_INSIDE} + acc, {_INSIDE}"),
        "block-race",
        "races",
    ),
)
