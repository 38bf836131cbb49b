"""The rules of docs/tags.md, one small kernel each: what is asserted, and whether it holds."""

from __future__ import annotations

import numpy as np
import pytest

from argus.simulate import Outcome, simulate
from tests.simulate.kernels import parse

HEAD = """
kernel rules
target sm_80
warps 1 of 32
size N
tensor x: float32[N, 32] strides [32:int64, 1:int64] align 4
tensor y: float32[N, 32] strides [32:int64, 1:int64] align 4
tensor plain: float32[32] strides [1:int64] align 4
tensor index: int32[32] strides [1:int64] align 4
grid [1]
requires N >= 4
shared s: float32 32 layout 32:1 at 0
shared h: float16 64 layout 64:1 at 0
fragment a: float32 32 layout [32 | t 32@0 | v]
fragment b: float32 32 layout [32 | t 32@0 | v]
fragment c: float32 32 layout [32 | t 32@0 | v]
fragment half: float16 64 layout [64 | t 32@0*2 | v 2@0]
fragment one: float32 1 layout [1 | t 32@_ | v]
body {
  tag x[N, 32] = {row = c0, col = c1}
  tag y[N, 32] = {row = c0, col = c1}
  copy a[c0] <- x[1, c0] shape 32 layout [32 | t 32@0 | v] via ld.global
"""


def run(*body: str) -> Outcome:
    layout = "layout [32 | t 32@0 | v]"
    kernel = parse(HEAD + "\n".join("  " + line.replace("@@", f"shape 32 {layout}") for line in body) + "\n}\n")
    rng = np.random.default_rng(3)
    values = rng.standard_normal((4, 32)).astype(np.float32)
    arguments = {"x": values, "y": values, "plain": values[0], "index": np.arange(31, -1, -1, dtype=np.int32)}
    return simulate(kernel, arguments, tags=True, checks=True)


def check(holds: bool, *body: str, because: str = "") -> None:
    outcome = run(*body)
    if holds:
        assert outcome.ok, [str(v) for v in outcome.violations]
        return
    found = [v for v in outcome.violations if v.property == "tags"]
    assert found, "the assertion must fail"
    assert because in f"{found[0].arrived} {found[0].message}", found[0]


LOAD_B = "copy b[c0] <- y[{}, c0] @@ via ld.global"
ZERO_C = "map c[c0] = {} @@ scope thread"


def test_movement_keeps_tags() -> None:
    move = ["copy s[c0] <- a[c0] @@ via st.shared", "barrier", "copy b[c0] <- s[c0 ^ 3] @@ via ld.shared"]
    check(True, *move, "assert (i) in 32 {b[c0] carries [1, c0 ^ 3]}")
    check(False, *move, "assert (i) in 32 {b[c0] carries [1, c0]}", because="col = 3")
    check(True, "map b[c0] = a[c0 ^ 1] @@ scope warp", "assert (i) in 32 {b[c0].col == c0 ^ 1; b[c0].0 == 1}")


def test_elementwise_operands_must_agree() -> None:
    check(
        True,
        LOAD_B.format(1),
        "map c[c0] = a[c0] * b[c0] + 1.0 @@ scope thread",
        "assert (i) in 32 {c[c0] carries [1, c0]}",
    )
    check(
        False, LOAD_B.format(2), "map c[c0] = a[c0] * b[c0] @@ scope thread", "assert (i) in 32 {c[c0].col == c0}",
        because="tags differ in `row`",
    )  # fmt: skip
    untagged = "copy b[c0] <- plain[c0] @@ via ld.global"
    check(True, untagged, "map c[c0] = a[c0] * b[c0] @@ scope thread", "assert (i) in 32 {c[c0] carries [1, c0]}")
    chosen = "map c[c0] = where(b[c0] < 0.0, a[c0], 0.0) @@ scope thread"
    check(True, LOAD_B.format(2), chosen, "assert (i) in 32 {c[c0] carries [1, c0]}")


def test_accumulators_collect_contributions() -> None:
    both = [ZERO_C.format("0.0"), "accumulate c[c0] add a[c0] @@ scope thread", LOAD_B.format("{}")]
    both[2] = LOAD_B.format(2)
    both.append("accumulate c[c0] add b[c0] @@ scope thread")
    check(True, *both, "assert (i) in 32 {c[c0] carries [once(1, 3), c0]}")
    check(False, *both, "assert (i) in 32 {c[c0] carries [once(1, 4), c0]}", because="row = 1 to 2")
    check(False, *both, both[3], "assert (i) in 32 {c[c0] carries [once(1, 3), c0]}", because="2 2 times")
    check(False, *both, "assert (i) in 32 {c[c0].row == 1}", because="row")


def test_accumulators_start_from_the_identity() -> None:
    end = ["accumulate c[c0] add a[c0] @@ scope thread", "assert (i) in 32 {c[c0] carries [once(1, 2), c0]}"]
    check(True, ZERO_C.format("0.0"), *end)
    check(False, ZERO_C.format("1.0"), *end, because="identity")
    check(False, "map c[c0] = a[c0] @@ scope thread", *end, because="already carried a tag")
    check(False, "copy c[c0] <- plain[c0] @@ via ld.global", *end, because="identity")
    largest = [line.replace(" add ", " maximum ") for line in end]
    check(True, ZERO_C.format("-inf"), *largest)
    check(False, ZERO_C.format("0.0"), *largest, because="identity")


def test_untagged_contributions() -> None:
    start = [ZERO_C.format("0.0"), "accumulate c[c0] add a[c0] @@ scope thread"]
    end = "assert (i) in 32 {c[c0] carries [once(1, 2), c0]}"
    check(True, *start, "accumulate c[c0] add 0.0 @@ scope thread", end)
    check(False, *start, "accumulate c[c0] add 1.0 @@ scope thread", end, because="not the identity")
    check(False, *start, "copy b[c0] <- plain[c0] @@ via ld.global", "accumulate c[c0] add b[c0] @@ scope thread", end)


def test_reductions_over_lanes() -> None:
    total = ["map one[c0] = 0.0 shape 1 layout [1 | t 32@_ | v] scope thread"]
    total.append("accumulate one[0] add a[c0] @@ scope warp")
    check(True, *total, "assert (i) in 1 {one[c0] carries [1, once(0, 32)]}")
    alone = [total[0], total[1].replace("scope warp", "scope thread")]
    check(False, *alone, "assert (i) in 1 {one[c0] carries [1, once(0, 32)]}", because="col = 0")


def test_tag_statements() -> None:
    check(
        True,
        "tag a[32] = {p = 7, q = a[c0].col}",
        "assert (i) in 32 {a[c0] carries [7, c0]}",
    )
    check(False, "tag a[32] = {p = a[c0].none}", "assert (i) in 32 {a[c0].p == 0}", because="does not carry it")
    check(True, "tag a[32] = {p = data(index[c0])}", "assert (i) in 32 {a[c0].p == 31 - c0}")
    check(True, "tag a[32] = {p = c0}", "assert (i) in 32 {a[c0].p == data(index[31 - c0])}")
    check(False, "tag a[32] = {p = c0}", "assert (i) in 32 {a[c0].p == data(index[c0])}", because="p = 0")


def test_assertions_that_say_nothing() -> None:
    untagged = "copy b[c0] <- plain[c0] @@ via ld.global"
    assert "vacuous-assertion" in run(untagged, "assert (i) in 32 {b[c0].row == 1}").codes()
    check(False, "assert (i) in 32 {a[c0].other == 1}", because="no field of that name")
    check(False, "assert (i) in 32 {a[c0] carries [1, c0, 2]}", because="row=1, col=0")
    check(False, "assert (i) in 32 {b[c0].row == 1; a[c0].row == 1}", because="nothing has written")


def test_bytes_of_another_size_have_no_tag() -> None:
    store = ["copy s[c0] <- a[c0] @@ via st.shared", "barrier"]
    load = "copy half[c0] <- h[c0] shape 64 layout [64 | t 32@0*2 | v 2@0] via ld.shared"
    check(False, *store, load, "assert (i) in 64 {half[c0].col == c0 // 2}", because="another size")
    outcome = run(*store, load)
    assert outcome.ok, [str(v) for v in outcome.violations]


@pytest.mark.parametrize("lanes", ["32@0", "16@0 2@_"])
def test_every_replica_is_looked_at(lanes: str) -> None:
    n = 32 if lanes == "32@0" else 16
    body = [f"map c[c0] = 0.0 shape {n} layout [{n} | t {lanes} | v] scope thread"]
    text = HEAD.replace(
        "fragment c: float32 32 layout [32 | t 32@0 | v]", f"fragment c: float32 {n} layout [{n} | t {lanes} | v]"
    )
    body.append(f"accumulate c[c0 % {n}] add a[c0] shape 32 layout [32 | t 32@0 | v] scope thread")
    body.append(f"assert (i) in {n} {{c[c0].col == c0}}")
    values = np.ones((4, 32), np.float32)
    arguments = {"x": values, "y": values, "plain": values[0], "index": np.zeros(32, np.int32)}
    outcome = simulate(parse(text + "\n".join(body) + "\n}\n"), arguments, tags=True)
    assert outcome.ok == (n == 32), "the second replica holds elements 16 to 31"
